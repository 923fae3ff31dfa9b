//! The kwok provider on the bench of the conformance suite.

use super::tests::{Stage, class, order, stage};
use super::*;
use crate::by_hand::finish;
use kerf_cloud::conformance::{self, Bench};

struct KwokBench {
    stage: Stage,
    delay: &'static str,
}

impl Bench for KwokBench {
    fn cloud(&self) -> &dyn CloudProvider {
        &self.stage.cloud
    }

    fn wait<T>(&self, answer: Answer<T>) -> Result<T, CloudError> {
        finish(&self.stage.clock, answer)
    }

    fn pause(&self, span: Duration) {
        self.stage.pass(span);
    }

    fn settle(&self) {
        for _ in 0..10 {
            self.stage.pass(Duration::from_secs(60));
        }
    }

    fn order(&self, name: &str) -> LaunchOrder {
        let delay = json!({"nodeRegistrationDelay": self.delay});
        LaunchOrder {
            class_object: Some(class(delay, "True")),
            uid: name.into(),
            ..order(name, &["c-2x-amd64-linux", "s-2x-amd64-linux", "m-2x-arm64-linux"])
        }
    }

    fn node_name(&self, instance: &Instance) -> Option<Text> {
        let name = instance.provider_id.strip_prefix(PROVIDER_PREFIX)?;
        self.stage.cluster.nodes.lock().unwrap().contains_key(name).then(|| name.into())
    }

    fn boot_mark(&self, instance: &Instance) -> Option<String> {
        let name = self.node_name(instance)?;
        let nodes = self.stage.cluster.nodes.lock().unwrap();
        Some(nodes.get(&*name)?["status"]["nodeInfo"]["bootID"].to_string())
    }

    fn successor(&self) -> Option<Box<dyn CloudProvider>> {
        let clock = Arc::new(self.stage.clock.clone());
        Some(Box::new(KwokCloud::new(self.stage.cluster.clone(), clock, kerf_cloud::kwok::embedded())))
    }
}

#[test]
fn kwok_keeps_the_rules_of_a_provider() {
    conformance::run(|| KwokBench { stage: stage(), delay: "0s" });
}

#[test]
fn kwok_keeps_the_rules_of_a_provider_when_nodes_take_a_while() {
    conformance::run(|| KwokBench { stage: stage(), delay: "45s" });
}

/// A provider that takes every launch for a new one.
struct Forgetful {
    bench: KwokBench,
    n_launches: Mutex<usize>,
}

impl CloudProvider for Forgetful {
    fn name(&self) -> &'static str {
        self.bench.cloud().name()
    }

    fn node_classes(&self) -> Vec<NodeClassKind> {
        self.bench.cloud().node_classes()
    }

    fn well_known_labels(&self) -> Vec<&'static str> {
        vec!["example.com/never-defined"]
    }

    fn instance_types(&self, ask: &TypesAsk<'_>) -> Result<Arc<[Arc<InstanceType>]>, CloudError> {
        self.bench.cloud().instance_types(ask)
    }

    fn price(&self, _: &TypeName, _: Option<&Text>, _: CapacityType) -> Option<Money> {
        None
    }

    fn launch(&self, order: Arc<LaunchOrder>) -> Answer<Instance> {
        let mut n_launches = self.n_launches.lock().unwrap();
        *n_launches += 1;
        let uid = format!("{}-{n_launches}", order.uid).into();
        self.bench.cloud().launch(Arc::new(LaunchOrder { uid, ..(*order).clone() }))
    }

    /// Says that it is gone, and does nothing about it.
    fn terminate(&self, instance: InstanceRef) -> Answer<()> {
        Box::pin(ready(Err(CloudError::NotFound { what: instance.provider_id })))
    }

    fn get(&self, provider_id: Text) -> Answer<Instance> {
        self.bench.cloud().get(provider_id)
    }

    fn list(&self) -> Answer<Vec<Instance>> {
        self.bench.cloud().list()
    }

    fn reboot(&self, instance: InstanceRef, operation: Text) -> Answer<()> {
        let mut n_launches = self.n_launches.lock().unwrap();
        *n_launches += 1;
        self.bench.cloud().reboot(instance, format!("{operation}-{n_launches}").into())
    }

    fn resolve_class(&self, class: Arc<Value>) -> Answer<ClassStatus> {
        self.bench.cloud().resolve_class(class)
    }

    fn drift(&self, _: InstanceRef, _: Arc<Value>) -> Answer<Option<Text>> {
        Box::pin(ready(Ok(Some("NodeClassDrift".into()))))
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        self.bench.cloud().repair_policies().into_iter().skip(1).collect()
    }
}

impl Bench for Forgetful {
    fn cloud(&self) -> &dyn CloudProvider {
        self
    }

    fn wait<T>(&self, answer: Answer<T>) -> Result<T, CloudError> {
        self.bench.wait(answer)
    }

    fn pause(&self, span: Duration) {
        self.bench.pause(span);
    }

    fn settle(&self) {
        self.bench.settle();
    }

    fn order(&self, name: &str) -> LaunchOrder {
        self.bench.order(name)
    }

    fn node_name(&self, instance: &Instance) -> Option<Text> {
        self.bench.node_name(instance)
    }

    fn boot_mark(&self, instance: &Instance) -> Option<String> {
        self.bench.boot_mark(instance)
    }
}

#[test]
fn a_provider_that_breaks_rules_is_told_which() {
    let breaks = |check: fn(&Forgetful)| {
        let bench = Forgetful { bench: KwokBench { stage: stage(), delay: "0s" }, n_launches: Mutex::new(0) };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&bench))).is_err()
    };
    let broken: Vec<&str> =
        conformance::checks().into_iter().filter(|(_, check)| breaks(*check)).map(|(rule, _)| rule).collect();
    assert_eq!(
        broken,
        [
            "every_type_defines_every_well_known_label",
            "what_can_be_had_has_a_positive_price",
            "repair_policies_are_a_valid_set",
            "a_new_instance_has_not_drifted",
            "a_claim_that_is_launched_twice_is_one_instance",
            "a_claim_that_is_launched_by_two_at_once_is_one_instance",
            "termination_ends_with_not_found_and_may_be_repeated",
            "an_instance_that_is_ending_says_so",
            "an_instance_that_is_ended_at_once_leaves_nothing_behind",
            "one_operation_restarts_once",
        ]
    );
}
