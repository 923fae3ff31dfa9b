//! Who manages which field: what a write does to `metadata.managedFields`, and server-side apply.
//!
//! ```text
//! live, new ──compare──▶ added, modified, removed ──▶ taken from every other manager, given to this one
//! live, applied ──merge, prune──▶ new ──compare──▶ conflicts, unless forced
//! ```
//!
//! Fields are named as they are in the version through which they were written: whoever wrote through another version is asked in that
//! one.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::clock;
use crate::custom::Versions;
use crate::error::ApiError;
use crate::kind::{Resource, Subresource};
use crate::schema::{self, Decoded, FieldValidation, Schema, go};

pub mod set;
#[cfg(test)]
mod tests;
mod versions;
mod walk;

use set::FieldSet;
use versions::Changes;

#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    pub manager: &'a str,
    pub api_version: &'a str,
    pub subresource: &'a str,
    pub now: Timestamp,
    /// What the kind's other versions are, where there are any.
    pub versions: Option<&'a Versions>,
}

/// More managers that update than this are merged into one, the oldest first.
const MOST_UPDATERS: usize = 10;
const ANCIENT: &str = "ancient-changes";
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Sets `metadata.managedFields` of an object that is created, updated or patched.
///
/// - Flow: what changed is taken from every manager, and what is new or different is given to the writer.
/// - Guarantees: a write that changes nothing changes no entry and no time. A caller who sent `[]` or `[{}]` gets rid of them.
/// - Assumptions: `new` has its defaults, and admission has not yet touched it: what admission adds is nobody's.
/// - Caveats: `ignored` are dotted paths that this write does not carry, such as `status` beside a status subresource. Where somebody
///   wrote through a version that the object cannot be shown in, nobody manages anything any more, as on the real server.
pub fn track(schema: &Schema, live: Option<&Value>, new: &mut Value, writer: &Writer<'_>, ignored: &[&str]) {
    let sent = take_entries(new);
    let mut entries = match &sent {
        _ if !writer.subresource.is_empty() => live.map(entries_of).unwrap_or_default(),
        Some(sent) if is_reset(sent) => Vec::new(),
        Some(sent) => match decode(sent) {
            Some(entries) if !entries.is_empty() => entries,
            _ => live.map(entries_of).unwrap_or_default(),
        },
        None => live.map(entries_of).unwrap_or_default(),
    };
    // Who got rid of them, or never had them, does not get them back by an update.
    if entries.is_empty() && live.is_some() {
        return;
    }
    let nothing = live.is_none().then(|| schema.zero());
    let before = live.or(nothing.as_ref()).unwrap_or(&Value::Null);
    if update(schema, before, new, &mut entries, writer, ignored).is_ok() {
        cap_updaters(&mut entries);
        put_entries(new, entries);
    }
}

/// Server-side apply: lays what was applied over the live object.
///
/// - Flow: checks the configuration, merges it, drops what this manager applied before and applies no more, looks for
///   conflicts, and sets `metadata.managedFields`.
/// - Guarantees: without `force`, a field that another manager set to something else is a 409 with its cause.
/// - Assumptions: `applied` is the configuration as sent: parsed, but neither completed nor cleaned.
/// - Caveats: what comes out still wants to be made conforming, defaulted and validated.
pub fn apply(
    schema: &Schema,
    live: Option<&Value>,
    applied: &Value,
    writer: &Writer<'_>,
    force: bool,
    ignored: &[&str],
) -> Result<Value, ApiError> {
    check_applied(schema, live, applied, writer)?;
    let mut before = live.map_or_else(|| schema.zero(), Value::clone);
    let mut entries = take_entries(&mut before).and_then(|entries| decode(&entries)).unwrap_or_default();
    if entries.is_empty() && live.is_some() {
        let first = Writer { manager: BEFORE_FIRST_APPLY, subresource: "", ..*writer };
        update(schema, &schema.zero(), &before, &mut entries, &first, ignored)?;
    }
    let outcome = lay_over(schema, &before, applied, &entries, writer, force, ignored)?;
    let (mut merged, mut entries) = match outcome {
        Ok(outcome) => outcome,
        // Whoever comes from client-side apply takes over what that had applied.
        Err(conflicts) if writer.manager == "kubectl" => {
            let allowed = last_applied_fields(schema, &before, writer).unwrap_or_default();
            let open = without_allowed(conflicts, &allowed);
            if !open.is_empty() {
                return Err(conflict_error(&open));
            }
            lay_over(schema, &before, applied, &entries, writer, true, ignored)?
                .map_err(|conflicts| conflict_error(&conflicts))?
        }
        Err(conflicts) => return Err(conflict_error(&conflicts)),
    };
    if merged != before
        && let Some(entry) = entries.iter_mut().find(|entry| entry.is(writer, Operation::Apply))
    {
        entry.time = Some(clock::seconds(writer.now));
    }
    if writer.manager == "kubectl" {
        refresh_last_applied(&mut merged, applied);
    }
    put_entries(&mut merged, entries);
    Ok(merged)
}

/// An applied configuration: YAML, of which JSON is a part. What is there twice is told or refused as asked.
pub fn read(body: &[u8], mode: FieldValidation) -> Result<Decoded, ApiError> {
    let undecodable = |why: String| ApiError::bad_request(format!("error decoding YAML: {why}"));
    let parsed =
        schema::parse(body, true).map_err(|why| undecodable(format!("error converting YAML to JSON: {why}")))?;
    if !parsed.value.is_object() && !parsed.value.is_null() {
        let what = match &parsed.value {
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Bool(_) => "bool",
            _ => "number",
        };
        return Err(undecodable(format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"
        )));
    }
    let repeated: Vec<String> = parsed.warnings;
    match mode {
        FieldValidation::Strict if !repeated.is_empty() => {
            Err(ApiError::bad_request(format!("error strict decoding YAML: {}", repeated.join(", "))))
        }
        FieldValidation::Warn => Ok(Decoded { value: parsed.value, warnings: repeated }),
        _ => Ok(Decoded { value: parsed.value, warnings: Vec::new() }),
    }
}

/// The fields that a write does not carry, as the real strategies reset them.
#[must_use]
pub fn ignored(resource: &Resource, subresource: Option<Subresource>) -> &'static [&'static str] {
    match (subresource, resource.group.as_str(), resource.kind.as_str()) {
        (Some(Subresource::Status), ..) if resource.custom.is_some() => &["metadata", "spec"],
        (Some(Subresource::Status), "", "Pod") => &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"],
        (Some(Subresource::Status), "apps", "Deployment") => &["spec", "metadata.labels"],
        (Some(Subresource::Status), "storage.k8s.io" | "resource.k8s.io" | "admissionregistration.k8s.io", _) => {
            &["metadata", "spec"]
        }
        (Some(Subresource::Status), ..) => &["spec"],
        _ if resource.has(Subresource::Status) => &["status"],
        _ => &[],
    }
}

/// Gives an object that is otherwise as before the times of before, so that a write of nothing stays one.
pub fn keep_times(live: &Value, new: &mut Value) {
    let timeless = |object: &Value| {
        let mut object = object.clone();
        let mut entries = take_entries(&mut object);
        for entry in entries.iter_mut().filter_map(Value::as_array_mut).flatten().filter_map(Value::as_object_mut) {
            entry.remove("time");
        }
        (object, entries)
    };
    if live["metadata"]["managedFields"] != new["metadata"]["managedFields"] && timeless(live) == timeless(new) {
        *new = live.clone();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operation {
    Apply,
    Update,
}

#[derive(Clone, Debug)]
struct Entry {
    operation: Operation,
    time: Option<String>,
    manager: String,
    api_version: String,
    subresource: String,
    fields: FieldSet,
}

impl Entry {
    fn new(writer: &Writer<'_>, operation: Operation, fields: FieldSet) -> Self {
        Self {
            operation,
            time: None,
            manager: manager_of(writer).to_owned(),
            api_version: writer.api_version.to_owned(),
            subresource: writer.subresource.to_owned(),
            fields,
        }
    }

    /// An applier is the same in every version.
    fn is(&self, writer: &Writer<'_>, operation: Operation) -> bool {
        self.operation == operation
            && self.manager == manager_of(writer)
            && self.subresource == writer.subresource
            && (operation == Operation::Apply || self.api_version == writer.api_version)
    }

    fn decode(entry: &Value) -> Option<Self> {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let operation = match entry["operation"].as_str()? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        if entry["fieldsType"] != "FieldsV1" || text("apiVersion").is_empty() {
            return None;
        }
        let fields = match &entry["fieldsV1"] {
            Value::Null => FieldSet::default(),
            fields => FieldSet::decode(fields)?,
        };
        Some(Self {
            operation,
            time: entry["time"].as_str().map(str::to_owned),
            manager: text("manager"),
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            fields,
        })
    }

    fn encode(self) -> Value {
        let mut entry = Map::new();
        entry.insert("apiVersion".to_owned(), Value::String(self.api_version));
        entry.insert("fieldsType".to_owned(), Value::from("FieldsV1"));
        entry.insert("fieldsV1".to_owned(), self.fields.encode());
        if !self.manager.is_empty() {
            entry.insert("manager".to_owned(), Value::String(self.manager));
        }
        let operation = match self.operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        };
        entry.insert("operation".to_owned(), Value::from(operation));
        if !self.subresource.is_empty() {
            entry.insert("subresource".to_owned(), Value::String(self.subresource));
        }
        if let Some(time) = self.time {
            entry.insert("time".to_owned(), Value::String(time));
        }
        Value::Object(entry)
    }

    /// `"kubectl" with subresource "status" using apps/v1`.
    fn shown(&self) -> String {
        let mut shown = go::quote(&self.manager);
        if !self.subresource.is_empty() {
            shown.push_str(&format!(" with subresource {}", go::quote(&self.subresource)));
        }
        if self.operation == Operation::Update {
            shown.push_str(&format!(" using {}", self.api_version));
        }
        shown
    }
}

fn manager_of<'a>(writer: &Writer<'a>) -> &'a str {
    if writer.manager.is_empty() { "unknown" } else { writer.manager }
}

fn is_reset(sent: &Value) -> bool {
    match sent {
        Value::Array(entries) => match entries.as_slice() {
            [] => true,
            [one] => one.as_object().is_some_and(Map::is_empty),
            _ => false,
        },
        _ => false,
    }
}

fn entries_of(object: &Value) -> Vec<Entry> {
    decode(&object["metadata"]["managedFields"]).unwrap_or_default()
}

/// `None` when there is something that cannot be read: then nothing is.
fn decode(entries: &Value) -> Option<Vec<Entry>> {
    entries.as_array().map_or(Some(Vec::new()), |entries| entries.iter().map(Entry::decode).collect())
}

fn take_entries(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields").filter(|entries| !entries.is_null())
}

fn put_entries(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    if entries.is_empty() {
        return;
    }
    entries.sort_by(|one, other| {
        let key = |entry: &Entry| {
            let Entry { operation, time, manager, api_version, subresource, .. } = entry;
            (*operation, time.clone(), manager.clone(), api_version.clone(), subresource.clone())
        };
        key(one).cmp(&key(other))
    });
    let encoded: Value = entries.into_iter().map(Entry::encode).collect();
    if let Some(Value::Object(meta)) = object.get_mut("metadata") {
        meta.insert("managedFields".to_owned(), encoded);
    }
}

/// Takes what changed from everybody, and gives what is new or different to the writer.
fn update(
    schema: &Schema,
    before: &Value,
    after: &Value,
    entries: &mut Vec<Entry>,
    writer: &Writer<'_>,
    ignored: &[&str],
) -> Result<(), ApiError> {
    let mut changes = Changes::new(schema, before, after, writer, ignored);
    for entry in entries.iter_mut() {
        changes.take_from(entry)?;
    }
    let taken = changes.own.taken;
    if !taken.is_empty() {
        // The real server forgets the time of a write through `scale`.
        let time = (writer.subresource != "scale").then(|| clock::seconds(writer.now));
        match entries.iter_mut().find(|entry| entry.is(writer, Operation::Update)) {
            Some(entry) => {
                entry.fields.unite(taken);
                entry.time = time;
            }
            None => entries.push(Entry { time, ..Entry::new(writer, Operation::Update, taken) }),
        }
    }
    entries.retain(|entry| !entry.fields.is_empty());
    Ok(())
}

/// Merges the updaters of long ago into one for each version.
fn cap_updaters(entries: &mut Vec<Entry>) {
    let mut updaters: Vec<usize> =
        (0..entries.len()).filter(|&index| entries[index].operation == Operation::Update).collect();
    if updaters.len() <= MOST_UPDATERS {
        return;
    }
    updaters.sort_by(|&one, &other| {
        let key = |entry: &Entry| (entry.time.clone(), entry.manager.clone());
        key(&entries[one]).cmp(&key(&entries[other]))
    });
    let mut n_updaters = updaters.len();
    let mut buckets: Vec<usize> = Vec::new();
    let mut gone: Vec<usize> = Vec::new();
    for index in updaters {
        if n_updaters <= MOST_UPDATERS {
            break;
        }
        let bucket = buckets.iter().copied().find(|&bucket| entries[bucket].api_version == entries[index].api_version);
        let Some(bucket) = bucket else {
            buckets.push(index);
            continue;
        };
        let fields = std::mem::take(&mut entries[index].fields);
        let time = entries[index].time.clone();
        let target = &mut entries[bucket];
        target.fields.unite(fields);
        target.time = time;
        ANCIENT.clone_into(&mut target.manager);
        target.subresource.clear();
        gone.push(index);
        n_updaters -= 1;
    }
    entries.retain(|entry| !entry.fields.is_empty());
}

/// An owner and what of it would be overruled.
struct Conflict {
    owner: Entry,
    fields: FieldSet,
}

type LaidOver = Result<(Value, Vec<Entry>), Vec<Conflict>>;

/// Merges, prunes, and looks for conflicts.
fn lay_over(
    schema: &Schema,
    before: &Value,
    applied: &Value,
    entries: &[Entry],
    writer: &Writer<'_>,
    force: bool,
    ignored: &[&str],
) -> Result<LaidOver, ApiError> {
    let mut entries = entries.to_vec();
    let mut fields = walk::fields_of(schema, applied);
    for path in ignored {
        fields.forget(path);
    }
    let mut merged = walk::merge(schema, before, applied);
    let mine = entries.iter().position(|entry| entry.is(writer, Operation::Apply));
    let mut entry = Entry::new(writer, Operation::Apply, fields);
    let last = mine.map(|mine| {
        let last = entries.remove(mine);
        entry.time.clone_from(&last.time);
        last
    });
    if let Some(last) = last.filter(|last| !last.fields.is_empty()) {
        merged = versions::prune(schema, merged, &last, &entries, &entry, writer)?;
    }
    let mut changes = Changes::new(schema, before, &merged, writer, ignored);
    let mut conflicts = Vec::new();
    for owner in &entries {
        let fields = owner.fields.intersection(&changes.of(owner)?.taken);
        if !fields.is_empty() {
            conflicts.push(Conflict { owner: owner.clone(), fields });
        }
    }
    if !force && !conflicts.is_empty() {
        return Ok(Err(conflicts));
    }
    for entry in &mut entries {
        changes.take_from(entry)?;
    }
    entries.push(entry);
    entries.retain(|entry| !entry.fields.is_empty());
    Ok(Ok((merged, entries)))
}

fn conflict_error(conflicts: &[Conflict]) -> ApiError {
    let mut by_owner: Vec<(String, Vec<String>)> =
        conflicts.iter().map(|conflict| (conflict.owner.shown(), conflict.fields.paths())).collect();
    by_owner.sort();
    let n_conflicts: usize = by_owner.iter().map(|(_, paths)| paths.len()).sum();
    let message = match by_owner.as_slice() {
        [(owner, paths)] if paths.len() == 1 => {
            format!("Apply failed with 1 conflict: conflict with {owner}: {}", paths.concat())
        }
        many => {
            let mut lines = Vec::new();
            for (owner, paths) in many {
                lines.push(format!("conflicts with {owner}:"));
                lines.extend(paths.iter().map(|path| format!("- {path}")));
            }
            format!("Apply failed with {n_conflicts} conflicts: {}", lines.join("\n"))
        }
    };
    let mut error = ApiError::new(409, "Conflict", message);
    for (owner, paths) in by_owner {
        for path in paths {
            error = error.cause("FieldManagerConflict", format!("conflict with {owner}"), &path);
        }
    }
    error
}

fn without_allowed(conflicts: Vec<Conflict>, allowed: &FieldSet) -> Vec<Conflict> {
    conflicts
        .into_iter()
        .filter_map(|mut conflict| {
            conflict.fields.subtract(allowed);
            (!conflict.fields.is_empty()).then_some(conflict)
        })
        .collect()
}

/// What client-side apply had applied and nobody changed since.
fn last_applied_fields(schema: &Schema, live: &Value, writer: &Writer<'_>) -> Option<FieldSet> {
    let text = live["metadata"]["annotations"][LAST_APPLIED].as_str()?;
    let last: Value = serde_json::from_str(text).ok()?;
    if last["apiVersion"] != writer.api_version || !walk::mistakes(schema, &last).is_empty() {
        return None;
    }
    let mut fields = walk::fields_of(schema, &last);
    let difference = walk::compare(schema, &last, live);
    for set in [&difference.added, &difference.modified, &difference.removed] {
        fields.subtract(set);
    }
    Some(fields)
}

/// Where client-side apply left its annotation, the two stay in step.
fn refresh_last_applied(merged: &mut Value, applied: &Value) {
    let annotations = merged.get_mut("metadata").and_then(|meta| meta.get_mut("annotations"));
    let Some(Value::Object(annotations)) = annotations else { return };
    if !annotations.contains_key(LAST_APPLIED) {
        return;
    }
    let mut applied = applied.clone();
    if let Some(Value::Object(sent)) = applied.get_mut("metadata").and_then(|meta| meta.get_mut("annotations")) {
        sent.remove(LAST_APPLIED);
    }
    let text = go::escape_html(&applied.to_string()) + "\n";
    annotations.insert(LAST_APPLIED.to_owned(), json!(text));
}

fn check_applied(schema: &Schema, live: Option<&Value>, applied: &Value, writer: &Writer<'_>) -> Result<(), ApiError> {
    let api_version = applied["apiVersion"].as_str().unwrap_or_default();
    let kind = applied["kind"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let said = format!("{group}/{version}, Kind={kind}");
    let is_other_kind = live.is_some_and(|live| live["kind"].as_str().is_some_and(|live| live != kind));
    if api_version != writer.api_version || kind.is_empty() || is_other_kind {
        return Err(ApiError::bad_request(format!("invalid object type: {said}")));
    }
    if !applied["metadata"]["managedFields"].is_null() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let Some(listed) = listed(&walk::mistakes(schema, applied)) else { return Ok(()) };
    let text = |key: &str| applied["metadata"][key].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    Err(ApiError::new(500, "", format!("failed to create typed patch object ({namespace}/{name}; {said}): {listed}")))
}

/// Mistakes in one text.
fn listed(mistakes: &[String]) -> Option<String> {
    match mistakes {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!(
            "errors:\n{}",
            many.iter().map(|mistake| format!("  {mistake}")).collect::<Vec<_>>().join("\n")
        )),
    }
}
