//! Nodes that are alike: pods are dealt round like cards, so that every node holds the average mix.
//!
//! Dearer than packing by value as a rule, but two things are better: kube-scheduler, which spreads, ends up with what
//! was planned; and a hostname spread is satisfied by few full nodes, because all of them rise together.

use crate::bin::{Bin, Home};
use crate::by_value::{self, Item};
use crate::desk::Desk;
use crate::draft::Draft;
use crate::first_fit::{self, Waiting};
use crate::judge;
use crate::scope::{ScopeId, SigId};
use crate::write;
use kerf_model::{Binder, Money};
use std::collections::BTreeMap;

/// Machines tried for each flavour, cheapest total first.
const MAX_MACHINES: usize = 24;

/// Further nodes tried before a machine is given up as one that strands pods.
const MAX_SPARE: usize = 3;

/// More pods than this are not dealt: the judge could not say whether it was worth it.
const MAX_PODS: u32 = 50_000;

/// How often nodes that are there are filled anew, less high, so that new ones can rise as high.
const MAX_TRIES: usize = 6;

/// By group of a hostname spread: how high nodes that are there may rise.
type Ceilings = BTreeMap<u32, u32>;

/// Fills nodes that are there, then deals the rest, into a draft that has just begun. None where dealing does not apply.
pub(crate) fn place_all(desk: &mut Desk<'_, '_>, draft: &mut Draft, waiting: &mut Waiting) -> Option<()> {
    let mut ceilings = Ceilings::new();
    for _ in 0..MAX_TRIES {
        place_under(desk, draft, waiting, &ceilings)?;
        let uneven = uneven_spreads(desk, draft);
        if uneven.is_empty() {
            return Some(());
        }
        if draft.n_nodes == 0 {
            return None;
        }
        for (group, even) in uneven {
            // Each time lower, though the average may not be.
            let below = ceilings.get(&group).map_or(u32::MAX, |ceiling| ceiling.saturating_sub(1));
            ceilings.insert(group, even.min(below));
        }
        let steps = draft.steps;
        *draft = Draft::new(desk.problem, draft.max_steps);
        draft.steps = steps;
        *waiting = write::everyone(desk);
    }
    None
}

fn place_under(desk: &mut Desk<'_, '_>, draft: &mut Draft, waiting: &mut Waiting, ceilings: &Ceilings) -> Option<()> {
    first_fit::place_reserved(desk, draft, waiting);
    rise_together(desk, draft, waiting, ceilings);
    let mut items = by_value::collect_items(desk, draft, waiting);
    if items.iter().map(|item| item.n).sum::<u32>() > MAX_PODS {
        return None;
    }
    let mut by_flavour: BTreeMap<(SigId, u32), Vec<usize>> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        let tolerance = desk.problem.classes[item.class as usize].variants[item.variant as usize].tolerance;
        by_flavour.entry((item.sig, tolerance)).or_default().push(index);
    }
    for ((sig, tolerance), members) in by_flavour {
        let hand: Vec<Item> = in_dealing_order(desk, members.iter().map(|index| items[*index].clone()).collect());
        let bins = deal_best(desk, draft, sig, tolerance, &hand)?;
        for bin in bins {
            if !draft.adopt(desk, bin) {
                return None;
            }
        }
        for index in members {
            items[index].n = 0;
        }
    }
    first_fit::place_all(desk, draft, waiting);
    Some(())
}

/// Puts pods with a hostname spread onto nodes that are there, always onto those that have the fewest: while no node is opened, all
/// of them may rise together. What is in flight is used like that, too, instead of being left at one pod each.
///
/// One layer of each class in turn: a class that took all the room first would leave the others to new nodes, where their own spread
/// lets them rise no higher than on the nodes without room.
fn rise_together(desk: &mut Desk<'_, '_>, draft: &mut Draft, waiting: &mut Waiting, ceilings: &Ceilings) {
    let problem = desk.problem;
    let mut risers: Vec<Riser> = Vec::new();
    for (class, facts) in problem.classes.iter().enumerate() {
        let wish = &facts.variants[0];
        let spread = wish.spreads.iter().find(|term| term.is_self && problem.groups.is_host(term.group));
        let (Some(spread), false) = (spread, wish.is_wide) else { continue };
        let group = problem.groups.get(spread.group);
        let counts = |position: &usize| group.counts_on(problem.nodes[*position].kind as usize);
        let ceiling = ceilings.get(&spread.group).copied().unwrap_or(u32::MAX);
        risers.push(Riser { class, group: spread.group, ceiling, open: (0..draft.n_nodes).filter(counts).collect() });
    }
    while !risers.is_empty() {
        risers.retain_mut(|riser| riser.rise(desk, draft, &mut waiting[riser.class]));
    }
}

/// A class on its way up, and the nodes that may still take pods of it.
struct Riser {
    class: usize,
    group: u32,
    ceiling: u32,
    open: Vec<usize>,
}

impl Riser {
    /// One layer: a pod for each of the nodes that have the fewest. False when this was the last.
    fn rise(&mut self, desk: &mut Desk<'_, '_>, draft: &mut Draft, waiting: &mut u32) -> bool {
        let (class, group) = (self.class, self.group);
        let height = |draft: &Draft, position: usize| draft.bins[position].matched_on_host(group);
        let lowest = self.open.iter().map(|position| height(draft, *position)).min();
        let Some(lowest) = lowest.filter(|lowest| *lowest < self.ceiling) else { return false };
        let sigs = &desk.problem.classes[class].variants[0].sigs;
        self.open.retain(|position| {
            if *waiting == 0 || draft.is_spent() || height(draft, *position) > lowest {
                return true;
            }
            let is_placed = sigs.iter().any(|sig| draft.deal_to_node(desk, *position, (class, 0), *sig, 1) == 1);
            *waiting -= u32::from(is_placed);
            is_placed
        });
        *waiting > 0 && !draft.is_spent()
    }
}

/// Whether dealing could pay: kube-scheduler places, or a hostname spread decides how many bins there are.
pub(crate) fn applies(desk: &Desk<'_, '_>, n_bins: usize) -> bool {
    let problem = desk.problem;
    if problem.snapshot.settings.placed_by == Binder::KubeScheduler {
        return true;
    }
    let mut n_spread: BTreeMap<u32, usize> = BTreeMap::new();
    for class in &problem.classes {
        for term in class.variants[0].spreads.iter().filter(|term| term.is_self && problem.groups.is_host(term.group)) {
            *n_spread.entry(term.group).or_default() += class.pods.len() / term.max_skew.max(1) as usize;
        }
    }
    n_spread.values().any(|forced| forced * 4 >= n_bins)
}

/// Pods of one spread stand together, so that dealing on from one class to the next keeps the spread even; largest first.
fn in_dealing_order(desk: &Desk<'_, '_>, mut hand: Vec<Item>) -> Vec<Item> {
    hand.sort_by_key(|item| {
        let facts = &desk.problem.classes[item.class as usize];
        let spread =
            facts.variants[item.variant as usize].spreads.iter().find(|term| desk.problem.groups.is_host(term.group));
        (spread.map_or(u32::MAX, |term| term.group), item.class)
    });
    hand
}

/// The cheapest number and kind of nodes that hold the hand, and that kube-scheduler does not upset.
fn deal_best(desk: &mut Desk<'_, '_>, draft: &Draft, sig: SigId, tolerance: u32, hand: &[Item]) -> Option<Vec<Bin>> {
    let overhead = desk.problem.snapshot.settings.node_overhead;
    let mut offers: Vec<(Money, ScopeId, usize, usize)> = Vec::new();
    let mut weight = None;
    for pool in 0..desk.market().pools.len() {
        let facts = &desk.market().pools[pool];
        if !desk.problem.tolerances[tolerance as usize].pools[pool]
            || weight.is_some_and(|weight| weight > facts.pool.weight)
        {
            continue;
        }
        let Some(scope) = desk.scopes.base(pool).and_then(|base| desk.join(base, sig)) else { continue };
        let before = offers.len();
        let shared = desk.scopes.shared(scope);
        for choice in &shared.efficient {
            if let Some(n) = fewest_nodes(desk, shared.cap(*choice), hand) {
                offers.push(((shared.choices[*choice].price + overhead) * n as i64, scope, *choice, n));
            }
        }
        if offers.len() > before {
            weight = Some(facts.pool.weight);
        }
    }
    offers.sort();
    offers.truncate(MAX_MACHINES);
    let is_judged = desk.problem.snapshot.settings.placed_by == Binder::KubeScheduler;
    let mut best: Option<(Money, Vec<Bin>)> = None;
    for (_, scope, choice, fewest) in offers {
        for n in fewest..=fewest + if is_judged { MAX_SPARE } else { 0 } {
            let price = desk.scopes.get(scope).choices[choice].price + overhead;
            if is_judged && best.as_ref().is_some_and(|(cost, _)| price * n as i64 >= *cost) {
                break;
            }
            let Some(bins) = deal(desk, draft, scope, choice, n, hand) else { continue };
            let cost: Money = bins.iter().map(|bin| crate::draft::price(&desk.scopes, bin) + overhead).sum();
            if best.as_ref().is_some_and(|(least, _)| cost >= *least)
                || (is_judged && judge::strands(desk, &bins) != Some(false))
            {
                continue;
            }
            best = Some((cost, bins));
            break;
        }
    }
    best.map(|(_, bins)| bins)
}

/// The least number of machines of this size over which the hand can be dealt.
fn fewest_nodes(desk: &Desk<'_, '_>, cap: &[i64], hand: &[Item]) -> Option<usize> {
    let n_pods: u32 = hand.iter().map(|item| item.n).sum();
    let mut total = vec![0_i128; cap.len()];
    let mut low = 1;
    for item in hand {
        let facts = &desk.problem.classes[item.class as usize];
        for (sum, amount) in total.iter_mut().zip(&facts.requests) {
            *sum += i128::from(*amount) * i128::from(item.n);
        }
    }
    for (sum, cap) in total.iter().zip(cap) {
        if *sum > 0 {
            let needed = (sum + i128::from(*cap).max(1) - 1) / i128::from(*cap).max(1);
            low = low.max(usize::try_from(needed).unwrap_or(usize::MAX));
        }
    }
    let high = n_pods as usize;
    if low > high || !fits_dealt(desk, cap, hand, high) {
        return None;
    }
    let (mut bad, mut good) = (low - 1, high);
    while bad + 1 < good {
        let middle = if bad < low { low.min(good - 1) } else { usize::midpoint(bad, good) };
        if fits_dealt(desk, cap, hand, middle) { good = middle } else { bad = middle }
    }
    Some(good)
}

/// How many of an item each of `n` nodes gets when dealing goes on from `from`.
fn share(item: &Item, from: usize, node: usize, n: usize) -> u32 {
    let extra = item.n as usize % n;
    let offset = (node + n - from % n) % n;
    item.n / n as u32 + u32::from(offset < extra)
}

fn fits_dealt(desk: &Desk<'_, '_>, cap: &[i64], hand: &[Item], n: usize) -> bool {
    let n_dims = cap.len();
    let mut base = vec![0_i64; n_dims];
    let mut extra = vec![0_i64; n_dims * n];
    let mut from = 0;
    for item in hand {
        let requests = &desk.problem.classes[item.class as usize].requests;
        let each = i64::from(item.n) / n as i64;
        for (sum, amount) in base.iter_mut().zip(requests) {
            *sum += amount * each;
        }
        for step in 0..item.n as usize % n {
            let node = (from + step) % n;
            for (sum, amount) in extra[node * n_dims..(node + 1) * n_dims].iter_mut().zip(requests) {
                *sum += amount;
            }
        }
        from = (from + item.n as usize) % n;
    }
    extra.chunks(n_dims).all(|extra| extra.iter().zip(&base).zip(cap).all(|((extra, base), cap)| extra + base <= *cap))
}

/// The bins, each repriced to the cheapest machine for what it got. None when neighbours do not get along.
fn deal(
    desk: &mut Desk<'_, '_>,
    draft: &Draft,
    scope: ScopeId,
    choice: usize,
    n: usize,
    hand: &[Item],
) -> Option<Vec<Bin>> {
    let problem = desk.problem;
    let facts = desk.scopes.shared(scope);
    let mut bins = Vec::with_capacity(n);
    for node in 0..n {
        let mut bin = Bin::empty(scope, facts.cap(choice).len());
        let mut from = 0;
        for item in hand {
            let (class, variant) = (item.class as usize, item.variant as usize);
            let count = share(item, from, node, n);
            from = (from + item.n as usize) % n;
            if count == 0 {
                continue;
            }
            if bin.dealt_room(problem, &draft.total, class, variant) < count {
                return None;
            }
            for (load, request) in bin.amounts.iter_mut().zip(&problem.classes[class].requests) {
                *load += request * i64::from(count);
            }
            bin.note(problem, class, variant, count);
        }
        if bin.contents.is_empty() {
            continue;
        }
        if !facts.holds(choice, &bin.amounts) {
            return None;
        }
        // Where kube-scheduler places, the nodes stay alike: room is part of the plan.
        if problem.snapshot.settings.placed_by == Binder::KubeScheduler {
            // Twice what it holds is room enough in any order; of what is scarce, all that the machine has.
            let room = |(cap, load): (&i64, &i64)| (*cap).min(load.saturating_mul(2));
            bin.at_least = facts.cap(choice).iter().zip(&bin.amounts).map(room).collect();
        }
        let holds = |at: &usize| facts.holds(*at, &bin.amounts) && facts.holds(*at, &bin.at_least);
        if facts.missing_min_values(&problem.market, |_, at| holds(&at)).is_some() {
            return None;
        }
        bin.home = Home::New { scope, choice: (0..facts.choices.len()).find(holds)? };
        bins.push(bin);
    }
    Some(bins)
}

/// The hostname spreads that do not hold over all nodes that count, new and old, and how high each node would be if it were even.
fn uneven_spreads(desk: &Desk<'_, '_>, draft: &Draft) -> Ceilings {
    let problem = desk.problem;
    let mut terms: BTreeMap<u32, (u32, Option<u32>)> = BTreeMap::new();
    for content in draft.bins.iter().flat_map(|bin| &bin.contents) {
        let wish = &problem.classes[content.class as usize].variants[content.variant as usize];
        for term in wish.spreads.iter().filter(|term| problem.groups.is_host(term.group)) {
            terms.insert(term.group, (term.max_skew, term.min_domains));
        }
    }
    let even = |(group, (max_skew, min_domains)): (u32, (u32, Option<u32>))| {
        let facts = problem.groups.get(group);
        let counts_here = |bin: &&Bin| match bin.home {
            Home::Node(position) => facts.counts_on(problem.nodes[position].kind as usize),
            Home::New { scope, .. } => {
                let requirements = &desk.scopes.get(scope).requirements;
                facts.counts_on_new(requirements, |key| problem.market.is_well_known(key))
            }
        };
        let counts: Vec<u32> = draft.bins.iter().filter(counts_here).map(|bin| bin.matched_on_host(group)).collect();
        let too_few = min_domains.is_some_and(|wanted| (counts.len() as u32) < wanted);
        let lowest = if too_few { 0 } else { counts.iter().copied().min().unwrap_or(0) };
        let touched = draft.bins.iter().filter(|bin| {
            bin.contents.iter().any(|content| {
                let wish = &problem.classes[content.class as usize].variants[content.variant as usize];
                wish.spreads.iter().any(|term| term.group == group)
            })
        });
        let holds = touched.map(|bin| bin.matched_on_host(group)).max().unwrap_or(0) <= lowest + max_skew;
        (!holds).then(|| (group, counts.iter().sum::<u32>().div_ceil(counts.len().max(1) as u32)))
    };
    terms.into_iter().filter_map(even).collect()
}
