//! Value for money: bins are chosen by how much of their price is filled with what pods are worth.
//!
//! Pods become *items*: so many of a class, with their wide domains already decided. Items that may go to the same
//! machines form a *flavour*; flavours with the least choice go first, and the others fill their gaps.

use crate::bin::{Bin, Home};
use crate::desk::Desk;
use crate::domains;
use crate::draft::{Draft, count_fitting};
use crate::first_fit::{self, Reach, Waiting};
use crate::prices::{self, Machine};
use crate::scope::{ScopeId, SigId, is_spot};
use kerf_model::Money;

/// Some pods of a class that need new capacity, with the label requirements they go by.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) class: u32,
    pub(crate) variant: u32,
    pub(crate) sig: SigId,
    pub(crate) n: u32,
}

/// How many of the best machines are tried for each bin. More is slower, and rarely better.
const SHORTLIST: usize = 6;

/// With spot, a claim should leave the cloud this many types to choose from, where the pool has them.
const SPOT_TYPES: usize = 15;

/// Existing nodes first, then items, then new bins by value; what is left goes by first fit. None when the outcome had
/// to break a promise to a wide domain, so that its balance is no longer certain.
pub(crate) fn place_all(desk: &mut Desk<'_, '_>, draft: &mut Draft, waiting: &mut Waiting) -> Option<()> {
    first_fit::place_reserved(desk, draft, waiting);
    let mut items = collect_items(desk, draft, waiting);
    pack(desk, draft, &mut items);
    let mut is_broken = false;
    for item in items.iter().filter(|item| item.n > 0) {
        let who = (item.class as usize, item.variant as usize);
        draft.promise(desk, who, item.sig, item.n, false);
        waiting[who.0] += item.n;
        is_broken |= desk.problem.classes[who.0].variants[who.1].is_wide;
    }
    first_fit::place_all(desk, draft, waiting);
    (!is_broken).then_some(())
}

/// Fills nodes that are there, and turns what is left into items for new capacity.
pub(crate) fn collect_items(desk: &mut Desk<'_, '_>, draft: &mut Draft, waiting: &mut Waiting) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    loop {
        let before: u32 = waiting.iter().sum();
        for (class, waiting) in waiting.iter_mut().enumerate() {
            for variant in 0..desk.problem.classes[class].variants.len() {
                if *waiting == 0 || draft.is_spent() {
                    break;
                }
                *waiting -= first_fit::place_variant(desk, draft, class, variant, *waiting, Reach::NodesOnly);
                *waiting -= promise_new(desk, draft, (class, variant), *waiting, &mut items);
            }
        }
        let after: u32 = waiting.iter().sum();
        if after == 0 || after == before {
            return items;
        }
    }
}

/// Turns up to `want` pods into items, if new capacity could grant this variant.
fn promise_new(
    desk: &mut Desk<'_, '_>,
    draft: &mut Draft,
    who: (usize, usize),
    want: u32,
    items: &mut Vec<Item>,
) -> u32 {
    if want == 0 {
        return 0;
    }
    let facts = &desk.problem.classes[who.0].variants[who.1];
    let follows_on_host = facts.affinity.iter().any(|term| desk.problem.groups.is_host(term.group));
    if follows_on_host || !desk.problem.classes[who.0].shared.is_empty() {
        // First fit sees to those: what they need depends on who is there already.
        return 0;
    }
    let (is_wide, sigs) = (facts.is_wide, facts.sigs.clone());
    // Without a spread over wide domains every pod of the class may follow the first.
    let moves = facts.spreads.iter().chain(&facts.anti_affinity).any(|term| !desk.problem.groups.is_host(term.group));
    let mut left = want;
    while left > 0 {
        draft.steps += 1;
        let ways = if is_wide { domains::choices(desk, draft, who.0, who.1) } else { vec![Vec::new()] };
        let found = ways.iter().find_map(|pins| {
            sigs.iter().find_map(|sig| {
                let sig = first_fit::pinned(desk, *sig, pins);
                (!first_fit::bases_by_weight_and_price(desk, who, sig).is_empty()).then_some(sig)
            })
        });
        let Some(sig) = found else { break };
        let n = if moves { 1 } else { left };
        draft.promise(desk, who, sig, n, true);
        add_item(items, who, sig, n);
        left -= n;
    }
    want - left
}

fn add_item(items: &mut Vec<Item>, (class, variant): (usize, usize), sig: SigId, n: u32) {
    let (class, variant) = (class as u32, variant as u32);
    let same = |item: &&mut Item| (item.class, item.variant, item.sig) == (class, variant, sig);
    match items.iter_mut().rev().take_while(|item| item.class == class).find(same) {
        Some(item) => item.n += n,
        None => items.push(Item { class, variant, sig, n }),
    }
}

/// Items that may go to the same machines.
struct Flavour {
    sig: SigId,
    /// Indices of its own items, then of others that may fill its gaps; each most valuable first.
    own: Vec<usize>,
    others: Vec<usize>,
    /// Pools by weight: a lighter tier only serves what the heavier cannot.
    tiers: Vec<Vec<ScopeId>>,
    n_choices: usize,
}

/// Buys bins for the items. What stays in `items` found nothing to buy.
pub(crate) fn pack(desk: &mut Desk<'_, '_>, draft: &mut Draft, items: &mut [Item]) {
    let mut flavours = flavours(desk, items);
    flavours.sort_by_key(|flavour| (flavour.n_choices, flavour.sig));
    for flavour in &mut flavours {
        find_fillers(desk, flavour, items);
    }
    // Bins that must exist anyway come first: they want fillers, and everyone else can do without.
    for rounds in [Seeds::Forced, Seeds::All] {
        for flavour in &flavours {
            for tier in &flavour.tiers {
                pack_flavour(desk, draft, items, flavour, tier, rounds);
            }
        }
    }
}

/// For whom bins are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seeds {
    /// Pods of which each needs a host of its own, where there are more of them than full bins.
    Forced,
    All,
}

fn flavours(desk: &mut Desk<'_, '_>, items: &[Item]) -> Vec<Flavour> {
    let mut by_key: std::collections::BTreeMap<(SigId, u32), Vec<usize>> = std::collections::BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        let tolerance = desk.problem.classes[item.class as usize].variants[item.variant as usize].tolerance;
        by_key.entry((item.sig, tolerance)).or_default().push(index);
    }
    let mut out = Vec::new();
    for ((sig, tolerance), own) in by_key {
        let mut tiers: Vec<(i32, Vec<ScopeId>)> = Vec::new();
        let tolerated = &desk.problem.tolerances[tolerance as usize].pools;
        for pool in (0..desk.problem.market.pools.len()).filter(|pool| tolerated[*pool]) {
            let joined = desk.scopes.base(pool).and_then(|base| desk.join(base, sig));
            let Some(scope) = joined else { continue };
            let weight = desk.problem.market.pools[pool].pool.weight;
            match tiers.last_mut() {
                Some((last, scopes)) if *last == weight => scopes.push(scope),
                _ => tiers.push((weight, vec![scope])),
            }
        }
        let n_choices =
            tiers.iter().flat_map(|(_, scopes)| scopes).map(|scope| desk.scopes.get(*scope).choices.len()).sum();
        out.push(Flavour {
            sig,
            own,
            others: Vec::new(),
            tiers: tiers.into_iter().map(|(_, scopes)| scopes).collect(),
            n_choices,
        });
    }
    out
}

fn find_fillers(desk: &mut Desk<'_, '_>, flavour: &mut Flavour, items: &[Item]) {
    let own: std::collections::BTreeSet<usize> = flavour.own.iter().copied().collect();
    let mut memo: std::collections::BTreeMap<SigId, bool> = std::collections::BTreeMap::new();
    for (index, item) in items.iter().enumerate().filter(|(index, _)| !own.contains(index)) {
        let scopes = flavour.tiers.iter().flatten();
        let fits =
            *memo.entry(item.sig).or_insert_with(|| scopes.clone().any(|scope| desk.join(*scope, item.sig).is_some()));
        if fits {
            flavour.others.push(index);
        }
    }
}

/// A machine worth considering for a flavour.
#[derive(Debug, Clone, Copy)]
struct Prospect {
    scope: ScopeId,
    choice: usize,
    /// What it would be worth if it could be filled to the brim, per dollar.
    efficiency: f64,
}

fn pack_flavour(
    desk: &mut Desk<'_, '_>,
    draft: &mut Draft,
    items: &mut [Item],
    flavour: &Flavour,
    tier: &[ScopeId],
    seeds: Seeds,
) {
    let n_dims = desk.market().dims.n();
    let mut total = vec![0.0; n_dims];
    for index in &flavour.own {
        let item = &items[*index];
        for (sum, amount) in total.iter_mut().zip(&desk.problem.classes[item.class as usize].requests) {
            *sum += *amount as f64 * f64::from(item.n);
        }
    }
    if total.iter().all(|sum| *sum <= 0.0) {
        return;
    }
    if seeds == Seeds::Forced && !flavour.own.iter().any(|index| stands_alone(desk, &items[*index])) {
        return;
    }
    let machines = machines(desk, tier);
    let prices = prices::of_resources(&total, &machines.iter().map(|(_, machine)| machine.clone()).collect::<Vec<_>>());
    let mut prospects: Vec<Prospect> = machines
        .iter()
        .map(|((scope, choice), machine)| Prospect {
            scope: *scope,
            choice: *choice,
            efficiency: prices::dot(&prices, &machine.cap) / machine.price.max(1e-9),
        })
        .collect();
    let value: Vec<f64> =
        items.iter().map(|item| prices::worth(&prices, &desk.problem.classes[item.class as usize].requests)).collect();
    prospects.sort_by(|a, b| {
        b.efficiency.total_cmp(&a.efficiency).then_with(|| (a.scope, a.choice).cmp(&(b.scope, b.choice)))
    });
    let requests: Vec<i64> =
        items.iter().flat_map(|item| desk.problem.classes[item.class as usize].requests.iter().copied()).collect();
    let mut least = vec![i64::MAX; n_dims];
    for request in requests.chunks(n_dims) {
        for (least, amount) in least.iter_mut().zip(request) {
            *least = (*least).min(*amount);
        }
    }
    let mut packer = Packer { desk, draft, items, value: &value, prospects, requests, least, n_dims };
    let by_value = |list: &[usize]| {
        let mut list = list.to_vec();
        list.sort_by(|a, b| value[*b].total_cmp(&value[*a]).then_with(|| a.cmp(b)));
        list
    };
    let (own, others) = (by_value(&flavour.own), by_value(&flavour.others));
    match seeds {
        Seeds::All => packer.run(&own, &own, &others, seeds),
        Seeds::Forced => {
            let alone: Vec<usize> =
                own.iter().copied().filter(|index| packer.is_forced(*index, &own, &others)).collect();
            packer.run(&alone, &own, &others, seeds);
        }
    }
}

/// Whether at most so many of an item's pods, or of its group, share a host.
fn stands_alone(desk: &Desk<'_, '_>, item: &Item) -> bool {
    let problem = desk.problem;
    let wish = &problem.classes[item.class as usize].variants[item.variant as usize];
    let is_limit = |term: &&crate::topology::OwnTerm| term.is_self && problem.groups.is_host(term.group);
    wish.anti_affinity.iter().chain(&wish.spreads).any(|term| is_limit(&term))
        || !problem.demand(item.class as usize).host_ports.is_empty()
}

/// Machines of a tier that nothing at most as dear exceeds; for spot, only those that leave enough types to choose from.
fn machines(desk: &Desk<'_, '_>, tier: &[ScopeId]) -> Vec<((ScopeId, usize), Machine)> {
    let mut out = Vec::new();
    for id in tier {
        let scope = desk.scopes.get(*id);
        let wanted = SPOT_TYPES.min(scope.choices.len());
        let is_diverse = |choice: usize| {
            if !is_spot(desk.market(), &scope.choices[choice]) {
                return true;
            }
            let cap = scope.cap(choice);
            (0..scope.choices.len()).filter(|other| scope.holds(*other, cap)).take(wanted).count() >= wanted
        };
        let mut kept: Vec<usize> = Vec::new();
        for choice in 0..scope.choices.len() {
            // Cheapest first: whatever is kept already is at most as dear.
            let is_covered = kept.iter().any(|other| scope.holds(*other, scope.cap(choice)));
            if !is_covered && is_diverse(choice) {
                kept.push(choice);
            }
        }
        if kept.is_empty() {
            kept.clone_from(&scope.efficient);
        }
        for choice in kept {
            let cap = scope.cap(choice).iter().map(|amount| *amount as f64).collect();
            out.push(((*id, choice), Machine { cap, price: scope.choices[choice].price.dollars() }));
        }
    }
    out
}

struct Packer<'x, 'd, 'p, 'a> {
    desk: &'x mut Desk<'p, 'a>,
    draft: &'d mut Draft,
    items: &'x mut [Item],
    value: &'x [f64],
    /// Most efficient first.
    prospects: Vec<Prospect>,
    /// `n_dims` numbers for each item, side by side: they are read millions of times.
    requests: Vec<i64>,
    /// By dimension: the least that any item asks. A bin with less left is full.
    least: Vec<i64>,
    n_dims: usize,
}

/// A bin that could be bought.
struct Trial {
    bin: Bin,
    taken: Vec<(usize, u32)>,
    worth: f64,
    price: Money,
}

impl Packer<'_, '_, '_, '_> {
    /// Opens bins for the seeds, fills them with their flavour and then with others, until no seed is left.
    fn run(&mut self, seeds: &[usize], own: &[usize], others: &[usize], which: Seeds) {
        let (mut seeds, mut own, mut others) = (seeds.to_vec(), own.to_vec(), others.to_vec());
        while !self.draft.is_spent() {
            seeds.retain(|index| self.items[*index].n > 0);
            own.retain(|index| self.items[*index].n > 0);
            others.retain(|index| self.items[*index].n > 0);
            let Some(seed) = seeds.first().copied() else { return };
            let bought = self.best_bin(seed, &own, &others, which).is_some_and(|trial| self.buy(trial));
            if !bought {
                // Too large for this tier, or no budget left: it waits for the next one.
                seeds.remove(0);
            }
        }
    }

    fn best_bin(&mut self, seed: usize, own: &[usize], others: &[usize], which: Seeds) -> Option<Trial> {
        let is_forced = which == Seeds::Forced || self.is_forced(seed, own, others);
        let everyone = own.iter().chain(others);
        let left: f64 = everyone.map(|index| self.value[*index] * f64::from(self.items[*index].n)).sum();
        let shortlist = self.shortlist(seed, is_forced, left);
        let mut best: Option<(f64, Trial)> = None;
        for prospect in shortlist {
            let Some(trial) = self.fill(prospect, seed, own, others) else { continue };
            let price = trial.price.dollars();
            // A bin that must exist anyway should waste little; one of many should give much for its price.
            let score = if is_forced { trial.worth - price } else { trial.worth / price.max(1e-9) };
            if best.as_ref().is_none_or(|(top, _)| score > *top + 1e-12) {
                best = Some((score, trial));
            }
        }
        best.map(|(_, trial)| trial)
    }

    /// Whether rules about neighbours, not room, decide how many bins the seed's kind needs.
    fn is_forced(&self, seed: usize, own: &[usize], others: &[usize]) -> bool {
        let item = &self.items[seed];
        if !stands_alone(self.desk, item) {
            return false;
        }
        let problem = self.desk.problem;
        let groups = |item: &Item| {
            let wish = &problem.classes[item.class as usize].variants[item.variant as usize];
            wish.anti_affinity
                .iter()
                .chain(&wish.spreads)
                .filter(|term| problem.groups.is_host(term.group))
                .map(|term| term.group)
        };
        let mine: Vec<u32> = groups(item).collect();
        let together = own.iter().filter(|index| groups(&self.items[**index]).any(|group| mine.contains(&group)));
        let n_alone: f64 = together.map(|index| f64::from(self.items[*index].n)).sum::<f64>().max(f64::from(item.n));
        let largest = self.prospects.iter().map(|prospect| {
            let scope = self.desk.scopes.get(prospect.scope);
            scope.choices[prospect.choice].price.dollars() * prospect.efficiency
        });
        let largest = largest.fold(0.0, f64::max);
        let everyone = own.iter().chain(others);
        let worth: f64 = everyone.map(|index| self.value[*index] * f64::from(self.items[*index].n)).sum();
        n_alone * largest > worth
    }

    /// The machines to try: those that would give most for their price with what is left to fill them, or the cheapest
    /// where the bin must exist anyway.
    fn shortlist(&self, seed: usize, is_forced: bool, left: f64) -> Vec<Prospect> {
        let requests = &self.desk.problem.classes[self.items[seed].class as usize].requests;
        let price = |prospect: &Prospect| self.desk.scopes.get(prospect.scope).choices[prospect.choice].price;
        let is_able = |prospect: &&Prospect| {
            let scope = self.desk.scopes.get(prospect.scope);
            scope.holds(prospect.choice, requests)
                && self.draft.affords(self.desk.problem, scope.pool, None, scope.choices[prospect.choice].ty)
        };
        let mut able: Vec<(f64, Prospect)> = self
            .prospects
            .iter()
            .filter(is_able)
            .map(|prospect| {
                let dollars = price(prospect).dollars().max(1e-9);
                let score = if is_forced { -dollars } else { prospect.efficiency.min(left / dollars) };
                (score, *prospect)
            })
            .collect();
        able.sort_by(|(a, p), (b, q)| b.total_cmp(a).then_with(|| (p.scope, p.choice).cmp(&(q.scope, q.choice))));
        able.truncate(SHORTLIST);
        able.into_iter().map(|(_, prospect)| prospect).collect()
    }

    /// Fills one machine: the seed first, then its flavour, then others, most valuable first.
    fn fill(&mut self, prospect: Prospect, seed: usize, own: &[usize], others: &[usize]) -> Option<Trial> {
        let problem = self.desk.problem;
        let start = self.desk.scopes.shared(prospect.scope);
        let mut free = start.cap(prospect.choice).to_vec();
        let ty = start.choices[prospect.choice].ty;
        let mut bin = Bin::empty(prospect.scope, free.len());
        let mut scope = prospect.scope;
        let mut taken = Vec::new();
        let mut worth = 0.0;
        let order = std::iter::once(seed)
            .chain(own.iter().copied().filter(|index| *index != seed))
            .chain(others.iter().copied());
        for index in order {
            self.draft.steps += 1;
            let requests = &self.requests[index * self.n_dims..(index + 1) * self.n_dims];
            if requests.iter().zip(&free).any(|(request, free)| request > free) {
                if self.least.iter().zip(&free).any(|(least, free)| least > free) {
                    break;
                }
                continue;
            }
            let item = &self.items[index];
            let (class, variant) = (item.class as usize, item.variant as usize);
            let facts = &problem.classes[class];
            let n = count_fitting(&free, requests, item.n);
            if n == 0 || !problem.tolerances[facts.variants[variant].tolerance as usize].pools[start.pool] {
                continue;
            }
            let n = n.min(bin.host_room(problem, &self.draft.total, class, variant));
            if n == 0 {
                continue;
            }
            let Some(joined) = self.desk.join(scope, item.sig) else { continue };
            if joined != scope {
                if self.desk.scopes.get(joined).choice_of_type(ty).is_none() {
                    continue;
                }
                scope = joined;
            }
            for ((load, free), request) in bin.amounts.iter_mut().zip(&mut free).zip(requests) {
                *load += request * i64::from(n);
                *free -= request * i64::from(n);
            }
            bin.note(problem, class, variant, n);
            taken.push((index, n));
            worth += self.value[index] * f64::from(n);
        }
        let after = self.desk.scopes.get(scope);
        let affordable = |choice: &usize| {
            after.holds(*choice, &bin.amounts)
                && self.draft.affords(problem, after.pool, None, after.choices[*choice].ty)
        };
        let choice = (0..after.choices.len()).find(affordable)?;
        if taken.is_empty() || !after.keeps_min_values(&problem.market, &bin.amounts) {
            return None;
        }
        bin.home = Home::New { scope, choice };
        Some(Trial { price: after.choices[choice].price, bin, taken, worth })
    }

    /// Buys a bin as often as its contents are there.
    fn buy(&mut self, trial: Trial) -> bool {
        let times = trial.taken.iter().map(|(index, n)| self.items[*index].n / n).min().unwrap_or(0);
        let mut bought = 0;
        for _ in 0..times {
            if !self.draft.adopt(self.desk, trial.bin.clone()) {
                break;
            }
            bought += 1;
        }
        for (index, n) in &trial.taken {
            self.items[*index].n -= n * bought;
        }
        bought > 0
    }
}
