//! User data: what an instance is told at its first boot, so that it becomes a node of the cluster.
//!
//! ```text
//!             ┌ al2            mime ── parts of the user, then a script that calls bootstrap.sh with flags
//! Bootstrap ──┼ al2023         mime ── parts of the user, then a NodeConfig, which wins because it comes last
//!             ├ bottlerocket   one TOML document, the user's and ours merged
//!             ├ windows        one PowerShell script, the user's lines before ours
//!             └ custom         the user's, untouched
//! ```
//!
//! Plain text in, plain text out. Which values go in (labels, taints, reserved resources) is decided by `templates`; whether
//! the kubelet settings make sense was checked when the class was resolved.

mod al2;
mod al2023;
mod bottlerocket;
mod flags;
mod mime;
mod windows;
mod yaml;

pub use bottlerocket::version_of as bottlerocket_version_of;

use crate::settings::ClusterFacts;
use crate::supply::ResolvedKubelet;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kerf_api::Kubelet;
use kerf_api::labels as keys;
use kerf_cloud::aws::AmiFamily;
use kerf_model::{CapacityType, Effect, Labels, Taint};
use serde_json::Value;
use std::collections::BTreeMap;

/// What EC2 takes, before base64.
pub const USER_DATA_BYTES_MAX: usize = 16_384;

/// Nine tenths of it: time to say that it gets tight.
pub const USER_DATA_BYTES_TIGHT: usize = 14_745;

/// Everything that user data depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Bootstrap {
    pub family: AmiFamily,
    pub cluster_name: String,
    pub cluster: ClusterFacts,
    /// `spec.userData` of the class.
    pub custom: Option<String>,
    /// `spec.kubelet` of the class, as written.
    pub kubelet: Kubelet,
    /// The settings of it that depend on the instance type.
    pub resolved: ResolvedKubelet,
    /// As [`node_labels`] makes them.
    pub labels: BTreeMap<String, String>,
    /// As [`node_taints`] makes them.
    pub taints: Vec<Taint>,
    pub instance_store_raid: bool,
    /// As [`bottlerocket_version_of`] finds it.
    pub bottlerocket_version: Option<String>,
}

/// Why there is no user data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapError {
    #[error("spec.userData begins like a MIME message but is none: line {line}: {why}")]
    Mime { line: usize, why: String },
    #[error("spec.userData is not valid TOML: line {line}, column {column}: {why}")]
    Toml { line: usize, column: usize, why: String },
    #[error("spec.userData: {key} is {found}; it has to be a table")]
    NoTable { key: &'static str, found: &'static str },
    #[error("spec.userData begins like a NodeConfig but is not valid YAML: {why}")]
    Yaml { why: String },
    #[error(
        "user data of {bytes} bytes is more than the {USER_DATA_BYTES_MAX} that EC2 takes; {custom_bytes} of them are \
         spec.userData: shorten it, or let it fetch the rest at boot"
    )]
    TooLarge { bytes: usize, custom_bytes: usize },
    #[error("the CA bundle of the cluster is not base64: {why} (setting CLUSTER_CA_BUNDLE)")]
    CaBundle { why: String },
    #[error(
        "the range of the cluster's service addresses is not known, and AL2023 nodes need it: allow eks:DescribeCluster, \
         which tells it, or use another AMI family"
    )]
    NoServiceCidr,
}

/// User data in base64, as launch templates take it. None when there is nothing to say (family Custom without user data).
///
/// Guarantees: the same inputs give the same bytes. User data that EC2 would refuse for its size is refused here, before any
/// call.
pub fn user_data(inputs: &Bootstrap) -> Result<Option<String>, BootstrapError> {
    Ok(render(inputs)?.map(|text| encode(&text)))
}

/// User data as the instance sees it.
pub fn render(inputs: &Bootstrap) -> Result<Option<String>, BootstrapError> {
    let text = match inputs.family {
        AmiFamily::Al2 => Some(al2::render(inputs)?),
        AmiFamily::Al2023 => Some(al2023::render(inputs)?),
        AmiFamily::Bottlerocket => Some(bottlerocket::render(inputs)?),
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => Some(windows::render(inputs)),
        AmiFamily::Custom => inputs.custom().map(str::to_owned),
    };
    match text {
        Some(text) if text.len() > USER_DATA_BYTES_MAX => {
            Err(BootstrapError::TooLarge { bytes: text.len(), custom_bytes: inputs.custom().map_or(0, str::len) })
        }
        text => Ok(text),
    }
}

pub(crate) fn encode(text: &str) -> String {
    STANDARD.encode(text)
}

/// Whether `spec.userData` can be read at all, without anything that only a launch knows. For those who judge classes.
pub fn check(family: AmiFamily, custom: &str) -> Result<(), BootstrapError> {
    match family {
        _ if custom.trim().is_empty() => Ok(()),
        AmiFamily::Al2 => al2::user_parts(custom).map(drop),
        AmiFamily::Al2023 => al2023::user_parts(custom).map(drop),
        AmiFamily::Bottlerocket => bottlerocket::parse(custom).map(drop),
        _ if custom.len() > USER_DATA_BYTES_MAX => {
            Err(BootstrapError::TooLarge { bytes: custom.len(), custom_bytes: custom.len() })
        }
        _ => Ok(()),
    }
}

/// The labels that a node gives itself: those of the claim and how it was bought. Labels of Kubernetes' own domains are left
/// out, as the kubelet may not set them; the operator puts them on the node.
pub fn node_labels(claim: &Labels, capacity_type: CapacityType) -> BTreeMap<String, String> {
    let own = claim.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    let ours = [(keys::CAPACITY_TYPE, capacity_type.as_str()), (keys::DO_NOT_SYNC_TAINTS, "true")];
    let mut labels: BTreeMap<String, String> = own.collect();
    labels.extend(ours.map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels.retain(|key, _| !belongs_to_kubernetes(key));
    labels
}

/// The taints that a node is born with: the claim's, those that go when it is ready, and the one that keeps pods off until it
/// is registered.
pub fn node_taints(taints: &[Taint], startup_taints: &[Taint]) -> Vec<Taint> {
    let unregistered =
        Taint { key: kerf_api::taints::UNREGISTERED.into(), value: "".into(), effect: Effect::NoExecute };
    let mut all: Vec<Taint> = Vec::new();
    for taint in taints.iter().chain(startup_taints).chain([&unregistered]) {
        if !all.contains(taint) {
            all.push(taint.clone());
        }
    }
    all
}

fn belongs_to_kubernetes(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_of = |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    ["kubernetes.io", "k8s.io"].into_iter().any(is_of)
}

impl Bootstrap {
    /// User data that says something.
    fn custom(&self) -> Option<&str> {
        self.custom.as_deref().filter(|text| !text.trim().is_empty())
    }

    /// The name servers of pods: those that the class names, else the cluster's own.
    fn cluster_dns(&self) -> Vec<String> {
        let named = self.kubelet.get("clusterDNS").and_then(Value::as_array);
        let named: Vec<String> = named.into_iter().flatten().map(text_of).collect();
        if named.is_empty() { self.cluster.dns.iter().map(ToString::to_string).collect() } else { named }
    }

    fn kube_reserved(&self) -> BTreeMap<String, String> {
        reserved(&self.kubelet, "kubeReserved", &self.resolved.kube_reserved)
    }

    fn system_reserved(&self) -> BTreeMap<String, String> {
        reserved(&self.kubelet, "systemReserved", &self.resolved.system_reserved)
    }

    /// A setting that maps names to amounts, in order of name.
    fn amounts(&self, setting: &str) -> BTreeMap<String, String> {
        let entries = self.kubelet.get(setting).and_then(Value::as_object).into_iter().flatten();
        entries.map(|(key, value)| (key.clone(), text_of(value))).collect()
    }

    /// A setting that is one number or word.
    fn single(&self, setting: &str) -> Option<String> {
        self.kubelet.get(setting).filter(|value| !value.is_null()).map(text_of)
    }
}

/// The resolved amounts of what the class sets. What it does not set is left to the image, which computes its own.
pub(crate) fn reserved(
    kubelet: &Kubelet,
    setting: &str,
    resolved: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let Some(written) = kubelet.get(setting).and_then(Value::as_object) else { return BTreeMap::new() };
    resolved.iter().filter(|(key, _)| written.contains_key(*key)).map(|(key, v)| (key.clone(), v.clone())).collect()
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Lines as both kinds of Amazon Linux expect them.
fn without_carriage_returns(text: &str) -> String {
    text.replace('\r', "")
}

#[cfg(test)]
mod tests;
