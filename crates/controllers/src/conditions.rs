//! Status conditions: one statement per type, and a root that sums up those it depends on.
//!
//! ```text
//! object ─▶ Conditions::of ─▶ set, clear, refresh ─▶ changed? ─▶ patch_status
//!             │                      │
//!             └ missing dependents     └ the root follows by itself
//!               are Unknown since the
//!               object was created
//! ```
//!
//! `lastTransitionTime` moves only when the status does: timeouts are counted from it, across restarts. What is not here: which
//! conditions an object ought to have. That is each duty's own business.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use kerf_model::UnixMillis;
use serde_json::{Value, json};

/// What an object's conditions add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kinds {
    /// The type of the root; None where nothing is summed up.
    pub root: Option<&'static str>,
    /// The root is True when all of these are.
    pub dependents: &'static [&'static str],
}

pub const NODE_CLAIM: Kinds = Kinds { root: Some(READY), dependents: &["Launched", "Registered", "Initialized"] };
pub const NODE_POOL: Kinds = Kinds { root: Some(READY), dependents: &["ValidationSucceeded", "NodeClassReady"] };
pub const NODE_OVERLAY: Kinds = Kinds { root: Some(READY), dependents: &["ValidationSucceeded"] };
/// For objects whose conditions stand each for itself.
pub const INDEPENDENT: Kinds = Kinds { root: None, dependents: &[] };

pub const READY: &str = "Ready";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Status::True => "True",
            Status::False => "False",
            Status::Unknown => "Unknown",
        }
    }
}

/// The conditions of one object, to be looked at and changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    kinds: Kinds,
    generation: i64,
    is_deleting: bool,
    list: Vec<Condition>,
    /// As the object has them.
    stored: Vec<Condition>,
}

impl Conditions {
    /// Reads an object's conditions. Dependents that it lacks are there as Unknown, since the object was created.
    pub fn of(kinds: Kinds, metadata: &ObjectMeta, stored: &[Condition]) -> Self {
        let mut conditions = Self {
            kinds,
            generation: metadata.generation.unwrap_or(0),
            is_deleting: metadata.deletion_timestamp.is_some(),
            list: stored.to_vec(),
            stored: stored.to_vec(),
        };
        let created = metadata.creation_timestamp.clone().unwrap_or_else(|| time(UnixMillis(0)));
        let expected = kinds.dependents.iter().copied().chain(kinds.root);
        let missing: Vec<&str> = expected.filter(|kind| conditions.get(kind).is_none()).collect();
        for kind in missing {
            conditions.list.push(Condition {
                last_transition_time: created.clone(),
                message: "object is awaiting reconciliation".to_owned(),
                observed_generation: Some(conditions.generation),
                reason: "AwaitingReconciliation".to_owned(),
                status: Status::Unknown.as_str().to_owned(),
                type_: kind.to_owned(),
            });
            conditions.sort_by_time();
        }
        conditions
    }

    pub fn get(&self, kind: &str) -> Option<&Condition> {
        self.list.iter().find(|condition| condition.type_ == kind)
    }

    pub fn is_true(&self, kind: &str) -> bool {
        self.has_status(kind, Status::True)
    }

    pub fn is_false(&self, kind: &str) -> bool {
        self.has_status(kind, Status::False)
    }

    /// Said to be Unknown, or not said at all.
    pub fn is_unknown(&self, kind: &str) -> bool {
        !self.is_true(kind) && !self.is_false(kind)
    }

    /// When its status last changed.
    pub fn since(&self, kind: &str) -> Option<UnixMillis> {
        self.get(kind).map(|condition| UnixMillis(condition.last_transition_time.0.as_millisecond()))
    }

    /// It holds. The reason is the type itself.
    pub fn set_true(&mut self, kind: &str, now: UnixMillis) -> bool {
        self.set(kind, Status::True, kind, "", now)
    }

    /// Says something. Answers whether that is news.
    pub fn set(&mut self, kind: &str, status: Status, reason: &str, message: &str, now: UnixMillis) -> bool {
        let is_news = self.put(kind, status, reason, message, now);
        if self.is_deleting {
            // Nobody will look at the other statements again, and a deletion counts as a new generation.
            for condition in &mut self.list {
                condition.observed_generation = Some(self.generation);
            }
        }
        self.sum_up(now);
        is_news
    }

    /// What was said still holds for the object's present generation.
    pub fn refresh(&mut self, kind: &str, now: UnixMillis) {
        let generation = self.generation;
        if let Some(condition) = self.list.iter_mut().find(|condition| condition.type_ == kind) {
            condition.observed_generation = Some(generation);
            self.sum_up(now);
        }
    }

    /// Takes a statement back. Dependents and the root stay. Answers whether there was one.
    pub fn clear(&mut self, kind: &str) -> bool {
        if self.kinds.dependents.contains(&kind) || self.kinds.root == Some(kind) || self.get(kind).is_none() {
            return false;
        }
        self.list.retain(|condition| condition.type_ != kind);
        self.list.sort_by(|one, other| one.type_.cmp(&other.type_));
        true
    }

    /// Whether the object does not say this yet.
    pub fn is_changed(&self) -> bool {
        self.list != self.stored
    }

    pub fn list(&self) -> &[Condition] {
        &self.list
    }

    /// For a patch of the status: `{"conditions": […]}`.
    pub fn to_value(&self) -> Value {
        json!({"conditions": self.list})
    }

    fn has_status(&self, kind: &str, status: Status) -> bool {
        self.get(kind).is_some_and(|condition| condition.status == status.as_str())
    }

    fn put(&mut self, kind: &str, status: Status, reason: &str, message: &str, now: UnixMillis) -> bool {
        let generation = Some(self.generation);
        if let Some(known) = self.list.iter_mut().find(|condition| condition.type_ == kind) {
            let is_turn = known.status != status.as_str();
            let is_news = is_turn || known.reason != reason || known.message != message;
            if is_turn {
                known.last_transition_time = time(now);
            }
            known.observed_generation = generation;
            if is_news {
                known.status = status.as_str().to_owned();
                known.reason = reason.to_owned();
                known.message = message.to_owned();
            }
            if is_turn {
                self.sort_by_time();
            }
            return is_news;
        }
        self.list.push(Condition {
            last_transition_time: time(now),
            message: message.to_owned(),
            observed_generation: generation,
            reason: reason.to_owned(),
            status: status.as_str().to_owned(),
            type_: kind.to_owned(),
        });
        self.sort_by_time();
        true
    }

    /// Lets the root follow its dependents.
    fn sum_up(&mut self, now: UnixMillis) {
        let Some(root) = self.kinds.root else {
            return;
        };
        let dependents = self.kinds.dependents;
        let is_current = |condition: &Condition| condition.observed_generation == Some(self.generation);
        let mut unhealthy: Vec<&Condition> = self
            .list
            .iter()
            .filter(|condition| dependents.contains(&condition.type_.as_str()))
            .filter(|condition| condition.status != "True" || !is_current(condition))
            .collect();
        if unhealthy.is_empty() {
            self.put(root, Status::True, root, "", now);
            return;
        }
        unhealthy.sort_by_key(|condition| std::cmp::Reverse(condition.last_transition_time.0));
        let said: Vec<String> =
            unhealthy.iter().map(|condition| format!("{}={}", condition.type_, condition.status)).collect();
        let is_denied = unhealthy.iter().any(|condition| condition.status == "False" && is_current(condition));
        let (status, reason) =
            if is_denied { (Status::False, "UnhealthyDependents") } else { (Status::Unknown, "ReconcilingDependents") };
        self.put(root, status, reason, &said.join(", "), now);
    }

    fn sort_by_time(&mut self) {
        let root = self.kinds.root;
        self.list.sort_by(|one, other| {
            let key =
                |condition: &Condition| (Some(condition.type_.as_str()) == root, condition.last_transition_time.0);
            key(one).cmp(&key(other))
        });
    }
}

/// As Kubernetes writes times: whole seconds.
pub fn time(at: UnixMillis) -> Time {
    Time(jiff::Timestamp::from_second(at.0.div_euclid(1_000)).unwrap_or(jiff::Timestamp::UNIX_EPOCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000;

    fn metadata(generation: i64) -> ObjectMeta {
        ObjectMeta {
            generation: Some(generation),
            creation_timestamp: Some(time(UnixMillis(100 * SECOND))),
            ..ObjectMeta::default()
        }
    }

    fn claim() -> Conditions {
        Conditions::of(NODE_CLAIM, &metadata(1), &[])
    }

    fn types(conditions: &Conditions) -> Vec<&str> {
        conditions.list().iter().map(|condition| condition.type_.as_str()).collect()
    }

    #[test]
    fn what_nobody_has_looked_at_is_unknown_since_the_object_was_created() {
        let conditions = claim();
        assert_eq!(types(&conditions), ["Launched", "Registered", "Initialized", "Ready"]);
        for condition in conditions.list() {
            assert_eq!(condition.status, "Unknown");
            assert_eq!(condition.reason, "AwaitingReconciliation");
            assert_eq!(condition.message, "object is awaiting reconciliation");
            assert_eq!(condition.last_transition_time, time(UnixMillis(100 * SECOND)));
        }
        assert!(conditions.is_changed());
        assert!(conditions.is_unknown("Launched"));
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut conditions = claim();
        assert!(conditions.set("Launched", Status::Unknown, "LaunchFailed", "no", UnixMillis(200 * SECOND)));
        assert_eq!(conditions.since("Launched"), Some(UnixMillis(100 * SECOND)));
        assert!(conditions.set_true("Launched", UnixMillis(300 * SECOND)));
        assert_eq!(conditions.since("Launched"), Some(UnixMillis(300 * SECOND)));
        assert!(!conditions.set_true("Launched", UnixMillis(400 * SECOND)), "that is no news");
        assert_eq!(conditions.since("Launched"), Some(UnixMillis(300 * SECOND)));
        assert_eq!(conditions.get("Launched").unwrap().reason, "Launched");
    }

    #[test]
    fn the_root_is_true_when_all_it_depends_on_are() {
        let mut conditions = claim();
        conditions.set_true("Launched", UnixMillis(200 * SECOND));
        let ready = conditions.get("Ready").unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("Unknown", "ReconcilingDependents"));
        assert_eq!(ready.message, "Registered=Unknown, Initialized=Unknown");
        conditions.set("Registered", Status::False, "MultipleNodesFound", "two", UnixMillis(300 * SECOND));
        let ready = conditions.get("Ready").unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "UnhealthyDependents"));
        assert_eq!(ready.message, "Registered=False, Initialized=Unknown", "the newest first");
        conditions.set_true("Registered", UnixMillis(400 * SECOND));
        conditions.set_true("Initialized", UnixMillis(500 * SECOND));
        let ready = conditions.get("Ready").unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_str(), ready.message.as_str()), ("True", "Ready", ""));
        assert_eq!(conditions.since("Ready"), Some(UnixMillis(500 * SECOND)));
        assert_eq!(types(&conditions), ["Launched", "Registered", "Initialized", "Ready"], "by time, the root last");
    }

    #[test]
    fn a_statement_about_an_older_generation_does_not_make_the_root_true() {
        let mut conditions = claim();
        for kind in NODE_CLAIM.dependents {
            conditions.set_true(kind, UnixMillis(200 * SECOND));
        }
        let mut later = Conditions::of(NODE_CLAIM, &metadata(2), conditions.list());
        assert!(!later.is_changed());
        later.refresh("Launched", UnixMillis(300 * SECOND));
        assert_eq!(later.get("Ready").unwrap().status, "Unknown");
        later.refresh("Registered", UnixMillis(300 * SECOND));
        later.refresh("Initialized", UnixMillis(300 * SECOND));
        assert!(later.is_true("Ready"));
    }

    #[test]
    fn a_false_statement_about_an_older_generation_leaves_the_root_unknown() {
        let mut conditions = Conditions::of(NODE_POOL, &metadata(1), &[]);
        conditions.set("ValidationSucceeded", Status::False, "NodePoolValidationFailed", "bad", UnixMillis(0));
        assert!(conditions.is_false("Ready"));
        let mut later = Conditions::of(NODE_POOL, &metadata(2), conditions.list());
        later.set_true("NodeClassReady", UnixMillis(0));
        assert!(later.is_unknown("Ready"));
    }

    #[test]
    fn on_an_object_that_is_going_every_statement_is_about_now() {
        let mut conditions = claim();
        for kind in NODE_CLAIM.dependents {
            conditions.set_true(kind, UnixMillis(200 * SECOND));
        }
        let mut leaving = metadata(2);
        leaving.deletion_timestamp = Some(time(UnixMillis(300 * SECOND)));
        let mut conditions = Conditions::of(NODE_CLAIM, &leaving, conditions.list());
        conditions.set_true("InstanceTerminating", UnixMillis(400 * SECOND));
        assert!(conditions.list().iter().all(|condition| condition.observed_generation == Some(2)));
        assert!(conditions.is_true("Ready"));
    }

    #[test]
    fn only_independent_statements_can_be_taken_back_and_the_rest_is_sorted_by_type() {
        let mut conditions = claim();
        conditions.set_true("Drifted", UnixMillis(200 * SECOND));
        assert!(conditions.clear("Drifted"));
        assert!(!conditions.clear("Drifted"));
        assert!(!conditions.clear("Launched"));
        assert!(!conditions.clear("Ready"));
        assert_eq!(types(&conditions), ["Initialized", "Launched", "Ready", "Registered"]);
    }

    #[test]
    fn conditions_without_a_root_stand_for_themselves() {
        let mut conditions = Conditions::of(INDEPENDENT, &metadata(1), &[]);
        assert!(!conditions.is_changed());
        conditions.set("ReadyForProvisioning", Status::False, "No", "no", UnixMillis(0));
        assert_eq!(types(&conditions), ["ReadyForProvisioning"]);
    }

    #[test]
    fn times_are_whole_seconds() {
        assert_eq!(serde_json::to_value(time(UnixMillis(1_999))).unwrap(), json!("1970-01-01T00:00:01Z"));
    }
}
