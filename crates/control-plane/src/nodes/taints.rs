//! Which taints a node should have, and how long a pod may stay in spite of them.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{NodeCondition, Taint, Toleration};

use crate::kubelet::selector::tolerates;
use crate::kubelet::time;

pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(crate) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub(crate) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Condition, status, and the taint that says the same to the scheduler.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// The keys of the taints that conditions ask for.
pub(crate) fn asked_for(conditions: &[NodeCondition]) -> Vec<&'static str> {
    let key_of = |condition: &NodeCondition| {
        let is_so = |(kind, status, _): &&(&str, &str, _)| *kind == condition.type_ && *status == condition.status;
        BY_CONDITION.iter().find(is_so).map(|(_, _, key)| *key)
    };
    conditions.iter().filter_map(key_of).collect()
}

/// The taints after those of effect NoSchedule that follow conditions were set right. None if they are right.
pub(crate) fn follow_conditions(
    taints: &[Taint],
    asked_for: &[&'static str],
    is_unschedulable: bool,
    now: Timestamp,
) -> Option<Vec<Taint>> {
    let mut wanted = asked_for.to_vec();
    if is_unschedulable {
        wanted.push(UNSCHEDULABLE);
    }
    let is_ours = |taint: &Taint| {
        taint.effect == "NoSchedule"
            && (taint.key == UNSCHEDULABLE || BY_CONDITION.iter().any(|(_, _, key)| *key == taint.key))
    };
    replace(taints, &wanted, "NoSchedule", is_ours, now)
}

/// The taints after `unreachable` and `not-ready` of effect NoExecute were set to the one that is wanted, if any. None if they are right.
pub(crate) fn set_no_execute(taints: &[Taint], wanted: Option<&str>, now: Timestamp) -> Option<Vec<Taint>> {
    let is_ours = |taint: &Taint| taint.effect == "NoExecute" && (taint.key == NOT_READY || taint.key == UNREACHABLE);
    replace(taints, wanted.as_slice(), "NoExecute", is_ours, now)
}

pub(crate) fn has_no_execute(taints: &[Taint], key: &str) -> bool {
    taints.iter().any(|taint| taint.effect == "NoExecute" && taint.key == key)
}

fn replace(
    taints: &[Taint],
    wanted: &[&str],
    effect: &str,
    is_ours: impl Fn(&Taint) -> bool,
    now: Timestamp,
) -> Option<Vec<Taint>> {
    let mut after: Vec<Taint> =
        taints.iter().filter(|taint| !is_ours(taint) || wanted.contains(&taint.key.as_str())).cloned().collect();
    for key in wanted {
        if !after.iter().any(|taint| taint.key == *key && taint.effect == effect) {
            after.push(Taint {
                key: (*key).to_owned(),
                effect: effect.to_owned(),
                time_added: Some(time(now)),
                value: None,
            });
        }
    }
    (after != taints).then_some(after)
}

/// How long a pod may stay on a node with these NoExecute taints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stay {
    Forever,
    For(SignedDuration),
    NotAtAll,
}

pub(crate) fn stay(taints: &[Taint], tolerations: &[Toleration]) -> Stay {
    let mut shortest: Option<i64> = None;
    for taint in taints {
        let Some(toleration) = tolerations.iter().find(|toleration| tolerates(toleration, taint)) else {
            return Stay::NotAtAll;
        };
        if let Some(seconds) = toleration.toleration_seconds {
            shortest = Some(shortest.map_or(seconds, |so_far| so_far.min(seconds)));
        }
    }
    match shortest {
        None => Stay::Forever,
        Some(seconds) if seconds <= 0 => Stay::NotAtAll,
        Some(seconds) => Stay::For(SignedDuration::from_secs(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn taints(text: &str) -> Vec<Taint> {
        text.split_whitespace()
            .map(|taint| {
                let (key, effect) = taint.split_once(':').unwrap();
                let key = if key.contains('/') { key.to_owned() } else { format!("node.kubernetes.io/{key}") };
                Taint { key, effect: effect.to_owned(), ..Taint::default() }
            })
            .collect()
    }

    fn said(taints: Option<Vec<Taint>>) -> String {
        let Some(taints) = taints else { return "as before".to_owned() };
        let one = |taint: &Taint| format!("{}:{}", taint.key.trim_start_matches("node.kubernetes.io/"), taint.effect);
        taints.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn taints_follow_conditions() {
        // taints before, conditions, unschedulable -> taints after
        let cases = [
            ("", "Ready=True", false, "as before"),
            ("not-ready:NoSchedule", "Ready=True", false, ""),
            ("", "Ready=False", false, "not-ready:NoSchedule"),
            ("not-ready:NoSchedule", "Ready=Unknown", false, "unreachable:NoSchedule"),
            (
                "a.b/c:NoSchedule not-ready:NoExecute",
                "Ready=False",
                false,
                "a.b/c:NoSchedule not-ready:NoExecute not-ready:NoSchedule",
            ),
            (
                "",
                "MemoryPressure=True DiskPressure=True PIDPressure=False",
                false,
                "memory-pressure:NoSchedule disk-pressure:NoSchedule",
            ),
            ("", "NetworkUnavailable=True", true, "network-unavailable:NoSchedule unschedulable:NoSchedule"),
            ("unschedulable:NoSchedule", "Ready=True", false, ""),
            ("unschedulable:NoSchedule", "Ready=True", true, "as before"),
        ];
        for (before, conditions, is_unschedulable, expected) in cases {
            let conditions: Vec<NodeCondition> = conditions
                .split_whitespace()
                .map(|text| {
                    let (kind, status) = text.split_once('=').unwrap();
                    NodeCondition { type_: kind.to_owned(), status: status.to_owned(), ..NodeCondition::default() }
                })
                .collect();
            let after =
                follow_conditions(&taints(before), &asked_for(&conditions), is_unschedulable, Timestamp::UNIX_EPOCH);
            assert_eq!(said(after), expected, "{before} {conditions:?}");
        }
    }

    #[test]
    fn one_no_execute_taint_takes_the_place_of_the_other() {
        let cases = [
            ("", Some(NOT_READY), "not-ready:NoExecute"),
            ("not-ready:NoExecute", Some(NOT_READY), "as before"),
            (
                "not-ready:NoExecute not-ready:NoSchedule",
                Some(UNREACHABLE),
                "not-ready:NoSchedule unreachable:NoExecute",
            ),
            ("unreachable:NoExecute a.b/c:NoExecute", None, "a.b/c:NoExecute"),
            ("", None, "as before"),
        ];
        for (before, wanted, expected) in cases {
            assert_eq!(said(set_no_execute(&taints(before), wanted, Timestamp::UNIX_EPOCH)), expected, "{before}");
        }
    }

    #[test]
    fn a_pod_stays_as_long_as_its_shortest_toleration() {
        let cases = [
            (json!([]), Stay::NotAtAll),
            (json!([{"operator": "Exists"}]), Stay::Forever),
            (json!([{"key": NOT_READY, "operator": "Exists"}]), Stay::NotAtAll),
            (
                json!([{"key": NOT_READY, "operator": "Exists", "tolerationSeconds": 300},
                       {"key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": 20}]),
                Stay::For(SignedDuration::from_secs(20)),
            ),
            (json!([{"operator": "Exists", "tolerationSeconds": 0}]), Stay::NotAtAll),
        ];
        for (tolerations, expected) in cases {
            let tolerations: Vec<Toleration> = serde_json::from_value(tolerations).unwrap();
            assert_eq!(
                stay(&taints("not-ready:NoExecute unreachable:NoExecute"), &tolerations),
                expected,
                "{tolerations:?}"
            );
        }
    }
}
