//! CapacityBuffers on the embedded control plane: what they come to.

use kerf_controllers::buffers::Buffers;
use kerf_simulation::{Rehearsal, Setup};
use serde_json::{Value, json};

fn rehearsal() -> Rehearsal {
    let mut setup = Setup::default().with_duties(|| vec![Box::new(Buffers::default())]);
    setup.options.gates.capacity_buffer = true;
    setup.options.mirror.gates.capacity_buffer = true;
    Rehearsal::new(setup)
}

fn pod_spec(cpu: &str) -> Value {
    json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "512Mi"}}}]})
}

fn template(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name, "namespace": "default"},
        "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec("1")},
    })
}

fn deployment(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec("1")},
        },
    })
}

fn buffer(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

fn path(name: &str) -> String {
    format!("/apis/autoscaling.x-k8s.io/v1beta1/namespaces/default/capacitybuffers/{name}")
}

fn status(rehearsal: &Rehearsal, name: &str) -> Value {
    rehearsal.get(&path(name)).unwrap_or_default()["status"].clone()
}

fn condition(rehearsal: &Rehearsal, name: &str, kind: &str) -> Value {
    let conditions = status(rehearsal, name)["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
}

#[track_caller]
fn wait_for_replicas(rehearsal: &mut Rehearsal, name: &str, replicas: i64) {
    rehearsal.run_until(&format!("{name} comes to {replicas}"), 60, |rehearsal| {
        status(rehearsal, name)["replicas"] == replicas
    });
}

#[test]
fn a_buffer_of_a_pod_template_says_how_many_and_which_version() {
    let mut rehearsal = rehearsal();
    rehearsal.create_value(&template("t"));
    rehearsal.create_value(&buffer("b", json!({"podTemplateRef": {"name": "t"}, "replicas": 3})));
    wait_for_replicas(&mut rehearsal, "b", 3);
    let first = status(&rehearsal, "b");
    assert_eq!(first["podTemplateRef"], json!({"name": "t"}));
    assert_eq!(first["provisioningStrategy"], "buffer.x-k8s.io/active-capacity");
    let ready = condition(&rehearsal, "b", "ReadyForProvisioning");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("True"), &json!("Resolved")));

    let edited = rehearsal.patch(
        "/api/v1/namespaces/default/podtemplates/t",
        &json!({"template": {"spec": {"priorityClassName": "system-node-critical"}}}),
    );
    let generation = edited["metadata"]["generation"].clone();
    assert_ne!(generation, first["podTemplateGeneration"]);
    rehearsal.run_until("the status shows the new generation", 60, |rehearsal| {
        status(rehearsal, "b")["podTemplateGeneration"] == generation
    });
    rehearsal.patch(&path("b"), &json!({"spec": {"replicas": 1}}));
    wait_for_replicas(&mut rehearsal, "b", 1);
    let n_calls = rehearsal.n_calls();
    rehearsal.run_for(600);
    assert_eq!(rehearsal.n_calls(), n_calls, "what is said already is not written again");
}

#[test]
fn a_buffer_of_a_workload_follows_its_replicas() {
    let mut rehearsal = rehearsal();
    rehearsal.create_value(&deployment("web", 10));
    let web = json!({"apiGroup": "apps", "kind": "Deployment", "name": "web"});
    rehearsal.create_value(&buffer("share", json!({"scalableRef": web, "percentage": 20})));
    rehearsal.create_value(&buffer("fixed", json!({"scalableRef": web, "replicas": 3})));
    wait_for_replicas(&mut rehearsal, "share", 2);
    wait_for_replicas(&mut rehearsal, "fixed", 3);
    assert_eq!(status(&rehearsal, "share")["podTemplateRef"], Value::Null);
    for (replicas, expected) in [(5, 1), (20, 4)] {
        rehearsal.patch("/apis/apps/v1/namespaces/default/deployments/web", &json!({"spec": {"replicas": replicas}}));
        wait_for_replicas(&mut rehearsal, "share", expected);
        assert_eq!(status(&rehearsal, "fixed")["replicas"], 3, "the other is independent");
    }
}

#[test]
fn a_buffer_whose_target_is_missing_says_so_and_recovers() {
    let mut rehearsal = rehearsal();
    rehearsal.create_value(&buffer("w", json!({"scalableRef": {"kind": "Deployment", "name": "web"}, "replicas": 2})));
    rehearsal.create_value(&buffer("t", json!({"podTemplateRef": {"name": "t"}, "replicas": 2})));
    for (name, reason) in [("w", "ScalableRefNotFound"), ("t", "PodTemplateNotFound")] {
        rehearsal.run_until("it is not ready", 60, |rehearsal| {
            let ready = condition(rehearsal, name, "ReadyForProvisioning");
            ready["status"] == "False" && ready["reason"] == reason
        });
        assert_eq!(condition(&rehearsal, name, "Provisioning")["reason"], "NotReadyForProvisioning");
    }
    rehearsal.create_value(&deployment("web", 1));
    rehearsal.create_value(&template("t"));
    for name in ["w", "t"] {
        wait_for_replicas(&mut rehearsal, name, 2);
        assert_eq!(condition(&rehearsal, name, "ReadyForProvisioning")["status"], "True");
    }
}

#[test]
fn limits_alone_size_a_buffer() {
    let mut rehearsal = rehearsal();
    rehearsal.create_value(&template("t"));
    rehearsal.create_value(&buffer("b", json!({"podTemplateRef": {"name": "t"}, "limits": {"cpu": "2"}})));
    wait_for_replicas(&mut rehearsal, "b", 2);
    rehearsal.patch(&path("b"), &json!({"spec": {"limits": {"cpu": "5"}}}));
    wait_for_replicas(&mut rehearsal, "b", 5);
}

#[test]
fn a_buffer_of_nothing_is_empty() {
    let mut rehearsal = rehearsal();
    rehearsal.create_value(&template("t"));
    rehearsal.create_value(&buffer("b", json!({"podTemplateRef": {"name": "t"}, "replicas": 0})));
    rehearsal
        .run_until("it is empty", 60, |rehearsal| condition(rehearsal, "b", "Provisioning")["reason"] == "BufferEmpty");
}

// The whole operator.

fn whole(cpu_limit: Option<&str>) -> Rehearsal {
    let mut setup = Setup::default();
    setup.options.gates.capacity_buffer = true;
    setup.options.mirror.gates.capacity_buffer = true;
    let mut rehearsal = Rehearsal::new(setup);
    rehearsal.create("{apiVersion: karpenter.kwok.sh/v1alpha1, kind: KWOKNodeClass, metadata: {name: default}}");
    let mut pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {"disruption": {"consolidateAfter": "0s"}, "template": {"spec": {
            "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-2x-amd64-linux"]}],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        }}},
    });
    if let Some(cpu) = cpu_limit {
        pool["spec"]["limits"] = json!({"cpu": cpu});
    }
    rehearsal.create_value(&pool);
    rehearsal
}

fn is_provisioned(rehearsal: &Rehearsal, name: &str) -> bool {
    let condition = condition(rehearsal, name, "Provisioning");
    condition["status"] == "True" && condition["reason"] == "FitsExistingCapacity"
}

#[test]
fn nodes_are_bought_for_a_buffer_until_it_fits() {
    let mut rehearsal = whole(None);
    rehearsal.create_value(&template("t"));
    rehearsal.create_value(&buffer("b", json!({"podTemplateRef": {"name": "t"}, "replicas": 3})));
    rehearsal.run_until("the buffer fits", 300, |rehearsal| is_provisioned(rehearsal, "b"));
    assert_eq!(status(&rehearsal, "b")["replicas"], 3);
    assert!(rehearsal.nodes().len() >= 2, "{} nodes", rehearsal.nodes().len());
    let pods = rehearsal.pods();
    assert!(pods.is_empty(), "the pods of a buffer exist in our heads only: {pods:?}");
}

#[test]
fn a_consumer_takes_the_room_and_the_buffer_is_filled_again() {
    let mut rehearsal = whole(None);
    rehearsal.create_value(&template("t"));
    rehearsal.create_value(&buffer("b", json!({"podTemplateRef": {"name": "t"}, "replicas": 2})));
    rehearsal.run_until("the buffer fits", 300, |rehearsal| is_provisioned(rehearsal, "b"));
    let n_claims = rehearsal.claims().len();
    rehearsal.create_value(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "consumer", "namespace": "default"}, "spec": pod_spec("1"),
    }));
    rehearsal.run_until("it runs, and the room is there again", 300, |rehearsal| {
        let consumer = rehearsal.get("/api/v1/namespaces/default/pods/consumer").unwrap_or_default();
        consumer["status"]["phase"] == "Running"
            && rehearsal.claims().len() == n_claims + 1
            && is_provisioned(rehearsal, "b")
    });
}

#[test]
fn a_buffer_of_pods_that_avoid_each_other_gets_a_node_for_each() {
    let mut rehearsal = whole(None);
    let mut template = template("t");
    template["template"]["spec"]["affinity"] = json!({"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "t"}},
        }],
    }});
    template["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("100m");
    rehearsal.create_value(&template);
    rehearsal.create_value(&buffer("b", json!({"podTemplateRef": {"name": "t"}, "replicas": 3})));
    rehearsal.run_until("the buffer fits", 300, |rehearsal| is_provisioned(rehearsal, "b"));
    assert_eq!(rehearsal.nodes().len(), 3);
}

#[test]
fn a_buffer_shares_a_node_with_a_small_pod() {
    let mut rehearsal = whole(None);
    rehearsal.create_value(&template("t"));
    rehearsal.create_value(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "small", "namespace": "default"}, "spec": pod_spec("100m"),
    }));
    rehearsal.create_value(&buffer("b", json!({"podTemplateRef": {"name": "t"}, "replicas": 1})));
    rehearsal.run_until("the buffer fits", 300, |rehearsal| is_provisioned(rehearsal, "b"));
    rehearsal.run_for(30);
    assert_eq!(rehearsal.claims().len(), 1);
}

#[test]
fn a_buffer_does_not_cross_its_pools_limit() {
    let mut rehearsal = whole(Some("4"));
    // Each node has one pod of one core, and counts with both of its own.
    rehearsal.create_value(&template("t"));
    rehearsal.create_value(&buffer("b", json!({"podTemplateRef": {"name": "t"}, "replicas": 10})));
    rehearsal.run_until("two nodes", 300, |rehearsal| rehearsal.nodes().len() == 2);
    rehearsal.run_for(30);
    assert_eq!(rehearsal.claims().len(), 2);
    assert_eq!(condition(&rehearsal, "b", "Provisioning")["reason"], "RequiresNewCapacity");
}
