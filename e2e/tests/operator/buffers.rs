//! Buffers: room that is kept free for pods that are not there yet.

use serde_json::{Value, json};

use crate::scene::condition;
use crate::stage::Stage;
use crate::tests;

tests!(
    room_is_made_for_a_buffer_taken_by_a_pod_made_again_and_given_back,
    a_buffer_without_its_target_says_so_and_recovers,
);

const BUFFERS: (&str, &str) = ("autoscaling.x-k8s.io/v1beta1", "capacitybuffers");

fn add_buffer(stage: &Stage<'_>, spec: &Value) -> String {
    let buffer =
        json!({"apiVersion": BUFFERS.0, "kind": "CapacityBuffer", "metadata": {"name": "buffer"}, "spec": spec});
    stage.create(&stage.at(BUFFERS.0, BUFFERS.1), &buffer);
    stage.object(BUFFERS.0, BUFFERS.1, "buffer")
}

fn is_provisioned(buffer: &Value) -> bool {
    let found = condition(buffer, "Provisioning");
    found["status"] == "True" && found["reason"] == "FitsExistingCapacity"
}

fn room_is_made_for_a_buffer_taken_by_a_pod_made_again_and_given_back(stage: &Stage<'_>) {
    stage.add_pool(|pool| {
        pool["spec"]["disruption"]["consolidateAfter"] = json!("0s");
        let types =
            json!({"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-2x-amd64-linux"]});
        pool["spec"]["template"]["spec"]["requirements"].as_array_mut().unwrap().push(types);
    });
    let mut spec = stage.pod_spec("1");
    spec["containers"][0]["resources"]["requests"]["memory"] = json!("512Mi");
    let template = json!({
        "apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "template"},
        "template": {"metadata": {"labels": {"app": "buffer"}}, "spec": spec},
    });
    stage.create(&stage.at("v1", "podtemplates"), &template);
    let buffer = add_buffer(stage, &json!({"podTemplateRef": {"name": "template"}, "replicas": 3}));
    stage.wait_for("room for three", || {
        let found = stage.read(&buffer);
        found["status"]["replicas"] == 3 && is_provisioned(&found)
    });
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

fn a_buffer_without_its_target_says_so_and_recovers(stage: &Stage<'_>) {
    stage.add_pool(|_| {});
    let target = json!({"apiGroup": "apps", "kind": "Deployment", "name": "web"});
    let buffer = add_buffer(stage, &json!({"scalableRef": target, "percentage": 20}));
    stage.wait_for("the buffer to say what is missing", || {
        let found = stage.read(&buffer);
        let ready = condition(&found, "ReadyForProvisioning");
        ready["status"] == "False" && ready["reason"] == "ScalableRefNotFound"
    });
    stage.add_deployment("web", 10, |_| {});
    stage.wait_for("a fifth of ten", || stage.read(&buffer)["status"]["replicas"] == 2);
}
