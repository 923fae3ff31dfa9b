//! The least that any plan could cost for the same pods: a certificate, not an estimate.
//!
//! Every machine is given resource prices under which it holds at most what it costs. A pod must then cost at least its
//! requests at the lowest prices among the machines it may use; the sum over pods is a lower bound, whatever the search
//! does. Finding good prices is a small linear program. Pods that may use the same machines share a *flavour*, machines
//! that the same flavours may use share prices.

use crate::desk::Desk;
use crate::draft::Draft;
use crate::prices::{self, Machine};
use crate::scope::SigId;
use kerf_model::{Money, Text, TopologyKind};
use microlp::{ComparisonOp, OptimizationDirection, Problem as Lp};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) struct Bound {
    pub(crate) cost: Money,
    /// What the bound does not see.
    pub(crate) ignores: BTreeSet<Text>,
}

/// Beyond so many flavours that share machines, they get common prices: a weaker bound, found at once.
const MAX_FLAVOURS_TOGETHER: usize = 40;

/// Groups whose pods need a host each; the largest few sharpen the bound.
const MAX_SLOT_GROUPS: usize = 2;

struct Flavour {
    /// By pool and type, the lowest price for which pods of this flavour can have it.
    columns: BTreeMap<(usize, u32), Money>,
    /// Classes with how many of their pods need a new node.
    classes: Vec<(u32, u32)>,
    demand: Vec<f64>,
}

/// A lower bound on the cost of new nodes for the pods that the draft puts on new nodes.
pub(crate) fn of(desk: &mut Desk<'_, '_>, draft: &Draft) -> Bound {
    let mut ignores = BTreeSet::new();
    let mut counts: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    let mut reserved: BTreeSet<(u32, u32)> = BTreeSet::new();
    for bin in draft.new_bins() {
        for content in &bin.contents {
            *counts.entry((content.class, content.variant)).or_default() += content.n;
            if !bin.held.is_empty() {
                reserved.insert((content.class, content.variant));
            }
        }
    }
    note_limits(desk, draft, &mut ignores);
    let slots = slot_groups(desk, &counts);
    let n_dims = desk.market().dims.n();
    let mut by_key: BTreeMap<(SigId, u32), Flavour> = BTreeMap::new();
    for ((class, variant), n) in counts {
        let problem = desk.problem;
        let wish = &problem.classes[class as usize].variants[variant as usize];
        note_ignored(desk, class, variant, &mut ignores);
        if wish.sigs.len() != 1 || reserved.contains(&(class, variant)) {
            // Several volume alternatives or a reservation: not counted, which is valid.
            continue;
        }
        let key = (wish.sigs[0], wish.tolerance);
        let flavour = match by_key.entry(key) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let columns = columns(desk, key.0, key.1);
                let demand = vec![0.0; n_dims + slots.len()];
                entry.insert(Flavour { columns, classes: Vec::new(), demand })
            }
        };
        flavour.classes.push((class, n));
        let requests = extended(desk, class, &slots);
        for (sum, amount) in flavour.demand.iter_mut().zip(requests) {
            *sum += amount as f64 * f64::from(n);
        }
    }
    let flavours: Vec<Flavour> = by_key.into_values().collect();
    let mut dollars = 0.0;
    for component in components(&flavours) {
        dollars += bound_of(desk, &component, &slots).max(dearest_alone(desk, &component));
    }
    // A hair below, so that rounding never turns a bound into a lie.
    let micros = (dollars * 1e6 * (1.0 - 1e-9)).floor().max(0.0);
    Bound { cost: Money::from_micros(micros as i64), ignores }
}

/// Hostname anti-affinity among alike pods: each needs a node of its own, which the bound can count like a resource.
fn slot_groups(desk: &Desk<'_, '_>, counts: &BTreeMap<(u32, u32), u32>) -> Vec<u32> {
    let mut sizes: BTreeMap<u32, u32> = BTreeMap::new();
    for ((class, _), n) in counts {
        let facts = &desk.problem.classes[*class as usize];
        for group in
            facts.owns.iter().filter(|group| desk.problem.groups.is_host(**group) && facts.counted.contains(group))
        {
            *sizes.entry(*group).or_default() += n;
        }
    }
    let mut largest: Vec<(u32, u32)> = sizes.into_iter().map(|(group, n)| (n, group)).collect();
    largest.sort_by_key(|(n, group)| (std::cmp::Reverse(*n), *group));
    largest.into_iter().take(MAX_SLOT_GROUPS).map(|(_, group)| group).collect()
}

/// Requests, and one slot for each slot group that the class owns.
fn extended(desk: &Desk<'_, '_>, class: u32, slots: &[u32]) -> Vec<i64> {
    let facts = &desk.problem.classes[class as usize];
    let mut requests = facts.requests.clone();
    requests.extend(slots.iter().map(|group| i64::from(facts.owns.contains(group) && facts.counted.contains(group))));
    requests
}

fn note_ignored(desk: &Desk<'_, '_>, class: u32, variant: u32, ignores: &mut BTreeSet<Text>) {
    let wish = &desk.problem.classes[class as usize].variants[variant as usize];
    for term in wish.spreads.iter().chain(&wish.affinity).chain(&wish.anti_affinity) {
        let group = desk.problem.groups.get(term.group);
        let kind =
            if group.kind == TopologyKind::InverseAntiAffinity { TopologyKind::AntiAffinity } else { group.kind };
        ignores.insert(format!("{kind} on {}", group.key).into());
    }
}

fn columns(desk: &mut Desk<'_, '_>, sig: SigId, tolerance: u32) -> BTreeMap<(usize, u32), Money> {
    let mut columns = BTreeMap::new();
    for pool in 0..desk.market().pools.len() {
        if !desk.problem.tolerances[tolerance as usize].pools[pool] {
            continue;
        }
        let Some(joined) = desk.scopes.base(pool).and_then(|base| desk.join(base, sig)) else { continue };
        for choice in &desk.scopes.get(joined).choices {
            if affords(desk, pool, choice.ty) {
                columns.insert((pool, choice.ty), choice.price);
            }
        }
    }
    columns
}

/// Whether the pool's limits allow even one machine of this type.
fn affords(desk: &Desk<'_, '_>, pool: usize, ty: u32) -> bool {
    let facts = &desk.market().pools[pool];
    facts.takes(ty).iter().zip(&facts.room).all(|(takes, (_, room))| takes <= room)
}

/// Pools whose limits stood in the way of another machine.
fn note_limits(desk: &Desk<'_, '_>, draft: &Draft, ignores: &mut BTreeSet<Text>) {
    for (pool, facts) in desk.market().pools.iter().enumerate() {
        let most = |position: usize| {
            (0..desk.market().types.len() as u32).map(|ty| facts.takes(ty)[position]).max().unwrap_or(0)
        };
        if draft.limits_left(pool).iter().enumerate().any(|(position, left)| *left < most(position)) {
            ignores.insert(format!("limits of nodepool {}", facts.pool.name).into());
        }
    }
}

/// Flavours that share machines, together.
fn components(flavours: &[Flavour]) -> Vec<Vec<&Flavour>> {
    let mut label: Vec<usize> = (0..flavours.len()).collect();
    let mut first_user: BTreeMap<(usize, u32), usize> = BTreeMap::new();
    fn root(label: &mut [usize], mut at: usize) -> usize {
        while label[at] != at {
            label[at] = label[label[at]];
            at = label[at];
        }
        at
    }
    for (index, flavour) in flavours.iter().enumerate() {
        for column in flavour.columns.keys() {
            match first_user.get(column) {
                Some(other) => {
                    let (a, b) = (root(&mut label, index), root(&mut label, *other));
                    label[a.max(b)] = a.min(b);
                }
                None => {
                    first_user.insert(*column, index);
                }
            }
        }
    }
    let mut out: BTreeMap<usize, Vec<&Flavour>> = BTreeMap::new();
    for (index, flavour) in flavours.iter().enumerate() {
        out.entry(root(&mut label, index)).or_default().push(flavour);
    }
    out.into_values().collect()
}

/// What the most demanding pod costs by itself: no machine is bought in fractions, and one of them must hold it.
fn dearest_alone(desk: &Desk<'_, '_>, flavours: &[&Flavour]) -> f64 {
    let cheapest = |flavour: &Flavour, class: u32| {
        let requests = &desk.problem.classes[class as usize].requests;
        let holds = |(pool, ty): &(usize, u32)| {
            let load = desk.market().pools[*pool].daemon_load.get(&(*ty as usize));
            let allocatable = &desk.market().types[*ty as usize].allocatable;
            (0..requests.len()).all(|dim| requests[dim] + load.map_or(0, |load| load[dim]) <= allocatable[dim])
        };
        flavour.columns.iter().filter(|(column, _)| holds(column)).map(|(_, price)| *price).min()
    };
    let all =
        flavours.iter().flat_map(|flavour| flavour.classes.iter().filter_map(|(class, _)| cheapest(flavour, *class)));
    all.max().map_or(0.0, Money::dollars)
}

/// Machines that the same flavours may use, and the prices they share.
struct Cluster {
    users: Vec<usize>,
    machines: Vec<Machine>,
    prices: Vec<f64>,
}

fn bound_of(desk: &Desk<'_, '_>, flavours: &[&Flavour], slots: &[u32]) -> f64 {
    let n_dims = desk.market().dims.n() + slots.len();
    let mut clusters = clusters(desk, flavours, slots.len());
    let total: Vec<f64> = (0..n_dims).map(|dim| flavours.iter().map(|flavour| flavour.demand[dim]).sum()).collect();
    let all: Vec<Machine> = clusters.iter().flat_map(|cluster| efficient(&cluster.machines)).collect();
    let common = prices::of_resources(&total, &all);
    for cluster in &mut clusters {
        cluster.prices.clone_from(&common);
        prices::scale_to_feasible(&mut cluster.prices, &cluster.machines);
    }
    let mut best = worth(desk, flavours, &clusters, slots);
    let is_worth_it = clusters.len() > 1 && flavours.len() <= MAX_FLAVOURS_TOGETHER;
    if let Some(prices) = is_worth_it.then(|| prices_apart(flavours, &clusters, n_dims)).flatten() {
        for (cluster, prices) in clusters.iter_mut().zip(prices) {
            cluster.prices = prices;
            prices::scale_to_feasible(&mut cluster.prices, &cluster.machines);
        }
        best = best.max(worth(desk, flavours, &clusters, slots));
    }
    best
}

fn clusters(desk: &Desk<'_, '_>, flavours: &[&Flavour], n_slots: usize) -> Vec<Cluster> {
    let mut users: BTreeMap<(usize, u32), (Vec<usize>, Money)> = BTreeMap::new();
    for (index, flavour) in flavours.iter().enumerate() {
        for (column, price) in &flavour.columns {
            let entry = users.entry(*column).or_insert_with(|| (Vec::new(), *price));
            entry.0.push(index);
            entry.1 = entry.1.min(*price);
        }
    }
    let mut by_users: BTreeMap<Vec<usize>, Vec<Machine>> = BTreeMap::new();
    for ((pool, ty), (users, price)) in users {
        let facts = &desk.market().types[ty as usize];
        let load = desk.market().pools[pool].daemon_load.get(&(ty as usize));
        let left = |(dim, amount): (usize, &i64)| (amount - load.map_or(0, |load| load[dim])) as f64;
        let mut cap: Vec<f64> = facts.allocatable.iter().enumerate().map(left).collect();
        cap.extend(std::iter::repeat_n(1.0, n_slots));
        by_users.entry(users).or_default().push(Machine { cap, price: price.dollars() });
    }
    by_users.into_iter().map(|(users, machines)| Cluster { users, machines, prices: Vec::new() }).collect()
}

/// Machines that nothing at most as dear exceeds: the others never bind first.
fn efficient(machines: &[Machine]) -> Vec<Machine> {
    let mut sorted: Vec<&Machine> = machines.iter().collect();
    sorted.sort_by(|a, b| a.price.total_cmp(&b.price).then_with(|| prices_desc(&a.cap, &b.cap)));
    let mut kept: Vec<&Machine> = Vec::new();
    for machine in sorted {
        let covered = |other: &&&Machine| other.cap.iter().zip(&machine.cap).all(|(theirs, ours)| theirs >= ours);
        if !kept.iter().any(|other| covered(&other)) {
            kept.push(machine);
        }
    }
    kept.into_iter().cloned().collect()
}

fn prices_desc(a: &[f64], b: &[f64]) -> std::cmp::Ordering {
    let differing = a.iter().zip(b).map(|(a, b)| b.total_cmp(a)).find(|order| order.is_ne());
    differing.unwrap_or(std::cmp::Ordering::Equal)
}

/// What the pods are worth: each at the lowest prices among the machines it may use.
fn worth(desk: &Desk<'_, '_>, flavours: &[&Flavour], clusters: &[Cluster], slots: &[u32]) -> f64 {
    let mut sum = 0.0;
    for (index, flavour) in flavours.iter().enumerate() {
        let usable: Vec<&Cluster> = clusters.iter().filter(|cluster| cluster.users.contains(&index)).collect();
        for (class, n) in &flavour.classes {
            let requests = extended(desk, *class, slots);
            let least =
                usable.iter().map(|cluster| prices::worth(&cluster.prices, &requests)).fold(f64::INFINITY, f64::min);
            if least.is_finite() {
                sum += least * f64::from(*n);
            }
        }
    }
    sum
}

/// Prices of their own for every cluster, by one program over all of them.
fn prices_apart(flavours: &[&Flavour], clusters: &[Cluster], n_dims: usize) -> Option<Vec<Vec<f64>>> {
    let scale: Vec<f64> =
        (0..n_dims).map(|dim| flavours.iter().map(|flavour| flavour.demand[dim]).fold(0.0, f64::max)).collect();
    let mut lp = Lp::new(OptimizationDirection::Maximize);
    let worths: Vec<_> = flavours.iter().map(|_| lp.add_var(1.0, (0.0, f64::INFINITY))).collect();
    let mut vars = Vec::new();
    for cluster in clusters {
        let row: Vec<_> =
            (0..n_dims).map(|dim| (scale[dim] > 0.0).then(|| lp.add_var(0.0, (0.0, f64::INFINITY)))).collect();
        for machine in efficient(&cluster.machines) {
            let terms: Vec<_> = row
                .iter()
                .enumerate()
                .filter_map(|(dim, var)| Some(((*var)?, (machine.cap[dim] / scale[dim]).max(1e-12) * 1e3)))
                .collect();
            lp.add_constraint(terms, ComparisonOp::Le, machine.price * 1e3);
        }
        for user in &cluster.users {
            let mut terms: Vec<_> = row
                .iter()
                .enumerate()
                .filter_map(|(dim, var)| Some(((*var)?, -flavours[*user].demand[dim] / scale[dim])))
                .collect();
            terms.push((worths[*user], 1.0));
            lp.add_constraint(terms, ComparisonOp::Le, 0.0);
        }
        vars.push(row);
    }
    let solution = lp.solve().ok()?.into_solution().ok()?;
    let read = |row: &Vec<Option<microlp::Variable>>| {
        row.iter()
            .enumerate()
            .map(|(dim, var)| var.map_or(0.0, |var| (solution.var_value(var) / scale[dim]).max(0.0)))
            .collect()
    };
    Some(vars.iter().map(read).collect())
}
