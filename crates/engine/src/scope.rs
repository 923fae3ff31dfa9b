//! Scopes: a pool narrowed by what its pods ask for, and what can still be bought then.
//!
//! A bin that is being filled has a scope. Adding a pod joins the scope with the pod's signature; both are interned,
//! so the question "may this pod go there, and what is left to buy?" is a look-up after the first time.

use crate::bits::Bits;
use crate::market::Market;
use crate::memo::Memo;
use crate::topology::Key;
use kerf_model::labels::CAPACITY_TYPE;
use kerf_model::{CapacityType, HostPort, MinValuesPolicy, Money, Requirement, Requirements, Text};
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ScopeId(pub(crate) u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SigId(pub(crate) u32);

/// What pods ask of a node's labels, and the host ports that its daemons must leave free.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Signature {
    pub(crate) requirements: Requirements,
    /// Labels that must be there although their requirement alone would be content with absence.
    pub(crate) must_exist: BTreeSet<Text>,
    pub(crate) ports: BTreeSet<HostPort>,
}

/// An instance type that can be bought within a scope, at its cheapest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    pub(crate) ty: u32,
    pub(crate) offer: u32,
    pub(crate) price: Money,
}

#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) pool: usize,
    pub(crate) requirements: Requirements,
    /// Labels that the pool or a pod wants to exist, whatever their values.
    must_exist: BTreeSet<Text>,
    ports: BTreeSet<HostPort>,
    pub(crate) offers: Bits,
    /// Cheapest first, ties by name of the type.
    pub(crate) choices: Vec<Choice>,
    /// What each choice has left for pods after its daemons; `n_dims` numbers each.
    caps: Vec<i64>,
    n_dims: usize,
    /// Choices that no other choice exceeds in every dimension.
    pub(crate) largest: Vec<usize>,
    /// Choices for which nothing is at most as dear and at least as large.
    pub(crate) efficient: Vec<usize>,
    /// Requirements that must keep several values, with how many.
    pub(crate) min_values: Vec<(Text, u32)>,
    pub(crate) min_values_relaxed: bool,
}

impl Scope {
    pub(crate) fn cap(&self, choice: usize) -> &[i64] {
        &self.caps[choice * self.n_dims..(choice + 1) * self.n_dims]
    }

    pub(crate) fn holds(&self, choice: usize, load: &[i64]) -> bool {
        self.cap(choice).iter().zip(load).all(|(cap, load)| load <= cap)
    }

    /// Whether any choice holds the load.
    pub(crate) fn holds_somewhere(&self, load: &[i64]) -> bool {
        self.largest.iter().any(|choice| self.holds(*choice, load))
    }

    /// The cheapest choice from `from` on that holds the load.
    pub(crate) fn cheapest_holding(&self, load: &[i64], from: usize) -> Option<usize> {
        (from..self.choices.len()).find(|choice| self.holds(*choice, load))
    }

    pub(crate) fn choice_of_type(&self, ty: u32) -> Option<usize> {
        self.choices.iter().position(|choice| choice.ty == ty)
    }

    /// Whether the types that hold the load still offer enough distinct values.
    pub(crate) fn keeps_min_values(&self, market: &Market<'_>, load: &[i64]) -> bool {
        self.min_values.is_empty()
            || self.missing_min_values(market, |scope, choice| scope.holds(choice, load)).is_none()
    }

    /// The first key that falls short over the choices that pass, with what it needs and has.
    pub(crate) fn missing_min_values(
        &self,
        market: &Market<'_>,
        passes: impl Fn(&Scope, usize) -> bool,
    ) -> Option<(Text, u32, u32)> {
        self.min_values.iter().find_map(|(key, needs)| {
            let has = self.distinct_values(market, key, &passes);
            (has < *needs).then(|| (key.clone(), *needs, has))
        })
    }

    /// How many distinct values of a key its types have.
    pub(crate) fn values_of(&self, market: &Market<'_>, key: &str) -> u32 {
        self.distinct_values(market, key, |_, _| true)
    }

    /// How many distinct values of a key the choices that pass have.
    pub(crate) fn values_among(&self, market: &Market<'_>, key: &str, passes: impl Fn(usize) -> bool) -> u32 {
        self.distinct_values(market, key, |_, choice| passes(choice))
    }

    fn distinct_values(&self, market: &Market<'_>, key: &str, passes: impl Fn(&Scope, usize) -> bool) -> u32 {
        let allowed = self.requirements.get(key);
        let mut values: BTreeSet<&Text> = BTreeSet::new();
        for (position, choice) in self.choices.iter().enumerate() {
            if !passes(self, position) {
                continue;
            }
            if let Some(requirement) = market.types[choice.ty as usize].ty.requirements.get(key) {
                values
                    .extend(requirement.values.iter().filter(|value| allowed.is_none_or(|allowed| allowed.has(value))));
            }
        }
        values.len() as u32
    }
}

/// What a scope knows beside its requirements: ports that daemons must leave free, and labels that must exist.
type Beside = (BTreeSet<HostPort>, BTreeSet<Text>);

/// Labels that requirements want to exist.
fn wanted(requirements: &Requirements) -> BTreeSet<Text> {
    requirements.iter().filter(|(_, requirement)| !requirement.allows_absence()).map(|(key, _)| key.clone()).collect()
}

/// All scopes and signatures of one plan.
#[derive(Clone, Default)]
pub(crate) struct Scopes {
    scopes: Vec<Arc<Scope>>,
    known: Memo<(usize, Requirements, Beside), Option<ScopeId>>,
    joins: Memo<(ScopeId, SigId), Option<ScopeId>>,
    sigs: Vec<Arc<Signature>>,
    sig_ids: Memo<Signature, SigId>,
    pins: Memo<(SigId, usize, usize), SigId>,
    offers_with: Memo<(Text, Requirement), Arc<Bits>>,
    bases: Vec<Option<ScopeId>>,
    reserved_bases: Vec<Option<ScopeId>>,
}

impl Scopes {
    pub(crate) fn of(market: &Market<'_>) -> Self {
        let mut scopes = Self::default();
        let reserved = CapacityType::Reserved.as_str();
        for pool in 0..market.pools.len() {
            let mut template = market.pools[pool].template.clone();
            let must_exist = wanted(&template);
            if !market.reservations.is_empty() {
                let only = template.clone().with(CAPACITY_TYPE, Requirement::is_in([reserved]));
                let base = scopes.intern(market, pool, only, (BTreeSet::new(), must_exist.clone()), false);
                scopes.reserved_bases.push(base);
                template.add(CAPACITY_TYPE, Requirement::not_in([reserved]));
            }
            let base = scopes.intern(market, pool, template, (BTreeSet::new(), must_exist), false);
            scopes.bases.push(base);
        }
        scopes
    }

    pub(crate) fn get(&self, id: ScopeId) -> &Scope {
        &self.scopes[id.0 as usize]
    }

    pub(crate) fn shared(&self, id: ScopeId) -> Arc<Scope> {
        Arc::clone(&self.scopes[id.0 as usize])
    }

    pub(crate) fn sig(&self, id: SigId) -> &Signature {
        &self.sigs[id.0 as usize]
    }

    /// The scope of a pool before any pod, reservations aside.
    pub(crate) fn base(&self, pool: usize) -> Option<ScopeId> {
        self.bases[pool]
    }

    /// The scope of a pool's reservations before any pod. Reserved capacity is a market of its own: what goes into a
    /// reservation is counted, and everything else must not name it.
    pub(crate) fn reserved_base(&self, pool: usize) -> Option<ScopeId> {
        self.reserved_bases.get(pool).copied().flatten()
    }

    pub(crate) fn sig_id(&mut self, signature: Signature) -> SigId {
        if let Some(id) = self.sig_ids.get(&signature) {
            return *id;
        }
        let id = SigId(self.sigs.len() as u32);
        self.sigs.push(Arc::new(signature.clone()));
        self.sig_ids.insert(signature, id);
        id
    }

    /// A signature with one label pinned to a domain, both given by index.
    pub(crate) fn pin(&mut self, sig: SigId, key: &Key, lookup: (usize, usize)) -> SigId {
        let lookup = (sig, lookup.0, lookup.1);
        if let Some(id) = self.pins.get(&lookup) {
            return *id;
        }
        let mut signature = self.sig(sig).clone();
        signature.requirements.add(&key.key, Requirement::is_in([&*key.values[lookup.2]]));
        let id = self.sig_id(signature);
        self.pins.insert(lookup, id);
        id
    }

    /// A signature with one more requirement.
    pub(crate) fn narrow(&mut self, sig: SigId, key: &str, requirement: &Requirement) -> SigId {
        let mut signature = self.sig(sig).clone();
        signature.requirements.add(key, requirement.clone());
        self.sig_id(signature)
    }

    /// The scope after a pod with this signature joins; None when nothing could be bought any more.
    pub(crate) fn join(&mut self, market: &Market<'_>, scope: ScopeId, sig: SigId) -> Option<ScopeId> {
        if let Some(known) = self.joins.get(&(scope, sig)) {
            return *known;
        }
        let (from, signature) = (self.shared(scope), Arc::clone(&self.sigs[sig.0 as usize]));
        let compatible = from.requirements.compatible(&signature.requirements, |key| market.is_well_known(key));
        let is_there = |key: &Text| {
            market.is_well_known(key) || from.requirements.get(key).is_some_and(|offered| !offered.allows_absence())
        };
        let exists = signature.must_exist.iter().all(is_there)
            && from.must_exist.iter().all(|key| {
                let (ours, theirs) = (from.requirements.get(key), signature.requirements.get(key));
                ours.zip(theirs).is_none_or(|(ours, theirs)| ours.intersects(theirs))
            });
        let joined = compatible.ok().filter(|()| exists).and_then(|()| {
            let mut requirements = from.requirements.clone();
            requirements.add_all(&signature.requirements);
            let mut narrowed = from.must_exist.clone();
            narrowed.extend(wanted(&signature.requirements));
            narrowed.extend(signature.must_exist.iter().cloned());
            let ports = (from.ports.union(&signature.ports).cloned().collect(), narrowed);
            self.intern(market, from.pool, requirements, ports, from.min_values_relaxed)
        });
        self.joins.insert((scope, sig), joined);
        joined
    }

    /// What the scope would be if no requirement asked for several values; for explanations only.
    pub(crate) fn join_without_min_values(
        &mut self,
        market: &Market<'_>,
        pool: usize,
        relaxed: &Requirements,
        sig: SigId,
    ) -> Option<Arc<Scope>> {
        let ports = self.sig(sig).ports.clone();
        let id = self.intern(market, pool, relaxed.clone(), (ports, wanted(relaxed)), false)?;
        Some(self.shared(id))
    }

    fn intern(
        &mut self,
        market: &Market<'_>,
        pool: usize,
        requirements: Requirements,
        beside: Beside,
        was_relaxed: bool,
    ) -> Option<ScopeId> {
        let key = (pool, requirements, beside);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let scope = self.build(market, pool, &key.1, &key.2);
        let id = scope.map(|mut scope| {
            scope.min_values_relaxed |= was_relaxed;
            self.scopes.push(Arc::new(scope));
            ScopeId(self.scopes.len() as u32 - 1)
        });
        self.known.insert(key, id);
        id
    }

    fn build(
        &mut self,
        market: &Market<'_>,
        pool: usize,
        requirements: &Requirements,
        (ports, must_exist): &Beside,
    ) -> Option<Scope> {
        let facts = &market.pools[pool];
        let mut offers = facts.offers.clone();
        for (key, requirement) in requirements.iter() {
            let with = self.offers_with(market, key, requirement);
            offers.and(&with);
        }
        let mut choices: Vec<Choice> = Vec::new();
        for offer in offers.iter() {
            let facts = &market.offers[offer];
            let ty = facts.ty as u32;
            // Offers of a type stand together, cheapest first.
            if choices.last().is_some_and(|last| last.ty == ty) || daemon_takes_port(market, pool, facts.ty, ports) {
                continue;
            }
            choices.push(Choice { ty, offer: offer as u32, price: facts.price });
        }
        choices.sort_by(|a, b| {
            let name = |choice: &Choice| &market.types[choice.ty as usize].ty.name;
            (a.price, name(a), a.offer).cmp(&(b.price, name(b), b.offer))
        });
        let n_dims = market.dims.n();
        let mut caps = Vec::with_capacity(choices.len() * n_dims);
        choices.retain(|choice| {
            let allocatable = &market.types[choice.ty as usize].allocatable;
            let load = facts.daemon_load.get(&(choice.ty as usize));
            let start = caps.len();
            caps.extend_from_slice(allocatable);
            if let Some(load) = load {
                for (cap, load) in caps[start..].iter_mut().zip(load) {
                    *cap -= load;
                }
            }
            // A type that its own daemons overfill holds nothing.
            let usable = caps[start..].iter().all(|cap| *cap >= 0);
            if !usable {
                caps.truncate(start);
            }
            usable
        });
        if choices.is_empty() {
            return None;
        }
        let min_values: Vec<(Text, u32)> =
            requirements.iter().filter_map(|(key, requirement)| Some((key.clone(), requirement.min_values?))).collect();
        let mut scope = Scope {
            pool,
            requirements: requirements.clone(),
            must_exist: must_exist.clone(),
            ports: ports.clone(),
            offers,
            choices,
            caps,
            n_dims,
            largest: Vec::new(),
            efficient: Vec::new(),
            min_values,
            min_values_relaxed: false,
        };
        if !scope.min_values.is_empty() && !settle_min_values(market, &mut scope) {
            return None;
        }
        scope.largest = undominated(&scope, (0..scope.choices.len()).rev(), |_, _| true);
        scope.efficient = undominated(&scope, 0..scope.choices.len(), |scope, (a, b)| {
            scope.choices[a].price <= scope.choices[b].price
        });
        Some(scope)
    }

    /// Offers, of any pool, that satisfy one requirement; types or offers that do not have the label pass.
    fn offers_with(&mut self, market: &Market<'_>, key: &Text, requirement: &Requirement) -> Arc<Bits> {
        let lookup = (key.clone(), Requirement { min_values: None, ..requirement.clone() });
        if let Some(bits) = self.offers_with.get(&lookup) {
            return Arc::clone(bits);
        }
        let passes = |theirs: Option<&Requirement>| {
            theirs.is_none_or(|theirs| {
                (theirs.allows_absence() && requirement.allows_absence()) || theirs.intersects(requirement)
            })
        };
        let decided_by_offers = market.offer_keys.contains(key);
        let mut bits = Bits::none(market.offers.len());
        for facts in &market.types {
            if !passes(facts.ty.requirements.get(key)) {
                continue;
            }
            for offer in facts.offers.clone() {
                if !decided_by_offers || passes(market.offers[offer].requirements.get(key)) {
                    bits.insert(offer);
                }
            }
        }
        let bits = Arc::new(bits);
        self.offers_with.insert(lookup, Arc::clone(&bits));
        bits
    }
}

/// Under BestEffort lowers minValues to what there is; under Strict tells whether they hold.
fn settle_min_values(market: &Market<'_>, scope: &mut Scope) -> bool {
    while let Some((key, _, has)) = scope.missing_min_values(market, |_, _| true) {
        if market.snapshot.settings.min_values == MinValuesPolicy::Strict {
            return false;
        }
        for (name, needs) in &mut scope.min_values {
            if *name == key {
                *needs = has;
            }
        }
        if let Some(requirement) = scope.requirements.0.get_mut(&key) {
            requirement.min_values = Some(has);
        }
        scope.min_values_relaxed = true;
    }
    true
}

fn daemon_takes_port(market: &Market<'_>, pool: usize, ty: usize, ports: &BTreeSet<HostPort>) -> bool {
    !ports.is_empty()
        && market.pools[pool].daemons_on.get(&ty).is_some_and(|daemons| {
            daemons.iter().any(|daemon| {
                let taken = &market.snapshot.daemons[*daemon].demand.host_ports;
                taken.iter().any(|taken| ports.iter().any(|port| port.conflicts(taken)))
            })
        })
}

/// Choices, in the order given, that no other kept choice covers.
fn undominated(
    scope: &Scope,
    order: impl Iterator<Item = usize>,
    covers: impl Fn(&Scope, (usize, usize)) -> bool,
) -> Vec<usize> {
    let mut kept: Vec<usize> = Vec::new();
    for candidate in order {
        let cap = scope.cap(candidate);
        let is_covered = |other: &usize| scope.holds(*other, cap) && covers(scope, (*other, candidate));
        if !kept.iter().any(is_covered) {
            kept.retain(|other| !(scope.holds(candidate, scope.cap(*other)) && covers(scope, (candidate, *other))));
            kept.push(candidate);
        }
    }
    kept.sort_unstable();
    kept
}

/// Whether a scope's cheapest choices are spot: then a claim should keep many types to choose from.
pub(crate) fn is_spot(market: &Market<'_>, choice: &Choice) -> bool {
    market.offers[choice.offer as usize].kind == Some(CapacityType::Spot)
}
