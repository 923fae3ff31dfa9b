//! Recommendations to rebalance: told, or acted upon.

use crate::stage::{
    instance_of, is_going, mailed, metric, n_running, name, populate, rebalance, replacing, setup, status_of,
};
use kerf_simulation::Rehearsal;
use serde_json::{Value, json};

fn n_tainted(scene: &Rehearsal) -> usize {
    let is_tainted = |node: &&Value| {
        node["spec"]["taints"].as_array().into_iter().flatten().any(|taint| taint["key"] == "karpenter.sh/disrupted")
    };
    scene.nodes().iter().filter(is_tainted).count()
}

#[test]
fn by_default_a_recommendation_is_an_event_and_nothing_else() {
    let (mut scene, mail) = mailed(setup());
    populate(&mut scene, 2, |_| {});
    scene.run_for(700);
    let claim = scene.claims()[0].clone();
    mail.send(rebalance(&scene, "e-1", &instance_of(&claim)));
    scene.run_for(300);
    assert_eq!(mail.n_left(), 0);
    assert_eq!(scene.events("SpotRebalanceRecommendation").len(), 2, "on claim and node");
    assert_eq!((scene.claims().len(), n_tainted(&scene)), (1, 0));
    assert_eq!(name(&scene.claims()[0]), name(&claim));
}

#[test]
fn a_machine_at_risk_is_replaced_first_and_drained_after() {
    let (mut scene, mail) = mailed(replacing());
    populate(&mut scene, 3, |_| {});
    scene.run_for(700);
    let old = scene.claims()[0].clone();
    mail.send(rebalance(&scene, "e-1", &instance_of(&old)));
    mail.send(rebalance(&scene, "e-2", &instance_of(&old)));
    scene.run_until("a replacement", 10, |scene| scene.claims().len() == 2);
    scene.run_until("the end of the old machine to begin", 200, |scene| {
        let has_begun = scene.claims().iter().any(is_going);
        assert!(has_begun || n_running(scene) == 3, "nobody leaves before the new place is ready");
        has_begun
    });
    let new = scene.claims().into_iter().find(|claim| name(claim) != name(&old)).unwrap();
    assert_eq!(status_of(&new, "Initialized"), "True", "the replacement came first");
    assert_eq!(mail.n_left(), 0, "the notice needs nobody any more");
    scene.run_until("the old machine to be gone", 120, |scene| scene.claims().len() == 1);
    scene.run_until("all to run again", 60, |scene| n_running(scene) == 3);
    let disrupted = ["karpenter_nodeclaims_disrupted_total", "reason=\"rebalance_recommendation\""];
    assert_eq!(metric(&scene, &disrupted), 1.0);
    scene.run_for(3_600);
    assert_eq!(name(&scene.claims()[0]), name(&new), "and that was all");
}

#[test]
fn a_young_machine_is_not_replaced() {
    let (mut scene, mail) = mailed(replacing());
    populate(&mut scene, 2, |_| {});
    scene.run_for(300);
    mail.send(rebalance(&scene, "e-1", &instance_of(&scene.claims()[0])));
    scene.run_for(600);
    assert_eq!((mail.n_left(), scene.claims().len(), n_tainted(&scene)), (0, 1, 0));
}

#[test]
fn few_machines_are_replaced_at_a_time_and_the_others_wait_in_line() {
    let (mut scene, mail) = mailed(replacing());
    // A pod per node.
    populate(&mut scene, 8, |spec| {
        spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}});
    });
    scene.run_for(700);
    let old: Vec<String> = scene.claims().iter().map(name).collect();
    assert_eq!(old.len(), 8);
    for (n, claim) in scene.claims().iter().enumerate() {
        mail.send(rebalance(&scene, &format!("e-{n}"), &instance_of(claim)));
    }
    let is_old = |claim: &Value| old.contains(&name(claim));
    scene.run_until("all to be replaced", 1_200, |scene| {
        let claims = scene.claims();
        let n_leaving = n_tainted(scene) - claims.iter().filter(|claim| is_going(claim)).count().min(n_tainted(scene));
        assert!(n_leaving <= 5, "{n_leaving} at a time");
        !claims.iter().any(is_old)
    });
    scene.run_until("all to run", 60, |scene| n_running(scene) == 8);
    assert_eq!(mail.n_left(), 0);
}

#[test]
fn a_machine_whose_pods_find_no_other_place_is_given_back() {
    let (mut scene, mail) = mailed(replacing());
    populate(&mut scene, 2, |_| {});
    scene.run_for(700);
    // Nothing more can be bought.
    scene.patch("/apis/karpenter.sh/v1/nodepools/default", &json!({"spec": {"limits": {"cpu": "1"}}}));
    let old = scene.claims()[0].clone();
    mail.send(rebalance(&scene, "e-1", &instance_of(&old)));
    scene.run_until("the node to be marked", 10, |scene| n_tainted(scene) == 1);
    scene.run_until("it to be given back", 700, |scene| n_tainted(scene) == 0);
    mail.send(rebalance(&scene, "e-2", &instance_of(&old)));
    scene.run_for(60);
    let claims = scene.claims();
    assert_eq!((claims.len(), n_tainted(&scene), n_running(&scene), mail.n_left()), (1, 0, 2, 0), "and is left alone");
    assert!(!is_going(&claims[0]) && status_of(&claims[0], "DisruptionReason") != "True");
}

#[test]
fn a_replacement_goes_on_after_a_restart() {
    let (mut scene, mail) = mailed(replacing());
    populate(&mut scene, 3, |_| {});
    scene.run_for(700);
    let old = scene.claims()[0].clone();
    mail.send(rebalance(&scene, "e-1", &instance_of(&old)));
    scene.run_until("a replacement", 10, |scene| scene.claims().len() == 2);
    scene.restart();
    scene.run_until("the old machine to be gone", 300, |scene| {
        let claims = scene.claims();
        !claims.iter().any(|claim| name(claim) == name(&old))
    });
    scene.run_until("all to run", 60, |scene| n_running(scene) == 3);
    assert_eq!(scene.claims().len(), 1);
}
