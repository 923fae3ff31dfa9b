//! Which zones, racks or other wide domains a pod may go to next, best first.

use crate::desk::Desk;
use crate::draft::Draft;
use crate::problem::Variant;
use crate::topology::{Group, OwnTerm};
use kerf_model::TopologyKind;
use std::sync::Arc;

/// Keys pinned to domains, both by index: one way to satisfy all wide constraints of a pod at once.
pub(crate) type Pins = Vec<(usize, usize)>;

/// More combinations than any real pod has; beyond them the pod is placed among the first ones only.
const MAX_COMBINATIONS: usize = 64;

/// Ways to satisfy the wide constraints of a class now, best first. Empty: there is none.
pub(crate) fn choices(desk: &mut Desk<'_, '_>, draft: &Draft, class: usize, variant: usize) -> Vec<Pins> {
    let problem = desk.problem;
    let facts = &problem.classes[class];
    let wish = &facts.variants[variant];
    let groups = &problem.groups;
    let own = wish.spreads.iter().chain(&wish.affinity).chain(&wish.anti_affinity).map(|term| term.group);
    let mut keys: Vec<usize> = own
        .chain(facts.counted.iter().copied())
        .map(|group| groups.get(group))
        .filter(|group| !group.is_host)
        .map(|group| group.key_idx)
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let mut combinations: Vec<Pins> = vec![Vec::new()];
    for key in keys {
        let allowed = desk.domains_of_sig(wish.strict, key);
        // A node that another of the pod's terms allows counts for the spread, too.
        let counting = match &facts.strict_terms[..] {
            [_] => Arc::clone(&allowed),
            terms => {
                let mut all: Vec<usize> =
                    terms.iter().flat_map(|sig| desk.domains_of_sig(*sig, key).to_vec()).collect();
                all.sort_unstable();
                all.dedup();
                all.into()
            }
        };
        let Some((domains, is_optional)) = domains(desk, draft, (class, variant), key, (&allowed, &counting)) else {
            continue;
        };
        let options = domains.into_iter().map(Some).chain(is_optional.then_some(None));
        let options: Vec<Option<usize>> = options.collect();
        combinations = combinations
            .into_iter()
            .flat_map(|pins| {
                options.iter().map(move |domain| {
                    let mut pins = pins.clone();
                    pins.extend(domain.map(|domain| (key, domain)));
                    pins
                })
            })
            .take(MAX_COMBINATIONS)
            .collect();
    }
    combinations
}

/// Allowed domains of one key, best first, and whether it may stay open after all. None when it need not be pinned.
fn domains(
    desk: &Desk<'_, '_>,
    draft: &Draft,
    (class, variant): (usize, usize),
    key: usize,
    (allowed, counting): (&Arc<[usize]>, &Arc<[usize]>),
) -> Option<(Vec<usize>, bool)> {
    let problem = desk.problem;
    let facts = &problem.classes[class];
    let wish = &facts.variants[variant];
    let of_key = |term: &&OwnTerm| !problem.groups.is_host(term.group) && problem.groups.get(term.group).key_idx == key;
    let mut must_pin = false;
    let mut left: Vec<usize> = allowed.to_vec();
    for term in wish.spreads.iter().filter(of_key) {
        must_pin = true;
        keep_even(desk, draft, wish, term, counting, &mut left);
    }
    for term in wish.affinity.iter().filter(of_key) {
        must_pin = true;
        keep_near(desk, draft, term, allowed, &mut left);
    }
    for term in wish.anti_affinity.iter().filter(of_key) {
        must_pin = true;
        let (group, counts) = (problem.groups.get(term.group), &draft.matched[term.group as usize]);
        left.retain(|domain| group.known[*domain] && counts[*domain] == 0);
    }
    let mut attracts = false;
    for id in &facts.counted {
        let group = problem.groups.get(*id);
        if group.is_host || group.key_idx != key {
            continue;
        }
        if group.kind == TopologyKind::AntiAffinity {
            let owners = &draft.owners[*id as usize];
            must_pin |= owners.iter().any(|owners| *owners > 0);
            left.retain(|domain| owners[*domain] == 0);
        } else if group.attracts {
            attracts = true;
        }
    }
    if !must_pin && !attracts {
        return None;
    }
    let rank = |domain: &usize| {
        let spread: u32 =
            wish.spreads.iter().filter(of_key).map(|term| draft.matched[term.group as usize][*domain]).sum();
        let is_peopled = attracts
            && facts.counted.iter().any(|id| {
                let group = problem.groups.get(*id);
                !group.is_host && group.key_idx == key && group.attracts && draft.matched[*id as usize][*domain] > 0
            });
        (spread, !is_peopled, *domain)
    };
    left.sort_by_cached_key(rank);
    // Others follow it more easily when its domain is known, but nobody has to follow.
    Some((left, !must_pin))
}

/// Keeps the domains that a spread allows.
fn keep_even(
    desk: &Desk<'_, '_>,
    draft: &Draft,
    wish: &Variant,
    term: &OwnTerm,
    allowed: &[usize],
    left: &mut Vec<usize>,
) {
    let group = desk.problem.groups.get(term.group);
    let counts = &draft.matched[term.group as usize];
    let counts_here = |domain: usize| group.known[domain] && is_reachable(desk, wish, group, domain);
    let eligible = allowed.iter().copied().filter(|domain| counts_here(*domain));
    let (mut n_eligible, mut lowest) = (0, u32::MAX);
    for domain in eligible {
        n_eligible += 1;
        lowest = lowest.min(counts[domain]);
    }
    if term.min_domains.is_some_and(|wanted| n_eligible < wanted) {
        lowest = 0;
    }
    let more = u32::from(term.is_self);
    left.retain(|domain| counts_here(*domain) && counts[*domain] + more <= lowest.saturating_add(term.max_skew));
}

/// Under the Honor policy for taints, only domains that the pod could enter count.
fn is_reachable(desk: &Desk<'_, '_>, wish: &Variant, group: &Group, domain: usize) -> bool {
    if !group.honors_taints() || group.on_nodes[domain] {
        return true;
    }
    let tolerated = &desk.problem.tolerances[wish.tolerance as usize].pools_at_all;
    group.in_pools[domain].iter().zip(tolerated).any(|(provides, tolerated)| *provides && *tolerated)
}

/// Keeps the domains where a pod of the group is. Where there is none in the whole cluster and the pod is one itself, it
/// may be the first anywhere: kube-scheduler asks the same, and would leave it pending otherwise.
fn keep_near(desk: &Desk<'_, '_>, draft: &Draft, term: &OwnTerm, allowed: &[usize], left: &mut Vec<usize>) {
    let counts = &draft.matched[term.group as usize];
    let known = &desk.problem.groups.get(term.group).known;
    if allowed.iter().any(|domain| counts[*domain] > 0) {
        left.retain(|domain| counts[*domain] > 0);
    } else if term.is_self && draft.total[term.group as usize] == 0 {
        left.retain(|domain| known[*domain]);
    } else {
        left.clear();
    }
}
