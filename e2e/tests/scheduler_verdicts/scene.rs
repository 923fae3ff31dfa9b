//! Scenes: nodes, volumes and placed pods, drawn at random so that every check has something to say.

use kerf_e2e::client::Client;
use serde_json::{Value, json};

use super::dice::Dice;
use super::pods;

pub(crate) const DRIVER: &str = "csi.kerf.test";
/// Which scene an object of the cluster belongs to.
pub(crate) const SCENE_LABEL: &str = "kerf.test/scene";
/// A driver that tells how much room it has.
const TRACKED_DRIVER: &str = "tracked.kerf.test";

pub(crate) struct Scene {
    pub(crate) number: usize,
    pub(crate) nodes: Vec<NodeSpec>,
    /// Names of claims that pods may mount.
    pub(crate) claims: Vec<String>,
    storage: Vec<(String, Value)>,
    placed: Vec<(Value, Fate)>,
    /// Claims that are being deleted.
    doomed_claims: Vec<String>,
}

pub(crate) struct NodeSpec {
    pub(crate) name: String,
    body: Value,
}

/// What becomes of a placed pod before the question is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Runs,
    Leaves,
    Succeeded,
}

impl Scene {
    pub(crate) fn draw(number: usize, dice: &mut Dice) -> Self {
        let n_nodes = dice.range(4, 13);
        let nodes = (0..n_nodes).map(|node| draw_node(number, node, dice)).collect();
        let mut scene = Self {
            number,
            nodes,
            claims: Vec::new(),
            storage: Vec::new(),
            placed: Vec::new(),
            doomed_claims: Vec::new(),
        };
        scene.draw_storage(dice);
        for n in 0..dice.range(0, 2 * n_nodes) {
            let fate = match dice.range(0, 100) {
                0..12 => Fate::Leaves,
                12..20 => Fate::Succeeded,
                _ => Fate::Runs,
            };
            let node = if dice.percent(3) { format!("s{number}-gone") } else { scene.any_node(dice) };
            let mut pod = pods::placed(&scene, n, &node, dice);
            let takes_ports = |pod: &Value| pod["spec"]["containers"][0].get("ports").is_some();
            // No scheduler would place two pods with one port on a node, and the real one then forgets the port with the first.
            if scene.placed.iter().any(|(other, _)| other["spec"]["nodeName"] == node && takes_ports(other)) {
                pod["spec"]["containers"][0].as_object_mut().unwrap().remove("ports");
            }
            scene.placed.push((pod, fate));
        }
        scene
    }

    pub(crate) fn namespace(&self) -> String {
        format!("s{}", self.number)
    }

    pub(crate) fn other_namespace(&self) -> String {
        format!("s{}-other", self.number)
    }

    pub(crate) fn any_node(&self, dice: &mut Dice) -> String {
        self.nodes[dice.range(0, self.nodes.len())].name.clone()
    }

    /// All of it, to look at.
    pub(crate) fn objects(&self) -> Value {
        let nodes: Vec<&Value> = self.nodes.iter().map(|node| &node.body).collect();
        let placed: Vec<Value> = self.placed.iter().map(|(pod, fate)| json!([pod, format!("{fate:?}")])).collect();
        json!({"nodes": nodes, "storage": self.storage, "placed": placed, "doomed": self.doomed_claims})
    }

    fn draw_storage(&mut self, dice: &mut Dice) {
        let n = self.number;
        let class = |name: &str, provisioner: &str, mode: &str, topologies: Value| {
            (
                "/apis/storage.k8s.io/v1/storageclasses".to_owned(),
                json!({"metadata": {"name": format!("s{n}-{name}")},
                "provisioner": provisioner, "volumeBindingMode": mode, "allowedTopologies": topologies}),
            )
        };
        let zones = json!([{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["a", "b"]}]}]);
        self.storage.extend([
            class("static", "kubernetes.io/no-provisioner", "WaitForFirstConsumer", Value::Null),
            class("zonal", DRIVER, "WaitForFirstConsumer", zones),
            class("made", DRIVER, "WaitForFirstConsumer", Value::Null),
            class("tracked", TRACKED_DRIVER, "WaitForFirstConsumer", Value::Null),
            class("now", DRIVER, "Immediate", Value::Null),
        ]);
        let zone = dice.pick(&["a", "b", "c"]);
        self.storage.push((
            "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities".to_owned(),
            json!({
            "metadata": {"name": format!("s{n}-room")}, "storageClassName": format!("s{n}-tracked"), "capacity": "10Gi",
            "nodeTopology": {"matchLabels": {"topology.kubernetes.io/zone": zone}}}),
        ));
        for node in &self.nodes {
            if dice.percent(60) {
                let count = if dice.percent(80) { json!({"count": dice.range(0, 4)}) } else { Value::Null };
                self.storage.push(("/apis/storage.k8s.io/v1/csinodes".to_owned(), json!({"metadata": {"name": node.name},
                    "spec": {"drivers": [{"name": DRIVER, "nodeID": node.name, "topologyKeys": [], "allocatable": count}]}})));
            }
        }
        for i in 0..dice.range(3, 7) {
            let volume = self.draw_volume(&format!("free{i}"), "static", dice);
            self.storage.push(volume);
        }
        for i in 0..dice.range(3, 7) {
            self.draw_bound(i, dice);
        }
        for i in 0..dice.range(4, 8) {
            self.draw_unbound(i, dice);
        }
    }

    fn draw_volume(&self, name: &str, class: &str, dice: &mut Dice) -> (String, Value) {
        let n = self.number;
        let mut volume = json!({"metadata": {"name": format!("s{n}-{name}"), "labels": {"speed": dice.pick(&["fast", "slow"])}},
            "spec": {"capacity": {"storage": format!("{}Gi", dice.range(1, 9))}, "accessModes": ["ReadWriteOnce"],
                "storageClassName": format!("s{n}-{class}"), "volumeMode": dice.pick(&["Filesystem", "Filesystem", "Filesystem", "Block"]),
                "persistentVolumeReclaimPolicy": "Retain"}});
        if dice.percent(50) {
            volume["spec"]["csi"] = json!({"driver": DRIVER, "volumeHandle": format!("h{}", dice.range(0, 6))});
        } else {
            volume["spec"]["local"] = json!({"path": "/disk"});
        }
        let is_local = volume["spec"].get("local").is_some();
        if is_local || dice.percent(60) {
            let term = if dice.percent(50) {
                json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [self.any_node(dice), self.any_node(dice)]})
            } else {
                json!({"key": "topology.kubernetes.io/zone", "operator": dice.pick(&["In", "NotIn"]), "values": [dice.pick(&["a", "b", "c"])]})
            };
            volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}});
        }
        if dice.percent(20) {
            let zones = dice.pick(&["a", "b", "a__b", "a__c"]);
            volume["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!(zones);
        }
        ("/api/v1/persistentvolumes".to_owned(), volume)
    }

    /// A claim and its volume, bound to each other.
    fn draw_bound(&mut self, i: usize, dice: &mut Dice) {
        let (namespace, claim) = (self.namespace(), format!("bound{i}"));
        let mut volume = self.draw_volume(&format!("bound{i}"), "made", dice);
        let name = volume.1["metadata"]["name"].clone();
        volume.1["spec"]["claimRef"] = json!({"namespace": namespace, "name": claim});
        let mode = dice.pick(&["ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"]);
        volume.1["spec"]["accessModes"] = json!([mode]);
        let body = json!({"metadata": {"name": claim, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": name,
                "volumeMode": volume.1["spec"]["volumeMode"], "storageClassName": volume.1["spec"]["storageClassName"]}});
        // Now and then a volume is gone, or never was.
        if !dice.percent(8) {
            self.storage.push(volume);
        }
        self.add_claim(&claim, body);
        if dice.percent(8) {
            self.doomed_claims.push(claim);
        }
    }

    fn draw_unbound(&mut self, i: usize, dice: &mut Dice) {
        let (n, claim) = (self.number, format!("open{i}"));
        let class = dice.pick(&["static", "static", "static", "zonal", "made", "tracked", "now", "absent"]);
        let mut body = json!({"metadata": {"name": claim},
            "spec": {"accessModes": [dice.pick(&["ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany"])],
                "resources": {"requests": {"storage": format!("{}Gi", dice.range(1, 13))}}, "storageClassName": format!("s{n}-{class}"),
                "volumeMode": dice.pick(&["Filesystem", "Filesystem", "Filesystem", "Block"])}});
        if dice.percent(25) {
            body["spec"]["selector"] = json!({"matchLabels": {"speed": dice.pick(&["fast", "slow"])}});
        }
        if dice.percent(15) {
            body["metadata"]["annotations"] = json!({"volume.kubernetes.io/selected-node": self.any_node(dice)});
        }
        if dice.percent(10) {
            body["spec"]["volumeName"] = json!(format!("s{n}-free0"));
        }
        self.add_claim(&claim, body);
    }

    fn add_claim(&mut self, claim: &str, body: Value) {
        self.storage.push((format!("/api/v1/namespaces/{}/persistentvolumeclaims", self.namespace()), body));
        self.claims.push(claim.to_owned());
    }

    /// Writes the scene to the API server.
    pub(crate) fn raise(&self, client: &Client) {
        if self.number == 0 {
            post(
                client,
                "/apis/storage.k8s.io/v1/csidrivers",
                &json!({"metadata": {"name": TRACKED_DRIVER}, "spec": {"storageCapacity": true}}),
            );
        }
        for (name, value) in [("some", 5), ("more", 10), ("top", 1000)].iter().filter(|_| self.number == 0) {
            post(
                client,
                "/apis/scheduling.k8s.io/v1/priorityclasses",
                &json!({"metadata": {"name": name}, "value": value}),
            );
        }
        for (namespace, team) in [(self.namespace(), "red"), (self.other_namespace(), "blue")] {
            post(client, "/api/v1/namespaces", &json!({"metadata": {"name": namespace, "labels": {"team": team}}}));
        }
        for (path, body) in &self.storage {
            let mut body = body.clone();
            body["metadata"]["labels"][SCENE_LABEL] = json!(self.namespace());
            let mut created = post(client, path, &body);
            if path == "/api/v1/persistentvolumes" && created["spec"]["claimRef"].is_null() {
                created["status"]["phase"] = json!("Available");
                put(client, &format!("{path}/{}/status", name_of(&created)), &created);
            }
        }
        for claim in &self.doomed_claims {
            let path = format!("/api/v1/namespaces/{}/persistentvolumeclaims/{claim}", self.namespace());
            assert!(client.delete(&path).unwrap().is_success());
        }
        for node in &self.nodes {
            let mut created = post(client, "/api/v1/nodes", &node.body);
            // Admission marks every new node as not ready; only a kubelet would take that back.
            created["spec"] = node.body["spec"].clone();
            put(client, &format!("/api/v1/nodes/{}", node.name), &created);
        }
        let service = json!({"metadata": {"name": "web"}, "spec": {"clusterIP": "None", "selector": {"app": "web"}}});
        post(client, &format!("/api/v1/namespaces/{}/services", self.namespace()), &service);
        let mut budget = post(
            client,
            &format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets", self.namespace()),
            &json!({"metadata": {"name": "web"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}}),
        );
        budget["status"] = json!({"disruptionsAllowed": self.number % 3, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3,
            "observedGeneration": 1});
        let path = format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets/web/status", self.namespace());
        put(client, &path, &budget);
        for (age, (pod, fate)) in self.placed.iter().enumerate() {
            let path = format!("/api/v1/namespaces/{}/pods", pod["metadata"]["namespace"].as_str().unwrap());
            let mut created = post(client, &path, pod);
            let path = format!("{path}/{}", name_of(&created));
            // Every pod is of another age: who is older matters when one must go.
            created["status"]["phase"] = json!(if *fate == Fate::Succeeded { "Succeeded" } else { "Running" });
            created["status"]["startTime"] = json!(format!("2026-01-01T00:{:02}:00Z", age % 60));
            put(client, &format!("{path}/status"), &created);
            if *fate == Fate::Leaves {
                assert!(client.delete(&path).unwrap().is_success());
            }
        }
    }

    /// Takes pods and nodes away. The rest is named after the scene and bothers nobody.
    pub(crate) fn clear(&self, client: &Client) {
        for path in [
            format!("/api/v1/namespaces/{}/pods?gracePeriodSeconds=0", self.namespace()),
            format!("/api/v1/namespaces/{}/pods?gracePeriodSeconds=0", self.other_namespace()),
            "/api/v1/nodes".to_owned(),
        ] {
            let answer = client.delete(&path).unwrap();
            assert!(answer.is_success(), "{path}: {}", answer.message());
        }
    }
}

fn draw_node(scene: usize, number: usize, dice: &mut Dice) -> NodeSpec {
    let name = format!("s{scene}-n{number}");
    let mut labels = json!({"kubernetes.io/hostname": name, "disk": dice.pick(&["ssd", "hdd"]), "cpus": dice.range(1, 9).to_string()});
    if dice.percent(85) {
        labels["topology.kubernetes.io/zone"] = json!(dice.pick(&["a", "b", "c"]));
    }
    if dice.percent(30) {
        labels["rack"] = json!(dice.pick(&["r1", "r2", "r3"]));
    }
    let mut taints = Vec::new();
    for (key, chance) in [("dedicated", 20), ("spot", 15), ("node.kubernetes.io/not-ready", 6)] {
        if dice.percent(chance) {
            let effect = dice.pick(&["NoSchedule", "NoExecute", "PreferNoSchedule"]);
            taints.push(json!({"key": key, "value": dice.pick(&["", "a", "b"]), "effect": effect}));
        }
    }
    let mut spec = json!({"taints": taints});
    if dice.percent(8) {
        spec["unschedulable"] = json!(true);
    }
    let mut capacity = json!({"cpu": dice.pick(&["1", "2", "3500m", "4", "8"]), "memory": dice.pick(&["1Gi", "2Gi", "4096Mi", "8G"]),
        "pods": dice.pick(&["1", "2", "4", "110", "110"]), "ephemeral-storage": dice.pick(&["1Gi", "10Gi"])});
    if dice.percent(40) {
        capacity["kerf.test/gpu"] = json!(dice.pick(&["0", "1", "2"]));
    }
    if dice.percent(20) {
        capacity["hugepages-2Mi"] = json!("64Mi");
    }
    let mut images = Vec::new();
    // An image is as large everywhere.
    for (image, mebibytes) in [("web:latest", 300), ("db:1", 900), ("registry.test/cache:latest", 1200)] {
        if dice.percent(40) {
            images.push(json!({"names": [image], "sizeBytes": mebibytes << 20}));
        }
    }
    let status = json!({"capacity": capacity, "allocatable": capacity, "images": images});
    let body = json!({"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status});
    NodeSpec { name, body }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

fn post(client: &Client, path: &str, body: &Value) -> Value {
    let answer = client.post(path, body).unwrap();
    assert!(answer.is_success(), "POST {path}: {}\n{body}", answer.message());
    answer.body
}

fn put(client: &Client, path: &str, body: &Value) {
    let answer = client.put(path, body).unwrap();
    assert!(answer.is_success(), "PUT {path}: {}\n{body}", answer.message());
}
