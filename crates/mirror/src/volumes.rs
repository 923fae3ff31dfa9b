//! Where volumes can be reached, and what drives them.

use crate::read::{self, Fault, Reader};
use crate::requirement::{self, Author, Written};
use crate::settings::{MirrorSettings, View};
use crate::shape::Claim;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kerf_api::LabelRules;
use kerf_model::{Requirement, Requirements, Text, VolumeNeeds, labels};
use std::collections::BTreeMap;

/// Claims, volumes and classes, by name.
#[derive(Debug, Default)]
pub(crate) struct Storage {
    pub(crate) claims: BTreeMap<(Text, Text), ClaimFact>,
    pub(crate) volumes: BTreeMap<Text, VolumeFact>,
    pub(crate) classes: BTreeMap<Text, ClassFact>,
    /// Attach limits by driver, by node. None means that the driver is there and unlimited.
    pub(crate) csi_nodes: BTreeMap<Text, BTreeMap<Text, Option<u32>>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ClaimFact {
    volume: Option<Text>,
    /// None leaves it to the cluster's default class; empty means no class.
    storage_class: Option<Text>,
    is_deleting: bool,
    is_lost: bool,
    is_bound: bool,
}

impl ClaimFact {
    pub(crate) fn read(claim: &PersistentVolumeClaim) -> Self {
        let spec = claim.spec.clone().unwrap_or_default();
        let text = |text: Option<String>| text.as_deref().map(Text::from);
        Self {
            volume: text(spec.volume_name).filter(|name| !name.is_empty()),
            storage_class: text(spec.storage_class_name),
            is_deleting: read::is_deleting(&claim.metadata),
            is_lost: claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost"),
            is_bound: claim
                .metadata
                .annotations
                .as_ref()
                .is_some_and(|annotations| annotations.contains_key("pv.kubernetes.io/bind-completed"))
                || claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound"),
        }
    }

    /// The claim that a controller will make from a template.
    pub(crate) fn promised(storage_class: Option<Text>) -> Self {
        Self { storage_class, ..Self::default() }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct VolumeFact {
    /// One of them must hold. Empty: reachable from anywhere.
    alternatives: Vec<Requirements>,
    driver: Option<Text>,
    is_deleting: bool,
}

impl VolumeFact {
    pub(crate) fn read(reader: &mut Reader, volume: &PersistentVolume, rules: &LabelRules) -> Self {
        let Some(spec) = &volume.spec else {
            return Self::default();
        };
        // A volume that lives on one machine is bound to that machine's name; a new node cannot have it, but the data
        // may be given up, so that upstream looks at the rest of the term only.
        let is_local = spec.local.is_some() || spec.host_path.is_some();
        let mut alternatives = Vec::new();
        let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
        for (position, term) in required.map(|r| &r.node_selector_terms).into_iter().flatten().enumerate() {
            let field = format!("spec.nodeAffinity.required.nodeSelectorTerms[{position}]");
            let mut requirements = Requirements::new();
            for (index, expression) in term.match_expressions.iter().flatten().enumerate() {
                if is_local && expression.key == labels::HOSTNAME {
                    continue;
                }
                let field = format!("{field}.matchExpressions[{index}]");
                let written = Written::of_term(expression);
                if let Some(message) =
                    requirement::add(reader, &field, &mut requirements, written, Author::Unchecked, rules)
                {
                    reader.fault(field, message);
                }
            }
            alternatives.push(requirements);
        }
        let driver = match (&spec.csi, &spec.aws_elastic_block_store) {
            (Some(csi), _) => Some(csi.driver.as_str().into()),
            (None, Some(_)) => Some("ebs.csi.aws.com".into()),
            (None, None) => None,
        };
        Self { alternatives: simplest(alternatives), driver, is_deleting: read::is_deleting(&volume.metadata) }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ClassFact {
    driver: Text,
    binds_at_once: bool,
    alternatives: Vec<Requirements>,
    pub(crate) is_default: bool,
}

impl ClassFact {
    pub(crate) fn read(class: &StorageClass) -> Self {
        let mut alternatives = Vec::new();
        for term in class.allowed_topologies.iter().flatten() {
            let mut requirements = Requirements::new();
            for expression in term.match_label_expressions.iter().flatten() {
                requirements.add(&expression.key, Requirement::is_in(expression.values.iter().map(String::as_str)));
            }
            alternatives.push(requirements);
        }
        let annotations = class.metadata.annotations.as_ref();
        let is_default =
            ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
                .into_iter()
                .any(|key| annotations.and_then(|a| a.get(key)).map(String::as_str) == Some("true"));
        Self {
            driver: todays_driver(&class.provisioner).into(),
            binds_at_once: class.volume_binding_mode.as_deref().unwrap_or("Immediate") == "Immediate",
            alternatives: simplest(alternatives),
            is_default,
        }
    }
}

pub(crate) fn attach_limits(node: &CSINode) -> BTreeMap<Text, Option<u32>> {
    node.spec
        .drivers
        .iter()
        .map(|driver| {
            let count = driver.allocatable.as_ref().and_then(|allocatable| allocatable.count);
            (driver.name.as_str().into(), count.and_then(|count| u32::try_from(count).ok()))
        })
        .collect()
}

impl Storage {
    /// What a pod's volumes ask of its node, or why the pod cannot be considered.
    ///
    /// Assumes that `promised` holds the claims that will be made together with the pod.
    pub(crate) fn needs(
        &self,
        settings: &MirrorSettings,
        namespace: &Text,
        pod_name: &str,
        claims: &[Claim],
        promised: &BTreeMap<Text, ClaimFact>,
    ) -> Result<VolumeNeeds, Fault> {
        let mut needs = VolumeNeeds::default();
        for claim in claims {
            let (volume, name): (&Text, Text) = match claim {
                Claim::Named { volume, claim } => (volume, claim.clone()),
                Claim::Ephemeral { volume, .. } => (volume, format!("{pod_name}-{volume}").into()),
            };
            let fault =
                |message: String| Fault { field: format!("spec.volumes[{volume}]").into(), message: message.into() };
            let fact = self
                .claims
                .get(&(namespace.clone(), name.clone()))
                .or_else(|| promised.get(&name))
                .ok_or_else(|| fault(format!("PersistentVolumeClaim {namespace}/{name} does not exist")))?;
            let (alternatives, driver) = self.locate(settings, namespace, &name, fact).map_err(fault)?;
            merge(&mut needs.alternatives, &alternatives);
            if let Some(driver) = driver {
                needs.attachments.entry(driver).or_default().insert(format!("{namespace}/{name}").into());
            }
        }
        Ok(needs)
    }

    /// The drivers and volumes that a running pod has attached. What is missing is skipped.
    pub(crate) fn attachments(&self, namespace: &Text, pod_name: &str, claims: &[Claim]) -> Vec<(Text, Text)> {
        let mut out = Vec::new();
        for claim in claims {
            let name: Text = match claim {
                Claim::Named { claim, .. } => claim.clone(),
                Claim::Ephemeral { volume, .. } => format!("{pod_name}-{volume}").into(),
            };
            let driver = self.claims.get(&(namespace.clone(), name.clone())).and_then(|fact| self.driver(fact));
            if let Some(driver) = driver {
                out.push((driver, format!("{namespace}/{name}").into()));
            }
        }
        out
    }

    fn driver(&self, claim: &ClaimFact) -> Option<Text> {
        match &claim.volume {
            Some(volume) => self.volumes.get(volume)?.driver.clone(),
            None => Some(self.class_of(claim)?.1.driver.clone()),
        }
    }

    fn class_of(&self, claim: &ClaimFact) -> Option<(&Text, &ClassFact)> {
        match &claim.storage_class {
            Some(name) => self.classes.get_key_value(name),
            None => self.classes.iter().find(|(_, class)| class.is_default),
        }
    }

    fn locate(
        &self,
        settings: &MirrorSettings,
        namespace: &Text,
        name: &Text,
        claim: &ClaimFact,
    ) -> Result<(Vec<Requirements>, Option<Text>), String> {
        let what = format!("PersistentVolumeClaim {namespace}/{name}");
        if claim.is_deleting {
            return Err(format!("{what} is being deleted"));
        }
        if claim.is_lost {
            return Err(format!("{what} has lost its volume"));
        }
        if let Some(volume_name) = &claim.volume {
            let Some(volume) = self.volumes.get(volume_name) else {
                return Err(format!("PersistentVolume {volume_name} of {what} does not exist"));
            };
            if volume.is_deleting {
                return Err(format!("PersistentVolume {volume_name} of {what} is being deleted"));
            }
            // A claim written by hand names its volume, and nobody has annotated it yet.
            if !claim.is_bound && settings.view == View::Live {
                return Err(format!("{what} is not bound to PersistentVolume {volume_name} yet"));
            }
            self.check_driver(settings, volume.driver.as_ref(), &what)?;
            return Ok((volume.alternatives.clone(), volume.driver.clone()));
        }
        let Some((class_name, class)) = self.class_of(claim) else {
            return Err(match claim.storage_class.as_deref() {
                None => format!("{what} is unbound, and there is no default StorageClass"),
                Some("") => format!("{what} is unbound, and asks for no StorageClass"),
                Some(class) => format!("StorageClass {class} of {what} does not exist"),
            });
        };
        if class.binds_at_once {
            return Err(format!(
                "{what} is unbound, and StorageClass {class_name} binds at once (Immediate), not with the pod"
            ));
        }
        let unsupported = class
            .alternatives
            .iter()
            .flat_map(|alternative| alternative.0.keys())
            .find(|key| settings.unsupported_topology_keys.contains(*key));
        if let Some(key) = unsupported {
            return Err(format!(
                "StorageClass {class_name} of {what} asks for topology {key}, which no node of ours has"
            ));
        }
        self.check_driver(settings, Some(&class.driver), &what)?;
        Ok((class.alternatives.clone(), Some(class.driver.clone())))
    }

    fn check_driver(&self, settings: &MirrorSettings, driver: Option<&Text>, what: &str) -> Result<(), String> {
        match driver {
            Some(driver) if settings.unsupported_drivers.contains(driver) => {
                Err(format!("{what} is driven by {driver}, which no node of ours supports"))
            }
            _ => Ok(()),
        }
    }
}

/// Joins the alternatives of another volume: the pairs that go together, or all of them where none do, so that the
/// clash is reported by whoever looks for a node.
fn merge(present: &mut Vec<Requirements>, added: &[Requirements]) {
    if added.is_empty() {
        return;
    }
    if present.is_empty() {
        present.extend_from_slice(added);
        return;
    }
    let mut all = Vec::new();
    let mut compatible = Vec::new();
    for ours in present.iter() {
        for theirs in added {
            let mut both = ours.clone();
            both.add_all(theirs);
            if ours.intersects(theirs) {
                compatible.push(both.clone());
            }
            all.push(both);
        }
    }
    *present = simplest(if compatible.is_empty() { all } else { compatible });
}

/// Without repetition; and nothing at all if one alternative is unconstrained.
fn simplest(alternatives: Vec<Requirements>) -> Vec<Requirements> {
    if alternatives.iter().any(Requirements::is_empty) {
        return Vec::new();
    }
    let mut out: Vec<Requirements> = Vec::new();
    for alternative in alternatives {
        if !out.contains(&alternative) {
            out.push(alternative);
        }
    }
    out
}

/// In-tree provisioners live on as CSI drivers.
fn todays_driver(provisioner: &str) -> &str {
    match provisioner {
        "kubernetes.io/aws-ebs" => "ebs.csi.aws.com",
        "kubernetes.io/gce-pd" => "pd.csi.storage.gke.io",
        "kubernetes.io/azure-disk" => "disk.csi.azure.com",
        "kubernetes.io/azure-file" => "file.csi.azure.com",
        "kubernetes.io/cinder" => "cinder.csi.openstack.org",
        "kubernetes.io/vsphere-volume" => "csi.vsphere.vmware.com",
        "kubernetes.io/portworx-volume" => "pxd.portworx.com",
        other => other,
    }
}
