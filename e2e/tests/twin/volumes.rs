//! Claims, volumes and classes: who is bound to whom, when, and what is said about it.

use serde_json::{Value, json};

use crate::stage::{Stage, cluster};

crate::tests!(
    a_claim_is_bound_to_the_volume_that_suits,
    the_smallest_volume_wins,
    a_claim_may_select_volumes_by_label,
    a_volume_may_be_kept_for_a_claim,
    a_volume_asked_for_by_name_must_do,
    a_volume_of_another_is_not_given,
    a_claim_without_class_and_volume_is_told_so,
    a_claim_of_an_unknown_class_is_told_so,
    an_immediate_claim_is_handed_to_the_provisioner,
    a_late_claim_waits_for_its_first_consumer,
    a_late_claim_is_handed_over_once_its_pod_is_scheduled,
    a_late_claim_takes_a_volume_of_its_pods_node,
    a_claim_in_use_stays_until_its_pod_goes,
    a_bound_volume_stays_until_its_claim_goes,
    a_retained_volume_is_released,
    a_claim_that_lost_its_volume_says_so,
    a_pod_may_bring_its_claim_along,
    a_csi_volume_is_attached_to_its_pods_node,
);

/// A class of the test's own.
fn class(stage: &Stage, name: &str, more: Value) -> String {
    let name = stage.unique(name);
    let mut class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": "disks.kerf.test"});
    extend(&mut class, more);
    stage.create_for_now(&cluster("storage.k8s.io/v1", "storageclasses"), &class);
    name
}

/// A volume of a class of the test's own, of which there need be no object. Gives back its name.
fn volume(stage: &Stage, name: &str, size: &str, more: Value) -> String {
    let name = stage.unique(name);
    let mut spec = json!({"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
        "storageClassName": stage.namespace, "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/data"}});
    extend(&mut spec, more);
    let labels = json!({"name": name});
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": labels}, "spec": spec});
    stage.create_for_now(&cluster("v1", "persistentvolumes"), &volume);
    let path = format!("{}/{name}", cluster("v1", "persistentvolumes"));
    if volume["spec"]["claimRef"].is_null() {
        stage.wait_for("the volume to be available", || stage.read(&path)["status"]["phase"] == "Available");
    }
    name
}

fn volume_path(name: &str) -> String {
    format!("{}/{name}", cluster("v1", "persistentvolumes"))
}

/// Gives back the path.
fn claim(stage: &Stage, name: &str, more: Value) -> String {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": stage.namespace,
        "resources": {"requests": {"storage": "1Gi"}}});
    extend(&mut spec, more);
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec});
    stage.create(&stage.at("v1", "persistentvolumeclaims"), &claim);
    stage.object("v1", "persistentvolumeclaims", name)
}

fn extend(object: &mut Value, more: Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
}

#[track_caller]
fn wait_for_phase(stage: &Stage, path: &str, phase: &str) -> Value {
    stage.wait_some(&format!("{path} to be {phase}"), || {
        let object = stage.client.get(path).unwrap().body;
        (object["status"]["phase"] == phase).then_some(object)
    })
}

/// Waits until this was told about a claim: kind, reason and message.
#[track_caller]
fn wait_told(stage: &Stage, name: &str, kind: &str, reason: &str, message: &str) {
    let path = format!("{}?fieldSelector=involvedObject.name={name},reason={reason}", stage.at("v1", "events"));
    stage.wait_for(&format!("{reason}: {message}"), || {
        let events = stage.read(&path)["items"].as_array().cloned().unwrap_or_default();
        events.iter().any(|event| {
            event["type"] == kind
                && event["message"] == message
                && event["source"]["component"] == "persistentvolume-controller"
        })
    });
}

fn pod_with(stage: &Stage, name: &str, claim: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "tolerations": [stage.toleration()],
        "nodeSelector": {crate::stage::NODE_OF: stage.namespace},
        "containers": [{"name": "web", "image": "web:1"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}})
}

fn a_claim_is_bound_to_the_volume_that_suits(stage: &Stage) {
    let name = volume(stage, "v", "5Gi", json!({}));
    let path = claim(stage, "data", json!({}));
    let claim = wait_for_phase(stage, &path, "Bound");
    let volume = wait_for_phase(stage, &volume_path(&name), "Bound");
    assert_eq!(claim["spec"]["volumeName"], name);
    assert_eq!(
        (&claim["status"]["capacity"], &claim["status"]["accessModes"]),
        (&json!({"storage": "5Gi"}), &json!(["ReadWriteOnce"]))
    );
    assert_eq!(
        claim["metadata"]["annotations"],
        json!({"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"})
    );
    assert_eq!(volume["metadata"]["annotations"], json!({"pv.kubernetes.io/bound-by-controller": "yes"}));
    let reference = &volume["spec"]["claimRef"];
    assert_eq!(
        (&reference["kind"], &reference["namespace"], &reference["name"], &reference["uid"]),
        (&json!("PersistentVolumeClaim"), &json!(stage.namespace), &json!("data"), &claim["metadata"]["uid"])
    );
    assert_eq!(claim["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    assert_eq!(volume["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
}

fn the_smallest_volume_wins(stage: &Stage) {
    volume(stage, "a-large", "9Gi", json!({}));
    let right = volume(stage, "b-right", "3Gi", json!({}));
    volume(stage, "c-small", "1Gi", json!({}));
    volume(stage, "d-block", "2Gi", json!({"volumeMode": "Block"}));
    volume(stage, "e-modes", "2Gi", json!({"accessModes": ["ReadOnlyMany"]}));
    volume(stage, "f-class", "2Gi", json!({"storageClassName": "another"}));
    let path = claim(stage, "data", json!({"resources": {"requests": {"storage": "2Gi"}}}));
    assert_eq!(wait_for_phase(stage, &path, "Bound")["spec"]["volumeName"], right);
}

fn a_claim_may_select_volumes_by_label(stage: &Stage) {
    volume(stage, "small", "1Gi", json!({}));
    let wanted = volume(stage, "wanted", "9Gi", json!({}));
    let path = claim(stage, "data", json!({"selector": {"matchLabels": {"name": wanted}}}));
    assert_eq!(wait_for_phase(stage, &path, "Bound")["spec"]["volumeName"], wanted);
}

fn a_volume_may_be_kept_for_a_claim(stage: &Stage) {
    let reference = json!({"namespace": stage.namespace, "name": "mine"});
    let kept = volume(stage, "kept", "5Gi", json!({"claimRef": reference}));
    wait_for_phase(stage, &volume_path(&kept), "Available");
    let other = claim(stage, "other", json!({}));
    let mine = claim(stage, "mine", json!({}));
    assert_eq!(wait_for_phase(stage, &mine, "Bound")["spec"]["volumeName"], kept);
    assert_eq!(stage.read(&other)["status"]["phase"], "Pending");
    // Whoever reserved it keeps the honour.
    assert_eq!(stage.read(&volume_path(&kept))["metadata"]["annotations"], Value::Null);
}

fn a_volume_asked_for_by_name_must_do(stage: &Stage) {
    let small = volume(stage, "small", "1Gi", json!({}));
    let path = claim(stage, "data", json!({"volumeName": small, "resources": {"requests": {"storage": "2Gi"}}}));
    let why = format!("Cannot bind to requested volume \"{small}\": requested PV is too small");
    wait_told(stage, "data", "Warning", "VolumeMismatch", &why);
    assert_eq!(stage.read(&path)["status"]["phase"], "Pending");
    let right = claim(stage, "right", json!({"volumeName": small}));
    let bound = wait_for_phase(stage, &right, "Bound");
    assert_eq!(bound["metadata"]["annotations"], json!({"pv.kubernetes.io/bind-completed": "yes"}));
}

fn a_volume_of_another_is_not_given(stage: &Stage) {
    let name = volume(stage, "v", "1Gi", json!({}));
    let first = claim(stage, "first", json!({}));
    wait_for_phase(stage, &first, "Bound");
    let second = claim(stage, "second", json!({"volumeName": name}));
    let why = format!("volume \"{name}\" already bound to a different claim.");
    wait_told(stage, "second", "Warning", "FailedBinding", &why);
    assert_eq!(stage.read(&second)["status"]["phase"], "Pending");
}

fn a_claim_without_class_and_volume_is_told_so(stage: &Stage) {
    claim(stage, "data", json!({"storageClassName": ""}));
    let why = "no persistent volumes available for this claim and no storage class is set";
    wait_told(stage, "data", "Normal", "FailedBinding", why);
}

fn a_claim_of_an_unknown_class_is_told_so(stage: &Stage) {
    claim(stage, "data", json!({"storageClassName": "unheard-of"}));
    let why = "storageclass.storage.k8s.io \"unheard-of\" not found";
    wait_told(stage, "data", "Warning", "ProvisioningFailed", why);
}

const HANDED_OVER: &str = "Waiting for a volume to be created either by the external provisioner 'disks.kerf.test' or manually by \
                           the system administrator. If volume creation is delayed, please verify that the provisioner is running \
                           and correctly registered.";

/// What follows is the provisioner's business: ours is simulated, the real stage has none.
fn an_immediate_claim_is_handed_to_the_provisioner(stage: &Stage) {
    let class = class(stage, "now", json!({}));
    let path = claim(stage, "data", json!({"storageClassName": class}));
    wait_told(stage, "data", "Normal", "ExternalProvisioning", HANDED_OVER);
    let annotations = &stage.read(&path)["metadata"]["annotations"];
    for key in ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"] {
        assert_eq!(annotations[key], "disks.kerf.test", "{key}");
    }
}

fn a_late_claim_waits_for_its_first_consumer(stage: &Stage) {
    let class = class(stage, "late", json!({"volumeBindingMode": "WaitForFirstConsumer"}));
    let path = claim(stage, "data", json!({"storageClassName": class}));
    let why = "waiting for first consumer to be created before binding";
    wait_told(stage, "data", "Normal", "WaitForFirstConsumer", why);
    let found = stage.read(&path);
    assert_eq!((&found["status"]["phase"], &found["metadata"]["annotations"]), (&json!("Pending"), &Value::Null));
}

fn a_late_claim_is_handed_over_once_its_pod_is_scheduled(stage: &Stage) {
    let node = stage.add_node("n", |_| {});
    let class = class(stage, "late", json!({"volumeBindingMode": "WaitForFirstConsumer"}));
    let path = claim(stage, "data", json!({"storageClassName": class}));
    stage.create(&stage.pods(), &pod_with(stage, "db", "data"));
    wait_told(stage, "data", "Normal", "ExternalProvisioning", HANDED_OVER);
    assert_eq!(stage.read(&path)["metadata"]["annotations"]["volume.kubernetes.io/selected-node"], node);
}

fn a_late_claim_takes_a_volume_of_its_pods_node(stage: &Stage) {
    let zoned = |zone: &'static str| move |node: &mut Value| node["metadata"]["labels"]["kerf.test/zone"] = json!(zone);
    stage.add_node("a", zoned("a"));
    let wanted_node = stage.add_node("b", zoned("b"));
    let provisioner = "kubernetes.io/no-provisioner";
    let class = class(stage, "late", json!({"volumeBindingMode": "WaitForFirstConsumer", "provisioner": provisioner}));
    let term = json!([{"matchExpressions": [{"key": "kerf.test/zone", "operator": "In", "values": ["b"]}]}]);
    let affinity = json!({"required": {"nodeSelectorTerms": term}});
    let wanted = volume(stage, "v", "1Gi", json!({"storageClassName": class, "nodeAffinity": affinity}));
    let path = claim(stage, "data", json!({"storageClassName": class}));
    stage.create(&stage.pods(), &pod_with(stage, "db", "data"));
    assert_eq!(wait_for_phase(stage, &path, "Bound")["spec"]["volumeName"], wanted);
    let pod = stage.object("v1", "pods", "db");
    assert_eq!(wait_for_phase(stage, &pod, "Running")["spec"]["nodeName"], wanted_node);
}

fn a_claim_in_use_stays_until_its_pod_goes(stage: &Stage) {
    stage.add_node("n", |_| {});
    volume(stage, "v", "1Gi", json!({}));
    let path = claim(stage, "data", json!({}));
    stage.create(&stage.pods(), &pod_with(stage, "db", "data"));
    let pod = stage.object("v1", "pods", "db");
    wait_for_phase(stage, &pod, "Running");
    stage.delete(&path);
    let found = stage.read(&path);
    assert!(found["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(found["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    stage.delete(&pod);
    stage.wait_for("the claim to be gone", || stage.is_gone(&path));
}

fn a_bound_volume_stays_until_its_claim_goes(stage: &Stage) {
    let name = volume(stage, "v", "1Gi", json!({}));
    let path = claim(stage, "data", json!({}));
    wait_for_phase(stage, &path, "Bound");
    stage.delete(&volume_path(&name));
    let found = stage.read(&volume_path(&name));
    assert!(found["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(found["status"]["phase"], "Bound");
    stage.delete(&path);
    stage.wait_for("the volume to be gone", || stage.is_gone(&volume_path(&name)));
}

fn a_retained_volume_is_released(stage: &Stage) {
    let name = volume(stage, "v", "1Gi", json!({}));
    let path = claim(stage, "data", json!({}));
    wait_for_phase(stage, &path, "Bound");
    stage.delete(&path);
    let released = wait_for_phase(stage, &volume_path(&name), "Released");
    assert_eq!(released["spec"]["claimRef"]["name"], "data");
}

fn a_claim_that_lost_its_volume_says_so(stage: &Stage) {
    let name = volume(stage, "v", "1Gi", json!({}));
    let path = claim(stage, "data", json!({}));
    wait_for_phase(stage, &path, "Bound");
    stage.delete(&volume_path(&name));
    stage.patch(&volume_path(&name), "merge", &json!({"metadata": {"finalizers": null}}));
    wait_for_phase(stage, &path, "Lost");
    let why = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
    wait_told(stage, "data", "Warning", "ClaimLost", why);
}

fn a_pod_may_bring_its_claim_along(stage: &Stage) {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": stage.namespace, "resources": {"requests": {"storage": "1Gi"}}});
    let template = json!({"metadata": {"labels": {"app": "db"}}, "spec": spec});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db"}, "spec": {
        "schedulerName": "nobody", "containers": [{"name": "web", "image": "web:1"}],
        "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]}});
    let pod = stage.create(&stage.pods(), &pod);
    let path = stage.object("v1", "persistentvolumeclaims", "db-scratch");
    stage.wait_for("the claim to be there", || !stage.is_gone(&path));
    let claim = stage.read(&path);
    assert_eq!(claim["metadata"]["labels"], json!({"app": "db"}));
    assert_eq!(
        claim["metadata"]["ownerReferences"],
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "db", "uid": pod["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}])
    );
    stage.delete(&stage.object("v1", "pods", "db"));
    stage.wait_for("the claim to follow its pod", || stage.is_gone(&path));
}

fn a_csi_volume_is_attached_to_its_pods_node(stage: &Stage) {
    let node = stage.add_node("n", |node| {
        node["metadata"]["annotations"]["volumes.kubernetes.io/controller-managed-attach-detach"] = json!("true");
    });
    let source = json!({"driver": "disks.kerf.test", "volumeHandle": stage.namespace});
    let name = volume(stage, "v", "1Gi", json!({"hostPath": null, "csi": source}));
    let path = claim(stage, "data", json!({}));
    wait_for_phase(stage, &path, "Bound");
    stage.create(&stage.pods(), &pod_with(stage, "db", "data"));
    let attachments = cluster("storage.k8s.io/v1", "volumeattachments");
    let attachment = stage.wait_some("an attachment", || {
        let found = stage.read(&attachments)["items"].as_array().cloned().unwrap_or_default();
        found.into_iter().find(|one| one["spec"]["source"]["persistentVolumeName"] == name)
    });
    assert_eq!(
        (&attachment["spec"]["attacher"], &attachment["spec"]["nodeName"]),
        (&json!("disks.kerf.test"), &json!(node))
    );
    let given = attachment["metadata"]["name"].as_str().unwrap();
    assert!(given.starts_with("csi-") && given.len() == 68, "{given}");
    stage.clear_later(format!("{attachments}/{given}"));
}
