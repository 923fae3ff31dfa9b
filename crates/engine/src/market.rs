//! What can be bought, as dense vectors: resource dimensions, instance types, offers, pools.
//!
//! Built once per plan from the snapshot. Everything is in an order that follows from names, never from the order of
//! the input.

use crate::bits::Bits;
use kerf_model::labels;
use kerf_model::resources::{CPU, MEMORY, NODES, PODS};
use kerf_model::{
    CapacityType, Demand, InstanceType, Labels, Money, Pool, Readiness, Requirement, Requirements, Resources, Snapshot,
    Text, taint,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// An amount that no sum of requests reaches: attachments of a driver without a limit.
const UNLIMITED: i64 = i64::MAX / 4;

/// What a dimension counts. CPU, memory and pods are always the first three.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dim {
    Resource(Text),
    /// Volumes attached through one CSI driver.
    Attachments(Text),
}

#[derive(Debug, Clone)]
pub(crate) struct Dims(pub(crate) Vec<Dim>);

impl Dims {
    fn of(snapshot: &Snapshot) -> Self {
        let demands = || snapshot.demands.iter().chain(snapshot.daemons.iter().map(|daemon| &daemon.demand));
        let mut names: BTreeSet<&Text> = demands().flat_map(|demand| demand.requests.0.keys()).collect();
        names.retain(|name| !matches!(&***name, CPU | MEMORY | PODS));
        let drivers: BTreeSet<&Text> = demands().flat_map(|demand| demand.volumes.attachments.keys()).collect();
        let mut dims: Vec<Dim> = [CPU, MEMORY, PODS].map(|name| Dim::Resource(name.into())).to_vec();
        dims.extend(names.into_iter().map(|name| Dim::Resource(name.clone())));
        dims.extend(drivers.into_iter().map(|driver| Dim::Attachments(driver.clone())));
        Self(dims)
    }

    pub(crate) fn n(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn requests(&self, demand: &Demand) -> Vec<i64> {
        self.vector(&demand.requests, |driver| demand.volumes.attachments.get(driver).map_or(0, |set| set.len() as i64))
    }

    pub(crate) fn vector(&self, resources: &Resources, attachments: impl Fn(&Text) -> i64) -> Vec<i64> {
        let amount = |dim: &Dim| match dim {
            Dim::Resource(name) => resources.get(name).milli,
            Dim::Attachments(driver) => attachments(driver),
        };
        self.0.iter().map(amount).collect()
    }
}

pub(crate) struct TypeFacts<'a> {
    pub(crate) ty: &'a InstanceType,
    /// Allocatable, before daemons.
    pub(crate) allocatable: Vec<i64>,
    pub(crate) offers: Range<usize>,
}

pub(crate) struct Offer<'a> {
    pub(crate) ty: usize,
    pub(crate) price: Money,
    pub(crate) is_estimate: bool,
    pub(crate) kind: Option<CapacityType>,
    pub(crate) zone: Option<&'a Text>,
    pub(crate) launchable: bool,
    pub(crate) requirements: &'a Requirements,
    /// Index into `Market::reservations` for reserved offers that can be launched.
    pub(crate) reservation: Option<usize>,
}

/// A reservation, and how many instances it still holds.
#[derive(Debug, Clone)]
pub(crate) struct Reservation {
    pub(crate) id: Text,
    pub(crate) capacity: u32,
}

pub(crate) struct PoolFacts<'a> {
    pub(crate) pool: &'a Pool,
    /// Labels, requirements, its name and its node class: what a new node of the pool looks like.
    pub(crate) template: Requirements,
    /// Available offers of its own types.
    pub(crate) offers: Bits,
    /// By type: what daemons take, in the market's dimensions. Empty for types without daemons.
    pub(crate) daemon_load: BTreeMap<usize, Vec<i64>>,
    /// By type: host ports of its daemons, as indices into the daemons list.
    pub(crate) daemons_on: BTreeMap<usize, Vec<usize>>,
    /// Limited resources with what is left of them.
    pub(crate) room: Vec<(Text, i64)>,
    /// By type and limited resource: what a machine takes of it. Empty without limits.
    takes: Vec<i64>,
}

impl PoolFacts<'_> {
    /// What a machine of this type takes of each limited resource.
    pub(crate) fn takes(&self, ty: u32) -> &[i64] {
        let n = self.room.len();
        &self.takes[ty as usize * n..(ty as usize + 1) * n]
    }
}

pub(crate) struct Market<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) dims: Dims,
    pub(crate) types: Vec<TypeFacts<'a>>,
    pub(crate) offers: Vec<Offer<'a>>,
    /// Heaviest first, then by name.
    pub(crate) pools: Vec<PoolFacts<'a>>,
    pub(crate) reservations: Vec<Reservation>,
    /// Label keys that offers, rather than types, decide.
    pub(crate) offer_keys: BTreeSet<Text>,
}

/// A list of types that several pools may share, by address and length, with the entries it became.
type SharedList = (*const Arc<InstanceType>, usize, Arc<Vec<usize>>);

impl<'a> Market<'a> {
    pub(crate) fn of(snapshot: &'a Snapshot) -> Self {
        let dims = Dims::of(snapshot);
        let mut market = Self {
            snapshot,
            dims,
            types: Vec::new(),
            offers: Vec::new(),
            pools: Vec::new(),
            reservations: Vec::new(),
            offer_keys: BTreeSet::new(),
        };
        let mut pools: Vec<&Pool> =
            snapshot.pools.iter().filter(|pool| !pool.is_static && pool.readiness == Readiness::Ready).collect();
        pools.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| a.name.cmp(&b.name)));
        let types_of_pool = market.add_types(&pools);
        for (pool, types) in pools.into_iter().zip(types_of_pool) {
            let facts = market.pool_facts(pool, &types);
            market.pools.push(facts);
        }
        market
    }

    /// Registers every distinct instance type once. Pools that share a list share the entries.
    fn add_types(&mut self, pools: &[&'a Pool]) -> Vec<Arc<Vec<usize>>> {
        let mut lists: Vec<SharedList> = Vec::new();
        let mut known: BTreeMap<*const InstanceType, Vec<usize>> = BTreeMap::new();
        let mut out = Vec::new();
        for pool in pools {
            let key = (pool.types.as_ptr(), pool.types.len());
            if let Some((_, _, list)) = lists.iter().find(|(ptr, len, _)| (*ptr, *len) == key) {
                out.push(Arc::clone(list));
                continue;
            }
            let mut sorted: Vec<&'a Arc<InstanceType>> = pool.types.iter().collect();
            sorted.sort_by(|a, b| a.name.cmp(&b.name));
            let mut indices = Vec::with_capacity(sorted.len());
            for ty in sorted {
                let entries = match known.get(&Arc::as_ptr(ty)) {
                    Some(entries) => entries.clone(),
                    None => {
                        let entries = self.add_type(ty);
                        known.insert(Arc::as_ptr(ty), entries.clone());
                        entries
                    }
                };
                indices.extend(entries);
            }
            let list = Arc::new(indices);
            lists.push((key.0, key.1, Arc::clone(&list)));
            out.push(list);
        }
        out
    }

    /// One entry per type, or several where offers override its figures: each entry has one allocatable vector.
    fn add_type(&mut self, ty: &'a InstanceType) -> Vec<usize> {
        let mut groups: BTreeMap<Option<&kerf_model::offering::Overrides>, Vec<usize>> = BTreeMap::new();
        for (position, offering) in ty.offerings.iter().enumerate() {
            groups.entry(offering.overrides.as_deref()).or_default().push(position);
        }
        let mut entries = Vec::new();
        for (overrides, mut positions) in groups {
            let allocatable = match overrides {
                None => ty.allocatable(),
                Some(_) => ty.allocatable_of(&ty.offerings[positions[0]]),
            };
            if allocatable.iter().any(|(_, amount)| amount.milli < 0) {
                continue;
            }
            let limit = |driver: &Text| ty.attach_limits.get(driver).map_or(UNLIMITED, |limit| i64::from(*limit));
            let allocatable = self.dims.vector(&allocatable, limit);
            positions.sort_by(|a, b| {
                let key = |position: &usize| {
                    let offering = &ty.offerings[*position];
                    (offering.price, offering.capacity_type(), offering.zone())
                };
                key(a).cmp(&key(b)).then_with(|| ty.offerings[*a].requirements.cmp(&ty.offerings[*b].requirements))
            });
            let start = self.offers.len();
            for position in positions {
                self.add_offer(&ty.offerings[position]);
            }
            self.types.push(TypeFacts { ty, allocatable, offers: start..self.offers.len() });
            entries.push(self.types.len() - 1);
        }
        entries
    }

    fn add_offer(&mut self, offering: &'a kerf_model::Offering) {
        let kind = offering.capacity_type();
        for (key, _) in offering.requirements.iter() {
            if !self.offer_keys.contains(key) {
                self.offer_keys.insert(key.clone());
            }
        }
        let is_reserved = kind == Some(CapacityType::Reserved);
        let allowed = !is_reserved || self.snapshot.settings.reserved.is_some();
        let launchable = allowed && offering.launchable();
        let reservation = (is_reserved && launchable).then(|| self.reservation(offering));
        self.offers.push(Offer {
            ty: self.types.len(),
            price: offering.price,
            is_estimate: offering.price_is_estimate,
            kind,
            zone: offering.zone(),
            launchable,
            requirements: &offering.requirements,
            reservation,
        });
    }

    /// One reservation may stand behind several offers; the least capacity seen is what it holds.
    fn reservation(&mut self, offering: &kerf_model::Offering) -> usize {
        let label = &self.snapshot.settings.reservation_label;
        let id = offering.requirements.get(label).and_then(Requirement::single).cloned().unwrap_or_else(|| "".into());
        let capacity = offering.reservation_capacity.unwrap_or(0);
        if let Some(position) = self.reservations.iter().position(|known| known.id == id) {
            let known = &mut self.reservations[position];
            known.capacity = known.capacity.min(capacity);
            return position;
        }
        self.reservations.push(Reservation { id, capacity });
        self.reservations.len() - 1
    }

    fn pool_facts(&self, pool: &'a Pool, types: &[usize]) -> PoolFacts<'a> {
        let template = template(pool);
        let mut offers = Bits::none(self.offers.len());
        for ty in types {
            for offer in self.types[*ty].offers.clone() {
                if self.offers[offer].launchable {
                    offers.insert(offer);
                }
            }
        }
        let (daemon_load, daemons_on) = self.daemons(pool, &template, types);
        let mut room: Vec<(Text, i64)> = Vec::new();
        for (name, limit) in pool.limits.iter() {
            room.push((name.clone(), (limit - pool.in_use.get(name)).milli));
        }
        let mut takes = vec![0; room.len() * self.types.len()];
        for ty in types {
            for (position, (name, _)) in room.iter().enumerate() {
                let capacity = &self.types[*ty].ty.capacity;
                takes[ty * room.len() + position] = if &**name == NODES { 1000 } else { capacity.get(name).milli };
            }
        }
        PoolFacts { pool, template, offers, daemon_load, daemons_on, room, takes }
    }

    /// What daemons take on each type of a pool.
    fn daemons(
        &self,
        pool: &Pool,
        template: &Requirements,
        types: &[usize],
    ) -> (BTreeMap<usize, Vec<i64>>, BTreeMap<usize, Vec<usize>>) {
        let mut load: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
        let mut on: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let born = template
            .clone()
            .with(labels::REGISTERED, Requirement::is_in(["true"]))
            .with(labels::INITIALIZED, Requirement::is_in(["true"]));
        for (position, daemon) in self.snapshot.daemons.iter().enumerate() {
            let demand = &daemon.demand;
            if first_hard_taint(&pool.taints, demand).is_some() {
                continue;
            }
            let requests = self.dims.requests(demand);
            let terms: Vec<Requirements> = strict_terms(demand)
                .into_iter()
                .filter(|term| born.compatible(term, |key| self.is_well_known(key)).is_ok())
                .collect();
            for ty in types {
                let requirements = &self.types[*ty].ty.requirements;
                if terms.iter().any(|term| requirements.intersects(term)) {
                    let sum = load.entry(*ty).or_insert_with(|| vec![0; self.dims.n()]);
                    for (total, amount) in sum.iter_mut().zip(&requests) {
                        *total = total.saturating_add(*amount);
                    }
                    on.entry(*ty).or_default().push(position);
                }
            }
        }
        (load, on)
    }

    pub(crate) fn is_well_known(&self, key: &str) -> bool {
        let settings = &self.snapshot.settings;
        settings.well_known.contains(key) || *settings.reservation_label == *key
    }
}

/// What a new node of the pool looks like before any pod narrows it.
pub(crate) fn template(pool: &Pool) -> Requirements {
    let mut requirements = pool.requirements.clone();
    requirements.add_all(&Requirements::from_labels(&pool.labels));
    let own: Labels = [
        (labels::NODEPOOL.into(), pool.name.0.clone()),
        (Text::from(pool.node_class.label_key()), pool.node_class.name.clone()),
    ]
    .into();
    requirements.add_all(&Requirements::from_labels(&own));
    requirements
}

/// The first taint that binds and is not tolerated. PreferNoSchedule does not bind daemons.
fn first_hard_taint<'t>(taints: &'t [kerf_model::Taint], demand: &Demand) -> Option<&'t kerf_model::Taint> {
    taints
        .iter()
        .filter(|taint| taint.effect != kerf_model::Effect::PreferNoSchedule)
        .find(|taint| taint::first_untolerated(std::slice::from_ref(*taint), &demand.tolerations).is_some())
}

/// Node selector with each required term in turn: one of these must hold.
pub(crate) fn strict_terms(demand: &Demand) -> Vec<Requirements> {
    if demand.required_terms.is_empty() {
        return vec![demand.node_selector.clone()];
    }
    let join = |term: &Requirements| {
        let mut requirements = demand.node_selector.clone();
        requirements.add_all(term);
        requirements
    };
    demand.required_terms.iter().map(join).collect()
}
