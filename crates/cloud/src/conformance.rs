//! What every provider must hold, whatever cloud it speaks to.
//!
//! ```text
//! run(make) ── for each check ──▶ a fresh Bench: one provider, and how to wait for it
//! ```
//!
//! The checks are plain functions that ask and assert. They know no runtime: the bench polls by hand, or blocks on a real one.
//! They are patient, as a caller must be: an answer that says "try again" is asked for again, so they hold under faults too.

mod life;
mod offer;

use crate::provider::{Answer, CloudError, CloudProvider, Instance, InstanceRef, LaunchOrder, OfferingKey};
use kerf_model::{CapacityType, ClaimName, Text, TypeName, labels};
use std::sync::Arc;
use std::time::Duration;

/// A provider on the test bench.
pub trait Bench {
    fn cloud(&self) -> &dyn CloudProvider;

    /// Waits for an answer, letting time pass as it must.
    fn wait<T>(&self, answer: Answer<T>) -> Result<T, CloudError>;

    /// Lets some time pass.
    fn pause(&self, span: Duration);

    /// Lets so much time pass that reads have caught up with writes and machines are up.
    fn settle(&self);

    /// A claim that nobody has launched yet, for which several types in several zones would do. The name is also its uid.
    fn order(&self, name: &str) -> LaunchOrder;

    /// The name of an instance's node, once it has registered.
    fn node_name(&self, instance: &Instance) -> Option<Text>;

    /// Takes everything that is left of an offering. False when the cloud has no end of it.
    fn sell_out(&self, _offering: &OfferingKey) -> bool {
        false
    }

    /// Something that is different after each restart of the machine. None when nobody can see it.
    fn boot_mark(&self, _instance: &Instance) -> Option<String> {
        None
    }

    /// The provider of a process that was started after the first one died. None when nothing of it would be new.
    fn successor(&self) -> Option<Box<dyn CloudProvider>> {
        None
    }
}

/// A rule by name, and how to check it.
pub type Check<B> = (&'static str, fn(&B));

/// Runs every check on a bench of its own.
///
/// # Panics
///
/// When the provider breaks a rule, with the rule's name.
pub fn run<B: Bench>(make: impl Fn() -> B) {
    for (rule, check) in checks::<B>() {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&make())));
        assert!(outcome.is_ok(), "the provider breaks the rule: {}", rule.replace('_', " "));
    }
}

/// The rules by name.
pub fn checks<B: Bench>() -> Vec<Check<B>> {
    let mut all = offer::checks();
    all.extend(life::checks());
    all
}

/// How often to ask again before it counts as an answer.
const PATIENCE: usize = 200;
const BETWEEN_QUESTIONS: Duration = Duration::from_secs(5);

/// Asks until the answer is one: what says "try again" is tried again.
fn insist<B: Bench, T>(bench: &B, mut ask: impl FnMut(&dyn CloudProvider) -> Answer<T>) -> Result<T, CloudError> {
    for _ in 0..PATIENCE {
        match bench.wait(ask(bench.cloud())) {
            Err(CloudError::Throttled { retry_after, .. }) => bench.pause(retry_after),
            Err(CloudError::Other { .. } | CloudError::LaunchFailed { .. }) => bench.pause(BETWEEN_QUESTIONS),
            answer => return answer,
        }
    }
    panic!("asked {PATIENCE} times, and told to try again each time");
}

fn launch<B: Bench>(bench: &B, order: &LaunchOrder) -> Result<Instance, CloudError> {
    let order = Arc::new(order.clone());
    insist(bench, |cloud| cloud.launch(order.clone()))
}

#[track_caller]
fn launched<B: Bench>(bench: &B, order: &LaunchOrder) -> Instance {
    launch(bench, order).unwrap_or_else(|error| panic!("launching {}: {error}", order.claim))
}

fn get<B: Bench>(bench: &B, provider_id: &Text) -> Result<Instance, CloudError> {
    insist(bench, |cloud| cloud.get(provider_id.clone()))
}

#[track_caller]
fn list<B: Bench>(bench: &B) -> Vec<Instance> {
    insist(bench, |cloud| cloud.list()).unwrap_or_else(|error| panic!("listing: {error}"))
}

/// Terminates until the instance is gone.
fn end<B: Bench>(bench: &B, instance: &Instance) {
    for _ in 0..PATIENCE {
        match insist(bench, |cloud| cloud.terminate(reference(bench, instance))) {
            Ok(()) => bench.pause(BETWEEN_QUESTIONS),
            Err(CloudError::NotFound { .. }) => return,
            Err(error) => panic!("terminating {}: {error}", instance.provider_id),
        }
    }
    panic!("{} does not end: terminate never said NotFound", instance.provider_id);
}

fn reference<B: Bench>(bench: &B, instance: &Instance) -> InstanceRef {
    InstanceRef {
        provider_id: instance.provider_id.clone(),
        claim: ClaimName(instance.claim.clone()),
        node_name: bench.node_name(instance),
    }
}

/// What an instance was bought as, from its labels.
#[track_caller]
fn bought(instance: &Instance) -> OfferingKey {
    let label = |key: &str| {
        let value = instance.labels.get(key);
        value.cloned().unwrap_or_else(|| panic!("{} has no label {key}", instance.provider_id))
    };
    OfferingKey {
        instance_type: TypeName(label(labels::INSTANCE_TYPE)),
        zone: label(labels::ZONE),
        capacity_type: CapacityType::parse(&label(labels::CAPACITY_TYPE))
            .unwrap_or_else(|| panic!("{} has an unknown capacity type", instance.provider_id)),
    }
}
