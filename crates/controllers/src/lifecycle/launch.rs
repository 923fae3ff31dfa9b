//! Buying the machine: one question to the cloud, and what its answer means for the claim.

use super::removal::GiveUp;
use super::{Asking, Doing, LAUNCHED, Look, Memory, NAME, Trouble, backoff_ms, cloud_key};
use crate::conditions::{Conditions, Status};
use crate::desk::Desk;
use crate::errand::{CloudAnswer, CloudCall};
use crate::events::{About, Event, cut};
use crate::moment::millis;
use crate::resource::NODE_CLAIMS;
use kerf_api::{NodeClaim, labels};
use kerf_cloud::{CloudError, Instance, LaunchOrder, OfferingKey};
use kerf_mirror::Asked;
use kerf_model::{CapacityType, ClaimName, NodeClassRef, PoolName, Resources, Text, UnixMillis};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Look<'_, '_, '_> {
    /// Answers whether the claim is launched by what is about to be written.
    pub(super) fn launch(&mut self, conditions: &mut Conditions, status: &mut Value) -> bool {
        let now = self.desk.now;
        if !conditions.is_unknown(LAUNCHED) {
            conditions.refresh(LAUNCHED, now);
            self.memory.launched = None;
            return false;
        }
        if let Some(instance) = self.memory.launched.clone() {
            if let Some(patch) = description(self.claim, &instance) {
                self.patch(patch, Doing::Describe);
                return false;
            }
            *status = outcome(&instance);
            return conditions.set_true(LAUNCHED, now);
        }
        if let Some(trouble) = &self.memory.trouble {
            conditions.set(LAUNCHED, Status::Unknown, &trouble.reason, &trouble.message, now);
        }
        match self.memory.launch_after.filter(|then| *then > now) {
            Some(then) => self.again = crate::queue::earlier(self.again, Some(then)),
            None if self.memory.asking.is_none() => {
                let order = order(self.claim, self.desk);
                self.desk.ask_cloud(&cloud_key(self.name), CloudCall::Launch(Arc::new(order)));
                self.memory.asking = Some(Asking::Launch);
            }
            None => {}
        }
        false
    }
}

/// The cloud has answered.
pub(super) fn answered(name: &Text, memory: &mut Memory, answer: Result<CloudAnswer, CloudError>, desk: &mut Desk<'_>) {
    let now = desk.now;
    let error = match answer {
        Ok(CloudAnswer::Launched(instance)) => {
            for offering in instance.sold_out.iter().cloned() {
                desk.stock.sold_out(offering, now);
            }
            if let Some(offering) = bought(&instance) {
                desk.stock.delivered(&offering);
            }
            (memory.trouble, memory.launch_after, memory.n_failures) = (None, None, 0);
            memory.launched = Some(Arc::from(instance));
            return;
        }
        Ok(_) => CloudError::Other { message: "the provider answered something else than an instance".into() },
        Err(error) => error,
    };
    #[cfg(feature = "planted")]
    if crate::planted::has(crate::planted::Bug::LostAnswerIsFailure) && matches!(error, CloudError::Other { .. }) {
        (memory.is_surely_unlaunched, memory.given_up) = (true, Some(GiveUp::NoCapacity));
        return;
    }
    memory.is_surely_unlaunched =
        matches!(error, CloudError::NoCapacity { .. } | CloudError::ClassNotReady { .. } | CloudError::Refused { .. });
    let wait_ms = match &error {
        CloudError::NoCapacity { message, sold_out } => {
            for offering in sold_out {
                desk.stock.sold_out(offering.clone(), now);
            }
            memory.given_up = Some(GiveUp::NoCapacity);
            tell_no_capacity(name, message, desk);
            tracing::error!(controller = NAME, NodeClaim = &**name, error = &**message, "failed launching nodeclaim");
            return;
        }
        CloudError::ClassNotReady { message } => {
            memory.given_up = Some(GiveUp::ClassNotReady);
            tracing::error!(controller = NAME, NodeClaim = &**name, error = &**message, "failed launching nodeclaim");
            return;
        }
        CloudError::Throttled { retry_after, .. } => millis(*retry_after),
        _ => 0,
    };
    memory.n_failures += 1;
    // A cloud that asks for patience gets at least what it asks for.
    let wait_ms = wait_ms.max(backoff_ms(memory.n_failures));
    memory.launch_after = Some(UnixMillis(now.0.saturating_add(wait_ms)));
    tracing::error!(controller = NAME, NodeClaim = &**name, error = %error, "launching nodeclaim");
    let reason = match &error {
        CloudError::LaunchFailed { reason, .. } => reason.clone(),
        _ => "LaunchFailed".into(),
    };
    memory.trouble = Some(Trouble { reason, message: cut(error.to_string()) });
}

/// Tells the claim, and the pods that were promised a place on it and still wait.
fn tell_no_capacity(name: &Text, message: &str, desk: &mut Desk<'_>) {
    if let Some(claim) = desk.world.claims.get(name) {
        let about = About::of(NODE_CLAIMS, &claim.metadata);
        let text = cut(format!("NodeClaim {name} event: {message}"));
        desk.event(Event::warning(about, "InsufficientCapacityError", text));
    }
    let waiting: Vec<About> = desk
        .nominations
        .pods_of(name)
        .filter_map(|id| desk.world.pod(id))
        .filter(|pod| !pod.is_bound() && pod.is_active())
        .map(|pod| About::pod(&pod.id, &pod.uid))
        .collect();
    for about in waiting {
        let text = cut(format!("NodeClaim {name} nominated for this pod failed to launch: {message}"));
        desk.event(Event::warning(about, "InsufficientCapacityError", text).at_most(5));
    }
}

/// The claim as the cloud sees it.
fn order(claim: &NodeClaim, desk: &Desk<'_>) -> LaunchOrder {
    let asked = Asked::of(claim, &desk.options.mirror.labels);
    let reference = &claim.spec.node_class_ref;
    let node_class = NodeClassRef {
        group: reference.group.as_str().into(),
        kind: reference.kind.as_str().into(),
        name: reference.name.as_str().into(),
    };
    let class_object = desk.world.classes.get(&node_class).map(|class| class.value.clone());
    let annotations = claim.metadata.annotations.iter().flatten();
    LaunchOrder {
        claim: ClaimName(claim.metadata.name.as_deref().unwrap_or_default().into()),
        uid: claim.metadata.uid.as_deref().unwrap_or_default().into(),
        pool: asked.labels.get(labels::NODE_POOL).cloned().map(PoolName),
        node_class,
        class_object,
        requirements: asked.requirements,
        requests: asked.requests,
        labels: asked.labels,
        annotations: annotations.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
        taints: asked.taints,
        startup_taints: asked.startup_taints,
        avoid: desk.stock.dry(desk.now).cloned().collect(),
    }
}

/// Which offering an instance came from.
fn bought(instance: &Instance) -> Option<OfferingKey> {
    Some(OfferingKey {
        instance_type: kerf_model::TypeName(instance.labels.get(labels::INSTANCE_TYPE)?.clone()),
        zone: instance.labels.get(labels::ZONE)?.clone(),
        capacity_type: CapacityType::parse(instance.labels.get(labels::CAPACITY_TYPE)?)?,
    })
}

/// The labels and annotations that the claim takes over: the claim's own labels win, the provider's annotations win. None when it
/// has them.
fn description(claim: &NodeClaim, instance: &Instance) -> Option<Value> {
    let own = claim.metadata.labels.as_ref();
    let is_new = |key: &Text| own.is_none_or(|own| !own.contains_key(&**key));
    let new_labels: BTreeMap<&Text, &Text> = instance.labels.iter().filter(|(key, _)| is_new(key)).collect();
    let own = claim.metadata.annotations.as_ref();
    let is_other = |key: &Text, value: &Text| own.and_then(|own| own.get(&**key)).map(String::as_str) != Some(&**value);
    let new_annotations: BTreeMap<&Text, &Text> =
        instance.annotations.iter().filter(|(key, value)| is_other(key, value)).collect();
    let mut metadata = json!({});
    if !new_labels.is_empty() {
        metadata["labels"] = json!(new_labels);
    }
    if !new_annotations.is_empty() {
        metadata["annotations"] = json!(new_annotations);
    }
    (metadata != json!({})).then(|| json!({"metadata": metadata}))
}

/// What the status says of the instance.
fn outcome(instance: &Instance) -> Value {
    let amounts = |resources: &Resources| -> BTreeMap<Text, String> {
        resources.iter().map(|(name, amount)| (name.clone(), amount.to_string())).collect()
    };
    let mut status = json!({
        "providerID": &*instance.provider_id,
        "capacity": amounts(&instance.capacity),
        "allocatable": amounts(&instance.allocatable),
    });
    if !instance.image_id.is_empty() {
        status["imageID"] = json!(&*instance.image_id);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::testing::claim;
    use kerf_model::Quantity;

    fn instance() -> Instance {
        Instance {
            provider_id: "cloud://i-1".into(),
            image_id: "image-1".into(),
            labels: BTreeMap::from([("a".into(), "cloud".into()), ("b".into(), "cloud".into())]).into(),
            annotations: BTreeMap::from([("x".into(), "cloud".into())]),
            capacity: Resources::new().with("cpu", Quantity::from_units(4)).into(),
            allocatable: Resources::new().with("cpu", Quantity::from_milli(3900)).into(),
            ..Instance::default()
        }
    }

    #[test]
    fn the_claims_labels_win_and_the_providers_annotations_win() {
        let mut claim = claim("c");
        claim.metadata.labels = Some(BTreeMap::from([("a".to_owned(), "claim".to_owned())]));
        claim.metadata.annotations = Some(BTreeMap::from([("x".to_owned(), "claim".to_owned())]));
        let patch = description(&claim, &instance()).unwrap();
        assert_eq!(patch, json!({"metadata": {"labels": {"b": "cloud"}, "annotations": {"x": "cloud"}}}));
        claim.metadata.labels.as_mut().unwrap().insert("b".to_owned(), "cloud".to_owned());
        claim.metadata.annotations = Some(BTreeMap::from([("x".to_owned(), "cloud".to_owned())]));
        assert_eq!(description(&claim, &instance()), None);
    }

    #[test]
    fn the_status_says_what_was_bought() {
        let expected = json!({
            "providerID": "cloud://i-1", "imageID": "image-1", "capacity": {"cpu": "4"}, "allocatable": {"cpu": "3900m"},
        });
        assert_eq!(outcome(&instance()), expected);
    }
}
