//! What a claim can become: the types and offerings that its requirements still allow, with their daemons.
//!
//! Thousands of claims share a few sets of requirements, so each question is asked once per set and type.

use kerf_model::taint::first_untolerated;
use kerf_model::{
    CapacityType, Demand, Effect, HostPort, InstanceType, Launch, Offering, Pool, Readiness, Requirement, Requirements,
    Resources, Snapshot, Taint, Text, Toleration, TypeName, labels,
};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub(super) struct Market<'a> {
    snapshot: &'a Snapshot,
    /// Resources that anybody asks for; the rows below have one amount for each, in this order.
    pub(super) dims: Vec<Text>,
    types_by_name: Vec<BTreeMap<&'a TypeName, usize>>,
    templates: Vec<Requirements>,
    supplies: Vec<Supply<'a>>,
    supply_ids: BTreeMap<(usize, Requirements, Vec<Text>), usize>,
    needs_ids: BTreeMap<NeedsKey<'a>, usize>,
    needs_of_demand: Vec<usize>,
    assured: BTreeMap<(usize, usize), Answer>,
    assured_by_type: BTreeMap<(usize, usize, usize), Answer>,
    domains: BTreeMap<(usize, usize, Text), Reach>,
}

/// Node selector, required terms, volume alternatives.
type NeedsKey<'a> = (&'a Requirements, &'a [Requirements], &'a [Requirements]);

/// The claims of one pool with the same requirements (instance types aside) and the same reservations.
struct Supply<'a> {
    pool: &'a Pool,
    requirements: Requirements,
    held: Vec<Text>,
    fits: Vec<Option<Rc<TypeFit>>>,
}

/// What an instance type is to a supply.
pub(super) struct TypeFit {
    pub(super) is_allowed: bool,
    /// Offerings that a claim can end in, cheapest first.
    pub(super) usable: Vec<usize>,
    /// What is left for pods once the daemons run; one row for each distinct amount among the usable offerings.
    pub(super) rooms: Vec<Vec<i64>>,
    pub(super) daemon_ports: Vec<HostPort>,
}

/// Whether what a pod asks for holds wherever the claim ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) pod: bool,
    pub(super) volumes: bool,
}

impl Answer {
    pub(super) const YES: Answer = Answer { pod: true, volumes: true };
}

/// The values that a label of a node may come to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reach {
    Values(BTreeSet<Text>),
    Anything,
}

impl<'a> Market<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let mut needs_ids = BTreeMap::new();
        let needs_of_demand = snapshot
            .demands
            .iter()
            .map(|demand| {
                let next = needs_ids.len();
                *needs_ids.entry(needs_key(demand)).or_insert(next)
            })
            .collect();
        let dims: BTreeSet<&Text> = snapshot.demands.iter().flat_map(|demand| demand.requests.0.keys()).collect();
        Self {
            snapshot,
            dims: dims.into_iter().cloned().collect(),
            types_by_name: snapshot
                .pools
                .iter()
                .map(|pool| pool.types.iter().enumerate().map(|(idx, kind)| (&kind.name, idx)).collect())
                .collect(),
            templates: snapshot.pools.iter().map(template).collect(),
            supplies: Vec::new(),
            supply_ids: BTreeMap::new(),
            needs_ids,
            needs_of_demand,
            assured: BTreeMap::new(),
            assured_by_type: BTreeMap::new(),
            domains: BTreeMap::new(),
        }
    }

    pub(super) fn row(&self, resources: &Resources) -> Vec<i64> {
        self.dims.iter().map(|name| resources.get(name).milli).collect()
    }

    pub(super) fn template(&self, pool_idx: usize) -> &Requirements {
        &self.templates[pool_idx]
    }

    pub(super) fn type_idx(&self, pool_idx: usize, name: &TypeName) -> Option<usize> {
        self.types_by_name[pool_idx].get(name).copied()
    }

    /// The supply that a launch draws on, and the requirement on its instance types.
    pub(super) fn supply(&mut self, pool_idx: usize, launch: &Launch) -> (usize, Option<Requirement>) {
        let mut requirements = self.templates[pool_idx].clone();
        requirements.add_all(&launch.requirements);
        requirements.add_all(&Requirements::from_labels(&launch.labels));
        let instance_types = requirements.0.remove(labels::INSTANCE_TYPE);
        let mut held = launch.reservations.clone();
        held.sort();
        let key = (pool_idx, requirements, held);
        if let Some(id) = self.supply_ids.get(&key) {
            return (*id, instance_types);
        }
        let pool = &self.snapshot.pools[pool_idx];
        let id = self.supplies.len();
        self.supplies.push(Supply {
            pool,
            requirements: key.1.clone(),
            held: key.2.clone(),
            fits: vec![None; pool.types.len()],
        });
        self.supply_ids.insert(key, id);
        (id, instance_types)
    }

    pub(super) fn requirements(&self, supply: usize) -> &Requirements {
        &self.supplies[supply].requirements
    }

    pub(super) fn fit(&mut self, supply: usize, type_idx: usize) -> Rc<TypeFit> {
        if let Some(fit) = &self.supplies[supply].fits[type_idx] {
            return Rc::clone(fit);
        }
        let fit = Rc::new(self.work_out_fit(supply, type_idx));
        self.supplies[supply].fits[type_idx] = Some(Rc::clone(&fit));
        fit
    }

    fn work_out_fit(&self, supply: usize, type_idx: usize) -> TypeFit {
        let supply = &self.supplies[supply];
        let kind = &*supply.pool.types[type_idx];
        let mut usable: Vec<usize> =
            (0..kind.offerings.len()).filter(|idx| self.is_usable(supply, &kind.offerings[*idx])).collect();
        usable.sort_by_key(|idx| (kind.offerings[*idx].price, *idx));
        let mut rooms = BTreeSet::new();
        let mut daemon_ports = BTreeSet::new();
        for idx in &usable {
            let offering = &kind.offerings[*idx];
            let mut room = kind.allocatable_of(offering);
            for daemon in &self.snapshot.daemons {
                let demand = &daemon.demand;
                let suits = may_suit(demand, &self.snapshot.settings.well_known, &|key| {
                    label_of(key, &supply.requirements, kind, offering)
                });
                // Taints that merely prefer keep no daemon away.
                if suits && barring_taint(&supply.pool.taints, &demand.tolerations).is_none() {
                    room.subtract(&demand.requests);
                    daemon_ports.extend(demand.host_ports.iter().cloned());
                }
            }
            rooms.insert(self.row(&room));
        }
        TypeFit {
            is_allowed: kind.requirements.intersects(&supply.requirements),
            usable,
            rooms: rooms.into_iter().collect(),
            daemon_ports: daemon_ports.into_iter().collect(),
        }
    }

    fn is_usable(&self, supply: &Supply, offering: &Offering) -> bool {
        let may_be_held = || {
            self.snapshot.settings.reserved.is_some()
                && self.reservation(offering).is_some_and(|id| supply.held.contains(id))
        };
        offering.launchable()
            && offering.requirements.intersects(&supply.requirements)
            && (offering.capacity_type() != Some(CapacityType::Reserved) || may_be_held())
    }

    pub(super) fn reservation<'o>(&self, offering: &'o Offering) -> Option<&'o Text> {
        offering.requirements.get(&self.snapshot.settings.reservation_label)?.single()
    }

    /// Whether what the demand asks of a node's labels holds wherever the claim ends, if it becomes this type.
    pub(super) fn assured(&mut self, supply: usize, type_idx: usize, demand: usize) -> Answer {
        let needs = self.needs_of_demand[demand];
        self.assured_needs(supply, type_idx, needs, needs_key(&self.snapshot.demands[demand]))
    }

    /// As `assured`, for requirements that come from a spread's node filter.
    pub(super) fn assured_filter(&mut self, supply: usize, type_idx: usize, filter: &'a Demand) -> bool {
        let key = (&filter.node_selector, &filter.required_terms[..], &[][..]);
        let next = self.needs_ids.len();
        let needs = *self.needs_ids.entry(key).or_insert(next);
        self.assured_needs(supply, type_idx, needs, key).pod
    }

    fn assured_needs(&mut self, supply_idx: usize, type_idx: usize, needs: usize, key: NeedsKey<'a>) -> Answer {
        let supply = &self.supplies[supply_idx];
        let by_claim = *self
            .assured
            .entry((supply_idx, needs))
            .or_insert_with(|| ask(key, &|label| supply.requirements.get(label).cloned()));
        if by_claim == Answer::YES {
            return by_claim;
        }
        if let Some(known) = self.assured_by_type.get(&(supply_idx, needs, type_idx)) {
            return *known;
        }
        let fit = self.fit(supply_idx, type_idx);
        let supply = &self.supplies[supply_idx];
        let kind = &supply.pool.types[type_idx];
        let mut answer = Answer::YES;
        for idx in &fit.usable {
            let here = ask(key, &|label| label_of(label, &supply.requirements, kind, &kind.offerings[*idx]));
            answer.pod &= here.pod;
            answer.volumes &= here.volumes;
        }
        self.assured_by_type.insert((supply_idx, needs, type_idx), answer);
        answer
    }

    /// The values that a label may have on a node of this claim and type.
    pub(super) fn reach(&mut self, supply_idx: usize, type_idx: usize, key: &Text) -> Reach {
        let cache_key = (supply_idx, type_idx, key.clone());
        if let Some(known) = self.domains.get(&cache_key) {
            return known.clone();
        }
        let fit = self.fit(supply_idx, type_idx);
        let supply = &self.supplies[supply_idx];
        let kind = &supply.pool.types[type_idx];
        let mut values = BTreeSet::new();
        let mut anything = false;
        for idx in &fit.usable {
            match label_of(key, &supply.requirements, kind, &kind.offerings[*idx]) {
                Some(label) if label.complement => anything = true,
                Some(label) => values.extend(label.values),
                None => {}
            }
        }
        let reach = if anything { Reach::Anything } else { Reach::Values(values) };
        self.domains.insert(cache_key, reach.clone());
        reach
    }

    /// The values of a label that a new node of this kind would have; none if no such node can be had.
    pub(super) fn values_of_new(&self, pool_idx: usize, type_idx: usize, offering_idx: usize, key: &str) -> Vec<Text> {
        let pool = &self.snapshot.pools[pool_idx];
        let kind = &pool.types[type_idx];
        let offering = &kind.offerings[offering_idx];
        let template = &self.templates[pool_idx];
        let can_be_had = pool.readiness == Readiness::Ready
            && !pool.is_static
            && offering.launchable()
            && offering.requirements.intersects(template)
            && kind.requirements.intersects(template);
        label_of(key, template, kind, offering)
            .filter(|label| can_be_had && !label.complement)
            .map(|label| label.values.into_iter().collect())
            .unwrap_or_default()
    }

    /// Whether a new node of this kind could suit the demand's selector and one of its terms.
    pub(super) fn may_become(&self, pool_idx: usize, type_idx: usize, offering_idx: usize, demand: &Demand) -> bool {
        let kind = &self.snapshot.pools[pool_idx].types[type_idx];
        let offering = &kind.offerings[offering_idx];
        may_suit(demand, &self.snapshot.settings.well_known, &|key| {
            label_of(key, &self.templates[pool_idx], kind, offering)
        })
    }
}

fn needs_key(demand: &Demand) -> NeedsKey<'_> {
    (&demand.node_selector, &demand.required_terms, &demand.volumes.alternatives)
}

/// What every node of the pool has: the template's requirements and labels, and what registration adds.
pub(super) fn template(pool: &Pool) -> Requirements {
    let mut requirements = pool.requirements.clone();
    requirements.add_all(&Requirements::from_labels(&pool.labels));
    for (key, value) in [
        (labels::NODEPOOL, pool.name.as_str()),
        (&pool.node_class.label_key(), &pool.node_class.name),
        (labels::REGISTERED, "true"),
        (labels::INITIALIZED, "true"),
    ] {
        requirements.add(key, Requirement::is_in([value]));
    }
    requirements
}

/// What a label of the node can be, all told. None when nobody defines it.
fn label_of(key: &str, claim: &Requirements, kind: &InstanceType, offering: &Offering) -> Option<Requirement> {
    let name = (key == labels::INSTANCE_TYPE).then(|| Requirement::is_in([kind.name.as_str()]));
    [claim.get(key), kind.requirements.get(key), offering.requirements.get(key), name.as_ref()]
        .into_iter()
        .flatten()
        .cloned()
        .reduce(|a, b| a.intersect(&b))
}

fn ask(needs: NeedsKey<'_>, label: &dyn Fn(&str) -> Option<Requirement>) -> Answer {
    let (selector, terms, alternatives) = needs;
    let holds = |wanted: &Requirements| wanted.iter().all(|(key, wanted)| is_assured(label(key).as_ref(), wanted));
    Answer {
        pod: holds(selector) && (terms.is_empty() || terms.iter().any(holds)),
        volumes: alternatives.is_empty() || alternatives.iter().any(holds),
    }
}

/// Whether every value that the label can have is a wanted one.
fn is_assured(label: Option<&Requirement>, wanted: &Requirement) -> bool {
    let Some(label) = label else {
        return wanted.allows_absence();
    };
    if !label.complement {
        return if label.values.is_empty() {
            wanted.allows_absence()
        } else {
            label.values.iter().all(|value| wanted.has(value))
        };
    }
    let unbounded = wanted.at_least.is_none() && wanted.at_most.is_none();
    let lower = wanted.at_least.is_none_or(|w| label.at_least.is_some_and(|l| l >= w));
    let upper = wanted.at_most.is_none_or(|w| label.at_most.is_some_and(|l| l <= w));
    wanted.complement && (unbounded || (lower && upper)) && wanted.values.iter().all(|excluded| !label.has(excluded))
}

/// Whether a node with these labels may turn out to suit the demand's selector and one of its terms.
fn may_suit(demand: &Demand, well_known: &BTreeSet<Text>, label: &dyn Fn(&str) -> Option<Requirement>) -> bool {
    let may_hold = |wanted: &Requirements| {
        wanted.iter().all(|(key, wanted)| match label(key) {
            Some(label) if label.complement => label.intersects(wanted),
            Some(label) if !label.values.is_empty() => label.values.iter().any(|value| wanted.has(value)),
            Some(_) => wanted.allows_absence(),
            None => wanted.allows_absence() || well_known.contains(key),
        })
    };
    may_hold(&demand.node_selector) && (demand.required_terms.is_empty() || demand.required_terms.iter().any(may_hold))
}

/// The first taint that keeps a pod with these tolerations away for good.
pub(super) fn barring_taint<'t>(taints: &'t [Taint], tolerations: &[Toleration]) -> Option<&'t Taint> {
    taints.iter().find(|taint| {
        taint.effect != Effect::PreferNoSchedule
            && first_untolerated(std::slice::from_ref(taint), tolerations).is_some()
    })
}
