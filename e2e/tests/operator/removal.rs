//! How nodes go: by their age, by their owner's wish, and never before their pods.

use serde_json::{Value, json};

use crate::scene::{DISRUPTED, has_taint, is_going, name};
use crate::stage::{NODE_CLAIMS, NODES, Stage};
use crate::tests;

tests!(
    an_expired_node_is_replaced,
    a_termination_grace_period_ends_what_asks_not_to_be_disrupted,
    a_held_pod_keeps_its_node_until_the_annotation_goes,
);

const HOLD: &str = "karpenter.sh/do-not-disrupt";

fn hold(template: &mut Value, value: &str) {
    template["metadata"]["annotations"] = json!({HOLD: value});
}

fn only_claim(stage: &Stage<'_>) -> String {
    stage.wait_for("one claim, ready", || stage.n_ready_claims() == 1 && stage.claims().len() == 1);
    format!("{NODE_CLAIMS}/{}", name(&stage.claims()[0]))
}

fn only_pod(stage: &Stage<'_>, app: &str) -> String {
    let pods = stage.pods(app);
    assert_eq!(pods.len(), 1, "pods of {app}");
    stage.object("v1", "pods", &name(&pods[0]))
}

fn an_expired_node_is_replaced(stage: &Stage<'_>) {
    stage.add_pool(|pool| pool["spec"]["template"]["spec"]["expireAfter"] = json!("30s"));
    stage.add_deployment("inflate", 1, |_| {});
    stage.wait_until_running("inflate", 1);
    let first = stage.only_node_of("inflate");
    stage.wait_for("the node to go", || stage.is_gone(&format!("{NODES}/{first}")));
    stage.wait_for("the pod to run elsewhere", || {
        let pods = stage.pods("inflate");
        pods.iter().any(|pod| pod["status"]["phase"] == "Running" && pod["spec"]["nodeName"] != first.as_str())
    });
}

/// Each pod is held by a finalizer while it leaves, so that the turn of the others does not come.
fn a_termination_grace_period_ends_what_asks_not_to_be_disrupted(stage: &Stage<'_>) {
    stage.add_pool(|pool| pool["spec"]["template"]["spec"]["terminationGracePeriod"] = json!("20s"));
    stage.add_deployment("held", 1, |template| {
        hold(template, "true");
        template["spec"]["terminationGracePeriodSeconds"] = json!(5);
    });
    stage.wait_until_running("held", 1);
    let (claim, node, pod) = (only_claim(stage), stage.only_node_of("held"), only_pod(stage, "held"));
    stage.delete(&claim);
    let node = format!("{NODES}/{node}");
    stage.wait_for("the node to be tainted", || has_taint(&stage.read(&node), DISRUPTED));
    assert!(!is_going(&stage.read(&pod)), "the pod has its time yet");
    stage
        .wait_for("pod, node and claim to go", || stage.is_gone(&pod) && stage.is_gone(&node) && stage.is_gone(&claim));
}

fn a_held_pod_keeps_its_node_until_the_annotation_goes(stage: &Stage<'_>) {
    stage.add_pool(|_| {});
    stage.add_deployment("for-good", 1, |template| hold(template, "true"));
    stage.add_deployment("for-a-while", 1, |template| hold(template, "20s"));
    for app in ["for-good", "for-a-while"] {
        stage.wait_until_running(app, 1);
    }
    let claim = only_claim(stage);
    let (for_good, for_a_while) = (only_pod(stage, "for-good"), only_pod(stage, "for-a-while"));
    stage.delete(&claim);
    stage.wait_for("the pod whose time is over to go", || stage.is_gone(&for_a_while));
    assert!(!is_going(&stage.read(&for_good)) && !stage.is_gone(&claim));
    stage.kubectl_says(&["annotate", "pod", for_good.rsplit('/').next().unwrap(), &format!("{HOLD}-")]);
    stage.wait_for("the other to go", || stage.is_gone(&for_good));
    stage.wait_for("the claim to go", || stage.is_gone(&claim));
}
