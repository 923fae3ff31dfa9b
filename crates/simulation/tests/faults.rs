//! One fault at a time, and what the operator makes of it: what seeds have found stays found.

#![allow(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use kerf_cloud_sim::{Faults as CloudFaults, SimCloud, SimOptions, Span};
use kerf_controllers::planted::{Bug, plant};
use kerf_simulation::{Heard, Rehearsal, Setup};
use serde_json::{Value, json};

const CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";
const POOL: &str = "/apis/karpenter.sh/v1/nodepools/default";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/web";

/// A pool of small machines that are taken away when they are empty, on a simulated EC2 that outlives every process.
fn scene(elects: bool, faults: CloudFaults) -> (Rehearsal, SimCloud) {
    let setup = Setup { elects, keeps_trace: true, ..Setup::default() };
    let (mut scene, cloud) = Rehearsal::on_sim(setup, SimOptions { faults, ..SimOptions::default() });
    scene.create(
        "{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: default}, spec: {role: r, \
         amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{tags: {a: b}}], \
         securityGroupSelectorTerms: [{tags: {a: b}}]}}",
    );
    scene.create_value(&json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m7i"]},
                    {"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["2"]},
                ],
                "expireAfter": "Never",
            }},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "15s", "budgets": [{"nodes": "100%"}]},
        },
    }));
    (scene, cloud)
}

/// Pods of which a machine takes one.
fn deploy(scene: &mut Rehearsal, replicas: u64) {
    scene.create_value(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}],
            }},
        },
    }));
}

fn n_running(scene: &Rehearsal) -> usize {
    scene.pods().iter().filter(|pod| pod["status"]["phase"] == "Running").count()
}

fn n_machines(cloud: &SimCloud) -> usize {
    cloud.running().len()
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// A node that the operator has seen empty, and that is not, because nothing is heard of pods any more.
fn with_an_unseen_pod(consolidate_after: &str) -> (Rehearsal, SimCloud, String) {
    let (mut scene, cloud) = scene(false, CloudFaults::default());
    scene.patch(POOL, &json!({"spec": {"disruption": {"consolidateAfter": consolidate_after}}}));
    deploy(&mut scene, 1);
    scene.run_until("it runs", 300, |scene| n_running(scene) == 1);
    scene.run_for(30);
    scene.patch(DEPLOYMENT, &json!({"spec": {"replicas": 0}}));
    scene.run_until("it is gone", 60, |scene| scene.pods().is_empty());
    scene.run_for(5);
    scene.freeze("pods", 900);
    scene.patch(DEPLOYMENT, &json!({"spec": {"replicas": 1}}));
    scene.run_until("another one runs", 60, |scene| n_running(scene) == 1);
    assert_eq!(n_machines(&cloud), 1, "on the same machine");
    let claim = name(&scene.claims()[0]);
    (scene, cloud, claim)
}

#[test]
fn a_machine_is_not_ended_while_pods_are_on_it_that_a_late_watch_has_not_shown() {
    let (mut scene, cloud, claim) = with_an_unseen_pod("1h");
    let is_up = |cloud: &SimCloud| cloud.running().iter().any(|line| *line.claim == *claim);
    let unseen = name(&scene.pods()[0]);
    scene.delete(&format!("{CLAIMS}/{claim}"));
    for _ in 0..13 {
        scene.run_for(60);
        assert!(scene.pods().iter().any(|it| name(it) == unseen && it["metadata"]["deletionTimestamp"].is_null()));
        assert!(is_up(&cloud), "its machine is still there");
    }
    assert_eq!(scene.breaches(), &[] as &[String]);
    // The watch is heard of again, and what was asked for is done.
    scene.run_until("the machine goes", 300, |_| !is_up(&cloud));
}

#[test]
fn a_claim_whose_creation_nobody_answered_is_not_made_a_second_time() {
    for heard in [Heard::Nothing, Heard::Break, Heard::Failure] {
        let (mut scene, cloud) = scene(false, CloudFaults::default());
        scene.run_for(30);
        scene.freeze("nodeclaims", 0);
        scene.lose_answers("POST", "/nodeclaims", 2, heard);
        deploy(&mut scene, 1);
        scene.run_until("it runs", 300, |scene| n_running(scene) == 1);
        assert_eq!((scene.claims().len(), n_machines(&cloud)), (1, 1), "{heard:?}");
    }
}

#[test]
fn a_claim_goes_only_when_lists_would_show_a_machine_that_was_asked_for() {
    let faults = CloudFaults {
        launch_answer: Span { least_ms: 5_000, most_ms: 5_000 },
        read_lag: Span { least_ms: 8_000, most_ms: 8_000 },
        ..CloudFaults::default()
    };
    let (mut scene, cloud) = scene(false, faults);
    deploy(&mut scene, 1);
    scene.run_until("a machine is bought", 60, |_| n_machines(&cloud) == 1);
    let claim = name(&scene.claims()[0]);
    scene.restart();
    scene.patch(DEPLOYMENT, &json!({"spec": {"replicas": 0}}));
    scene.delete(&format!("{CLAIMS}/{claim}"));
    scene.run_until("it goes", 300, |scene| scene.claims().is_empty());
    assert_eq!(n_machines(&cloud), 0, "with its machine");
}

#[test]
fn a_successor_with_another_request_for_the_same_claim_finds_the_machine_of_the_first() {
    let faults = CloudFaults {
        launch_answer: Span { least_ms: 5_000, most_ms: 5_000 },
        read_lag: Span { least_ms: 8_000, most_ms: 8_000 },
        spot_price_swing: 0.5,
        spot_price_step: std::time::Duration::from_secs(1),
        ..CloudFaults::default()
    };
    let (mut scene, cloud) = scene(false, faults);
    let mut pool = scene.get(POOL).unwrap();
    // Prices of spot machines change by the second, and with them the request.
    pool["spec"]["template"]["spec"]["requirements"][0]["values"] = json!(["spot"]);
    scene.patch(POOL, &json!({"spec": {"template": {"spec": pool["spec"]["template"]["spec"]}}}));
    deploy(&mut scene, 1);
    scene.run_until("a machine is bought", 60, |_| n_machines(&cloud) == 1);
    scene.restart();
    scene.run_until("it runs", 300, |scene| n_running(scene) == 1);
    assert_eq!((scene.claims().len(), cloud.bill().lines.len()), (1, 1));
}

#[test]
fn a_pod_watch_frozen_for_twice_the_limit_ends_no_node_and_recovers_by_itself() {
    let (mut scene, cloud, claim) = with_an_unseen_pod("1h");
    scene.run_until("it is stale", 400, |scene| scene.is_stale(0));
    scene.patch(POOL, &json!({"spec": {"disruption": {"consolidateAfter": "0s"}}}));
    for _ in 0..10 {
        scene.run_for(30);
        let claims = scene.claims();
        assert!(claims.len() == 1 && claims[0]["metadata"]["deletionTimestamp"].is_null(), "a full node goes");
        assert_eq!((n_running(&scene), n_machines(&cloud), scene.is_stale(0)), (1, 1, true));
    }
    scene.run_until("it is trusted again", 600, |scene| !scene.is_stale(0));
    scene.run_for(120);
    assert_eq!((n_running(&scene), n_machines(&cloud)), (1, 1));
    assert_eq!(name(&scene.claims()[0]), claim);
    assert_eq!(scene.breaches(), &[] as &[String]);
}

#[test]
fn a_full_node_that_a_frozen_watch_shows_as_empty_is_neither_marked_nor_taken_before_anybody_notices() {
    let (mut scene, cloud, _) = with_an_unseen_pod("20s");
    let mut n_looks = 0;
    for _ in 0..600 {
        scene.run_for(1);
        let nodes = scene.nodes();
        let taints = nodes[0]["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
        assert!(taints.iter().all(|taint| taint["key"] != "karpenter.sh/disrupted"), "a full node is marked");
        assert!(scene.claims()[0]["metadata"]["deletionTimestamp"].is_null(), "a full node goes");
        n_looks = scene.trace().iter().filter(|line| line.contains("spec.nodeName%3D")).count();
    }
    assert!(n_looks > 0, "it looked empty, and somebody asked");
    assert_eq!((n_running(&scene), n_machines(&cloud)), (1, 1));
    // Of a watch that is heard of again.
    scene.patch(DEPLOYMENT, &json!({"spec": {"replicas": 0}}));
    scene.run_until("an empty node goes", 900, |_| n_machines(&cloud) == 0);
    assert_eq!(scene.breaches(), &[] as &[String]);
}

/// Leaders fall asleep in the midst of work, and others take over; what was sent without a lease, and how it came out.
fn sleepers() -> (Vec<String>, bool) {
    let (mut scene, _) = scene(true, CloudFaults::default());
    scene.add_process();
    scene.run_until("somebody leads", 60, |scene| scene.leader().is_some());
    deploy(&mut scene, 0);
    for round in 1..6 {
        let leader = scene.leader().unwrap();
        scene.patch(DEPLOYMENT, &json!({"spec": {"replicas": round}}));
        scene.run_for(round);
        scene.put_to_sleep(leader, 25);
        scene.run_for(40);
        scene.run_until("somebody leads again", 60, |scene| scene.leader().is_some());
    }
    scene.run_until("they run", 300, |scene| n_running(scene) == 5);
    let is_held_back = scene.trace().iter().any(|line| line.contains("does not send"));
    (scene.breaches().to_vec(), is_held_back)
}

#[test]
fn nothing_is_sent_by_a_process_that_wakes_when_another_one_leads() {
    let (breaches, is_held_back) = sleepers();
    assert_eq!(breaches, [] as [String; 0]);
    assert!(is_held_back, "it had something to send");
    plant(Some(Bug::UnfencedErrand));
    let (breaches, _) = sleepers();
    plant(None);
    assert!(breaches.iter().any(|breach| breach.starts_with("unfenced: ")), "without the fence: {breaches:?}");
}

#[test]
fn a_clock_that_jumps_five_minutes_either_way_loses_nothing() {
    for seconds in [300, -300] {
        let (mut scene, cloud) = scene(false, CloudFaults::default());
        deploy(&mut scene, 2);
        scene.run_for(10);
        scene.set_clock(0, seconds);
        scene.run_until("they run", 600, |scene| n_running(scene) == 2);
        scene.patch(DEPLOYMENT, &json!({"spec": {"replicas": 0}}));
        scene.run_until("their nodes go", 900, |scene| scene.claims().is_empty());
        assert_eq!(n_machines(&cloud), 0);
    }
}
