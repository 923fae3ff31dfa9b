//! From what EC2 says of an instance to what a claim and its node are told.

use super::ProviderId;
use crate::settings::Settings;
use crate::wire::Ec2Instance;
use kerf_api::labels as api_labels;
use kerf_cloud::Instance;
use kerf_model::{CapacityType, InstanceType, Labels, Offering, Requirement, Resources, Text, labels};

const EFA: &str = "vpc.amazonaws.com/efa";
/// Only on reserved nodes, from the offering.
const RESERVATION: [&str; 3] = [
    api_labels::CAPACITY_RESERVATION_ID,
    api_labels::CAPACITY_RESERVATION_TYPE,
    api_labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
];

/// The instance as the operator knows it. Without its type (nobody knows its class yet, say) it has no capacity.
pub fn as_instance(ec2: &Ec2Instance, it: Option<&InstanceType>, claim: Text, settings: &Settings) -> Instance {
    let kind = capacity_type(ec2, settings);
    let offering = it.and_then(|it| offering_of(it, ec2, kind));
    let present = |resources: Resources| {
        let there = resources
            .0
            .into_iter()
            .filter(|(name, amount)| !amount.is_zero() && (ec2.n_efa_interfaces > 0 || **name != *EFA));
        Resources(there.collect())
    };
    let allocatable =
        |it: &InstanceType| offering.map_or_else(|| it.allocatable(), |offering| it.allocatable_of(offering));
    Instance {
        provider_id: ProviderId::format(&ec2.zone, &ec2.id),
        image_id: ec2.image_id.as_str().into(),
        claim,
        labels: labels_of(ec2, it, offering, kind).into(),
        annotations: Default::default(),
        capacity: it.map(|it| present(it.capacity.clone())).unwrap_or_default().into(),
        allocatable: it.map(|it| present(allocatable(it))).unwrap_or_default().into(),
        is_ending: is_ending(&ec2.state),
        sold_out: Vec::new(),
        created_ms: ec2.launched_ms,
    }
}

/// Whether EC2 ends an instance in such a state, or has ended it.
pub fn is_ending(state: &str) -> bool {
    matches!(state, "shutting-down" | "terminated")
}

/// Spot is known by its request, reserved by what it may use, and only while reservations are in use at all.
pub(super) fn capacity_type(ec2: &Ec2Instance, settings: &Settings) -> CapacityType {
    let uses_only_reserved = ec2.reservation_preference.as_deref() == Some("capacity-reservations-only");
    if ec2.is_spot {
        CapacityType::Spot
    } else if settings.has_reserved_capacity && ec2.reservation_id.is_some() && uses_only_reserved {
        CapacityType::Reserved
    } else {
        CapacityType::OnDemand
    }
}

/// The offering it came from, available or not.
fn offering_of<'a>(it: &'a InstanceType, ec2: &Ec2Instance, kind: CapacityType) -> Option<&'a Offering> {
    it.offerings.iter().find(|offering| {
        let id = offering.requirements.get(labels::AWS_RESERVATION_ID).and_then(Requirement::single);
        let is_of_reservation = kind != CapacityType::Reserved || id.map(|id| &**id) == ec2.reservation_id.as_deref();
        offering.capacity_type() == Some(kind)
            && offering.zone().is_some_and(|zone| **zone == *ec2.zone)
            && is_of_reservation
    })
}

/// Every label that has one value for the type, then what this very instance decides.
fn labels_of(ec2: &Ec2Instance, it: Option<&InstanceType>, offering: Option<&Offering>, kind: CapacityType) -> Labels {
    let mut out = Labels::new();
    if let Some(it) = it {
        let single = it.requirements.iter().filter_map(|(key, requirement)| Some((key, requirement.single()?)));
        out.extend(single.map(|(key, value)| (key.clone(), value.clone())));
        let parted = it.requirements.get(api_labels::PLACEMENT_GROUP_PARTITION);
        if parted.is_some_and(|requirement| !requirement.values.is_empty()) {
            // Empty until EC2 has said which one it is.
            let partition = ec2.partition.map(|number| number.to_string()).unwrap_or_default();
            out.insert(api_labels::PLACEMENT_GROUP_PARTITION.into(), partition.into());
        }
    }
    for key in RESERVATION {
        out.remove(key);
        let of_offering = offering.filter(|_| kind == CapacityType::Reserved);
        let value = of_offering.and_then(|offering| offering.requirements.get(key)).and_then(Requirement::single);
        out.extend(value.map(|value| (Text::from(key), value.clone())));
    }
    let zone_id = || offering?.requirements.get(api_labels::ZONE_ID)?.single().cloned();
    let zone_id = ec2.zone_id.as_deref().map(Text::from).or_else(zone_id);
    out.extend(zone_id.map(|id| (Text::from(api_labels::ZONE_ID), id)));
    out.extend(
        ec2.placement_group_id.as_deref().map(|id| (Text::from(api_labels::PLACEMENT_GROUP_ID), Text::from(id))),
    );
    let tag = |key: &str| {
        ec2.tags.get(key).filter(|value| !value.is_empty()).map(|value| (Text::from(key), value.as_str().into()))
    };
    out.extend(tag(api_labels::NODE_POOL));
    out.insert(labels::INSTANCE_TYPE.into(), ec2.instance_type.as_str().into());
    out.insert(labels::ZONE.into(), ec2.zone.as_str().into());
    out.insert(labels::CAPACITY_TYPE.into(), kind.as_str().into());
    let tenancy = ec2.tenancy.as_deref().filter(|tenancy| !tenancy.is_empty()).unwrap_or("default");
    out.insert(api_labels::INSTANCE_TENANCY.into(), tenancy.into());
    out
}
