//! What a provisioner makes of a claim: a CSI volume, reachable from where the claim's class and its pod's node say.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectReference,
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::kubelet::digest;

pub(super) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
pub(super) const PROVISIONER_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

/// Where a volume may be: label and value pairs, all of which a node must have. Empty is everywhere.
pub(super) type Place = BTreeMap<String, String>;

/// Flow: the selected node decides; without one the class; without that any zone there is, chosen by the claim's uid. None when the
/// class does not allow the node's place.
pub(super) fn place(
    class: &StorageClass,
    claim_uid: &str,
    selected: Option<(&BTreeMap<String, String>, &[String])>,
    zones: &[&str],
) -> Option<Place> {
    let terms = class.allowed_topologies.as_deref().unwrap_or_default();
    let expressions = |index: usize| {
        let term = terms.get(index).and_then(|term| term.match_label_expressions.as_deref()).unwrap_or_default();
        term.iter()
    };
    if let Some((labels, driver_keys)) = selected {
        let is_allowed = terms.is_empty()
            || (0..terms.len()).any(|index| {
                expressions(index).all(|want| labels.get(&want.key).is_some_and(|value| want.values.contains(value)))
            });
        if !is_allowed {
            return None;
        }
        // A driver that has said nothing about its topology, on a node in a zone, keeps its volumes in that zone.
        let zone_only = [ZONE.to_owned()];
        let keys = if driver_keys.is_empty() { &zone_only[..] } else { driver_keys };
        return Some(keys.iter().filter_map(|key| labels.get(key).map(|value| (key.clone(), value.clone()))).collect());
    }
    if !terms.is_empty() {
        let chosen = pick(claim_uid, terms.len());
        return Some(
            expressions(chosen)
                .filter_map(|want| {
                    let value = want.values.get(pick(claim_uid, want.values.len()))?;
                    Some((want.key.clone(), value.clone()))
                })
                .collect(),
        );
    }
    let zone = zones.get(pick(claim_uid, zones.len()));
    Some(zone.map(|zone| (ZONE.to_owned(), (*zone).to_owned())).into_iter().collect())
}

pub(super) fn volume(claim: &PersistentVolumeClaim, class: &StorageClass, place: &Place) -> PersistentVolume {
    let meta = &claim.metadata;
    let spec = claim.spec.clone().unwrap_or_default();
    let uid = meta.uid.clone().unwrap_or_default();
    let parameters = class.parameters.clone().unwrap_or_default();
    let is_block = spec.volume_mode.as_deref() == Some("Block");
    let fs_type = parameters.get("csi.storage.k8s.io/fstype").cloned().unwrap_or_else(|| "ext4".to_owned());
    let text = |text: &str| text.to_owned();
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(format!("pvc-{uid}")),
            annotations: Some(BTreeMap::from([
                (text(PROVISIONED_BY), class.provisioner.clone()),
                (text("volume.kubernetes.io/provisioner-deletion-secret-name"), String::new()),
                (text("volume.kubernetes.io/provisioner-deletion-secret-namespace"), String::new()),
            ])),
            finalizers: Some(vec![text(PROVISIONER_FINALIZER)]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: spec.resources.and_then(|resources| resources.requests),
            claim_ref: Some(reference(claim)),
            csi: Some(CSIPersistentVolumeSource {
                driver: class.provisioner.clone(),
                fs_type: Some(fs_type).filter(|_| !is_block),
                volume_handle: format!("vol-{}", digest(&uid).get(..17).unwrap_or_default()),
                ..CSIPersistentVolumeSource::default()
            }),
            mount_options: class.mount_options.clone(),
            node_affinity: Some(affinity(place)).filter(|_| !place.is_empty()),
            persistent_volume_reclaim_policy: Some(class.reclaim_policy.clone().unwrap_or_else(|| text("Delete"))),
            storage_class_name: class.metadata.name.clone(),
            volume_attributes_class_name: spec.volume_attributes_class_name,
            volume_mode: spec.volume_mode,
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

pub(super) fn reference(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        field_path: None,
    }
}

fn affinity(place: &Place) -> VolumeNodeAffinity {
    let expressions = place
        .iter()
        .map(|(key, value)| NodeSelectorRequirement {
            key: key.clone(),
            operator: "In".to_owned(),
            values: Some(vec![value.clone()]),
        })
        .collect();
    let term = NodeSelectorTerm { match_expressions: Some(expressions), match_fields: None };
    VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: vec![term] }) }
}

/// One of so many, by a text. 0 of none.
fn pick(text: &str, n: usize) -> usize {
    let number = digest(text).get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or(0);
    usize::try_from(number).unwrap_or(0).checked_rem(n).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_volume_is_made_where_its_pod_will_run() {
        let class = |topologies: serde_json::Value| -> StorageClass {
            serde_json::from_value(
                json!({"metadata": {"name": "c"}, "provisioner": "p", "allowedTopologies": topologies}),
            )
            .unwrap()
        };
        let anywhere = class(json!([]));
        let only_b = class(json!([{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]));
        let labels = BTreeMap::from([(ZONE.to_owned(), "a".to_owned()), ("rack".to_owned(), "7".to_owned())]);
        let rack = ["rack".to_owned()];
        let cases = [
            (&anywhere, Some((&labels, &[][..])), vec!["a"], Some("topology.kubernetes.io/zone=a")),
            (&anywhere, Some((&labels, &rack[..])), vec!["a"], Some("rack=7")),
            (&only_b, Some((&labels, &[][..])), vec!["a"], None),
            (&only_b, None, vec!["a"], Some("topology.kubernetes.io/zone=b")),
            (&anywhere, None, vec!["a"], Some("topology.kubernetes.io/zone=a")),
            (&anywhere, None, vec![], Some("")),
        ];
        for (class, selected, zones, expected) in cases {
            let place = place(class, "uid", selected, &zones);
            let said = place
                .map(|place| place.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" "));
            assert_eq!(said.as_deref(), expected);
        }
    }
}
