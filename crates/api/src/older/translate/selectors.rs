//! Selectors by tag, as maps, become lists of terms.
//!
//! In a map every entry had to match, and a value could list alternatives by comma. A term has one value per tag, so alternatives
//! multiply: `{team: "a, b", env: "x"}` is two terms.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::read::{Place, Section, Told};

/// As many terms as v1 takes.
const TERMS_MAX: usize = 30;

pub(super) fn subnets(fields: &Section<'_>, told: &mut Told) -> Value {
    by_tag_or_id(fields, "subnetSelector", "subnet-", told)
}

pub(super) fn security_groups(fields: &Section<'_>, told: &mut Told) -> Value {
    by_tag_or_id(fields, "securityGroupSelector", "sg-", told)
}

fn by_tag_or_id(fields: &Section<'_>, field: &str, id_prefix: &str, told: &mut Told) -> Value {
    let place = fields.at(field);
    if fields.get(field).is_none_or(|selector| selector.as_object().is_some_and(Map::is_empty)) {
        // A launch template says it, and is refused for itself.
        if !fields.has("launchTemplate") || field == "subnetSelector" {
            told.miss(place, "select by a tag, such as karpenter.sh/discovery: <cluster>, or by aws-ids");
        }
        return json!([]);
    }
    let Selector { ids, tags, .. } = Selector::read(fields, field, told);
    if ids.is_empty() {
        return terms(&place, &tags, 1, told).into_iter().map(|tags| json!({"tags": tags})).collect();
    }
    if !tags.is_empty() {
        told.refuse(place.clone(), &json!(tags), "ids stand alone; leave out the tags beside them");
    }
    judge_ids(&place, &ids, id_prefix, told);
    ids.into_iter().map(|id| json!({"id": id})).collect()
}

/// Images; `None` when nothing is selected.
pub(super) fn images(fields: &Section<'_>, told: &mut Told) -> Option<Value> {
    const FIELD: &str = "amiSelector";
    let place = fields.at(FIELD);
    let Selector { ids, names, owners, tags } = Selector::read(fields, FIELD, told);
    if !ids.is_empty() {
        if !(names.is_empty() && owners.is_empty() && tags.is_empty()) {
            told.warn(place.clone(), "an id says which image it is; what else is asked of it is left out");
        }
        judge_ids(&place, &ids, "ami-", told);
        return Some(ids.into_iter().map(|id| json!({"id": id})).collect());
    }
    if names.is_empty() && owners.is_empty() && tags.is_empty() {
        return None;
    }
    let tags = terms(&place, &tags, owners.len().max(1).saturating_mul(names.len().max(1)), told);
    let mut made = Vec::new();
    for owner in some_or_none(&owners) {
        for name in some_or_none(&names) {
            for tags in &tags {
                let mut term = Map::new();
                super::pool::put(&mut term, "tags", json!(tags));
                super::pool::put(&mut term, "name", json!(name));
                super::pool::put(&mut term, "owner", json!(owner));
                if term.len() == 1 && owner.is_some() {
                    // All of an owner's images: v1 wants something to go by beside the owner.
                    term.insert("name".to_owned(), "*".into());
                }
                made.push(Value::Object(term));
            }
        }
    }
    Some(Value::Array(made))
}

#[derive(Default)]
struct Selector {
    ids: Vec<String>,
    names: Vec<String>,
    owners: Vec<String>,
    /// The alternatives of each.
    tags: BTreeMap<String, Vec<String>>,
}

impl Selector {
    fn read(fields: &Section<'_>, field: &str, told: &mut Told) -> Self {
        let place = fields.at(field);
        let is_of_images = field == "amiSelector";
        let mut selector = Self::default();
        for (key, value) in fields.texts(field, told) {
            let mut alternatives: Vec<String> =
                value.split(',').map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned).collect();
            match key.as_str() {
                "" => told.refuse(place.clone(), &json!({key: value}), "a tag needs a key"),
                "aws-ids" | "aws::ids" => selector.ids.append(&mut alternatives),
                "aws::name" if is_of_images => selector.names.append(&mut alternatives),
                "aws::owners" if is_of_images => selector.owners.append(&mut alternatives),
                _ => {
                    if alternatives.is_empty() {
                        told.warn(place.entry(&key), "nothing is written here; it is read as *, any value");
                        alternatives.push("*".to_owned());
                    }
                    selector.tags.insert(key, alternatives);
                }
            }
        }
        selector
    }
}

/// One map of tags per combination of alternatives; a single empty one without tags.
fn terms(
    place: &Place,
    tags: &BTreeMap<String, Vec<String>>,
    n_factor: usize,
    told: &mut Told,
) -> Vec<BTreeMap<String, String>> {
    let n_terms = tags.values().map(Vec::len).fold(n_factor, usize::saturating_mul);
    if n_terms > TERMS_MAX {
        let message =
            format!("its alternatives come to {n_terms} terms, and {TERMS_MAX} fit; tag what is meant with one tag");
        told.refuse(place.clone(), &json!(tags), message);
        return vec![BTreeMap::new()];
    }
    let mut terms = vec![BTreeMap::new()];
    for (key, alternatives) in tags {
        terms = alternatives
            .iter()
            .flat_map(|value| {
                terms.iter().cloned().map(move |mut term: BTreeMap<String, String>| {
                    term.insert(key.clone(), value.clone());
                    term
                })
            })
            .collect();
    }
    terms
}

fn judge_ids(place: &Place, ids: &[String], prefix: &str, told: &mut Told) {
    for id in ids {
        let is_id = id.strip_prefix(prefix).is_some_and(|rest| {
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
        });
        if !is_id {
            told.refuse(place.clone(), &json!(id), format!("an id such as {prefix}0123abcd would do"));
        }
    }
    if ids.len() > TERMS_MAX {
        told.refuse(place.clone(), &json!(ids), format!("{} ids, and {TERMS_MAX} fit; select by a tag", ids.len()));
    }
}

fn some_or_none(texts: &[String]) -> Vec<Option<&String>> {
    if texts.is_empty() { vec![None] } else { texts.iter().map(Some).collect() }
}
