//! What an EC2NodeClass says about instance types, as the catalogue wants to hear it.

use kerf_api::{Ec2NodeClass, Kubelet};
use kerf_cloud::aws::{
    AmiFamily, BlockDevice, InstanceStorePolicy, KubeletFacts, NetworkInterface, NodeClassFacts, Threshold, regions,
};
use kerf_model::{Quantity, Resources, Text};
use serde_json::Value;
use std::collections::BTreeMap;

/// What the catalogue needs to know of a class.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Class {
    pub facts: NodeClassFacts,
}

/// Reads a class; without one, the provider's defaults. In words what of it makes no sense.
pub fn read(object: Option<&Value>) -> Result<Class, Text> {
    let Some(object) = object else {
        return Ok(Class::default());
    };
    let class: Ec2NodeClass = serde_json::from_value(object.clone())
        .map_err(|error| Text::from(format!("its EC2NodeClass cannot be read: {error}")))?;
    facts(&class).map(|facts| Class { facts }).map_err(Text::from)
}

impl Class {
    /// The region of its subnets: `eu-west-1` of `eu-west-1b`.
    pub fn region(&self) -> Option<String> {
        let zone = self.facts.zones.as_ref()?.keys().next()?;
        regions().find(|region| zone.starts_with(region)).map(str::to_owned)
    }
}

fn facts(class: &Ec2NodeClass) -> Result<NodeClassFacts, String> {
    let spec = &class.spec;
    let written = spec.ami_family.is_some() || !spec.ami_selector_terms.is_empty();
    let subnets = class.status.as_ref().map(|status| status.subnets.as_slice()).unwrap_or_default();
    Ok(NodeClassFacts {
        ami_family: if written { AmiFamily::parse(class.resolved_ami_family().as_str()) } else { AmiFamily::default() },
        kubelet: spec.kubelet.as_ref().map_or_else(|| Ok(KubeletFacts::default()), kubelet)?,
        instance_store: match spec.instance_store_policy.as_deref() {
            Some("RAID0") => InstanceStorePolicy::Raid0,
            _ => InstanceStorePolicy::Unset,
        },
        block_devices: block_devices(class)?,
        network_interfaces: spec
            .network_interfaces
            .iter()
            .flatten()
            .map(|interface| NetworkInterface {
                card: u32::try_from(interface.network_card_index).unwrap_or(0),
                efa_only: interface.interface_type == "efa-only",
            })
            .collect(),
        nested_virtualization: spec.cpu_options.as_ref().and_then(|options| options.nested_virtualization.as_deref())
            == Some("enabled"),
        connection_tracking: spec.connection_tracking.is_some(),
        zones: (!subnets.is_empty()).then(|| {
            let zone_id = |id: &Option<String>| id.as_deref().map(Text::from);
            subnets.iter().map(|subnet| (subnet.zone.as_str().into(), zone_id(&subnet.zone_id))).collect()
        }),
        ..NodeClassFacts::default()
    })
}

fn block_devices(class: &Ec2NodeClass) -> Result<Vec<BlockDevice>, String> {
    let mut out = Vec::new();
    for mapping in class.spec.block_device_mappings.iter().flatten() {
        let size = mapping.ebs.as_ref().and_then(|ebs| ebs.volume_size.as_ref());
        let size = size.map(|size| Quantity::parse(&size.0)).transpose();
        out.push(BlockDevice {
            name: mapping.device_name.as_deref().unwrap_or_default().into(),
            size: size.map_err(|error| format!("its EC2NodeClass: volumeSize: {error}"))?,
            is_root: mapping.root_volume == Some(true),
        });
    }
    Ok(out)
}

fn kubelet(written: &Kubelet) -> Result<KubeletFacts, String> {
    let count = |name: &str| written.get(name).and_then(Value::as_u64).and_then(|count| u32::try_from(count).ok());
    let texts = |name: &str| {
        let map = written.get(name).and_then(Value::as_object);
        map.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    };
    let resources = |name: &str| -> Result<Resources, String> {
        let mut out = Resources::new();
        for (resource, text) in texts(name) {
            let amount = Quantity::parse(text);
            out.set(resource, amount.map_err(|error| format!("its EC2NodeClass: kubelet.{name}.{resource}: {error}"))?);
        }
        Ok(out)
    };
    let mut eviction_hard = BTreeMap::new();
    for (signal, text) in texts("evictionHard") {
        let threshold = Threshold::parse(text).ok_or_else(|| {
            format!("its EC2NodeClass: kubelet.evictionHard.{signal}: {text:?} is neither an amount nor a percentage")
        })?;
        eviction_hard.insert(Text::from(signal), threshold);
    }
    Ok(KubeletFacts {
        max_pods: count("maxPods"),
        pods_per_core: count("podsPerCore"),
        kube_reserved: resources("kubeReserved")?,
        system_reserved: resources("systemReserved")?,
        eviction_hard,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_class_is_read_as_the_catalogue_needs_it() {
        let class = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "a"}, "spec": {
            "amiSelectorTerms": [{"alias": "bottlerocket@latest"}],
            "instanceStorePolicy": "RAID0",
            "kubelet": {"maxPods": 42, "kubeReserved": {"cpu": "200m"}, "evictionHard": {"memory.available": "5%"}},
            "blockDeviceMappings": [{"deviceName": "/dev/xvdb", "rootVolume": true, "ebs": {"volumeSize": "100Gi"}}]
        }});
        let facts = read(Some(&class)).ok().unwrap().facts;
        assert_eq!(facts.ami_family, AmiFamily::Bottlerocket);
        assert_eq!(facts.instance_store, InstanceStorePolicy::Raid0);
        assert_eq!(facts.kubelet.max_pods, Some(42));
        assert_eq!(facts.kubelet.kube_reserved.to_string(), "cpu 200m");
        assert_eq!(facts.kubelet.eviction_hard["memory.available"], Threshold::Percent(5.0));
        assert_eq!(facts.block_devices[0].size, Some(Quantity::from_mebibytes(100 * 1024)));
        assert_eq!(facts.zones, None);
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let class = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "a"},
            "spec": {"kubelet": {"systemReserved": {"memory": "lots"}}}});
        let error = read(Some(&class)).err().unwrap();
        assert!(error.contains("kubelet.systemReserved.memory"), "{error}");
    }
}
