//! The same question to both sides.

use super::scenario::Scenario;
use crate::toolbox;
use anyhow::{Context as _, Result, bail};
use kerf_model::{Effort, Plan, PodId, Report, Requirement, Snapshot, Step, Text, labels};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// What the harness answers; it says more than we read.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PeerAnswer {
    pub(crate) name: String,
    #[serde(default)]
    failure: String,
    pub(crate) pods: usize,
    pub(crate) dollars_per_hour: f64,
    #[serde(default)]
    pub(crate) errors: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) claims: Vec<PeerClaim>,
    #[serde(default)]
    pub(crate) existing: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PeerClaim {
    pub(crate) pool: String,
    #[serde(rename = "cheapestType")]
    pub(crate) cheapest_type: String,
    pub(crate) price: f64,
    #[serde(default)]
    pub(crate) requirements: BTreeMap<String, PeerRequirement>,
    #[serde(default)]
    pub(crate) pods: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PeerRequirement {
    pub(crate) operator: String,
    #[serde(default)]
    pub(crate) values: Vec<String>,
}

impl PeerAnswer {
    /// Pods of the default namespace go without it, as the peer's harness names them.
    pub(crate) fn placed(&self) -> BTreeSet<String> {
        let on_claims = self.claims.iter().flat_map(|claim| &claim.pods);
        on_claims.chain(self.existing.values().flatten()).cloned().collect()
    }
}

impl PeerAnswer {
    /// The same for the peer's answer.
    pub(crate) fn lines(&self) -> Vec<String> {
        let existing = self.existing.iter().map(|(node, pods)| format!("{node}: {}", pods.join(" ")));
        let claims = self.claims.iter().map(|claim| {
            let zone = claim.requirements.get(labels::ZONE);
            let zone = zone.map(|zone| format!("{} {:?}", zone.operator, zone.values)).unwrap_or_default();
            let (kind, pool, price, pods) = (&claim.cheapest_type, &claim.pool, claim.price, claim.pods.join(" "));
            format!("new {kind} of {pool}, zone {zone}, ${price:.4}/h: {pods}")
        });
        let errors = self.errors.iter().map(|(pod, error)| format!("✗ {pod}: {error}"));
        existing.chain(claims).chain(errors).collect()
    }
}

/// Asks the peer about all of them in one process. The answers come in the order of the questions.
pub(crate) fn peer(binary: &Path, purpose: &str, scenarios: &[Scenario]) -> Result<Vec<PeerAnswer>> {
    if scenarios.is_empty() {
        return Ok(Vec::new());
    }
    let folder = toolbox::cache()?.join("differential");
    std::fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    // Two runs at the same time must not share a file.
    let path = folder.join(format!("{purpose}-{}.jsonl", std::process::id()));
    let mut file = std::fs::File::create(&path).with_context(|| format!("{} cannot be written", path.display()))?;
    for scenario in scenarios {
        writeln!(file, "{}", scenario.line()).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    drop(file);
    let output = Command::new(binary)
        .arg("--batch")
        .arg(&path)
        .stderr(Stdio::inherit())
        .output()
        .context("the peer's harness does not start")?;
    if !output.status.success() {
        bail!("the peer's harness ended with {}; the scenarios are in {}", output.status, path.display());
    }
    let text = String::from_utf8(output.stdout).context("the peer's harness does not speak UTF-8")?;
    let answers = text
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("the peer's harness answered {line:?}")))
        .collect::<Result<Vec<PeerAnswer>>>()?;
    if let Some(failed) = answers.iter().find(|answer| !answer.failure.is_empty()) {
        bail!("the peer could not be asked about {}: {}", failed.name, failed.failure);
    }
    let same = answers.iter().map(|answer| &answer.name).eq(scenarios.iter().map(|scenario| &scenario.name));
    if !same {
        bail!("the peer's harness did not answer every question; the scenarios are in {}", path.display());
    }
    std::fs::remove_file(&path).with_context(|| format!("{} cannot be removed", path.display()))?;
    Ok(answers)
}

/// Our own answer, audited.
pub(crate) struct OurAnswer {
    pub(crate) snapshot: Snapshot,
    pub(crate) plan: Plan,
    pub(crate) report: Report,
}

pub(crate) fn ours(scenario: &Scenario) -> Result<OurAnswer> {
    let snapshot = scenario.snapshot()?;
    let (plan, report) = kerf_engine::plan_capacity(&snapshot, &Effort::default());
    if let Err(breaches) = kerf_engine::audit(&snapshot, &plan) {
        bail!("{}: our plan breaks a law: {:?}\n{}", scenario.name, breaches[0], scenario.line());
    }
    Ok(OurAnswer { snapshot, plan, report })
}

impl OurAnswer {
    pub(crate) fn placed(&self) -> BTreeSet<String> {
        let pods = self.plan.steps.iter().flat_map(|step| match step {
            Step::Place(placement) => &placement.pods,
            Step::Launch(launch) => &launch.for_pods,
        });
        pods.map(peers_name).collect()
    }

    /// Our plan in the words of the peer's answer: each claim as its first choice.
    pub(crate) fn as_peers(&self) -> PeerAnswer {
        let names = |pods: &[PodId]| pods.iter().map(peers_name).collect::<Vec<_>>();
        let mut answer = PeerAnswer {
            name: String::new(),
            failure: String::new(),
            pods: self.snapshot.pods.len(),
            dollars_per_hour: self.report.cost.added.dollars(),
            errors: BTreeMap::new(),
            claims: Vec::new(),
            existing: BTreeMap::new(),
        };
        for step in &self.plan.steps {
            match step {
                Step::Place(placement) => {
                    answer.existing.insert(placement.node.to_string(), names(&placement.pods));
                }
                Step::Launch(launch) => answer.claims.extend(launch.any_of.first().map(|first| {
                    let is =
                        |value: &str| PeerRequirement { operator: "In".to_owned(), values: vec![value.to_owned()] };
                    let pinned = |(key, requirement): (&Text, &Requirement)| {
                        let values = requirement.values.iter().map(ToString::to_string).collect();
                        (
                            key.to_string(),
                            PeerRequirement { operator: requirement.operator().as_str().to_owned(), values },
                        )
                    };
                    let mut requirements: BTreeMap<String, PeerRequirement> =
                        launch.requirements.iter().map(pinned).collect();
                    requirements.extend(launch.labels.iter().map(|(key, value)| (key.to_string(), is(value))));
                    requirements.extend(first.zone.as_ref().map(|zone| (labels::ZONE.to_owned(), is(zone))));
                    PeerClaim {
                        pool: launch.pool.to_string(),
                        cheapest_type: first.instance_type.to_string(),
                        price: first.price.dollars(),
                        requirements,
                        pods: names(&launch.for_pods),
                    }
                })),
            }
        }
        answer
    }

    /// Where pods of the plan would stand, for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let names = |pods: &[PodId]| pods.iter().map(peers_name).collect::<Vec<_>>().join(" ");
        let placed = self.plan.steps.iter().map(|step| match step {
            Step::Place(placement) => format!("{}: {}", placement.node, names(&placement.pods)),
            Step::Launch(launch) => {
                let first = launch.any_of.first();
                let kind = first.map_or("", |option| option.instance_type.as_str());
                let zone = launch.requirements.get(labels::ZONE).map(ToString::to_string).unwrap_or_default();
                format!("new {kind} of {}, zone {zone}, {}: {}", launch.pool, launch.price(), names(&launch.for_pods))
            }
        });
        let refused = self.report.refused.iter().map(|(pod, refusal)| format!("✗ {}: {refusal}", peers_name(pod)));
        let ill = self.snapshot.ill.iter().map(|(pod, why)| format!("✗ {}: {why}", peers_name(pod)));
        placed.chain(refused).chain(ill).collect()
    }
}

/// The name that the peer's harness has for a pod.
pub(crate) fn peers_name(id: &PodId) -> String {
    match &*id.namespace {
        "default" => id.name.to_string(),
        namespace => format!("{namespace}/{}", id.name),
    }
}
