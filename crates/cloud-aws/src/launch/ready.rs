//! Whether a class can be launched from: what is asked before anything else.

use kerf_api::{CustomObject, Ec2NodeClass, labels};
use kerf_cloud::{CloudError, LaunchOrder};

/// Tags that are ours to write.
const OUR_TAGS: [&str; 4] =
    [labels::NODE_POOL, labels::EC2_NODE_CLASS, "eks:eks-cluster-name", "karpenter.sh/nodeclaim"];

/// The class of an order, if machines may be launched from it now. The questions come in the contract's order.
pub(super) fn class(order: &LaunchOrder) -> Result<Ec2NodeClass, CloudError> {
    let named = format!("EC2NodeClass {}", order.node_class.name);
    let given_up = |why: &str| {
        let message = format!("NodeClaim {}: {named} {why}", order.claim);
        CloudError::NoCapacity { message: message.into(), sold_out: Vec::new() }
    };
    let object = order.class_object.as_deref().ok_or_else(|| given_up("does not exist"))?;
    let mut class: Ec2NodeClass = serde_json::from_value(object.clone()).map_err(|error| {
        let message = format!("NodeClaim {}: {named} cannot be read: {error}", order.claim);
        CloudError::ClassNotReady { message: message.into() }
    })?;
    class.apply_defaults();
    if class.metadata.deletion_timestamp.is_some() {
        return Err(given_up("is being deleted"));
    }
    let not_ready = |why: String| CloudError::ClassNotReady { message: format!("{named} {why}").into() };
    let conditions = class.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    match conditions.iter().find(|condition| condition.type_ == "Ready") {
        Some(ready) if ready.status == "False" => {
            return Err(not_ready(format!("is not ready: {}: {}", ready.reason, ready.message)));
        }
        Some(ready) if ready.status == "True" => {
            if class.metadata.generation.is_some() && ready.observed_generation != class.metadata.generation {
                return Err(not_ready(
                    "has changed since it was found ready (status.conditions Ready: observedGeneration is behind metadata.generation)"
                        .to_owned(),
                ));
            }
        }
        _ => {
            let message = format!("NodeClaim {}: whether {named} is ready is not known yet", order.claim);
            return Err(CloudError::LaunchFailed {
                reason: "NodeClassReadinessUnknown".into(),
                message: message.into(),
            });
        }
    }
    match class.spec.tags.iter().flatten().map(|(key, _)| key).find(|key| is_ours(key)) {
        Some(key) => Err(not_ready(format!("spec.tags: {key} is a tag that the operator writes itself; remove it"))),
        None => Ok(class),
    }
}

fn is_ours(key: &str) -> bool {
    let is_word = |rest: &str| {
        rest.starts_with(|c: char| c.is_ascii_alphanumeric())
            && rest.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    };
    OUR_TAGS.contains(&key) || key.strip_prefix("kubernetes.io/cluster/").is_some_and(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn ask(change: impl FnOnce(&mut Value)) -> Result<Ec2NodeClass, CloudError> {
        let mut class = json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
            "metadata": {"name": "default", "generation": 3}, "spec": {},
            "status": {"conditions": [{
                "type": "Ready", "status": "True", "reason": "Ready", "message": "", "observedGeneration": 3,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        });
        change(&mut class);
        let order = crate::testing::order("c", Some(class));
        super::class(&order)
    }

    #[test]
    fn each_precondition_has_its_own_answer() {
        assert!(ask(|_| {}).is_ok());
        type Case = (&'static str, fn(&mut Value), &'static str);
        let cases: [Case; 6] = [
            (
                "deleted",
                |class| class["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
                "InsufficientCapacityError",
            ),
            (
                "not ready",
                |class| class["status"]["conditions"][0]["status"] = json!("False"),
                "NodeClassNotReadyError",
            ),
            ("unknown", |class| class["status"]["conditions"][0]["status"] = json!("Unknown"), "unknown"),
            ("no condition", |class| class["status"]["conditions"] = json!([]), "unknown"),
            ("stale", |class| class["metadata"]["generation"] = json!(4), "NodeClassNotReadyError"),
            (
                "our tag",
                |class| class["spec"]["tags"] = json!({"karpenter.sh/nodepool": "x"}),
                "NodeClassNotReadyError",
            ),
        ];
        for (case, change, expected) in cases {
            assert_eq!(ask(change).unwrap_err().class(), expected, "{case}");
        }
        let missing = super::class(&crate::testing::order("c", None)).unwrap_err();
        assert_eq!(missing.to_string(), "NodeClaim c: EC2NodeClass default does not exist");
        assert_eq!(missing.class(), "InsufficientCapacityError");
        let unknown = ask(|class| class["status"]["conditions"] = json!([])).unwrap_err();
        assert!(matches!(unknown, CloudError::LaunchFailed { reason, .. } if &*reason == "NodeClassReadinessUnknown"));
    }

    #[test]
    fn deletion_counts_before_readiness() {
        let both = ask(|class| {
            class["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            class["status"]["conditions"][0]["status"] = json!("False");
        });
        assert_eq!(both.unwrap_err().class(), "InsufficientCapacityError");
    }

    #[test]
    fn tags_of_ours_are_told_from_others() {
        for (key, expected) in [
            ("kubernetes.io/cluster/prod", true),
            ("kubernetes.io/cluster/", false),
            ("kubernetes.io/cluster/-x", false),
            ("eks:eks-cluster-name", true),
            ("karpenter.sh/nodeclaim", true),
            ("karpenter.k8s.aws/ec2nodeclass", true),
            ("team", false),
        ] {
            assert_eq!(is_ours(key), expected, "{key}");
        }
    }
}
