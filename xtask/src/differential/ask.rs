//! The same question to both sides.

use super::scenario::Scenario;
use crate::toolbox;
use anyhow::{Context as _, Result, bail};
use kerf_model::{DemandIdx, Effort, Plan, Report, Snapshot, Step};
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
    pub(crate) zone_requirement: Option<PeerRequirement>,
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
    pub(crate) fn placed(&self) -> BTreeSet<&str> {
        let on_claims = self.claims.iter().flat_map(|claim| &claim.pods);
        on_claims.chain(self.existing.values().flatten()).map(String::as_str).collect()
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

    /// The waiting pods by what they need; pods that need the same are as good as each other.
    pub(crate) fn classes(&self) -> BTreeMap<DemandIdx, Vec<String>> {
        let mut classes: BTreeMap<DemandIdx, Vec<String>> = BTreeMap::new();
        for pod in &self.snapshot.pods {
            classes.entry(pod.demand).or_default().push(peers_name(&pod.id));
        }
        classes
    }
}

/// The name that the peer's harness has for a pod.
pub(crate) fn peers_name(id: &kerf_model::PodId) -> String {
    match &*id.namespace {
        "default" => id.name.to_string(),
        namespace => format!("{namespace}/{}", id.name),
    }
}
