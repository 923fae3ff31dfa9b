//! The hash of a NodePool's template.

use k8s_openapi::api::core::v1::Taint;

use super::{OfStruct, of_i64, of_list, of_map};
use crate::duration::{DurationError, DurationOrNever, DurationText};
use crate::objects::{NodeClaimTemplate, NodeClaimTemplateSpec, NodeClassRef, NodePool, TemplateMetadata};

/// Bumped whenever the algorithm or the hashed fields change.
pub const VERSION: &str = "v3";

impl NodePool {
    /// What `karpenter.sh/nodepool-hash` should say: a decimal number over the template, without its requirements.
    ///
    /// Requirements are compared by meaning, not by hash, so they may be widened without drift. Defaults must be filled
    /// in before.
    pub fn hash(&self) -> Result<String, DurationError> {
        Ok(of_template(&self.spec.template)?.to_string())
    }
}

fn of_template(template: &NodeClaimTemplate) -> Result<u64, DurationError> {
    let metadata = template.metadata.as_ref().filter(|metadata| **metadata != TemplateMetadata::default());
    Ok(OfStruct::named("NodeClaimTemplate")
        .field("ObjectMeta", metadata.map(of_metadata))
        .field("Spec", Some(of_spec(&template.spec)?))
        .0)
}

fn of_metadata(metadata: &TemplateMetadata) -> u64 {
    OfStruct::named("ObjectMeta")
        .field("Labels", metadata.labels.as_ref().map(of_map))
        .field("Annotations", metadata.annotations.as_ref().map(of_map))
        .0
}

fn of_spec(spec: &NodeClaimTemplateSpec) -> Result<u64, DurationError> {
    let of_taints = |taints: &Vec<Taint>| of_list(taints.iter().map(of_taint));
    Ok(OfStruct::named("NodeClaimTemplateSpec")
        .field("Taints", spec.taints.as_ref().map(of_taints))
        .field("StartupTaints", spec.startup_taints.as_ref().map(of_taints))
        .field("NodeClassRef", Some(of_node_class_ref(&spec.node_class_ref)))
        .field("TerminationGracePeriod", spec.termination_grace_period.as_ref().map(of_duration).transpose()?)
        .field("ExpireAfter", spec.expire_after.as_ref().map(of_duration_or_never).transpose()?.flatten())
        .0)
}

fn of_taint(taint: &Taint) -> u64 {
    OfStruct::named("Taint")
        .plain_text("Key", &taint.key)
        .plain_text("Value", taint.value.as_deref().unwrap_or_default())
        .plain_text("Effect", &taint.effect)
        .0
}

fn of_node_class_ref(class: &NodeClassRef) -> u64 {
    OfStruct::named("NodeClassReference")
        .plain_text("Kind", &class.kind)
        .plain_text("Name", &class.name)
        .plain_text("Group", &class.group)
        .0
}

/// Zero seconds are present as a struct, but its one field is zero and so leaves no trace.
fn of_duration(duration: &DurationText) -> Result<u64, DurationError> {
    let nanos = nanos(duration.parse()?);
    Ok(OfStruct::named("Duration").field("Duration", (nanos != 0).then(|| of_i64(nanos))).0)
}

/// Never is absent altogether; zero seconds are not.
fn of_duration_or_never(duration: &DurationOrNever) -> Result<Option<u64>, DurationError> {
    let of_nanos = |duration| OfStruct::named("NillableDuration").field("Duration", Some(of_i64(nanos(duration)))).0;
    Ok(duration.parse()?.map(of_nanos))
}

fn nanos(duration: jiff::SignedDuration) -> i64 {
    i64::try_from(duration.as_nanos()).expect("the duration parser keeps to 64-bit nanoseconds")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hash(template: serde_json::Value) -> String {
        let pool: NodePool = serde_json::from_value(json!({"spec": {"template": template}})).unwrap();
        pool.hash().unwrap()
    }

    #[test]
    fn the_published_vectors_come_out() {
        let kwok = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
        let aws = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
        for (template, expected) in [
            (json!({"spec": {"nodeClassRef": kwok, "expireAfter": "720h"}}), "12745407319442031341"),
            (json!({"spec": {"nodeClassRef": kwok, "expireAfter": "Never"}}), "7428780003907761376"),
            (
                json!({"spec": {"nodeClassRef": kwok, "expireAfter": "720h",
                                "taints": [{"key": "example.com/special", "value": "true", "effect": "NoSchedule"}]}}),
                "15377148642321071670",
            ),
            (json!({"spec": {"nodeClassRef": aws, "expireAfter": "720h"}}), "6821555240594823858"),
            (
                json!({"metadata": {"labels": {"keyLabel": "valueLabel"},
                                    "annotations": {"keyAnnotation": "valueAnnotation", "keyAnnotation2": "valueAnnotation2"}},
                       "spec": {"nodeClassRef": kwok, "taints": [{"key": "key", "effect": "NoExecute"}],
                                "startupTaints": [{"key": "key", "effect": "NoExecute"}],
                                "terminationGracePeriod": "5m", "expireAfter": "5m"}}),
                "17066057431569812298",
            ),
        ] {
            assert_eq!(hash(template.clone()), expected, "{template}");
        }
    }

    #[test]
    fn what_does_not_matter_does_not_change_the_hash() {
        let base = json!({"spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "expireAfter": "720h"}});
        let mut other = base.clone();
        other["spec"]["requirements"] = json!([{"key": "a", "operator": "Exists"}]);
        other["spec"]["expireAfter"] = json!("43200m");
        other["metadata"] = json!({});
        assert_eq!(hash(base), hash(other));
    }

    #[test]
    fn an_empty_map_is_not_an_absent_one() {
        let spec = json!({"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}});
        assert_ne!(hash(json!({"spec": spec})), hash(json!({"metadata": {"labels": {}}, "spec": spec})));
        assert_ne!(
            hash(json!({"spec": spec})),
            hash(json!({"spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "expireAfter": "0s"}}))
        );
    }
}
