//! The EC2NodeClass's share: what nodes look like to AWS.

use serde_json::{Map, Value, json};

use super::images::{self, Images};
use super::pool::put;
use super::read::{Section, Told};
use super::{TranslationSettings, class_name_of_template, kubelet, name_of, origin, selectors, template_name, volumes};
use crate::older::TranslatedKind;
use crate::older::marks::{Origin, PROVISIONER_NAME_LABEL};
use crate::validate::ec2_node_class::RESERVED_TAGS;

/// Where a Provisioner's class comes from.
pub(super) struct Source<'a> {
    pub(super) class_name: String,
    /// Whose the class is.
    pub(super) origin: Origin,
    /// The inline provider or the template's spec, if there is either.
    pub(super) fields: Option<Section<'a>>,
    pub(super) inline: Option<Section<'a>>,
}

pub(super) fn source<'a>(
    spec: &Section<'a>,
    provisioner: &'a Value,
    template: Option<&'a Value>,
    has_kubelet_settings: bool,
    told: &mut Told,
) -> Source<'a> {
    let own = origin(TranslatedKind::Provisioner, provisioner);
    let name = name_of(provisioner);
    let Some(given) = spec.get("providerRef") else {
        let inline = spec.has("provider").then(|| spec.section("provider", told));
        if inline.is_none() {
            told.miss(spec.at("provider"), "set provider, or providerRef to an AWSNodeTemplate");
        }
        return Source { class_name: name.to_owned(), origin: own, fields: inline.clone(), inline };
    };
    if let Some(provider) = spec.get("provider") {
        told.refuse(spec.at("provider"), provider, "it excludes providerRef; set one of them");
    }
    let reference = spec.section("providerRef", told);
    reference.tell_unknown(&["apiVersion", "kind", "name"], told);
    for (field, expected) in [("kind", "AWSNodeTemplate"), ("apiVersion", "karpenter.k8s.aws/v1alpha1")] {
        if let Some(text) = reference.word(field, told).filter(|text| *text != expected) {
            told.refuse(reference.at(field), &json!(text), format!("{expected} would do"));
        }
    }
    let template_name = template_name(provisioner).unwrap_or_default();
    let found = template.filter(|_| !template_name.is_empty());
    match found {
        _ if template_name.is_empty() => told.refuse(reference.at("name"), given, "name an AWSNodeTemplate here"),
        None => told.refuse(
            reference.at("name"),
            &json!(template_name),
            "there is no AWSNodeTemplate of that name; create it, or give it along",
        ),
        Some(_) => {}
    }
    let class_name = class_name_of_template(template_name, name, has_kubelet_settings);
    let origin = match found {
        Some(template) if !has_kubelet_settings => origin(TranslatedKind::AwsNodeTemplate, template),
        _ => own,
    };
    let fields = found.map(|template| Section::root("AWSNodeTemplate", template).section("spec", told));
    Source { class_name, origin, fields, inline: None }
}

const KNOWN: &[&str] = &[
    // How the inline form says its type.
    "apiVersion",
    "kind",
    // Told apart where requirements are read; they mean nothing to AWS.
    "requirements",
    "amiFamily",
    "amiSelector",
    "subnetSelector",
    "securityGroupSelector",
    "instanceProfile",
    "userData",
    "context",
    "tags",
    "launchTemplate",
    "metadataOptions",
    "blockDeviceMappings",
    "detailedMonitoring",
];

pub(super) fn spec(
    fields: &Section<'_>,
    mut kubelet: kubelet::Settings,
    settings: &TranslationSettings,
    told: &mut Told,
) -> Value {
    fields.tell_unknown(KNOWN, told);
    if let Some(name) = fields.get("launchTemplate") {
        told.refuse(
            fields.at("launchTemplate"),
            name,
            "launch templates are made by the operator now; write what yours holds into the fields of an AWSNodeTemplate \
             (instanceProfile, securityGroupSelector, amiSelector, userData, blockDeviceMappings, metadataOptions) and \
             leave this one out",
        );
    }
    let Images { terms, family, written_family, default_volumes } = images::of(fields, settings, told);
    kubelet::fit_to(&family, &mut kubelet, told);

    let mut made = Map::new();
    made.insert("subnetSelectorTerms".to_owned(), selectors::subnets(fields, told));
    made.insert("securityGroupSelectorTerms".to_owned(), selectors::security_groups(fields, told));
    made.insert("amiSelectorTerms".to_owned(), terms);
    put(&mut made, "amiFamily", written_family.into());
    identity(fields, settings, &mut made, told);
    for name in ["userData", "context"] {
        put(&mut made, name, fields.text(name, told).into());
    }
    put(&mut made, "detailedMonitoring", fields.boolean("detailedMonitoring", told).into());
    put(&mut made, "tags", tags(fields, settings, told));
    put(&mut made, "kubelet", Value::Object(kubelet.fields));
    let volumes = volumes::of(fields, told);
    put(&mut made, "blockDeviceMappings", if fields.has("blockDeviceMappings") { volumes } else { default_volumes });
    made.insert("metadataOptions".to_owned(), metadata_options(fields, told));
    Value::Object(made)
}

fn identity(fields: &Section<'_>, settings: &TranslationSettings, made: &mut Map<String, Value>, told: &mut Told) {
    let profile = fields.word("instanceProfile", told).map(str::to_owned);
    match (profile.or_else(|| settings.default_instance_profile.clone()), &settings.default_role) {
        (Some(profile), _) => drop(made.insert("instanceProfile".to_owned(), profile.into())),
        (None, Some(role)) => drop(made.insert("role".to_owned(), role.clone().into())),
        (None, None) => told.miss(
            fields.at("instanceProfile"),
            "no instance profile is named, and there is no default one; write it here, or set the default \
             (chart value aws.defaultInstanceProfile, kerf convert --default-instance-profile)",
        ),
    }
}

fn tags(fields: &Section<'_>, settings: &TranslationSettings, told: &mut Told) -> Value {
    let place = fields.at("tags");
    let mut kept = Map::new();
    for (key, value) in fields.texts("tags", told) {
        let historic = [PROVISIONER_NAME_LABEL, "karpenter.sh/managed-by"].contains(&key.as_str());
        let is_cluster = key.starts_with("kubernetes.io/cluster");
        if key.is_empty() {
            told.refuse(place.clone(), &json!({key: value}), "a tag needs a key");
        } else if is_cluster && !is_own_cluster(&key, settings) {
            told.warn(
                place.entry(&key),
                "a node is of one cluster, ours, and its tag is written anyway; this one is left out",
            );
        } else if is_cluster || historic || RESERVED_TAGS.contains(&key.as_str()) {
            told.warn(place.entry(&key), "the operator writes this tag itself; it is left out");
        } else {
            kept.insert(key, value.into());
        }
    }
    Value::Object(kept)
}

/// Where nobody says which cluster this is, the tag is taken for its own.
fn is_own_cluster(key: &str, settings: &TranslationSettings) -> bool {
    let name = key.strip_prefix("kubernetes.io/cluster/");
    settings.cluster_name.as_deref().is_none_or(|own| name == Some(own))
}

/// Written out whole, since v1 fills in other values: where the object was absent, a node's metadata could be reached from pods (two
/// hops); where `httpTokens` was, without a token, by EC2's own default.
fn metadata_options(fields: &Section<'_>, told: &mut Told) -> Value {
    const FIELD: &str = "metadataOptions";
    let given = fields.section(FIELD, told);
    let (hops, tokens) = if fields.has(FIELD) { (1, "optional") } else { (2, "required") };
    let mut options = json!({
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "disabled",
        "httpPutResponseHopLimit": hops,
        "httpTokens": tokens,
    });
    let known = ["httpEndpoint", "httpProtocolIPv6", "httpPutResponseHopLimit", "httpTokens"];
    given.tell_unknown(&known, told);
    for name in known {
        if let Some(value) = given.get(name) {
            options[name] = value.clone();
        }
    }
    options
}
