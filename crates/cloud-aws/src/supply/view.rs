//! What of an EC2NodeClass decides about types and offerings.

use crate::settings::Settings;
use crate::wire::PlacementGroup;
use kerf_api::{CapacityReservation, Ec2NodeClass, Ec2NodeClassStatus};
use kerf_cloud::CloudError;
use kerf_cloud::aws::{NodeClassFacts, PlacementStrategy};
use kerf_model::Text;
use std::collections::BTreeMap;

pub(super) struct View {
    pub(super) name: Text,
    pub(super) facts: NodeClassFacts,
    /// By zone: the subnets that the class found there.
    pub(super) subnets: BTreeMap<Text, Vec<Text>>,
    /// By type.
    pub(super) reservations: BTreeMap<Text, Vec<CapacityReservation>>,
    pub(super) group: Option<PlacementGroup>,
    /// Tells the class's set of images from others: a node's memory depends on its image.
    pub(super) images: Text,
}

impl View {
    pub(super) fn new(
        class: &Ec2NodeClass,
        group: Option<PlacementGroup>,
        settings: &Settings,
    ) -> Result<Self, CloudError> {
        let name = name(class);
        let refused =
            |problem: String| CloudError::Refused { message: format!("EC2NodeClass {name}: {problem}").into() };
        let object = serde_json::to_value(class).map_err(|error| refused(error.to_string()))?;
        let mut facts = NodeClassFacts::read(&object).map_err(|problem| refused(format!("spec.{problem}")))?;
        facts.reserved_interfaces = settings.reserved_enis;
        facts.memory_overhead_share = settings.vm_memory_overhead_share;
        facts.placement = group.as_ref().and_then(|group| PlacementStrategy::parse(&group.strategy));
        let none = Ec2NodeClassStatus::default();
        let status = class.status.as_ref().unwrap_or(&none);
        let mut subnets: BTreeMap<Text, Vec<Text>> = BTreeMap::new();
        for subnet in &status.subnets {
            subnets.entry(subnet.zone.as_str().into()).or_default().push(subnet.id.as_str().into());
        }
        let mut reservations: BTreeMap<Text, Vec<CapacityReservation>> = BTreeMap::new();
        for reservation in status.capacity_reservations.iter().filter(|_| settings.has_reserved_capacity) {
            reservations.entry(reservation.instance_type.as_str().into()).or_default().push(reservation.clone());
        }
        Ok(Self { name, facts, subnets, reservations, group, images: images(class) })
    }

    /// Classes with the same key have the same types, so one list serves them all.
    pub(super) fn key(class: &Ec2NodeClass, group: Option<&PlacementGroup>) -> String {
        let spec = &class.spec;
        let status = class.status.as_ref();
        let group = group.map(|group| (&group.id, &group.strategy, group.n_partitions));
        let parts = serde_json::json!([
            class.resolved_ami_family().as_str(),
            spec.kubelet,
            spec.block_device_mappings,
            spec.network_interfaces,
            spec.instance_store_policy,
            spec.cpu_options,
            spec.connection_tracking,
            status.map(|status| &status.subnets),
            status.map(|status| &status.capacity_reservations),
            images(class),
            group,
        ]);
        parts.to_string()
    }
}

pub(super) fn name(class: &Ec2NodeClass) -> Text {
    class.metadata.name.as_deref().unwrap_or_default().into()
}

/// The images of a class, in an order that does not depend on when each was made.
pub(super) fn images(class: &Ec2NodeClass) -> Text {
    let amis = class.status.as_ref().map(|status| status.amis.as_slice()).unwrap_or_default();
    let mut ids: Vec<&str> = amis.iter().map(|ami| ami.id.as_str()).collect();
    ids.sort_unstable();
    ids.join(" ").into()
}
