//! Largest first, into the first place with room: nodes that are there, open bins, then new ones.
//!
//! The floor under every other search, and the one that finishes what they leave: it can place anything that the
//! rules allow, one pod at a time where it must.

use crate::bin::Home;
use crate::desk::Desk;
use crate::domains::{self, Pins};
use crate::draft::Draft;
use crate::memo::Memo;
use crate::scope::{ScopeId, SigId};
use kerf_model::ReservedMode;

/// How many pods of each class still wait.
pub(crate) type Waiting = Vec<u32>;

/// Where a placement may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    NodesOnly,
    Everywhere,
}

/// Places what it can. Passes over the classes until one brings nothing: pods that follow others come later.
pub(crate) fn place_all(desk: &mut Desk<'_, '_>, draft: &mut Draft, waiting: &mut Waiting) {
    place_reserved(desk, draft, waiting);
    loop {
        let before: u32 = waiting.iter().sum();
        for (class, waiting) in waiting.iter_mut().enumerate() {
            if *waiting > 0 && !draft.is_spent() {
                *waiting -= place_class(desk, draft, class, *waiting, Reach::Everywhere);
            }
        }
        let after: u32 = waiting.iter().sum();
        if after == 0 || after == before || draft.is_spent() {
            return;
        }
    }
}

/// Fills reservations with the pods that can use them. Under the strict mode, pods for which a reservation exists but
/// is spoken for in this pass wait: they move from `waiting` to the draft's list of those.
pub(crate) fn place_reserved(desk: &mut Desk<'_, '_>, draft: &mut Draft, waiting: &mut Waiting) {
    if desk.market().reservations.is_empty() {
        return;
    }
    for (class, waiting) in waiting.iter_mut().enumerate() {
        // Wishes that a reservation cannot grant are not given up for it.
        let wish = &desk.problem.classes[class].variants[0];
        let Some(sig) = wish.sigs.first().copied() else { continue };
        let is_wide = wish.is_wide;
        let who = (class, 0);
        if is_wide || *waiting == 0 || !could_use_a_reservation(desk, who, sig) {
            continue;
        }
        *waiting -= place_variant(desk, draft, class, 0, *waiting, Reach::NodesOnly);
        for position in draft.n_nodes..draft.bins.len() {
            if !draft.bins[position].held.is_empty() && *waiting > 0 {
                *waiting -= draft.add_to_new(desk, position, who, sig, *waiting);
            }
        }
        for pool in 0..desk.market().pools.len() {
            while *waiting > 0 {
                let Some(n) = open_reserved(desk, draft, pool, who, sig, *waiting) else { break };
                *waiting -= n;
            }
        }
        if desk.problem.snapshot.settings.reserved == Some(ReservedMode::Strict) {
            draft.awaiting[class] += std::mem::take(waiting);
        }
    }
}

fn could_use_a_reservation(desk: &mut Desk<'_, '_>, (class, variant): (usize, usize), sig: SigId) -> bool {
    let facts = &desk.problem.classes[class];
    let tolerated = &desk.problem.tolerances[facts.variants[variant].tolerance as usize].pools;
    (0..tolerated.len()).filter(|pool| tolerated[*pool]).any(|pool| {
        let joined = desk.scopes.reserved_base(pool).and_then(|base| desk.join(base, sig));
        joined.is_some_and(|scope| desk.scopes.get(scope).holds_somewhere(&facts.requests))
    })
}

fn open_reserved(
    desk: &mut Desk<'_, '_>,
    draft: &mut Draft,
    pool: usize,
    who: (usize, usize),
    sig: SigId,
    want: u32,
) -> Option<u32> {
    let base = desk.scopes.reserved_base(pool)?;
    let joined = desk.join(base, sig)?;
    let scope = desk.scopes.shared(joined);
    let label = desk.problem.snapshot.settings.reservation_label.clone();
    let left: Vec<kerf_model::Text> = scope
        .offers
        .iter()
        .filter_map(|offer| desk.market().offers[offer].reservation)
        .filter(|reservation| draft.reservations[*reservation] > 0)
        .map(|reservation| desk.market().reservations[reservation].id.clone())
        .collect();
    if left.is_empty() {
        return None;
    }
    let ids = kerf_model::Requirement::is_in(left.iter().map(|id| &**id));
    let held = desk.scopes.narrow(sig, &label, &ids);
    let n = draft.open(desk, base, who, held, want)?;
    draft.hold_reservations(desk, draft.bins.len() - 1);
    Some(n)
}

/// Places up to `want` pods of a class, giving up one wish after the other.
pub(crate) fn place_class(desk: &mut Desk<'_, '_>, draft: &mut Draft, class: usize, want: u32, reach: Reach) -> u32 {
    let mut left = want;
    for variant in 0..desk.problem.classes[class].variants.len() {
        if left == 0 {
            break;
        }
        left -= place_variant(desk, draft, class, variant, left, reach);
        if reach == Reach::NodesOnly {
            // A wish is given up only when new nodes cannot grant it either, and that is not known here.
            break;
        }
    }
    want - left
}

pub(crate) fn place_variant(
    desk: &mut Desk<'_, '_>,
    draft: &mut Draft,
    class: usize,
    variant: usize,
    want: u32,
    reach: Reach,
) -> u32 {
    let facts = &desk.problem.classes[class].variants[variant];
    if facts.is_wide {
        return place_wide(desk, draft, (class, variant), want, reach);
    }
    let mut left = want;
    for sig in facts.sigs.clone() {
        let mut cursors = Cursors::default();
        left -= flow(desk, draft, (class, variant), sig, left, &mut cursors, reach);
        while left > 0 && reach == Reach::Everywhere {
            // A pod that must sit beside one of its own may fit into the bin that was opened last.
            let Some(n) = open_somewhere(desk, draft, (class, variant), sig, left) else { break };
            left -= n;
            let last = draft.bins.len() - 1;
            while left > 0 {
                let more = draft.add_to_new(desk, last, (class, variant), sig, left);
                if more == 0 {
                    break;
                }
                left -= more;
            }
        }
        if left == 0 {
            break;
        }
    }
    want - left
}

/// Bins before these have no more room for the class.
#[derive(Default, Clone, Copy)]
struct Cursors {
    node: usize,
    bin: usize,
}

/// Fills nodes, then open bins, from the cursors on.
fn flow(
    desk: &mut Desk<'_, '_>,
    draft: &mut Draft,
    who: (usize, usize),
    sig: SigId,
    want: u32,
    cursors: &mut Cursors,
    reach: Reach,
) -> u32 {
    let mut left = want;
    let n_nodes = draft.n_nodes;
    while left > 0 && cursors.node < n_nodes && !draft.is_spent() {
        let n = draft.add_to_node(desk, cursors.node, who, sig, left);
        left -= n;
        if n == 0 {
            cursors.node += 1;
        }
    }
    if reach == Reach::NodesOnly {
        return want - left;
    }
    cursors.bin = cursors.bin.max(n_nodes);
    while left > 0 && cursors.bin < draft.bins.len() && !draft.is_spent() {
        let n = draft.add_to_new(desk, cursors.bin, who, sig, left);
        left -= n;
        if n == 0 {
            cursors.bin += 1;
        }
    }
    want - left
}

/// Opens a bin in the heaviest pool that can; among equals the cheapest, then by name.
pub(crate) fn open_somewhere(
    desk: &mut Desk<'_, '_>,
    draft: &mut Draft,
    who: (usize, usize),
    sig: SigId,
    want: u32,
) -> Option<u32> {
    for base in bases_by_weight_and_price(desk, who, sig) {
        if let Some(n) = draft.open(desk, base, who, sig, want) {
            return Some(n);
        }
    }
    None
}

/// Pools that could take the class, as scopes: heaviest first, then cheapest for one pod, then by name.
pub(crate) fn bases_by_weight_and_price(
    desk: &mut Desk<'_, '_>,
    (class, variant): (usize, usize),
    sig: SigId,
) -> Vec<ScopeId> {
    let problem = desk.problem;
    let facts = &problem.classes[class];
    let tolerated = &problem.tolerances[facts.variants[variant].tolerance as usize].pools;
    let mut found: Vec<(i32, kerf_model::Money, usize, ScopeId)> = Vec::new();
    for pool in (0..problem.market.pools.len()).filter(|pool| tolerated[*pool]) {
        let Some(base) = desk.scopes.base(pool) else { continue };
        let Some(joined) = desk.join(base, sig) else { continue };
        let scope = desk.scopes.get(joined);
        if let Some(choice) = scope.cheapest_holding(&facts.requests, 0) {
            found.push((-problem.market.pools[pool].pool.weight, scope.choices[choice].price, pool, base));
        }
    }
    found.sort();
    found.into_iter().map(|(_, _, _, base)| base).collect()
}

/// One pod at a time, because each changes where the next may go.
fn place_wide(desk: &mut Desk<'_, '_>, draft: &mut Draft, who: (usize, usize), want: u32, reach: Reach) -> u32 {
    let mut cursors: Memo<(SigId, SigId), Cursors> = Memo::default();
    let mut placed = 0;
    while placed < want && !draft.is_spent() {
        let choices = domains::choices(desk, draft, who.0, who.1);
        let sigs = desk.problem.classes[who.0].variants[who.1].sigs.clone();
        let ways: Vec<(SigId, SigId, &Pins)> = choices
            .iter()
            .flat_map(|pins| sigs.iter().map(move |sig| (*sig, pins)))
            .map(|(sig, pins)| (sig, pinned(desk, sig, pins), pins))
            .collect();
        let n = ways
            .iter()
            .find_map(|(plain, sig, pins)| {
                let mut at = cursors.get(&(*plain, *sig)).copied().unwrap_or_default();
                let found = one_into_existing(desk, draft, who, (*plain, *sig), pins, &mut at, reach);
                cursors.insert((*plain, *sig), at);
                found
            })
            .or_else(|| {
                if reach == Reach::NodesOnly {
                    return None;
                }
                ways.iter().find_map(|(_, sig, _)| open_somewhere(desk, draft, who, *sig, 1))
            });
        match n {
            Some(n) => placed += n,
            None => break,
        }
    }
    placed
}

pub(crate) fn pinned(desk: &mut Desk<'_, '_>, sig: SigId, pins: &Pins) -> SigId {
    pins.iter().fold(sig, |sig, pin| desk.scopes.pin(sig, &desk.problem.groups.keys[pin.0], *pin))
}

fn one_into_existing(
    desk: &mut Desk<'_, '_>,
    draft: &mut Draft,
    who: (usize, usize),
    (plain, sig): (SigId, SigId),
    pins: &Pins,
    at: &mut Cursors,
    reach: Reach,
) -> Option<u32> {
    // Following others onto one host can open a place that was closed before: then every bin is asked again.
    let follows =
        desk.problem.classes[who.0].variants[who.1].affinity.iter().any(|term| desk.problem.groups.is_host(term.group));
    if follows {
        *at = Cursors::default();
    }
    let nodes = desk.nodes_with(pins);
    while at.node < nodes.len() {
        let position = nodes[at.node];
        let keys = &desk.problem.groups.keys;
        let is_there = pins.iter().all(|(key, domain)| keys[*key].of_node[position] == Some(*domain as u32));
        if is_there && draft.add_to_node(desk, position, who, plain, 1) == 1 {
            return Some(1);
        }
        at.node += 1;
    }
    if reach == Reach::NodesOnly {
        return None;
    }
    at.bin = at.bin.max(draft.n_nodes);
    while at.bin < draft.bins.len() {
        debug_assert!(matches!(draft.bins[at.bin].home, Home::New { .. }), "new bins stand after the nodes");
        if draft.add_to_new(desk, at.bin, who, sig, 1) == 1 {
            return Some(1);
        }
        at.bin += 1;
    }
    None
}
