//! Claims and volumes on the embedded control plane, with the scheduler choosing.

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment};
use serde_json::{Value, json};

use crate::kubelet::rehearsal::Rehearsal;

fn class(stage: &Rehearsal, name: &str, mode: &str) {
    stage.create::<StorageClass>(json!({
        "metadata": {"name": name}, "provisioner": "disks.example.com", "volumeBindingMode": mode, "reclaimPolicy": "Delete",
    }));
}

fn claim(stage: &Rehearsal, name: &str, more: Value) -> PersistentVolumeClaim {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    stage.create(json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec}))
}

fn with_claim(claim: &str, more: Value) -> Value {
    let mut spec = json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

fn phase(stage: &Rehearsal, claim: &str) -> String {
    let found = stage.find::<PersistentVolumeClaim>(claim);
    found.map_or_else(|| "gone".to_owned(), |claim| claim.status.unwrap_or_default().phase.unwrap_or_default())
}

fn volume_phase(stage: &Rehearsal, name: &str) -> String {
    let found = stage.find::<PersistentVolume>(name);
    found.map_or_else(|| "gone".to_owned(), |volume| volume.status.unwrap_or_default().phase.unwrap_or_default())
}

#[test]
fn a_claim_that_waits_gets_its_volume_where_its_pod_is_scheduled() {
    let stage = Rehearsal::new();
    stage.boot("node-a", "a");
    stage.boot("node-b", "b");
    class(&stage, "late", "WaitForFirstConsumer");
    let uid = claim(&stage, "data", json!({"storageClassName": "late"})).metadata.uid.unwrap();
    stage.pass(5);
    assert_eq!(phase(&stage, "data"), "Pending");
    assert!(stage.events("data").contains("Normal WaitForFirstConsumer (persistentvolume-controller) waiting for first consumer to be created before binding"));
    stage.pod("db", with_claim("data", json!({"nodeSelector": {"topology.kubernetes.io/zone": "b"}})));
    stage.pass(10);
    assert_eq!((phase(&stage, "data").as_str(), stage.seen("db").as_str()), ("Bound", "Running ready"));
    let name = format!("pvc-{uid}");
    let spec = stage.get::<PersistentVolume>(&name).spec.unwrap();
    let terms = spec.node_affinity.unwrap().required.unwrap().node_selector_terms;
    assert_eq!(
        serde_json::to_value(terms).unwrap(),
        json!([{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}]}])
    );
    assert!(
        stage.events("data").contains(&format!(
            "Normal ProvisioningSucceeded (disks.example.com) Successfully provisioned volume {name}"
        ))
    );
    let attached: Vec<VolumeAttachment> = stage.with(|hands| hands.list(""));
    let [attachment] = attached.as_slice() else { panic!("one attachment: {attached:?}") };
    assert_eq!(attachment.spec.node_name, "node-b");
    assert!(attachment.status.as_ref().is_some_and(|status| status.attached));
    let node = stage.get::<Node>("node-b").status.unwrap();
    assert_eq!(node.volumes_in_use.unwrap(), [node.volumes_attached.unwrap().first().unwrap().name.clone()]);
    assert!(
        stage
            .events("db")
            .contains("SuccessfulAttachVolume (attachdetach-controller) AttachVolume.Attach succeeded for volume")
    );

    // A claim in use is not deleted; when its pod goes, everything goes, in order.
    stage.delete::<PersistentVolumeClaim>("data");
    stage.pass(5);
    assert_eq!((phase(&stage, "data").as_str(), volume_phase(&stage, &name).as_str()), ("Bound", "Bound"));
    stage.delete::<Pod>("db");
    stage.pass(10);
    assert_eq!((phase(&stage, "data").as_str(), volume_phase(&stage, &name).as_str()), ("gone", "gone"));
    assert_eq!(stage.with(|hands| hands.list::<VolumeAttachment>("")).len(), 0);
    let node = stage.get::<Node>("node-b").status.unwrap();
    assert!(node.volumes_in_use.is_none() && node.volumes_attached.unwrap_or_default().is_empty());
}

#[test]
fn a_claim_that_does_not_wait_is_bound_at_once() {
    let stage = Rehearsal::new();
    class(&stage, "now", "Immediate");
    claim(&stage, "data", json!({"storageClassName": "now"}));
    stage.pass(5);
    assert_eq!(phase(&stage, "data"), "Bound");
    let bound: PersistentVolumeClaim = stage.get("data");
    let annotations = bound.metadata.annotations.unwrap();
    for key in ["pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"] {
        assert_eq!(annotations.get(key).map(String::as_str), Some("yes"), "{key}");
    }
    assert_eq!(
        annotations.get("volume.kubernetes.io/storage-provisioner").map(String::as_str),
        Some("disks.example.com")
    );
    assert_eq!(bound.status.unwrap().capacity.unwrap().get("storage").map(|size| size.0.as_str()), Some("1Gi"));
}

#[test]
fn volumes_made_by_hand_are_found_kept_and_reported() {
    let stage = Rehearsal::new();
    stage.create::<PersistentVolume>(json!({
        "metadata": {"name": "by-hand"},
        "spec": {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"},
                 "storageClassName": "manual", "persistentVolumeReclaimPolicy": "Retain"},
    }));
    assert_eq!(volume_phase(&stage, "by-hand"), "Available");
    claim(
        &stage,
        "large",
        json!({"storageClassName": "manual", "volumeName": "by-hand", "resources": {"requests": {"storage": "9Gi"}}}),
    );
    assert_eq!(phase(&stage, "large"), "Pending");
    assert!(stage.events("large").contains("Warning VolumeMismatch (persistentvolume-controller) Cannot bind to requested volume \"by-hand\": requested PV is too small"));
    claim(&stage, "nothing", json!({"storageClassName": ""}));
    assert!(stage.events("nothing").contains("FailedBinding (persistentvolume-controller) no persistent volumes available for this claim and no storage class is set"));
    claim(&stage, "unknown", json!({"storageClassName": "unheard-of"}));
    assert!(stage.events("unknown").contains(
        "Warning ProvisioningFailed (persistentvolume-controller) storageclass.storage.k8s.io \"unheard-of\" not found"
    ));
    claim(&stage, "data", json!({"storageClassName": "manual"}));
    assert_eq!((phase(&stage, "data").as_str(), volume_phase(&stage, "by-hand").as_str()), ("Bound", "Bound"));
    stage.delete::<PersistentVolume>("by-hand");
    assert_eq!(volume_phase(&stage, "by-hand"), "Bound");
    stage.delete::<PersistentVolumeClaim>("data");
    stage.pass(1);
    assert_eq!(phase(&stage, "data"), "gone");
}

#[test]
fn a_retained_volume_is_released_and_not_given_to_the_next() {
    let stage = Rehearsal::new();
    stage.create::<PersistentVolume>(json!({
        "metadata": {"name": "kept"},
        "spec": {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"},
                 "storageClassName": "manual", "persistentVolumeReclaimPolicy": "Retain"},
    }));
    claim(&stage, "data", json!({"storageClassName": "manual"}));
    stage.delete::<PersistentVolumeClaim>("data");
    assert_eq!(volume_phase(&stage, "kept"), "Released");
    claim(&stage, "data", json!({"storageClassName": "manual"}));
    assert_eq!((phase(&stage, "data").as_str(), volume_phase(&stage, "kept").as_str()), ("Pending", "Released"));
}

#[test]
fn a_volume_for_one_node_is_not_attached_to_two() {
    let stage = Rehearsal::new();
    stage.boot("one", "a");
    stage.boot("two", "a");
    class(&stage, "now", "Immediate");
    claim(&stage, "data", json!({"storageClassName": "now"}));
    stage.pass(5);
    stage.pod("first", with_claim("data", json!({"nodeName": "one"})));
    stage.pass(10);
    stage.pod("second", with_claim("data", json!({"nodeName": "two"})));
    stage.pass(10);
    assert_eq!((stage.seen("first").as_str(), stage.seen("second").as_str()), ("Running ready", "Pending"));
    assert!(
        stage
            .events("second")
            .contains("Warning FailedAttachVolume (attachdetach-controller) Multi-Attach error for volume")
    );
    assert!(stage.events("second").contains("Volume is already used by pod(s) first"));
    stage.delete::<Pod>("first");
    stage.pass(10);
    assert_eq!(stage.seen("second"), "Running ready");
}

#[test]
fn a_volume_leaves_a_dead_node_after_six_minutes() {
    let stage = Rehearsal::new();
    stage.boot("alive", "a");
    stage.boot("dead", "a");
    class(&stage, "now", "Immediate");
    claim(&stage, "data", json!({"storageClassName": "now"}));
    stage.pass(5);
    stage.pod("first", with_claim("data", json!({"nodeName": "dead"})));
    stage.pass(10);
    stage.plane.machines().power_off("dead");
    stage.pass(60);
    stage.with(|hands| hands.delete::<Pod>("default", "first", &json!({"gracePeriodSeconds": 0}))).unwrap();
    stage.pod("second", with_claim("data", json!({"nodeName": "alive"})));
    stage.pass(350);
    assert_eq!(stage.seen("second"), "Pending");
    stage.pass(20);
    assert_eq!(stage.seen("second"), "Running ready");
}

#[test]
fn a_pod_may_bring_its_claim_along() {
    let stage = Rehearsal::new();
    stage.boot("n", "a");
    class(&stage, "late", "WaitForFirstConsumer");
    let template = json!({"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "late", "resources": {"requests": {"storage": "1Gi"}}}});
    stage.pod("job", json!({"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]}));
    stage.pass(10);
    assert_eq!((stage.seen("job").as_str(), phase(&stage, "job-scratch").as_str()), ("Running ready", "Bound"));
    stage.delete::<Pod>("job");
    stage.pass(10);
    assert_eq!(phase(&stage, "job-scratch"), "gone");
}
