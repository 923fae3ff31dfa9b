//! The same scene for the peer: written as Kubernetes objects, and run through the harness under `bench/peer`.

use super::row::Peer;
use super::scene::{Batch, Running, Scene, Standing};
use crate::toolbox;
use anyhow::{Context as _, Result, bail};
use kerf_model::{
    Demand, InstanceType, LabelSelector, Namespaces, NodePolicy, Operator, PodTerm, Pool, PreferencePolicy,
    Requirement, Requirements, Resources, SelectorOperator, Spread, Taint, Toleration, TolerationOperator,
    WhenUnsatisfiable, labels, resources,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How long the peer may think about one row.
pub(crate) const SECONDS_MAX: u64 = 300;

/// Builds the harness. None where Go is not installed.
pub(crate) fn prepare() -> Result<Option<PathBuf>> {
    if Command::new("go").arg("version").output().is_err() {
        return Ok(None);
    }
    let folder = toolbox::cache()?.join("bench");
    std::fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let binary = folder.join("peer");
    let status = Command::new("go")
        .args(["build", "-trimpath", "-o"])
        .arg(&binary)
        .arg(".")
        .current_dir(toolbox::workspace().join("bench").join("peer"))
        .env("CGO_ENABLED", "0")
        // The peer may ask for a newer Go than the machine's; Go fetches it like any module.
        .env("GOTOOLCHAIN", "auto")
        .status()
        .context("go build does not start")?;
    if !status.success() {
        bail!("the peer's harness does not build: {status} (cd bench/peer && go build .)");
    }
    Ok(Some(binary))
}

/// What the harness answers; it says more than we read.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer {
    #[serde(default)]
    failure: String,
    pods: usize,
    placed: usize,
    nodes: usize,
    dollars_per_hour: f64,
    seconds: f64,
    pods_per_second: f64,
    peak_mb: f64,
    /// Without the garbage of reading the scenario, which is the harness's and not the peer's.
    solve_mb: Option<f64>,
    timed_out: bool,
    pub(crate) claims: Vec<Claim>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Claim {
    #[serde(rename = "cheapestType")]
    pub(crate) cheapest_type: String,
    pub(crate) price: f64,
}

impl Answer {
    pub(crate) fn peer(&self) -> Peer {
        Peer {
            pods: self.pods,
            placed: self.placed,
            seconds: self.seconds,
            pods_per_second: self.pods_per_second,
            peak_mb: self.solve_mb.unwrap_or(self.peak_mb),
            nodes: self.nodes,
            dollars_per_hour: self.dollars_per_hour,
            bound_dollars_per_hour: 0.0,
            gap: None,
            stranded: None,
            finished: !self.timed_out,
        }
    }
}

/// Writes the scene into the cache folder, asks, and reads the answer.
pub(crate) fn ask(binary: &Path, scene: &Scene) -> Result<Answer> {
    let path = toolbox::cache()?.join("bench").join(format!("{}.json", scene.name));
    let file = File::create(&path).with_context(|| format!("{} cannot be written", path.display()))?;
    write(scene, BufWriter::new(file)).with_context(|| format!("{} cannot be written", path.display()))?;
    // What takes a second or two is asked three times, as we ask ourselves; what takes minutes is asked once.
    let repeat = if scene.n_pods() + scene.nodes.len() <= 1000 { "3" } else { "1" };
    let output = Command::new(binary)
        .arg("--scenario")
        .arg(&path)
        .args(["--brief", "--repeat", repeat])
        .args(["--timeout", &format!("{SECONDS_MAX}s")])
        .stderr(Stdio::inherit())
        .output()
        .context("the peer's harness does not start")?;
    let answer: Answer = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("the peer's harness ended with {}", output.status))?;
    if !answer.failure.is_empty() && !answer.timed_out {
        bail!("the peer could not be asked: {}", answer.failure);
    }
    Ok(answer)
}

/// A scenario as `bench/peer/README.md` describes it, object by object: a large scene is never in memory as text.
pub(crate) fn write(scene: &Scene, mut out: impl Write) -> Result<()> {
    let preferences = match scene.settings.preferences {
        PreferencePolicy::Respect => "Respect",
        PreferencePolicy::Ignore => "Ignore",
    };
    let head = json!({
        "name": scene.name,
        "options": {"preferencePolicy": preferences},
        "instanceTypes": scene.types.iter().map(|kind| instance_type(kind)).collect::<Result<Vec<_>>>()?,
    });
    let head = head.to_string();
    let head = head.strip_suffix('}').context("an object ends with a brace")?;
    write!(out, "{head},\"objects\":[")?;
    let objects = scene.pools.iter().map(node_pool);
    let nodes = scene.nodes.iter().flat_map(|standing| {
        let node = [node(standing), node_claim(standing)].into_iter();
        node.chain(standing.running.iter().enumerate().map(|(i, running)| running_pods(standing, i, running)))
    });
    let pods = scene.pods.iter().map(waiting_pods);
    for (position, object) in objects.chain(nodes).chain(pods).enumerate() {
        let comma = if position == 0 { "\n" } else { ",\n" };
        write!(out, "{comma}{object}")?;
    }
    writeln!(out, "\n]}}")?;
    out.flush()?;
    Ok(())
}

/// The kwok format, with the labels and the overhead written out.
fn instance_type(kind: &InstanceType) -> Result<Value> {
    let told_elsewhere = [labels::INSTANCE_TYPE, labels::ARCH, labels::OS, labels::ZONE, labels::CAPACITY_TYPE];
    let mut own = Map::new();
    for (key, requirement) in kind.requirements.iter() {
        if told_elsewhere.contains(&&**key) {
            continue;
        }
        let value = match (requirement.operator(), requirement.single()) {
            (Operator::DoesNotExist, _) => Value::Null,
            (_, Some(single)) => json!(&**single),
            _ => bail!("{}: {key} {requirement} is more than one value", kind.name),
        };
        own.insert(key.to_string(), value);
    }
    let values = |key: &str| -> Vec<&str> {
        kind.requirements
            .get(key)
            .map(|requirement| requirement.values.iter().map(|value| &**value).collect())
            .unwrap_or_default()
    };
    let offerings: Vec<Value> = kind
        .offerings
        .iter()
        .map(|offering| {
            json!({
                "Price": offering.price.dollars(),
                "Available": offering.available,
                "ReservationCapacity": offering.reservation_capacity.unwrap_or(0),
                "Requirements": expressions(&offering.requirements, Bounds::Exact),
            })
        })
        .collect();
    Ok(json!({
        "name": kind.name.as_str(),
        "architecture": values(labels::ARCH).first(),
        "operatingSystems": values(labels::OS),
        "resources": amounts(&kind.capacity),
        "overhead": amounts(&kind.overhead),
        "labels": own,
        "kwokLabels": false,
        "offerings": offerings,
    }))
}

fn node_pool(pool: &Pool) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": pool.name.as_str()},
        "spec": {
            "weight": if pool.weight == 0 { Value::Null } else { json!(pool.weight) },
            "limits": amounts(&pool.limits),
            "template": {
                "metadata": {"labels": pool.labels},
                "spec": {
                    "requirements": expressions(&pool.requirements, Bounds::Inclusive),
                    "taints": taints(&pool.taints),
                    "startupTaints": taints(&pool.startup_taints),
                    "nodeClassRef": {
                        "group": &*pool.node_class.group,
                        "kind": &*pool.node_class.kind,
                        "name": &*pool.node_class.name,
                    },
                },
            },
        },
    })
}

fn node(standing: &Standing) -> Value {
    let node = &standing.node;
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name.as_str(), "labels": node.labels},
        "spec": {
            "providerID": format!("bench:///{}", node.name),
            "taints": taints(&node.taints),
        },
        "status": {
            "capacity": amounts(&node.capacity),
            "allocatable": amounts(&node.allocatable),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// The peer knows a node of a pool by its claim.
fn node_claim(standing: &Standing) -> Value {
    let node = &standing.node;
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": kind});
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": node.name.as_str(), "labels": node.labels},
        "spec": {
            "requirements": [],
            "taints": taints(&node.taints),
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        },
        "status": {
            "nodeName": node.name.as_str(),
            "providerID": format!("bench:///{}", node.name),
            "capacity": amounts(&node.capacity),
            "allocatable": amounts(&node.allocatable),
            "conditions": [condition("Launched"), condition("Registered"), condition("Initialized")],
        },
    })
}

fn running_pods(standing: &Standing, i: usize, running: &Running) -> Value {
    let name = format!("{}-{i}", standing.node.name);
    let template = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": &*running.shape.namespace.0,
            "labels": running.shape.labels,
        },
        "spec": {
            "nodeName": standing.node.name.as_str(),
            "containers": containers(&running.requests),
        },
        "status": {"phase": "Running"},
    });
    json!({"template": template, "count": running.n_pods, "namePrefix": format!("{name}-")})
}

fn waiting_pods(batch: &Batch) -> Value {
    let demand = &*batch.demand;
    let template = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": batch.name,
            "namespace": &*demand.namespace.0,
            "labels": demand.labels,
        },
        "spec": {
            "containers": containers(&demand.requests),
            "nodeSelector": node_selector(&demand.node_selector),
            "affinity": affinity(demand),
            "tolerations": demand.tolerations.iter().map(toleration).collect::<Vec<_>>(),
            "topologySpreadConstraints": demand.spreads.iter().map(spread).collect::<Vec<_>>(),
        },
    });
    json!({"template": template, "count": batch.n_pods, "namePrefix": format!("{}-", batch.name)})
}

fn containers(requests: &Resources) -> Value {
    let mut requests = requests.clone();
    // Every pod counts as one by itself.
    requests.0.remove(resources::PODS);
    json!([{"name": "main", "image": "none", "resources": {"requests": amounts(&requests)}}])
}

fn amounts(resources: &Resources) -> Value {
    resources.iter().map(|(name, amount)| (name.to_string(), json!(amount.to_string()))).collect::<Map<_, _>>().into()
}

fn taints(taints: &[Taint]) -> Vec<Value> {
    taints
        .iter()
        .map(|taint| json!({"key": &*taint.key, "value": &*taint.value, "effect": taint.effect.as_str()}))
        .collect()
}

fn toleration(toleration: &Toleration) -> Value {
    let operator = match toleration.operator {
        TolerationOperator::Exists => "Exists",
        TolerationOperator::Equal => "Equal",
        TolerationOperator::Lt => "Lt",
        TolerationOperator::Gt => "Gt",
    };
    json!({
        "key": &*toleration.key,
        "operator": operator,
        "value": &*toleration.value,
        "effect": toleration.effect.map_or("", |effect| effect.as_str()),
    })
}

fn node_selector(requirements: &Requirements) -> Value {
    requirements
        .iter()
        .filter_map(|(key, requirement)| Some((key.to_string(), json!(&**requirement.single()?))))
        .collect::<Map<_, _>>()
        .into()
}

/// How bounds are written: pods know Gt and Lt, pools know Gte and Lte too, and an offering has none.
#[derive(Clone, Copy)]
enum Bounds {
    Exact,
    Inclusive,
    Exclusive,
}

fn expressions(requirements: &Requirements, bounds: Bounds) -> Vec<Value> {
    requirements.iter().flat_map(|(key, requirement)| expression(key, requirement, bounds)).collect()
}

fn expression(key: &str, requirement: &Requirement, bounds: Bounds) -> Vec<Value> {
    let one = |operator: &str, values: Vec<String>| {
        let mut out = json!({"key": key, "operator": operator, "values": values});
        if let Some(n) = requirement.min_values {
            out["minValues"] = json!(n);
        }
        out
    };
    let mut out = Vec::new();
    let lower = requirement.at_least.map(|bound| match bounds {
        Bounds::Exclusive => one("Gt", vec![(bound - 1).to_string()]),
        _ => one("Gte", vec![bound.to_string()]),
    });
    let upper = requirement.at_most.map(|bound| match bounds {
        Bounds::Exclusive => one("Lt", vec![(bound + 1).to_string()]),
        _ => one("Lte", vec![bound.to_string()]),
    });
    out.extend(lower);
    out.extend(upper);
    if out.is_empty() || !requirement.values.is_empty() {
        let values = requirement.values.iter().map(ToString::to_string).collect();
        out.push(one(requirement.operator().as_str(), values));
    }
    out
}

fn affinity(demand: &Demand) -> Value {
    let node_terms = |terms: &[Requirements]| -> Vec<Value> {
        terms.iter().map(|term| json!({"matchExpressions": expressions(term, Bounds::Exclusive)})).collect()
    };
    let weighted = |terms: &[(i32, PodTerm)]| -> Vec<Value> {
        terms.iter().map(|(weight, term)| json!({"weight": weight, "podAffinityTerm": pod_term(term)})).collect()
    };
    let required = |terms: &[PodTerm]| terms.iter().map(pod_term).collect::<Vec<_>>();
    let preferred_nodes: Vec<Value> = demand
        .preferred_terms
        .iter()
        .map(|(weight, term)| {
            json!({"weight": weight, "preference": {"matchExpressions": expressions(term, Bounds::Exclusive)}})
        })
        .collect();
    let required_nodes = match demand.required_terms.is_empty() {
        true => Value::Null,
        false => json!({"nodeSelectorTerms": node_terms(&demand.required_terms)}),
    };
    json!({
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": required_nodes,
            "preferredDuringSchedulingIgnoredDuringExecution": preferred_nodes,
        },
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": required(&demand.affinity),
            "preferredDuringSchedulingIgnoredDuringExecution": weighted(&demand.preferred_affinity),
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": required(&demand.anti_affinity),
            "preferredDuringSchedulingIgnoredDuringExecution": weighted(&demand.preferred_anti_affinity),
        },
    })
}

fn pod_term(term: &PodTerm) -> Value {
    let mut out = json!({
        "topologyKey": &*term.topology_key,
        "labelSelector": term.selector.as_ref().map(selector),
    });
    match &term.namespaces {
        Namespaces::All => out["namespaceSelector"] = json!({}),
        Namespaces::These(names) => out["namespaces"] = json!(names),
    }
    out
}

fn spread(spread: &Spread) -> Value {
    let policy = |policy| match policy {
        NodePolicy::Honor => "Honor",
        NodePolicy::Ignore => "Ignore",
    };
    json!({
        "topologyKey": &*spread.topology_key,
        "maxSkew": spread.max_skew,
        "minDomains": spread.min_domains,
        "whenUnsatisfiable": match spread.when {
            WhenUnsatisfiable::DoNotSchedule => "DoNotSchedule",
            WhenUnsatisfiable::ScheduleAnyway => "ScheduleAnyway",
        },
        "labelSelector": spread.selector.as_ref().map(selector),
        "nodeAffinityPolicy": policy(spread.node_affinity_policy),
        "nodeTaintsPolicy": policy(spread.node_taints_policy),
    })
}

fn selector(selector: &LabelSelector) -> Value {
    let terms: Vec<Value> = selector
        .terms
        .iter()
        .map(|term| {
            let operator = match term.operator {
                SelectorOperator::In => "In",
                SelectorOperator::NotIn => "NotIn",
                SelectorOperator::Exists => "Exists",
                SelectorOperator::DoesNotExist => "DoesNotExist",
            };
            json!({"key": &*term.key, "operator": operator, "values": term.values})
        })
        .collect();
    json!({"matchExpressions": terms})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::scenes;

    fn written(row: &str) -> Value {
        let mut text = Vec::new();
        write(&scenes::build(row).expect(row), &mut text).expect(row);
        serde_json::from_slice(&text).expect(row)
    }

    #[test]
    fn a_scene_is_written_with_every_pod_and_type() {
        let scenario = written("diverse-100");
        assert_eq!(scenario["instanceTypes"].as_array().map(Vec::len), Some(400));
        let objects = scenario["objects"].as_array().expect("objects");
        let n_pods: u64 = objects.iter().filter_map(|object| object["count"].as_u64()).sum();
        assert_eq!(n_pods, 100);
        assert_eq!(objects[0]["kind"], "NodePool");
        assert_eq!(objects[0]["spec"]["limits"]["cpu"], "10000000");
    }

    #[test]
    fn bounds_are_written_as_each_side_knows_them() {
        let below = Requirement::new(Operator::Lt, &["32".into()]).expect("a bound");
        assert_eq!(
            expression("cpu", &below, Bounds::Inclusive),
            [json!({"key": "cpu", "operator": "Lte", "values": ["31"]})]
        );
        assert_eq!(
            expression("cpu", &below, Bounds::Exclusive),
            [json!({"key": "cpu", "operator": "Lt", "values": ["32"]})]
        );
    }

    #[test]
    fn preferences_are_written_with_their_weights() {
        let scenario = written("preferences-ignore-4000");
        assert_eq!(scenario["options"]["preferencePolicy"], "Ignore");
        let pod = &scenario["objects"][1]["template"]["spec"]["affinity"];
        let apart = &pod["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(apart[0]["weight"], 10);
        assert_eq!(apart[0]["podAffinityTerm"]["topologyKey"], "topology.kubernetes.io/zone");
    }
}
