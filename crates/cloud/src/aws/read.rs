//! Reads an EC2NodeClass, as the API server writes it, into the facts that types depend on.
//!
//! Every provider of EC2's types needs this, whoever launches them: the real one and the simulated one. Only the fields that
//! matter here are looked at; whether the rest makes sense is for the schema and for `kerf-api` to say.

use super::class::{
    AmiFamily, BlockDevice, InstanceStorePolicy, KubeletExpressions, KubeletFacts, NetworkInterface, NodeClassFacts,
    Threshold,
};
use kerf_model::{Quantity, Resources, Text};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// What of a class makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClassProblem {
    #[error("it cannot be read: {0}")]
    Shape(String),
    /// A field, by its path under `spec`.
    #[error("{path}: {message}")]
    Field { path: String, message: String },
}

impl NodeClassFacts {
    /// Guarantees: what the class leaves out has the provider's default. The operator's own settings (reserved interfaces, memory
    /// overhead) have theirs too, for the caller to replace; so has the placement group, which EC2 alone knows.
    pub fn read(object: &Value) -> Result<Self, ClassProblem> {
        let class = Written::deserialize(object).map_err(|error| ClassProblem::Shape(error.to_string()))?;
        let Written { spec, status } = class;
        let subnets = status.and_then(|status| status.subnets).unwrap_or_default();
        Ok(Self {
            ami_family: family(&spec),
            kubelet: spec.kubelet.as_ref().map_or_else(|| Ok(KubeletFacts::default()), kubelet)?,
            instance_store: match spec.instance_store_policy.as_deref() {
                Some("RAID0") => InstanceStorePolicy::Raid0,
                _ => InstanceStorePolicy::Unset,
            },
            block_devices: block_devices(spec.block_device_mappings.unwrap_or_default())?,
            network_interfaces: spec.network_interfaces.into_iter().flatten().map(NetworkInterface::from).collect(),
            nested_virtualization: spec.cpu_options.and_then(|options| options.nested_virtualization).as_deref()
                == Some("enabled"),
            connection_tracking: spec.connection_tracking.is_some(),
            zones: (!subnets.is_empty()).then(|| {
                subnets.into_iter().map(|subnet| (subnet.zone.into(), subnet.zone_id.map(Text::from))).collect()
            }),
            ..Self::default()
        })
    }
}

#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    spec: Spec,
    status: Option<Status>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Spec {
    ami_family: Option<String>,
    ami_selector_terms: Option<Vec<Term>>,
    kubelet: Option<BTreeMap<String, Value>>,
    block_device_mappings: Option<Vec<Mapping>>,
    instance_store_policy: Option<String>,
    network_interfaces: Option<Vec<Interface>>,
    connection_tracking: Option<Value>,
    cpu_options: Option<CpuOptions>,
}

#[derive(Deserialize)]
struct Term {
    alias: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    device_name: Option<String>,
    root_volume: Option<bool>,
    ebs: Option<Volume>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    volume_size: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Interface {
    network_card_index: u32,
    device_index: u32,
    interface_type: String,
}

impl From<Interface> for NetworkInterface {
    fn from(written: Interface) -> Self {
        Self {
            card: written.network_card_index,
            device: written.device_index,
            efa_only: written.interface_type == "efa-only",
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CpuOptions {
    nested_virtualization: Option<String>,
}

#[derive(Deserialize)]
struct Status {
    subnets: Option<Vec<Subnet>>,
}

#[derive(Deserialize)]
struct Subnet {
    zone: String,
    #[serde(rename = "zoneID")]
    zone_id: Option<String>,
}

/// The written family, else the alias's, else Custom. A class that says nothing about images at all is a sketch, and gets the
/// default.
fn family(spec: &Spec) -> AmiFamily {
    let terms = spec.ami_selector_terms.as_deref().unwrap_or_default();
    match &spec.ami_family {
        Some(family) => AmiFamily::parse(family),
        None if terms.is_empty() => AmiFamily::default(),
        None => {
            let alias = terms.iter().find_map(|term| term.alias.as_deref()).unwrap_or_default();
            AmiFamily::of_alias(alias.split('@').next().unwrap_or(alias))
        }
    }
}

fn block_devices(mappings: Vec<Mapping>) -> Result<Vec<BlockDevice>, ClassProblem> {
    let read = |(position, mapping): (usize, Mapping)| {
        let size = mapping.ebs.and_then(|ebs| ebs.volume_size).map(|text| Quantity::parse(&text)).transpose();
        Ok(BlockDevice {
            name: mapping.device_name.unwrap_or_default().into(),
            size: size.map_err(|error| ClassProblem::Field {
                path: format!("blockDeviceMappings[{position}].ebs.volumeSize"),
                message: error.to_string(),
            })?,
            is_root: mapping.root_volume == Some(true),
        })
    };
    mappings.into_iter().enumerate().map(read).collect()
}

fn kubelet(written: &BTreeMap<String, Value>) -> Result<KubeletFacts, ClassProblem> {
    let count = |name: &str| written.get(name).and_then(Value::as_u64).and_then(|count| u32::try_from(count).ok());
    let texts = |name: &str| {
        let map = written.get(name).and_then(Value::as_object);
        map.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    };
    // A text that is no amount is an expression.
    let reserved = |name: &str| {
        let (mut amounts, mut expressions) = (Resources::new(), BTreeMap::new());
        for (resource, text) in texts(name) {
            match Quantity::parse(text) {
                Ok(amount) => amounts.set(resource, amount),
                Err(_) => {
                    expressions.insert(Text::from(resource), Text::from(text));
                }
            }
        }
        (amounts, expressions)
    };
    let mut eviction_hard = BTreeMap::new();
    for (signal, text) in texts("evictionHard") {
        let threshold = Threshold::parse(text).ok_or_else(|| ClassProblem::Field {
            path: format!("kubelet.evictionHard.{signal}"),
            message: format!("{text:?} is neither an amount nor a percentage"),
        })?;
        eviction_hard.insert(Text::from(signal), threshold);
    }
    let (kube_reserved, kube_expressions) = reserved("kubeReserved");
    let (system_reserved, system_expressions) = reserved("systemReserved");
    Ok(KubeletFacts {
        max_pods: count("maxPods"),
        pods_per_core: count("podsPerCore"),
        kube_reserved,
        system_reserved,
        eviction_hard,
        expressions: KubeletExpressions {
            max_pods: written.get("maxPods").and_then(Value::as_str).map(Text::from),
            kube_reserved: kube_expressions,
            system_reserved: system_expressions,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(spec: Value) -> Result<NodeClassFacts, ClassProblem> {
        NodeClassFacts::read(&json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "spec": spec}))
    }

    #[test]
    fn a_class_is_read_as_the_catalogue_needs_it() {
        let facts = read(json!({
            "amiSelectorTerms": [{"alias": "bottlerocket@latest"}],
            "instanceStorePolicy": "RAID0",
            "kubelet": {"maxPods": 42, "kubeReserved": {"cpu": "200m"}, "evictionHard": {"memory.available": "5%"}},
            "blockDeviceMappings": [{"deviceName": "/dev/xvdb", "rootVolume": true, "ebs": {"volumeSize": "100Gi"}}],
            "networkInterfaces": [{"networkCardIndex": 1, "deviceIndex": 2, "interfaceType": "efa-only"}],
            "cpuOptions": {"nestedVirtualization": "enabled"},
            "connectionTracking": {"udpTimeout": 30},
        }))
        .unwrap();
        assert_eq!(facts.ami_family, AmiFamily::Bottlerocket);
        assert_eq!(facts.instance_store, InstanceStorePolicy::Raid0);
        assert_eq!(facts.kubelet.max_pods, Some(42));
        assert_eq!(facts.kubelet.kube_reserved.to_string(), "cpu 200m");
        assert_eq!(facts.kubelet.eviction_hard["memory.available"], Threshold::Percent(5.0));
        assert_eq!(facts.block_devices[0].size, Some(Quantity::from_mebibytes(100 * 1024)));
        assert_eq!(facts.network_interfaces, [NetworkInterface { card: 1, device: 2, efa_only: true }]);
        assert!(facts.nested_virtualization && facts.connection_tracking);
        assert_eq!(facts.zones, None);
    }

    #[test]
    fn the_family_is_the_written_one_else_the_aliass_else_custom() {
        for (spec, expected) in [
            (json!({}), AmiFamily::Al2023),
            (json!({"amiFamily": "AL2"}), AmiFamily::Al2),
            (json!({"amiFamily": "Custom", "amiSelectorTerms": [{"alias": "al2023@latest"}]}), AmiFamily::Custom),
            (json!({"amiSelectorTerms": [{"alias": "windows2022@latest"}]}), AmiFamily::Windows2022),
            (json!({"amiSelectorTerms": [{"alias": "AL2023@latest"}]}), AmiFamily::Custom),
            (json!({"amiSelectorTerms": [{"id": "ami-1"}]}), AmiFamily::Custom),
        ] {
            assert_eq!(read(spec.clone()).unwrap().ami_family, expected, "{spec}");
        }
    }

    #[test]
    fn texts_that_are_no_amounts_are_expressions() {
        let facts = read(json!({"kubelet": {
            "maxPods": "vcpus * 4",
            "kubeReserved": {"cpu": "vcpus * 10", "memory": "1Gi"},
            "systemReserved": {"memory": "memory_mib / 100"},
        }}))
        .unwrap();
        assert_eq!(facts.kubelet.max_pods, None);
        assert_eq!(facts.kubelet.kube_reserved.to_string(), "memory 1Gi");
        let paths: Vec<String> =
            facts.kubelet.expressions.iter().map(|(path, text)| format!("{path}: {text}")).collect();
        assert_eq!(
            paths,
            [
                "kubelet.maxPods: vcpus * 4",
                "kubelet.kubeReserved.cpu: vcpus * 10",
                "kubelet.systemReserved.memory: memory_mib / 100"
            ]
        );
    }

    #[test]
    fn what_makes_no_sense_is_told_with_its_path() {
        for (spec, expected) in [
            (
                json!({"blockDeviceMappings": [{}, {"ebs": {"volumeSize": "big"}}]}),
                "blockDeviceMappings[1].ebs.volumeSize: ",
            ),
            (
                json!({"kubelet": {"evictionHard": {"memory.available": "some"}}}),
                "kubelet.evictionHard.memory.available: \"some\" is neither",
            ),
            (json!({"networkInterfaces": "none"}), "it cannot be read: "),
        ] {
            let error = read(spec.clone()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{spec}: {error}");
        }
    }
}
