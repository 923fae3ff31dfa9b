//! A table for each score, and the sum.

use serde_json::{Value, json};

use super::super::testing::{asking, cluster, facts, node, over, placed, pod, put};
use super::*;

fn slots(cluster: &Cluster) -> Vec<usize> {
    cluster.order().to_vec()
}

fn labelled(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}})
}

#[test]
fn fewer_soft_taints_are_better() {
    let tainted = |name: &str, keys: &[&str]| {
        let taints: Vec<Value> = keys.iter().map(|key| json!({"key": key, "effect": "PreferNoSchedule"})).collect();
        node(name, json!({"spec": {"taints": taints}}))
    };
    let cluster = cluster(&[tainted("n0", &[]), tainted("n1", &["a"]), tainted("n2", &["a", "b"])], &[]);
    let tolerating = |key: &str, effect: &str| {
        facts(&pod("p", json!({"spec": {"tolerations": [{"key": key, "operator": "Exists", "effect": effect}]}})))
    };
    assert_eq!(taints(&cluster, &facts(&pod("p", json!({}))), &slots(&cluster)), [100, 50, 0]);
    assert_eq!(taints(&cluster, &tolerating("a", ""), &slots(&cluster)), [100, 100, 0]);
    assert_eq!(taints(&cluster, &tolerating("a", "NoSchedule"), &slots(&cluster)), [100, 50, 0]);
}

#[test]
fn preferred_terms_add_up() {
    let disk = |name: &str, disk: &str| node(name, json!({"metadata": {"labels": {"disk": disk}}}));
    let cluster = cluster(&[disk("n0", "ssd"), disk("n1", "hdd"), node("n2", json!({}))], &[]);
    let prefer = |weight: i32, operator: &str, values: Value| json!({"weight": weight, "preference": {"matchExpressions": [{"key": "disk", "operator": operator, "values": values}]}});
    let wanted = pod(
        "p",
        json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
        [prefer(30, "In", json!(["ssd"])), prefer(10, "Exists", json!([]))]}}}}),
    );
    assert_eq!(node_preferences(&cluster, &facts(&wanted), &slots(&cluster)), [100, 25, 0]);
    assert_eq!(node_preferences(&cluster, &facts(&pod("p", json!({}))), &slots(&cluster)), [0, 0, 0]);
}

#[test]
fn the_emptier_node_is_better_and_so_is_the_more_even_one() {
    let cluster = cluster(
        &[node("n0", json!({})), node("n1", json!({})), node("n2", json!({"status": {"allocatable": {"cpu": "0"}}}))],
        &[placed("a", "n1", asking("2", "2Gi"))],
    );
    let wanted = facts(&pod("p", asking("1", "2Gi")));
    let least = per_node(&cluster, &slots(&cluster), |node| least_allocated(&wanted, node));
    // n0: (75 + 75) / 2; n1: (25 + 50) / 2; n2 is judged by its memory alone.
    assert_eq!(least, [75, 37, 75]);
    // n0 stays even; n1 goes from 50% and 25% to 75% and 50%.
    assert_eq!(balanced(&cluster, &wanted, &slots(&cluster)), [75, 75, 75]);
    let lopsided = facts(&pod("p", asking("2", "0")));
    assert_eq!(balanced(&cluster, &lopsided, &slots(&cluster)), [62, 62, 75]);
    assert_eq!(balanced(&cluster, &facts(&pod("p", json!({}))), &slots(&cluster)), [0, 0, 0]);
}

#[test]
fn a_container_that_asks_for_nothing_counts_as_something() {
    let cluster = cluster(&[node("n0", json!({"status": {"allocatable": {"cpu": "1", "memory": "1000Mi"}}}))], &[]);
    let least = per_node(&cluster, &slots(&cluster), |node| least_allocated(&facts(&pod("p", json!({}))), node));
    assert_eq!(least, [(90 + 80) / 2]);
}

#[test]
fn an_image_that_is_there_saves_pulling_it() {
    let with = |name: &str, size: i64| {
        node(name, json!({"status": {"images": [{"names": ["web:latest"], "sizeBytes": size}]}}))
    };
    let mib = 1024 * 1024;
    let cluster =
        cluster(&[with("n0", 1000 * mib), with("n1", 10 * mib), node("n2", json!({})), node("n3", json!({}))], &[]);
    // Half of the nodes have it, so that half of its size counts.
    assert_eq!(images(&cluster, &facts(&pod("p", json!({}))), &slots(&cluster)), [48, 0, 0, 0]);
}

#[test]
fn preferred_neighbours_pull_and_push() {
    let rule = |kind: &str, weight: i32, app: &str| {
        json!({"spec": {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight,
            "podAffinityTerm": {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}}]}}}})
    };
    let nodes = [node("n0", json!({})), node("n1", json!({})), node("n2", json!({}))];
    let plain = cluster(&nodes, &[placed("a", "n0", labelled("web")), placed("b", "n1", labelled("db"))]);
    let near = facts(&pod("p", rule("podAffinity", 10, "web")));
    assert_eq!(neighbours(&plain, &near, &slots(&plain)), [100, 0, 0]);
    let far = facts(&pod("p", rule("podAntiAffinity", 10, "web")));
    assert_eq!(neighbours(&plain, &far, &slots(&plain)), [0, 100, 100]);
    assert_eq!(neighbours(&plain, &facts(&pod("p", json!({}))), &slots(&plain)), [0, 0, 0]);
    // What those already there would like counts as much.
    let required = json!({"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        [{"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}]}}}});
    let opinionated =
        cluster(&nodes, &[placed("a", "n0", rule("podAntiAffinity", 3, "x")), placed("b", "n1", required)]);
    assert_eq!(neighbours(&opinionated, &facts(&pod("p", labelled("x"))), &slots(&opinionated)), [0, 100, 75]);
}

#[test]
fn pods_of_one_workload_are_spread_without_asking() {
    let nodes = [
        node("n0", json!({})),
        node("n1", json!({})),
        node("n2", json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "b"}}})),
    ];
    let mut cluster = cluster(&nodes, &[placed("a", "n0", labelled("web"))]);
    let wanted = facts(&pod("p", labelled("web")));
    assert_eq!(spread(&cluster, &wanted, &slots(&cluster)), [0, 0, 0]);
    put(
        &mut cluster,
        "services",
        &json!({"metadata": {"namespace": "default", "name": "s"}, "spec": {"selector": {"app": "web"}}}),
    );
    let scores = spread(&cluster, &wanted, &slots(&cluster));
    assert!(scores[0] < scores[1] && scores[1] < scores[2], "{scores:?}");
    // Counts 1 and 0 per host, 1 and 0 per zone; ln(5) and ln(4) as weights, 2 and 4 for the allowed skew.
    assert_eq!(scores, [66, 88, 100]);
    let own = json!({"spec": {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}]}});
    assert_eq!(spread(&cluster, &facts(&pod("p", own)), &slots(&cluster)), [0, 0, 0]);
}

#[test]
fn the_weights_are_those_of_the_default_profile() {
    let soft = node("n1", json!({"spec": {"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}}));
    let cluster = cluster(&[node("n0", json!({})), soft], &[]);
    let wanted = facts(&pod("p", over(asking("1", "2Gi"), json!({}))));
    // Taints 3 x 100 or 0, both 75 for what is left and 75 for balance.
    assert_eq!(totals(&cluster, &wanted, &slots(&cluster)), [450, 150]);
}
