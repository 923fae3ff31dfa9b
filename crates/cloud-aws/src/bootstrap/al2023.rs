//! Amazon Linux 2023: an archive whose last part is a NodeConfig for nodeadm. Of several, nodeadm lets the last one win.

use super::mime::{self, Part};
use super::{Bootstrap, BootstrapError, flags, without_carriage_returns, yaml};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

const NODE_CONFIG: &str = "Content-Type: application/node.eks.aws";

pub(super) fn render(inputs: &Bootstrap) -> Result<String, BootstrapError> {
    let mut parts = inputs.custom().map(user_parts).transpose()?.unwrap_or_default();
    let config = yaml::write(&node_config(inputs)?);
    parts.push(Part::new(NODE_CONFIG, format!("# Karpenter Generated NodeConfig\n{config}")));
    Ok(mime::archive(&parts))
}

/// An archive, a NodeConfig, or a script.
pub(super) fn user_parts(custom: &str) -> Result<Vec<Part>, BootstrapError> {
    let custom = without_carriage_returns(custom);
    if mime::is_mime(&custom) {
        return mime::parts_of(&custom);
    }
    match first_document(&custom) {
        Ok(document) if document.is_mapping() => Ok(vec![Part::new(NODE_CONFIG, custom)]),
        // Run as a script it would do nothing but fail, and nobody would see it.
        Err(error) if looks_like_node_config(&custom) => Err(BootstrapError::Yaml { why: error.to_string() }),
        _ => Ok(vec![Part::script(&custom)]),
    }
}

fn first_document(text: &str) -> Result<serde_norway::Value, serde_norway::Error> {
    match serde_norway::Deserializer::from_str(text).next() {
        Some(document) => serde_norway::Value::deserialize(document),
        None => Ok(serde_norway::Value::Null),
    }
}

fn looks_like_node_config(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.find(|line| line.trim() != "---").is_some_and(|line| line.starts_with("apiVersion:"))
}

fn node_config(inputs: &Bootstrap) -> Result<Value, BootstrapError> {
    let Some(cidr) = &inputs.cluster.service_cidr else { return Err(BootstrapError::NoServiceCidr) };
    let mut cluster = Map::new();
    cluster.insert("name".to_owned(), json!(inputs.cluster_name));
    cluster.insert("apiServerEndpoint".to_owned(), json!(inputs.cluster.endpoint));
    cluster.insert("cidr".to_owned(), json!(cidr));
    if !inputs.cluster.ca_bundle.is_empty() {
        let bundle: String = inputs.cluster.ca_bundle.split_ascii_whitespace().collect();
        let bundle = STANDARD.decode(bundle).map_err(|why| BootstrapError::CaBundle { why: why.to_string() })?;
        cluster.insert("certificateAuthority".to_owned(), json!(STANDARD.encode(bundle)));
    }
    let storage = if inputs.instance_store_raid { json!({"strategy": "RAID0"}) } else { json!({}) };
    let flags: Vec<String> = flags::node_labels(inputs).into_iter().collect();
    Ok(json!({
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "cluster": cluster,
            "containerd": {},
            "instance": {"localStorage": storage},
            "kubelet": {"config": kubelet_config(inputs), "flags": flags},
        },
    }))
}

/// What the class says, any field of it, with what is known better.
fn kubelet_config(inputs: &Bootstrap) -> Map<String, Value> {
    let mut config: Map<String, Value> = inputs.kubelet.iter().map(|(key, v)| (key.clone(), v.clone())).collect();
    config.insert("maxPods".to_owned(), json!(inputs.resolved.max_pods));
    let dns = inputs.cluster_dns();
    if !dns.is_empty() {
        config.insert("clusterDNS".to_owned(), json!(dns));
    }
    for (key, amounts) in [("kubeReserved", inputs.kube_reserved()), ("systemReserved", inputs.system_reserved())] {
        match amounts.is_empty() {
            true => config.remove(key),
            false => config.insert(key.to_owned(), json!(amounts)),
        };
    }
    let taints = inputs.taints.iter().map(|taint| {
        let mut out = json!({"key": *taint.key, "effect": taint.effect.as_str()});
        if !taint.value.is_empty() {
            out["value"] = json!(*taint.value);
        }
        out
    });
    let taints: Vec<Value> = taints.collect();
    if !taints.is_empty() {
        config.insert("registerWithTaints".to_owned(), Value::Array(taints));
    }
    config
}
