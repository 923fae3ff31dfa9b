//! A cloud that does as the test says, and counts what it was asked.

#![allow(dead_code, reason = "each test file uses a part")]

use kerf_cloud::{
    Answer, Chore, ChoreReport, ClassStatus, CloudError, CloudProvider, InUse, Instance, InstanceRef, LaunchOrder,
    NodeClassKind, NodeSeen, RepairPolicy, TypesAsk,
};
use kerf_model::{CapacityType, InstanceType, Money, Quantity, Resources, Text, TypeName};
use kerf_simulation::{Rehearsal, Setup};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::future::{poll_fn, ready};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

/// Clones are the same cloud.
#[derive(Clone, Default)]
pub(crate) struct ScriptedCloud(Arc<Mutex<Script>>);

#[derive(Default)]
pub(crate) struct Script {
    /// Answers to the next launches; after them, launches succeed.
    pub(crate) failures: VecDeque<CloudError>,
    /// Every launch fails with this.
    pub(crate) always: Option<CloudError>,
    /// Launches happen, but nobody is told until this is false again.
    pub(crate) is_silent: bool,
    /// The same for the launches of one claim.
    pub(crate) silent_claim: Option<Text>,
    /// The same for lists.
    pub(crate) is_counting: bool,
    /// Those that live, by provider id.
    pub(crate) instances: BTreeMap<Text, Instance>,
    /// How often an instance says that it is ending before it is gone.
    pub(crate) n_endings: usize,
    pub(crate) endings: BTreeMap<Text, usize>,
    pub(crate) orders: Vec<Arc<LaunchOrder>>,
    pub(crate) n_launched: usize,
    pub(crate) n_terminations: usize,
    pub(crate) n_lists: usize,
    pub(crate) sold_out: Vec<kerf_cloud::OfferingKey>,
    /// What it says of every machine.
    pub(crate) drifted: Option<Text>,
    /// It cannot say.
    pub(crate) drift_failure: Option<CloudError>,
    pub(crate) n_drift_questions: usize,
    /// Whether its machines were taken over by a person; None: here that does not happen.
    pub(crate) released: Option<bool>,
    /// Whoever asks about that hears nothing until this is false again.
    pub(crate) is_release_held: bool,
    /// What it says instead.
    pub(crate) release_failure: Option<CloudError>,
    pub(crate) chores: Vec<Chore>,
    /// Answers to the next runs of chores; after them there is nothing to report.
    pub(crate) reports: VecDeque<Result<ChoreReport, CloudError>>,
    /// Which chore ran, and what the cluster used then.
    pub(crate) runs: Vec<(&'static str, Arc<InUse>)>,
    /// Annotations that say that an instance is labelled; without any, instances are not labelled.
    pub(crate) marks: BTreeMap<Text, Text>,
    pub(crate) labelled: Vec<InstanceRef>,
    /// A label that is empty at the launch.
    pub(crate) late_label: Option<&'static str>,
    /// What registered nodes showed: instance type, image and CPU.
    pub(crate) seen: Vec<(String, String, i64)>,
}

impl ScriptedCloud {
    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap()
    }

    /// Answers once nothing holds the answer back any more.
    fn say<T: Send + Unpin + 'static>(
        &self,
        result: Result<T, CloudError>,
        is_held: impl Fn(&Script) -> bool + Send + 'static,
    ) -> Answer<T> {
        let cloud = self.clone();
        let mut result = Some(result);
        Box::pin(poll_fn(move |_| match is_held(&cloud.script()) {
            true => Poll::Pending,
            false => Poll::Ready(result.take().expect("an answer is given once")),
        }))
    }
}

impl CloudProvider for ScriptedCloud {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn node_classes(&self) -> Vec<NodeClassKind> {
        let (group, version) = ("karpenter.kwok.sh", "v1alpha1");
        let plain = NodeClassKind::plain(group, version, "KWOKNodeClass", "kwoknodeclasses");
        vec![NodeClassKind { hash: Some((CLASS_HASH, CLASS_HASH_VERSION)), ..plain }]
    }

    fn well_known_labels(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn instance_types(&self, _: &TypesAsk<'_>) -> Result<Arc<[Arc<InstanceType>]>, CloudError> {
        Ok(Arc::from([]))
    }

    fn late_labels(&self) -> Vec<&'static str> {
        self.script().late_label.into_iter().collect()
    }

    fn price(&self, _: &TypeName, _: Option<&Text>, _: CapacityType) -> Option<Money> {
        None
    }

    fn launch(&self, order: Arc<LaunchOrder>) -> Answer<Instance> {
        let mut script = self.script();
        script.orders.push(order.clone());
        let id: Text = format!("scripted://{}-{}", order.claim, order.uid).into();
        let claim = order.claim.0.clone();
        let is_held = move |script: &Script| script.is_silent || script.silent_claim.as_ref() == Some(&claim);
        let failure = script.always.clone().or_else(|| script.failures.pop_front());
        if let Some(failure) = failure {
            drop(script);
            return self.say(Err(failure), is_held);
        }
        if !script.instances.contains_key(&id) {
            script.n_launched += 1;
            let amounts = |milli| {
                Resources::new()
                    .with("cpu", Quantity::from_milli(milli))
                    .with("memory", Quantity::from_units(8 << 30))
                    .with("pods", Quantity::from_units(110))
            };
            let label = |key: &str, value: &str| (Text::from(key), Text::from(value));
            let instance = Instance {
                provider_id: id.clone(),
                image_id: "image-1".into(),
                claim: order.claim.0.clone(),
                labels: BTreeMap::from([
                    label("node.kubernetes.io/instance-type", "large"),
                    label("topology.kubernetes.io/zone", "zone-a"),
                    label("karpenter.sh/capacity-type", "on-demand"),
                ])
                .into(),
                annotations: BTreeMap::from([label("example.com/cloud", "scripted")]),
                capacity: amounts(4_000).into(),
                allocatable: amounts(3_900).into(),
                sold_out: script.sold_out.clone(),
                ..Instance::default()
            };
            let mut instance = instance;
            Arc::make_mut(&mut instance.labels).extend(script.late_label.map(|key| label(key, "")));
            script.instances.insert(id.clone(), instance);
        }
        let instance = script.instances[&id].clone();
        drop(script);
        self.say(Ok(instance), is_held)
    }

    fn terminate(&self, instance: InstanceRef) -> Answer<()> {
        let mut script = self.script();
        script.n_terminations += 1;
        let (id, n_endings) = (instance.provider_id, script.n_endings);
        let so_far = script.endings.entry(id.clone()).or_insert(0);
        *so_far += 1;
        let is_over = *so_far > n_endings;
        if is_over {
            script.instances.remove(&id);
            return Box::pin(ready(Err(CloudError::NotFound { what: id })));
        }
        Box::pin(ready(Ok(())))
    }

    fn get(&self, provider_id: Text) -> Answer<Instance> {
        let found = self.script().instances.get(&provider_id).cloned();
        Box::pin(ready(found.ok_or(CloudError::NotFound { what: provider_id })))
    }

    fn list(&self) -> Answer<Vec<Instance>> {
        let mut script = self.script();
        script.n_lists += 1;
        let all = script.instances.values().cloned().collect();
        drop(script);
        self.say(Ok(all), |script| script.is_counting)
    }

    fn reboot(&self, _: InstanceRef, _: Text) -> Answer<()> {
        Box::pin(ready(Err(CloudError::Unsupported { what: "a reboot".into() })))
    }

    fn resolve_class(&self, _: Arc<Value>) -> Answer<ClassStatus> {
        Box::pin(ready(Ok(ClassStatus::default())))
    }

    fn drift(&self, _: InstanceRef, _: Arc<Value>) -> Answer<Option<Text>> {
        let mut script = self.script();
        script.n_drift_questions += 1;
        let answer = match &script.drift_failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(script.drifted.clone()),
        };
        Box::pin(ready(answer))
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        Vec::new()
    }

    fn label_instance(&self, instance: InstanceRef) -> Answer<BTreeMap<Text, Text>> {
        let mut script = self.script();
        if script.marks.is_empty() {
            return Box::pin(ready(Err(CloudError::Unsupported { what: "labelling".into() })));
        }
        script.labelled.push(instance);
        let answer = match script.failures.pop_front() {
            Some(failure) => Err(failure),
            None => Ok(script.marks.clone()),
        };
        Box::pin(ready(answer))
    }

    fn released(&self, _: Text) -> Option<Answer<bool>> {
        let script = self.script();
        let released = script.released?;
        let answer = script.release_failure.clone().map_or(Ok(released), Err);
        drop(script);
        Some(self.say(answer, |script| script.is_release_held))
    }

    fn chores(&self) -> Vec<Chore> {
        self.script().chores.clone()
    }

    fn run_chore(&self, name: &'static str, in_use: Arc<InUse>) -> Answer<ChoreReport> {
        let mut script = self.script();
        script.runs.push((name, in_use));
        Box::pin(ready(script.reports.pop_front().unwrap_or_else(|| Ok(ChoreReport::default()))))
    }

    fn learn(&self, node: &NodeSeen<'_>) {
        let cores = node.capacity.get("cpu").units();
        self.script().seen.push((node.instance_type.to_owned(), node.image_id.to_owned(), cores));
    }
}

pub(crate) const CLASS_HASH: &str = "example.com/class-hash";
pub(crate) const CLASS_HASH_VERSION: &str = "example.com/class-hash-version";
pub(crate) const CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";

pub(crate) const CLASS: &str = "
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: default}
spec: {}
";

/// A cluster with a class, an operator with these duties, and a scripted cloud.
pub(crate) fn rehearse(duties: fn() -> Vec<Box<dyn kerf_controllers::Duty>>) -> (Rehearsal, ScriptedCloud) {
    rehearse_with(Setup::default().with_duties(duties))
}

pub(crate) fn rehearse_with(setup: Setup) -> (Rehearsal, ScriptedCloud) {
    let cloud = ScriptedCloud::default();
    let of_setup = cloud.clone();
    let mut rehearsal = Rehearsal::new(setup.with_cloud(move |_| Arc::new(of_setup.clone())));
    rehearsal.create(CLASS);
    (rehearsal, cloud)
}

/// A claim that a person made, with more of its spec as JSON.
pub(crate) fn claim(name: &str, spec: &Value) -> Value {
    let mut claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name},
        "spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
        },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        claim["spec"][key] = value.clone();
    }
    claim
}

pub(crate) fn get_claim(rehearsal: &Rehearsal, name: &str) -> Value {
    rehearsal.get(&format!("{CLAIMS}/{name}")).unwrap_or_else(|| panic!("there is no claim {name}"))
}

pub(crate) fn has_claim(rehearsal: &Rehearsal, name: &str) -> bool {
    rehearsal.get(&format!("{CLAIMS}/{name}")).is_some()
}

/// A condition of an object, as `status reason`.
pub(crate) fn condition(object: &Value, kind: &str) -> String {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    found.map_or("absent".to_owned(), |it| {
        format!("{} {}", it["status"].as_str().unwrap_or_default(), it["reason"].as_str().unwrap_or_default())
    })
}

/// A Node for a launched claim. `is_alive` gives it a kubelet, which makes it Ready.
pub(crate) fn node_for(rehearsal: &Rehearsal, claim: &str, is_alive: bool) -> Value {
    let claim = get_claim(rehearsal, claim);
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("node-of-{}", claim["metadata"]["name"].as_str().unwrap())},
        "spec": {
            "providerID": claim["status"]["providerID"],
            "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}],
        },
        "status": {"capacity": claim["status"]["capacity"], "allocatable": claim["status"]["allocatable"]},
    });
    if is_alive {
        node["metadata"]["annotations"] = json!({"kwok.x-k8s.io/node": "fake"});
    }
    node
}

/// Lets a claim's machine join the cluster, alive.
pub(crate) fn join(rehearsal: &mut Rehearsal, claim: &str) {
    let node = node_for(rehearsal, claim, true);
    rehearsal.create_value(&node);
}

/// Takes our finalizer off a Node, as its drain does at its end.
pub(crate) fn let_go(rehearsal: &mut Rehearsal, node: &str) {
    rehearsal.patch(&format!("/api/v1/nodes/{node}"), &json!({"metadata": {"finalizers": null}}));
}

/// Brings a claim to Ready.
pub(crate) fn make_ready(rehearsal: &mut Rehearsal, name: &str, spec: &Value) {
    rehearsal.create_value(&claim(name, spec));
    rehearsal.settle();
    join(rehearsal, name);
    rehearsal.run_until("the claim is ready", 60, |it| condition(&get_claim(it, name), "Ready") == "True Ready");
}

/// Whether the metrics page has this line.
pub(crate) fn counts(rehearsal: &Rehearsal, line: &str) -> bool {
    rehearsal.operator().metrics().render().lines().any(|it| it == line)
}
