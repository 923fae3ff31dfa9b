use super::*;
use crate::by_hand::HandClock;
use crate::wire::TemplateData;
use crate::wire::scripted::Scripted;
use base64::Engine as _;
use kerf_model::{
    ClaimName, Effect, Labels, Money, NodeClassRef, Quantity, Requirement, Requirements, Resources, Taint,
};
use serde_json::{Value, json};
use std::task::{Context, Poll, Waker};

mod contents;
mod life;
mod names;

/// Every call is answered at once, so one look is enough.
fn now<T>(future: impl Future<Output = T>) -> T {
    match Box::pin(future).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("nothing here waits"),
    }
}

/// Pods as the type has them, and amounts that depend on the type where the class asks for them.
struct ByType;

impl Kubelets for ByType {
    fn kubelet_for(&self, class: &Ec2NodeClass, instance_type: &InstanceType) -> Result<ResolvedKubelet, CloudError> {
        let cpu = instance_type.capacity.get("cpu");
        let reserved = |setting: &str| {
            let written = class.spec.kubelet.as_ref().and_then(|kubelet| kubelet.get(setting)?.as_object().cloned());
            let resolve = |(key, value): (String, Value)| match value.as_str() {
                Some("per cpu") => (key, format!("{}m", cpu.units() * 10)),
                other => (key, other.unwrap_or_default().to_owned()),
            };
            written.into_iter().flatten().map(resolve).collect()
        };
        Ok(ResolvedKubelet {
            max_pods: u32::try_from(instance_type.capacity.get("pods").units()).unwrap(),
            kube_reserved: reserved("kubeReserved"),
            system_reserved: reserved("systemReserved"),
        })
    }
}

/// `name arch cpus pods efa`.
fn instance_type(text: &str) -> InstanceType {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [name, arch, cpus, pods, efa] = words[..] else { panic!("{text}") };
    let amount = |text: &str| Quantity::parse(text).unwrap();
    InstanceType {
        name: TypeName(name.into()),
        requirements: Requirements::new()
            .with("kubernetes.io/arch", Requirement::is_in([arch]))
            .with("karpenter.k8s.aws/instance-gpu-count", Requirement::does_not_exist()),
        offerings: Vec::new(),
        capacity: Resources::new()
            .with("cpu", amount(cpus))
            .with("pods", amount(pods))
            .with("vpc.amazonaws.com/efa", amount(efa)),
        overhead: Resources::new(),
        attach_limits: BTreeMap::new(),
    }
}

fn types() -> Vec<InstanceType> {
    ["m5.large amd64 2 29 0", "c5.large amd64 2 29 0", "m6g.large arm64 2 29 0", "c5n.18xlarge amd64 72 737 1"]
        .map(instance_type)
        .to_vec()
}

fn reserved_offering(id: &str, kind: &str, is_interruptible: &str) -> Offering {
    let mut offering = Offering::new("us-west-2a", CapacityType::Reserved, Money::default());
    for (key, value) in [
        (keys::CAPACITY_RESERVATION_ID, id),
        (keys::CAPACITY_RESERVATION_TYPE, kind),
        (keys::CAPACITY_RESERVATION_INTERRUPTIBLE, is_interruptible),
    ] {
        offering.require(key, Requirement::is_in([value]));
    }
    offering
}

/// A class of AL2023 with two images, resolved; `spec` is laid over it.
fn class(spec: Value) -> Ec2NodeClass {
    let mut object = json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "workers"},
        "spec": {
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
            "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
            "role": "nodes",
        },
        "status": {
            "instanceProfile": "demo_42",
            "securityGroups": [{"id": "sg-1"}, {"id": "sg-2"}],
            "amis": [image("ami-arm", "arm64"), image("ami-intel", "amd64")],
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn image(id: &str, arch: &str) -> Value {
    json!({"id": id, "name": id, "requirements": [
        {"key": "kubernetes.io/arch", "operator": "In", "values": [arch]},
        {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "DoesNotExist"},
    ]})
}

fn order() -> LaunchOrder {
    LaunchOrder {
        claim: ClaimName("default-x7k".into()),
        uid: "uid".into(),
        pool: Some(PoolName("default".into())),
        node_class: NodeClassRef {
            group: "karpenter.k8s.aws".into(),
            kind: "EC2NodeClass".into(),
            name: "workers".into(),
        },
        class_object: None,
        requirements: Requirements::new(),
        requests: Resources::new().with("cpu", Quantity::from_units(1)),
        labels: Labels::from([("karpenter.sh/nodepool".into(), "default".into())]),
        annotations: BTreeMap::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        avoid: Vec::new(),
    }
}

/// One launch, in parts that a test may change.
#[derive(Clone)]
struct Launch {
    class: Ec2NodeClass,
    order: LaunchOrder,
    types: Vec<InstanceType>,
    cluster: ClusterFacts,
    capacity_type: CapacityType,
    tenancy: &'static str,
    placement_group: Option<PlacementGroup>,
    settings: Settings,
}

impl Launch {
    fn new() -> Self {
        let cluster = ClusterFacts {
            endpoint: "https://demo.eks.test".to_owned(),
            ca_bundle: "Y2E=".to_owned(),
            service_cidr: Some("10.100.0.0/16".to_owned()),
            version: "1.35".to_owned(),
            dns: Some("10.100.0.10".parse().unwrap()),
        };
        let settings =
            Settings { cluster_name: "demo".to_owned(), region: "us-west-2".to_owned(), ..Settings::default() };
        Self {
            class: class(json!({})),
            order: order(),
            types: types(),
            cluster,
            capacity_type: CapacityType::OnDemand,
            tenancy: "default",
            placement_group: None,
            settings,
        }
    }

    fn of(spec: Value) -> Self {
        Self { class: class(spec), ..Self::new() }
    }

    fn wants(&self) -> TemplateWants<'_> {
        let wanted = |it| TypeWanted { instance_type: it, offerings: it.offerings.iter().collect() };
        TemplateWants {
            class: &self.class,
            order: &self.order,
            types: self.types.iter().map(wanted).collect(),
            supply: &ByType,
            cluster: &self.cluster,
            capacity_type: self.capacity_type,
            tenancy: self.tenancy,
            placement_group: self.placement_group.as_ref(),
            tags: tags(&self.class, self.order.pool.as_ref(), &self.settings.cluster_name),
        }
    }

    /// In an account of its own.
    fn ensure(&self) -> Result<(Vec<ReadyTemplate>, Scripted), CloudError> {
        let wire = Scripted::default();
        let templates = Templates::new(Arc::new(self.settings.clone()), Arc::new(HandClock::default()));
        Ok((now(templates.ensure_all(&wire, &self.wants()))?, wire))
    }

    /// What the first template says.
    fn data(&self) -> TemplateData {
        let (_, wire) = self.ensure().unwrap();
        wire.account().templates[0].1.clone()
    }

    /// The names of all templates.
    fn names(&self) -> Vec<String> {
        self.ensure().unwrap().0.into_iter().map(|ready| ready.name).collect()
    }
}

fn type_names(ready: &ReadyTemplate) -> Vec<&str> {
    ready.types.iter().map(|name| &*name.0).collect()
}
