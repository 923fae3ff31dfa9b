//! Why a pod stays pending, pool by pool, and the smallest change that would place it.
//!
//! Each pool is asked the same questions in the same order as in the search, for one pod alone. Where a question is
//! answered with no, the answer is lifted and the rest asked again: only what passes then is offered as a remedy.

use crate::desk::Desk;
use crate::domains;
use crate::draft::Draft;
use crate::ease;
use crate::first_fit::Waiting;
use crate::market::{Dim, template};
use crate::problem::Variant;
use crate::scope::{Scope, SigId, Signature};
use crate::typo::likely_meant;
use kerf_model::{
    Mismatch, PodId, Pool, PoolName, Quantity, Readiness, Refusal, Remedy, Requirements, Text, TopologyKind, Verdict,
    Why, taint,
};
use std::sync::Arc;

/// A refusal for every pod that has no place, and for those that could not be considered.
pub(crate) fn all(
    desk: &mut Desk<'_, '_>,
    draft: &Draft,
    waiting: &Waiting,
    max_steps: u64,
) -> Vec<(PodId, Arc<Refusal>)> {
    let snapshot = desk.problem.snapshot;
    let mut refused: Vec<(PodId, Arc<Refusal>)> = snapshot
        .ill
        .iter()
        .map(|(pod, why)| {
            let verdicts = vec![Verdict { pool: None, why: why.clone() }];
            (pod.clone(), Arc::new(Refusal { verdicts, remedy: None }))
        })
        .collect();
    // Trying a remedy out means planning again: large clusters get fewer, never none.
    let size = snapshot.nodes.len() + desk.market().types.len() + 1;
    let mut trials = (400_000 / size).clamp(4, 64);
    for (class, left) in waiting.iter().enumerate().filter(|(_, left)| **left > 0) {
        let refusal = Arc::new(refusal(desk, draft, class, max_steps, &mut trials));
        let pods = &desk.problem.classes[class].pods;
        for index in &pods[pods.len() - *left as usize..] {
            refused.push((snapshot.pods[*index as usize].id.clone(), Arc::clone(&refusal)));
        }
    }
    refused.sort_by(|a, b| a.0.cmp(&b.0));
    refused
}

fn refusal(desk: &mut Desk<'_, '_>, draft: &Draft, class: usize, max_steps: u64, trials: &mut usize) -> Refusal {
    let snapshot = desk.problem.snapshot;
    if draft.is_spent() {
        let verdicts = vec![Verdict { pool: None, why: Why::EffortSpent { max: max_steps } }];
        return Refusal { verdicts, remedy: None };
    }
    let mut pools: Vec<&Pool> = snapshot.pools.iter().filter(|pool| !pool.is_static).collect();
    pools.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| a.name.cmp(&b.name)));
    if pools.is_empty() {
        let verdicts = vec![Verdict { pool: None, why: Why::NoPools }];
        return Refusal { verdicts, remedy: Some(Remedy::AddPool) };
    }
    let variants = &desk.problem.classes[class].variants;
    let last = &variants[variants.len() - 1];
    let n_followed = last.affinity.len();
    let n_terms = n_followed + last.spreads.len() + last.anti_affinity.len();
    if let Some(why) = contradiction(desk, class) {
        return Refusal { verdicts: vec![Verdict { pool: None, why }], remedy: None };
    }
    let mut verdicts = Vec::new();
    let mut remedies = Vec::new();
    for pool in pools {
        let Err(why) = ask(desk, draft, class, pool, &Ease::default()) else { continue };
        if let Some((remedy, ease)) = lift(desk, draft, class, pool, &why) {
            // Whom a pod must follow may move too: then only giving up the company can be promised to help.
            let is_certain = match remedy {
                Remedy::DropTopology { .. } => n_terms == 1,
                _ => n_followed == 0,
            };
            if is_certain && ask(desk, draft, class, pool, &ease).is_ok() {
                remedies.push(remedy);
            }
        }
        verdicts.push(Verdict { pool: Some(pool.name.clone()), why });
    }
    if verdicts.is_empty() {
        // Each pool could take one such pod by itself: what fails is all of them together.
        verdicts.push(Verdict { pool: None, why: crowded(desk, class) });
    }
    remedies.sort_by_key(rank);
    let pods = &desk.problem.classes[class].pods;
    let last = pods[pods.len() - 1] as usize;
    let remedy = remedies.into_iter().find(|remedy| {
        *trials = trials.saturating_sub(1);
        *trials > 0 && ease::helps(snapshot, last, remedy)
    });
    Refusal { verdicts, remedy }
}

/// What the pod says about nodes that no node can satisfy.
fn contradiction(desk: &Desk<'_, '_>, class: usize) -> Option<Why> {
    let facts = &desk.problem.classes[class];
    if facts.variants.iter().any(|variant| !variant.sigs.is_empty()) {
        return None;
    }
    let demand = desk.problem.demand(class);
    let mut said = demand.node_selector.clone();
    for part in demand.required_terms.iter().take(1).chain(&demand.volumes.alternatives) {
        if let Some(key) = said.first_contradiction(part) {
            let (wanted, offered) = (Box::new(part.get(key)?.clone()), Box::new(said.get(key)?.clone()));
            return Some(Why::RequirementsClash { key: key.clone(), wanted, offered });
        }
        said.add_all(part);
    }
    Some(Why::NoTypeMatches { key: None })
}

/// Smaller changes first: what an operator can grant before what a developer must rewrite.
fn rank(remedy: &Remedy) -> u8 {
    match remedy {
        Remedy::RaiseLimit { .. } => 0,
        Remedy::MakeReady { .. } => 1,
        Remedy::LowerMinValues { .. } => 2,
        Remedy::ReduceRequest { .. } => 3,
        Remedy::Tolerate { .. } => 4,
        Remedy::DropRequirement { .. } => 5,
        Remedy::DeclareLabel { .. } => 6,
        Remedy::DropTopology { .. } => 7,
        Remedy::FreeHostPort { .. } => 8,
        Remedy::AddPool => 9,
    }
}

/// Answers that are lifted, to see whether the rest would pass.
#[derive(Default, Clone)]
struct Ease {
    taint: bool,
    key: Option<Text>,
    requests: Option<Vec<i64>>,
    limits: bool,
    readiness: bool,
    min_values: bool,
    ports: bool,
    topology: Option<(TopologyKind, Text)>,
}

/// The class with as few wishes as it can have, among the variants that do not contradict themselves.
fn last_possible<'p>(desk: &Desk<'p, '_>, class: usize) -> &'p Variant {
    let variants = &desk.problem.classes[class].variants;
    variants.iter().rfind(|variant| !variant.sigs.is_empty()).unwrap_or(&variants[variants.len() - 1])
}

/// Whether a pool could take one pod of the class, wishes aside.
fn ask(desk: &mut Desk<'_, '_>, draft: &Draft, class: usize, pool: &Pool, ease: &Ease) -> Result<(), Why> {
    let problem = desk.problem;
    if let Readiness::NotReady(reason) = &pool.readiness {
        return if ease.readiness && would_suit(desk, class, pool) {
            Ok(())
        } else {
            Err(Why::PoolNotReady { reason: reason.clone() })
        };
    }
    let wish = last_possible(desk, class).clone();
    let tolerations = &problem.tolerances[wish.tolerance as usize].tolerations;
    if let Some(taint) = taint::first_untolerated(&pool.taints, tolerations).filter(|_| !ease.taint) {
        return Err(Why::TaintNotTolerated { taint: taint.clone() });
    }
    let Some(index) = problem.market.pools.iter().position(|known| known.pool.name == pool.name) else {
        return Err(Why::PoolMatchesNoType { key: None });
    };
    let Some(base) = desk.scopes.base(index).or_else(|| desk.scopes.reserved_base(index)) else {
        return Err(Why::PoolMatchesNoType { key: blocking_key(desk, index, &template(pool)) });
    };
    let mut last = None;
    for sig in wish.sigs.clone() {
        match ask_scope(desk, draft, class, index, base, sig, &wish, ease) {
            Ok(()) => return Ok(()),
            Err(why) => last = last.or(Some(why)),
        }
    }
    Err(last.unwrap_or(Why::NoTypeMatches { key: None }))
}

#[expect(
    clippy::too_many_arguments,
    reason = "one question of `ask`, cut out because it is asked per volume alternative"
)]
fn ask_scope(
    desk: &mut Desk<'_, '_>,
    draft: &Draft,
    class: usize,
    pool: usize,
    base: crate::scope::ScopeId,
    sig: SigId,
    wish: &Variant,
    ease: &Ease,
) -> Result<(), Why> {
    let problem = desk.problem;
    let facts = &problem.classes[class];
    let sig = without_key(desk, sig, ease.key.as_ref());
    let sig = if ease.ports { without_ports(desk, sig) } else { sig };
    let asked = desk.scopes.sig(sig).requirements.clone();
    let offered = desk.scopes.get(base).requirements.clone();
    let is_well_known = |key: &str| problem.market.is_well_known(key);
    if let Err(mismatch) = offered.compatible(&asked, is_well_known) {
        return Err(explain_mismatch(desk, wish, mismatch, &asked, &offered));
    }
    let Some(joined) = desk.join(base, sig) else {
        let port = desk.scopes.sig(sig).ports.first().map(|port| port.port);
        let portless = without_ports(desk, sig);
        if let Some(port) = port.filter(|_| desk.join(base, portless).is_some()) {
            return Err(Why::HostPortTaken { port });
        }
        return Err(no_type(desk, pool, &offered, &asked, ease));
    };
    let scope = desk.scopes.shared(joined);
    let requests = ease.requests.as_ref().unwrap_or(&facts.requests);
    if !scope.holds_somewhere(requests) {
        return Err(too_large(desk, &scope, requests));
    }
    if !ease.min_values && !scope.keeps_min_values(&problem.market, requests) {
        let missing = scope.missing_min_values(&problem.market, |scope, choice| scope.holds(choice, requests));
        if let Some((key, needs, has)) = missing {
            return Err(Why::MinValues { key, needs, has });
        }
    }
    if !ease.limits {
        limits(desk, draft, &scope, requests)?;
        let affordable = |scope: &Scope, choice: usize| {
            scope.holds(choice, requests) && draft.affords(problem, scope.pool, None, scope.choices[choice].ty)
        };
        let is_strict = problem.snapshot.settings.min_values == kerf_model::MinValuesPolicy::Strict;
        if let Some((key, needs, has)) =
            scope.missing_min_values(&problem.market, affordable).filter(|_| is_strict && !ease.min_values)
        {
            return Err(Why::MinValues { key, needs, has });
        }
    }
    topology(desk, draft, class, wish, ease)?;
    if wish.is_wide && ease.topology.is_none() {
        reachable(desk, draft, class, base, sig, requests, wish)?;
    }
    Ok(())
}

/// Whether the pool has a machine in one of the domains that are still open.
fn reachable(
    desk: &mut Desk<'_, '_>,
    draft: &Draft,
    class: usize,
    base: crate::scope::ScopeId,
    sig: SigId,
    requests: &[i64],
    wish: &Variant,
) -> Result<(), Why> {
    let problem = desk.problem;
    let variant = problem.classes[class].variants.len() - 1;
    for pins in domains::choices(desk, draft, class, variant) {
        let sig = crate::first_fit::pinned(desk, sig, &pins);
        if desk.join(base, sig).is_some_and(|scope| desk.scopes.get(scope).holds_somewhere(requests)) {
            return Ok(());
        }
    }
    let groups = &problem.groups;
    let own = wish.spreads.iter().chain(&wish.affinity).chain(&wish.anti_affinity);
    let own = own.map(|term| (groups.get(term.group).kind, term.group));
    let barring = problem.classes[class].counted.iter().map(|group| (TopologyKind::InverseAntiAffinity, *group));
    let Some((kind, group)) = own.chain(barring).find(|(_, group)| !groups.is_host(*group)) else { return Ok(()) };
    let detail = "the pool has nothing in the domains that are left".into();
    Err(Why::Topology { kind, key: groups.get(group).key.clone(), detail })
}

fn limits(desk: &Desk<'_, '_>, draft: &Draft, scope: &Scope, requests: &[i64]) -> Result<(), Why> {
    let problem = desk.problem;
    let holding = || (0..scope.choices.len()).filter(|choice| scope.holds(*choice, requests));
    if holding().any(|choice| draft.affords(problem, scope.pool, None, scope.choices[choice].ty)) {
        return Ok(());
    }
    let facts = &problem.market.pools[scope.pool];
    for ((name, _), left) in facts.room.iter().zip(draft.limits_left(scope.pool)) {
        let capacity = |choice: usize| {
            if &**name == kerf_model::resources::NODES {
                return 1000;
            }
            problem.market.types[scope.choices[choice].ty as usize].ty.capacity.get(name).milli
        };
        let least = holding().map(capacity).min().unwrap_or(0);
        if least > *left {
            let limit = facts.pool.limits.get(name);
            return Err(Why::LimitReached {
                resource: name.clone(),
                limit,
                in_use: Quantity::from_milli(limit.milli.saturating_sub(*left)),
                needs: Quantity::from_milli(least),
            });
        }
    }
    let (name, _) = &facts.room[0];
    let limit = facts.pool.limits.get(name);
    let left = draft.limits_left(scope.pool)[0];
    Err(Why::LimitReached {
        resource: name.clone(),
        limit,
        in_use: Quantity::from_milli(limit.milli.saturating_sub(left)),
        needs: Quantity::from_milli(left.saturating_add(1000)),
    })
}

/// Which wide constraint leaves no domain; a constraint on one host never bars a new node.
fn topology(desk: &mut Desk<'_, '_>, draft: &Draft, class: usize, wish: &Variant, ease: &Ease) -> Result<(), Why> {
    let problem = desk.problem;
    let facts = &problem.classes[class];
    let groups = &problem.groups;
    let last = facts.variants.len() - 1;
    let terms = (wish.spreads.iter().map(|term| (TopologyKind::Spread, term.group)))
        .chain(wish.affinity.iter().map(|term| (TopologyKind::Affinity, term.group)))
        .chain(wish.anti_affinity.iter().map(|term| (TopologyKind::AntiAffinity, term.group)));
    let lifted =
        |kind: TopologyKind, key: &Text| ease.topology.as_ref().is_some_and(|(eased, of)| *eased == kind && of == key);
    for term in wish.affinity.iter().filter(|term| groups.is_host(term.group)) {
        let total = draft.total[term.group as usize];
        let key = &groups.get(term.group).key;
        if (total > 0 || !term.is_self) && !lifted(TopologyKind::Affinity, key) {
            let detail = if total > 0 {
                format!("{total} matching pods, none on a node with room").into()
            } else {
                "no matching pod, and the pod does not match itself".into()
            };
            return Err(Why::Topology { kind: TopologyKind::Affinity, key: key.clone(), detail });
        }
    }
    if !wish.is_wide || !domains::choices(desk, draft, class, last).is_empty() {
        return Ok(());
    }
    let wide: Vec<(TopologyKind, u32)> = terms.filter(|(_, group)| !groups.is_host(*group)).collect();
    let barring = facts.counted.iter().map(|group| (TopologyKind::InverseAntiAffinity, *group)).filter(|(_, group)| {
        let facts = groups.get(*group);
        !facts.is_host
            && facts.kind == TopologyKind::AntiAffinity
            && draft.owners[*group as usize].iter().any(|n| *n > 0)
    });
    let wide: Vec<_> = wide.into_iter().chain(barring).collect();
    if let Some((kind, group)) = wide.iter().find(|(kind, group)| !lifted(*kind, &groups.get(*group).key)) {
        let group_facts = groups.get(*group);
        let counts: Vec<String> = group_facts
            .domains
            .iter()
            .zip(&draft.matched[*group as usize])
            .map(|(domain, count)| format!("{domain}:{count}"))
            .collect();
        let detail = format!("counts = {}", counts.join(" ")).into();
        // With one constraint lifted the others may still bar it; only a lone one can be promised to help.
        return Err(Why::Topology { kind: *kind, key: group_facts.key.clone(), detail });
    }
    Ok(())
}

/// Whether a pool that is not ready would take the pod if it were. It is not in the market, so that this is asked of
/// its types one by one, and not at all where limits or neighbours matter.
fn would_suit(desk: &Desk<'_, '_>, class: usize, pool: &Pool) -> bool {
    let problem = desk.problem;
    let facts = &problem.classes[class];
    let wish = last_possible(desk, class);
    let tolerations = &problem.tolerances[wish.tolerance as usize].tolerations;
    let asked = &desk.scopes.sig(wish.sigs[0]).requirements;
    let mut together = template(pool);
    if wish.is_wide
        || !wish.affinity.is_empty()
        || !pool.limits.is_empty()
        || taint::first_untolerated(&pool.taints, tolerations).is_some()
        || together.compatible(asked, |key| problem.market.is_well_known(key)).is_err()
    {
        return false;
    }
    together.add_all(asked);
    if together.iter().any(|(_, requirement)| requirement.min_values.is_some()) {
        return false;
    }
    let daemons: Vec<i64> = problem
        .snapshot
        .daemons
        .iter()
        .map(|daemon| problem.market.dims.requests(&daemon.demand))
        .fold(vec![0; problem.market.dims.n()], |sum, load| {
            sum.iter().zip(load).map(|(sum, load)| sum + load).collect()
        });
    pool.types.iter().any(|ty| {
        let limit = |driver: &Text| ty.attach_limits.get(driver).map_or(i64::MAX / 4, |limit| i64::from(*limit));
        let allocatable = ty.allocatable();
        let holds = problem
            .market
            .dims
            .vector(&allocatable, limit)
            .iter()
            .zip(&facts.requests)
            .zip(&daemons)
            .all(|((cap, request), daemons)| request + daemons <= *cap);
        let is_offered = |offering: &kerf_model::Offering| {
            offering.launchable()
                && offering.capacity_type() != Some(kerf_model::CapacityType::Reserved)
                && offering.overrides.is_none()
                && offering.requirements.intersects(&together)
        };
        holds
            && allocatable.iter().all(|(_, amount)| amount.milli >= 0)
            && ty.requirements.intersects(&together)
            && ty.offerings.iter().any(is_offered)
    })
}

/// What would have to change, and how to ask again with it changed.
fn lift(desk: &mut Desk<'_, '_>, draft: &Draft, class: usize, pool: &Pool, why: &Why) -> Option<(Remedy, Ease)> {
    let name: PoolName = pool.name.clone();
    let ease = Ease::default();
    Some(match why {
        Why::PoolNotReady { .. } => (Remedy::MakeReady { pool: name }, Ease { readiness: true, ..ease }),
        Why::TaintNotTolerated { taint } => (
            Remedy::Tolerate { pool: name, taint: taint.clone() },
            Ease { taint: lone_taint(desk, class, pool), ..ease },
        ),
        // A misspelt label should be mended, not declared.
        Why::LabelUnknown { typo_of: Some(_), .. } => return None,
        Why::LabelUnknown { key, .. } => {
            (Remedy::DeclareLabel { pool: name, key: key.clone() }, Ease { key: Some(key.clone()), ..ease })
        }
        Why::RequirementsClash { key, .. } | Why::NoTypeMatches { key: Some(key) } => {
            (Remedy::DropRequirement { key: key.clone() }, Ease { key: Some(key.clone()), ..ease })
        }
        Why::TooLarge { resource, largest, .. } if largest.milli > 0 => {
            let requests = reduced(desk, class, pool, resource)?;
            let dim = desk.problem.market.dims.0.iter().position(|dim| *dim == Dim::Resource(resource.clone()))?;
            let to = Quantity::from_milli(requests[dim]);
            (Remedy::ReduceRequest { resource: resource.clone(), to }, Ease { requests: Some(requests), ..ease })
        }
        Why::LimitReached { resource, needs, in_use, .. } => {
            let lone = lone_limit(desk, draft, pool, resource);
            let to = *in_use + *needs;
            (Remedy::RaiseLimit { pool: name, resource: resource.clone(), to }, Ease { limits: lone, ..ease })
        }
        Why::MinValues { key, has, .. } => {
            let is_lone =
                pool.requirements.iter().filter(|(_, requirement)| requirement.min_values.is_some()).count() == 1;
            (
                Remedy::LowerMinValues { pool: name, key: key.clone(), to: *has },
                Ease { min_values: *has > 0 && is_lone, ..ease },
            )
        }
        Why::HostPortTaken { port } => (Remedy::FreeHostPort { port: *port }, Ease { ports: true, ..ease }),
        Why::Topology { kind: TopologyKind::InverseAntiAffinity, .. } => return None,
        Why::Topology { kind, key, .. } => (
            Remedy::DropTopology { kind: *kind, key: key.clone() },
            Ease { topology: Some((*kind, key.clone())), ..ease },
        ),
        _ => return None,
    })
}

/// Whether the pool has only one taint that the pod does not tolerate.
fn lone_taint(desk: &Desk<'_, '_>, class: usize, pool: &Pool) -> bool {
    let variants = &desk.problem.classes[class].variants;
    let tolerations = &desk.problem.tolerances[variants[variants.len() - 1].tolerance as usize].tolerations;
    let untolerated = |taint: &&kerf_model::Taint| !tolerations.iter().any(|toleration| toleration.tolerates(taint));
    pool.taints.iter().filter(untolerated).count() == 1
}

/// Whether no other limit of the pool is so low that it could stand in the way.
fn lone_limit(desk: &Desk<'_, '_>, draft: &Draft, pool: &Pool, resource: &Text) -> bool {
    let Some(index) = desk.problem.market.pools.iter().position(|known| known.pool.name == pool.name) else {
        return false;
    };
    let room = &desk.problem.market.pools[index].room;
    room.len() == 1
        || room
            .iter()
            .zip(draft.limits_left(index))
            .all(|((name, _), left)| name == resource || *left > i64::MAX / 1_000_000)
}

/// The class's requests with one of them cut down to what some machine has, the others unchanged.
fn reduced(desk: &mut Desk<'_, '_>, class: usize, pool: &Pool, resource: &Text) -> Option<Vec<i64>> {
    let problem = desk.problem;
    let dim = problem.market.dims.0.iter().position(|dim| *dim == Dim::Resource(resource.clone()))?;
    let index = problem.market.pools.iter().position(|known| known.pool.name == pool.name)?;
    let base = desk.scopes.base(index)?;
    let sig = last_possible(desk, class).sigs[0];
    let joined = desk.join(base, sig)?;
    let scope = desk.scopes.get(joined);
    let mut requests = problem.classes[class].requests.clone();
    requests[dim] = 0;
    let most = (0..scope.choices.len())
        .filter(|choice| scope.holds(*choice, &requests))
        .map(|choice| scope.cap(choice)[dim])
        .max()?;
    requests[dim] = most;
    (most > 0).then_some(requests)
}

fn without_ports(desk: &mut Desk<'_, '_>, sig: SigId) -> SigId {
    let signature = Signature { ports: Default::default(), ..desk.scopes.sig(sig).clone() };
    desk.scopes.sig_id(signature)
}

fn without_key(desk: &mut Desk<'_, '_>, sig: SigId, key: Option<&Text>) -> SigId {
    let Some(key) = key else { return sig };
    let mut signature: Signature = desk.scopes.sig(sig).clone();
    signature.requirements.0.remove(key);
    desk.scopes.sig_id(signature)
}

fn explain_mismatch(
    desk: &Desk<'_, '_>,
    wish: &Variant,
    mismatch: Mismatch,
    asked: &Requirements,
    offered: &Requirements,
) -> Why {
    match mismatch {
        Mismatch::Undefined { key } => {
            let wanted = asked.get(&key).cloned().unwrap_or_else(kerf_model::Requirement::exists);
            let well_known = desk.problem.snapshot.settings.well_known.iter();
            let typo_of = likely_meant(&key, well_known.chain(offered.0.keys()));
            Why::LabelUnknown { key, wanted, typo_of }
        }
        Mismatch::Disjoint { key, wanted, offered } => {
            let by_volume = desk.scopes.sig(wish.strict).requirements.get(&key).is_none();
            if by_volume {
                Why::VolumeElsewhere { key, wanted: *wanted }
            } else {
                Why::RequirementsClash { key, wanted, offered }
            }
        }
    }
}

/// Why nothing can be bought although no label clashes with the pool's: types, offers or minValues.
fn no_type(desk: &mut Desk<'_, '_>, pool: usize, offered: &Requirements, asked: &Requirements, ease: &Ease) -> Why {
    let mut together = offered.clone();
    together.add_all(asked);
    let market = &desk.problem.market;
    let mut relaxed = together.clone();
    for requirement in relaxed.0.values_mut() {
        requirement.min_values = None;
    }
    if !ease.min_values {
        let base = desk.scopes.base(pool);
        let plain = base.and_then(|_| {
            let sig = desk.scopes.sig_id(Signature { requirements: asked.clone(), ..Signature::default() });
            desk.scopes.join_without_min_values(market, pool, &relaxed, sig)
        });
        if let Some(scope) = plain {
            let needs = together.iter().find_map(|(key, requirement)| {
                let needs = requirement.min_values?;
                let has = scope.values_of(market, key);
                (has < needs).then(|| (key.clone(), needs, has))
            });
            if let Some((key, needs, has)) = needs {
                return Why::MinValues { key, needs, has };
            }
        }
    }
    let passes = |ty: &kerf_model::InstanceType| ty.requirements.intersects(&relaxed);
    let own = |ty: &&crate::market::TypeFacts<'_>| ty.offers.clone().any(|offer| market.pools[pool].offers.has(offer));
    let n_types = market.types.iter().filter(own).filter(|facts| passes(facts.ty)).count();
    if n_types > 0 {
        return Why::NoOffering { n_types };
    }
    Why::NoTypeMatches { key: blocking_key(desk, pool, &relaxed).filter(|key| asked.get(key).is_some()) }
}

/// The one requirement without which some type of the pool would match.
fn blocking_key(desk: &Desk<'_, '_>, pool: usize, requirements: &Requirements) -> Option<Text> {
    let market = &desk.problem.market;
    let types: Vec<_> = market.pools[pool].pool.types.iter().collect();
    requirements
        .0
        .keys()
        .find(|key| {
            let mut without = requirements.clone();
            without.0.remove(*key);
            types.iter().any(|ty| ty.requirements.intersects(&without))
        })
        .cloned()
}

fn too_large(desk: &Desk<'_, '_>, scope: &Scope, requests: &[i64]) -> Why {
    let market = &desk.problem.market;
    for (dim, needs) in requests.iter().enumerate() {
        let largest =
            (0..scope.choices.len()).max_by_key(|choice| (scope.cap(*choice)[dim], std::cmp::Reverse(*choice)));
        let Some(largest) = largest else { continue };
        let most = scope.cap(largest)[dim];
        if *needs <= most {
            continue;
        }
        return match &market.dims.0[dim] {
            Dim::Resource(name) => Why::TooLarge {
                resource: name.clone(),
                needs: Quantity::from_milli(*needs),
                largest: Quantity::from_milli(most),
                on: (most > 0).then(|| market.types[scope.choices[largest].ty as usize].ty.name.clone()),
                n_types: scope.choices.len(),
            },
            Dim::Attachments(driver) => {
                Why::VolumeLimit { driver: driver.clone(), needs: *needs as u32, limit: most.max(0) as u32 }
            }
        };
    }
    Why::NoTypeHasAll { n_types: scope.choices.len() }
}

/// Pods that each could be placed alone but not all together: reservations are the only such thing.
fn crowded(desk: &Desk<'_, '_>, class: usize) -> Why {
    let reservations = &desk.problem.market.reservations;
    match reservations.first() {
        Some(reservation) => Why::ReservationAwaited { reservation: reservation.id.clone() },
        None => {
            let groups = &desk.problem.groups;
            let wish = &desk.problem.classes[class].variants[desk.problem.classes[class].variants.len() - 1];
            let term = wish.affinity.iter().chain(&wish.spreads).chain(&wish.anti_affinity).next();
            match term {
                Some(term) => Why::Topology {
                    kind: groups.get(term.group).kind,
                    key: groups.get(term.group).key.clone(),
                    detail: "what it has to sit beside, or apart from, leaves no room".into(),
                },
                None => Why::NoOffering { n_types: 0 },
            }
        }
    }
}
