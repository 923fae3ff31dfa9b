//! Clusters drawn from a seed: small enough to read, with every kind of constraint among them.

use super::objects::{self, containers};
use super::scenario::Scenario;
use crate::bench::dice::Dice;
use kerf_model::labels;
use serde_json::{Map, Value, json};

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
const APPS: [&str; 3] = ["red", "green", "blue"];
const INSTANCE_CPU: &str = "karpenter.kwok.sh/instance-cpu";
/// A label that only pools know.
const TEAM: &str = "team";
const TAINT: &str = "dedicated";

/// The cluster of this number under this seed. Its parts have their own dice: a new wish of pods does not change nodes.
pub(crate) fn draw(seed: u64, number: usize) -> Scenario {
    let name = format!("{seed}-{number}");
    let dice = |purpose| Dice::new(&name, purpose);
    let types = types(&mut dice("types"));
    let pools = pools(&mut dice("pools"));
    let daemons = daemons(&mut dice("daemons"));
    let mut objects: Vec<Value> = ["default", "other"].map(namespace).into();
    objects.extend(pools.iter().map(Pool::object));
    objects.extend(daemons.iter().map(Value::clone));
    objects.extend(nodes(&mut dice("nodes"), &types, &pools, &daemons));
    objects.extend(pods(&mut dice("pods")));
    Scenario {
        ignores_preferences: dice("settings").percent(15),
        types: types.iter().map(Type::object).collect(),
        objects,
        name,
    }
}

fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
    })
}

struct Type {
    name: String,
    arch: &'static str,
    cpus: usize,
    gibibytes: usize,
    pods: usize,
    zones: Vec<&'static str>,
    /// Percent of the on-demand price; none is sold at zero.
    spot_percent: usize,
    cents: f64,
}

fn types(dice: &mut Dice) -> Vec<Type> {
    (0..3 + dice.below(5))
        .map(|number| {
            let cpus = dice.pick(&[1, 2, 4, 8, 16]);
            let gibibytes = cpus * dice.pick(&[2, 4, 8]);
            let arch = if dice.percent(25) { "arm64" } else { "amd64" };
            Type {
                name: format!("t{number}-{cpus}x{gibibytes}-{arch}"),
                arch,
                cpus,
                gibibytes,
                pods: dice.pick(&[110, 110, 30, 8]),
                zones: if dice.percent(70) { ZONES.to_vec() } else { some(dice, &ZONES) },
                spot_percent: if dice.percent(60) { 40 + dice.below(40) } else { 0 },
                cents: 4.0 * cpus as f64 + 0.5 * gibibytes as f64 + 0.01 * dice.below(100) as f64,
            }
        })
        .collect()
}

impl Type {
    fn object(&self) -> Value {
        let offering = |kind: &str, zone: &str, cents: f64| {
            let is = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
            // Whole microdollars, so that both sides read the same price.
            let price = (cents * 10_000.0).round() / 1_000_000.0;
            json!({
                "Price": price, "Available": true,
                "Requirements": [is(labels::CAPACITY_TYPE, kind), is(labels::ZONE, zone)],
            })
        };
        let on_demand = self.zones.iter().map(|zone| offering("on-demand", zone, self.cents));
        let spot = self
            .zones
            .iter()
            .filter(|_| self.spot_percent > 0)
            .map(|zone| offering("spot", zone, self.cents * self.spot_percent as f64 / 100.0));
        json!({
            "name": self.name,
            "architecture": self.arch,
            "operatingSystems": ["linux"],
            "resources": {"cpu": self.cpus.to_string(), "memory": format!("{}Gi", self.gibibytes), "pods": self.pods.to_string()},
            "offerings": on_demand.chain(spot).collect::<Vec<_>>(),
        })
    }

    fn sells(&self, kind: &str) -> bool {
        kind == "on-demand" || self.spot_percent > 0
    }
}

struct Pool {
    name: String,
    weight: usize,
    zones: Option<Vec<&'static str>>,
    kinds: Option<Vec<&'static str>>,
    arch: Option<&'static str>,
    /// Operator and bound.
    cpus: Option<(&'static str, usize)>,
    teams: Option<Vec<&'static str>>,
    tier: Option<&'static str>,
    /// Its effect.
    taint: Option<&'static str>,
    limit: Option<(&'static str, usize)>,
}

fn pools(dice: &mut Dice) -> Vec<Pool> {
    (0..1 + dice.below(3))
        .map(|number| {
            let teams: [&[&'static str]; 2] = [&["x"], &["x", "y"]];
            Pool {
                name: format!("pool-{number}"),
                weight: dice.pick(&[0, 0, 0, 10, 50]),
                zones: dice.percent(25).then(|| some(dice, &ZONES)),
                kinds: dice.percent(25).then(|| some(dice, &["spot", "on-demand"])),
                arch: dice.percent(20).then(|| dice.pick(&["amd64", "arm64"])),
                cpus: dice.percent(20).then(|| dice.pick(&[("Gt", 1), ("Lt", 8), ("Lt", 16), ("Gte", 2)])),
                teams: dice.percent(30).then(|| dice.pick(&teams).to_vec()),
                tier: dice.percent(20).then(|| dice.pick(&["gold", "silver"])),
                taint: dice.percent(25).then(|| dice.pick(&["NoSchedule", "NoSchedule", "PreferNoSchedule"])),
                limit: dice.percent(20).then(|| dice.pick(&[("cpu", 4), ("cpu", 12), ("cpu", 24), ("memory", 32)])),
            }
        })
        .collect()
}

impl Pool {
    fn object(&self) -> Value {
        let mut requirements = Vec::new();
        let mut is_in = |key: &str, values: Option<&[&str]>| {
            requirements.extend(values.map(|values| json!({"key": key, "operator": "In", "values": values})));
        };
        is_in(labels::ZONE, self.zones.as_deref());
        is_in(labels::CAPACITY_TYPE, self.kinds.as_deref());
        is_in(labels::ARCH, self.arch.as_ref().map(std::slice::from_ref));
        is_in(TEAM, self.teams.as_deref());
        requirements.extend(self.cpus.map(
            |(operator, bound)| json!({"key": INSTANCE_CPU, "operator": operator, "values": [bound.to_string()]}),
        ));
        let mut spec = json!({
            "template": {
                "metadata": {"labels": self.tier.map_or_else(|| json!({}), |tier| json!({"tier": tier}))},
                "spec": {
                    "requirements": requirements,
                    "taints": self.taints(),
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "expireAfter": "Never",
                },
            },
        });
        if self.weight > 0 {
            spec["weight"] = json!(self.weight);
        }
        if let Some((resource, amount)) = self.limit {
            let unit = if resource == "memory" { "Gi" } else { "" };
            spec["limits"] = json!({resource: format!("{amount}{unit}")});
        }
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": self.name}, "spec": spec})
    }

    fn taints(&self) -> Vec<Value> {
        self.taint.iter().map(|effect| json!({"key": TAINT, "value": "x", "effect": effect})).collect()
    }

    fn takes(&self, kind: &Type, zone: &str, capacity: &str) -> bool {
        let cpus = self.cpus.is_none_or(|(operator, bound)| match operator {
            "Gt" => kind.cpus > bound,
            "Lt" => kind.cpus < bound,
            _ => kind.cpus >= bound,
        });
        cpus && self.zones.as_ref().is_none_or(|zones| zones.contains(&zone))
            && self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&capacity))
            && self.arch.is_none_or(|arch| arch == kind.arch)
    }
}

fn daemons(dice: &mut Dice) -> Vec<Value> {
    let n_daemons = dice.pick(&[0, 0, 0, 1, 2]);
    (0..n_daemons)
        .map(|number| {
            let name = format!("daemon-{number}");
            let mut spec = json!({"containers": containers(dice.pick(&[50, 100, 300]), 64, None)});
            if dice.percent(50) {
                spec["tolerations"] = json!([{"operator": "Exists"}]);
            }
            if dice.percent(30) {
                let (key, value) = dice.pick(&[(labels::ARCH, "amd64"), (labels::ZONE, "zone-a"), ("tier", "gold")]);
                spec["nodeSelector"] = json!({key: value});
            }
            json!({
                "apiVersion": "apps/v1", "kind": "DaemonSet",
                "metadata": {"name": name, "namespace": "default", "uid": format!("daemon-uid-{number}")},
                "spec": {
                    "selector": {"matchLabels": {"app": name}},
                    "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
                },
            })
        })
        .collect()
}

/// Nodes with their claims and what runs on them.
fn nodes(dice: &mut Dice, types: &[Type], pools: &[Pool], daemons: &[Value]) -> Vec<Value> {
    let mut objects = Vec::new();
    let n_nodes = dice.pick(&[0, 0, 1, 2, 3, 4]);
    for number in 0..n_nodes {
        let kind = &types[dice.below(types.len())];
        let zone = dice.pick(&kind.zones);
        let capacity = dice.pick(&["on-demand", "spot"]);
        let capacity = if kind.sells(capacity) { capacity } else { "on-demand" };
        let wanted = &pools[dice.below(pools.len())];
        let pool = Some(wanted).filter(|pool| pool.takes(kind, zone, capacity) && dice.percent(85));
        let name = format!("node-{number}");
        objects.extend(node(dice, &name, kind, zone, capacity, pool));
        objects.extend(running(dice, &name, kind, daemons));
    }
    objects
}

fn node(dice: &mut Dice, name: &str, kind: &Type, zone: &str, capacity: &str, pool: Option<&Pool>) -> Vec<Value> {
    let mut all = json!({
        labels::INSTANCE_TYPE: kind.name, labels::ARCH: kind.arch, labels::OS: "linux",
        labels::ZONE: zone, labels::CAPACITY_TYPE: capacity, labels::HOSTNAME: name,
    });
    if let Some(pool) = pool {
        all[labels::NODEPOOL] = json!(pool.name);
        all[labels::REGISTERED] = json!("true");
        all[labels::INITIALIZED] = json!("true");
        all[INSTANCE_CPU] = json!(kind.cpus.to_string());
        if let Some(teams) = &pool.teams {
            all[TEAM] = json!(dice.pick(teams));
        }
        if let Some(tier) = pool.tier {
            all["tier"] = json!(tier);
        }
    }
    let taints = pool.map(Pool::taints).unwrap_or_default();
    objects::machine(name, &all, &taints, &kind.object(), pool.is_some())
}

fn running(dice: &mut Dice, node: &str, kind: &Type, daemons: &[Value]) -> Vec<Value> {
    let mut objects = Vec::new();
    let mut free = kind.cpus * 1000 - 100;
    let status = json!({"phase": "Running"});
    for daemon in daemons.iter().filter(|_| dice.percent(40)) {
        let daemon_name = &daemon["metadata"]["name"];
        let mut spec = daemon["spec"]["template"]["spec"].clone();
        spec["nodeName"] = json!(node);
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": daemon_name, "uid": daemon["metadata"]["uid"],
            "controller": true,
        });
        free = free.saturating_sub(300);
        objects.push(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("{node}-{}", daemon_name.as_str().unwrap_or_default()), "namespace": "default",
                "labels": {"app": daemon_name}, "ownerReferences": [owner],
            },
            "spec": spec, "status": status,
        }));
    }
    for number in 0..dice.below(4) {
        let cpu = dice.pick(&[100, 250, 500, 1500, 3000]);
        if cpu > free {
            continue;
        }
        free -= cpu;
        let port = dice.percent(8).then_some(8080);
        let mut spec = json!({"nodeName": node, "containers": containers(cpu, 256, port)});
        if dice.percent(12) {
            let term = pod_term(dice.pick(&[labels::HOSTNAME, labels::ZONE]), dice.pick(&APPS));
            spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        }
        objects.push(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("{node}-running-{number}"),
                "namespace": if dice.percent(10) { "other" } else { "default" },
                "labels": {"app": dice.pick(&APPS)},
            },
            "spec": spec, "status": status,
        }));
    }
    objects
}

fn pods(dice: &mut Dice) -> Vec<Value> {
    let mut objects = Vec::new();
    for batch in 0..1 + dice.below(5) {
        let app = dice.pick(&APPS);
        let namespace = if dice.percent(10) { "other" } else { "default" };
        let spec = pod_spec(dice, app);
        for number in 0..dice.pick(&[1, 1, 2, 3, 5]) {
            if objects.len() == 15 {
                return objects;
            }
            objects.push(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("batch-{batch}-{number}"), "namespace": namespace, "labels": {"app": app}},
                "spec": spec,
            }));
        }
    }
    objects
}

fn pod_spec(dice: &mut Dice, app: &str) -> Value {
    let cpu = dice.pick(&[50, 100, 250, 500, 900, 1500, 3000, 7000, 20_000]);
    let memory = dice.pick(&[64, 256, 512, 1024, 2048, 6000, 14_000]);
    let mut wishes = Wishes::default();
    for _ in 0..dice.pick(&[0, 1, 1, 1, 2, 2, 3]) {
        wishes.add_one(dice, app);
    }
    let mut spec = json!({"containers": containers(cpu, memory, wishes.port)});
    let mut say = |key: &str, value: Value| spec[key] = value;
    if !wishes.selector.is_empty() {
        say("nodeSelector", Value::Object(wishes.selector.clone()));
    }
    if !wishes.tolerations.is_empty() {
        say("tolerations", json!(wishes.tolerations));
    }
    if !wishes.spreads.is_empty() {
        say("topologySpreadConstraints", json!(wishes.spreads));
    }
    let affinity = wishes.affinity();
    if affinity.as_object().is_some_and(|affinity| !affinity.is_empty()) {
        say("affinity", affinity);
    }
    spec
}

#[derive(Default)]
struct Wishes {
    selector: Map<String, Value>,
    terms: Vec<Value>,
    preferred: Vec<Value>,
    tolerations: Vec<Value>,
    near: Vec<Value>,
    apart: Vec<Value>,
    rather_near: Vec<Value>,
    rather_apart: Vec<Value>,
    spreads: Vec<Value>,
    port: Option<u16>,
}

impl Wishes {
    fn add_one(&mut self, dice: &mut Dice, own_app: &str) {
        let key = dice.pick(&[labels::HOSTNAME, labels::ZONE]);
        // Mostly the own app: that is what people write.
        let app = if dice.percent(60) { own_app } else { dice.pick(&APPS) };
        let weight = 1 + dice.below(100);
        match dice.below(18) {
            0..3 => {
                let (key, value) = dice.pick(&[
                    (labels::ZONE, "zone-a"),
                    (labels::ZONE, "zone-b"),
                    (labels::CAPACITY_TYPE, "spot"),
                    (labels::ARCH, "arm64"),
                    (labels::NODEPOOL, "pool-0"),
                    (TEAM, "x"),
                    ("tier", "gold"),
                ]);
                self.selector.insert(key.to_owned(), json!(value));
            }
            3..5 => {
                for _ in 0..1 + dice.below(2) {
                    self.terms.push(json!({"matchExpressions": [expression(dice)]}));
                }
            }
            5 => self.preferred.push(json!({"weight": weight, "preference": {"matchExpressions": [expression(dice)]}})),
            6..8 => self.tolerations.push(toleration(dice)),
            8..10 => self.near.push(pod_term(key, app)),
            10..12 => self.apart.push(pod_term(key, app)),
            12 => self.rather_near.push(json!({"weight": weight, "podAffinityTerm": pod_term(key, app)})),
            13 => self.rather_apart.push(json!({"weight": weight, "podAffinityTerm": pod_term(key, app)})),
            14..17 => self.add_spread(dice, key, app),
            _ => self.port = Some(8080),
        }
    }

    fn add_spread(&mut self, dice: &mut Dice, key: &str, app: &str) {
        let when = if dice.percent(75) { "DoNotSchedule" } else { "ScheduleAnyway" };
        let mut spread = json!({
            "topologyKey": key, "maxSkew": 1 + dice.below(2), "whenUnsatisfiable": when,
            "labelSelector": {"matchLabels": {"app": app}},
        });
        if dice.percent(15) && when == "DoNotSchedule" {
            spread["minDomains"] = json!(2 + dice.below(2));
        }
        if dice.percent(20) {
            spread["nodeTaintsPolicy"] = json!("Honor");
        }
        if dice.percent(20) {
            spread["nodeAffinityPolicy"] = json!("Ignore");
        }
        // The API server refuses two constraints with the same key and action.
        let same = |present: &Value| {
            present["topologyKey"] == spread["topologyKey"]
                && present["whenUnsatisfiable"] == spread["whenUnsatisfiable"]
        };
        if !self.spreads.iter().any(same) {
            self.spreads.push(spread);
        }
    }

    fn affinity(&self) -> Value {
        const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
        const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
        let mut affinity = json!({});
        let mut say = |what: &str, how: &str, terms: Value| affinity[what][how] = terms;
        if !self.terms.is_empty() {
            say("nodeAffinity", REQUIRED, json!({"nodeSelectorTerms": self.terms}));
        }
        for (what, how, terms) in [
            ("nodeAffinity", PREFERRED, &self.preferred),
            ("podAffinity", REQUIRED, &self.near),
            ("podAffinity", PREFERRED, &self.rather_near),
            ("podAntiAffinity", REQUIRED, &self.apart),
            ("podAntiAffinity", PREFERRED, &self.rather_apart),
        ] {
            if !terms.is_empty() {
                say(what, how, json!(terms));
            }
        }
        affinity
    }
}

fn toleration(dice: &mut Dice) -> Value {
    match dice.below(3) {
        0 => json!({"operator": "Exists"}),
        1 => json!({"key": TAINT, "operator": "Exists"}),
        _ => json!({"key": TAINT, "operator": "Equal", "value": "x", "effect": "NoSchedule"}),
    }
}

fn expression(dice: &mut Dice) -> Value {
    let (key, operator, values): (&str, &str, &[&str]) = dice.pick(&[
        (labels::ZONE, "In", &["zone-a", "zone-b"] as &[&str]),
        (labels::ZONE, "In", &["zone-c"]),
        (labels::ZONE, "NotIn", &["zone-a"]),
        (labels::CAPACITY_TYPE, "In", &["on-demand"]),
        (labels::CAPACITY_TYPE, "In", &["spot"]),
        (labels::ARCH, "In", &["amd64"]),
        (labels::ARCH, "NotIn", &["amd64"]),
        (INSTANCE_CPU, "Gt", &["3"]),
        (INSTANCE_CPU, "Lt", &["8"]),
        (TEAM, "Exists", &[]),
        (TEAM, "DoesNotExist", &[]),
        (TEAM, "In", &["y"]),
        (TEAM, "NotIn", &["x"]),
        ("unheard-of", "Exists", &[]),
        (labels::NODEPOOL, "NotIn", &["pool-1"]),
    ]);
    match values {
        [] => json!({"key": key, "operator": operator}),
        values => json!({"key": key, "operator": operator, "values": values}),
    }
}

fn pod_term(key: &str, app: &str) -> Value {
    json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}})
}

/// At least one of them, in order.
fn some(dice: &mut Dice, of: &[&'static str]) -> Vec<&'static str> {
    let sure = dice.below(of.len());
    let taken = |(position, _): &(usize, &&str)| *position == sure || dice.percent(50);
    of.iter().enumerate().filter(taken).map(|(_, item)| *item).collect()
}
