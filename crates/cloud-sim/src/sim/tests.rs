//! The simulated cloud by hand: one test per promise.

mod conformance;

use super::*;
use crate::by_hand::{HandClock, START_MS, finish};
use kerf_model::{Labels, NodeClassRef, PoolName, Quantity, Requirement, Requirements, Resources, Taint, labels};
use serde_json::json;
use std::sync::LazyLock;

/// Machines that were powered on, and what became of them.
#[derive(Default)]
pub(super) struct TestYard {
    booted: Mutex<BTreeMap<Text, NewMachine>>,
    stopped: Mutex<Vec<Text>>,
    reboots: Mutex<BTreeMap<Text, usize>>,
}

impl Yard for TestYard {
    fn boot(&self, machine: NewMachine) {
        self.booted.lock().unwrap().insert(machine.name.clone(), machine);
    }

    fn reboot(&self, node: &str) {
        *self.reboots.lock().unwrap().entry(node.into()).or_default() += 1;
    }

    fn terminate(&self, node: &str) {
        self.stopped.lock().unwrap().push(node.into());
    }
}

pub(super) struct Stage {
    cloud: SimCloud,
    clock: HandClock,
    yard: Arc<TestYard>,
}

pub(super) fn stage(change: impl FnOnce(&mut SimOptions)) -> Stage {
    let mut options = SimOptions { region: "eu-west-1".to_owned(), ..SimOptions::default() };
    change(&mut options);
    let (clock, yard) = (HandClock::new(), Arc::<TestYard>::default());
    let cloud = SimCloud::new(options, Arc::new(clock.clone()), yard.clone()).unwrap();
    Stage { cloud, clock, yard }
}

impl Stage {
    fn launch(&self, order: &LaunchOrder) -> Result<Instance, CloudError> {
        finish(&self.clock, self.cloud.launch(Arc::new(order.clone())))
    }

    fn end(&self, instance: &Instance) -> Result<(), CloudError> {
        finish(&self.clock, self.cloud.terminate(reference(instance)))
    }

    fn get(&self, instance: &Instance) -> Result<Instance, CloudError> {
        finish(&self.clock, self.cloud.get(instance.provider_id.clone()))
    }

    fn list(&self) -> Vec<Instance> {
        finish(&self.clock, self.cloud.list()).unwrap()
    }

    fn pass(&self, span: Duration) {
        self.clock.advance(span);
        self.cloud.tick();
    }

    fn machine(&self) -> NewMachine {
        self.yard.booted.lock().unwrap().values().next().cloned().unwrap()
    }

    /// The class as the cloud itself completes it.
    fn class(&self) -> Value {
        self.resolved(json!({}))
    }

    fn resolved(&self, changes: Value) -> Value {
        let mut class = ec2_class_object();
        for (field, value) in changes.as_object().unwrap() {
            class["spec"][field] = value.clone();
        }
        self.resolve(class)
    }

    fn resolve(&self, mut class: Value) -> Value {
        let answer = finish(&self.clock, self.cloud.resolve_class(Arc::new(class.clone()))).unwrap();
        class["status"] = answer.status;
        class
    }

    fn order(&self, name: &str) -> LaunchOrder {
        LaunchOrder { class_object: Some(Arc::new(self.class())), ..ec2_order(name) }
    }
}

fn ec2_class_object() -> Value {
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default", "generation": 1},
        "spec": {
            "role": "KarpenterNodeRole-home",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "home"}}],
            "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "home"}}],
        }
    })
}

/// An order without its class.
fn ec2_order(name: &str) -> LaunchOrder {
    LaunchOrder {
        claim: name.into(),
        uid: name.into(),
        pool: Some(PoolName::from("default")),
        node_class: NodeClassRef {
            group: "karpenter.k8s.aws".into(),
            kind: "EC2NodeClass".into(),
            name: "default".into(),
        },
        class_object: None,
        requirements: Requirements::new()
            .with(labels::INSTANCE_TYPE, Requirement::is_in(["m7i.large", "m7g.large", "c7i.xlarge"]))
            .with(labels::CAPACITY_TYPE, Requirement::is_in(["spot", "on-demand"])),
        requests: Resources::new().with("cpu", Quantity::from_milli(1500)),
        labels: Labels::from([
            (labels::NODEPOOL.into(), "default".into()),
            ("karpenter.k8s.aws/ec2nodeclass".into(), "default".into()),
            ("node-restriction.kubernetes.io/team".into(), "red".into()),
        ]),
        annotations: BTreeMap::new(),
        taints: vec![Taint { key: "gpu".into(), value: "yes".into(), effect: kerf_model::Effect::NoSchedule }],
        startup_taints: Vec::new(),
        avoid: Vec::new(),
    }
}

fn kwok_order(name: &str) -> LaunchOrder {
    let class = json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"},
        "spec": {"nodeRegistrationDelay": "20s"}});
    LaunchOrder {
        node_class: NodeClassRef {
            group: "karpenter.kwok.sh".into(),
            kind: "KWOKNodeClass".into(),
            name: "default".into(),
        },
        class_object: Some(Arc::new(class)),
        requirements: Requirements::new().with(
            labels::INSTANCE_TYPE,
            Requirement::is_in(["c-2x-amd64-linux", "s-2x-amd64-linux", "m-2x-arm64-linux"]),
        ),
        ..ec2_order(name)
    }
}

fn reference(instance: &Instance) -> InstanceRef {
    InstanceRef {
        provider_id: instance.provider_id.clone(),
        claim: kerf_model::ClaimName(instance.claim.clone()),
        node_name: None,
    }
}

fn key_of(instance: &Instance) -> OfferingKey {
    OfferingKey {
        instance_type: TypeName(instance.labels[labels::INSTANCE_TYPE].clone()),
        zone: instance.labels[labels::ZONE].clone(),
        capacity_type: CapacityType::parse(&instance.labels[labels::CAPACITY_TYPE]).unwrap(),
    }
}

fn hours(n: f64) -> Duration {
    Duration::from_secs_f64(n * 3600.0)
}

#[test]
fn an_instance_looks_like_ec2s() {
    let stage = stage(|_| {});
    let order = stage.order("default-abc");
    let instance = stage.launch(&order).unwrap();
    let zone = instance.labels[labels::ZONE].clone();
    let id = instance.provider_id.strip_prefix(&format!("aws:///{zone}/i-0")).unwrap();
    assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert!(instance.image_id.starts_with("ami-0"), "{}", instance.image_id);
    assert_eq!(&*instance.labels[labels::REGION], "eu-west-1");
    assert_eq!(&*instance.labels[api_labels::INSTANCE_TENANCY], "default");
    assert!(instance.labels[api_labels::ZONE_ID].starts_with("euw1-az"));
    assert!(!instance.labels.contains_key(api_labels::CAPACITY_RESERVATION_ID));
    assert_eq!(&*instance.annotations[api_labels::EC2_NODE_CLASS_HASH_VERSION], "v6");
    assert!(instance.annotations[api_labels::INSTANCE_PROFILE_NAME].starts_with("kerf_"));
    assert!(instance.capacity.iter().all(|(_, amount)| !amount.is_zero()));
    assert_eq!(instance.created_ms, START_MS);

    let machine = stage.machine();
    assert_eq!(machine.provider_id, instance.provider_id);
    let name = machine.name.strip_suffix(".eu-west-1.compute.internal").unwrap();
    assert_eq!(name.replace("ip-", "").replace('-', "."), *machine.internal_ip.unwrap());
    let taints: Vec<String> = machine.taints.iter().map(ToString::to_string).collect();
    assert_eq!(taints, ["gpu=yes:NoSchedule", "karpenter.sh/unregistered:NoExecute"]);
    let boot_s = machine.boot_delay.as_secs_f64();
    assert!((25.0..=45.0).contains(&boot_s), "{boot_s}");
    assert_eq!(
        (machine.capacity, machine.allocatable),
        ((*instance.capacity).clone(), (*instance.allocatable).clone())
    );
}

#[test]
fn a_kubelet_sets_what_it_may_and_the_operator_the_rest() {
    let stage = stage(|_| {});
    stage.launch(&stage.order("a")).unwrap();
    let machine = stage.machine();
    assert_eq!(*machine.labels[labels::HOSTNAME], *machine.name);
    assert_eq!(&*machine.labels[labels::NODEPOOL], "default");
    assert_eq!(&*machine.labels[api_labels::DO_NOT_SYNC_TAINTS], "true");
    assert!(machine.labels.contains_key(labels::ZONE) && machine.labels.contains_key(labels::CAPACITY_TYPE));
    for left_to_the_operator in ["node-restriction.kubernetes.io/team", "karpenter.k8s.aws/instance-family"] {
        assert!(!machine.labels.contains_key(left_to_the_operator), "{left_to_the_operator}");
    }
}

#[test]
fn hosts_of_us_east_1_have_the_old_name() {
    let stage = stage(|options| options.region = "us-east-1".to_owned());
    stage.launch(&stage.order("a")).unwrap();
    assert!(stage.machine().name.ends_with(".ec2.internal"));
    let unknown = SimOptions { region: "mars-north-1".to_owned(), ..SimOptions::default() };
    let refused = SimCloud::new(unknown, Arc::new(stage.clock.clone()), stage.yard.clone()).err().unwrap();
    assert!(refused.to_string().contains("mars-north-1"));
}

#[test]
fn the_cheapest_offering_is_bought_and_the_next_when_it_ran_dry() {
    let stage = stage(|_| {});
    let first = stage.launch(&stage.order("a")).unwrap();
    let price = |instance: &Instance| {
        let key = key_of(instance);
        stage.cloud.price(&key.instance_type, Some(&key.zone), key.capacity_type).unwrap()
    };
    let ask = TypesAsk {
        pool: &"default".into(),
        labels: &Labels::new(),
        requirements: &Requirements::new(),
        node_class: &stage.order("x").node_class,
        class_object: Some(&stage.class()),
    };
    let types = stage.cloud.instance_types(&ask).unwrap();
    let accepted = types.iter().filter(|it| ["m7i.large", "m7g.large", "c7i.xlarge"].contains(&it.name.as_str()));
    let cheapest = accepted
        .flat_map(|it| &it.offerings)
        .filter(|offering| offering.launchable())
        .map(|offering| offering.price)
        .min();
    assert_eq!(Some(price(&first)), cheapest);

    stage.cloud.set_stock(&key_of(&first), 0);
    let second = stage.launch(&stage.order("b")).unwrap();
    assert_eq!(second.sold_out, [key_of(&first)]);
    assert!(price(&second) >= price(&first));
    // A machine that goes makes room for another.
    stage.end(&first).unwrap();
    stage.pass(hours(0.1));
    assert_eq!(key_of(&stage.launch(&stage.order("c")).unwrap()), key_of(&first));
}

#[test]
fn at_most_sixty_types_are_tried() {
    let stage = stage(|options| options.faults.stock_per_offering = Some(0));
    let mut order = stage.order("a");
    order.requirements = Requirements::new().with(labels::ZONE, Requirement::is_in(["eu-west-1a"]));
    let Err(CloudError::NoCapacity { sold_out, .. }) = stage.launch(&order) else { panic!("no capacity") };
    let types: BTreeSet<_> = sold_out.iter().map(|key| &key.instance_type).collect();
    assert_eq!(types.len(), 60);
}

#[test]
fn stock_differs_between_offerings_and_runs_out() {
    let stage = stage(|options| options.faults.stock_per_offering = Some(3));
    let order = |n: usize| LaunchOrder { uid: n.to_string().into(), ..stage.order("a") };
    let outcomes: Vec<_> = (0..200).map(|n| stage.launch(&order(n))).collect();
    let n_bought = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    // Three types in three zones, both ways: eighteen offerings of three on average.
    assert!((20..120).contains(&n_bought), "{n_bought}");
    let Err(CloudError::NoCapacity { sold_out, message }) = outcomes.last().unwrap() else { panic!("no capacity") };
    assert!(sold_out.len() >= 12, "{sold_out:?}");
    assert!(message.starts_with("NodeClaim a: "), "{message}");
}

#[test]
fn shortages_pass() {
    let stage = stage(|options| options.faults.sold_out_share = 0.5);
    let mut n_dry = 0;
    for n in 0..40 {
        let order = LaunchOrder { uid: n.to_string().into(), ..stage.order("a") };
        n_dry += usize::from(stage.launch(&order).is_ok_and(|instance| !instance.sold_out.is_empty()));
        stage.pass(Duration::from_secs(600));
    }
    assert!((8..32).contains(&n_dry), "{n_dry} of 40 launches found the cheapest sold out");
}

#[test]
fn a_class_that_is_not_ready_launches_nothing() {
    let stage = stage(|_| {});
    let ready = stage.class();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut class = ready.clone();
        change(&mut class);
        let order = LaunchOrder { class_object: Some(Arc::new(class)), ..ec2_order("a") };
        stage.launch(&order).unwrap_err()
    };
    let set_ready = |class: &mut Value, status: &str| {
        let conditions = class["status"]["conditions"].as_array_mut().unwrap();
        conditions.last_mut().unwrap()["status"] = status.into();
    };
    assert!(matches!(with(&|class| set_ready(class, "False")), CloudError::ClassNotReady { .. }));
    assert!(matches!(with(&|class| class["metadata"]["generation"] = 2.into()), CloudError::ClassNotReady { .. }));
    let unknown = with(&|class| set_ready(class, "Unknown"));
    assert!(matches!(&unknown, CloudError::LaunchFailed { reason, .. } if &**reason == "NodeClassReadinessUnknown"));
    let leaving = with(&|class| class["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
    assert!(matches!(leaving, CloudError::NoCapacity { .. }));
    let missing = stage.launch(&ec2_order("a")).unwrap_err();
    assert_eq!(missing.to_string(), "NodeClaim a: EC2NodeClass default does not exist");
}

#[test]
fn a_class_is_resolved_with_every_condition() {
    let stage = stage(|_| {});
    let class = stage.class();
    let status = &class["status"];
    assert_eq!(status["subnets"].as_array().unwrap().len(), 3);
    assert_eq!(status["securityGroups"][0]["name"], "eks-cluster-sg-kerf");
    assert_eq!(status["amis"].as_array().unwrap().len(), 5);
    assert_eq!(status["capacityReservations"], json!([]));
    let told: Vec<String> = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| format!("{}={}", condition["type"].as_str().unwrap(), condition["status"].as_str().unwrap()))
        .collect();
    assert_eq!(
        told,
        [
            "AMIsReady=True",
            "CapacityReservationsReady=True",
            "InstanceProfileReady=True",
            "PlacementGroupReady=True",
            "SecurityGroupsReady=True",
            "SubnetsReady=True",
            "ValidationSucceeded=True",
            "Ready=True",
        ]
    );
    assert_eq!(status["conditions"][0]["observedGeneration"], 1);
    assert_eq!(status["conditions"][0]["lastTransitionTime"], "2027-01-15T08:00:00Z");
    // What stays keeps its time; what changes has the new one, and the root says which.
    stage.clock.advance(hours(1.0));
    let mut broken = class.clone();
    broken["spec"]["subnetSelectorTerms"] = json!([]);
    let broken = stage.resolve(broken);
    let conditions = broken["status"]["conditions"].as_array().unwrap();
    let of = |kind: &str| conditions.iter().find(|condition| condition["type"] == kind).unwrap();
    assert_eq!(
        (&of("AMIsReady")["lastTransitionTime"], &of("SubnetsReady")["lastTransitionTime"]),
        (&json!("2027-01-15T08:00:00Z"), &json!("2027-01-15T09:00:00Z"))
    );
    assert_eq!(of("SubnetsReady")["reason"], "SubnetsNotFound");
    assert_eq!(of("ValidationSucceeded")["reason"], "DependenciesNotReady");
    let root = conditions.last().unwrap();
    assert_eq!((&root["type"], &root["reason"]), (&json!("Ready"), &json!("UnhealthyDependents")));
    assert_eq!(root["message"], "SubnetsReady=False, ValidationSucceeded=False");
}

#[test]
fn what_a_class_asks_in_vain_is_named_in_its_status() {
    let stage = stage(|options| options.account_tags = Some(BTreeMap::new()));
    for (change, kind, reason) in [
        (json!({}), "SecurityGroupsReady", "SecurityGroupsNotFound"),
        (json!({"amiSelectorTerms": [{"id": "ami-1"}]}), "AMIsReady", "AMINotFound"),
        (json!({"amiSelectorTerms": [{"alias": "al2@latest"}]}), "AMIsReady", "UnsupportedAlias"),
        (json!({"placementGroupSelector": {"name": "tight"}}), "PlacementGroupReady", "PlacementGroupNotFound"),
        (json!({"kubelet": {"maxPods": -1}}), "ValidationSucceeded", "InvalidKubeletConfiguration"),
    ] {
        let class = stage.resolved(change);
        let conditions = class["status"]["conditions"].as_array().unwrap();
        let condition = conditions.iter().find(|condition| condition["type"] == kind).unwrap();
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!(reason)), "{condition}");
    }
}

#[test]
fn drift_names_the_first_thing_that_moved() {
    let stage = stage(|_| {});
    let class = stage.class();
    let instance = stage.launch(&stage.order("a")).unwrap();
    let drift = |change: &dyn Fn(&mut Value)| {
        let mut class = class.clone();
        change(&mut class);
        finish(&stage.clock, stage.cloud.drift(reference(&instance), Arc::new(class)))
    };
    let reason = |change: &dyn Fn(&mut Value)| drift(change).unwrap().map(|reason| reason.to_string());
    assert_eq!(reason(&|_| {}), None);
    assert_eq!(reason(&|class| class["spec"]["userData"] = "echo".into()).as_deref(), Some("NodeClassDrift"));
    let new_images = |class: &mut Value| {
        for image in class["status"]["amis"].as_array_mut().unwrap() {
            image["id"] = "ami-new".into();
        }
    };
    assert_eq!(reason(&new_images).as_deref(), Some("AMIDrift"));
    assert_eq!(
        reason(&|class| class["status"]["securityGroups"][0]["id"] = "sg-new".into()).as_deref(),
        Some("SecurityGroupDrift")
    );
    let new_subnets = |class: &mut Value| {
        for subnet in class["status"]["subnets"].as_array_mut().unwrap() {
            subnet["id"] = "subnet-new".into();
        }
    };
    assert_eq!(reason(&new_subnets).as_deref(), Some("SubnetDrift"));
    assert!(matches!(drift(&|class| class["status"]["amis"] = json!([])), Err(CloudError::Other { .. })));
}

#[test]
fn an_end_takes_a_while_and_is_seen_to() {
    let stage = stage(|_| {});
    let instance = stage.launch(&stage.order("a")).unwrap();
    stage.end(&instance).unwrap();
    assert_eq!(*stage.yard.stopped.lock().unwrap(), [stage.machine().name]);
    assert!(stage.get(&instance).unwrap().is_ending);
    assert!(stage.list()[0].is_ending);
    stage.end(&instance).unwrap();
    stage.pass(Duration::from_secs(51));
    assert!(stage.end(&instance).unwrap_err().is_not_found());
    assert!(stage.get(&instance).unwrap_err().is_not_found());
    assert_eq!(stage.yard.stopped.lock().unwrap().len(), 1);
    // The claim may buy again: its first machine is gone.
    assert_ne!(stage.launch(&stage.order("a")).unwrap().provider_id, instance.provider_id);
}

#[test]
fn spot_machines_are_taken_back_two_minutes_after_the_notice() {
    let stage = stage(|options| options.faults.spot_losses_per_hour = 2.0);
    let spot = stage.launch(&stage.order("spot")).unwrap();
    assert_eq!(&*spot.labels[labels::CAPACITY_TYPE], "spot");
    let mut on_demand = stage.order("on-demand");
    on_demand.requirements.add(labels::CAPACITY_TYPE, Requirement::is_in(["on-demand"]));
    let on_demand = stage.launch(&on_demand).unwrap();
    let due = stage.cloud.next_due().unwrap();
    stage.pass(Duration::from_millis((due.0 - stage.clock.now().0) as u64));
    let ends_at = UnixMillis(due.0 + 120_000);
    let warning =
        Notice { provider_id: spot.provider_id.clone(), kind: NoticeKind::SpotInterruption { ends_at }, at: due };
    assert_eq!(stage.cloud.take_notices(), [warning]);
    assert!(stage.yard.stopped.lock().unwrap().is_empty());
    stage.pass(Duration::from_secs(119));
    assert!(!stage.get(&spot).unwrap().is_ending);
    stage.pass(Duration::from_secs(1));
    let over = Notice { provider_id: spot.provider_id.clone(), kind: NoticeKind::InstanceTerminated, at: ends_at };
    assert_eq!(stage.cloud.take_notices(), [over]);
    assert_eq!(stage.yard.stopped.lock().unwrap().len(), 1);
    stage.pass(hours(100.0));
    assert!(stage.get(&spot).unwrap_err().is_not_found());
    assert!(stage.get(&on_demand).is_ok());
    assert_eq!(stage.cloud.take_notices(), []);
}

#[test]
fn a_notice_is_told_to_who_listens_and_again_until_it_is_acknowledged() {
    let stage = stage(|_| {});
    let instance = stage.launch(&stage.order("a")).unwrap();
    let context = || std::task::Context::from_waker(std::task::Waker::noop());
    let listen = || {
        let mut poll = stage.cloud.notices();
        for _ in 0..=20 {
            if let std::task::Poll::Ready(told) = poll.as_mut().poll(&mut context()) {
                return told.unwrap();
            }
            stage.pass(Duration::from_secs(1));
        }
        panic!("a long poll lasts twenty seconds");
    };
    assert_eq!(listen(), [], "nothing happened for twenty seconds");
    assert!(stage.cloud.interrupt(&instance.provider_id));
    let told = listen();
    let [notice] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(notice.kind, kerf_cloud::NoticeKind::SpotInterrupted);
    assert_eq!(*notice.instances, [Text::from(instance.provider_id.rsplit('/').next().unwrap())]);
    assert_eq!(notice.until_ms, Some(notice.happened_ms + 120_000));
    assert_eq!(listen(), told, "twenty seconds later it is told again");
    let mut acknowledged = stage.cloud.acknowledge(vec![notice.receipt.clone()]);
    assert!(acknowledged.as_mut().poll(&mut context()).is_ready());
    assert_eq!(listen(), []);
    assert_eq!(stage.cloud.take_notices(), []);
}

#[test]
fn losses_come_as_often_as_said() {
    let stage = stage(|options| options.faults.spot_losses_per_hour = 0.5);
    for n in 0..300 {
        stage.launch(&LaunchOrder { uid: n.to_string().into(), ..stage.order("a") }).unwrap();
    }
    stage.pass(hours(1.0));
    let n_lost =
        stage.cloud.take_notices().iter().filter(|notice| notice.kind != NoticeKind::InstanceTerminated).count();
    // 1 − e^(−0.5) of 300 are 118.
    assert!((95..142).contains(&n_lost), "{n_lost}");
}

#[test]
fn a_machine_can_be_taken_back_by_hand() {
    let stage = stage(|_| {});
    let instance = stage.launch(&stage.order("a")).unwrap();
    assert!(stage.cloud.interrupt(&instance.provider_id));
    assert_eq!(stage.cloud.take_notices().len(), 1);
    stage.pass(Duration::from_secs(120));
    assert!(stage.get(&instance).unwrap().is_ending);
    assert!(!stage.cloud.interrupt(&instance.provider_id));
    assert!(!stage.cloud.interrupt("aws:///eu-west-1a/i-none"));
}

#[test]
fn some_machines_are_slow_and_some_never_join() {
    let stage = stage(|options| {
        options.faults.slow_boot_share = 0.3;
        options.faults.never_joins_share = 0.2;
    });
    for n in 0..200 {
        stage.launch(&LaunchOrder { uid: n.to_string().into(), ..stage.order("a") }).unwrap();
    }
    let booted = stage.yard.booted.lock().unwrap();
    assert!((140..180).contains(&booted.len()), "{} of 200 join", booted.len());
    let n_slow = booted.values().filter(|machine| machine.boot_delay > Duration::from_secs(45)).count();
    assert!((25..75).contains(&n_slow), "{n_slow} are slow");
    assert!(booted.values().all(|machine| machine.boot_delay <= Duration::from_secs(8 * 45)));
    drop(booted);
    assert_eq!(stage.list().len(), 200);
}

#[test]
fn a_machine_may_have_less_memory_than_its_type() {
    let stage = stage(|options| options.faults.short_memory_share = 1.0);
    let instance = stage.launch(&stage.order("a")).unwrap();
    let machine = stage.machine();
    let (said, has) = (instance.capacity.get("memory").units(), machine.capacity.get("memory").units());
    assert_eq!(has, said - said / 100 * 5);
    assert_eq!(instance.allocatable.get("memory").units() - machine.allocatable.get("memory").units(), said - has);
}

#[test]
fn calls_are_throttled_and_launches_fail_as_often_as_said() {
    let stage = stage(|options| {
        options.faults.throttled_share = 0.25;
        options.faults.failed_launch_share = 0.2;
    });
    let class = Arc::new(stage_class());
    let (mut n_throttled, mut n_failed) = (0, 0);
    for n in 0..400 {
        let order = LaunchOrder { uid: n.to_string().into(), class_object: Some(class.clone()), ..ec2_order("a") };
        match stage.launch(&order) {
            Ok(_) => {}
            Err(CloudError::Throttled { retry_after, .. }) => {
                assert_eq!(retry_after, Duration::from_secs(2));
                n_throttled += 1;
            }
            Err(CloudError::LaunchFailed { reason, .. }) => {
                assert_eq!(&*reason, "InternalError");
                n_failed += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!((70..130).contains(&n_throttled), "{n_throttled} throttled");
    assert!((35..85).contains(&n_failed), "{n_failed} failed");
}

/// A class that another, calm cloud of the region resolved.
fn stage_class() -> Value {
    static CLASS: LazyLock<Value> = LazyLock::new(|| stage(|_| {}).class());
    CLASS.clone()
}

#[test]
fn reads_lag_behind_launches_and_ends() {
    let stage = stage(|options| options.faults.read_lag = Span::seconds(10, 10));
    let instance = stage.launch(&stage.order("a")).unwrap();
    assert!(stage.get(&instance).unwrap_err().is_not_found());
    assert!(stage.list().is_empty());
    stage.pass(Duration::from_secs(10));
    assert!(stage.get(&instance).is_ok());
    stage.end(&instance).unwrap();
    assert!(!stage.get(&instance).unwrap().is_ending);
    stage.pass(Duration::from_secs(10));
    assert!(stage.get(&instance).unwrap().is_ending);
}

#[test]
fn an_answer_may_take_its_time_but_the_machine_is_there() {
    let stage = stage(|options| options.faults.launch_answer = Span::seconds(30, 30));
    let order = Arc::new(stage.order("a"));
    let mut unheard = stage.cloud.launch(order.clone());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(unheard.as_mut().poll(&mut context).is_pending());
    drop(unheard);
    assert_eq!(stage.list().len(), 1);
    stage.launch(&order).unwrap();
    assert_eq!(stage.list().len(), 1);
    assert_eq!(stage.clock.now().0, START_MS + 30_000);
}

#[test]
fn spot_prices_wander_within_bounds_and_the_same_way_for_one_seed() {
    let prices = |seed: u64| {
        let stage = stage(|options| {
            options.seed = seed;
            options.faults.spot_price_swing = 0.4;
        });
        let price = |capacity| stage.cloud.price(&"m7i.large".into(), Some(&"eu-west-1a".into()), capacity).unwrap();
        let walk = |n: usize| {
            (0..n)
                .map(|_| {
                    stage.clock.advance(hours(1.0));
                    price(CapacityType::Spot).micros
                })
                .collect::<Vec<i64>>()
        };
        (walk(200), price(CapacityType::OnDemand).micros)
    };
    let calm =
        stage(|_| {}).cloud.price(&"m7i.large".into(), Some(&"eu-west-1a".into()), CapacityType::Spot).unwrap().micros;
    let (walk, on_demand) = prices(1);
    let (least, most) = (walk.iter().min().unwrap(), walk.iter().max().unwrap());
    assert!(
        *least >= calm * 6 / 10 - 1 && *most <= (calm * 14 / 10 + 1).min(on_demand),
        "{least} to {most} around {calm}"
    );
    assert!(most - least > calm / 5, "it hardly moves: {least} to {most}");
    // Most steps are small: it is a walk, not a lottery.
    let n_leaps = walk.windows(2).filter(|pair| (pair[1] - pair[0]).abs() > calm / 4).count();
    assert!(n_leaps < 40, "{n_leaps} leaps");
    assert_eq!(walk, prices(1).0);
    assert_ne!(walk, prices(2).0);
}

#[test]
fn the_bill_counts_every_machine_for_as_long_as_it_ran() {
    let stage = stage(|_| {});
    let (one, other) = (stage.launch(&stage.order("one")).unwrap(), stage.launch(&stage.order("other")).unwrap());
    let key = key_of(&one);
    let price = stage.cloud.price(&key.instance_type, Some(&key.zone), key.capacity_type).unwrap();
    assert_eq!(stage.cloud.bill().per_hour, price * 2);
    stage.pass(hours(1.0));
    stage.end(&one).unwrap();
    stage.pass(hours(1.0));
    let bill = stage.cloud.bill();
    assert_eq!(bill.spent_micros, price.micros * 3);
    assert_eq!(bill.per_hour, price);
    let lines: BTreeMap<_, _> = bill.lines.iter().map(|line| (line.provider_id.clone(), line)).collect();
    assert_eq!(lines[&one.provider_id].spent_micros, price.micros);
    assert_eq!(lines[&one.provider_id].until, Some(UnixMillis(START_MS + 3_600_000)));
    assert_eq!((lines[&other.provider_id].until, &lines[&other.provider_id].offering), (None, &key_of(&other)));
    // Long after a machine is forgotten its money is still spent.
    stage.end(&other).unwrap();
    stage.pass(hours(30.0));
    assert_eq!((stage.cloud.bill().spent_micros, stage.cloud.bill().lines.len()), (price.micros * 3, 2));
    assert_eq!(stage.cloud.bill().per_hour, Money::ZERO);
}

#[test]
fn a_spot_machine_is_paid_at_the_price_of_the_hour() {
    let stage = stage(|options| options.faults.spot_price_swing = 0.4);
    // The first price list ends at the next full hour.
    let to_the_hour = 3_600_000 - (stage.clock.now().0 % 3_600_000);
    stage.pass(Duration::from_millis(to_the_hour as u64));
    let instance = stage.launch(&stage.order("a")).unwrap();
    let key = key_of(&instance);
    let mut expected = 0;
    for _ in 0..5 {
        expected += stage.cloud.price(&key.instance_type, Some(&key.zone), key.capacity_type).unwrap().micros;
        stage.clock.advance(hours(1.0));
    }
    assert_eq!(stage.cloud.bill().spent_micros, expected);
}

#[test]
fn a_kwok_class_buys_kwok_machines_here_too() {
    let stage = stage(|_| {});
    let instance = stage.launch(&kwok_order("a")).unwrap();
    let machine = stage.machine();
    assert_eq!(*instance.provider_id, *format!("kwok://{}", machine.name));
    assert!(machine.name.starts_with("kwok-a-"));
    assert_eq!(machine.boot_delay, Duration::from_secs(20));
    assert_eq!(&*machine.labels["kwok-partition"], "a");
    assert!(
        instance.capacity.get("cpu") > kwok_order("a").requests.get("cpu"),
        "the machine's, not what was asked of it"
    );
    assert_eq!(machine.taints.len(), 1);
    let class = kwok_order("a").class_object.unwrap();
    assert!(finish(&stage.clock, stage.cloud.resolve_class(class.clone())).unwrap().status.is_null());
    assert_eq!(finish(&stage.clock, stage.cloud.drift(reference(&instance), class)).unwrap(), None);
    assert!(stage.cloud.bill().spent_micros > 0);
    // Its second machine has the name of the first; both are on the bill.
    stage.end(&instance).unwrap();
    stage.pass(Duration::from_secs(120));
    assert_eq!(stage.launch(&kwok_order("a")).unwrap().provider_id, instance.provider_id);
    assert_eq!(stage.cloud.bill().lines.len(), 2);
}

#[test]
fn one_seed_is_one_world() {
    let world = |seed: u64| {
        let stage = stage(|options| {
            options.seed = seed;
            options.faults = Faults { throttled_share: 0.0, ..Faults::bad_day() };
        });
        for n in 0..60 {
            let order = LaunchOrder { uid: n.to_string().into(), ..stage.order("a") };
            // Some of them fail; that is part of the world.
            drop(stage.launch(&order));
            stage.pass(Duration::from_secs(300));
        }
        let booted: Vec<String> =
            stage.yard.booted.lock().unwrap().values().map(|machine| format!("{machine:?}")).collect();
        (booted, stage.cloud.take_notices(), stage.cloud.bill())
    };
    let first = world(3);
    assert!(!first.1.is_empty(), "no notices in five hours of a bad day");
    assert_eq!(first, world(3));
    assert_ne!(first.0, world(4).0);
}

#[test]
fn the_repair_policies_are_ec2s_and_kwoks() {
    let told: Vec<String> = stage(|_| {})
        .cloud
        .repair_policies()
        .iter()
        .map(|policy| {
            format!("{}={} {} min", policy.condition, policy.status, policy.tolerate_for.as_secs_f64() / 60.0)
        })
        .collect();
    assert_eq!(
        told,
        [
            "Ready=False 30 min",
            "Ready=Unknown 30 min",
            "AcceleratedHardwareReady=False 10 min",
            "StorageReady=False 30 min",
            "NetworkingReady=False 30 min",
            "KernelReady=False 30 min",
            "ContainerRuntimeReady=False 30 min",
            "KWOKUnhealthy=True 0.5 min",
            "KWOKRebootRequired=True 0.5 min",
        ]
    );
}
