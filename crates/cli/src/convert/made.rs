//! What came out, and what is said about it.

use super::gather::{Found, Sorted};
use kerf_api::older::{self, Refusal, Warning, marks};
use kerf_api::{Kind, labels};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Something to tell, and the object of the input that it is about.
pub(super) struct Said<T> {
    pub(super) source: String,
    pub(super) what: T,
}

#[derive(Default)]
pub(super) struct Made {
    objects: BTreeMap<Key, Value>,
    /// By the name of each EC2NodeClass, the objects of the input that became it.
    class_sources: BTreeMap<String, Vec<String>>,
    pub(super) refusals: Vec<Said<Refusal>>,
    pub(super) warnings: Vec<Said<Warning>>,
    /// By reason, what is not in the output and need not be.
    pub(super) left_out: BTreeMap<&'static str, Vec<String>>,
}

/// Classes come before the pools that name them.
type Rank = usize;
type Key = (Rank, String, String);
const RANKS: [Kind; 6] =
    [Kind::Ec2NodeClass, Kind::KwokNodeClass, Kind::NodePool, Kind::NodeOverlay, Kind::CapacityBuffer, Kind::NodeClaim];

impl Made {
    /// Adds an object of v1, without what a server put there. Two that are equal are one; of two that differ the first stays, and the
    /// other one is told.
    pub(super) fn add(&mut self, from: &Found, kind: Kind, object: &Value) -> bool {
        let object = cleaned(object);
        let key = key(kind, &object);
        if self.objects.get(&key).is_some_and(|there| *there != object) {
            let message = format!(
                "another object of the input becomes the {} of that name, too; rename one of them",
                kind.name()
            );
            self.refuse(from, "metadata.name", &format!("{:?}", key.2), &message);
            return false;
        }
        if kind == Kind::Ec2NodeClass {
            self.class_sources.entry(key.2.clone()).or_default().push(from.title());
        }
        self.objects.insert(key, object);
        true
    }

    /// Like [`Self::add`], for what a translation made; it gives way to who holds the name in the input.
    pub(super) fn add_translated(&mut self, from: &Found, kind: Kind, object: &Value, input: &Sorted) -> bool {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        match input.holder(kind, name) {
            Some(holder) if !self.has(kind, object) => {
                self.refuse_held(from, kind, holder);
                false
            }
            _ => self.add(from, kind, object),
        }
    }

    pub(super) fn refuse_held(&mut self, from: &Found, kind: Kind, holder: &Found) {
        let message = format!(
            "{} has {} {} of that name, and that one counts; rename one of them, or convert without the other",
            holder.source,
            if kind == Kind::Ec2NodeClass { "an" } else { "a" },
            kind.name()
        );
        self.refuse(from, "metadata.name", &format!("{:?}", holder.name()), &message);
    }

    /// Whether just this is printed already.
    pub(super) fn has(&self, kind: Kind, object: &Value) -> bool {
        self.objects.get(&key(kind, object)) == Some(&cleaned(object))
    }

    /// The object of the input that became an EC2NodeClass of that name.
    pub(super) fn class_source(&self, name: &str) -> Option<&str> {
        self.class_sources.get(name)?.first().map(String::as_str)
    }

    pub(super) fn has_class_from(&self, name: &str, source: &Found) -> bool {
        self.class_sources.get(name).is_some_and(|titles| titles.contains(&source.title()))
    }

    pub(super) fn refuse(&mut self, from: &Found, path: &str, found: &str, message: &str) {
        self.say(from, path, found, message, false);
    }

    /// For a field that never had a meaning: the object is converted without it.
    pub(super) fn shrug(&mut self, from: &Found, path: &str, message: &str) {
        let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
        let found = from.value.pointer(&pointer).map_or("a field".to_owned(), Value::to_string);
        self.say(from, path, &found, message, true);
    }

    fn say(&mut self, from: &Found, path: &str, found: &str, message: &str, may_launch: bool) {
        let refusal = Refusal {
            object: from.title(),
            path: path.to_owned(),
            found: found.to_owned(),
            message: message.to_owned(),
            may_launch,
        };
        self.refusals.push(Said { source: from.source.clone(), what: refusal });
    }

    pub(super) fn warn(&mut self, from: &Found, path: &str, message: &str) {
        let warning = Warning { object: from.title(), path: path.to_owned(), message: message.to_owned() };
        self.warnings.push(Said { source: from.source.clone(), what: warning });
    }

    pub(super) fn leave_out(&mut self, found: &Found, why: &'static str) {
        self.left_out.entry(why).or_default().push(found.title());
    }

    pub(super) fn has_no_equivalent(&self) -> bool {
        !self.refusals.is_empty()
    }

    pub(super) fn into_objects(self) -> Vec<Value> {
        self.objects.into_values().collect()
    }
}

fn key(kind: Kind, object: &Value) -> Key {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    let rank = RANKS.iter().position(|ranked| *ranked == kind).unwrap_or(RANKS.len());
    (rank, text("namespace"), text("name"))
}

/// Annotations that a server, an operator or an earlier conversion keeps for itself.
const KEPT_BY_OTHERS: [&str; 13] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    marks::TRANSLATED_FROM,
    marks::TRANSLATE,
    "karpenter.sh/provisioner-hash",
    "karpenter.k8s.aws/nodetemplate-hash",
    labels::NODE_POOL_HASH,
    labels::NODE_POOL_HASH_VERSION,
    labels::EC2_NODE_CLASS_HASH,
    labels::EC2_NODE_CLASS_HASH_VERSION,
    labels::STORED_VERSION_MIGRATED,
    labels::KUBELET_CONVERSION,
    older::LOST_OF_V1,
    older::UBUNTU,
];

/// The object as somebody would have written it.
pub(super) fn cleaned(object: &Value) -> Value {
    let mut clean = Map::new();
    for (name, field) in object.as_object().into_iter().flatten() {
        match name.as_str() {
            "status" => {}
            "metadata" => drop(clean.insert(name.clone(), cleaned_metadata(field))),
            _ => drop(clean.insert(name.clone(), field.clone())),
        }
    }
    let mut clean = Value::Object(clean);
    older::forget_v1beta1(&mut clean);
    clean
}

fn cleaned_metadata(metadata: &Value) -> Value {
    let mut clean = Map::new();
    for name in ["name", "namespace", "labels", "annotations"] {
        let Some(field) = metadata.get(name).filter(|field| !field.is_null()) else { continue };
        let mut field = field.clone();
        if name == "annotations"
            && let Some(annotations) = field.as_object_mut()
        {
            annotations.retain(|key, _| !KEPT_BY_OTHERS.contains(&key.as_str()));
        }
        if field.as_object().is_none_or(|entries| !entries.is_empty()) {
            clean.insert(name.to_owned(), field);
        }
    }
    Value::Object(clean)
}
