//! Static pools on the embedded control plane: as many claims as the pool says, and never more than its limit.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use kerf_controllers::static_capacity::{Deprovisioning, Provisioning};
use kerf_controllers::{Duty, pools};
use kerf_simulation::{Rehearsal, Setup};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const CLASS: &str = "{apiVersion: karpenter.kwok.sh/v1alpha1, kind: KWOKNodeClass, metadata: {name: default}}";
const POOL: &str = "/apis/karpenter.sh/v1/nodepools/static";

/// Without those who launch and drain: a claim is a claim, and is gone once it is deleted.
fn of_static_pools() -> Vec<Box<dyn Duty>> {
    vec![
        Box::new(pools::Validation::default()),
        Box::new(pools::Readiness::default()),
        Box::new(Provisioning::default()),
        Box::new(Deprovisioning::default()),
    ]
}

fn rehearsal() -> Rehearsal {
    let mut rehearsal = Rehearsal::new(Setup::default().with_duties(of_static_pools));
    rehearsal.create(CLASS);
    rehearsal
}

fn pool(replicas: i64, limit: Option<&str>) -> Value {
    let mut pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "static"},
        "spec": {"replicas": replicas, "template": {"spec": {
            "requirements": [{
                "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-16x-amd64-linux", "c-16x-arm64-linux"],
            }],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        }}},
    });
    if let Some(limit) = limit {
        pool["spec"]["limits"] = json!({"nodes": limit});
    }
    pool
}

fn names(rehearsal: &Rehearsal) -> BTreeSet<String> {
    rehearsal.claims().iter().map(|claim| claim["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn scale(rehearsal: &mut Rehearsal, replicas: i64) {
    rehearsal.patch(POOL, &json!({"spec": {"replicas": replicas}}));
}

#[test]
fn a_static_pool_has_as_many_claims_as_it_says() {
    let mut rehearsal = rehearsal();
    rehearsal.create_value(&pool(10, None));
    rehearsal.run_until("ten claims", 5, |rehearsal| rehearsal.claims().len() == 10);
    let first = names(&rehearsal);
    scale(&mut rehearsal, 15);
    rehearsal.run_until("fifteen claims", 5, |rehearsal| rehearsal.claims().len() == 15);
    assert!(names(&rehearsal).is_superset(&first));
    rehearsal.run_for(300);
    assert_eq!(rehearsal.claims().len(), 15);
    scale(&mut rehearsal, 0);
    rehearsal.run_until("no claims", 5, |rehearsal| rehearsal.claims().is_empty());
}

#[test]
fn a_paused_operator_adds_claims_to_a_static_pool_and_takes_none_away() {
    let mut setup = Setup::default().with_duties(of_static_pools);
    setup.options.pauses_disruption = true;
    let mut rehearsal = Rehearsal::new(setup);
    rehearsal.create(CLASS);
    rehearsal.create_value(&pool(2, None));
    rehearsal.run_until("two claims", 5, |rehearsal| rehearsal.claims().len() == 2);
    scale(&mut rehearsal, 4);
    rehearsal.run_until("four claims", 5, |rehearsal| rehearsal.claims().len() == 4);
    scale(&mut rehearsal, 0);
    rehearsal.run_for(600);
    assert_eq!(rehearsal.claims().len(), 4);
}

#[test]
fn a_pool_whose_end_was_not_heard_of_yet_gets_no_claims_for_those_that_went_with_it() {
    let mut rehearsal = rehearsal();
    rehearsal.create_value(&pool(3, None));
    rehearsal.run_until("three claims", 5, |rehearsal| rehearsal.claims().len() == 3);
    rehearsal.freeze("nodepools", 120);
    rehearsal.delete(POOL);
    rehearsal.run_until("its claims to go", 5, |rehearsal| rehearsal.claims().is_empty());
    for _ in 0..60 {
        rehearsal.run_for(1);
        assert_eq!(names(&rehearsal), BTreeSet::new(), "nobody wants them");
    }
}

#[test]
fn what_the_template_says_reaches_the_claims() {
    let mut rehearsal = rehearsal();
    let mut pool = pool(1, None);
    pool["spec"]["template"]["metadata"] = json!({"labels": {"team": "a"}, "annotations": {"note": "b"}});
    pool["spec"]["template"]["spec"]["taints"] = json!([{"key": "t", "value": "v", "effect": "NoSchedule"}]);
    pool["spec"]["template"]["spec"]["startupTaints"] = json!([{"key": "s", "effect": "NoExecute"}]);
    pool["spec"]["template"]["spec"]["terminationGracePeriod"] = json!("30s");
    rehearsal.create_value(&pool);
    rehearsal.run_until("a claim", 5, |rehearsal| rehearsal.claims().len() == 1);
    let claim = &rehearsal.claims()[0];
    let metadata = &claim["metadata"];
    assert_eq!(metadata["labels"]["karpenter.sh/nodepool"], "static");
    assert_eq!(metadata["labels"]["karpenter.kwok.sh/kwoknodeclass"], "default");
    assert_eq!(metadata["labels"]["team"], "a");
    assert_eq!(metadata["annotations"]["note"], "b");
    assert_eq!(metadata["annotations"]["karpenter.sh/nodepool-hash-version"], "v3");
    assert_eq!(metadata["ownerReferences"][0]["kind"], "NodePool");
    assert_eq!(metadata["ownerReferences"][0]["blockOwnerDeletion"], true);
    assert_eq!(claim["spec"]["taints"], pool["spec"]["template"]["spec"]["taints"]);
    assert_eq!(claim["spec"]["startupTaints"], pool["spec"]["template"]["spec"]["startupTaints"]);
    assert_eq!(claim["spec"]["requirements"], pool["spec"]["template"]["spec"]["requirements"]);
    assert_eq!(claim["spec"]["terminationGracePeriod"], "30s");
    assert_eq!(claim["spec"]["expireAfter"], "720h");
    assert_eq!(claim["spec"]["resources"], Value::Null);
}

#[test]
fn replicas_beyond_the_limit_are_never_made_not_even_by_operators_that_die() {
    let mut rehearsal = rehearsal();
    rehearsal.create_value(&pool(10, Some("5")));
    rehearsal.run_until("five claims", 5, |rehearsal| rehearsal.claims().len() == 5);
    let list = names(&rehearsal);
    for round in 0..30 {
        let names: Vec<String> = names(&rehearsal).into_iter().collect();
        for name in names.iter().take(round % 4) {
            rehearsal.delete(&format!("/apis/karpenter.sh/v1/nodeclaims/{name}"));
        }
        rehearsal.restart();
        rehearsal.settle();
        assert!(rehearsal.claims().len() <= 5, "round {round}");
    }
    rehearsal.run_for(300);
    assert_eq!(names(&rehearsal), list, "the same five names again");
    rehearsal.patch(POOL, &json!({"spec": {"limits": {"nodes": "7"}}}));
    rehearsal.run_until("seven claims", 5, |rehearsal| rehearsal.claims().len() == 7);
}

#[test]
fn a_claim_that_is_going_still_counts_against_the_limit() {
    let mut rehearsal = rehearsal();
    rehearsal.create_value(&pool(5, Some("5")));
    rehearsal.run_until("five claims", 5, |rehearsal| rehearsal.claims().len() == 5);
    let going = names(&rehearsal).pop_first().unwrap();
    let path = format!("/apis/karpenter.sh/v1/nodeclaims/{going}");
    rehearsal.patch(&path, &json!({"metadata": {"finalizers": ["example.com/hold"]}}));
    rehearsal.delete(&path);
    rehearsal.run_for(300);
    assert_eq!(rehearsal.claims().len(), 5, "its machine is still there");
    rehearsal.patch(&path, &json!({"metadata": {"finalizers": null}}));
    rehearsal.run_until("another one in its place", 60, |rehearsal| {
        let claims = rehearsal.claims();
        claims.len() == 5 && claims.iter().all(|claim| claim["metadata"]["deletionTimestamp"].is_null())
    });
}

#[test]
fn a_pool_that_is_not_ready_gets_nothing() {
    let mut rehearsal = Rehearsal::new(Setup::default().with_duties(of_static_pools));
    rehearsal.create_value(&pool(3, None));
    rehearsal.run_for(300);
    assert_eq!(rehearsal.claims().len(), 0, "its class does not exist");
    rehearsal.create(CLASS);
    rehearsal.run_until("three claims", 5, |rehearsal| rehearsal.claims().len() == 3);
}

#[test]
fn deleting_a_static_pool_removes_its_claims_and_makes_none() {
    let mut rehearsal = rehearsal();
    rehearsal.create_value(&pool(5, None));
    rehearsal.run_until("five claims", 5, |rehearsal| rehearsal.claims().len() == 5);
    let list = names(&rehearsal);
    rehearsal.delete(POOL);
    rehearsal.run_until("no claims", 60, |rehearsal| {
        assert!(names(rehearsal).is_subset(&list), "one was made");
        rehearsal.claims().is_empty()
    });
    rehearsal.run_for(300);
    assert!(rehearsal.claims().is_empty());
}

#[test]
fn scaling_down_takes_the_empty_nodes_first_and_the_held_one_last() {
    let mut rehearsal = rehearsal();
    rehearsal.create_value(&pool(5, None));
    rehearsal.run_until("five claims", 5, |rehearsal| rehearsal.claims().len() == 5);
    let all: Vec<String> = names(&rehearsal).into_iter().collect();
    for (n, claim) in all.iter().enumerate() {
        rehearsal.patch(
            &format!("/apis/karpenter.sh/v1/nodeclaims/{claim}/status"),
            &json!({"status": {"providerID": format!("kwok://n{n}")}}),
        );
        rehearsal.create_value(&json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{n}")},
            "spec": {"providerID": format!("kwok://n{n}")},
        }));
    }
    // The first in the alphabet would be the first to go, if they were alike.
    for (n, annotations) in [(0, json!({"karpenter.sh/do-not-disrupt": "true"})), (1, json!({})), (2, json!({}))] {
        rehearsal.create_value(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("p{n}"), "namespace": "default", "annotations": annotations},
            "spec": {"nodeName": format!("n{n}"), "containers": [{"name": "c", "image": "i"}]},
        }));
    }
    rehearsal.settle();
    let expect = |rehearsal: &mut Rehearsal, replicas: i64, expected: &[&String]| {
        scale(rehearsal, replicas);
        let expected: BTreeSet<String> = expected.iter().map(|name| (*name).clone()).collect();
        rehearsal.run_until("the others are gone", 5, |rehearsal| names(rehearsal) == expected);
    };
    expect(&mut rehearsal, 3, &[&all[0], &all[1], &all[2]]);
    expect(&mut rehearsal, 2, &[&all[0], &all[2]]);
    expect(&mut rehearsal, 1, &[&all[0]]);
}

// The whole operator.

fn whole() -> Rehearsal {
    let mut setup = Setup::default();
    setup.options.gates.static_capacity = true;
    let mut rehearsal = Rehearsal::new(setup);
    rehearsal.create(CLASS);
    rehearsal
}

fn ready_nodes(rehearsal: &Rehearsal, pool: &str) -> usize {
    let is_ready = |node: &&Value| {
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        node["metadata"]["labels"]["karpenter.sh/nodepool"] == pool
            && conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    rehearsal.nodes().iter().filter(is_ready).count()
}

fn running(rehearsal: &Rehearsal) -> usize {
    let is_running =
        |pod: &&Value| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
    rehearsal.pods().iter().filter(is_running).count()
}

#[test]
fn static_replicas_become_ready_nodes_of_their_pool() {
    let mut rehearsal = whole();
    let mut pool = pool(10, None);
    pool["spec"]["template"]["metadata"] = json!({"labels": {"team": "a"}, "annotations": {"note": "b"}});
    pool["spec"]["template"]["spec"]["taints"] = json!([{"key": "t", "value": "v", "effect": "NoSchedule"}]);
    rehearsal.create_value(&pool);
    rehearsal.run_until("ten nodes", 300, |rehearsal| ready_nodes(rehearsal, "static") == 10);
    for node in rehearsal.nodes() {
        assert_eq!(node["metadata"]["labels"]["team"], "a");
        assert_eq!(node["metadata"]["annotations"]["note"], "b");
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        assert!(taints.iter().any(|taint| taint["key"] == "t" && taint["value"] == "v"), "{taints:?}");
    }
    scale(&mut rehearsal, 15);
    rehearsal.run_until("fifteen nodes", 300, |rehearsal| ready_nodes(rehearsal, "static") == 15);
    scale(&mut rehearsal, 0);
    rehearsal.run_until("no nodes", 600, |rehearsal| rehearsal.nodes().is_empty() && rehearsal.claims().is_empty());
}

#[test]
fn a_static_pool_stays_within_its_node_limit_while_operators_come_and_go() {
    let mut rehearsal = whole();
    rehearsal.create_value(&pool(10, Some("5")));
    for second in 0..300 {
        rehearsal.run_for(1);
        assert!(rehearsal.claims().len() <= 5 && rehearsal.nodes().len() <= 5, "second {second}");
        if second % 7 == 0 {
            rehearsal.restart();
        }
    }
    assert_eq!(ready_nodes(&rehearsal, "static"), 5);
}

#[test]
fn pods_move_when_a_static_pool_shrinks() {
    let mut rehearsal = whole();
    rehearsal.create_value(&pool(3, None));
    rehearsal.run_until("three nodes", 300, |rehearsal| ready_nodes(rehearsal, "static") == 3);
    rehearsal.create_value(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "topologySpreadConstraints": [{
                        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": {"app": "web"}},
                    }],
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
                },
            },
        },
    }));
    rehearsal.run_until("both run", 300, |rehearsal| running(rehearsal) == 2);
    scale(&mut rehearsal, 1);
    rehearsal.run_until("one node with both", 600, |rehearsal| {
        rehearsal.nodes().len() == 1 && rehearsal.claims().len() == 1 && running(rehearsal) == 2
    });
}

#[test]
fn static_and_dynamic_claims_coexist() {
    let mut rehearsal = whole();
    let mut fixed = pool(2, None);
    fixed["spec"]["template"]["spec"]["taints"] = json!([{"key": "static", "effect": "NoSchedule"}]);
    rehearsal.create_value(&fixed);
    let mut dynamic = pool(0, None);
    dynamic["metadata"]["name"] = json!("dynamic");
    dynamic["spec"].as_object_mut().unwrap().remove("replicas");
    rehearsal.create_value(&dynamic);
    rehearsal.create_value(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
                        "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}},
                    }]}},
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
                },
            },
        },
    }));
    rehearsal.run_until("two and three", 300, |rehearsal| {
        ready_nodes(rehearsal, "static") == 2 && ready_nodes(rehearsal, "dynamic") == 3 && running(rehearsal) == 3
    });
    rehearsal.run_for(60);
    assert_eq!(rehearsal.claims().len(), 5);
}

#[test]
fn deleting_a_static_pool_removes_its_nodes_and_makes_none() {
    let mut rehearsal = whole();
    rehearsal.create_value(&pool(3, None));
    rehearsal.run_until("three nodes", 300, |rehearsal| ready_nodes(rehearsal, "static") == 3);
    let list = names(&rehearsal);
    rehearsal.delete(POOL);
    rehearsal.run_until("no nodes", 600, |rehearsal| {
        assert!(names(rehearsal).is_subset(&list), "one was made");
        rehearsal.nodes().is_empty() && rehearsal.claims().is_empty()
    });
}
