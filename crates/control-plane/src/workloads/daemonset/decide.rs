//! Which daemons to start and stop: a function of what runs where.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSetSpec;

use super::super::facts::PodFacts;
use super::super::revisions::REVISION_HASH;
use super::super::share::scaled;
use super::place::Fit;

pub(crate) const POD_TEMPLATE_GENERATION: &str = "pod-template-generation";

/// Pods started or stopped in one go. The rest follows when these are seen.
const BURST_MAX: usize = 250;

#[derive(Debug)]
pub(crate) struct Picture {
    pub(crate) nodes: Vec<NodeView>,
    pub(crate) limits: Limits,
    /// Of the present template.
    pub(crate) hash: String,
    pub(crate) generation: Option<String>,
    pub(crate) min_ready_seconds: i32,
    pub(crate) now: Timestamp,
}

#[derive(Debug)]
pub(crate) struct NodeView {
    pub(crate) name: String,
    pub(crate) fit: Fit,
    /// Bound ones first, then the oldest.
    pub(crate) pods: Vec<Arc<PodFacts>>,
    /// Pods may name a node that is gone, or that never came.
    pub(crate) exists: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limits {
    OnDelete,
    Rolling { surge: usize, unavailable: usize },
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Start(String),
    Stop(Arc<PodFacts>),
    /// Removes one that ended, so that another can be started.
    Clear {
        pod: Arc<PodFacts>,
        node: String,
    },
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) desired: i32,
    pub(crate) current: i32,
    pub(crate) misscheduled: i32,
    pub(crate) ready: i32,
    pub(crate) available: i32,
    pub(crate) updated: i32,
}

impl Limits {
    pub(crate) fn of(spec: &DaemonSetSpec, n_desired: usize) -> Self {
        let strategy = spec.update_strategy.clone().unwrap_or_default();
        if strategy.type_.as_deref() == Some("OnDelete") {
            return Self::OnDelete;
        }
        let rolling = strategy.rolling_update.unwrap_or_default();
        let total = i32::try_from(n_desired).unwrap_or(i32::MAX);
        let of = |value: Option<&_>| {
            value.and_then(|value| scaled(value, total, true)).and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
        };
        let (surge, unavailable) = (of(rolling.max_surge.as_ref()), of(rolling.max_unavailable.as_ref()));
        // Both nothing would mean that nothing ever moves.
        Self::Rolling { surge, unavailable: if surge == 0 && unavailable == 0 { 1 } else { unavailable } }
    }

    fn surges(self) -> bool {
        matches!(self, Self::Rolling { surge, .. } if surge > 0)
    }
}

impl Picture {
    fn is_updated(&self, pod: &PodFacts) -> bool {
        let label = |name: &str| pod.labels.get(name).map(String::as_str);
        label(REVISION_HASH) == Some(&self.hash)
            || (self.generation.is_some() && label(POD_TEMPLATE_GENERATION) == self.generation.as_deref())
    }

    fn is_available(&self, pod: &PodFacts) -> bool {
        pod.is_available(self.min_ready_seconds, self.now)
    }
}

/// One daemon on each node that should have one, and none where there should be none.
pub(crate) fn manage(picture: &Picture) -> Vec<Step> {
    let mut starts = Vec::new();
    let mut stops = Vec::new();
    for node in &picture.nodes {
        if !node.exists {
            // Nobody will ever bind these, and nobody else deletes them.
            stops.extend(node.pods.iter().filter(|pod| pod.node().is_empty() && pod.deleted.is_none()).map(stop));
        } else if node.fit.may_start && node.pods.is_empty() {
            starts.push(Step::Start(node.name.clone()));
        } else if node.fit.may_stay {
            manage_node(picture, node, &mut starts, &mut stops);
        } else {
            stops.extend(node.pods.iter().filter(|pod| pod.deleted.is_none()).map(stop));
        }
    }
    starts.truncate(BURST_MAX);
    stops.truncate(BURST_MAX);
    starts.append(&mut stops);
    starts
}

fn stop(pod: &Arc<PodFacts>) -> Step {
    Step::Stop(Arc::clone(pod))
}

fn manage_node(picture: &Picture, node: &NodeView, starts: &mut Vec<Step>, stops: &mut Vec<Step>) {
    let present: Vec<_> = node.pods.iter().filter(|pod| pod.deleted.is_none()).collect();
    let (ended, running): (Vec<_>, Vec<_>) = present.into_iter().partition(|pod| pod.is_finished());
    stops.extend(ended.into_iter().map(|pod| Step::Clear { pod: Arc::clone(pod), node: node.name.clone() }));
    if !picture.limits.surges() {
        stops.extend(running.into_iter().skip(1).map(stop));
        return;
    }
    if running.is_empty() {
        // Those that are on their way out do not stand in the way of their successor.
        if node.fit.may_start {
            starts.push(Step::Start(node.name.clone()));
        }
        return;
    }
    let (new, old): (Vec<_>, Vec<_>) = running.into_iter().partition(|pod| picture.is_updated(pod));
    stops
        .extend(new.iter().chain(&old).filter(|pod| !is_first(pod, &new) && !is_first(pod, &old)).map(|pod| stop(pod)));
    if let (Some(new), Some(old)) = (new.first(), old.first())
        && (!old.is_ready() || picture.is_available(new))
    {
        stops.push(stop(old));
    }
}

fn is_first(pod: &Arc<PodFacts>, pods: &[&Arc<PodFacts>]) -> bool {
    pods.first().is_some_and(|first| Arc::ptr_eq(first, pod))
}

/// The next step from the old template to the new one, within the limits.
pub(crate) fn update(picture: &Picture) -> Vec<Step> {
    match picture.limits {
        Limits::OnDelete => Vec::new(),
        Limits::Rolling { surge: 0, unavailable } => replace(picture, unavailable),
        Limits::Rolling { surge, .. } => surge_over(picture, surge),
    }
}

/// The old pod of a node and the new one, where they are there.
type OldAndNew<'a> = (Option<&'a Arc<PodFacts>>, Option<&'a Arc<PodFacts>>);

/// At most one old and one new pod of a node, or None if there are more: those are `manage`'s to sort out.
fn old_and_new<'a>(picture: &Picture, node: &'a NodeView) -> Option<OldAndNew<'a>> {
    let present = node.pods.iter().filter(|pod| pod.deleted.is_none());
    let (new, old): (Vec<_>, Vec<_>) = present.partition(|pod| picture.is_updated(pod));
    (new.len() <= 1 && old.len() <= 1).then(|| (old.first().copied(), new.first().copied()))
}

fn considered(picture: &Picture) -> impl Iterator<Item = &NodeView> {
    picture.nodes.iter().filter(|node| node.fit.may_start || !node.pods.is_empty())
}

/// Without surge: old pods that are not available go at once, others as far as the limit allows.
fn replace(picture: &Picture, max_unavailable: usize) -> Vec<Step> {
    let mut n_unavailable = 0;
    let mut steps = Vec::new();
    let mut candidates = Vec::new();
    for node in considered(picture) {
        match old_and_new(picture, node) {
            None | Some((None, None) | (Some(_), Some(_))) => n_unavailable += 1,
            Some((None, Some(new))) => n_unavailable += usize::from(!picture.is_available(new)),
            Some((Some(old), None)) if !picture.is_available(old) => {
                n_unavailable += 1;
                steps.push(stop(old));
            }
            Some((Some(old), None)) => candidates.push(stop(old)),
        }
    }
    steps.extend(candidates.into_iter().take(max_unavailable.saturating_sub(n_unavailable)));
    steps.truncate(BURST_MAX);
    steps
}

/// With surge: the new pod comes first, and the old one goes once the new one is available.
fn surge_over(picture: &Picture, max_surge: usize) -> Vec<Step> {
    let mut n_surging = 0;
    let mut n_available = 0;
    let mut starts = Vec::new();
    let mut stops = Vec::new();
    let mut candidates = Vec::new();
    let mut leaving = Vec::new();
    for node in considered(picture) {
        let Some((old, new)) = old_and_new(picture, node) else {
            n_surging += 1;
            continue;
        };
        n_available += usize::from(old.or(new).is_some_and(|pod| picture.is_available(pod)));
        match (old, new) {
            (None, _) => {}
            (Some(old), Some(new)) => {
                if picture.is_available(new) {
                    stops.push(stop(old));
                } else {
                    n_surging += 1;
                }
            }
            (Some(old), None) => match (picture.is_available(old), node.fit.may_start) {
                (true, true) => candidates.push(Step::Start(node.name.clone())),
                (true, false) => leaving.push(stop(old)),
                (false, true) => starts.push(Step::Start(node.name.clone())),
                (false, false) => stops.push(stop(old)),
            },
        }
    }
    let n_desired = picture.nodes.iter().filter(|node| node.fit.may_start).count();
    // A daemon that lost its place goes when enough others are available.
    stops.extend(leaving.into_iter().take(n_available.saturating_sub(n_desired)));
    starts.extend(candidates.into_iter().take(max_surge.saturating_sub(n_surging)));
    starts.truncate(BURST_MAX);
    stops.truncate(BURST_MAX);
    starts.append(&mut stops);
    starts
}

pub(crate) fn tally(picture: &Picture) -> Counts {
    let mut counts = Counts::default();
    for node in picture.nodes.iter().filter(|node| node.exists) {
        let oldest = node.pods.first();
        if !node.fit.may_start {
            counts.misscheduled += i32::from(oldest.is_some());
            continue;
        }
        counts.desired += 1;
        if let Some(pod) = oldest {
            counts.current += 1;
            counts.ready += i32::from(pod.is_ready());
            counts.available += i32::from(picture.is_available(pod));
            counts.updated += i32::from(picture.is_updated(pod));
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::super::super::facts::testing::pod;
    use super::*;

    /// Nodes by a word each, a letter per pod: `o` old and available, `b` old and broken, `N` new and available, `n` new and not
    /// ready, `t` terminating, `f` failed. `!` for a node where no new one may start, `x` for one that repels all, `?` for one
    /// that does not exist.
    fn picture(nodes: &str, limits: Limits) -> Picture {
        let view = |(idx, word): (usize, &str)| {
            let flag = word.chars().find(|letter| "!x?".contains(*letter));
            let letters = word.chars().filter(|letter| "obNntfu".contains(*letter));
            let pods = letters.enumerate().map(|(nth, letter)| {
                let state = match letter {
                    'o' => "running ready=1 label:controller-revision-hash=old",
                    'b' => "running label:controller-revision-hash=old",
                    'N' => "running ready=1 label:controller-revision-hash=new",
                    'n' => "running label:controller-revision-hash=new",
                    't' => "running deleted label:controller-revision-hash=old",
                    'f' => "failed label:controller-revision-hash=new",
                    _ => "label:controller-revision-hash=new",
                };
                let node = if letter == 'u' { String::new() } else { format!("node=n{idx}") };
                Arc::new(pod(&format!("p{idx}{letter} created={nth} {node} {state}")))
            });
            NodeView {
                name: format!("n{idx}"),
                fit: match flag {
                    None => Fit { may_start: true, may_stay: true },
                    Some('!') => Fit { may_start: false, may_stay: true },
                    Some(_) => Fit { may_start: false, may_stay: false },
                },
                pods: pods.collect(),
                exists: flag != Some('?'),
            }
        };
        Picture {
            nodes: nodes.split(' ').enumerate().map(view).collect(),
            limits,
            hash: "new".to_owned(),
            generation: None,
            min_ready_seconds: 0,
            now: Timestamp::from_second(1000).unwrap(),
        }
    }

    fn told(steps: &[Step]) -> String {
        let word = |step: &Step| match step {
            Step::Start(node) => format!("+{node}"),
            Step::Stop(pod) => format!("-{}", pod.key.name),
            Step::Clear { pod, .. } => format!("x{}", pod.key.name),
        };
        steps.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    const PLAIN: Limits = Limits::Rolling { surge: 0, unavailable: 1 };

    #[test]
    fn every_node_gets_the_daemon_it_should_have() {
        let surging = Limits::Rolling { surge: 1, unavailable: 0 };
        for (nodes, plain, with_surge) in [
            (". .", "+n0 +n1", "+n0 +n1"),
            ("N .!", "", ""),
            ("N! Nx", "-p1N", "-p1N"),
            ("f", "xp0f", "+n0 xp0f"),
            ("t", "", "+n0"),
            ("on", "-p0n", ""),
            ("bn", "-p0n", "-p0b"),
            ("oN", "-p0N", "-p0o"),
            ("u? o?", "-p0u", "-p0u"),
        ] {
            assert_eq!(told(&manage(&picture(nodes, PLAIN))), plain, "{nodes}");
            assert_eq!(told(&manage(&picture(nodes, surging))), with_surge, "{nodes}");
        }
    }

    #[test]
    fn an_update_replaces_as_many_as_may_be_unavailable() {
        for (nodes, unavailable, expected) in [
            ("o o o", 1, "-p0o"),
            ("o o o", 2, "-p0o -p1o"),
            ("n o o", 1, ""),
            ("N o o", 1, "-p1o"),
            ("N t o", 1, ""),
            // What does not work anyway may go at once, and counts.
            ("b b o", 1, "-p0b -p1b"),
            ("N N N", 1, ""),
        ] {
            let limits = Limits::Rolling { surge: 0, unavailable };
            assert_eq!(told(&update(&picture(nodes, limits))), expected, "{nodes} {unavailable}");
        }
        assert_eq!(told(&update(&picture("o o", Limits::OnDelete))), "");
    }

    #[test]
    fn a_surging_update_starts_the_new_one_first() {
        for (nodes, surge, expected) in [
            ("o o o", 1, "+n0"),
            ("o o o", 2, "+n0 +n1"),
            ("on o o", 1, ""),
            ("oN o o", 1, "+n1 -p0o"),
            ("b o o", 1, "+n0 +n1"),
            ("N o! N", 1, "-p1o"),
            ("n o! N", 1, ""),
        ] {
            let limits = Limits::Rolling { surge, unavailable: 0 };
            assert_eq!(told(&update(&picture(nodes, limits))), expected, "{nodes} {surge}");
        }
    }

    #[test]
    fn counts_look_at_the_oldest_pod_of_each_node() {
        assert_eq!(
            tally(&picture("o N n . N! t", PLAIN)),
            Counts { desired: 5, current: 4, misscheduled: 1, ready: 2, available: 2, updated: 2 }
        );
    }
}
