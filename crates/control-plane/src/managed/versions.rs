//! What a write changes, in every version through which somebody has written.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::set::FieldSet;
use super::{Entry, Writer, listed, take_entries, walk};
use crate::custom::Versions;
use crate::error::ApiError;
use crate::schema::Schema;

/// What one write changes, as one version names the fields.
pub(super) struct Change {
    /// Added and modified.
    pub(super) taken: FieldSet,
    pub(super) removed: FieldSet,
}

impl Change {
    fn between(schema: &Schema, before: &Value, after: &Value, ignored: &[&str]) -> Self {
        let mut difference = walk::compare(schema, before, after);
        for path in ignored {
            difference.added.forget(path);
            difference.modified.forget(path);
            difference.removed.forget(path);
        }
        let mut taken = difference.added;
        taken.unite(difference.modified);
        Self { taken, removed: difference.removed }
    }
}

/// The same in the writer's version, and in others once somebody is met who wrote through them.
pub(super) struct Changes<'a> {
    pub(super) own: Change,
    others: BTreeMap<String, Change>,
    before: &'a Value,
    after: &'a Value,
    writer: &'a Writer<'a>,
    ignored: &'a [&'a str],
}

impl<'a> Changes<'a> {
    pub(super) fn new(
        schema: &Schema,
        before: &'a Value,
        after: &'a Value,
        writer: &'a Writer<'a>,
        ignored: &'a [&'a str],
    ) -> Self {
        let own = Change::between(schema, before, after, ignored);
        Self { own, others: BTreeMap::new(), before, after, writer, ignored }
    }

    /// As the version names it through which this manager wrote.
    pub(super) fn of(&mut self, entry: &Entry) -> Result<&Change, ApiError> {
        let Some(versions) = self.writer.versions.filter(|_| entry.api_version != self.writer.api_version) else {
            return Ok(&self.own);
        };
        if !self.others.contains_key(&entry.api_version) {
            let (before, _) = translated(versions, self.before, &entry.api_version)?;
            let (after, schema) = translated(versions, self.after, &entry.api_version)?;
            // What is reset on the way in is known for the version of the request; for a status, for every version.
            let ignored = if self.writer.subresource == "status" { self.ignored } else { &[] };
            let change = Change::between(&schema, &before, &after, ignored);
            self.others.insert(entry.api_version.clone(), change);
        }
        Ok(self.others.get(&entry.api_version).unwrap_or(&self.own))
    }

    /// Takes what changed from a manager.
    pub(super) fn take_from(&mut self, entry: &mut Entry) -> Result<(), ApiError> {
        let change = self.of(entry)?;
        entry.fields.subtract(&change.taken);
        entry.fields.subtract(&change.removed);
        Ok(())
    }
}

/// Drops from what was merged what this applier had applied before, perhaps through another version, and applies no more.
pub(super) fn prune(
    schema: &Schema,
    merged: Value,
    last: &Entry,
    others: &[Entry],
    now: &Entry,
    writer: &Writer<'_>,
) -> Result<Value, ApiError> {
    let mut owned: BTreeMap<&str, FieldSet> = BTreeMap::new();
    for entry in others.iter().chain([now]) {
        // Without versions there is but one shape, whatever an entry says.
        let version = if writer.versions.is_some() { entry.api_version.as_str() } else { writer.api_version };
        owned.entry(version).or_default().unite(entry.fields.clone());
    }
    let is_last = |version: &str| version == last.api_version || writer.versions.is_none();
    let Some(versions) = writer.versions.filter(|_| !owned.keys().all(|version| is_last(version))) else {
        let owned = owned.into_values().next().unwrap_or_default();
        return Ok(walk::prune(schema, merged, &last.fields, &owned));
    };
    // First in the version in which it was applied: what a conversion cannot do without may be the writer's own.
    let (whole, shape) = translated(versions, &merged, &last.api_version)?;
    let theirs = owned.remove(last.api_version.as_str()).unwrap_or_default();
    let mut pruned = walk::prune(&shape, whole.clone(), &last.fields, &theirs);
    for (version, owned) in owned {
        let (whole, shape) = translated(versions, &whole, version)?;
        let (left, _) = translated(versions, &pruned, version)?;
        let mut gone = walk::fields_of(&shape, &whole);
        gone.subtract(&walk::fields_of(&shape, &left));
        pruned = walk::prune(&shape, whole, &gone, &owned);
    }
    translated(versions, &pruned, writer.api_version).map(|(pruned, _)| pruned)
}

/// An object in another version, which must know all that is in it: where only `apiVersion` changes, it need not.
fn translated(versions: &Versions, object: &Value, to: &str) -> Result<(Value, Arc<Schema>), ApiError> {
    let mut object = object.clone();
    take_entries(&mut object);
    let (object, schema) = versions.translated(object, to)?;
    match listed(&walk::mistakes(&schema, &object)) {
        None => Ok((object, schema)),
        Some(mistakes) => Err(ApiError::new(500, "", mistakes)),
    }
}
