//! Machines, volumes, and nodes that are not ours.

use crate::stage::{
    claim, condition, delete_claim_within, is_gone, is_leaving, is_running, is_tainted, node, node_path, pod_path,
    provider_id, run_pod, stage,
};
use kerf_simulation::Rehearsal;
use serde_json::{Value, json};

/// A volume of a claim `data`, attached to a node by a driver that does not let go.
fn attach(rehearsal: &mut Rehearsal, node: &str) {
    let bound = json!({"namespace": "default", "name": "data"});
    rehearsal.create_value(&json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "claimRef": bound,
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
        },
    }));
    rehearsal.create_value(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": bound,
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "pv",
            "storageClassName": "",
        },
    }));
    rehearsal.create_value(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": {"name": "stuck", "finalizers": ["example.com/stuck"]},
        "spec": {"attacher": "ebs.csi.aws.com", "nodeName": node, "source": {"persistentVolumeName": "pv"}},
    }));
}

const ATTACHMENT: &str = "/apis/storage.k8s.io/v1/volumeattachments/stuck";

#[test]
fn a_volume_that_stays_attached_holds_the_node_until_it_is_detached() {
    let (mut rehearsal, machines) = stage(&["n1"]);
    attach(&mut rehearsal, "n1");
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_for(300);
    assert_eq!(condition(&rehearsal, "n1", "Drained"), "True Drained");
    assert_eq!(condition(&rehearsal, "n1", "VolumesDetached"), "Unknown AwaitingVolumeDetachment");
    assert!(machines.is_untouched("n1"));
    let told = rehearsal.events("AwaitingVolumeDetachment");
    assert!(!told.is_empty() && told[0].contains("stuck"), "{told:?}");
    rehearsal.patch(ATTACHMENT, &json!({"metadata": {"finalizers": null}}));
    rehearsal.delete(ATTACHMENT);
    rehearsal.run_until("the node is gone", 10, |rehearsal| is_gone(rehearsal, &node_path("n1")));
    assert!(!machines.is_there("n1"));
}

#[test]
fn a_volume_that_stays_attached_holds_the_node_no_longer_than_its_time() {
    let (mut rehearsal, machines) = stage(&["n1"]);
    attach(&mut rehearsal, "n1");
    delete_claim_within(&mut rehearsal, "n1", 60);
    rehearsal.run_for(58);
    assert!(machines.is_untouched("n1"));
    rehearsal.run_for(4);
    assert_eq!(condition(&rehearsal, "n1", "VolumesDetached"), "False TerminationGracePeriodElapsed");
    rehearsal.run_until("the node is gone", 10, |rehearsal| is_gone(rehearsal, &node_path("n1")));
    assert!(!is_gone(&rehearsal, ATTACHMENT), "attachments are not ours to delete");
}

#[test]
fn a_volume_of_a_pod_that_stays_holds_nobody_back() {
    let (mut rehearsal, _) = stage(&["n1"]);
    attach(&mut rehearsal, "n1");
    rehearsal.create_value(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent", "namespace": "default"},
        "spec": {
            "nodeName": "n1", "tolerations": [{"operator": "Exists"}], "containers": [{"name": "main", "image": "web"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }));
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_until("the node is gone", 15, |rehearsal| is_gone(rehearsal, &node_path("n1")));
}

#[test]
fn a_node_that_is_not_ready_and_whose_machine_is_gone_is_let_go_at_once() {
    let (mut rehearsal, machines) = stage(&["n1"]);
    run_pod(&mut rehearsal, "a", "n1", &json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}));
    machines.lose("n1");
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_for(30);
    assert!(!is_gone(&rehearsal, &node_path("n1")), "while the kubelet says that all is well, nobody asks the cloud");
    rehearsal.plane().machines().power_off("n1");
    rehearsal.run_until("the node is gone", 90, |rehearsal| is_gone(rehearsal, &node_path("n1")));
}

#[test]
fn a_node_that_is_not_ready_is_drained_though_the_cloud_does_not_say_whether_its_machine_is_there() {
    let (mut rehearsal, machines) = stage(&["n1"]);
    run_pod(&mut rehearsal, "a", "n1", &json!({}));
    machines.hush("n1");
    rehearsal.plane().machines().power_off("n1");
    rehearsal.run_until("the node is not ready", 90, |rehearsal| {
        rehearsal.get(&node_path("n1")).unwrap_or_default()["status"]["conditions"].to_string().contains("Unknown")
    });
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_until("its pod leaves", 10, |rehearsal| is_leaving(rehearsal, "a"));
    assert!(is_tainted(&rehearsal, "n1"));
}

#[test]
fn a_node_that_is_not_ready_but_has_its_machine_is_drained() {
    let (mut rehearsal, machines) = stage(&["n1"]);
    run_pod(&mut rehearsal, "a", "n1", &json!({}));
    rehearsal.plane().machines().power_off("n1");
    rehearsal.run_until("the node is not ready", 90, |rehearsal| {
        let node = rehearsal.get(&node_path("n1")).unwrap_or_default();
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "Unknown")
    });
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_until("the pod is evicted", 1, |rehearsal| is_leaving(rehearsal, "a"));
    assert!(is_tainted(&rehearsal, "n1"));
    // Nobody is left to stop the pod: it is given up a minute after its time.
    rehearsal.run_until("the node is gone", 110, |rehearsal| is_gone(rehearsal, &node_path("n1")));
    assert!(!machines.is_there("n1"));
}

#[test]
fn a_pod_that_nobody_stops_is_given_up_a_minute_after_its_time() {
    let (mut rehearsal, machines) = stage(&["n1"]);
    run_pod(&mut rehearsal, "stuck", "n1", &json!({"spec": {"terminationGracePeriodSeconds": 10}}));
    rehearsal.plane().machines().power_off("n1");
    // The kubelet is off at its next heartbeat at the latest.
    rehearsal.run_for(15);
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_for(65);
    assert!(is_leaving(&rehearsal, "stuck") && machines.is_untouched("n1"));
    rehearsal.run_until("the node is gone", 30, |rehearsal| is_gone(rehearsal, &node_path("n1")));
}

#[test]
fn a_node_without_a_claim_is_drained_and_its_machine_is_nobodys_business() {
    let (mut rehearsal, machines) = stage(&[]);
    machines.add("lone");
    rehearsal.create_value(&node("lone"));
    rehearsal.run_for(5);
    run_pod(&mut rehearsal, "a", "lone", &json!({}));
    rehearsal.delete(&node_path("lone"));
    rehearsal.run_until("the node is gone", 35, |rehearsal| is_gone(rehearsal, &node_path("lone")));
    assert!(is_gone(&rehearsal, &pod_path("a")) && machines.is_untouched("lone"));
}

#[test]
fn a_node_with_two_claims_is_drained_without_either() {
    let (mut rehearsal, machines) = stage(&["n1"]);
    rehearsal.create_value(&claim("n1-too"));
    let status = json!({"status": {"providerID": provider_id("n1")}});
    rehearsal.patch("/apis/karpenter.sh/v1/nodeclaims/n1-too/status", &status);
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_until("the node is gone", 5, |rehearsal| is_gone(rehearsal, &node_path("n1")));
    assert!(machines.is_untouched("n1"));
    assert!(rehearsal.claims().iter().all(|claim| claim["metadata"]["deletionTimestamp"].is_null()));
}

#[test]
fn nodes_of_others_are_left_alone() {
    let (mut rehearsal, _) = stage(&[]);
    let mut fargate = node("fargate");
    fargate["metadata"]["labels"] = json!({"eks.amazonaws.com/compute-type": "fargate"});
    let mut other = node("other");
    other["metadata"]["labels"] =
        json!({"karpenter.k8s.aws/ec2nodeclass": "default", "karpenter.sh/nodepool": "default"});
    let mut free = node("free");
    free["metadata"].as_object_mut().unwrap().remove("finalizers");
    for node in [&fargate, &other, &free] {
        rehearsal.create_value(node);
    }
    rehearsal.run_for(5);
    run_pod(&mut rehearsal, "a", "fargate", &json!({}));
    for name in ["fargate", "other", "free"] {
        rehearsal.delete(&node_path(name));
    }
    rehearsal.run_for(300);
    let left: Vec<Value> = rehearsal.nodes().iter().map(|node| node["metadata"]["name"].clone()).collect();
    assert_eq!(left, ["fargate", "other"], "without our finalizer a node just goes");
    assert!(is_running(&rehearsal, "a") && !is_tainted(&rehearsal, "fargate") && !is_tainted(&rehearsal, "other"));
}
