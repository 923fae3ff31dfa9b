//! EC2NodeClass, from v1beta1 to v1 and back, as far as the other side can say it.
//!
//! In v1beta1 a family without terms means the newest image of that family; in v1 that is an alias. Ubuntu has neither a
//! family nor an alias in v1: its user data has the format of AL2, so AL2 it becomes, and an annotation remembers.

use serde_json::{Map, Value, json};

use super::{
    ALIAS_VERSION, UBUNTU as UBUNTU_ANNOTATION, UBUNTU_INCOMPATIBLE, annotations, conditions, v1beta1::UBUNTU,
};
use crate::objects::AmiFamily;

const LATEST: &str = "latest";

/// Words of the annotation: the family was put in place, and the volumes were.
const UBUNTU_FAMILY: &str = "amiFamily";
const UBUNTU_VOLUMES: &str = "blockDeviceMappings";

pub(super) fn to_v1(class: &mut Value, has_lost: bool) {
    annotations::take(class, UBUNTU_ANNOTATION);
    // The version alone does not tell which family it is a version of. Where our own annotation is there, it does.
    let version = annotations::take(class, ALIAS_VERSION).filter(|_| !has_lost);
    conditions::to_v1(class);
    let Some(Value::Object(spec)) = class.get_mut("spec") else { return };
    reduce_terms(spec);
    let has_terms = spec.get("amiSelectorTerms").and_then(Value::as_array).is_some_and(|terms| !terms.is_empty());
    let family = spec.get("amiFamily").and_then(Value::as_str).unwrap_or_default();
    let alias = AmiFamily::ALIASES.iter().find(|(_, name)| *name == family);
    match alias {
        _ if family == UBUNTU => {
            let words = replace_ubuntu(spec, has_terms);
            annotations::put(class, UBUNTU_ANNOTATION, words);
        }
        Some((alias, _)) if !has_terms => {
            // Windows has no other version, and nothing is none.
            let is_pinned = |version: &&str| !alias.starts_with("windows") && !version.is_empty();
            let version = version.as_deref().filter(is_pinned).unwrap_or(LATEST);
            spec.insert("amiSelectorTerms".to_owned(), json!([{"alias": format!("{alias}@{version}")}]));
            spec.remove("amiFamily");
        }
        Some(_) => {}
        None => {
            spec.insert("amiFamily".to_owned(), AmiFamily::Custom.as_str().into());
        }
    }
}

pub(super) fn to_v1beta1(class: &mut Value) {
    let words = annotations::take(class, UBUNTU_ANNOTATION);
    annotations::take(class, ALIAS_VERSION);
    let Some(Value::Object(spec)) = class.get_mut("spec") else { return };
    // Somebody who has chosen a family in v1 has left Ubuntu.
    if let Some(words) = words.filter(|_| spec.get("amiFamily") == Some(&AmiFamily::Al2.as_str().into())) {
        restore_ubuntu(spec, &words);
    }
    let alias = take_alias(spec);
    let (family, version) = alias.as_deref().and_then(|alias| alias.split_once('@')).unwrap_or_default();
    if !spec.contains_key("amiFamily") {
        let family = AmiFamily::ALIASES.iter().find(|(alias, _)| *alias == family);
        let family = family.map_or(AmiFamily::Custom.as_str(), |(_, name)| name);
        spec.insert("amiFamily".to_owned(), family.into());
    }
    if !version.is_empty() && version != LATEST {
        annotations::put(class, ALIAS_VERSION, version.to_owned());
    }
}

/// A term with an id found that one image and nothing else; v1 wants it said like that.
fn reduce_terms(spec: &mut Map<String, Value>) {
    for term in spec.get_mut("amiSelectorTerms").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(term) = term
            && term.contains_key("id")
        {
            term.retain(|name, _| name == "id");
        }
    }
}

/// Drops what v1beta1 has no term for, and returns the alias.
fn take_alias(spec: &mut Map<String, Value>) -> Option<String> {
    let terms = spec.get_mut("amiSelectorTerms")?.as_array_mut()?;
    let alias = terms.iter().find_map(|term| term.get("alias")?.as_str()).map(str::to_owned);
    terms.retain_mut(|term| match term {
        Value::Object(term) => {
            let n_fields = term.len();
            term.retain(|name, _| name != "alias" && name != "ssmParameter");
            n_fields == 0 || !term.is_empty()
        }
        _ => true,
    });
    if terms.is_empty() {
        spec.remove("amiSelectorTerms");
    }
    alias
}

fn placeholder() -> Value {
    json!([{"id": "ami-placeholder"}])
}

/// The volume that Ubuntu nodes had where the class named none.
fn ubuntu_volumes() -> Value {
    json!([{"deviceName": "/dev/sda1", "rootVolume": true, "ebs": {"encrypted": true, "volumeType": "gp3", "volumeSize": "20Gi"}}])
}

fn replace_ubuntu(spec: &mut Map<String, Value>, has_terms: bool) -> String {
    let mut words = vec![UBUNTU_FAMILY];
    spec.insert("amiFamily".to_owned(), AmiFamily::Al2.as_str().into());
    if spec.get("blockDeviceMappings").is_none_or(Value::is_null) {
        words.push(UBUNTU_VOLUMES);
        spec.insert("blockDeviceMappings".to_owned(), ubuntu_volumes());
    }
    if !has_terms {
        words.push(UBUNTU_INCOMPATIBLE);
        spec.insert("amiSelectorTerms".to_owned(), placeholder());
    }
    words.join(",")
}

/// Takes back what was put in place, where nobody has put something else there since.
fn restore_ubuntu(spec: &mut Map<String, Value>, words: &str) {
    spec.insert("amiFamily".to_owned(), UBUNTU.into());
    let words: Vec<&str> = words.split(',').map(str::trim).collect();
    for (word, name, ours) in [
        (UBUNTU_VOLUMES, "blockDeviceMappings", ubuntu_volumes()),
        (UBUNTU_INCOMPATIBLE, "amiSelectorTerms", placeholder()),
    ] {
        if words.contains(&word) && spec.get(name) == Some(&ours) {
            spec.remove(name);
        }
    }
}
