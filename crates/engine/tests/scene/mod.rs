//! Clusters in a few words: one line per thing, so that a test reads like the story it tells.
//!
//! ```text
//! type m.large 2cpu 8Gi $0.10 [spot $0.04] [zones a,b] [gpu 1] [reserved r-1=2]
//! pool default [weight 5] [limit cpu=8] [taint gpu=true:NoSchedule] [label team=red] [need KEY In v1,v2] [min KEY 2]
//! node n1 4cpu 16Gi [zone a] [label team=red] [runs app=web 2]
//! daemon agent 1cpu 1Gi
//! pod web 2cpu 4Gi [x 5] [app NAME] [select KEY=v] [prefer KEY=v] [tolerate KEY] [spread KEY] [apart KEY] [beside KEY app] [port 80]
//! ```

use kerf_engine::{audit, plan_capacity};
use kerf_model::{
    Binder, BoundGroup, BoundShape, CapacityType, Daemon, Demand, DemandIdx, Effect, Effort, HostPort, InstanceType,
    LabelSelector, Labels, Money, NamespaceName, Namespaces, Node, NodeClassRef, NodeIdx, NodePolicy, NodeStage,
    Offering, Operator, PendingPod, Plan, PodId, PodTerm, Pool, Quantity, Readiness, Report, Requirement, Requirements,
    Resources, Snapshot, Spread, Step, Taint, Text, Toleration, TolerationOperator, UnixMillis, WhenUnsatisfiable,
    labels,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Plans the scene, audits the plan, and compares what people would read.
#[track_caller]
pub(crate) fn check(scene: &str, expected: &str) {
    let (plan, report) = plan(&snapshot(scene));
    let told = render(&plan, &report);
    let wanted: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(told, wanted, "\n{}", told.join("\n"));
}

#[track_caller]
pub(crate) fn plan(snapshot: &Snapshot) -> (Plan, Report) {
    let (plan, report) = plan_capacity(snapshot, &Effort::default());
    audit(snapshot, &plan).unwrap_or_else(|breaches| panic!("{breaches:?}"));
    (plan, report)
}

/// Alike launches are told once, with how many there are.
pub(crate) fn render(plan: &Plan, report: &Report) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut launches: BTreeMap<String, usize> = BTreeMap::new();
    for step in &plan.steps {
        match step {
            Step::Place(placement) => lines.push(format!("place {} on {}", who(&placement.pods), placement.node)),
            Step::Launch(launch) => {
                let first = &launch.any_of[0];
                let zone = launch.requirements.get(labels::ZONE).and_then(Requirement::single);
                let zone = zone.map_or(String::new(), |zone| format!(" in {zone}"));
                let kind = match first.capacity_type {
                    Some(CapacityType::OnDemand) | None => "",
                    Some(CapacityType::Spot) => " spot",
                    Some(CapacityType::Reserved) => " reserved",
                };
                let what = format!(
                    "{}{kind} {} from {}{zone} for {}",
                    first.instance_type,
                    first.price,
                    launch.pool,
                    who(&launch.for_pods)
                );
                *launches.entry(what).or_default() += 1;
            }
        }
    }
    lines.extend(launches.into_iter().map(|(what, n)| format!("launch {n} x {what}")));
    let mut refused: BTreeMap<String, Vec<PodId>> = BTreeMap::new();
    for (pod, refusal) in &report.refused {
        refused.entry(refusal.to_string()).or_default().push(pod.clone());
    }
    lines.extend(refused.into_iter().map(|(why, pods)| format!("refuse {}: {why}", who(&pods))));
    lines
}

/// `web x3, db`: pods by the name of their line.
fn who(pods: &[PodId]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in pods {
        *counts.entry(pod.name.rsplit_once('-').map_or(&*pod.name, |(base, _)| base)).or_default() += 1;
    }
    let told = counts.into_iter().map(|(name, n)| if n == 1 { name.to_owned() } else { format!("{name} x{n}") });
    told.collect::<Vec<_>>().join(", ")
}

pub(crate) fn snapshot(scene: &str) -> Snapshot {
    let mut out = Snapshot::default();
    out.settings.placed_by = Binder::Kerf;
    let mut types: Vec<Arc<InstanceType>> = Vec::new();
    let lines: Vec<Vec<&str>> = scene.lines().map(|line| line.split_whitespace().collect()).collect();
    for words in lines.iter().filter(|words| words.first() == Some(&"type")) {
        types.push(Arc::new(instance_type(words)));
    }
    let types: Arc<[Arc<InstanceType>]> = types.into();
    for words in &lines {
        match words.first() {
            Some(&"pool") => out.pools.push(pool(words, &types)),
            Some(&"node") => node(words, &mut out),
            Some(&"daemon") => out.daemons.push(Daemon { name: words[1].into(), demand: Arc::new(demand(words)) }),
            Some(&"pod") => pods(words, &mut out),
            Some(&"type") | None => {}
            Some(other) => panic!("what is a {other:?}?"),
        }
    }
    out
}

/// The words after each occurrence of a key.
fn after<'w>(words: &[&'w str], key: &str) -> Vec<&'w str> {
    words.windows(2).filter(|pair| pair[0] == key).map(|pair| pair[1]).collect()
}

fn amounts(words: &[&str]) -> Resources {
    let cpu = words[2].strip_suffix("cpu").unwrap_or(words[2]);
    let mut out = Resources::new().with("cpu", parse(cpu)).with("memory", parse(words[3]));
    for gpu in after(words, "gpu") {
        out.set("example.com/gpu", parse(gpu));
    }
    out
}

fn parse(text: &str) -> Quantity {
    Quantity::parse(text).expect("a sound scene")
}

fn dollars(text: &str) -> Money {
    Money::from_dollars(text.trim_start_matches('$').parse().expect("a sound scene"))
}

fn instance_type(words: &[&str]) -> InstanceType {
    let name = words[1];
    let zones: Vec<&str> = after(words, "zones").first().map_or(vec!["a"], |zones| zones.split(',').collect());
    let on_demand = words.iter().find(|word| word.starts_with('$')).map(|price| dollars(price)).expect("a sound scene");
    let mut offerings: Vec<Offering> =
        zones.iter().map(|zone| Offering::new(zone, CapacityType::OnDemand, on_demand)).collect();
    for price in after(words, "spot") {
        offerings.extend(zones.iter().map(|zone| Offering::new(zone, CapacityType::Spot, dollars(price))));
    }
    for (id, n) in after(words, "reserved").iter().filter_map(|text| text.split_once('=')) {
        let mut offering = Offering::new(zones[0], CapacityType::Reserved, Money::from_micros(1));
        offering.require(labels::AWS_RESERVATION_ID, Requirement::is_in([id]));
        offering.reservation_capacity = n.parse().ok();
        offerings.push(offering);
    }
    let kinds: BTreeSet<&str> =
        offerings.iter().filter_map(|offering| Some(offering.capacity_type()?.as_str())).collect();
    let family = name.split('.').next().unwrap_or(name);
    InstanceType {
        name: name.into(),
        requirements: Requirements::new()
            .with(labels::INSTANCE_TYPE, Requirement::is_in([name]))
            .with(labels::ZONE, Requirement::is_in(zones.iter().copied()))
            .with(labels::CAPACITY_TYPE, Requirement::is_in(kinds))
            .with("family", Requirement::is_in([family])),
        offerings,
        capacity: amounts(words).with("pods", Quantity::from_units(110)),
        overhead: Resources::new(),
        attach_limits: BTreeMap::new(),
    }
}

fn pool(words: &[&str], types: &Arc<[Arc<InstanceType>]>) -> Pool {
    let mut requirements = Requirements::new();
    for (at, _) in words.iter().enumerate().filter(|(_, word)| **word == "need") {
        let values: Vec<Text> = words[at + 3].split(',').map(Into::into).collect();
        let operator = Operator::parse(words[at + 2]).expect("a sound scene");
        requirements.add(words[at + 1], Requirement::new(operator, &values).expect("a sound scene"));
    }
    for (at, _) in words.iter().enumerate().filter(|(_, word)| **word == "min") {
        let min_values = words[at + 2].parse().ok();
        requirements.add(words[at + 1], Requirement { min_values, ..Requirement::exists() });
    }
    Pool {
        name: words[1].into(),
        weight: after(words, "weight").first().map_or(0, |weight| weight.parse().expect("a sound scene")),
        labels: pairs(&after(words, "label")),
        requirements,
        taints: after(words, "taint").into_iter().map(taint).collect(),
        startup_taints: Vec::new(),
        limits: after(words, "limit")
            .into_iter()
            .filter_map(|text| text.split_once('='))
            .map(|(name, amount)| (name, parse(amount)))
            .collect(),
        in_use: Resources::new(),
        node_class: NodeClassRef { group: "example.com".into(), kind: "Class".into(), name: "default".into() },
        types: Arc::clone(types),
        is_static: false,
        readiness: Readiness::Ready,
    }
}

fn taint(text: &str) -> Taint {
    let (rest, effect) = text.split_once(':').expect("a sound scene");
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    Taint { key: key.into(), value: value.into(), effect: Effect::parse(effect).expect("a sound scene") }
}

fn pairs(texts: &[&str]) -> Labels {
    texts.iter().filter_map(|text| text.split_once('=')).map(|(key, value)| (key.into(), value.into())).collect()
}

fn node(words: &[&str], out: &mut Snapshot) {
    let name = words[1];
    let mut labels = pairs(&after(words, "label"));
    labels.insert(labels::HOSTNAME.into(), name.into());
    for zone in after(words, "zone") {
        labels.insert(labels::ZONE.into(), zone.into());
    }
    let allocatable = amounts(words).with("pods", Quantity::from_units(110));
    let index = NodeIdx(out.nodes.len() as u32);
    for (at, _) in words.iter().enumerate().filter(|(_, word)| **word == "runs") {
        let shape =
            BoundShape { namespace: NamespaceName::default(), labels: pairs(&[words[at + 1]]), anti_affinity: vec![] };
        let n_pods = words[at + 2].parse().expect("a sound scene");
        out.bound.push(BoundGroup { node: index, shape: Arc::new(shape), n_pods });
    }
    out.nodes.push(Node {
        name: name.into(),
        pool: None,
        stage: if words.contains(&"coming") { NodeStage::InFlight } else { NodeStage::Initialized },
        labels,
        hostname: name.into(),
        taints: after(words, "taint").into_iter().map(taint).collect(),
        capacity: allocatable.clone(),
        allocatable,
        used: Resources::new(),
        used_by_daemons: Resources::new(),
        host_ports: Vec::new(),
        attached: BTreeMap::new(),
        attach_limits: BTreeMap::new(),
        instance_type: None,
        price: None,
    });
}

fn pods(words: &[&str], out: &mut Snapshot) {
    let n: usize = after(words, "x").first().map_or(1, |n| n.parse().expect("a sound scene"));
    let index = DemandIdx(out.demands.len() as u32);
    out.demands.push(Arc::new(demand(words)));
    for number in 0..n {
        out.pods.push(PendingPod {
            id: PodId::new("default", &format!("{}-{number:04}", words[1])),
            demand: index,
            created: UnixMillis(0),
            priority: 0,
            leaving: None,
            is_virtual: words.contains(&"virtual"),
        });
    }
}

fn demand(words: &[&str]) -> Demand {
    let app = after(words, "app").first().copied().unwrap_or(words[1]);
    let term = |key: &str, app: &str| PodTerm {
        topology_key: key.into(),
        namespaces: Namespaces::These(BTreeSet::from(["default".into()])),
        selector: Some(LabelSelector::from_labels([("app", app)])),
    };
    let spread = |key: &&str| Spread {
        topology_key: (*key).into(),
        max_skew: 1,
        min_domains: None,
        when: WhenUnsatisfiable::DoNotSchedule,
        selector: Some(LabelSelector::from_labels([("app", app)])),
        node_affinity_policy: NodePolicy::Honor,
        node_taints_policy: NodePolicy::Ignore,
    };
    let tolerate = |key: &&str| Toleration {
        key: (*key).into(),
        operator: TolerationOperator::Exists,
        value: "".into(),
        effect: None,
    };
    let port = |number: &&str| HostPort {
        ip: "".into(),
        port: number.parse().expect("a sound scene"),
        protocol: "TCP".into(),
    };
    let beside = words.windows(3).filter(|window| window[0] == "beside").map(|window| term(window[1], window[2]));
    let prefer = after(words, "prefer");
    Demand {
        labels: Labels::from([("app".into(), app.into())]),
        requests: amounts(words).with("pods", Quantity::from_units(1)),
        node_selector: Requirements::from_labels(&pairs(&after(words, "select"))),
        preferred_terms: prefer.iter().map(|text| (1, Requirements::from_labels(&pairs(&[text])))).collect(),
        tolerations: after(words, "tolerate").iter().map(tolerate).collect(),
        affinity: beside.collect(),
        anti_affinity: after(words, "apart").iter().map(|key| term(key, app)).collect(),
        spreads: after(words, "spread").iter().map(spread).collect(),
        host_ports: after(words, "port").iter().map(port).collect(),
        ..Demand::default()
    }
}
