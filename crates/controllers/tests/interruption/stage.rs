//! A simulated EC2 whose notices come through a queue like SQS, read by the provider's own queue client.

use kerf_cloud::{
    Answer, ClassStatus, CloudError, CloudProvider, Instance, InstanceRef, LaunchOrder, NodeClassKind, Notice,
    RepairPolicy, TypesAsk,
};
use kerf_cloud_aws::interruption::Queue;
use kerf_cloud_aws::wire::scripted::Scripted;
use kerf_cloud_aws::wire::{Failure, QueueMessage};
use kerf_cloud_sim::{SimCloud, SimOptions};
use kerf_control_plane::ControlPlane;
use kerf_control_plane::clock::Clock;
use kerf_controllers::Rebalance;
use kerf_model::{CapacityType, InstanceType, Money, Text, TypeName};
use kerf_simulation::{Rehearsal, Setup, sim_cloud};
use serde_json::{Value, json};
use std::future::{poll_fn, ready};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker};

const QUEUE: &str = "home";
/// As the queue of the contract: hidden for so long once received, and a long poll of the same length.
const HIDDEN_MS: i64 = 20_000;

/// The post office: messages, and who has which in hand. Clones are the same.
#[derive(Clone)]
pub(crate) struct Mail(Arc<Inner>);

struct Inner {
    aws: Scripted,
    queue: Queue,
    state: Mutex<State>,
    cloud: OnceLock<SimCloud>,
    clock: OnceLock<Clock>,
}

#[derive(Default)]
struct State {
    letters: Vec<Letter>,
    n_sent: usize,
    n_received: usize,
    n_refused: usize,
}

struct Letter {
    message: QueueMessage,
    visible_ms: i64,
}

impl Mail {
    fn new() -> Self {
        let aws = Scripted::default();
        aws.account().queues.insert(QUEUE.to_owned(), Vec::new());
        Self(Arc::new(Inner {
            aws,
            queue: Queue::new(QUEUE, "us-east-1"),
            state: Mutex::default(),
            cloud: OnceLock::new(),
            clock: OnceLock::new(),
        }))
    }

    pub(crate) fn cloud(&self) -> &SimCloud {
        self.0.cloud.get().unwrap()
    }

    pub(crate) fn aws(&self) -> &Scripted {
        &self.0.aws
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    fn now_ms(&self) -> i64 {
        self.0.clock.get().unwrap().now().as_millisecond()
    }

    pub(crate) fn send(&self, body: impl Into<String>) {
        let now_ms = self.now_ms();
        let mut state = self.state();
        state.n_sent += 1;
        let id = format!("m-{}", state.n_sent);
        let message = QueueMessage { id, receipt: String::new(), body: body.into(), sent_ms: now_ms };
        state.letters.push(Letter { message, visible_ms: now_ms });
    }

    /// Messages that nobody has deleted.
    pub(crate) fn n_left(&self) -> usize {
        self.state().letters.len()
    }

    /// One receive: up to ten messages that nobody has in hand, each under a receipt of its own.
    fn receive(&self) -> Option<Result<Vec<Notice>, CloudError>> {
        let now_ms = self.now_ms();
        let mut state = self.state();
        let n_before = state.n_received;
        let mut taken = Vec::new();
        for (place, letter) in
            state.letters.iter_mut().filter(|letter| letter.visible_ms <= now_ms).take(10).enumerate()
        {
            letter.visible_ms = now_ms + HIDDEN_MS;
            letter.message.receipt = format!("{}#{}", letter.message.id, n_before + place);
            taken.push(letter.message.clone());
        }
        state.n_received += taken.len();
        drop(state);
        let is_broken = self.aws().account().always.contains_key("sqs:ReceiveMessage")
            || !self.aws().account().queues.contains_key(QUEUE);
        if taken.is_empty() && !is_broken {
            return None;
        }
        if let Some(queue) = self.aws().account().queues.get_mut(QUEUE) {
            *queue = taken;
        }
        Some(at_once(self.0.queue.notices(self.aws())))
    }

    fn delete(&self, receipts: Vec<Text>) -> Result<(), CloudError> {
        // What the client deletes is gone from the queue of the account; the rest stays ours.
        let sent: Vec<QueueMessage> = self.state().letters.iter().map(|letter| letter.message.clone()).collect();
        if let Some(queue) = self.aws().account().queues.get_mut(QUEUE) {
            *queue = sent;
        }
        let answer = at_once(self.0.queue.acknowledge(self.aws(), receipts));
        let left: Vec<String> =
            self.aws().account().queues.get(QUEUE).into_iter().flatten().map(|message| message.id.clone()).collect();
        self.state().letters.retain(|letter| left.contains(&letter.message.id));
        answer
    }

    /// How often somebody listened although there is no queue.
    pub(crate) fn n_refused(&self) -> usize {
        self.state().n_refused
    }

    pub(crate) fn break_queue(&self) {
        self.aws().account().queues.remove(QUEUE);
        self.aws().fail_next(Failure::new("sqs:ReceiveMessage", "AWS.SimpleQueueService.NonExistentQueue", "gone"));
    }

    pub(crate) fn mend_queue(&self) {
        self.aws().account().queues.insert(QUEUE.to_owned(), Vec::new());
    }
}

fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a scripted AWS answers at once"),
    }
}

/// The simulated EC2, but for its notices: they come through the queue, or not at all.
struct Mailed(Mail, HasQueue);

type HasQueue = bool;

impl CloudProvider for Mailed {
    fn name(&self) -> &'static str {
        "aws"
    }

    fn node_classes(&self) -> Vec<NodeClassKind> {
        self.0.cloud().node_classes()
    }

    fn well_known_labels(&self) -> Vec<&'static str> {
        self.0.cloud().well_known_labels()
    }

    fn instance_types(&self, ask: &TypesAsk<'_>) -> Result<Arc<[Arc<InstanceType>]>, CloudError> {
        self.0.cloud().instance_types(ask)
    }

    fn price(&self, instance_type: &TypeName, zone: Option<&Text>, capacity_type: CapacityType) -> Option<Money> {
        self.0.cloud().price(instance_type, zone, capacity_type)
    }

    fn launch(&self, order: Arc<LaunchOrder>) -> Answer<Instance> {
        self.0.cloud().launch(order)
    }

    fn terminate(&self, instance: InstanceRef) -> Answer<()> {
        self.0.cloud().terminate(instance)
    }

    fn get(&self, provider_id: Text) -> Answer<Instance> {
        self.0.cloud().get(provider_id)
    }

    fn list(&self) -> Answer<Vec<Instance>> {
        self.0.cloud().list()
    }

    fn reboot(&self, instance: InstanceRef, operation: Text) -> Answer<()> {
        self.0.cloud().reboot(instance, operation)
    }

    fn resolve_class(&self, class: Arc<Value>) -> Answer<ClassStatus> {
        self.0.cloud().resolve_class(class)
    }

    fn drift(&self, instance: InstanceRef, class: Arc<Value>) -> Answer<Option<Text>> {
        self.0.cloud().drift(instance, class)
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        self.0.cloud().repair_policies()
    }

    fn notices(&self) -> Answer<Vec<Notice>> {
        let mail = self.0.clone();
        if !self.1 {
            mail.state().n_refused += 1;
            return Box::pin(ready(Err(CloudError::Unsupported { what: "notices without a queue".into() })));
        }
        let until = mail.now_ms() + HIDDEN_MS;
        // Under a virtual clock it is looked at whenever the clock has moved.
        Box::pin(poll_fn(move |_| match mail.receive() {
            Some(answer) => Poll::Ready(answer),
            None if mail.now_ms() >= until => Poll::Ready(Ok(Vec::new())),
            None => Poll::Pending,
        }))
    }

    fn acknowledge(&self, receipts: Vec<Text>) -> Answer<()> {
        Box::pin(ready(self.0.delete(receipts)))
    }
}

pub(crate) fn setup() -> Setup {
    Setup::default().for_ec2()
}

pub(crate) fn replacing() -> Setup {
    let mut setup = setup();
    setup.options.rebalance = Rebalance::Replace;
    setup
}

fn make_cloud(plane: &ControlPlane) -> SimCloud {
    sim_cloud(plane, SimOptions::default()).unwrap()
}

/// A cluster on the simulated EC2, whose notices come through the queue.
pub(crate) fn mailed(setup: Setup) -> (Rehearsal, Mail) {
    with_queue(setup, true)
}

/// The same without a queue.
pub(crate) fn mute(setup: Setup) -> (Rehearsal, Mail) {
    with_queue(setup, false)
}

fn with_queue(setup: Setup, has_queue: HasQueue) -> (Rehearsal, Mail) {
    let mail = Mail::new();
    let of_cloud = mail.clone();
    let setup = setup.with_cloud(move |plane| {
        of_cloud.0.cloud.get_or_init(|| make_cloud(plane));
        of_cloud.0.clock.get_or_init(|| plane.server().lock().clock.clone());
        Arc::new(Mailed(of_cloud.clone(), has_queue))
    });
    (Rehearsal::new(setup), mail)
}

/// The same, where the simulated cloud speaks for itself.
pub(crate) fn spoken(setup: Setup) -> (Rehearsal, SimCloud) {
    let cell: Arc<OnceLock<SimCloud>> = Arc::default();
    let of_setup = cell.clone();
    let setup = setup.with_cloud(move |plane| Arc::new(of_setup.get_or_init(|| make_cloud(plane)).clone()));
    let rehearsal = Rehearsal::new(setup);
    let cloud = cell.get().unwrap().clone();
    (rehearsal, cloud)
}

/// A class and a spot pool named `default`, and a deployment of so many pods of a CPU each, all running.
pub(crate) fn populate(scene: &mut Rehearsal, n_pods: usize, change: impl FnOnce(&mut Value)) {
    scene.create(
        "{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: default}, spec: {role: r, \
         amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{tags: {a: b}}], \
         securityGroupSelectorTerms: [{tags: {a: b}}]}}",
    );
    scene.create_value(&json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
                    {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["m", "c"]},
                    {"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["4"]},
                ],
                "expireAfter": "Never",
            }},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s",
                "budgets": [{"nodes": "100%"}]},
        },
    }));
    let mut spec = json!({
        "terminationGracePeriodSeconds": 30,
        "containers": [{"name": "main", "image": "web", "resources": {"requests": {"cpu": "1"}}}],
    });
    change(&mut spec);
    let annotations = spec.as_object_mut().unwrap().remove("annotations").unwrap_or_default();
    scene.create_value(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": n_pods, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}, "annotations": annotations}, "spec": spec},
        },
    }));
    scene.run_until("all to run", 300, |scene| n_running(scene) == n_pods);
    scene.run_until("all to be initialized", 60, |scene| {
        scene.claims().iter().all(|claim| status_of(claim, "Initialized") == "True")
    });
}

/// Pods that run, and that nobody has asked to leave.
pub(crate) fn n_running(scene: &Rehearsal) -> usize {
    let runs = |pod: &&Value| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
    scene.pods().iter().filter(runs).count()
}

pub(crate) fn status_of(object: &Value, kind: &str) -> String {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or_default().to_owned()
}

pub(crate) fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

pub(crate) fn claim_path(name: &str) -> String {
    format!("/apis/karpenter.sh/v1/nodeclaims/{name}")
}

pub(crate) fn is_going(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// `i-…` of a claim.
pub(crate) fn instance_of(claim: &Value) -> String {
    claim["status"]["providerID"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()
}

/// An event as EventBridge wraps it. `id` makes copies recognisable.
pub(crate) fn event(scene: &Rehearsal, id: &str, source: &str, detail_type: &str, detail: &Value) -> String {
    json!({
        "version": "0", "id": id, "account": "111122223333", "region": "us-east-1", "time": scene.now().to_string(),
        "resources": [], "source": source, "detail-type": detail_type, "detail": detail,
    })
    .to_string()
}

pub(crate) fn spot_warning(scene: &Rehearsal, id: &str, instance: &str) -> String {
    let detail = json!({"instance-id": instance, "instance-action": "terminate"});
    event(scene, id, "aws.ec2", "EC2 Spot Instance Interruption Warning", &detail)
}

pub(crate) fn rebalance(scene: &Rehearsal, id: &str, instance: &str) -> String {
    event(scene, id, "aws.ec2", "EC2 Instance Rebalance Recommendation", &json!({"instance-id": instance}))
}

pub(crate) fn state_change(scene: &Rehearsal, id: &str, instance: &str, state: &str) -> String {
    let detail = json!({"instance-id": instance, "state": state});
    event(scene, id, "aws.ec2", "EC2 Instance State-change Notification", &detail)
}

pub(crate) fn scheduled_change(scene: &Rehearsal, id: &str, instance: &str) -> String {
    let detail = json!({
        "service": "EC2", "eventTypeCategory": "scheduledChange", "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
        "affectedEntities": [{"entityValue": instance}],
    });
    event(scene, id, "aws.health", "AWS Health Event", &detail)
}

/// As Auto Scaling sends it to a queue by itself.
pub(crate) fn lifecycle_hook(instance: &str) -> String {
    json!({
        "LifecycleHookName": "hook", "AccountId": "111122223333", "RequestId": format!("q-{instance}"),
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING", "AutoScalingGroupName": "group",
        "Service": "AWS Auto Scaling", "EC2InstanceId": instance, "LifecycleActionToken": "token",
    })
    .to_string()
}

/// The same about an instance that its group has launched.
pub(crate) fn launch_hook(instance: &str) -> String {
    lifecycle_hook(instance).replace("EC2_INSTANCE_TERMINATING", "EC2_INSTANCE_LAUNCHING")
}

/// The sum of all series whose name and labels contain every part.
pub(crate) fn metric(scene: &Rehearsal, parts: &[&str]) -> f64 {
    let page = scene.operator().metrics().render();
    let lines = page.lines().filter(|line| !line.starts_with('#') && parts.iter().all(|part| line.contains(part)));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// A node of the cluster that no claim of ours stands for, with a kubelet.
pub(crate) fn add_guest(scene: &mut Rehearsal, name: &str, instance: &str) {
    scene.create_value(&json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"eks.amazonaws.com/nodegroup": "managed", "kubernetes.io/hostname": name}},
        "spec": {"providerID": format!("aws:///us-east-1a/{instance}")},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
    }));
    let path = format!("/api/v1/nodes/{name}");
    scene.run_until("the node is ready", 30, |scene| status_of(&scene.get(&path).unwrap(), "Ready") == "True");
}
