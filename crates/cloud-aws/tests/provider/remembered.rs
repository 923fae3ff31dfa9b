//! What is remembered of a launch, for how long, and what it is good for.

use crate::stage::{Stage, stage};
use kerf_cloud::clock::Clock;
use kerf_cloud::{CloudProvider, Instance, InstanceRef};
use kerf_cloud_aws::wire::Ec2Instance;
use kerf_model::ClaimName;
use std::sync::Arc;
use std::time::Duration;

fn reference(instance: &Instance) -> InstanceRef {
    InstanceRef { provider_id: instance.provider_id.clone(), claim: ClaimName(instance.claim.clone()), node_name: None }
}

impl Stage {
    fn buy(&self, name: &str) -> Instance {
        self.launch(self.order(name, &["on-demand"])).unwrap()
    }

    /// Fleets that were asked for when the claim asks once more.
    fn n_fleets_when_asked_again(&self, name: &str) -> usize {
        let before = self.aws.count("ec2:CreateFleet");
        self.buy(name);
        self.aws.count("ec2:CreateFleet") - before
    }

    fn n_instances_listed(&self) -> usize {
        self.wait(self.cloud.list()).unwrap().len()
    }

    /// Lets the clock show so long after a launch.
    fn age(&self, instance: &Instance, age: Duration) {
        let due_ms = instance.created_ms + i64::try_from(age.as_millis()).unwrap();
        let left_ms = u64::try_from(due_ms - self.clock.now().0).unwrap();
        self.clock.advance(Duration::from_millis(left_ms));
    }

    /// Reads of EC2 do not show it.
    fn hide(&self) -> Vec<Ec2Instance> {
        std::mem::take(&mut self.aws.account().instances)
    }

    fn drift(&self, instance: &Instance) -> Option<String> {
        let class = Arc::new(self.class.clone());
        let found = self.wait(self.cloud.drift(reference(instance), class)).unwrap();
        found.map(|word| word.to_string())
    }

    /// How often EC2 is asked about instances to tell the drift of one.
    fn n_looks_for_drift(&self, instance: &Instance) -> usize {
        let before = self.aws.count("ec2:DescribeInstances");
        self.drift(instance);
        self.aws.count("ec2:DescribeInstances") - before
    }
}

#[test]
fn a_launch_is_remembered_for_five_minutes_while_reads_lag_and_as_long_as_its_instance_is_listed() {
    let stage = stage();
    let listed = stage.buy("listed");
    stage.age(&listed, Duration::from_secs(301));
    assert_eq!(stage.n_instances_listed(), 1);
    assert_eq!(stage.n_fleets_when_asked_again("listed"), 0, "it is there");
    let young = stage.buy("young");
    stage.hide();
    stage.age(&young, Duration::from_millis(299_999));
    assert_eq!(stage.n_instances_listed(), 0);
    assert_eq!(stage.n_fleets_when_asked_again("young"), 0, "reads may lag behind");
    stage.age(&young, Duration::from_millis(300_000));
    assert_eq!(stage.n_instances_listed(), 0);
    assert_eq!(stage.n_fleets_when_asked_again("young"), 1, "so long no read lags");
    assert_eq!(stage.n_fleets_when_asked_again("listed"), 1, "what is old and not listed is gone");
}

#[test]
fn a_launch_is_forgotten_when_its_instance_is_gone_and_no_other_is() {
    let stage = stage();
    let (ended, kept) = (stage.buy("ended"), stage.buy("kept"));
    stage.wait(stage.cloud.terminate(reference(&ended))).unwrap();
    assert_eq!(stage.n_fleets_when_asked_again("ended"), 0, "it is ending, which is not gone");
    let gone = stage.wait(stage.cloud.terminate(reference(&ended))).unwrap_err();
    assert!(gone.is_not_found(), "{gone}");
    assert_eq!(stage.n_fleets_when_asked_again("kept"), 0);
    assert_eq!(stage.n_fleets_when_asked_again("ended"), 1);
    assert_eq!(stage.wait(stage.cloud.get(kept.provider_id.clone())).unwrap().provider_id, kept.provider_id);
}

#[test]
fn drift_is_told_from_what_was_listed_unless_only_ec2_can_know() {
    let stage = stage();
    let bought = stage.buy("claim");
    stage.clock.advance(Duration::from_secs(1));
    assert_eq!(stage.n_instances_listed(), 1);
    assert_eq!(stage.n_looks_for_drift(&bought), 0, "the list has everything");
    assert_eq!(stage.drift(&bought), None);
    // A reservation can leave a running instance.
    stage.aws.account().instances[0].reservation_id = Some("cr-1".to_owned());
    stage.n_instances_listed();
    assert_eq!(stage.n_looks_for_drift(&bought), 1);
    // What was just launched has no groups yet.
    let groups = {
        let mut account = stage.aws.account();
        account.instances[0].reservation_id = None;
        std::mem::take(&mut account.instances[0].security_group_ids)
    };
    stage.n_instances_listed();
    stage.aws.account().instances[0].security_group_ids = groups;
    assert_eq!(stage.n_looks_for_drift(&bought), 1);
    assert_eq!(stage.drift(&bought), None);
}

#[test]
fn each_instance_is_compared_with_the_class_as_it_was_at_its_own_launch() {
    let mut stage = stage();
    let before = stage.buy("before");
    assert_eq!(stage.drift(&before), None);
    stage.class["spec"]["tags"] = serde_json::json!({"team": "y"});
    stage.class["metadata"]["generation"] = 2.into();
    stage.resolve();
    let after = stage.buy("after");
    assert_eq!(stage.drift(&before).as_deref(), Some("NodeClassDrift"));
    assert_eq!(stage.drift(&after), None);
    // Nothing is made up where it is not remembered.
    stage.wait(stage.cloud.terminate(reference(&after))).unwrap();
    let instances = stage.hide();
    stage.age(&before, Duration::from_secs(600));
    stage.n_instances_listed();
    stage.aws.account().instances = instances;
    assert_eq!(stage.drift(&before), None);
}
