//! The pause and the brake, rehearsed with the whole operator: what is done of our own will stops, what was asked for goes on.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

mod scene;

use kerf_controllers::explain::{Subject, explain};
use kerf_simulation::{Rehearsal, Setup};
use scene::{cluster, inflate, n_pods, name, scale};
use serde_json::json;

/// Some nodes with a pod each, in a pool whose empty nodes go at once.
fn with_nodes(setup: Setup, n_nodes: i32) -> Rehearsal {
    let mut scene = cluster(setup, |pool| {
        pool["spec"]["disruption"] = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]});
    });
    scene.create_value(&inflate("web", n_nodes, |spec| {
        spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}},
        }]}});
    }));
    let n_nodes = usize::try_from(n_nodes).unwrap();
    scene.run_until("all run", 120, |scene| n_pods(scene, "Running") == n_nodes);
    assert_eq!(scene.claims().len(), n_nodes);
    scene
}

fn has_metric(scene: &Rehearsal, line: &str) -> bool {
    scene.operator().metrics().render().lines().any(|it| it == line)
}

#[test]
fn a_paused_operator_takes_no_node_away_unless_somebody_asks_for_it_and_says_so() {
    let mut setup = Setup::default();
    setup.options.pauses_disruption = true;
    let mut scene = with_nodes(setup, 3);
    scale(&mut scene, "web", 0);
    scene.run_for(600);
    assert_eq!(scene.claims().len(), 3, "empty nodes stay");
    let why = "stand still: the operator was started with --pause-disruption";
    assert!(scene.events("DisruptionBlocked").iter().any(|words| words.ends_with(why)));
    assert!(has_metric(&scene, "kerf_disruption_standstill{what=\"emptiness\",reason=\"paused\"} 1"));
    let claim = name(&scene.claims()[0]);
    for subject in [
        Subject::NodePool("default".to_owned()),
        Subject::NodeClaim(claim.clone()),
        Subject::Node(name(&scene.nodes()[0])),
    ] {
        let told = explain(scene.operator(), &subject).unwrap();
        assert!(told.now.ends_with(why), "{}", told.now);
    }
    scene.delete(&format!("/apis/karpenter.sh/v1/nodeclaims/{claim}"));
    scene.run_until("what was asked for is done", 60, |scene| scene.claims().len() == 2);

    let mut scene = with_nodes(Setup::default(), 3);
    scale(&mut scene, "web", 0);
    scene.run_until("without the pause they go", 60, |scene| scene.claims().is_empty());
}
