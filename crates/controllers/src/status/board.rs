//! The families `operator_<kind>_*`, and the older `operator_*` with the kind as a label.

use super::subject::{Statement, Subject, statements};
use crate::metrics::families::exponential;
use crate::metrics::{Histogram, Page, Shape, Source};
use kerf_cloud::NodeClassKind;
use kerf_model::UnixMillis;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

const BOUNDS: [f64; 15] = exponential(0.5, 2.0);

/// The kinds that have families of their own beside the provider's node classes, in lower case.
const KINDS: [&str; 4] = ["nodeclaim", "nodepool", "node", "capacitybuffer"];
/// The kinds that the older families show, too.
const KINDS_OF_OLD: [&str; 3] = ["nodeclaim", "nodepool", "capacitybuffer"];

/// Name behind `operator_<kind>_`, help, shape, labels.
const FAMILIES: [(&str, &str, Shape, &[&str]); 6] = [
    (
        TRANSITION_SECONDS,
        "How long a condition had a status before it changed.",
        Shape::Histogram(&BOUNDS),
        &["type", "status", "to_status"],
    ),
    (
        "status_condition_count",
        "1 for each condition of each object.",
        Shape::Gauge,
        &["namespace", "name", "type", "status", "reason"],
    ),
    (
        "status_condition_current_status_seconds",
        "How long a condition has had its status.",
        Shape::Gauge,
        &["namespace", "name", "type", "status", "reason"],
    ),
    (
        TRANSITIONS_TOTAL,
        "Transitions of conditions, by what they became.",
        Shape::Counter,
        &["type", "status", "reason"],
    ),
    ("termination_current_time_seconds", "How long an object has been going.", Shape::Gauge, &["namespace", "name"]),
    (TERMINATION_SECONDS, "From the deletion of an object until it was gone.", Shape::Histogram(&BOUNDS), &[]),
];
const TRANSITION_SECONDS: &str = "status_condition_transition_seconds";
const TRANSITIONS_TOTAL: &str = "status_condition_transitions_total";
const TERMINATION_SECONDS: &str = "termination_duration_seconds";

/// A family that exists once per kind.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilyOfKind {
    pub name: String,
    pub help: &'static str,
    pub shape: Shape,
    pub labels: Vec<String>,
}

/// The families of our kinds and of these node classes, and the older ones.
pub fn families_of_kinds(class_kinds: &[NodeClassKind]) -> Vec<FamilyOfKind> {
    let classes = class_kinds.iter().map(|class| class.kind.to_lowercase());
    let kinds = KINDS.iter().map(|kind| (*kind).to_owned()).chain(classes).map(Some).chain([None]);
    let of_kind = |kind: Option<String>| {
        let extra: Vec<String> = match &kind {
            Some(kind) => extra_labels(kind, class_kinds).into_iter().map(|(label, _)| label).collect(),
            None => vec!["group".to_owned(), "kind".to_owned()],
        };
        FAMILIES.map(|(suffix, help, shape, labels)| FamilyOfKind {
            name: name_of(kind.as_deref(), suffix),
            help,
            shape,
            labels: labels.iter().map(|label| (*label).to_owned()).chain(extra.iter().cloned()).collect(),
        })
    };
    kinds.flat_map(of_kind).collect()
}

#[derive(Debug, Default)]
pub(super) struct Board {
    sheet: Mutex<Arc<Sheet>>,
    /// What happened, by the name of the family and the labels of the series.
    tallies: Mutex<BTreeMap<String, BTreeMap<Labels, Tally>>>,
}

/// How things stand.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    pub(super) subjects: Vec<Subject>,
    pub(super) class_kinds: Vec<NodeClassKind>,
}

type Labels = Vec<(String, String)>;

#[derive(Debug)]
enum Tally {
    Count(u64),
    Observed(Histogram),
}

impl Board {
    pub(super) fn publish(&self, sheet: Sheet) {
        *self.sheet.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(sheet);
    }

    pub(super) fn count_transition(&self, subject: &Subject, to: &Statement<'_>, class_kinds: &[NodeClassKind]) {
        let own = [("type", to.kind), ("status", to.status), ("reason", to.reason)];
        self.tally(subject, TRANSITIONS_TOTAL, &own, class_kinds, None);
    }

    pub(super) fn observe_transition(
        &self,
        subject: &Subject,
        from: &Statement<'_>,
        to: &Statement<'_>,
        class_kinds: &[NodeClassKind],
    ) {
        let own = [("type", to.kind), ("status", from.status), ("to_status", to.status)];
        let seconds = to.since.0.saturating_sub(from.since.0).max(0) as f64 / 1_000.0;
        self.tally(subject, TRANSITION_SECONDS, &own, class_kinds, Some(seconds));
    }

    pub(super) fn observe_termination(&self, subject: &Subject, seconds: f64, class_kinds: &[NodeClassKind]) {
        self.tally(subject, TERMINATION_SECONDS, &[], class_kinds, Some(seconds));
    }

    /// Counts one, or observes a duration, in the family of the subject's kind and in the older one.
    fn tally(
        &self,
        subject: &Subject,
        suffix: &str,
        own: &[(&str, &str)],
        class_kinds: &[NodeClassKind],
        seconds: Option<f64>,
    ) {
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, extra) in places(subject, suffix, class_kinds) {
            let own = own.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned()));
            let series = tallies.entry(name).or_default().entry(own.chain(extra).collect());
            match seconds {
                None => match series.or_insert(Tally::Count(0)) {
                    Tally::Count(count) => *count += 1,
                    Tally::Observed(_) => debug_assert!(false, "{suffix} is observed, not counted"),
                },
                Some(seconds) => match series.or_insert_with(|| Tally::Observed(Histogram::new(&BOUNDS))) {
                    Tally::Observed(histogram) => histogram.observe(seconds),
                    Tally::Count(_) => debug_assert!(false, "{suffix} is counted, not observed"),
                },
            }
        }
    }
}

impl Source for Board {
    fn render(&self, page: &mut Page, now: UnixMillis) {
        let sheet = self.sheet.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for family in families_of_kinds(&sheet.class_kinds) {
            page.begin(&family.name, family.help, family.shape.as_str());
            // Locked for each family alone: whoever counts does not wait for the whole page.
            let tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
            for (labels, tally) in tallies.get(&family.name).into_iter().flatten() {
                let labels: Vec<(&str, &str)> =
                    labels.iter().map(|(label, value)| (label.as_str(), value.as_str())).collect();
                match tally {
                    Tally::Count(count) => page.sample(&family.name, &labels, *count as f64),
                    Tally::Observed(histogram) => histogram.render(&family.name, &labels, page),
                }
            }
            drop(tallies);
            if family.shape == Shape::Gauge {
                sheet.render_gauge(&family.name, page, now);
            }
        }
    }
}

impl Sheet {
    fn render_gauge(&self, family: &str, page: &mut Page, now: UnixMillis) {
        let suffixes = FAMILIES.iter().filter(|(_, _, shape, _)| *shape == Shape::Gauge).map(|(suffix, ..)| *suffix);
        let Some(suffix) = suffixes.into_iter().find(|suffix| family.ends_with(suffix)) else {
            return;
        };
        let since = |at: UnixMillis| now.0.saturating_sub(at.0).max(0) as f64 / 1_000.0;
        for subject in &self.subjects {
            let Some((_, extra)) =
                places(subject, suffix, &self.class_kinds).into_iter().find(|(name, _)| name == family)
            else {
                continue;
            };
            let metadata = subject.metadata();
            let named = [
                ("namespace", metadata.namespace.as_deref().unwrap_or_default()),
                ("name", metadata.name.as_deref().unwrap_or_default()),
            ];
            let extra = || extra.iter().map(|(label, value)| (label.as_str(), value.as_str()));
            if suffix.starts_with("termination") {
                if let Some(deleted) = subject.deleted_at() {
                    page.sample_of(family, named.into_iter().chain(extra()), since(deleted));
                }
                continue;
            }
            for statement in statements(subject) {
                let said = [("type", statement.kind), ("status", statement.status), ("reason", statement.reason)];
                let value = if suffix.ends_with("count") { 1.0 } else { since(statement.since) };
                page.sample_of(family, named.into_iter().chain(said).chain(extra()), value);
            }
        }
    }
}

/// The families in which a subject has series, with the labels that its own labels, or its kind, add.
fn places(subject: &Subject, suffix: &str, class_kinds: &[NodeClassKind]) -> Vec<(String, Labels)> {
    let kind = subject.kind().to_lowercase();
    let label = |key: &str| {
        let labels = subject.metadata().labels.as_ref();
        labels.and_then(|labels| labels.get(key)).cloned().unwrap_or_default()
    };
    let extra = extra_labels(&kind, class_kinds).into_iter().map(|(name, key)| (name, label(&key))).collect();
    let mut places = vec![(name_of(Some(&kind), suffix), extra)];
    if KINDS_OF_OLD.contains(&kind.as_str()) {
        let by_kind =
            vec![("group".to_owned(), subject.group().to_owned()), ("kind".to_owned(), subject.kind().to_owned())];
        places.push((name_of(None, suffix), by_kind));
    }
    places
}

fn name_of(kind: Option<&str>, suffix: &str) -> String {
    match kind {
        Some(kind) => format!("operator_{kind}_{suffix}"),
        None => format!("operator_{suffix}"),
    }
}

/// Labels that the objects' own labels add: the name of the label, and the key.
fn extra_labels(kind: &str, class_kinds: &[NodeClassKind]) -> Vec<(String, String)> {
    let mut keys = Vec::new();
    if matches!(kind, "nodeclaim" | "node") {
        keys.extend(class_kinds.iter().map(|class| format!("{}/{}", class.group, class.kind.to_lowercase())));
        keys.push(kerf_api::labels::NODE_POOL.to_owned());
    }
    if kind == "node" {
        keys.push(kerf_api::labels::INITIALIZED.to_owned());
    }
    keys.into_iter().map(|key| (key.replace(['/', '.', '-'], "_"), key)).collect()
}
