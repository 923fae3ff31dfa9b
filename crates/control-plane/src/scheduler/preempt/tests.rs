//! Who would have to go.

use serde_json::{Value, json};

use super::super::filter::Cycle;
use super::super::testing::{asking, cluster, facts, node, over, placed, pod, put};
use super::super::verdict::{Refusal, Verdict};
use super::super::{Cluster, verdicts};
use super::*;

fn of_priority(priority: i32) -> Value {
    json!({"spec": {"priority": priority}})
}

fn running(name: &str, on: &str, cpu: &str, priority: i32) -> Value {
    over(placed(name, on, asking(cpu, "0")), of_priority(priority))
}

/// `n1: a, b` or why not.
fn weighed(cluster: &Cluster, wanted: &Value) -> String {
    let wanted = facts(wanted);
    let cycle = Cycle::begin(cluster, &wanted).map_err(|_| ()).unwrap();
    let refused: Vec<(usize, Refusal)> = verdicts(&wanted, cluster)
        .unwrap()
        .into_iter()
        .filter_map(|(name, verdict)| match verdict {
            Verdict::Refused(refusal) => Some((cluster.slot(&name)?, refusal)),
            _ => None,
        })
        .collect();
    match weigh(cluster, &cycle, &refused, 0) {
        Ok(preemption) => {
            let victims: Vec<&str> = preemption.victims.iter().map(|key| key.name.as_str()).collect();
            format!("{}: {}", preemption.node, victims.join(", "))
        }
        Err(why) => why,
    }
}

fn vip(cpu: &str) -> Value {
    over(pod("vip", asking(cpu, "0")), of_priority(100))
}

#[test]
fn the_least_important_and_fewest_pods_go() {
    let two = [node("n1", json!({})), node("n2", json!({}))];
    for (pods, wanted, expected) in [
        (vec![running("a", "n1", "4", 1), running("b", "n2", "4", 2)], vip("1"), "n1: a"),
        (vec![running("a", "n1", "2", 1), running("b", "n1", "2", 1), running("c", "n2", "4", 1)], vip("4"), "n2: c"),
        (vec![running("a", "n1", "3", 5), running("b", "n1", "1", 1), running("c", "n2", "4", 100)], vip("1"), "n1: b"),
        (
            vec![running("a", "n1", "4", 100), running("b", "n2", "4", 100)],
            vip("1"),
            "0/2 nodes are available: 2 No preemption victims found for incoming pod.",
        ),
        (
            vec![running("a", "n1", "4", 1), running("b", "n2", "4", 1)],
            vip("5"),
            "0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
        ),
        (
            vec![running("a", "n1", "4", 1), running("b", "n2", "4", 1)],
            over(vip("1"), json!({"spec": {"preemptionPolicy": "Never"}})),
            "not eligible due to preemptionPolicy=Never.",
        ),
        (
            vec![running("a", "n1", "3", 100), running("b", "n1", "1", 1), running("c", "n2", "4", 100)],
            vip("2"),
            "0/2 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod.",
        ),
    ] {
        let cluster = cluster(&two, &pods);
        assert_eq!(weighed(&cluster, &wanted), expected, "{pods:?}");
    }
}

#[test]
fn the_younger_of_equals_go() {
    let since =
        |name: &str, on: &str, time: &str| over(running(name, on, "4", 1), json!({"status": {"startTime": time}}));
    let cluster = cluster(
        &[node("n1", json!({})), node("n2", json!({}))],
        &[since("old", "n1", "2026-01-01T00:00:00Z"), since("young", "n2", "2026-01-02T00:00:00Z")],
    );
    assert_eq!(weighed(&cluster, &vip("1")), "n2: young");
}

#[test]
fn a_budget_is_broken_only_if_nothing_else_helps() {
    let guarded =
        |name: &str, on: &str| over(running(name, on, "4", 1), json!({"metadata": {"labels": {"app": "guarded"}}}));
    let budget = json!({"metadata": {"namespace": "default", "name": "b"}, "spec": {"selector": {"matchLabels": {"app": "guarded"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
    let nodes = [node("n1", json!({})), node("n2", json!({}))];
    let mut free = cluster(&nodes, &[guarded("a", "n1"), running("b", "n2", "4", 50)]);
    put(&mut free, "poddisruptionbudgets", &budget);
    assert_eq!(weighed(&free, &vip("1")), "n2: b");
    let mut stuck = cluster(&nodes[..1], &[guarded("a", "n1")]);
    put(&mut stuck, "poddisruptionbudgets", &budget);
    assert_eq!(weighed(&stuck, &vip("1")), "n1: a");
}

#[test]
fn those_who_leave_already_are_waited_for() {
    let leaving = over(
        running("a", "n1", "4", 1),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"conditions":
            [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}}),
    );
    let cluster = cluster(&[node("n1", json!({}))], &[leaving]);
    let promised = over(vip("1"), json!({"status": {"nominatedNodeName": "n1"}}));
    assert_eq!(weighed(&cluster, &promised), "not eligible due to a terminating pod on the nominated node.");
}

#[test]
fn anti_affinity_makes_room_too() {
    let rule = json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        [{"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}]}}}});
    let web = |name: &str| over(running(name, "n1", "1", 1), json!({"metadata": {"labels": {"app": "web"}}}));
    let cluster = cluster(&[node("n1", json!({}))], &[web("a"), web("b"), running("c", "n1", "1", 1)]);
    assert_eq!(weighed(&cluster, &over(vip("1"), rule)), "n1: a, b");
}
