//! The IAM policies of the five documents, enforced: nodes come all the same, and what is off is named, with the statement that is
//! missing.

use kerf_e2e::aws::policies;
use serde_json::{Value, json};

use crate::Test;
use crate::manifests::{deployment, node_class, node_pool};
use crate::stage::{CLUSTER, NODE_CLASSES, Needs, REGION, Stage};

pub(crate) const TESTS: &[Test] = &[
    test("d0_38_spot_and_on_demand_launch_under_the_policy_of_the_first_document", first_document),
    test("d1_10_spot_and_on_demand_launch_under_the_policy_of_the_second_document", second_document),
    test("d2_6_spot_and_on_demand_launch_under_the_policy_of_release_0_6_5", release_0_6_5),
    test("d3_3_spot_and_on_demand_launch_under_a_policy_for_ec2_alone", ec2_alone),
    test("todays_policy_leaves_nothing_off", today),
];

const fn test(name: &'static str, body: fn(&mut Stage)) -> Test {
    Test { name, needs: Needs::Embedded, body }
}

fn first_document(stage: &mut Stage) {
    under(
        stage,
        "D0.36",
        &node_class(CLUSTER),
        &["ec2:DescribeInstanceStatus", "iam:ListInstanceProfiles", "spot-instances-request"],
    );
}

fn second_document(stage: &mut Stage) {
    under(stage, "D1.10", &node_class(CLUSTER), &["ec2:DescribeInstanceStatus", "iam:ListInstanceProfiles"]);
}

fn release_0_6_5(stage: &mut Stage) {
    stage.set("CLUSTER_ENDPOINT", ENDPOINT);
    let class = given(stage);
    under(stage, "D2.6", &class, OLD);
}

fn ec2_alone(stage: &mut Stage) {
    stage.set("CLUSTER_ENDPOINT", ENDPOINT);
    let class = given(stage);
    under(stage, "D3.3", &class, OLD);
}

fn today(stage: &mut Stage) {
    under(stage, "v1.14", &node_class(CLUSTER), &[]);
}

/// Where nodes are told to go, when EKS may not be asked.
const ENDPOINT: &str = "https://kerf-e2e.example.com";

/// What the policies of 2022 do not know.
const OLD: &[&str] =
    &["ec2:DescribeImages", "ec2:DescribeSpotPriceHistory", "pricing:GetProducts", "ec2:DescribeInstanceStatus"];

/// A class that asks nothing of IAM and EKS: the profile is given, and Bottlerocket's user data wants no service CIDR.
fn given(stage: &Stage) -> Value {
    let mut class = node_class(CLUSTER);
    class["spec"]["role"] = Value::Null;
    class["spec"]["instanceProfile"] = json!(stage.prepared.profile);
    class["spec"]["amiSelectorTerms"] = json!([{"alias": "bottlerocket@latest"}]);
    class
}

/// One pod on spot and one on demand, and the names of what is off.
fn under(stage: &mut Stage, line: &str, class: &Value, off: &[&str]) {
    let cluster = policies::Cluster { name: CLUSTER, region: REGION };
    let policy = policies::all(cluster).into_iter().find(|(name, _)| *name == line).expect("such a policy").1;
    stage.emulator.set_policy(&policy).unwrap();
    stage.start_operator();
    stage.apply(&[class.clone(), node_pool("spot", &["spot"]), node_pool("on-demand", &["on-demand"])]);
    stage.apply(&[deployment("spot", "spot", 1, false), deployment("on-demand", "on-demand", 1, false)]);
    stage.wait_until_running("spot", 1);
    stage.wait_until_running("on-demand", 1);
    let machines = stage.machines();
    let is_spot = |pool: &str| {
        let of_pool: Vec<bool> = machines
            .iter()
            .filter(|machine| machine.tag("karpenter.sh/nodepool") == Some(pool))
            .map(|machine| machine.is_spot)
            .collect();
        assert_eq!(of_pool.len(), 1, "one machine of pool {pool}");
        of_pool[0]
    };
    assert!(is_spot("spot") && !is_spot("on-demand"));
    if off.is_empty() {
        let status = stage.read(&format!("{NODE_CLASSES}/default"))["status"].to_string();
        assert!(!status.contains("denied"), "{status}");
    }
    stage.wait_for(&format!("the class's status to name {off:?}"), || {
        let status = stage.read(&format!("{NODE_CLASSES}/default"))["status"].to_string();
        off.iter().all(|word| status.contains(word))
    });
    let (code, said) = stage.kerf(&["aws", "check", "--cluster-name", CLUSTER, "--cluster-endpoint", ENDPOINT]);
    for word in off.iter().filter(|word| word.contains(':')) {
        assert!(said.contains(word), "kerf aws check (exit {code}) does not name {word}:\n{said}");
    }
    stage.leave_nothing();
}
