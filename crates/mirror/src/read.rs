//! Reading small things out of objects, with a note for what cannot be read.

use crate::object::ObjectKey;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as meta, ObjectMeta};
use kerf_model::{
    Effect, LabelSelector, Labels, Note, Quantity, Resources, SelectorOperator, SelectorTerm, Taint, Text, UnixMillis,
    shared_text,
};
use std::collections::BTreeMap;
use std::fmt::Display;

/// Reads one object. A *note* tells of something odd; a *fault* makes the object unfit for what it is meant for: a
/// pod cannot be placed, a pool cannot be used.
#[derive(Debug)]
pub(crate) struct Reader {
    source: Text,
    object: Subject,
    pub(crate) notes: Vec<Note>,
    pub(crate) fault: Option<Fault>,
}

/// What is read. It is only named where there is something to say about it.
#[derive(Debug)]
pub(crate) enum Subject {
    Key(ObjectKey),
    Named(Text),
}

impl Subject {
    fn text(&self) -> Text {
        match self {
            Subject::Key(key) => key.to_string().into(),
            Subject::Named(name) => name.clone(),
        }
    }
}

impl From<&ObjectKey> for Subject {
    fn from(key: &ObjectKey) -> Self {
        Subject::Key(key.clone())
    }
}

impl From<&str> for Subject {
    fn from(name: &str) -> Self {
        Subject::Named(name.into())
    }
}

impl From<Text> for Subject {
    fn from(name: Text) -> Self {
        Subject::Named(name)
    }
}

impl From<String> for Subject {
    fn from(name: String) -> Self {
        Subject::Named(name.into())
    }
}

/// The first thing that makes an object unusable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) field: Text,
    pub(crate) message: Text,
}

impl Reader {
    pub(crate) fn new(source: &Text, object: impl Into<Subject>) -> Self {
        Self { source: source.clone(), object: object.into(), notes: Vec::new(), fault: None }
    }

    /// A note on something that has no reader of its own.
    pub(crate) fn lone_note(
        source: &Text,
        object: impl Display,
        field: impl Into<Text>,
        message: impl Display,
    ) -> Note {
        Note {
            source: source.clone(),
            object: object.to_string().into(),
            field: field.into(),
            message: message.to_string().into(),
        }
    }

    pub(crate) fn note(&mut self, field: impl Into<Text>, message: impl Display) {
        self.notes.push(Note {
            source: self.source.clone(),
            object: self.object.text(),
            field: field.into(),
            message: message.to_string().into(),
        });
    }

    pub(crate) fn fault(&mut self, field: impl Into<Text>, message: impl Display) {
        let field = field.into();
        let message: Text = message.to_string().into();
        self.note(field.clone(), &message);
        if self.fault.is_none() {
            self.fault = Some(Fault { field, message });
        }
    }

    /// Whether something was said about this field, what is in it, or what it is in.
    pub(crate) fn has_note_on(&self, field: &str) -> bool {
        says_so(&self.notes, field)
    }

    /// Runs what may stumble, and forgives it: its faults remain as notes. Says whether there were any.
    pub(crate) fn leniently(&mut self, work: impl FnOnce(&mut Self)) -> bool {
        let before = self.fault.take();
        work(self);
        let stumbled = self.fault.is_some();
        self.fault = before;
        stumbled
    }

    /// Amounts by name. Malformed and negative ones are faults, and left out.
    pub(crate) fn resources(
        &mut self,
        field: impl Display,
        amounts: Option<&BTreeMap<String, QuantityText>>,
    ) -> Resources {
        let mut resources = Resources::new();
        for (name, text) in amounts.into_iter().flatten() {
            match Quantity::parse(&text.0) {
                Ok(amount) if amount.milli < 0 => {
                    self.fault(format!("{field}.{name}"), format!("{:?} is negative", text.0));
                }
                Ok(amount) => resources.set(name, amount),
                Err(error) => self.fault(format!("{field}.{name}"), error),
            }
        }
        resources
    }

    pub(crate) fn taints(&mut self, field: &str, taints: Option<&Vec<core::Taint>>) -> Vec<Taint> {
        let mut out = Vec::new();
        for (position, taint) in taints.into_iter().flatten().enumerate() {
            match Effect::parse(&taint.effect) {
                Some(effect) => out.push(Taint {
                    key: taint.key.as_str().into(),
                    value: taint.value.as_deref().unwrap_or_default().into(),
                    effect,
                }),
                None => self.fault(
                    format!("{field}[{position}].effect"),
                    format!("unknown effect {:?} (use NoSchedule, PreferNoSchedule or NoExecute)", taint.effect),
                ),
            }
        }
        out
    }

    /// A label selector; a term that cannot be read is a fault, and selects nothing.
    pub(crate) fn selector(&mut self, field: &str, selector: Option<&meta::LabelSelector>) -> Option<LabelSelector> {
        let selector = selector?;
        let mut terms: Vec<SelectorTerm> =
            selector.match_labels.iter().flatten().map(|(key, value)| SelectorTerm::is_in(key, value)).collect();
        for (position, expression) in selector.match_expressions.iter().flatten().enumerate() {
            let operator = match expression.operator.as_str() {
                "In" => SelectorOperator::In,
                "NotIn" => SelectorOperator::NotIn,
                "Exists" => SelectorOperator::Exists,
                "DoesNotExist" => SelectorOperator::DoesNotExist,
                other => {
                    self.fault(
                        format!("{field}.matchExpressions[{position}].operator"),
                        format!("unknown operator {other:?} (use In, NotIn, Exists or DoesNotExist)"),
                    );
                    SelectorOperator::In
                }
            };
            terms.push(SelectorTerm {
                key: expression.key.as_str().into(),
                operator,
                values: expression.values.iter().flatten().map(|value| value.as_str().into()).collect(),
            });
        }
        Some(LabelSelector::new(terms))
    }
}

pub(crate) fn says_so(notes: &[Note], field: &str) -> bool {
    notes.iter().any(|note| note.field.starts_with(field) || field.starts_with(&*note.field))
}

pub(crate) fn labels(map: Option<&BTreeMap<String, String>>) -> Labels {
    map.into_iter().flatten().map(|(key, value)| (shared_text(key), shared_text(value))).collect()
}

pub(crate) fn created(metadata: &ObjectMeta) -> UnixMillis {
    metadata.creation_timestamp.as_ref().map(millis).unwrap_or_default()
}

pub(crate) fn millis(time: &meta::Time) -> UnixMillis {
    UnixMillis(time.0.as_millisecond())
}

pub(crate) fn is_deleting(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some()
}

/// The owner that controls the object, if any.
pub(crate) fn controller(metadata: &ObjectMeta) -> Option<&meta::OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// The status and, for people, the reason and message of a condition.
pub(crate) fn condition<'a>(conditions: &'a [meta::Condition], kind: &str) -> Option<&'a meta::Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

pub(crate) fn is_true(conditions: &[meta::Condition], kind: &str) -> bool {
    condition(conditions, kind).is_some_and(|condition| condition.status == "True")
}
