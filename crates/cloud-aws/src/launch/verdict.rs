//! What the errors of a fleet mean: what has run dry, whom to remember it to, and whether others are worth a try.

use super::filters::{Choice, Dry, each, key_of, reservation_id};
use super::subnets::{Chosen, Subnets};
use crate::advice;
use crate::supply::Supply;
use crate::wire::FleetError;
use kerf_api::labels::PLACEMENT_GROUP_ID;
use kerf_cloud::OfferingKey;
use kerf_model::{CapacityType, Requirement, Text, TypeName};
use std::collections::{BTreeMap, BTreeSet};

const NO_ADDRESSES: &str = "InsufficientFreeAddressesInSubnet";
const SPREAD_IS_FULL: &str = "limit of instances in this spread placement group";
pub(super) const NO_TEMPLATE: &str = "InvalidLaunchTemplateName.NotFoundException";

pub(super) fn is_unfulfillable(error: &FleetError) -> bool {
    advice::is_unfulfillable(&error.code) || is_spread_full(error)
}

/// Whether others may still be had: nothing but a lack of capacity, or of the right to buy spot, was in the way.
pub(super) fn is_dry(errors: &[FleetError]) -> bool {
    errors.iter().all(|error| is_unfulfillable(error) || advice::is_spot_role_missing(&error.code))
}

fn is_spread_full(error: &FleetError) -> bool {
    error.message.contains(SPREAD_IS_FULL)
}

/// Each error once, in words.
pub(super) fn in_words(errors: &[FleetError]) -> String {
    let mut seen = BTreeSet::new();
    let texts = errors.iter().map(|error| match error.code.as_str() {
        "" => error.message.clone(),
        code => format!("{code}: {}", error.message),
    });
    texts.filter(|text| seen.insert(text.clone())).collect::<Vec<_>>().join("; ")
}

/// What was asked for, and where to remember what came of it.
pub(super) struct Asked<'a> {
    pub(super) choice: &'a Choice<'a>,
    pub(super) subnets: &'a BTreeMap<Text, Chosen>,
    pub(super) supply: &'a Supply,
    pub(super) in_flight: &'a Subnets,
}

impl Asked<'_> {
    /// Remembers what ran dry, in the provider's memory and in that of this launch. `got` is what was bought all the same.
    pub(super) fn remember(&self, errors: &[FleetError], got: Option<&OfferingKey>, dry: &mut Dry) {
        for error in errors {
            if advice::is_spot_role_missing(&error.code) {
                let (_, message) = advice::launch_failure(&error.code, &error.message);
                tracing::warn!(error = &*message, "doing without spot for a while");
                self.supply.unavailable().mark_capacity_type(CapacityType::Spot);
                dry.offerings.extend(self.all().filter(|key| key.capacity_type == CapacityType::Spot));
                continue;
            }
            if is_spread_full(error) {
                self.mark_zone(error, dry);
                continue;
            }
            if !is_unfulfillable(error) {
                continue;
            }
            if error.code == NO_ADDRESSES {
                self.mark_subnet(error);
            }
            self.mark(error, got, dry);
        }
    }

    /// A fleet that yields nothing and names nothing was tried in vain as a whole.
    pub(super) fn give_up_all(&self, dry: &mut Dry) {
        dry.offerings.extend(self.all().filter(|key| key.capacity_type != CapacityType::Reserved));
        let ids = each(&self.choice.candidates).filter_map(|(_, offering)| reservation_id(offering).cloned());
        dry.reservations.extend(ids);
    }

    fn all(&self) -> impl Iterator<Item = OfferingKey> {
        each(&self.choice.candidates).map(|(it, offering)| key_of(it, offering))
    }

    fn mark(&self, error: &FleetError, got: Option<&OfferingKey>, dry: &mut Dry) {
        let (Some(instance_type), Some(zone)) = (&error.instance_type, self.zone(error)) else { return };
        if self.choice.capacity_type == CapacityType::Reserved {
            for (it, offering) in each(&self.choice.candidates) {
                if it.name.as_str() == instance_type
                    && offering.zone() == Some(&zone)
                    && let Some(id) = reservation_id(offering)
                {
                    self.supply.reservations().exhausted(id);
                    dry.reservations.insert(id.clone());
                }
            }
            return;
        }
        let kind = self.choice.capacity_type;
        self.supply.unavailable().mark(kind, instance_type, &zone, self.group());
        let key = OfferingKey { instance_type: TypeName::from(instance_type.as_str()), zone, capacity_type: kind };
        // The last one of a batch may be had and the next be refused.
        if got != Some(&key) {
            dry.offerings.insert(key);
        }
    }

    /// A spread group takes so many in a zone, of whatever type.
    fn mark_zone(&self, error: &FleetError, dry: &mut Dry) {
        let Some(zone) = self.zone(error) else { return };
        for (it, offering) in each(&self.choice.candidates).filter(|(_, offering)| offering.zone() == Some(&zone)) {
            self.supply.unavailable().mark(self.choice.capacity_type, it.name.as_str(), &zone, self.group());
            match reservation_id(offering) {
                Some(id) => dry.reservations.insert(id.clone()),
                None => dry.offerings.insert(key_of(it, offering)),
            };
        }
    }

    fn mark_subnet(&self, error: &FleetError) {
        let of_zone = || self.zone(error).and_then(|zone| Some(self.subnets.get(&zone)?.id.clone()));
        if let Some(id) = error.subnet_id.clone().or_else(of_zone) {
            self.in_flight.ran_out(&id);
            self.supply.unavailable().mark_subnet(&id);
        }
    }

    fn zone(&self, error: &FleetError) -> Option<Text> {
        if let Some(zone) = error.zone.as_deref().filter(|zone| !zone.is_empty()) {
            return Some(zone.into());
        }
        let id = error.subnet_id.as_ref()?;
        self.subnets.iter().find(|(_, subnet)| subnet.id == *id).map(|(zone, _)| zone.clone())
    }

    /// The placement group of the class, which every type names.
    fn group(&self) -> Option<&str> {
        let first = self.choice.candidates.first()?;
        first.it.requirements.get(PLACEMENT_GROUP_ID).and_then(Requirement::single).map(|id| &**id)
    }
}
