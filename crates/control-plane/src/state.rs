//! Everything the server knows, behind one lock.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::admit::Look;
use crate::clock::Clock;
use crate::custom::Converter;
use crate::dice::Dice;
use crate::kind::{Catalog, Resource};
use crate::rest::events::Recorder;
use crate::store::{Key, ResourceId, Store, Stored};

pub struct State {
    pub store: Store,
    pub catalog: Catalog,
    pub clock: Clock,
    pub seed: u64,
    pub(crate) dice: Dice,
    pub(crate) recorder: Recorder,
    /// Of whoever may do everything; empty where nobody has to show one.
    pub(crate) token: String,
    /// For definitions that ask for a webhook.
    pub(crate) converter: Option<Converter>,
    /// Tokens of service accounts that were asked for.
    pub(crate) tokens: std::collections::BTreeSet<String>,
}

impl State {
    #[must_use]
    pub fn new(clock: Clock, seed: u64) -> Self {
        Self {
            store: Store::default(),
            catalog: Catalog::built_in(),
            clock,
            seed,
            dice: Dice::for_purpose(seed, "server"),
            recorder: Recorder::default(),
            token: String::new(),
            converter: None,
            tokens: std::collections::BTreeSet::new(),
        }
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The object as stored, or None.
    #[must_use]
    pub fn find(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        self.store.get(&resource.id(), &Key::new(namespace, name)).cloned()
    }
}

impl Look for State {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        self.store.get(&ResourceId::new(group, plural), &Key::new(namespace, name)).cloned()
    }

    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Stored>> {
        self.store.list(&ResourceId::new(group, plural), namespace).cloned().collect()
    }
}

impl Resource {
    /// Where its objects are kept.
    #[must_use]
    pub fn id(&self) -> ResourceId {
        ResourceId::new(&self.stored_as.0, &self.stored_as.1)
    }
}

/// Sets a field of `metadata`. An object without metadata gets some.
pub(crate) fn set_meta(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(metadata) = metadata_mut(object) {
        metadata.insert(field.to_owned(), value.into());
    }
}

pub(crate) fn unset_meta(object: &mut Value, field: &str) {
    if let Some(metadata) = metadata_mut(object) {
        metadata.remove(field);
    }
}

fn metadata_mut(object: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    let metadata = object.as_object_mut()?.entry("metadata").or_insert_with(|| Value::Object(serde_json::Map::new()));
    if metadata.is_null() {
        *metadata = Value::Object(serde_json::Map::new());
    }
    metadata.as_object_mut()
}

/// A text field of `metadata`, empty when it is not there.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}
