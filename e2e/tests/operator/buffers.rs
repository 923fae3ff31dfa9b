//! Buffers: room that is kept free for pods that are not there yet.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::scene::{condition, is_going, name, text};
use crate::stage::Stage;
use crate::tests;

tests!(
    room_is_made_for_a_buffer_taken_by_a_pod_made_again_and_given_back,
    a_buffer_of_a_workload_is_filled_again_when_its_pods_take_the_room,
    a_buffer_without_its_target_says_so_and_recovers,
    a_buffer_follows_the_edits_of_its_template_and_its_own,
    a_buffer_follows_the_replicas_of_its_workload,
    a_buffer_of_a_fixed_number_ignores_the_replicas_of_its_workload,
    the_limits_of_a_buffer_give_its_number,
    nodes_with_room_for_a_buffer_are_not_taken_for_empty,
    a_buffer_does_not_cross_the_limit_of_its_pool,
    two_buffers_do_not_disturb_each_other,
    buffers_that_come_and_go_quickly_leave_no_claim_behind,
    a_buffer_shares_a_node_with_a_small_pod,
    a_buffers_node_selector_is_obeyed,
    a_buffer_is_filled_again_when_its_node_expires,
    a_buffer_of_pods_that_avoid_each_other_gets_a_node_each,
    a_buffer_of_a_workload_whose_pods_avoid_each_other_gets_a_node_each,
);

const BUFFERS: (&str, &str) = ("autoscaling.x-k8s.io/v1beta1", "capacitybuffers");

fn add_buffer(stage: &Stage<'_>, name: &str, spec: &Value) -> String {
    let buffer = json!({"apiVersion": BUFFERS.0, "kind": "CapacityBuffer", "metadata": {"name": name}, "spec": spec});
    stage.create(&stage.at(BUFFERS.0, BUFFERS.1), &buffer);
    stage.object(BUFFERS.0, BUFFERS.1, name)
}

/// A pool of machines with two CPUs, whose empty nodes go at once.
fn add_pool(stage: &Stage<'_>, change: impl FnOnce(&mut Value)) {
    stage.add_pool(|pool| {
        pool["spec"]["disruption"]["consolidateAfter"] = json!("0s");
        let types =
            json!({"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-2x-amd64-linux"]});
        pool["spec"]["template"]["spec"]["requirements"].as_array_mut().unwrap().push(types);
        change(pool);
    });
}

/// A template of pods of one CPU and 512Mi, named `template`.
fn add_template(stage: &Stage<'_>, change: impl FnOnce(&mut Value)) -> String {
    let mut spec = stage.pod_spec("1");
    spec["containers"][0]["resources"]["requests"]["memory"] = json!("512Mi");
    change(&mut spec);
    let template = json!({
        "apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "template"},
        "template": {"metadata": {"labels": {"app": "buffer"}}, "spec": spec},
    });
    stage.create(&stage.at("v1", "podtemplates"), &template);
    stage.object("v1", "podtemplates", "template")
}

fn of_template(replicas: usize) -> Value {
    json!({"podTemplateRef": {"name": "template"}, "replicas": replicas})
}

fn of_web() -> Value {
    json!({"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}})
}

fn avoids(app: &str) -> Value {
    json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname",
    }]}})
}

fn is_provisioned(buffer: &Value) -> bool {
    let found = condition(buffer, "Provisioning");
    found["status"] == "True" && found["reason"] == "FitsExistingCapacity"
}

/// Waits until there is room for so many.
#[track_caller]
fn wait_until_provisioned(stage: &Stage<'_>, buffer: &str, replicas: usize) {
    stage.wait_for(&format!("room for {replicas}"), || {
        let found = stage.read(buffer);
        found["status"]["replicas"] == replicas && is_provisioned(&found)
    });
}

#[track_caller]
fn wait_until_it_wants(stage: &Stage<'_>, buffer: &str, replicas: usize) {
    stage.wait_for(&format!("{replicas} replicas"), || stage.read(buffer)["status"]["replicas"] == replicas);
}

fn room_is_made_for_a_buffer_taken_by_a_pod_made_again_and_given_back(stage: &Stage<'_>) {
    add_pool(stage, |_| {});
    add_template(stage, |_| {});
    let buffer = add_buffer(stage, "buffer", &of_template(3));
    wait_until_provisioned(stage, &buffer, 3);
    let n_before = stage.claims().len();
    assert!(n_before >= 2, "{n_before} nodes of two CPUs have no room for three pods of one");

    // The consumer needs no node of its own: it runs where there was room, and the room is made again.
    stage.add_deployment("consumer", 1, |_| {});
    stage.wait_until_running("consumer", 1);
    stage.wait_for("a further claim, and room again", || {
        stage.claims().len() > n_before && is_provisioned(&stage.read(&buffer))
    });

    stage.delete(&stage.object("apps/v1", "deployments", "consumer"));
    stage.delete(&buffer);
    stage.wait_until_no_node_is_left();
}

fn a_buffer_of_a_workload_is_filled_again_when_its_pods_take_the_room(stage: &Stage<'_>) {
    add_pool(stage, |_| {});
    stage.add_deployment("web", 1, |_| {});
    let mut spec = of_web();
    spec["replicas"] = json!(1);
    let buffer = add_buffer(stage, "buffer", &spec);
    wait_until_provisioned(stage, &buffer, 1);
    stage.wait_until_running("web", 1);
    let before: BTreeSet<String> = stage.nodes().iter().map(name).collect();
    assert_eq!(before.len(), 2, "a pod of one CPU and room for another, on machines of two with 100m reserved");
    stage.patch(&stage.object("apps/v1", "deployments", "web"), &json!({"spec": {"replicas": 2}}));
    stage.wait_until_running("web", 2);
    let used: BTreeSet<String> = stage.pods("web").iter().map(|pod| text(&pod["spec"]["nodeName"])).collect();
    assert_eq!(used, before, "the second runs where there was room");
    stage.wait_for("a further claim, and room again", || {
        stage.claims().len() == 3 && is_provisioned(&stage.read(&buffer))
    });
}

fn a_buffer_without_its_target_says_so_and_recovers(stage: &Stage<'_>) {
    stage.add_pool(|_| {});
    let mut spec = of_web();
    spec["percentage"] = json!(20);
    let buffer = add_buffer(stage, "buffer", &spec);
    stage.wait_for("the buffer to say what is missing", || {
        let found = stage.read(&buffer);
        let ready = condition(&found, "ReadyForProvisioning");
        ready["status"] == "False" && ready["reason"] == "ScalableRefNotFound"
    });
    stage.add_deployment("web", 10, |_| {});
    wait_until_it_wants(stage, &buffer, 2);
}

fn a_buffer_follows_the_edits_of_its_template_and_its_own(stage: &Stage<'_>) {
    add_pool(stage, |_| {});
    let template = add_template(stage, |_| {});
    let buffer = add_buffer(stage, "buffer", &of_template(3));
    wait_until_it_wants(stage, &buffer, 3);
    let first = stage.read(&buffer)["status"]["podTemplateGeneration"].clone();
    let requests = json!({"template": {"metadata": {"labels": {"app": "edited"}}}});
    let generation = stage.patch(&template, &requests)["metadata"]["generation"].clone();
    assert_ne!(generation, first);
    stage
        .wait_for("the template's generation", || stage.read(&buffer)["status"]["podTemplateGeneration"] == generation);
    stage.patch(&buffer, &json!({"spec": {"replicas": 1}}));
    wait_until_it_wants(stage, &buffer, 1);
}

fn a_buffer_follows_the_replicas_of_its_workload(stage: &Stage<'_>) {
    stage.add_pool(|_| {});
    stage.add_deployment("web", 5, |_| {});
    let mut spec = of_web();
    spec["percentage"] = json!(20);
    let buffer = add_buffer(stage, "buffer", &spec);
    wait_until_it_wants(stage, &buffer, 1);
    stage.kubectl_says(&["scale", "deployment", "web", "--replicas", "20"]);
    wait_until_it_wants(stage, &buffer, 4);
}

fn a_buffer_of_a_fixed_number_ignores_the_replicas_of_its_workload(stage: &Stage<'_>) {
    stage.add_pool(|_| {});
    stage.add_deployment("web", 1, |_| {});
    let mut spec = of_web();
    spec["replicas"] = json!(3);
    let buffer = add_buffer(stage, "buffer", &spec);
    wait_until_provisioned(stage, &buffer, 3);
    // Beside it one that follows: when it has, the fixed one could have too.
    let mut spec = of_web();
    spec["percentage"] = json!(100);
    let following = add_buffer(stage, "following", &spec);
    stage.kubectl_says(&["scale", "deployment", "web", "--replicas", "2"]);
    wait_until_it_wants(stage, &following, 2);
    assert_eq!(stage.read(&buffer)["status"]["replicas"], 3);
}

fn the_limits_of_a_buffer_give_its_number(stage: &Stage<'_>) {
    add_pool(stage, |_| {});
    add_template(stage, |_| {});
    let spec = json!({"podTemplateRef": {"name": "template"}, "limits": {"cpu": "2"}});
    let buffer = add_buffer(stage, "buffer", &spec);
    wait_until_it_wants(stage, &buffer, 2);
    stage.patch(&buffer, &json!({"spec": {"limits": {"cpu": "5"}}}));
    wait_until_it_wants(stage, &buffer, 5);
}

/// Another empty node of the pool goes, so that whoever looks for empty nodes has looked.
fn nodes_with_room_for_a_buffer_are_not_taken_for_empty(stage: &Stage<'_>) {
    add_pool(stage, |_| {});
    add_template(stage, |_| {});
    let buffer = add_buffer(stage, "buffer", &of_template(2));
    wait_until_provisioned(stage, &buffer, 2);
    let kept: BTreeSet<String> = stage.claims().iter().map(name).collect();
    stage.add_deployment("inflate", 3, |template| template["spec"]["affinity"] = avoids("inflate"));
    stage.wait_until_running("inflate", 3);
    stage.wait_for("more nodes than before", || stage.n_ready_claims() > kept.len());
    stage.delete(&stage.object("apps/v1", "deployments", "inflate"));
    stage.wait_for("only nodes for the buffer to be left", || {
        let claims = stage.claims();
        claims.len() == 2 && !claims.iter().any(is_going)
    });
    assert!(is_provisioned(&stage.read(&buffer)));
    stage.delete(&buffer);
    stage.wait_until_no_node_is_left();
}

/// Each node has room for one, and counts with both of its CPUs.
fn a_buffer_does_not_cross_the_limit_of_its_pool(stage: &Stage<'_>) {
    add_pool(stage, |pool| pool["spec"]["limits"] = json!({"cpu": "4"}));
    add_template(stage, |_| {});
    let buffer = add_buffer(stage, "buffer", &of_template(10));
    stage.wait_for("two nodes, and the others told as missing", || {
        assert!(stage.claims().len() <= 2, "{} claims", stage.claims().len());
        let found = stage.read(&buffer);
        stage.n_ready_claims() == 2 && condition(&found, "Provisioning")["reason"] == "RequiresNewCapacity"
    });
}

fn two_buffers_do_not_disturb_each_other(stage: &Stage<'_>) {
    add_pool(stage, |_| {});
    add_template(stage, |_| {});
    let (first, second) = (add_buffer(stage, "first", &of_template(1)), add_buffer(stage, "second", &of_template(2)));
    wait_until_provisioned(stage, &first, 1);
    wait_until_provisioned(stage, &second, 2);
    stage.delete(&first);
    stage.wait_for("the room of the first to go", || stage.claims().len() == 2);
    assert_eq!(stage.read(&second)["status"]["replicas"], 2);
    assert!(is_provisioned(&stage.read(&second)));
}

fn buffers_that_come_and_go_quickly_leave_no_claim_behind(stage: &Stage<'_>) {
    add_pool(stage, |_| {});
    add_template(stage, |_| {});
    for round in 1..=5 {
        let buffer = add_buffer(stage, &format!("buffer-{round}"), &of_template(2));
        wait_until_it_wants(stage, &buffer, 2);
        stage.delete(&buffer);
    }
    // The last one shows that everything before it was seen.
    let last = add_buffer(stage, "last", &of_template(1));
    wait_until_provisioned(stage, &last, 1);
    stage.delete(&last);
    stage.wait_until_no_node_is_left();
}

fn a_buffer_shares_a_node_with_a_small_pod(stage: &Stage<'_>) {
    add_pool(stage, |_| {});
    add_template(stage, |_| {});
    stage.add_deployment("small", 1, |template| {
        template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("100m");
    });
    stage.wait_until_running("small", 1);
    let buffer = add_buffer(stage, "buffer", &of_template(1));
    stage.wait_for("room for one, beside the pod", || {
        assert_eq!(stage.claims().len(), 1, "there is room where the small pod is");
        is_provisioned(&stage.read(&buffer))
    });
}

fn a_buffers_node_selector_is_obeyed(stage: &Stage<'_>) {
    add_pool(stage, |_| {});
    add_template(stage, |spec| spec["nodeSelector"]["topology.kubernetes.io/zone"] = json!("test-zone-c"));
    let buffer = add_buffer(stage, "buffer", &of_template(2));
    wait_until_provisioned(stage, &buffer, 2);
    for node in stage.nodes() {
        assert_eq!(node["metadata"]["labels"]["topology.kubernetes.io/zone"], "test-zone-c");
    }
}

fn a_buffer_is_filled_again_when_its_node_expires(stage: &Stage<'_>) {
    add_pool(stage, |pool| pool["spec"]["template"]["spec"]["expireAfter"] = json!("30s"));
    add_template(stage, |_| {});
    let buffer = add_buffer(stage, "buffer", &of_template(1));
    wait_until_provisioned(stage, &buffer, 1);
    stage.patch(&stage.pool_path(), &json!({"spec": {"template": {"spec": {"expireAfter": "Never"}}}}));
    let first = name(&stage.claims()[0]);
    stage.wait_for("the first claim to go, and room again", || {
        let claims = stage.claims();
        claims.iter().all(|claim| name(claim) != first)
            && stage.n_ready_claims() == 1
            && is_provisioned(&stage.read(&buffer))
    });
}

fn a_buffer_of_pods_that_avoid_each_other_gets_a_node_each(stage: &Stage<'_>) {
    add_pool(stage, |_| {});
    add_template(stage, |spec| {
        spec["affinity"] = avoids("buffer");
        spec["containers"][0]["resources"]["requests"]["cpu"] = json!("100m");
    });
    let buffer = add_buffer(stage, "buffer", &of_template(3));
    wait_until_provisioned(stage, &buffer, 3);
    assert_eq!(stage.claims().len(), 3);
}

fn a_buffer_of_a_workload_whose_pods_avoid_each_other_gets_a_node_each(stage: &Stage<'_>) {
    add_pool(stage, |_| {});
    stage.add_deployment("web", 1, |template| {
        template["spec"]["affinity"] = avoids("web");
        template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("100m");
    });
    let mut spec = of_web();
    spec["replicas"] = json!(3);
    let buffer = add_buffer(stage, "buffer", &spec);
    wait_until_provisioned(stage, &buffer, 3);
    stage.wait_until_running("web", 1);
    assert_eq!(stage.claims().len(), 4, "one for the pod, three for the room");
}
