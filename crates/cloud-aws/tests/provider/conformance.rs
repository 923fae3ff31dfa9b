//! AWS on the bench of the conformance suite.

use crate::stage::{Stage, settings, stage};
use kerf_cloud::conformance::{self, Bench};
use kerf_cloud::{Answer, CloudError, CloudProvider, Instance, LaunchOrder, OfferingKey};
use kerf_cloud_aws::cloud::AwsCloud;
use kerf_model::Text;
use std::sync::Arc;
use std::time::Duration;

impl Bench for Stage {
    fn cloud(&self) -> &dyn CloudProvider {
        &*self.cloud
    }

    fn wait<T>(&self, answer: Answer<T>) -> Result<T, CloudError> {
        Stage::wait(self, answer)
    }

    fn pause(&self, span: Duration) {
        self.clock.advance(span);
    }

    fn settle(&self) {
        self.clock.advance(Duration::from_secs(600));
    }

    fn order(&self, name: &str) -> LaunchOrder {
        Stage::order(self, name, &["spot", "on-demand"])
    }

    fn node_name(&self, instance: &Instance) -> Option<Text> {
        Some(format!("node-of-{}", instance.provider_id).into())
    }

    fn sell_out(&self, offering: &OfferingKey) -> bool {
        Stage::sell_out(self, offering);
        true
    }

    fn boot_mark(&self, instance: &Instance) -> Option<String> {
        let id = instance.provider_id.rsplit('/').next()?.to_owned();
        let restarts = self.requests("ec2:RebootInstances").into_iter().filter(|request| request.contains(&id));
        Some(restarts.count().to_string())
    }
}

#[test]
fn ec2_keeps_the_rules_of_a_provider() {
    conformance::run(stage);
}

#[test]
fn ec2_keeps_the_rules_where_calls_fail_now_and_then() {
    use kerf_cloud_aws::wire::Failure;
    conformance::run(|| {
        let stage = stage();
        for action in ["ec2:CreateFleet", "ec2:DescribeInstances", "ec2:TerminateInstances", "ec2:RebootInstances"] {
            stage.aws.fail_next(Failure::new(action, "RequestLimitExceeded", "slow down"));
            stage.aws.fail_next(Failure::new(action, "InternalError", "an internal error has occurred"));
        }
        stage
    });
}

/// The same claims asking for the same after a crash make the same request, and EC2 knows its token.
#[test]
fn a_claim_launched_again_by_the_next_process_is_the_same_instance() {
    let stage = stage();
    let first = stage.launch(Stage::order(&stage, "crash", &["on-demand"])).unwrap();
    let next = AwsCloud::new(Arc::new(stage.aws.clone()), settings(), Arc::new(stage.clock.clone()));
    Stage::wait(&stage, next.start()).unwrap();
    Stage::wait(&stage, next.run_chore("providers.pricing", Arc::default())).unwrap();
    let again = Stage::wait(&stage, next.launch(Arc::new(Stage::order(&stage, "crash", &["on-demand"])))).unwrap();
    assert_eq!(again.provider_id, first.provider_id);
    assert_eq!(stage.aws.account().instances.len(), 1);
}
