//! What to do next with the members of a StatefulSet: a function of what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::super::facts::{Phase, PodFacts};
use super::super::revisions::REVISION_HASH;

/// Actions in one go.
const BURST_MAX: usize = 500;

#[derive(Debug)]
pub(crate) struct Picture<'a> {
    /// The first ordinal.
    pub(crate) start: i32,
    /// How many there should be.
    pub(crate) replicas: usize,
    /// Those of them that are there, by their place.
    pub(crate) members: BTreeMap<usize, Arc<PodFacts>>,
    /// Members beyond those, the highest ordinal first.
    pub(crate) condemned: Vec<Arc<PodFacts>>,
    pub(crate) is_ordered: bool,
    pub(crate) min_ready_seconds: i32,
    pub(crate) strategy: Strategy,
    pub(crate) update_revision: &'a str,
    /// Pods whose labels or storage are not as they should be.
    pub(crate) needs_care: BTreeSet<String>,
    pub(crate) now: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Strategy {
    OnDelete,
    Rolling { partition: usize },
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Create(i32),
    /// Because it ended, or is not wanted any more.
    Delete(Arc<PodFacts>),
    /// Because it has an old template.
    Renew(Arc<PodFacts>),
    /// A pod that waits may wait for its storage.
    EnsureClaims(Arc<PodFacts>),
    Care(Arc<PodFacts>),
    CareForClaims(Arc<PodFacts>),
}

/// Flow: members upwards, then the condemned downwards, then the update downwards. In order, anything that is not as it should
/// be stops the rest.
pub(crate) fn decide(picture: &Picture<'_>) -> Vec<Action> {
    let mut actions = Vec::new();
    if members(picture, &mut actions) == Next::Stop {
        return actions;
    }
    let care = picture.condemned.iter().filter(|pod| picture.needs_care.contains(&pod.key.name));
    actions.extend(care.map(|pod| Action::CareForClaims(Arc::clone(pod))));
    if condemned(picture, &mut actions) == Next::Stop {
        return actions;
    }
    if let Strategy::Rolling { partition } = picture.strategy {
        actions.extend(update(picture, partition));
    }
    actions
}

#[derive(PartialEq)]
enum Next {
    Go,
    Stop,
}

fn members(picture: &Picture<'_>, actions: &mut Vec<Action>) -> Next {
    for (ordinal, idx) in (picture.start..).zip(0..picture.replicas) {
        let is_settled = match picture.members.get(&idx) {
            // The rest follows when these are seen.
            None if actions.len() >= BURST_MAX => return Next::Stop,
            None => {
                actions.push(Action::Create(ordinal));
                false
            }
            Some(pod) if pod.is_finished() => {
                if pod.deleted.is_none() {
                    actions.push(Action::Delete(Arc::clone(pod)));
                }
                false
            }
            Some(pod) => {
                if pod.phase == Phase::Pending {
                    actions.push(Action::EnsureClaims(Arc::clone(pod)));
                }
                let is_settled = pod.deleted.is_none() && is_available(picture, pod);
                if (is_settled || !picture.is_ordered) && picture.needs_care.contains(&pod.key.name) {
                    actions.push(Action::Care(Arc::clone(pod)));
                }
                is_settled
            }
        };
        if picture.is_ordered && !is_settled {
            return Next::Stop;
        }
    }
    Next::Go
}

fn condemned(picture: &Picture<'_>, actions: &mut Vec<Action>) -> Next {
    let is_unavailable = |pod: &&Arc<PodFacts>| pod.deleted.is_some() || !is_available(picture, pod);
    // The first one that is unavailable may go although it is: nothing would be gained by waiting for it.
    let first_unavailable = picture
        .members
        .values()
        .find(is_unavailable)
        .or_else(|| picture.condemned.iter().rev().find(is_unavailable))
        .map(|pod| &pod.key);
    for pod in &picture.condemned {
        if pod.deleted.is_some() {
            if picture.is_ordered {
                return Next::Stop;
            }
            continue;
        }
        let may_go = !picture.is_ordered || is_available(picture, pod) || first_unavailable == Some(&pod.key);
        if may_go {
            actions.push(Action::Delete(Arc::clone(pod)));
        }
        if picture.is_ordered {
            return Next::Stop;
        }
    }
    Next::Go
}

/// The highest member that has an old template, unless a higher one is not available yet.
fn update(picture: &Picture<'_>, partition: usize) -> Option<Action> {
    for idx in (partition..picture.replicas).rev() {
        let pod = picture.members.get(&idx)?;
        let is_old = pod.labels.get(REVISION_HASH).map(String::as_str) != Some(picture.update_revision);
        if is_old && pod.deleted.is_none() {
            // One that ended is replaced anyway.
            return (!pod.is_finished()).then(|| Action::Renew(Arc::clone(pod)));
        }
        if pod.deleted.is_some() || !is_available(picture, pod) {
            return None;
        }
    }
    None
}

pub(crate) fn is_running_and_ready(pod: &PodFacts) -> bool {
    pod.phase == Phase::Running && pod.is_ready()
}

fn is_available(picture: &Picture<'_>, pod: &PodFacts) -> bool {
    pod.phase == Phase::Running && pod.is_available(picture.min_ready_seconds, picture.now)
}

/// `web-3` is the third of `web`. Leading zeros are somebody else's.
pub(crate) fn ordinal_of(set: &str, pod: &str) -> Option<i32> {
    let digits = pod.strip_prefix(set)?.strip_prefix('-')?;
    let ordinal: i32 = digits.parse().ok()?;
    (ordinal >= 0 && ordinal.to_string() == digits).then_some(ordinal)
}

#[cfg(test)]
mod tests {
    use super::super::super::facts::testing::pod;
    use super::*;

    /// Members by a letter each: `.` missing, `R` ready, `p` pending, `n` not ready, `f` failed, `t` terminating; in lower-case
    /// `o` is ready with the old template.
    fn picture(members: &str, condemned: &str, is_ordered: bool, strategy: Strategy) -> Picture<'static> {
        let of = |idx: usize, letter: char| {
            let words = match letter {
                '.' => return None,
                'R' => "running ready=1 label:controller-revision-hash=new",
                'o' => "running ready=1 label:controller-revision-hash=old",
                'b' => "running label:controller-revision-hash=old",
                'n' => "running label:controller-revision-hash=new",
                'p' => "label:controller-revision-hash=new",
                'f' => "failed label:controller-revision-hash=new",
                't' => "running ready=1 deleted label:controller-revision-hash=new",
                other => panic!("{other}"),
            };
            Some(Arc::new(pod(&format!("web-{idx} {words}"))))
        };
        let n = members.len();
        let members = members.chars().enumerate().filter_map(|(idx, letter)| Some((idx, of(idx, letter)?))).collect();
        let mut condemned: Vec<_> =
            condemned.chars().enumerate().filter_map(|(idx, letter)| of(n + idx, letter)).collect();
        condemned.reverse();
        Picture {
            start: 0,
            replicas: n,
            members,
            condemned,
            is_ordered,
            min_ready_seconds: 0,
            strategy,
            update_revision: "new",
            needs_care: BTreeSet::new(),
            now: Timestamp::from_second(1000).unwrap(),
        }
    }

    fn told(actions: &[Action]) -> String {
        let word = |action: &Action| match action {
            Action::Create(ordinal) => format!("+{ordinal}"),
            Action::Delete(pod) => format!("-{}", &pod.key.name[4..]),
            Action::Renew(pod) => format!("~{}", &pod.key.name[4..]),
            Action::EnsureClaims(pod) => format!("claims{}", &pod.key.name[4..]),
            Action::Care(pod) => format!("care{}", &pod.key.name[4..]),
            Action::CareForClaims(pod) => format!("pvc{}", &pod.key.name[4..]),
        };
        actions.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn members_come_and_go_in_order_or_all_at_once() {
        let rolling = Strategy::Rolling { partition: 0 };
        for (members, condemned, ordered, parallel) in [
            ("...", "", "+0", "+0 +1 +2"),
            ("R..", "", "+1", "+1 +2"),
            ("n..", "", "", "+1 +2"),
            ("p..", "", "claims0", "claims0 +1 +2"),
            ("t..", "", "", "+1 +2"),
            ("RfR", "", "-1", "-1"),
            ("RRR", "", "", ""),
            ("R", "RR", "-2", "-2 -1"),
            ("R", "Rn", "-2", "-2 -1"),
            ("R", "nn", "", "-2 -1"),
            ("R", "Rt", "", "-1"),
            ("n", "RR", "", "-2 -1"),
            ("", "R", "-0", "-0"),
        ] {
            assert_eq!(told(&decide(&picture(members, condemned, true, rolling))), ordered, "{members}|{condemned}");
            assert_eq!(told(&decide(&picture(members, condemned, false, rolling))), parallel, "{members}|{condemned}");
        }
    }

    #[test]
    fn an_update_goes_from_the_highest_to_the_partition_one_at_a_time() {
        let rolling = |partition| Strategy::Rolling { partition };
        for (members, strategy, expected) in [
            ("ooo", rolling(0), "~2"),
            ("ooR", rolling(0), "~1"),
            ("ooR", rolling(2), ""),
            ("oRR", rolling(0), "~0"),
            ("ooo", rolling(2), "~2"),
            ("ooo", rolling(9), ""),
            ("ooo", Strategy::OnDelete, ""),
        ] {
            assert_eq!(told(&decide(&picture(members, "", true, strategy))), expected, "{members} {strategy:?}");
        }
        // In parallel, a broken old member does not stand in the way of the update, and a broken new one does.
        assert_eq!(told(&decide(&picture("oob", "", false, rolling(0)))), "~2");
        assert_eq!(told(&decide(&picture("oon", "", false, rolling(0)))), "");
        assert_eq!(told(&decide(&picture("ob", "", true, rolling(0)))), "");
    }

    #[test]
    fn a_member_that_is_not_as_it_should_be_is_put_right_in_its_turn() {
        let mut picture = picture("Rn", "R", true, Strategy::OnDelete);
        picture.needs_care = ["web-0", "web-1", "web-2"].map(str::to_owned).into();
        assert_eq!(told(&decide(&picture)), "care0");
        picture.is_ordered = false;
        assert_eq!(told(&decide(&picture)), "care0 care1 pvc2 -2");
    }

    #[test]
    fn ordinals_are_read_from_names() {
        for (pod, expected) in [
            ("web-0", Some(0)),
            ("web-12", Some(12)),
            ("web-012", None),
            ("web-", None),
            ("web-a-1", None),
            ("we-1", None),
        ] {
            assert_eq!(ordinal_of("web", pod), expected, "{pod}");
        }
    }
}
