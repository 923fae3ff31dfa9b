//! Nodes that have less than the cloud promised: told, not acted upon.

use super::{BACKOFF_MS, again};
use crate::conditions::{Conditions, NODE_CLAIM, Status};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::events::{About, Event};
use crate::lifecycle::is_managed;
use crate::queue::Queue;
use crate::resource::NODE_CLAIMS;
use crate::world::{Change, World, provider_id};
use crate::write;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use kerf_api::NodeClaim;
use kerf_model::{Quantity, Text, UnixMillis};
use serde_json::json;
use std::collections::BTreeMap;

const NAME: &str = "nodeclaim.consistency";
const EVERY_MS: i64 = 600_000;
const CONSISTENT: &str = "ConsistentStateFound";

pub struct Consistency {
    queue: Queue<Text>,
    /// When each claim is to be looked at again.
    next: BTreeMap<Text, UnixMillis>,
}

impl Default for Consistency {
    fn default() -> Self {
        Self { queue: Queue::new(BACKOFF_MS.0, BACKOFF_MS.1), next: BTreeMap::new() }
    }
}

impl Duty for Consistency {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, world: &World) {
        match change {
            Change::Claim { name, after: Some(_), .. } if !self.next.contains_key(name) => self.queue.add(name.clone()),
            Change::Claim { name, after: None, .. } => {
                self.queue.forget(name);
                self.next.remove(name);
            }
            Change::Node { before: None, after: Some(node), .. } => {
                for claim in provider_id(node).into_iter().flat_map(|id| world.claims_of(id)) {
                    let name: Text = claim.metadata.name.as_deref().unwrap_or_default().into();
                    if !self.next.contains_key(&name) {
                        self.queue.add(name);
                    }
                }
            }
            _ => {}
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.world.is_synced() {
            return None;
        }
        for name in self.queue.take_due(desk.now) {
            if desk.is_busy(&name) {
                continue;
            }
            let Some(claim) = desk.world.claims.get(&name).filter(|claim| is_managed(claim, &**desk.cloud)) else {
                continue;
            };
            let stored = claim.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            let mut conditions = Conditions::of(NODE_CLAIM, &claim.metadata, stored);
            let node = desk.world.node_of_claim(claim);
            let (Some(node), None, true) =
                (node, &claim.metadata.deletion_timestamp, conditions.is_true("Initialized"))
            else {
                // There is nothing to compare yet; a change will say so.
                self.next.remove(&name);
                continue;
            };
            let next = UnixMillis(desk.now.0 + EVERY_MS);
            self.next.insert(name.clone(), next);
            self.queue.add_at(name.clone(), next);
            let shortfalls = shortfalls(node, claim);
            let (about, version) = (About::of(NODE_CLAIMS, &claim.metadata), claim.metadata.resource_version.clone());
            for shortfall in &shortfalls {
                tracing::error!(controller = NAME, NodeClaim = &*name, error = shortfall, "consistency error");
                let same = [about.uid.clone(), shortfall.as_str().into()];
                desk.event(Event::warning(about.clone(), "FailedConsistencyCheck", shortfall.as_str()).same_by(same));
            }
            if shortfalls.is_empty() {
                conditions.set_true(CONSISTENT, desk.now);
            } else {
                let message = "Consistency Check Failed";
                conditions.set(CONSISTENT, Status::False, "ConsistencyCheckFailed", message, desk.now);
            }
            if conditions.is_changed() {
                let patch = write::if_unchanged(json!({"status": conditions.to_value()}), version.as_deref());
                desk.call(&name, write::patch_status(NODE_CLAIMS, "", &name, patch));
            }
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        match outcome {
            Outcome::Api(Ok(_)) => self.queue.succeeded(key),
            Outcome::Api(Err(failure)) => again(&mut self.queue, key, &failure, NAME, desk.now),
            Outcome::Cloud(_) | Outcome::Thought { .. } => {}
        }
    }
}

/// What the node has less than nine tenths of, among what was asked for.
fn shortfalls(node: &Node, claim: &NodeClaim) -> Vec<String> {
    let promised = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
    let found = node.status.as_ref().and_then(|status| status.capacity.as_ref());
    let requests = claim.spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let mut out = Vec::new();
    for (name, _) in requests.into_iter().flatten().filter(|(_, text)| !amount(Some(text)).is_zero()) {
        let expected = amount(promised.and_then(|promised| promised.get(name)));
        let found = amount(found.and_then(|found| found.get(name)));
        if expected.milli > 0 && i128::from(found.milli) * 10 < i128::from(expected.milli) * 9 {
            #[expect(clippy::cast_precision_loss, reason = "a percentage with one decimal place")]
            let percent = found.milli as f64 * 100.0 / expected.milli as f64;
            out.push(format!("expected {expected} of resource {name}, but found {found} ({percent:.1}% of expected)"));
        }
    }
    out
}

fn amount(text: Option<&QuantityText>) -> Quantity {
    text.and_then(|text| Quantity::parse(&text.0).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::testing::{claim, node};
    use kerf_api::ResourceRequirements;

    fn list(pairs: &[(&str, &str)]) -> BTreeMap<String, QuantityText> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), QuantityText((*text).to_owned()))).collect()
    }

    #[test]
    fn less_than_nine_tenths_of_what_was_asked_for_and_promised_is_told() {
        let mut it = claim("c");
        it.spec.resources = Some(ResourceRequirements { requests: Some(list(&[("cpu", "1"), ("memory", "1Gi")])) });
        it.status.get_or_insert_default().capacity = Some(list(&[("cpu", "10"), ("memory", "10Gi"), ("pods", "10")]));
        for (found, expected) in [
            (&[("cpu", "10"), ("memory", "10Gi"), ("pods", "10")][..], &[][..]),
            (&[("cpu", "9"), ("memory", "9Gi"), ("pods", "1")], &[]),
            (
                &[("cpu", "8900m"), ("memory", "9Gi")],
                &["expected 10 of resource cpu, but found 8900m (89.0% of expected)"],
            ),
            (&[("cpu", "10")], &["expected 10Gi of resource memory, but found 0 (0.0% of expected)"]),
        ] {
            let mut there = node("n");
            there.status.get_or_insert_default().capacity = Some(list(found));
            assert_eq!(shortfalls(&there, &it), expected, "{found:?}");
        }
    }
}
