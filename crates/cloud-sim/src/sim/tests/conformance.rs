//! The simulated cloud on the bench of the conformance suite, on calm days and on bad ones.

use super::*;
use kerf_cloud::conformance::{self, Bench};

struct SimBench {
    stage: Stage,
    order: fn(&str) -> LaunchOrder,
    class: Option<Value>,
}

impl Bench for SimBench {
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
        self.stage.pass(Duration::from_secs(600));
    }

    fn order(&self, name: &str) -> LaunchOrder {
        let order = (self.order)(name);
        let class_object = self.class.clone().map(Arc::new).or(order.class_object);
        LaunchOrder { class_object, ..order }
    }

    fn node_name(&self, instance: &Instance) -> Option<Text> {
        let booted = self.stage.yard.booted.lock().unwrap();
        booted.values().find(|machine| machine.provider_id == instance.provider_id).map(|machine| machine.name.clone())
    }

    fn sell_out(&self, offering: &OfferingKey) -> bool {
        self.stage.cloud.set_stock(offering, 0);
        true
    }

    fn boot_mark(&self, instance: &Instance) -> Option<String> {
        let name = self.node_name(instance)?;
        Some(self.stage.yard.reboots.lock().unwrap().get(&name).copied().unwrap_or(0).to_string())
    }
}

fn ec2(faults: Faults) -> SimBench {
    SimBench { stage: stage(|options| options.faults = faults), order: ec2_order, class: Some(stage_class()) }
}

#[test]
fn the_simulated_ec2_keeps_the_rules_of_a_provider() {
    conformance::run(|| ec2(Faults::default()));
}

#[test]
fn the_simulated_ec2_keeps_the_rules_on_a_bad_day() {
    // Losing machines and joining late or never are not the provider's doing.
    conformance::run(|| ec2(Faults { spot_losses_per_hour: 0.0, never_joins_share: 0.0, ..Faults::bad_day() }));
}

#[test]
fn the_simulated_ec2_keeps_the_rules_when_stock_is_low() {
    conformance::run(|| ec2(Faults { stock_per_offering: Some(4), ..Faults::default() }));
}

#[test]
fn kwok_classes_of_the_simulated_cloud_keep_the_rules_too() {
    conformance::run(|| SimBench { stage: stage(|_| {}), order: kwok_order, class: None });
}
