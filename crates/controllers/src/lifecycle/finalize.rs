//! A claim that is being deleted: its Node is drained and goes first, then the machine, then the finalizer.

use super::removal::label;
use super::{
    Asking, Doing, INSTANCE_TERMINATING, Look, Memory, NAME, REGISTERED, backoff_ms, cloud_key, has_finalizer,
};
use crate::desk::Desk;
use crate::errand::{CloudAnswer, CloudCall};
use crate::events::{About, Event, timestamp};
use crate::limits::READS_SETTLE;
use crate::metrics::families;
use crate::moment::{after, millis};
use crate::queue::earlier;
use crate::resource::{NODE_CLAIMS, NODES};
use crate::termination::termination_time;
use crate::world::claim_provider_id;
use crate::write;
use kerf_api::labels::{REGISTERED as REGISTERED_LABEL, TERMINATION_FINALIZER, TERMINATION_TIMESTAMP, ZONE};
use kerf_api::{NodeClaim, labels};
use kerf_cloud::{CloudError, InstanceRef};
use kerf_model::{ClaimName, Text, UnixMillis};
use serde_json::json;
use std::sync::Arc;

/// How often the cloud is asked whether the machine is gone.
const ASK_EVERY_MS: i64 = 5_000;

impl Look<'_, '_, '_> {
    pub(super) fn finalize(&mut self) {
        if !has_finalizer(self.claim) {
            return;
        }
        if self.lets_go() {
            return;
        }
        if let Some(deadline) = deadline(self.claim) {
            self.patch(json!({"metadata": {"annotations": {TERMINATION_TIMESTAMP: deadline}}}), Doing::Deadline);
            return;
        }
        if self.awaits_word() || self.delete_nodes() {
            return;
        }
        // The cloud may be about to say that it launched something.
        if self.memory.asking.is_some() {
            return;
        }
        if !self.is_instance_gone() {
            return;
        }
        let finalizers = self.claim.metadata.finalizers.iter().flatten();
        let others: Vec<&String> = finalizers.filter(|finalizer| *finalizer != TERMINATION_FINALIZER).collect();
        self.patch(json!({"metadata": {"finalizers": others}}), Doing::RemoveFinalizer);
    }

    /// Whether there are Nodes to wait for. One that never registered is not ours to delete; one that did may have pods already, although
    /// the claim does not say so yet.
    fn delete_nodes(&mut self) -> bool {
        let Some(id) = claim_provider_id(self.claim) else { return false };
        let is_registered = self.conditions().is_true(REGISTERED);
        if is_registered && let Some(waits) = self.waits_for_unreadable_node() {
            return waits;
        }
        let mut nodes = self.desk.world.nodes_of(id);
        nodes.retain(|node| {
            is_registered || node.metadata.labels.iter().flatten().any(|(key, _)| key == REGISTERED_LABEL)
        });
        if let Some(node) = nodes.iter().find(|node| node.metadata.deletion_timestamp.is_none()) {
            let (name, uid) = (node.metadata.name.clone().unwrap_or_default(), node.metadata.uid.clone());
            self.desk.call(self.name, write::delete(NODES, "", &name, uid.as_deref()));
            self.doing = Some(Doing::DeleteNode);
        }
        !nodes.is_empty()
    }

    /// A Node that cannot be read, nobody can drain, whatever is known of it from before. It is waited for until the claim's time is over.
    /// None when it can be read.
    fn waits_for_unreadable_node(&mut self) -> Option<bool> {
        let (name, why) = self.desk.world.unreadable_node_of(self.claim)?;
        let until = termination_time(self.claim);
        let now = self.desk.now;
        if until.is_some_and(|until| until <= now) {
            return Some(false);
        }
        self.again = earlier(self.again, earlier(until, Some(UnixMillis(now.0.saturating_add(ASK_EVERY_MS)))));
        let text = format!("Node {name} cannot be read, and so not be drained: {why}");
        let about = About::of(NODE_CLAIMS, &self.claim.metadata);
        self.desk.event(Event::warning(about, "FailedDraining", text));
        Some(true)
    }

    /// Whether the machine is gone, or never was. Otherwise asks for its end.
    fn is_instance_gone(&mut self) -> bool {
        if self.memory.is_gone {
            return true;
        }
        let now = self.desk.now;
        let launched = self.memory.launched.as_ref().map(|instance| instance.provider_id.clone());
        let id: Option<Text> = claim_provider_id(self.claim).map(Text::from).or(launched);
        let Some(id) = id else {
            return self.was_never_launched();
        };
        if self.memory.is_ending && self.tell_that_it_ends() {
            return false;
        }
        if let Some(then) = self.memory.end_after.filter(|then| *then > now) {
            self.again = earlier(self.again, Some(then));
            return false;
        }
        let instance = InstanceRef {
            provider_id: id,
            claim: ClaimName(self.name.clone()),
            node_name: self.claim.status.as_ref().and_then(|status| status.node_name.as_deref()).map(Text::from),
        };
        self.memory.ending_since.get_or_insert(now);
        self.memory.asking = Some(Asking::Terminate);
        self.desk.ask_cloud(&cloud_key(self.name), CloudCall::Terminate(instance));
        false
    }

    /// A claim without an instance in its status. If one may have been asked for whose answer nobody heard (a restart, a broken
    /// connection), the cloud is asked whom its instances belong to.
    fn was_never_launched(&mut self) -> bool {
        if self.memory.is_surely_unlaunched {
            return true;
        }
        match self.memory.end_after.filter(|then| *then > self.desk.now) {
            Some(then) => self.again = earlier(self.again, Some(then)),
            None => {
                self.memory.asking = Some(Asking::Search);
                self.desk.ask_cloud(&cloud_key(self.name), CloudCall::List);
            }
        }
        false
    }

    /// Writes down that the cloud has begun. Answers whether there was something to write.
    fn tell_that_it_ends(&mut self) -> bool {
        let mut conditions = self.conditions();
        conditions.set_true(INSTANCE_TERMINATING, self.desk.now);
        if !conditions.is_changed() {
            return false;
        }
        let patch = json!({"status": conditions.to_value()});
        let patch = write::if_unchanged(patch, self.claim.metadata.resource_version.as_deref());
        self.desk.call(self.name, write::patch_status(NODE_CLAIMS, "", self.name, patch));
        self.doing = Some(Doing::Status { launched: false, registered: false, initialized: false });
        true
    }
}

/// The cloud was asked to end the instance.
pub(super) fn terminated(
    name: &Text,
    memory: &mut Memory,
    answer: Result<CloudAnswer, CloudError>,
    desk: &mut Desk<'_>,
) {
    let wait_ms = match answer {
        Ok(_) => {
            memory.is_ending = true;
            memory.n_failures = 0;
            ASK_EVERY_MS
        }
        Err(error) if error.is_not_found() => {
            memory.is_gone = true;
            memory.end_after = None;
            if let Some(claim) = desk.world.claims.get(name) {
                let since = ending_since(claim).or(memory.ending_since).unwrap_or(desk.now);
                let family = &families::NODECLAIMS_INSTANCE_TERMINATION_DURATION_SECONDS;
                desk.metrics.observe(family, &[label(claim, labels::NODE_POOL)], seconds(since, desk.now));
            }
            return;
        }
        Err(error) => failed(name, memory, &error),
    };
    memory.end_after = Some(UnixMillis(desk.now.0.saturating_add(wait_ms)));
}

/// The cloud was asked whether it has an instance for this claim.
pub(super) fn searched(name: &Text, memory: &mut Memory, answer: Result<CloudAnswer, CloudError>, desk: &mut Desk<'_>) {
    match answer {
        Ok(CloudAnswer::Listed(instances)) => match instances.into_iter().find(|instance| instance.claim == *name) {
            Some(instance) => memory.launched = Some(Arc::new(instance)),
            None => {
                // Lists are behind launches: one that does not show it yet says nothing of what was asked for a moment ago.
                let since = *memory.missing_since.get_or_insert(desk.now);
                memory.is_gone = desk.now >= after(since, READS_SETTLE);
                memory.end_after = Some(UnixMillis(desk.now.0.saturating_add(ASK_EVERY_MS)));
            }
        },
        Ok(_) => memory.is_gone = true,
        Err(error) => {
            let wait_ms = failed(name, memory, &error);
            memory.end_after = Some(UnixMillis(desk.now.0.saturating_add(wait_ms)));
        }
    }
}

/// How long to wait before the next attempt.
fn failed(name: &Text, memory: &mut Memory, error: &CloudError) -> i64 {
    memory.n_failures += 1;
    tracing::error!(controller = NAME, NodeClaim = &**name, error = %error, "terminating instance");
    let asked_ms = match error {
        CloudError::Throttled { retry_after, .. } => millis(*retry_after),
        _ => 0,
    };
    asked_ms.max(backoff_ms(memory.n_failures))
}

/// The deadline is in the claim.
pub(super) fn annotated(claim: &NodeClaim, desk: &mut Desk<'_>) {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let annotations = claim.metadata.annotations.as_ref();
    let deadline = annotations.and_then(|all| all.get(TERMINATION_TIMESTAMP)).map(String::as_str).unwrap_or_default();
    tracing::info!(controller = NAME, NodeClaim = name, deadline, "annotated nodeclaim");
    let about = About::of(NODE_CLAIMS, &claim.metadata);
    let text = format!("All pods will be deleted by {deadline}");
    desk.event(Event::warning(about, "TerminationGracePeriodExpiring", text).same_by([name.into()]));
}

/// The finalizer is off.
pub(super) fn finished(claim: &NodeClaim, desk: &mut Desk<'_>) {
    let pool = label(claim, labels::NODE_POOL);
    let since = claim.metadata.deletion_timestamp.as_ref().map(|time| UnixMillis(time.0.as_millisecond()));
    desk.metrics.observe(
        &families::NODECLAIMS_TERMINATION_DURATION_SECONDS,
        &[pool],
        seconds(since.unwrap_or(desk.now), desk.now),
    );
    let series = [pool, label(claim, labels::CAPACITY_TYPE), label(claim, ZONE)];
    desk.metrics.add(&families::NODECLAIMS_TERMINATED_TOTAL, &series, 1.0);
    tracing::info!(
        controller = NAME,
        NodeClaim = claim.metadata.name.as_deref().unwrap_or_default(),
        Node = claim.status.as_ref().and_then(|status| status.node_name.as_deref()).unwrap_or_default(),
        "provider-id" = claim_provider_id(claim).unwrap_or_default(),
        "deleted nodeclaim"
    );
}

/// By when every pod must be gone, where the claim has a grace period and does not say it yet.
fn deadline(claim: &NodeClaim) -> Option<String> {
    let annotations = claim.metadata.annotations.as_ref();
    if annotations.is_some_and(|annotations| annotations.contains_key(TERMINATION_TIMESTAMP)) {
        return None;
    }
    let period = claim.spec.termination_grace_period.as_ref()?.parse().ok()?;
    let deleted = claim.metadata.deletion_timestamp.as_ref()?;
    let at = deleted.0.saturating_add(period).ok()?;
    Some(timestamp(UnixMillis(at.as_millisecond())))
}

fn ending_since(claim: &NodeClaim) -> Option<UnixMillis> {
    let conditions = &claim.status.as_ref()?.conditions;
    let condition = conditions.iter().find(|condition| condition.type_ == INSTANCE_TERMINATING)?;
    Some(UnixMillis(condition.last_transition_time.0.as_millisecond()))
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds since a deletion are few")]
fn seconds(since: UnixMillis, now: UnixMillis) -> f64 {
    (now.0 - since.0).max(0) as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::time;
    use crate::lifecycle::testing::claim;
    use kerf_api::DurationText;
    use std::collections::BTreeMap;

    #[test]
    fn the_deadline_is_the_deletion_plus_the_grace_period_and_is_set_once() {
        let mut claim = claim("c");
        claim.metadata.deletion_timestamp = Some(time(UnixMillis(0)));
        assert_eq!(deadline(&claim), None);
        claim.spec.termination_grace_period = Some(DurationText::new("1h30m"));
        assert_eq!(deadline(&claim).as_deref(), Some("1970-01-01T01:30:00Z"));
        claim.metadata.annotations = Some(BTreeMap::from([(TERMINATION_TIMESTAMP.to_owned(), "earlier".to_owned())]));
        assert_eq!(deadline(&claim), None, "an earlier deadline is kept");
    }
}
