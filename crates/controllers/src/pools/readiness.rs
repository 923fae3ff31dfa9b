//! `nodepool.readiness`: a pool is only as ready as its node class.

use super::{class_of, conditions_of, is_served, mark_pools, new_queue, patch_conditions, settle};
use crate::conditions::Status;
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::queue::Queue;
use crate::world::{Change, World};
use kerf_mirror::NodeClassObject;
use kerf_model::{NodeClassRef, Text, UnixMillis};
use serde_json::Value;

const NODE_CLASS_READY: &str = "NodeClassReady";

pub struct Readiness {
    queue: Queue<Text>,
}

impl Default for Readiness {
    fn default() -> Self {
        Self { queue: new_queue() }
    }
}

impl Duty for Readiness {
    fn name(&self) -> &'static str {
        "nodepool.readiness"
    }

    fn observe(&mut self, change: &Change, world: &World) {
        mark_pools(&mut self.queue, change, world);
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        // A class that has not been seen yet is not a class that is missing.
        if !desk.world.is_synced() {
            return None;
        }
        for name in self.queue.take_due(desk.now) {
            if let Some(pool) = desk.world.pools.get(&name).cloned()
                && is_served(&**desk.cloud, &pool)
                && !desk.is_busy(&name)
            {
                let reference = class_of(&pool);
                let mut conditions = conditions_of(&pool);
                match obstacle(&reference, desk.world.classes.get(&reference).map(|class| &**class)) {
                    None => conditions.set_true(NODE_CLASS_READY, desk.now),
                    Some((reason, message)) => {
                        conditions.set(NODE_CLASS_READY, Status::False, &reason, &message, desk.now)
                    }
                };
                if conditions.is_changed() {
                    patch_conditions(desk, &name, &pool, &conditions, Value::Null);
                }
            }
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        settle(&mut self.queue, key, &outcome, "nodepool.readiness", desk.now);
    }
}

/// Why a class cannot be used: a reason and words for it.
fn obstacle(reference: &NodeClassRef, class: Option<&NodeClassObject>) -> Option<(String, String)> {
    let NodeClassRef { kind, name, .. } = reference;
    let Some(class) = class else {
        return Some((
            "NodeClassNotFound".to_owned(),
            format!("{kind} {name:?} does not exist; create it, or name another in spec.template.spec.nodeClassRef"),
        ));
    };
    if class.metadata.deletion_timestamp.is_some() {
        return Some((
            "NodeClassTerminating".to_owned(),
            format!("{kind} {name:?} is being deleted; name another in spec.template.spec.nodeClassRef"),
        ));
    }
    let conditions = class.value.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    let part = |part: &str| ready.and_then(|ready| ready[part].as_str()).unwrap_or_default().to_owned();
    match part("status").as_str() {
        "True" => None,
        "False" => {
            let reason = Some(part("reason")).filter(|reason| !reason.is_empty());
            Some((reason.unwrap_or_else(|| "NodeClassNotReady".to_owned()), part("message")))
        }
        _ => Some((
            "NodeClassReadinessUnknown".to_owned(),
            format!("{kind} {name:?} does not say yet whether it is ready"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_mirror::Object;
    use serde_json::json;

    fn reason(status: Value, is_deleting: bool) -> Option<(String, String)> {
        let mut value = json!({
            "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "a"}, "status": status,
        });
        if is_deleting {
            value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let Ok(Object::NodeClass(class)) = Object::read(value) else { panic!("not a class") };
        obstacle(&reference(), Some(&class))
    }

    fn reference() -> NodeClassRef {
        NodeClassRef { group: "karpenter.kwok.sh".into(), kind: "KWOKNodeClass".into(), name: "a".into() }
    }

    #[test]
    fn each_way_of_not_being_ready_has_its_reason() {
        let ready = |status: &str| json!({"conditions": [{"type": "Ready", "status": status, "reason": "SubnetsNotFound", "message": "none match"}]});
        let of = |found: Option<(String, String)>| found.map(|(reason, _)| reason);
        assert_eq!(of(obstacle(&reference(), None)).as_deref(), Some("NodeClassNotFound"));
        assert_eq!(of(reason(ready("True"), true)).as_deref(), Some("NodeClassTerminating"));
        assert_eq!(of(reason(json!({}), false)).as_deref(), Some("NodeClassReadinessUnknown"));
        assert_eq!(of(reason(ready("Unknown"), false)).as_deref(), Some("NodeClassReadinessUnknown"));
        assert_eq!(
            reason(ready("False"), false),
            Some(("SubnetsNotFound".to_owned(), "none match".to_owned())),
            "the class knows best"
        );
        assert_eq!(reason(ready("True"), false), None);
    }
}
