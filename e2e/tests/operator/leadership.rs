//! Two operators, one leader.

use std::collections::BTreeSet;

use serde_json::json;

use crate::scene::name;
use crate::stage::{LEASE, Stage};
use crate::tests;

tests!(; alone a_second_operator_waits_and_takes_over_from_one_that_was_killed);

/// The first is killed in the middle of its work. The second finishes it, and nothing is done twice.
fn a_second_operator_waits_and_takes_over_from_one_that_was_killed(stage: &Stage<'_>) {
    const PODS: usize = 6;
    let holder = || stage.read(LEASE)["spec"]["holderIdentity"].clone();
    stage.add_pool(|_| {});
    let leader = holder();
    let mut second = stage.start_operator("second");
    stage.wait_for("the second to ask for the lease", || second.said().contains("attempting to acquire leader lease"));

    stage.add_deployment("hold", PODS, |template| {
        template["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": {"matchLabels": {"app": "hold"}}, "topologyKey": "kubernetes.io/hostname",
        }]}});
    });
    stage.wait_for("the first claim", || !stage.claims().is_empty());
    assert_eq!(holder(), leader, "the second waits");
    assert!(second.is_alive());
    stage.operator().kill();

    let mut seen = BTreeSet::new();
    stage.wait_for("all pods to run", || {
        seen.extend(stage.claims().iter().map(name));
        stage.n_running("hold") == PODS
    });
    stage.wait_for("the second to lead", || holder() != leader);
    assert!(second.said().contains(holder().as_str().unwrap()));
    stage.wait_for("the second to be ready", || second.is_ready());
    stage.wait_for("every claim to be ready", || stage.n_ready_claims() == stage.claims().len());
    seen.extend(stage.claims().iter().map(name));
    assert_eq!(seen.len(), PODS, "{seen:?}: a node for each pod, and none twice");
    *stage.operator() = second;
}
