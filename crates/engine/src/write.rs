//! From a finished draft to the plan that people and machines read.

use crate::bin::{Bin, Home};
use crate::desk::Desk;
use crate::draft::Draft;
use crate::first_fit::Waiting;
use crate::memo::Memo;
use crate::scope::{Scope, ScopeId};
use kerf_model::labels::{CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODEPOOL};
use kerf_model::{
    ClaimName, Labels, Launch, LaunchOption, MinValuesPolicy, NodeStage, Placement, Plan, PodId, Pool, Quantity,
    Reason, Relaxed, Requirement, Requirements, Resources, Revision, Step, Text,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// More types than this in one claim help nobody, and the API has its limits too.
const MAX_OPTIONS: usize = 600;

/// The steps of a finished draft, nodes that are there first.
pub(crate) fn plan(desk: &Desk<'_, '_>, draft: &Draft) -> Plan {
    let mut writer = Writer::new(desk, draft);
    let mut steps = Vec::new();
    for position in 0..draft.bins.len() {
        let bin = &draft.bins[position];
        if bin.contents.is_empty() {
            continue;
        }
        match bin.home {
            Home::Node(node) => steps.push(writer.placement(bin, node)),
            Home::New { .. } => steps.push(writer.launch(bin)),
        }
    }
    Plan { based_on: desk.problem.snapshot.revision, steps }
}

/// Pools whose limits leave some of their bins too few types for minValues, with how many bins they can have at most.
/// Empty as a rule; under BestEffort always.
pub(crate) fn overstretched(desk: &Desk<'_, '_>, draft: &Draft) -> BTreeMap<usize, u32> {
    let mut at_most = BTreeMap::new();
    let is_concerned = |bin: &Bin| match bin.home {
        Home::New { scope, .. } => {
            let scope = desk.scopes.get(scope);
            !scope.min_values.is_empty() && !desk.problem.market.pools[scope.pool].room.is_empty()
        }
        Home::Node(_) => false,
    };
    let is_strict = desk.problem.snapshot.settings.min_values == MinValuesPolicy::Strict;
    if !is_strict || !draft.new_bins().iter().any(is_concerned) {
        return at_most;
    }
    let mut writer = Writer::new(desk, draft);
    let mut n_bins: BTreeMap<usize, u32> = BTreeMap::new();
    for bin in draft.new_bins() {
        let Home::New { scope, choice } = bin.home else { continue };
        let facts = desk.scopes.shared(scope);
        let listed = writer.listed(bin, &facts, choice);
        let is_listed = |_: &Scope, choice: usize| listed.contains(&choice);
        let n = n_bins.entry(facts.pool).or_default();
        if facts.missing_min_values(&desk.problem.market, is_listed).is_some() {
            at_most.entry(facts.pool).or_insert(*n);
        }
        *n += 1;
        writer.book(&facts, choice, &listed);
    }
    at_most
}

/// Preferences that had to be given up, with the pods that lost them.
pub(crate) fn relaxed(desk: &Desk<'_, '_>, draft: &Draft) -> Vec<Relaxed> {
    let problem = desk.problem;
    let mut next_pod = vec![0; problem.classes.len()];
    let mut lost: BTreeMap<(u32, u32), Vec<PodId>> = BTreeMap::new();
    for content in draft.bins.iter().flat_map(|bin| &bin.contents) {
        let class = content.class as usize;
        let start = next_pod[class];
        next_pod[class] += content.n as usize;
        if content.variant > 0 {
            let pods = &problem.classes[class].pods[start..next_pod[class]];
            let ids = pods.iter().map(|index| problem.snapshot.pods[*index as usize].id.clone());
            lost.entry((content.class, content.variant)).or_default().extend(ids);
        }
    }
    let words =
        |(class, variant): (u32, u32)| problem.classes[class as usize].variants[variant as usize].given_up.clone();
    lost.into_iter().map(|(who, pods)| Relaxed { pods, given_up: words(who) }).collect()
}

/// How many pods of each class wait before anything is placed.
pub(crate) fn everyone(desk: &Desk<'_, '_>) -> Waiting {
    desk.problem.classes.iter().map(|class| class.pods.len() as u32).collect()
}

struct Writer<'d, 'p, 'a> {
    desk: &'d Desk<'p, 'a>,
    /// A copy, so that widening a launch list can draw on what is left of the limits.
    draft: Draft,
    next_pod: Vec<usize>,
    names: BTreeSet<Text>,
    offers: Memo<(ScopeId, Vec<usize>, Vec<usize>), Arc<OfferText>>,
}

/// What a claim says about machines.
struct OfferText {
    options: Arc<[LaunchOption]>,
    requirements: Arc<Requirements>,
    labels: Labels,
    /// What daemons take at least.
    daemons: Vec<i64>,
    reservations: Vec<Text>,
    /// Fewer types than minValues asks for, which only BestEffort lets pass.
    is_narrow: bool,
}

impl<'d, 'p, 'a> Writer<'d, 'p, 'a> {
    fn new(desk: &'d Desk<'p, 'a>, draft: &Draft) -> Self {
        Self {
            desk,
            draft: draft.clone(),
            next_pod: vec![0; desk.problem.classes.len()],
            names: BTreeSet::new(),
            offers: Memo::default(),
        }
    }

    /// Keeps the limits for the most that any listed machine could take.
    fn book(&mut self, scope: &Scope, chosen: usize, listed: &[usize]) {
        let types = listed.iter().map(|at| scope.choices[*at].ty);
        self.draft.account_widest(self.desk.problem, scope.pool, scope.choices[chosen].ty, types);
    }

    fn placement(&mut self, bin: &Bin, node: usize) -> Step {
        let facts = &self.desk.problem.nodes[node];
        let pods = self.take_pods(bin).0;
        let in_flight = facts.node.stage == NodeStage::InFlight;
        let why = Reason::RoomOnNode { n_pods: pods.len(), in_flight };
        Step::Place(Placement { node: facts.node.name.clone(), pods, why })
    }

    /// The pods of a bin, oldest first within each class, and whether any of them is real.
    fn take_pods(&mut self, bin: &Bin) -> (Vec<PodId>, bool) {
        let snapshot = self.desk.problem.snapshot;
        let mut pods = Vec::new();
        let mut any_real = false;
        for content in &bin.contents {
            let class = content.class as usize;
            let start = self.next_pod[class];
            let end = start + content.n as usize;
            self.next_pod[class] = end;
            for index in &self.desk.problem.classes[class].pods[start..end] {
                let pod = &snapshot.pods[*index as usize];
                any_real |= !pod.is_virtual;
                pods.push(pod.id.clone());
            }
        }
        (pods, any_real)
    }

    fn launch(&mut self, bin: &Bin) -> Step {
        let Home::New { scope, choice } = bin.home else { unreachable!("only new bins are launched") };
        let problem = self.desk.problem;
        let (for_pods, any_real) = self.take_pods(bin);
        let n_pods = for_pods.len();
        let facts = self.desk.scopes.shared(scope);
        let pool = problem.market.pools[facts.pool].pool;
        let listed = self.listed(bin, &facts, choice);
        self.book(&facts, choice, &listed);
        let offer = self.offer(scope, &facts, listed, &bin.held);
        let step = Launch {
            claim: self.name(pool.name.as_str(), problem.snapshot.revision),
            pool: pool.name.clone(),
            node_class: pool.node_class.clone(),
            labels: offer.labels.clone(),
            requirements: Arc::clone(&offer.requirements),
            taints: pool.taints.clone(),
            startup_taints: pool.startup_taints.clone(),
            requests: self.requests(bin, &offer.daemons),
            any_of: Arc::clone(&offer.options),
            for_pods,
            reservations: offer.reservations.clone(),
            min_values_relaxed: facts.min_values_relaxed || offer.is_narrow,
            why: if any_real { Reason::PodsWaiting { n_pods } } else { Reason::BufferWanted { n_pods } },
        };
        Step::Launch(Box::new(step))
    }

    /// Choices that hold the bin's pods, cheapest first. In a pool with limits, only what the limits still allow on top
    /// of everything planned: whichever of them the cloud picks, no limit is crossed.
    fn listed(&self, bin: &Bin, scope: &Scope, chosen: usize) -> Vec<usize> {
        let market = &self.desk.problem.market;
        let left = self.draft.limits_left(scope.pool);
        let facts = &market.pools[scope.pool];
        let booked = scope.choices[chosen].ty;
        let affordable = |ty: u32| {
            let more = facts.takes(ty).iter().zip(facts.takes(booked)).map(|(takes, booked)| takes - booked);
            more.zip(left).all(|(more, left)| more <= 0 || more <= *left)
        };
        let may_list = |choice: &usize| {
            let offered = &scope.choices[*choice];
            let reservation = market.offers[offered.offer as usize].reservation;
            (bin.held.is_empty() || reservation.is_some_and(|reservation| bin.held.contains(&reservation)))
                && scope.holds(*choice, &bin.amounts)
                && scope.holds(*choice, &bin.at_least)
                && affordable(offered.ty)
        };
        (0..scope.choices.len()).filter(may_list).take(MAX_OPTIONS).collect()
    }

    /// What a claim says about machines: the same for all claims with the same scope, list and reservations.
    fn offer(&mut self, id: ScopeId, scope: &Scope, listed: Vec<usize>, held: &[usize]) -> Arc<OfferText> {
        let key = (id, listed, held.to_vec());
        if let Some(known) = self.offers.get(&key) {
            return Arc::clone(known);
        }
        let problem = self.desk.problem;
        let market = &problem.market;
        let mut seen = BTreeSet::new();
        let mut options = Vec::new();
        for choice in key.1.iter().map(|at| &scope.choices[*at]) {
            let offer = &market.offers[choice.offer as usize];
            let name = &market.types[choice.ty as usize].ty.name;
            if seen.insert(name) {
                options.push(LaunchOption {
                    instance_type: name.clone(),
                    zone: offer.zone.cloned(),
                    capacity_type: offer.kind,
                    price: choice.price,
                    price_is_estimate: offer.is_estimate,
                });
            }
        }
        let types: BTreeSet<usize> = key.1.iter().map(|at| scope.choices[*at].ty as usize).collect();
        let offers = scope.offers.iter().map(|offer| &market.offers[offer]).filter(|offer| types.contains(&offer.ty));
        let kinds: BTreeSet<Text> = offers.filter_map(|offer| offer.kind).map(|kind| kind.as_str().into()).collect();
        let is_listed = |reservation: &&usize| {
            key.1.iter().any(|at| {
                let ty = &market.types[scope.choices[*at].ty as usize];
                ty.offers
                    .clone()
                    .any(|offer| scope.offers.has(offer) && market.offers[offer].reservation == Some(**reservation))
            })
        };
        let reservations: Vec<Text> =
            held.iter().filter(is_listed).map(|reservation| market.reservations[*reservation].id.clone()).collect();
        let mut requirements = scope.requirements.clone();
        pin(&mut requirements, INSTANCE_TYPE, seen.into_iter().map(|name| name.0.clone()));
        pin(&mut requirements, CAPACITY_TYPE, kinds.into_iter());
        if !reservations.is_empty() {
            pin(&mut requirements, &problem.snapshot.settings.reservation_label, reservations.iter().cloned());
        }
        let mut is_narrow = false;
        while let Some((short, _, has)) = missing(market, scope, &key.1, &requirements) {
            is_narrow = true;
            if let Some(requirement) = requirements.0.get_mut(&short) {
                requirement.min_values = Some(has);
            }
        }
        let loads = &market.pools[scope.pool].daemon_load;
        let least = |dim: usize| types.iter().map(|ty| loads.get(ty).map_or(0, |load| load[dim])).min().unwrap_or(0);
        let text = Arc::new(OfferText {
            options: options.into(),
            labels: self.labels(market.pools[scope.pool].pool, &requirements),
            requirements: Arc::new(requirements),
            daemons: (0..market.dims.n()).map(least).collect(),
            reservations,
            is_narrow,
        });
        self.offers.insert(key, Arc::clone(&text));
        text
    }

    /// Pods and daemons together; of the daemons what every listed type will run at least.
    fn requests(&self, bin: &Bin, daemons: &[i64]) -> Resources {
        let mut resources = Resources::new();
        for ((dim, amount), daemons) in self.desk.problem.market.dims.0.iter().zip(&bin.amounts).zip(daemons) {
            if let (crate::market::Dim::Resource(name), true) = (dim, amount + daemons > 0) {
                resources.0.insert(name.clone(), Quantity::from_milli(amount + daemons));
            }
        }
        resources
    }

    /// Template labels, those of pool and class, and one value for every custom label that the requirements speak of.
    fn labels(&self, pool: &Pool, requirements: &Requirements) -> Labels {
        let mut labels = pool.labels.clone();
        labels.insert(NODEPOOL.into(), pool.name.0.clone());
        labels.insert(pool.node_class.label_key().into(), pool.node_class.name.clone());
        for (key, requirement) in requirements.iter() {
            let is_custom = !self.desk.problem.market.is_well_known(key) && &**key != HOSTNAME;
            if let Some(value) = any_value(requirement).filter(|_| is_custom && !labels.contains_key(key)) {
                labels.insert(key.clone(), value);
            }
        }
        labels
    }

    /// The pool's name and five letters that follow from the revision and the position in the plan.
    fn name(&mut self, pool: &str, revision: Revision) -> ClaimName {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut state = revision.0 ^ (self.names.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        loop {
            state = scramble(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
            let mut rest = state;
            let mut suffix = String::new();
            for _ in 0..5 {
                suffix.push(char::from(LETTERS[(rest % LETTERS.len() as u64) as usize]));
                rest /= LETTERS.len() as u64;
            }
            let name: Text = format!("{pool}-{suffix}").into();
            if self.names.insert(name.clone()) {
                return ClaimName(name);
            }
        }
    }
}

/// The first key for which the listed machines have fewer values than the requirements ask for.
fn missing(
    market: &crate::market::Market<'_>,
    scope: &Scope,
    listed: &[usize],
    requirements: &Requirements,
) -> Option<(Text, u32, u32)> {
    scope.min_values.iter().find_map(|(key, _)| {
        let needs = requirements.get(key)?.min_values?;
        let has = scope.values_among(market, key, |choice| listed.contains(&choice));
        (has < needs).then(|| (key.clone(), needs, has))
    })
}

fn pin(requirements: &mut Requirements, key: &str, values: impl Iterator<Item = Text>) {
    let min_values = requirements.get(key).and_then(|requirement| requirement.min_values);
    let values: Vec<Text> = values.collect();
    let requirement = Requirement { min_values, ..Requirement::is_in(values.iter().map(|value| &**value)) };
    requirements.0.insert(key.into(), requirement);
}

/// A value that satisfies the requirement, always the same one. None where the label must not exist.
fn any_value(requirement: &Requirement) -> Option<Text> {
    if !requirement.complement {
        return requirement.values.first().cloned();
    }
    let start = requirement.at_least.unwrap_or(0);
    (start..=requirement.at_most.unwrap_or(i64::MAX))
        .map(|number| Text::from(number.to_string()))
        .find(|text| requirement.has(text))
}

/// One round of splitmix64: neighbouring inputs give unrelated outputs.
fn scramble(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
