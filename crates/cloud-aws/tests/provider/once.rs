//! Each claim is launched once: whatever answer is lost, whoever dies, and however those who ask are put together afterwards.

use crate::stage::{Stage, settings, stage};
use kerf_cloud::{CloudError, CloudProvider, Instance, LaunchOrder};
use kerf_cloud_aws::cloud::AwsCloud;
use kerf_model::Money;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const KINDS: [&str; 1] = ["on-demand"];

impl Stage {
    fn orders(&self, names: &[&str]) -> Vec<LaunchOrder> {
        names.iter().map(|name| self.order(name, &KINDS)).collect()
    }

    /// The process dies, and another takes its place.
    fn next_process(&mut self) {
        self.cloud = AwsCloud::new(Arc::new(self.aws.clone()), settings(), Arc::new(self.clock.clone()));
        self.wait(self.cloud.start()).unwrap();
        self.wait(self.cloud.run_chore("providers.pricing", Arc::default())).unwrap();
    }

    /// What is asked for from now on is another request than before.
    fn change_prices(&mut self) {
        for price in &mut self.aws.account().list_prices {
            price.price = Money::from_micros(price.price.micros + 1_000);
        }
        self.wait(self.cloud.run_chore("providers.pricing", Arc::default())).unwrap();
    }

    fn n_running(&self) -> usize {
        self.aws.account().instances.iter().filter(|instance| instance.state == "running").count()
    }
}

fn id(answer: &Result<Instance, CloudError>) -> String {
    answer.as_ref().unwrap_or_else(|error| panic!("{error}")).provider_id.to_string()
}

#[test]
fn a_launch_whose_answer_was_lost_is_asked_for_again_as_it_was() {
    let mut stage = stage();
    stage.aws.lose_next("ec2:CreateFleet");
    let lost = stage.launch_all(stage.orders(&["a", "b", "c"]));
    assert!(lost.iter().all(Result::is_err), "{lost:?}");
    assert_eq!(stage.n_running(), 3, "it was carried out");
    stage.change_prices();
    // One comes back alone, one in company, and one not at all.
    let a = id(&stage.launch(stage.order("a", &KINDS)));
    let others = stage.launch_all(stage.orders(&["c", "d"]));
    let ids: BTreeSet<String> = [a, id(&others[0]), id(&others[1])].into();
    assert_eq!(ids.len(), 3, "one instance each");
    assert_eq!(stage.n_running(), 4, "only d was launched anew");
    let requests = stage.requests("ec2:CreateFleet");
    assert!(requests[0] == requests[1] && requests.iter().filter(|request| **request == requests[0]).count() == 3);
}

#[test]
fn a_launch_that_is_lost_twice_is_found_by_its_tags() {
    let stage = stage();
    stage.aws.lose_next("ec2:CreateFleet");
    stage.launch(stage.order("a", &KINDS)).unwrap_err();
    stage.aws.lose_next("ec2:CreateFleet");
    stage.launch(stage.order("a", &KINDS)).unwrap();
    assert_eq!(stage.n_running(), 1);
    // And where reads lag as well, it is asked for once more.
    stage.aws.lose_next("ec2:CreateFleet");
    stage.launch(stage.order("b", &KINDS)).unwrap_err();
    let hidden = std::mem::take(&mut stage.aws.account().instances);
    stage.aws.lose_next("ec2:CreateFleet");
    stage.launch(stage.order("b", &KINDS)).unwrap_err();
    stage.aws.account().instances = hidden;
    stage.launch(stage.order("b", &KINDS)).unwrap();
    assert_eq!(stage.n_running(), 2);
}

#[test]
fn who_was_asked_to_slow_down_has_launched_nothing() {
    use kerf_cloud_aws::wire::Failure;
    let mut stage = stage();
    let slow_down = Failure { status: 503, ..Failure::new("ec2:CreateFleet", "RequestLimitExceeded", "slow down") };
    stage.aws.fail_next(slow_down);
    stage.launch(stage.order("a", &KINDS)).unwrap_err();
    stage.change_prices();
    stage.launch(stage.order("a", &KINDS)).unwrap();
    let requests = stage.requests("ec2:CreateFleet");
    assert!(requests.len() == 2 && requests[0] != requests[1], "asked at today's prices");
}

#[test]
fn after_a_restart_claims_get_what_was_launched_for_them_however_they_are_put_together() {
    let mut stage = stage();
    let before = stage.launch_all(stage.orders(&["a", "b", "c"]));
    // The status of a was written, those of b and c were not.
    stage.next_process();
    stage.change_prices();
    stage.aws.account().calls.clear();
    let after = stage.launch_all(stage.orders(&["c", "d", "b"]));
    assert_eq!((id(&after[0]), id(&after[2])), (id(&before[2]), id(&before[1])), "each its own");
    assert_eq!(stage.n_running(), 4, "only d was launched anew");
    assert_eq!((stage.aws.count("ec2:CreateFleet"), stage.aws.count("ec2:DescribeInstances")), (1, 1));
    let adopted = after[0].as_ref().unwrap();
    assert_eq!((&*adopted.claim, &*adopted.image_id), ("c", "ami-1"));
    assert!(!adopted.capacity.is_empty() && adopted.annotations.contains_key("karpenter.k8s.aws/ec2nodeclass-hash"));
}

#[test]
fn what_was_launched_before_a_restart_and_has_ended_since_is_launched_anew() {
    let mut stage = stage();
    stage.launch(stage.order("a", &KINDS)).unwrap();
    stage.aws.account().instances[0].state = "terminated".to_owned();
    stage.next_process();
    stage.launch(stage.order("a", &KINDS)).unwrap();
    assert_eq!(stage.n_running(), 1);
}

#[test]
fn an_instance_that_ec2_does_not_show_yet_is_waited_for() {
    let mut stage = stage();
    let before = stage.launch(stage.order("a", &KINDS));
    stage.next_process();
    stage.change_prices();
    let hidden = std::mem::take(&mut stage.aws.account().instances);
    // EC2 knows the token, and that it stood for another request; the instance shows some seconds later.
    let (aws, mut left) = (stage.aws.clone(), Some(hidden));
    let launching = stage.cloud.launch(Arc::new(stage.order("a", &KINDS)));
    let began = kerf_cloud::clock::Clock::now(&stage.clock).0;
    let clock = stage.clock.clone();
    let after = stage.wait(async move {
        let mut launching = launching;
        std::future::poll_fn(move |context| {
            if kerf_cloud::clock::Clock::now(&clock).0 - began > 4_000
                && let Some(hidden) = left.take()
            {
                aws.account().instances = hidden;
            }
            launching.as_mut().poll(context)
        })
        .await
    });
    assert_eq!(id(&after), id(&before));
    assert_eq!(stage.n_running(), 1);
}

#[test]
fn a_token_of_a_fleet_that_got_nothing_holds_nobody_up_for_long() {
    let mut stage = stage();
    stage.sell_out_all(kerf_model::CapacityType::OnDemand);
    stage.launch(stage.order("a", &KINDS)).unwrap_err();
    stage.aws.account().sold_out.clear();
    stage.next_process();
    stage.change_prices();
    let began = kerf_cloud::clock::Clock::now(&stage.clock).0;
    stage.launch(stage.order("a", &KINDS)).unwrap();
    let took = Duration::from_millis((kerf_cloud::clock::Clock::now(&stage.clock).0 - began).unsigned_abs());
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(stage.n_running(), 1);
}
