//! A plan in the making: bins, what is in them, and the counts that rules look at.
//!
//! Every way of searching fills a draft through the same few doors, and each door checks the rules. What stands in a
//! draft is therefore sound at any moment, and a search that is cut off still has an answer.

use crate::bin::{Bin, Home, HostCount};
use crate::desk::Desk;
use crate::problem::Problem;
use crate::scope::{Scope, ScopeId, Scopes, SigId};
use kerf_model::{Money, TopologyKind};

#[derive(Clone)]
pub(crate) struct Draft {
    pub(crate) bins: Vec<Bin>,
    pub(crate) n_nodes: usize,
    n_dims: usize,
    /// By group and domain.
    pub(crate) matched: Vec<Vec<u32>>,
    pub(crate) owners: Vec<Vec<u32>>,
    /// By group: pods selected anywhere.
    pub(crate) total: Vec<u32>,
    /// By pool and limited resource: what is left.
    limits: Vec<Vec<i64>>,
    pub(crate) reservations: Vec<u32>,
    /// By class: pods that wait for a reservation which is spoken for in this pass.
    pub(crate) awaiting: Vec<u32>,
    /// By pool: how many more bins it may have, where something other than its limits says so.
    pub(crate) bins_left: Vec<u32>,
    pub(crate) steps: u64,
    pub(crate) max_steps: u64,
}

impl Draft {
    pub(crate) fn new(problem: &Problem<'_>, max_steps: u64) -> Self {
        let groups = &problem.groups.all;
        let mut bins: Vec<Bin> = problem
            .nodes
            .iter()
            .enumerate()
            .map(|(position, facts)| Bin {
                home: Home::Node(position),
                amounts: facts.free.clone(),
                contents: Vec::new(),
                host: Vec::new(),
                ports: facts.node.host_ports.clone(),
                held: Vec::new(),
                at_least: Vec::new(),
            })
            .collect();
        for (id, group) in groups.iter().enumerate() {
            for (position, (matched, owners)) in &group.on_host {
                bins[*position].host.push(HostCount { group: id as u32, matched: *matched, owners: *owners });
            }
        }
        let total = groups
            .iter()
            .map(|group| {
                group.matched.iter().sum::<u32>() + group.on_host.values().map(|(matched, _)| matched).sum::<u32>()
            })
            .collect();
        Self {
            n_nodes: bins.len(),
            n_dims: problem.market.dims.n(),
            bins,
            matched: groups.iter().map(|group| group.matched.clone()).collect(),
            owners: groups.iter().map(|group| group.owners.clone()).collect(),
            total,
            limits: problem.market.pools.iter().map(|pool| pool.room.iter().map(|(_, room)| *room).collect()).collect(),
            reservations: problem.market.reservations.iter().map(|reservation| reservation.capacity).collect(),
            awaiting: vec![0; problem.classes.len()],
            bins_left: vec![u32::MAX; problem.market.pools.len()],
            steps: 0,
            max_steps,
        }
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.steps >= self.max_steps
    }

    pub(crate) fn new_bins(&self) -> &[Bin] {
        &self.bins[self.n_nodes..]
    }

    pub(crate) fn cost(&self, scopes: &Scopes) -> Money {
        self.new_bins().iter().map(|bin| price(scopes, bin)).sum()
    }

    pub(crate) fn n_placed(&self) -> usize {
        self.bins.iter().flat_map(|bin| &bin.contents).map(|content| content.n as usize).sum()
    }

    /// Puts up to `want` pods onto a node that is there. The caller has checked domains wider than the host.
    pub(crate) fn add_to_node(
        &mut self,
        desk: &mut Desk<'_, '_>,
        position: usize,
        (class, variant): (usize, usize),
        sig: SigId,
        want: u32,
    ) -> u32 {
        let room = self.bins[position].host_room(desk.problem, &self.total, class, variant);
        self.fill_node(desk, position, (class, variant), sig, want.min(room))
    }

    /// The same whatever hostname spreads say, for whoever lets all nodes rise together and looks at the spreads in the end.
    pub(crate) fn deal_to_node(
        &mut self,
        desk: &mut Desk<'_, '_>,
        position: usize,
        (class, variant): (usize, usize),
        sig: SigId,
        want: u32,
    ) -> u32 {
        let room = self.bins[position].dealt_room(desk.problem, &self.total, class, variant);
        self.fill_node(desk, position, (class, variant), sig, want.min(room))
    }

    fn fill_node(
        &mut self,
        desk: &mut Desk<'_, '_>,
        position: usize,
        (class, variant): (usize, usize),
        sig: SigId,
        want: u32,
    ) -> u32 {
        self.steps += 1;
        if want == 0 {
            return 0;
        }
        let problem = desk.problem;
        let facts = &problem.classes[class];
        let (requests, want) = self.bins[position].requests_of(problem, class, want);
        let n = count_fitting(&self.bins[position].amounts, &requests, want);
        if n == 0 {
            return 0;
        }
        let kind = problem.nodes[position].kind;
        let tolerance = facts.variants[variant].tolerance;
        if !desk.accepts(sig, tolerance, kind) {
            return 0;
        }
        for (free, request) in self.bins[position].amounts.iter_mut().zip(requests.iter()) {
            *free -= request * i64::from(n);
        }
        self.record(desk, position, class, variant, n);
        n
    }

    /// Puts up to `want` pods into an open bin, which may become a larger type for it.
    pub(crate) fn add_to_new(
        &mut self,
        desk: &mut Desk<'_, '_>,
        position: usize,
        (class, variant): (usize, usize),
        sig: SigId,
        want: u32,
    ) -> u32 {
        self.steps += 1;
        let problem = desk.problem;
        let Home::New { scope, choice } = self.bins[position].home else { return 0 };
        let facts = &problem.classes[class];
        let from = desk.scopes.get(scope);
        let pool = from.pool;
        if !problem.tolerances[facts.variants[variant].tolerance as usize].pools[pool] {
            return 0;
        }
        let (requests, want) = self.bins[position].requests_of(problem, class, want);
        // Cheapest question first: the largest machine is already too small for most bins that are full.
        if !fits_somewhere(from, &self.bins[position].amounts, &requests) {
            return 0;
        }
        let want = want.min(self.bins[position].host_room(problem, &self.total, class, variant));
        if want == 0 {
            return 0;
        }
        let ty = from.choices[choice].ty;
        let Some(joined) = desk.join(scope, sig) else { return 0 };
        let after = desk.scopes.shared(joined);
        let bin = &self.bins[position];
        let Some((n, grown)) = self.grow(problem, &after, (&bin.amounts, &bin.at_least), &requests, want, Some(ty))
        else {
            return 0;
        };
        let load: Vec<i64> = self.bins[position]
            .amounts
            .iter()
            .zip(requests.iter())
            .map(|(load, request)| load + request * i64::from(n))
            .collect();
        if !self.keeps_a_reservation(problem, position, &after, &load) {
            return 0;
        }
        self.account(problem, pool, Some(ty), Some(after.choices[grown].ty));
        self.bins[position].amounts = load;
        self.bins[position].home = Home::New { scope: joined, choice: grown };
        self.release_reservations(problem, position, &after);
        self.record(desk, position, class, variant, n);
        n
    }

    /// Opens a bin in a pool, if there is a machine and a budget for it.
    pub(crate) fn open(
        &mut self,
        desk: &mut Desk<'_, '_>,
        base: ScopeId,
        (class, variant): (usize, usize),
        sig: SigId,
        want: u32,
    ) -> Option<u32> {
        self.steps += 1;
        let problem = desk.problem;
        let facts = &problem.classes[class];
        let pool = desk.scopes.get(base).pool;
        if self.bins_left[pool] == 0 || !problem.tolerances[facts.variants[variant].tolerance as usize].pools[pool] {
            return None;
        }
        let scope = desk.join(base, sig)?;
        let after = desk.scopes.shared(scope);
        let empty = vec![0; problem.market.dims.n()];
        let position = self.push_bin(scope);
        let (requests, want) = self.bins[position].requests_of(problem, class, want);
        let want = want.min(self.bins[position].host_room(problem, &self.total, class, variant));
        let grown = if want == 0 { None } else { self.grow(problem, &after, (&empty, &[]), &requests, want, None) };
        let Some((n, choice)) = grown else {
            self.bins.pop();
            return None;
        };
        self.account(problem, pool, None, Some(after.choices[choice].ty));
        self.bins_left[pool] -= 1;
        self.bins[position].home = Home::New { scope, choice };
        for (load, request) in self.bins[position].amounts.iter_mut().zip(requests.iter()) {
            *load += request * i64::from(n);
        }
        self.record(desk, position, class, variant, n);
        Some(n)
    }

    fn push_bin(&mut self, scope: ScopeId) -> usize {
        self.bins.push(Bin::empty(scope, self.n_dims));
        self.bins.len() - 1
    }

    /// How many pods of these requests can join, and which machine is then the cheapest.
    fn grow(
        &self,
        problem: &Problem<'_>,
        scope: &Scope,
        (load, at_least): (&[i64], &[i64]),
        requests: &[i64],
        want: u32,
        ty: Option<u32>,
    ) -> Option<(u32, usize)> {
        let fitting = |choice: &usize| count_joining(scope.cap(*choice), load, requests, want);
        let mut n = scope.largest.iter().map(fitting).max().unwrap_or(0);
        while n > 0 {
            let after: Vec<i64> =
                load.iter().zip(requests).map(|(load, request)| load + request * i64::from(n)).collect();
            let affordable = |choice: &usize| {
                scope.holds(*choice, &after)
                    && scope.holds(*choice, at_least)
                    && self.affords(problem, scope.pool, ty, scope.choices[*choice].ty)
            };
            let choice = (0..scope.choices.len()).find(affordable);
            if let Some(choice) = choice.filter(|_| scope.keeps_min_values(&problem.market, &after)) {
                return Some((n, choice));
            }
            n /= 2;
        }
        None
    }

    /// Lets go of reservations that an open bin can no longer be launched into.
    fn release_reservations(&mut self, problem: &Problem<'_>, position: usize, after: &Scope) {
        let bin = &mut self.bins[position];
        let usable = |held: &usize| offers_reservation(problem, after, &bin.amounts, *held);
        let (kept, released): (Vec<usize>, Vec<usize>) = bin.held.iter().copied().partition(usable);
        bin.held = kept;
        for reservation in released {
            self.reservations[reservation] += 1;
        }
    }

    fn keeps_a_reservation(&self, problem: &Problem<'_>, position: usize, after: &Scope, load: &[i64]) -> bool {
        let held = &self.bins[position].held;
        held.is_empty() || held.iter().any(|reservation| offers_reservation(problem, after, load, *reservation))
    }

    /// Takes one unit of every reservation that an open bin could be launched into.
    pub(crate) fn hold_reservations(&mut self, desk: &Desk<'_, '_>, position: usize) {
        let Home::New { scope, .. } = self.bins[position].home else { return };
        let scope = desk.scopes.get(scope);
        for reservation in 0..self.reservations.len() {
            let load = &self.bins[position].amounts;
            if self.reservations[reservation] > 0 && offers_reservation(desk.problem, scope, load, reservation) {
                self.reservations[reservation] -= 1;
                self.bins[position].held.push(reservation);
            }
        }
    }

    /// Whether the pool's limits allow a machine of this type, in place of the one that the bin has now.
    pub(crate) fn affords(&self, problem: &Problem<'_>, pool: usize, old: Option<u32>, new: u32) -> bool {
        let left = &self.limits[pool];
        if left.is_empty() {
            return true;
        }
        let facts = &problem.market.pools[pool];
        let before = old.map(|ty| facts.takes(ty));
        facts.takes(new).iter().zip(left).enumerate().all(|(position, (takes, left))| {
            let more = takes - before.map_or(0, |before| before[position]);
            more <= 0 || more <= *left
        })
    }

    /// What is left of a pool's limits, in the order of its limited resources.
    pub(crate) fn limits_left(&self, pool: usize) -> &[i64] {
        &self.limits[pool]
    }

    pub(crate) fn account(&mut self, problem: &Problem<'_>, pool: usize, old: Option<u32>, new: Option<u32>) {
        let facts = &problem.market.pools[pool];
        for (position, left) in self.limits[pool].iter_mut().enumerate() {
            let amount = |ty: Option<u32>| ty.map_or(0, |ty| facts.takes(ty)[position]);
            *left = left.saturating_add(amount(old)).saturating_sub(amount(new));
        }
    }

    /// Books, for each limited resource, the most that any of these types takes instead of what one of them took.
    pub(crate) fn account_widest(
        &mut self,
        problem: &Problem<'_>,
        pool: usize,
        booked: u32,
        types: impl Iterator<Item = u32> + Clone,
    ) {
        let facts = &problem.market.pools[pool];
        for (position, left) in self.limits[pool].iter_mut().enumerate() {
            let most = types.clone().map(|ty| facts.takes(ty)[position]).max().unwrap_or(0);
            *left -= (most - facts.takes(booked)[position]).max(0);
        }
    }

    fn record(&mut self, desk: &mut Desk<'_, '_>, position: usize, class: usize, variant: usize, n: u32) {
        self.bins[position].note(desk.problem, class, variant, n);
        for (group, matched, owners) in tallies(desk.problem, class, variant, n) {
            self.total[group as usize] += matched;
            let facts = desk.problem.groups.get(group);
            if facts.is_host {
                continue;
            }
            match self.bins[position].home {
                Home::Node(node) => {
                    if let Some(domain) = desk.problem.groups.keys[facts.key_idx].of_node[node] {
                        self.count_domains(desk.problem, group, &[domain as usize], matched, owners);
                    }
                }
                Home::New { scope, .. } => {
                    let domains = desk.domains_of_scope(scope, facts.key_idx);
                    self.count_domains(desk.problem, group, &domains, matched, owners);
                }
            }
        }
    }

    /// Counts pods in wide domains. Where a new node could land in several, only what repels counts, and then in all.
    fn count_domains(&mut self, problem: &Problem<'_>, group: u32, domains: &[usize], matched: u32, owners: u32) {
        if domains.len() == 1 || problem.groups.get(group).kind == TopologyKind::AntiAffinity {
            for domain in domains {
                // Wrapping, because a promise taken back adds what wraps around to a subtraction.
                let (counted, owned) =
                    (&mut self.matched[group as usize][*domain], &mut self.owners[group as usize][*domain]);
                *counted = counted.wrapping_add(matched);
                *owned = owned.wrapping_add(owners);
            }
        }
    }

    /// Counts pods that are promised to a pinned domain before their bin exists, or takes the promise back.
    pub(crate) fn promise(&mut self, desk: &mut Desk<'_, '_>, who: (usize, usize), sig: SigId, n: u32, keep: bool) {
        for (group, matched, owners) in tallies(desk.problem, who.0, who.1, n) {
            let facts = desk.problem.groups.get(group);
            if facts.is_host {
                continue;
            }
            let domains = desk.domains_of_sig(sig, facts.key_idx);
            let (matched, owners) =
                if keep { (matched, owners) } else { (matched.wrapping_neg(), owners.wrapping_neg()) };
            self.total[group as usize] = self.total[group as usize].wrapping_add(matched);
            self.count_domains(desk.problem, group, &domains, matched, owners);
        }
    }

    /// Takes a bin that was filled elsewhere; its pods were promised to their wide domains before.
    pub(crate) fn adopt(&mut self, desk: &Desk<'_, '_>, bin: Bin) -> bool {
        let Home::New { scope, choice } = bin.home else { return false };
        let facts = desk.scopes.get(scope);
        let ty = facts.choices[choice].ty;
        if !self.affords(desk.problem, facts.pool, None, ty) {
            return false;
        }
        self.account(desk.problem, facts.pool, None, Some(ty));
        for count in &bin.host {
            self.total[count.group as usize] += count.matched;
        }
        self.bins.push(bin);
        true
    }
}

/// What placing pods of a class adds to each group: selected pods, and pods that carry its anti-affinity.
fn tallies(problem: &Problem<'_>, class: usize, variant: usize, n: u32) -> impl Iterator<Item = (u32, u32, u32)> {
    let facts = &problem.classes[class];
    let spreads = facts.variants[variant].spreads.iter().filter(|term| term.is_self).map(|term| term.group);
    let counted = facts.counted.iter().copied().chain(spreads).map(move |group| (group, n, 0));
    counted.chain(facts.owns.iter().map(move |group| (*group, 0, n)))
}

/// The price of a new bin as it stands.
pub(crate) fn price(scopes: &Scopes, bin: &Bin) -> Money {
    match bin.home {
        Home::Node(_) => Money::ZERO,
        Home::New { scope, choice } => scopes.get(scope).choices[choice].price,
    }
}

/// Whether some machine that holds the load can be launched into the reservation.
fn offers_reservation(problem: &Problem<'_>, scope: &Scope, load: &[i64], reservation: usize) -> bool {
    scope.offers.iter().any(|offer| {
        let facts = &problem.market.offers[offer];
        facts.reservation == Some(reservation)
            && scope.choice_of_type(facts.ty as u32).is_some_and(|choice| scope.holds(choice, load))
    })
}

/// How many times `requests` fits into `free`, up to `want`.
pub(crate) fn count_fitting(free: &[i64], requests: &[i64], want: u32) -> u32 {
    let mut n = i64::from(want);
    for (free, request) in free.iter().zip(requests) {
        if *request > 0 {
            n = n.min(free / request);
        }
        if *free < 0 || n <= 0 {
            return 0;
        }
    }
    n as u32
}

/// The same, beside what is in already.
pub(crate) fn count_joining(cap: &[i64], load: &[i64], requests: &[i64], want: u32) -> u32 {
    let mut n = i64::from(want);
    for ((cap, load), request) in cap.iter().zip(load).zip(requests) {
        let free = cap - load;
        if *request > 0 {
            n = n.min(free / request);
        }
        if free < 0 || n <= 0 {
            return 0;
        }
    }
    n as u32
}

fn fits_somewhere(scope: &Scope, load: &[i64], requests: &[i64]) -> bool {
    scope.largest.iter().any(|choice| count_joining(scope.cap(*choice), load, requests, 1) == 1)
}
