//! Kubelet settings, which moved from the pool to the class.

use serde_json::{Map, Value};

use super::Warning;
use super::read::{Place, Section, Told};
use crate::objects::AmiFamily;
use crate::validate::kubelet::MANAGED;

/// Had by v1alpha5 alone, beside those that are managed to this day.
const CONTAINER_RUNTIME: &str = "containerRuntime";

pub(super) struct Settings {
    pub(super) place: Place,
    pub(super) fields: Map<String, Value>,
}

/// The settings of a Provisioner, under either of the two names that its guides use.
pub(super) fn settings(spec: &Section<'_>, told: &mut Told) -> Settings {
    let name = if spec.has("kubeletConfiguration") { "kubeletConfiguration" } else { "kubelet" };
    if name == "kubeletConfiguration"
        && let Some(other) = spec.get("kubelet")
    {
        told.refuse(spec.at("kubelet"), other, "kubeletConfiguration is the same; set one of them");
    }
    let section = spec.section(name, told);
    section.tell_unknown(&[MANAGED, &[CONTAINER_RUNTIME]].concat(), told);
    if section.has(CONTAINER_RUNTIME) {
        told.warn(section.at(CONTAINER_RUNTIME), "it is left out: every image has containerd, and nothing else");
    }
    let mut fields = Map::new();
    for (name, value) in section.entries() {
        if MANAGED.contains(&name.as_str()) {
            super::pool::put(&mut fields, name, amounts_as_text(name, value));
        }
    }
    Settings { place: section.place, fields }
}

/// The kubelet's own format has strings where older manifests may have numbers.
fn amounts_as_text(name: &str, value: &Value) -> Value {
    let is_map = ["systemReserved", "kubeReserved", "evictionHard", "evictionSoft"].contains(&name);
    match value.as_object().filter(|_| is_map) {
        Some(amounts) => amounts.iter().map(|(resource, amount)| (resource.clone(), as_text(amount))).collect(),
        None => value.clone(),
    }
}

fn as_text(amount: &Value) -> Value {
    if amount.is_number() { amount.to_string().into() } else { amount.clone() }
}

/// Kubelet settings of an older pool as a class of `family` has them: amounts as text, and without what the family never passed on.
/// `object` and `path` say where they stand.
///
/// Guarantees: the same as for a Provisioner with these settings.
pub fn fit_kubelet(
    object: &str,
    path: &str,
    settings: &Map<String, Value>,
    family: &AmiFamily,
) -> (Map<String, Value>, Vec<Warning>) {
    let place = Place { object: object.to_owned(), path: path.to_owned() };
    let fields = settings.iter().map(|(name, value)| (name.clone(), amounts_as_text(name, value))).collect();
    let (mut settings, mut told) = (Settings { place, fields }, Told::default());
    fit_to(family, &mut settings, &mut told);
    (settings.fields, told.warnings)
}

/// Takes out what the family never passed on to its nodes.
pub(super) fn fit_to(family: &AmiFamily, Settings { place, fields }: &mut Settings, told: &mut Told) {
    if *family == AmiFamily::Bottlerocket && fields.remove("podsPerCore").is_some() {
        told.warn(place.child("podsPerCore"), "Bottlerocket never had this setting; it is left out (maxPods works)");
    }
    let takes_one = !matches!(family, AmiFamily::Al2023 | AmiFamily::Custom);
    if takes_one
        && let Some(addresses) = fields.get_mut("clusterDNS").and_then(Value::as_array_mut)
        && addresses.len() > 1
    {
        told.warn(
            place.child("clusterDNS"),
            format!("{family} always took the first address alone; the others are left out"),
        );
        addresses.truncate(1);
    }
}
