//! The smallest cluster that still shows the same: parts are left out one at a time as long as it does.

use super::ask;
use super::compare::Case;
use super::explain::{self, Finding};
use super::scenario::Scenario;
use anyhow::Result;
use serde_json::Value;
use std::path::Path;

/// Left out together: a node with its claim and what runs on it.
fn belongs_to(object: &Value, node: &str) -> bool {
    let name = object["metadata"]["name"].as_str();
    (matches!(object["kind"].as_str(), Some("Node" | "NodeClaim")) && name == Some(node))
        || object["spec"]["nodeName"].as_str() == Some(node)
}

/// The scenario with one part less, in every way there is.
fn smaller(scenario: &Scenario) -> Vec<Scenario> {
    let mut out = Vec::new();
    let mut without = |is_gone: &dyn Fn(usize, &Value) -> bool| {
        let mut less = scenario.clone();
        let mut position = 0;
        less.objects.retain(|object| {
            position += 1;
            !is_gone(position - 1, object)
        });
        out.push(less);
    };
    for (position, object) in scenario.objects.iter().enumerate() {
        match object["kind"].as_str() {
            Some("Node") => {
                let node = object["metadata"]["name"].as_str().unwrap_or_default();
                without(&|_, other| belongs_to(other, node));
            }
            Some("Pod" | "NodePool" | "DaemonSet") => without(&|other, _| other == position),
            _ => {}
        }
    }
    for position in 0..scenario.types.len() {
        let mut less = scenario.clone();
        less.types.remove(position);
        out.push(less);
    }
    for key in ["affinity", "topologySpreadConstraints", "tolerations", "nodeSelector"] {
        for spec in specs(scenario).into_iter().filter(|spec| spec.get(key).is_some()) {
            // Pods that are alike stay alike.
            out.push(scenario.changed("Pod", |pod| {
                if pod["spec"] == *spec {
                    pod["spec"].as_object_mut().map(|spec| spec.remove(key));
                }
            }));
        }
    }
    out
}

/// The different ones among the pods.
fn specs(scenario: &Scenario) -> Vec<&Value> {
    let mut out: Vec<&Value> = Vec::new();
    for pod in scenario.objects.iter().filter(|object| object["kind"] == "Pod") {
        if !out.contains(&&pod["spec"]) {
            out.push(&pod["spec"]);
        }
    }
    out
}

/// Shrinks a cluster as long as one of its findings is like this one: about some of the same pods, in the same direction,
/// with the same row.
pub(crate) fn shrink(binary: &Path, case: Case, like: &Finding) -> Result<Case> {
    let still = |finding: &Finding| {
        finding.row == like.row
            && finding.difference.is_ours_more() == like.difference.is_ours_more()
            && finding.difference.pods.iter().any(|pod| like.difference.pods.contains(pod))
    };
    let mut least = case;
    loop {
        // Without pools or types the peer does not even look at the nodes (S11).
        let can_grow = |scenario: &Scenario| {
            !scenario.types.is_empty() && scenario.objects.iter().any(|object| object["kind"] == "NodePool")
        };
        let scenarios: Vec<Scenario> = smaller(&least.scenario).into_iter().filter(can_grow).collect();
        let peers = ask::peer(binary, "shrink", &scenarios)?;
        let mut cases = Vec::new();
        for (scenario, peer) in scenarios.into_iter().zip(peers) {
            let ours = ask::ours(&scenario)?;
            cases.push(Case { scenario, ours, peer });
        }
        let findings = explain::explain(binary, &cases)?;
        let Some(next) = findings.iter().find(|finding| still(finding)).map(|finding| finding.case) else {
            return Ok(least);
        };
        least = cases.swap_remove(next);
    }
}
