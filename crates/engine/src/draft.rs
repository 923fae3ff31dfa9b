//! A plan in the making: bins, what is in them, and the counts that rules look at.
//!
//! Every way of searching fills a draft through the same few doors, and each door checks the rules. What stands in a
//! draft is therefore sound at any moment, and a search that is cut off still has an answer.

use crate::domains::Pins;
use crate::market::{Dim, Market};
use crate::memo::Memo;
use crate::problem::{NodeMemo, Problem};
use crate::scope::{Scope, ScopeId, Scopes, SigId};
use kerf_model::{HostPort, Money, Requirement, TopologyKind};
use std::borrow::Cow;
use std::sync::Arc;

/// Where the pods of a bin will run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// Index into `Problem::nodes`.
    Node(usize),
    New {
        scope: ScopeId,
        choice: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) class: u32,
    pub(crate) variant: u32,
    pub(crate) n: u32,
}

#[derive(Debug, Clone, Copy)]
struct HostCount {
    group: u32,
    matched: u32,
    owners: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Bin {
    pub(crate) home: Home,
    /// For a node what is free, for a new bin what is in it.
    pub(crate) amounts: Vec<i64>,
    pub(crate) contents: Vec<Content>,
    host: Vec<HostCount>,
    ports: Vec<HostPort>,
    /// Reservations of which this bin holds a unit.
    pub(crate) held: Vec<usize>,
    /// Room that the machine must have whatever is in it, so that kube-scheduler finds what was planned. May be empty.
    pub(crate) at_least: Vec<i64>,
}

impl Bin {
    pub(crate) fn empty(scope: ScopeId, n_dims: usize) -> Self {
        Self {
            home: Home::New { scope, choice: 0 },
            amounts: vec![0; n_dims],
            contents: Vec::new(),
            host: Vec::new(),
            ports: Vec::new(),
            held: Vec::new(),
            at_least: Vec::new(),
        }
    }

    /// What the next pods of a class ask of this bin, and how many may be asked for at once: the first pod attaches the
    /// volumes that all of them share, unless the node has them already.
    fn requests_of<'p>(&self, problem: &'p Problem<'_>, class: usize, want: u32) -> (Cow<'p, [i64]>, u32) {
        let facts = &problem.classes[class];
        if facts.shared.is_empty() || self.contents.iter().any(|content| content.class == class as u32) {
            return (Cow::Borrowed(&facts.requests), want);
        }
        let mut requests = facts.requests.clone();
        let volumes = &problem.demand(class).volumes.attachments;
        for (dim, kind) in problem.market.dims.0.iter().enumerate() {
            let Dim::Attachments(driver) = kind else { continue };
            let there = match self.home {
                Home::Node(node) => problem.nodes[node].node.attached.get(driver),
                Home::New { .. } => None,
            };
            let is_there = |volume: &&kerf_model::Text| there.is_some_and(|there| there.contains(*volume));
            let n_there = volumes.get(driver).map_or(0, |wanted| wanted.iter().filter(is_there).count());
            requests[dim] += facts.shared[dim] - n_there as i64;
        }
        (Cow::Owned(requests), want.min(1))
    }

    /// How many more pods of a class the neighbours in this bin allow; `total` counts selected pods anywhere.
    pub(crate) fn host_room(&self, problem: &Problem<'_>, total: &[u32], class: usize, variant: usize) -> u32 {
        let room = self.dealt_room(problem, total, class, variant);
        if room == 0 { 0 } else { room.min(self.spread_room(problem, class, variant)) }
    }

    /// What hostname spreads allow while some node may still be empty: then the least count is zero.
    fn spread_room(&self, problem: &Problem<'_>, class: usize, variant: usize) -> u32 {
        let mut room = u32::MAX;
        let wish = &problem.classes[class].variants[variant];
        for term in wish.spreads.iter().filter(|term| problem.groups.is_host(term.group)) {
            let there = self.matched_on_host(term.group);
            if term.is_self {
                room = room.min(term.max_skew.saturating_sub(there));
            } else if there > term.max_skew {
                return 0;
            }
        }
        room
    }

    /// The same without hostname spreads, for dealing: there all nodes rise together.
    pub(crate) fn dealt_room(&self, problem: &Problem<'_>, total: &[u32], class: usize, variant: usize) -> u32 {
        let facts = &problem.classes[class];
        let wish = &facts.variants[variant];
        let groups = &problem.groups;
        let count = |group: u32| self.host.iter().find(|count| count.group == group);
        let matched = |group: u32| count(group).map_or(0, |count| count.matched);
        let mut room = u32::MAX;
        for term in wish.anti_affinity.iter().filter(|term| groups.is_host(term.group)) {
            if matched(term.group) > 0 {
                return 0;
            }
            if term.is_self {
                room = 1;
            }
        }
        if !self.host.is_empty()
            && facts.counted.iter().any(|group| count(*group).is_some_and(|count| count.owners > 0))
        {
            return 0;
        }
        for term in wish.affinity.iter().filter(|term| groups.is_host(term.group)) {
            if matched(term.group) == 0 {
                if !(term.is_self && total[term.group as usize] == 0) {
                    return 0;
                }
                room = room.min(1);
            }
        }
        let ports = &problem.demand(class).host_ports;
        if !ports.is_empty() {
            if ports.iter().any(|port| self.ports.iter().any(|taken| taken.conflicts(port))) {
                return 0;
            }
            room = room.min(1);
        }
        room
    }

    /// Notes pods as being here: for their neighbours, their ports and the list of contents.
    pub(crate) fn note(&mut self, problem: &Problem<'_>, class: usize, variant: usize, n: u32) {
        let facts = &problem.classes[class];
        for group in &facts.counted {
            self.count_on_host(problem, *group, n, 0);
        }
        for term in facts.variants[variant].spreads.iter().filter(|term| term.is_self) {
            self.count_on_host(problem, term.group, n, 0);
        }
        for group in &facts.owns {
            self.count_on_host(problem, *group, 0, n);
        }
        self.ports.extend(problem.demand(class).host_ports.iter().cloned());
        let (class, variant) = (class as u32, variant as u32);
        match self.contents.iter_mut().rfind(|content| (content.class, content.variant) == (class, variant)) {
            Some(content) => content.n += n,
            None => self.contents.push(Content { class, variant, n }),
        }
    }

    fn count_on_host(&mut self, problem: &Problem<'_>, group: u32, matched: u32, owners: u32) {
        if !problem.groups.is_host(group) {
            return;
        }
        match self.host.iter_mut().find(|count| count.group == group) {
            Some(count) => {
                count.matched += matched;
                count.owners += owners;
            }
            None => self.host.push(HostCount { group, matched, owners }),
        }
    }

    pub(crate) fn matched_on_host(&self, group: u32) -> u32 {
        self.host.iter().find(|count| count.group == group).map_or(0, |count| count.matched)
    }
}

/// What the search needs beside the draft: the question, and remembered answers.
#[derive(Clone)]
pub(crate) struct Desk<'p, 'a> {
    pub(crate) problem: &'p Problem<'a>,
    pub(crate) scopes: Scopes,
    node_memo: NodeMemo,
    nodes_in: Memo<(usize, usize), Arc<[usize]>>,
    scope_domains: Memo<(ScopeId, usize), Arc<[usize]>>,
    sig_domains: Memo<(SigId, usize), Arc<[usize]>>,
    all_nodes: Arc<[usize]>,
}

impl<'p, 'a> Desk<'p, 'a> {
    pub(crate) fn new(problem: &'p Problem<'a>, scopes: Scopes) -> Self {
        Self {
            problem,
            scopes,
            node_memo: NodeMemo::default(),
            nodes_in: Memo::default(),
            scope_domains: Memo::default(),
            sig_domains: Memo::default(),
            all_nodes: (0..problem.nodes.len()).collect(),
        }
    }

    pub(crate) fn market(&self) -> &'p Market<'a> {
        &self.problem.market
    }

    pub(crate) fn join(&mut self, scope: ScopeId, sig: SigId) -> Option<ScopeId> {
        self.scopes.join(&self.problem.market, scope, sig)
    }

    /// Whether nodes of this kind take pods with this signature and these tolerations.
    pub(crate) fn accepts(&mut self, sig: SigId, tolerance: u32, kind: u32) -> bool {
        self.problem.node_accepts(&self.scopes, &mut self.node_memo, sig, tolerance, kind)
    }

    /// Nodes that the pins allow, judged by the first of them.
    pub(crate) fn nodes_with(&mut self, pins: &Pins) -> Arc<[usize]> {
        let Some(first) = pins.first() else { return Arc::clone(&self.all_nodes) };
        if let Some(known) = self.nodes_in.get(first) {
            return Arc::clone(known);
        }
        let of_node = &self.problem.groups.keys[first.0].of_node;
        let is_there = |node: &usize| of_node[*node] == Some(first.1 as u32);
        let nodes: Arc<[usize]> = (0..of_node.len()).filter(is_there).collect();
        self.nodes_in.insert(*first, Arc::clone(&nodes));
        nodes
    }

    /// Domains of a key that a signature allows.
    pub(crate) fn domains_of_sig(&mut self, sig: SigId, key: usize) -> Arc<[usize]> {
        if let Some(known) = self.sig_domains.get(&(sig, key)) {
            return Arc::clone(known);
        }
        let facts = &self.problem.groups.keys[key];
        let domains = allowed_domains(facts, self.scopes.sig(sig).requirements.get(&facts.key));
        self.sig_domains.insert((sig, key), Arc::clone(&domains));
        domains
    }

    /// Domains of a key in which a new node of this scope could come to be.
    fn domains_of_scope(&mut self, scope: ScopeId, key: usize) -> Arc<[usize]> {
        if let Some(known) = self.scope_domains.get(&(scope, key)) {
            return Arc::clone(known);
        }
        let facts = &self.problem.groups.keys[key];
        let domains = allowed_domains(facts, self.scopes.get(scope).requirements.get(&facts.key));
        self.scope_domains.insert((scope, key), Arc::clone(&domains));
        domains
    }
}

fn allowed_domains(key: &crate::topology::Key, asked: Option<&Requirement>) -> Arc<[usize]> {
    let allowed = |domain: &usize| asked.is_none_or(|asked| asked.has(&key.values[*domain]));
    (0..key.values.len()).filter(allowed).collect()
}

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
        self.steps += 1;
        let problem = desk.problem;
        let facts = &problem.classes[class];
        let (requests, want) = self.bins[position].requests_of(problem, class, want);
        let n = count_fitting(&self.bins[position].amounts, &requests, want);
        if n == 0 {
            return 0;
        }
        let kind = problem.nodes[position].kind;
        let tolerance = facts.variants[variant].tolerance;
        if !problem.node_accepts(&desk.scopes, &mut desk.node_memo, sig, tolerance, kind) {
            return 0;
        }
        let n = n.min(self.bins[position].host_room(problem, &self.total, class, variant));
        if n == 0 {
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
        if !problem.tolerances[facts.variants[variant].tolerance as usize].pools[pool] {
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

    /// Takes a new bin back: its pods wait again. Counts stay as they are, on the safe side.
    pub(crate) fn withdraw(&mut self, desk: &Desk<'_, '_>, position: usize) -> Bin {
        let bin = self.bins.remove(position);
        if let Home::New { scope, choice } = bin.home {
            let facts = desk.scopes.get(scope);
            self.account(desk.problem, facts.pool, Some(facts.choices[choice].ty), None);
        }
        bin
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
