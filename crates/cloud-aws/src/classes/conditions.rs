//! What is said of a class: one finding per subject, and `Ready`, which is all of them together.
//!
//! A condition keeps its time while its status stays, so that a second look at an unchanged account writes nothing.

use jiff::Timestamp;
use kerf_api::Ec2NodeClass;
use kerf_model::UnixMillis;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::cmp::Reverse;

pub const AMIS: &str = "AMIsReady";
pub const SUBNETS: &str = "SubnetsReady";
pub const SECURITY_GROUPS: &str = "SecurityGroupsReady";
pub const INSTANCE_PROFILE: &str = "InstanceProfileReady";
pub const RESERVATIONS: &str = "CapacityReservationsReady";
pub const PLACEMENT_GROUP: &str = "PlacementGroupReady";
pub const VALIDATION: &str = "ValidationSucceeded";
pub const READY: &str = "Ready";

/// Everything that we say of a class; other statements on it are somebody else's.
const OURS: [&str; 8] =
    [AMIS, SUBNETS, SECURITY_GROUPS, INSTANCE_PROFILE, RESERVATIONS, PLACEMENT_GROUP, VALIDATION, READY];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// One statement about a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) kind: &'static str,
    pub(super) status: Status,
    pub(super) reason: Cow<'static, str>,
    pub(super) message: String,
}

impl Finding {
    /// It holds; the message is a warning, or empty.
    pub(super) fn holds(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, status: Status::True, reason: kind.into(), message: message.into() }
    }

    pub(super) fn fails(kind: &'static str, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { kind, status: Status::False, reason: reason.into(), message: message.into() }
    }

    pub(super) fn unknown(
        kind: &'static str,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self { kind, status: Status::Unknown, reason: reason.into(), message: message.into() }
    }

    /// We could not look. What was found for this very generation still holds, with a word about the trouble; otherwise
    /// nothing is known, and where AWS does not let us look, nothing will be.
    pub(super) fn not_seen(class: &Ec2NodeClass, kind: &'static str, message: String, is_denied: bool) -> Self {
        let generation = class.metadata.generation;
        let before =
            class.status.iter().flat_map(|status| &status.conditions).find(|condition| condition.type_ == kind);
        match before.filter(|condition| condition.observed_generation == generation) {
            Some(condition) if condition.status == "True" => Self::holds(kind, message),
            _ if is_denied => Self::fails(kind, "AccessDenied", message),
            _ => Self::unknown(kind, "ReconciliationFailed", message),
        }
    }

    pub(super) fn is_true(&self) -> bool {
        self.status == Status::True
    }
}

/// The conditions as they are stored: in order of their times, the root last.
pub(super) fn conditions(class: &Ec2NodeClass, findings: &[Finding], now: UnixMillis) -> Value {
    let stored = class.status.iter().flat_map(|status| &status.conditions);
    let foreign =
        stored.filter(|condition| !OURS.contains(&condition.type_.as_str())).map(|condition| json!(condition));
    let mut list: Vec<Value> = foreign.chain(findings.iter().map(|finding| stated(class, finding, now))).collect();
    list.sort_by_key(time);
    list.push(stated(class, &sum(&list, findings), now));
    Value::Array(list)
}

/// `Ready`: true when all are; false as soon as one is.
fn sum(list: &[Value], findings: &[Finding]) -> Finding {
    let mut unhealthy: Vec<(&Value, &Finding)> = list
        .iter()
        .filter_map(|condition| {
            let finding = findings.iter().find(|finding| condition["type"] == finding.kind)?;
            Some((condition, finding))
        })
        .filter(|(_, finding)| !finding.is_true())
        .collect();
    if unhealthy.is_empty() {
        return Finding::holds(READY, "");
    }
    unhealthy.sort_by_key(|(condition, _)| Reverse(time(condition)));
    let words = unhealthy.iter().map(|(_, finding)| format!("{}={}", finding.kind, finding.status.as_str()));
    let message = words.collect::<Vec<_>>().join(", ");
    match unhealthy.iter().any(|(_, finding)| finding.status == Status::False) {
        true => Finding::fails(READY, "UnhealthyDependents", message),
        false => Finding::unknown(READY, "ReconcilingDependents", message),
    }
}

fn stated(class: &Ec2NodeClass, finding: &Finding, now: UnixMillis) -> Value {
    let status = finding.status.as_str();
    let mut stored = class.status.iter().flat_map(|status| &status.conditions);
    let since = match stored.find(|condition| condition.type_ == finding.kind && condition.status == status) {
        Some(same) => json!(same.last_transition_time),
        None => json!(rfc3339(now)),
    };
    json!({
        "type": finding.kind,
        "status": status,
        "reason": finding.reason,
        "message": finding.message,
        "lastTransitionTime": since,
        "observedGeneration": class.metadata.generation.unwrap_or_default(),
    })
}

fn time(condition: &Value) -> String {
    condition["lastTransitionTime"].as_str().unwrap_or_default().to_owned()
}

/// Whole seconds, as the API server keeps them.
pub(super) fn rfc3339(at: UnixMillis) -> String {
    Timestamp::from_second(at.0.div_euclid(1_000)).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(conditions: Value) -> Ec2NodeClass {
        serde_json::from_value(json!({"metadata": {"generation": 2}, "status": {"conditions": conditions}})).unwrap()
    }

    fn says(conditions: &Value, kind: &str) -> String {
        let found = conditions.as_array().unwrap().iter().find(|condition| condition["type"] == kind).unwrap();
        let text = |key: &str| found[key].as_str().unwrap().to_owned();
        format!("{} {} {:?}", text("status"), text("reason"), text("message"))
    }

    #[test]
    fn ready_is_false_as_soon_as_one_is_and_unknown_while_one_is() {
        let fine = Finding::holds(SUBNETS, "");
        let bad = Finding::fails(AMIS, "AMINotFound", "none");
        let open = Finding::unknown(VALIDATION, "DependenciesNotReady", "wait");
        let now = UnixMillis(60_000);
        for (findings, expected) in [
            (vec![fine.clone()], r#"True Ready """#),
            (vec![fine.clone(), open.clone()], r#"Unknown ReconcilingDependents "ValidationSucceeded=Unknown""#),
            (vec![bad, fine, open], r#"False UnhealthyDependents "AMIsReady=False, ValidationSucceeded=Unknown""#),
        ] {
            assert_eq!(says(&conditions(&class(json!([])), &findings, now), READY), expected);
        }
    }

    #[test]
    fn a_condition_keeps_its_time_while_its_status_stays_and_strangers_are_left_alone() {
        let stored = json!([
            {"type": SUBNETS, "status": "True", "reason": SUBNETS, "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Mine", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-02T00:00:00Z"},
            {"type": AMIS, "status": "True", "reason": AMIS, "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-03T00:00:00Z"},
        ]);
        let findings = [Finding::holds(SUBNETS, "news"), Finding::fails(AMIS, "AMINotFound", "")];
        let after = conditions(&class(stored), &findings, UnixMillis(1_800_000_000_000));
        let list: Vec<(&str, &str)> = after
            .as_array()
            .unwrap()
            .iter()
            .map(|condition| (condition["type"].as_str().unwrap(), condition["lastTransitionTime"].as_str().unwrap()))
            .collect();
        assert_eq!(list[..2], [(SUBNETS, "2026-01-01T00:00:00Z"), ("Mine", "2026-01-02T00:00:00Z")]);
        assert_eq!((list[2].0, list[3].0), (AMIS, READY));
        assert!(list[2].1.starts_with("2027"));
        assert_eq!(after[0]["observedGeneration"], 2);
    }

    #[test]
    fn what_was_found_for_this_generation_outlives_a_look_that_failed() {
        let stored = |generation: i64, status: &str| {
            json!([{"type": SUBNETS, "status": status, "reason": "r", "message": "", "observedGeneration": generation,
                "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        for (generation, status, is_denied, expected) in [
            (2, "True", true, Status::True),
            (2, "False", false, Status::Unknown),
            (1, "True", false, Status::Unknown),
            (1, "True", true, Status::False),
        ] {
            let finding = Finding::not_seen(&class(stored(generation, status)), SUBNETS, "why".to_owned(), is_denied);
            assert_eq!(
                (finding.status, finding.message.as_str()),
                (expected, "why"),
                "{generation} {status} {is_denied}"
            );
        }
    }
}
