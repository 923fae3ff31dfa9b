//! An EC2NodeClass, as the operator looks at it, without asking AWS anything.

use crate::objects::Ec2NodeClass;
use crate::problem::Problem;

/// Tag keys that the operator writes on everything it makes.
pub const RESERVED_TAGS: &[&str] =
    &["karpenter.sh/nodepool", "eks:eks-cluster-name", "karpenter.k8s.aws/ec2nodeclass", "karpenter.sh/nodeclaim"];

impl Ec2NodeClass {
    /// Tags that would overwrite ours. The schema refuses them too, but classes may be older than the schema.
    pub fn validate_tags(&self) -> Vec<Problem> {
        let keys = self.spec.tags.iter().flat_map(|tags| tags.keys());
        keys.filter(|key| RESERVED_TAGS.contains(&key.as_str()) || is_cluster_tag(key))
            .map(|key| {
                Problem::new(
                    format!("spec.tags[{key}]"),
                    format!("{key:?}"),
                    "the operator writes this tag itself; leave it out",
                )
            })
            .collect()
    }

    /// Kubelet settings that no node could take, or that this class's family cannot pass on.
    pub fn validate_kubelet(&self) -> Vec<Problem> {
        let Some(kubelet) = &self.spec.kubelet else { return Vec::new() };
        let mut problems = super::kubelet::problems(kubelet);
        problems.extend(super::kubelet::unsupported(kubelet, &self.resolved_ami_family()));
        problems
    }
}

/// `kubernetes.io/cluster/<name>`, for any name a cluster can have.
fn is_cluster_tag(key: &str) -> bool {
    let Some(name) = key.strip_prefix("kubernetes.io/cluster/") else { return false };
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tags_that_we_write_ourselves_are_refused() {
        for (key, is_fine) in [
            ("team", true),
            ("Name", true),
            ("kubernetes.io/cluster/mine", false),
            ("kubernetes.io/cluster/-odd", true),
            ("kubernetes.io/cluster", true),
            ("karpenter.sh/nodepool", false),
            ("karpenter.sh/nodeclaim", false),
            ("eks:eks-cluster-name", false),
            ("karpenter.k8s.aws/ec2nodeclass", false),
        ] {
            let class: Ec2NodeClass = serde_json::from_value(json!({"spec": {"tags": {key: "x"}}})).unwrap();
            assert_eq!(class.validate_tags().is_empty(), is_fine, "{key}");
        }
    }
}
