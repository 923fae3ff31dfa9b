//! AWS is slow, busy or silent when the operator starts: it waits with its probes open, and the first launch works.

use std::time::{Duration, Instant};

use kerf_e2e::operator::page;

use crate::Test;
use crate::manifests::{deployment, node_class, node_pool};
use crate::stage::{CLUSTER, NODE_POOLS, Needs, Stage, is_true};

pub(crate) const TESTS: &[Test] = &[Test {
    name: "a_start_while_prices_hang_and_one_while_aws_throttles_are_ready_within_a_probes_patience",
    needs: Needs::Embedded,
    body: start,
}];

/// As the chart asks: the first time after 30 s, then three failures 10 s apart.
const PATIENCE: Duration = Duration::from_secs(60);

fn start(stage: &mut Stage) {
    stage.emulator.hang("pricing:GetProducts", true).unwrap();
    let told = "prices have not come within";
    ready_within_patience(stage, told);
    stage.apply(&[node_class(CLUSTER), node_pool("default", &["on-demand"])]);
    launches(stage, 1);
    stage.kill_operator();
    stage.emulator.hang("pricing:GetProducts", false).unwrap();

    // Each call of the SDK is three attempts: some fail as a whole, several times over.
    for (action, code, n_times) in [
        ("eks:DescribeCluster", "ThrottlingException", 7),
        ("ssm:GetParameter", "ThrottlingException", 7),
        ("ec2:DescribeInstanceTypes", "RequestLimitExceeded", 7),
        ("ec2:DescribeInstanceTypeOfferings", "RequestLimitExceeded", 4),
        ("ec2:DescribeSubnets", "RequestLimitExceeded", 4),
        ("ec2:DescribeSecurityGroups", "RequestLimitExceeded", 4),
        ("ec2:DescribeImages", "RequestLimitExceeded", 4),
        ("ec2:DescribeInstances", "RequestLimitExceeded", 4),
    ] {
        let status = if code == "ThrottlingException" { 400 } else { 503 };
        stage.emulator.fail(action, code, "slow down", status, Some(n_times)).unwrap();
    }
    ready_within_patience(stage, "AWS is not there yet: asking again");
    launches(stage, 2);
    stage.leave_nothing();
}

fn ready_within_patience(stage: &mut Stage, told: &str) {
    let began = Instant::now();
    stage.begin_operator();
    let port = stage.operator().health_port;
    let (mut is_open, mut n_failures) = (false, 0);
    stage.wait_for("the operator to be ready", || {
        let is_alive = page(port, "/healthz").is_some_and(|(status, _)| status == 200);
        is_open |= is_alive;
        // A second is enough for a process to open its port.
        n_failures += u32::from(!is_alive && (is_open || began.elapsed() > Duration::from_secs(20)));
        stage.operator().is_ready()
    });
    let took = began.elapsed();
    assert!(took < PATIENCE, "ready after {took:?}");
    assert_eq!(n_failures, 0, "the liveness probe has failed");
    assert!(stage.operator().said().contains(told), "it is not told: {told}");
    println!("aws start: ready after {:.1} s ({told})", took.as_secs_f64());
}

fn launches(stage: &Stage, n: usize) {
    stage.wait_for("the pool to be ready", || is_true(&stage.read(&format!("{NODE_POOLS}/default")), "Ready"));
    stage.apply(&[deployment("inflate", "default", n, true)]);
    stage.wait_until_running("inflate", n);
    assert_eq!(stage.machines().len(), n);
}
