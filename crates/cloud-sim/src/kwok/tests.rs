//! The rules of the kwok provider with their exact values, on a desk in memory and a clock by hand.

use super::*;
use crate::by_hand::{Background, HandClock, START_MS, finish};
use kerf_cloud::{OfferingKey, kwok};
use kerf_model::{ClaimName, Labels, NodeClassRef, PoolName, Quantity, Requirement, Requirements, Resources, labels};

/// A cluster that is nothing but a map of Nodes.
#[derive(Default)]
pub(super) struct Cluster {
    pub(super) nodes: Mutex<BTreeMap<String, Value>>,
    pub(super) deleted_claims: Mutex<Vec<String>>,
    pub(super) said: Mutex<Vec<String>>,
    /// How many of the next creations fail.
    pub(super) failures: Mutex<usize>,
    pub(super) background: Background,
}

impl NodeDesk for Cluster {
    fn create_node(&self, node: Value) -> Answer<Created> {
        let mut failures = self.failures.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            return Box::pin(ready(Err(CloudError::Other { message: "denied by a policy".into() })));
        }
        let name = node["metadata"]["name"].as_str().unwrap().to_owned();
        let mut nodes = self.nodes.lock().unwrap();
        let created = if nodes.contains_key(&name) { Created::WasThere } else { Created::New };
        nodes.entry(name).or_insert(node)["metadata"]["creationTimestamp"] = "2027-01-15T08:00:00Z".into();
        Box::pin(ready(Ok(created)))
    }

    fn get_node(&self, name: &str) -> Answer<Option<Value>> {
        Box::pin(ready(Ok(self.nodes.lock().unwrap().get(name).cloned())))
    }

    fn list_nodes(&self) -> Answer<Vec<Value>> {
        Box::pin(ready(Ok(self.nodes.lock().unwrap().values().cloned().collect())))
    }

    fn delete_node(&self, name: &str) -> Answer<()> {
        self.nodes.lock().unwrap().remove(name);
        Box::pin(ready(Ok(())))
    }

    fn delete_claim(&self, name: &str) -> Answer<()> {
        self.deleted_claims.lock().unwrap().push(name.to_owned());
        Box::pin(ready(Ok(())))
    }

    fn patch_node_status(&self, name: &str, patch: Value) -> Answer<()> {
        let answer = match self.nodes.lock().unwrap().get_mut(name) {
            Some(node) => {
                node["status"]["nodeInfo"]["bootID"] = patch["status"]["nodeInfo"]["bootID"].clone();
                Ok(())
            }
            None => Err(CloudError::NotFound { what: name.into() }),
        };
        Box::pin(ready(answer))
    }

    fn spawn(&self, work: Wait) {
        self.background.add(work);
    }

    fn tell(&self, message: String) {
        self.said.lock().unwrap().push(message);
    }
}

pub(super) struct Stage {
    pub(super) cluster: Arc<Cluster>,
    pub(super) clock: HandClock,
    pub(super) cloud: KwokCloud,
}

pub(super) fn stage() -> Stage {
    let (cluster, clock) = (Arc::<Cluster>::default(), HandClock::new());
    let cloud = KwokCloud::new(cluster.clone(), Arc::new(clock.clone()), kwok::embedded());
    Stage { cluster, clock, cloud }
}

impl Stage {
    fn launch(&self, order: &LaunchOrder) -> Result<Instance, CloudError> {
        finish(&self.clock, self.cloud.launch(Arc::new(order.clone())))
    }

    fn get(&self, provider_id: &Text) -> Result<Instance, CloudError> {
        finish(&self.clock, self.cloud.get(provider_id.clone()))
    }

    fn list(&self) -> Vec<Text> {
        finish(&self.clock, self.cloud.list()).unwrap().into_iter().map(|instance| instance.provider_id).collect()
    }

    fn terminate(&self, instance: &Instance) -> CloudError {
        finish(&self.clock, self.cloud.terminate(reference(instance))).unwrap_err()
    }

    /// Moves the clock and lets the background work.
    pub(super) fn pass(&self, span: Duration) {
        self.clock.advance(span);
        self.cluster.background.poll();
    }

    fn names(&self) -> Vec<String> {
        self.cluster.nodes.lock().unwrap().keys().cloned().collect()
    }
}

fn reference(instance: &Instance) -> InstanceRef {
    InstanceRef {
        provider_id: instance.provider_id.clone(),
        claim: ClaimName(instance.claim.clone()),
        node_name: instance.provider_id.strip_prefix(PROVIDER_PREFIX).map(Text::from),
    }
}

pub(super) fn class(spec: Value, ready: &str) -> Arc<Value> {
    Arc::new(json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}, "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "Ready", "message": "",
            "lastTransitionTime": "2024-01-01T01:01:01Z"}]}
    }))
}

pub(super) fn order(name: &str, types: &[&str]) -> LaunchOrder {
    let mut requirements = Requirements::new();
    if !types.is_empty() {
        requirements.add(labels::INSTANCE_TYPE, Requirement::is_in(types.iter().copied()));
    }
    LaunchOrder {
        claim: name.into(),
        uid: format!("uid-of-{name}").into(),
        pool: Some(PoolName::from("default")),
        node_class: NodeClassRef {
            group: "karpenter.kwok.sh".into(),
            kind: "KWOKNodeClass".into(),
            name: "default".into(),
        },
        class_object: Some(class(json!({}), "True")),
        requirements,
        requests: Resources::new().with("cpu", Quantity::from_milli(1500)).with("pods", Quantity::from_units(3)),
        labels: Labels::from([(labels::NODEPOOL.into(), "default".into())]),
        annotations: BTreeMap::from([("team".into(), "red".into())]),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        avoid: Vec::new(),
    }
}

#[test]
fn a_launched_claim_becomes_a_node_as_kwok_makes_them() {
    let stage = stage();
    let mut order = order("default-x7k", &["c-2x-amd64-linux", "s-2x-amd64-linux"]);
    order.requirements.add("example.com/tier", Requirement::is_in(["gold"]));
    order.requirements.add("example.com/open", Requirement::is_in(["a", "b"]));
    let instance = stage.launch(&order).unwrap();
    let [name] = &stage.names()[..] else { panic!("one node") };
    let node = stage.cluster.nodes.lock().unwrap()[name].clone();

    assert_eq!(*instance.provider_id, *format!("kwok://{name}"));
    assert_eq!(node["spec"]["providerID"], *instance.provider_id);
    assert_eq!(node["spec"]["taints"], json!([{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]));
    assert_eq!(node["metadata"]["annotations"], json!({"team": "red", "kwok.x-k8s.io/node": "fake"}));
    assert_eq!(
        node["metadata"]["labels"],
        json!({
            "karpenter.sh/nodepool": "default",
            "karpenter.sh/capacity-type": "spot",
            "topology.kubernetes.io/zone": "test-zone-a",
            "node.kubernetes.io/instance-type": "c-2x-amd64-linux",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "kubernetes.io/hostname": "default-x7k",
            "karpenter.kwok.sh/instance-size": "2",
            "karpenter.kwok.sh/instance-family": "c",
            "karpenter.kwok.sh/instance-cpu": "2",
            "karpenter.kwok.sh/instance-memory": "4Gi",
            "kwok.x-k8s.io/node": "fake",
            "kwok-partition": "a",
            // 0.7 × (0.025 × 2 + 0.001 × 4.294967296).
            "eks-node-viewer/instance-price": "0.038006",
            "example.com/tier": "gold",
        })
    );
    assert_eq!(
        node["status"],
        json!({
            "phase": "Pending",
            // The type's own: limits count machines, not what was asked of them.
            "capacity": {"cpu": "2", "memory": "4Gi", "pods": "32", "ephemeral-storage": "20Gi"},
            // Less 100m cpu and 10Mi memory.
            "allocatable": {"cpu": "1900m", "memory": "4086Mi", "pods": "32", "ephemeral-storage": "20Gi"},
        })
    );
    assert_eq!(instance.labels.len(), 15);
    assert_eq!(instance.capacity.get("cpu"), Quantity::from_units(2));
    assert_eq!(instance.allocatable.get("cpu"), Quantity::from_milli(1900));
    assert_eq!((&*instance.claim, &*instance.image_id, instance.created_ms), ("default-x7k", "", START_MS));
    assert!(instance.annotations.is_empty() && instance.sold_out.is_empty());
}

#[test]
fn a_nodes_name_has_the_parts_of_kwoks_and_follows_from_the_claim() {
    let name = node_name(&order("default-x7k", &[]));
    let rest = name.strip_prefix("kwok-default-x7k-").unwrap();
    let parts: Vec<&str> = rest.split('-').collect();
    let [words, sequence, letters, number] = parts[..] else { panic!("four parts: {rest}") };
    assert!(!words.is_empty() && words.chars().all(|c| c.is_ascii_lowercase()), "{words}");
    assert!(sequence.parse::<u32>().is_ok() && number.parse::<u32>().is_ok(), "{rest}");
    assert!(letters.len() == 10 && letters.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()), "{letters}");
    assert_eq!(name, node_name(&order("default-x7k", &["c-1x-amd64-linux"])));
    assert_ne!(name, node_name(&LaunchOrder { uid: "another".into(), ..order("default-x7k", &[]) }));
}

#[test]
fn the_cheapest_offering_wins_and_ties_go_by_name_and_zone() {
    for (types, capacity, avoid, expected) in [
        (
            &["s-1x-amd64-linux", "c-1x-arm64-linux", "c-1x-amd64-linux"][..],
            None,
            &[][..],
            "c-1x-amd64-linux test-zone-a spot",
        ),
        (&["c-1x-amd64-linux"], Some("on-demand"), &[], "c-1x-amd64-linux test-zone-a on-demand"),
        (&["c-1x-amd64-linux"], None, &["test-zone-a"], "c-1x-amd64-linux test-zone-b spot"),
        (
            &["c-1x-amd64-linux"],
            None,
            &["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"],
            "c-1x-amd64-linux test-zone-a on-demand",
        ),
    ] {
        let stage = stage();
        let mut order = LaunchOrder { requests: Resources::new(), ..order("a", types) };
        if let Some(capacity) = capacity {
            order.requirements.add(labels::CAPACITY_TYPE, Requirement::is_in([capacity]));
        }
        order.avoid = avoid
            .iter()
            .map(|zone| OfferingKey {
                instance_type: "c-1x-amd64-linux".into(),
                zone: (*zone).into(),
                capacity_type: CapacityType::Spot,
            })
            .collect();
        let labels = stage.launch(&order).unwrap().labels;
        let got = [labels::INSTANCE_TYPE, labels::ZONE, labels::CAPACITY_TYPE].map(|key| labels[key].to_string());
        assert_eq!(got.join(" "), expected);
    }
}

#[test]
fn a_claim_without_instance_types_gets_the_cheapest_that_meets_requirements_and_requests() {
    let stage = stage();
    let mut standalone = order("by-hand", &[]);
    standalone.requests =
        Resources::new().with("cpu", Quantity::from_units(3)).with("memory", Quantity::from_mebibytes(11 << 10));
    standalone.requirements.add(labels::ARCH, Requirement::is_in(["arm64"]));
    standalone.requirements.add(labels::OS, Requirement::is_in(["linux"]));
    let instance = stage.launch(&standalone).unwrap();
    assert_eq!(&*instance.labels[labels::INSTANCE_TYPE], "s-4x-arm64-linux");

    standalone.uid = "another".into();
    standalone.requests.set("cpu", Quantity::from_units(500));
    let error = stage.launch(&standalone).unwrap_err();
    assert!(matches!(error, CloudError::NoCapacity { .. }), "{error:?}");
    assert!(error.to_string().contains("NodeClaim by-hand") && error.to_string().contains("cpu 500"), "{error}");
}

#[test]
fn a_type_that_the_claim_names_is_launched_even_if_the_requests_are_larger() {
    let stage = stage();
    let instance = stage.launch(&LaunchOrder {
        requests: Resources::new().with("memory", Quantity::from_mebibytes(64 << 10)),
        ..order("large", &["c-16x-amd64-linux"])
    });
    assert_eq!(&*instance.unwrap().labels[labels::INSTANCE_TYPE], "c-16x-amd64-linux");
}

#[test]
fn no_node_has_less_than_pods_may_use_and_what_only_an_overlay_knows_of_is_there() {
    let stage = stage();
    for (n, it) in kwok::embedded().iter().enumerate() {
        let mut order = order(&format!("claim-{n}"), &[it.name.as_str()]);
        order.requests.set("example.com/tuner", Quantity::from_units(2));
        let instance = stage.launch(&order).unwrap();
        for (resource, amount) in instance.allocatable.iter() {
            assert!(instance.capacity.get(resource) >= amount, "{} of {}", resource, it.name);
        }
        for (resource, amount) in it.capacity.iter() {
            assert_eq!(instance.capacity.get(resource), amount, "{} of {}", resource, it.name);
        }
        for has in [&instance.capacity, &instance.allocatable] {
            assert_eq!(has.get("example.com/tuner"), Quantity::from_units(2));
        }
    }
}

#[test]
fn a_missing_class_gives_the_claim_up_and_so_does_one_that_is_not_ready() {
    let stage = stage();
    let missing = stage.launch(&LaunchOrder { class_object: None, ..order("a", &["c-2x-amd64-linux"]) }).unwrap_err();
    assert!(matches!(missing, CloudError::NoCapacity { .. }), "{missing:?}");
    assert_eq!(missing.class(), "InsufficientCapacityError");
    assert_eq!(missing.to_string(), "NodeClaim a: KWOKNodeClass default does not exist");
    let unready = LaunchOrder { class_object: Some(class(json!({}), "False")), ..order("a", &["c-2x-amd64-linux"]) };
    let unready = stage.launch(&unready).unwrap_err();
    assert_eq!(unready.class(), "NodeClassNotReadyError");
    assert_eq!(stage.names(), [""; 0]);
}

#[test]
fn a_claim_that_nothing_suits_has_no_capacity() {
    let stage = stage();
    let mut order = order("a", &["c-2x-amd64-linux"]);
    order.requirements.add(labels::ZONE, Requirement::is_in(["test-zone-z"]));
    let error = stage.launch(&order).unwrap_err();
    assert_eq!(error.class(), "InsufficientCapacityError");
}

#[test]
fn launching_a_claim_twice_gives_one_node_even_across_a_restart_and_with_other_wishes() {
    let stage = stage();
    let first = stage.launch(&order("a", &["c-2x-amd64-linux"])).unwrap();
    let restarted = KwokCloud::new(stage.cluster.clone(), Arc::new(stage.clock.clone()), kwok::embedded());
    // By now the offering is to be avoided; the node is there all the same.
    let avoid = kwok::embedded()
        .iter()
        .flat_map(|it| {
            it.offerings.iter().map(|offering| crate::choice::offering_key(it, offering)).collect::<Vec<_>>()
        })
        .collect();
    for again in [
        order("a", &["c-2x-amd64-linux", "c-1x-amd64-linux"]),
        LaunchOrder { avoid, ..order("a", &["c-2x-amd64-linux"]) },
    ] {
        let second = finish(&stage.clock, restarted.launch(Arc::new(again))).unwrap();
        assert_eq!((second.provider_id, second.labels), (first.provider_id.clone(), first.labels.clone()));
    }
    assert_eq!(stage.names().len(), 1);
    // Another claim of that name, after the first is gone, is another one.
    stage.launch(&LaunchOrder { uid: "later".into(), ..order("a", &["c-2x-amd64-linux"]) }).unwrap();
    assert_eq!(stage.names().len(), 2);
}

#[test]
fn a_claim_that_was_launched_before_a_restart_gets_what_its_labels_say() {
    let stage = stage();
    let mut before = order("a", &["c-2x-amd64-linux", "m-2x-amd64-linux"]);
    before.labels.insert(labels::INSTANCE_TYPE.into(), "m-2x-amd64-linux".into());
    before.labels.insert(labels::ZONE.into(), "test-zone-c".into());
    let labels = stage.launch(&before).unwrap().labels;
    assert_eq!((&*labels[labels::INSTANCE_TYPE], &*labels[labels::ZONE]), ("m-2x-amd64-linux", "test-zone-c"));
}

#[test]
fn the_node_comes_after_the_registration_delay() {
    let stage = stage();
    let delayed = LaunchOrder {
        class_object: Some(class(json!({"nodeRegistrationDelay": "1m30s"}), "True")),
        ..order("a", &["c-2x-amd64-linux"])
    };
    let instance = stage.launch(&delayed).unwrap();
    assert_eq!(stage.names(), [""; 0]);
    // On its way it is an instance already: asked for again it is the same, and found.
    assert_eq!(stage.launch(&delayed).unwrap().provider_id, instance.provider_id);
    assert_eq!(stage.get(&instance.provider_id).unwrap().claim, instance.claim);
    assert_eq!(stage.list(), std::slice::from_ref(&instance.provider_id));
    stage.pass(Duration::from_secs(89));
    assert_eq!(stage.names(), [""; 0]);
    stage.pass(Duration::from_secs(1));
    assert_eq!(stage.names().len(), 1);
    assert_eq!(stage.list(), [instance.provider_id]);
}

#[test]
fn a_node_that_cannot_be_created_is_tried_again_and_the_claim_counts_as_launched() {
    let stage = stage();
    *stage.cluster.failures.lock().unwrap() = 3;
    stage.launch(&order("a", &["c-2x-amd64-linux"])).unwrap();
    for wait_ms in [10, 10, 50] {
        assert_eq!(stage.names(), [""; 0]);
        stage.pass(Duration::from_millis(wait_ms));
    }
    assert_eq!(stage.names().len(), 1);
    assert_eq!(stage.cluster.said.lock().unwrap().len(), 3);
}

#[test]
fn a_node_that_is_denied_for_a_quarter_of_an_hour_is_given_up() {
    let stage = stage();
    *stage.cluster.failures.lock().unwrap() = usize::MAX;
    let instance = stage.launch(&order("a", &["c-2x-amd64-linux"])).unwrap();
    for _ in 0..40 {
        stage.pass(Duration::from_secs(30));
    }
    assert!(stage.cluster.said.lock().unwrap().last().unwrap().ends_with("denied by a policy; given up"));
    assert!(stage.get(&instance.provider_id).unwrap_err().is_not_found());
    assert!(stage.list().is_empty());
}

#[test]
fn a_registered_node_is_left_to_its_finalizer_and_so_is_its_claim() {
    let stage = stage();
    let instance = stage.launch(&order("a", &["c-2x-amd64-linux"])).unwrap();
    let name = stage.names()[0].clone();
    stage.cluster.nodes.lock().unwrap().get_mut(&name).unwrap()["metadata"]["deletionTimestamp"] =
        "2027-01-15T09:00:00Z".into();
    assert!(stage.get(&instance.provider_id).unwrap_err().is_not_found());
    assert!(finish(&stage.clock, stage.cloud.list()).unwrap()[0].is_ending);
    for _ in 0..2 {
        assert!(stage.terminate(&instance).is_not_found());
    }
    // Whoever deletes a registered node has deleted its claim before.
    assert_eq!(*stage.cluster.deleted_claims.lock().unwrap(), [""; 0]);
    assert_eq!(stage.names(), [name]);
}

#[test]
fn a_node_that_never_registered_goes_with_its_claim() {
    let stage = stage();
    let instance = stage.launch(&order("a", &["c-2x-amd64-linux"])).unwrap();
    for _ in 0..2 {
        assert!(stage.terminate(&instance).is_not_found());
    }
    assert_eq!(*stage.cluster.deleted_claims.lock().unwrap(), ["a"], "once is enough");
    assert_eq!(stage.names(), [""; 0]);
    assert!(stage.get(&instance.provider_id).unwrap_err().is_not_found());
}

#[test]
fn a_node_on_its_way_never_comes_when_its_claim_goes() {
    let stage = stage();
    let delayed = LaunchOrder {
        class_object: Some(class(json!({"nodeRegistrationDelay": "30s"}), "True")),
        ..order("a", &["c-2x-amd64-linux"])
    };
    let instance = stage.launch(&delayed).unwrap();
    assert!(stage.terminate(&instance).is_not_found());
    stage.pass(Duration::from_secs(60));
    assert_eq!(stage.names(), [""; 0]);
    assert!(stage.list().is_empty());
}

#[test]
fn only_nodes_of_kwok_are_listed() {
    let stage = stage();
    stage.launch(&order("a", &["c-2x-amd64-linux"])).unwrap();
    let foreign = json!({"metadata": {"name": "other"}, "spec": {"providerID": "aws:///us-east-1a/i-1"}});
    stage.cluster.nodes.lock().unwrap().insert("other".to_owned(), foreign);
    stage.cluster.nodes.lock().unwrap().insert("bare".to_owned(), json!({"metadata": {"name": "bare"}}));
    let listed = finish(&stage.clock, stage.cloud.list()).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((&*listed[0].claim, listed[0].created_ms), ("a", 1_800_000_000_000));
    for foreign in ["aws:///us-east-1a/i-1", "kwok://nowhere"] {
        assert!(stage.get(&foreign.into()).unwrap_err().is_not_found());
    }
}

#[test]
fn a_reboot_changes_the_boot_id_once_per_operation_and_needs_a_node() {
    let stage = stage();
    let instance = stage.launch(&order("a", &["c-2x-amd64-linux"])).unwrap();
    let reboot = |reference: InstanceRef| finish(&stage.clock, stage.cloud.reboot(reference, "op-7".into()));
    for _ in 0..2 {
        reboot(reference(&instance)).unwrap();
    }
    let name = stage.names()[0].clone();
    assert_eq!(stage.cluster.nodes.lock().unwrap()[&name]["status"]["nodeInfo"]["bootID"], "kwok-op-7");
    let nameless = reboot(InstanceRef { node_name: None, ..reference(&instance) }).unwrap_err();
    assert!(matches!(nameless, CloudError::Refused { .. }), "{nameless:?}");
    let gone = reboot(InstanceRef { node_name: Some("gone".into()), ..reference(&instance) }).unwrap_err();
    assert!(gone.is_not_found());
}

#[test]
fn nothing_drifts_and_classes_are_left_alone() {
    let stage = stage();
    let reference = InstanceRef { provider_id: "kwok://x".into(), claim: "a".into(), node_name: None };
    let class = class(json!({}), "True");
    assert_eq!(finish(&stage.clock, stage.cloud.drift(reference, class.clone())).unwrap(), None);
    let status = finish(&stage.clock, stage.cloud.resolve_class(class)).unwrap();
    assert!(status.status.is_null() && status.annotations.is_empty() && status.again_after.is_none());
}

#[test]
fn the_repair_policies_are_kwoks() {
    let told: Vec<String> = stage()
        .cloud
        .repair_policies()
        .iter()
        .map(|policy| {
            let drain = policy.drain_within.unwrap().as_secs();
            let tolerate = policy.tolerate_for.as_secs();
            format!(
                "{}={} {:?} {tolerate}s {drain}s {:?} {}",
                policy.condition, policy.status, policy.reason, policy.action, policy.priority
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            r#"Ready=False "" 600s 0s ReplaceNode 0"#,
            r#"Ready=Unknown ".*" 600s 0s ReplaceNode 0"#,
            r#"KWOKUnhealthy=True ".*" 30s 45s ReplaceNode 0"#,
            r#"KWOKRebootRequired=True ".*" 30s 60s RebootNode 0"#,
        ]
    );
}

#[test]
fn the_provider_says_who_it_is_and_what_it_sells() {
    let stage = stage();
    assert_eq!(stage.cloud.name(), "kwok");
    let [kind] = &stage.cloud.node_classes()[..] else { panic!("one kind") };
    assert_eq!(
        (kind.group, kind.version, kind.kind, kind.plural),
        ("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses")
    );
    assert_eq!(stage.cloud.0.types.len(), 144);
    let price = |zone: Option<&str>, capacity| {
        stage.cloud.price(&"c-1x-amd64-linux".into(), zone.map(Text::from).as_ref(), capacity)
    };
    assert_eq!(price(Some("test-zone-a"), CapacityType::OnDemand), Some(Money::from_micros(27_147)));
    assert_eq!(price(None, CapacityType::Spot), Some(Money::from_micros(19_003)));
    assert_eq!(price(Some("elsewhere"), CapacityType::Spot), None);
    let keys = stage.cloud.well_known_labels();
    assert!(keys.contains(&"karpenter.kwok.sh/instance-size") && keys.contains(&labels::ZONE), "{keys:?}");
}

#[test]
fn keys_of_a_files_offerings_are_well_known() {
    let file = r#"[{"name": "a.large", "architecture": "amd64", "operatingSystems": ["linux"], "resources": {"cpu": "2", "memory": "4Gi"},
        "offerings": [{"Price": 0.1, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z"]},
            {"key": "example.com/rack", "operator": "In", "values": ["r1"]}]}]}]"#;
    let parsed = kwok::parse(file);
    assert_eq!(parsed.problems, []);
    let stage = stage();
    let cloud = KwokCloud::new(stage.cluster.clone(), Arc::new(stage.clock.clone()), parsed.types);
    assert!(cloud.well_known_labels().contains(&"example.com/rack"));
    let instance = finish(&stage.clock, cloud.launch(Arc::new(order("a", &["a.large"])))).unwrap();
    assert_eq!(&*instance.labels["example.com/rack"], "r1");
    // The size is the word behind the dot; 110 pods where the file says nothing.
    assert_eq!(&*instance.labels["karpenter.kwok.sh/instance-size"], "large");
    assert_eq!(instance.allocatable.get("pods"), Quantity::from_units(110));
}
