//! A Provisioner, perhaps with its AWSNodeTemplate, as a NodePool and an EC2NodeClass of v1.
//!
//! ```text
//!  Provisioner ──▶ pool ── requirements                     ┐
//!      │ provider                                           ├─▶ judge ──▶ NodePool, EC2NodeClass, warnings, refusals
//!  AWSNodeTemplate ──▶ class ── selectors, images, volumes  ┘
//! ```
//!
//! What is not here: who owns the result, whether it may be written, conditions. The same input gives the same objects, whoever asks: the
//! operator and `kerf convert` must agree to the byte, or nodes would be replaced when a team moves on.

mod alias;
mod class;
mod images;
mod judge;
mod kubelet;
mod pool;
mod read;
mod requirements;
mod selectors;
mod volumes;

use std::fmt;

use serde_json::{Map, Value, json};

pub use self::kubelet::fit_kubelet;
use self::read::{Section, Told, tidied};
use super::TranslatedKind;
use super::marks::{Origin, PROVISIONER_NAME, TRANSLATED_FROM};
use crate::hash::fnv1;
use crate::kind::Kind;
use crate::validate::is_label_value;

/// What a translation has to know beside the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranslationSettings {
    /// The instance profile of whoever names none (chart value `aws.defaultInstanceProfile`).
    pub default_instance_profile: Option<String>,
    /// The node role of whoever names no instance profile, where there is no default profile.
    pub default_role: Option<String>,
    /// The cluster's version: 32 for Kubernetes 1.32. It decides about images that nobody chose by name.
    pub kubernetes_minor: Option<u32>,
    /// The cluster's name; only messages use it.
    pub cluster_name: Option<String>,
}

/// What became of an older object.
#[derive(Clone, Debug, PartialEq)]
pub struct Translation {
    /// A NodePool of v1, without status. `None` where an AWSNodeTemplate was translated alone.
    pub node_pool: Option<Value>,
    /// The EC2NodeClass of v1 that the pool refers to; `None` where the template that it is made of was not given.
    pub node_class: Option<Value>,
    /// What was repaired or left out, and works all the same.
    pub warnings: Vec<Warning>,
    /// What has no equivalent.
    pub refusals: Vec<Refusal>,
}

impl Translation {
    /// Whether nodes may be launched from it: nothing that matters is missing.
    pub fn may_launch(&self) -> bool {
        self.refusals.iter().all(|refusal| refusal.may_launch)
    }
}

/// Something that the user should know, and need not act on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// The object it is about: `Provisioner lab`.
    pub object: String,
    /// From the root of that object, as the API server writes it.
    pub path: String,
    pub message: String,
}

/// A field that cannot be translated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The object it is about: `Provisioner lab`, or the AWSNodeTemplate.
    pub object: String,
    /// From the root of that object, as the API server writes it.
    pub path: String,
    /// What is there now, short enough for one line.
    pub found: String,
    /// Why it cannot be, and what to do.
    pub message: String,
    /// The field never had a meaning, so that nodes can be launched without it.
    pub may_launch: bool,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.object, self.path, self.message)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: found {}; {}", self.object, self.path, self.found, self.message)
    }
}

/// Translates a Provisioner. `template` is the AWSNodeTemplate that its `providerRef` names, if there is one.
///
/// Flow: fields one by one; then the result is judged as an API server and the operator would judge it, and what they would refuse is
/// a refusal, too.
///
/// Guarantees: any JSON gives an answer; the same input gives the same answer. Without refusals both objects pass [`Kind::check`] once
/// defaults are filled in. The class is named after the Provisioner (inline), or as [`class_name_of_template`] says. Pools of
/// Provisioners that share a template without kubelet settings of their own share its class, which comes out equal each time.
///
/// Assumptions: `template` has the name that `providerRef` says.
///
/// Caveats: with a refusal that may not launch, the objects are what could be made and no more. Write none of them; where they exist,
/// leave them as they are and launch nothing.
pub fn translate(provisioner: &Value, template: Option<&Value>, settings: &TranslationSettings) -> Translation {
    let mut told = Told::default();
    let provisioner = tidied(provisioner);
    let template = template.map(tidied);
    let root = Section::root("Provisioner", &provisioner);
    let name = name_of(&provisioner);
    judge_name(name, &root, &mut told);
    let spec = root.section("spec", &mut told);
    let kubelet = kubelet::settings(&spec, &mut told);
    let source = class::source(&spec, &provisioner, template.as_ref(), !kubelet.fields.is_empty(), &mut told);
    let made = pool::spec(&spec, source.inline.as_ref(), &source.class_name, &mut told);

    let mut pool = object(Kind::NodePool, name, &origin(TranslatedKind::Provisioner, &provisioner));
    pool["metadata"]["annotations"][PROVISIONER_NAME] = name.into();
    pool["metadata"]["annotations"][super::EXPIRY_REPLACES_FIRST] = "true".into();
    pool["spec"] = made.spec;
    judge::pool(&pool, &root.place, &made.requirements, &mut told);

    let class = source.fields.map(|fields| {
        let mut class = object(Kind::Ec2NodeClass, &source.class_name, &source.origin);
        let kubelet_place = kubelet.place.clone();
        class["spec"] = class::spec(&fields, kubelet, settings, &mut told);
        judge::class(&class, &fields.place, &kubelet_place, &mut told);
        class
    });
    Translation { node_pool: Some(pool), node_class: class, warnings: told.warnings, refusals: told.refusals }
}

/// Translates an AWSNodeTemplate alone: the class of Provisioners that name it and have no kubelet settings.
///
/// Guarantees: equal to what [`translate`] makes of it for such a Provisioner.
pub fn translate_template(template: &Value, settings: &TranslationSettings) -> Translation {
    let mut told = Told::default();
    let template = tidied(template);
    let root = Section::root("AWSNodeTemplate", &template);
    let name = name_of(&template);
    judge_name(name, &root, &mut told);
    let fields = root.section("spec", &mut told);
    let mut class = object(Kind::Ec2NodeClass, name, &origin(TranslatedKind::AwsNodeTemplate, &template));
    let kubelet = kubelet::Settings { place: fields.at("kubelet"), fields: Map::new() };
    class["spec"] = class::spec(&fields, kubelet, settings, &mut told);
    judge::class(&class, &fields.place, &fields.at("kubelet"), &mut told);
    Translation { node_pool: None, node_class: Some(class), warnings: told.warnings, refusals: told.refusals }
}

/// Translates an EC2NodeClass of `compute.k8s.aws`: what is written there means the class of `karpenter.k8s.aws` with that name.
///
/// Guarantees: without refusals the class passes [`Kind::check`] once defaults are filled in.
pub fn translate_alias(alias: &Value) -> Translation {
    let mut told = Told::default();
    let alias = tidied(alias);
    let root = Section::root(Kind::Ec2NodeClass.name(), &alias);
    let name = name_of(&alias);
    judge_name(name, &root, &mut told);
    let mut class = object(Kind::Ec2NodeClass, name, &origin(TranslatedKind::ComputeNodeClass, &alias));
    class["spec"] = alias::spec(&root, name, &mut told);
    Translation { node_pool: None, node_class: Some(class), warnings: told.warnings, refusals: told.refusals }
}

fn judge_name(name: &str, root: &Section<'_>, told: &mut Told) {
    if name.is_empty() || !is_label_value(name) {
        told.miss(
            root.at("metadata.name"),
            "a name of at most 63 characters is needed, since nodes carry it as a label",
        );
    }
}

/// The AWSNodeTemplate that a Provisioner names.
pub fn template_name(provisioner: &Value) -> Option<&str> {
    provisioner.pointer("/spec/providerRef/name")?.as_str().filter(|name| !name.is_empty())
}

/// The class that a Provisioner with a `providerRef` gets: the one named after the template, or one of its own when it has kubelet
/// settings, which in v1 belong to the class.
///
/// The name depends on nothing but the two names: another Provisioner that comes or goes moves no pool to another class, which would
/// replace its nodes.
pub fn class_name_of_template(template: &str, provisioner: &str, has_kubelet_settings: bool) -> String {
    /// Room for the name of a class, which nodes carry as a label, less a dash and eight digits.
    const PREFIX_MAX: usize = 63 - 9;
    if !has_kubelet_settings {
        return template.to_owned();
    }
    // The digits keep `a` of `b-c` and `a-b` of `c` apart.
    let digits = fnv1(format!("{template}/{provisioner}").as_bytes()) as u32;
    let prefix: String = format!("{template}-{provisioner}").chars().take(PREFIX_MAX).collect();
    format!("{}-{digits:08x}", prefix.trim_end_matches(['-', '.']))
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

fn origin(kind: TranslatedKind, object: &Value) -> Origin {
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    Origin { resource: kind.resource(), name: name_of(object).to_owned(), uid: uid.to_owned() }
}

fn object(kind: Kind, name: &str, origin: &Origin) -> Value {
    json!({
        "apiVersion": kind.api_version(),
        "kind": kind.name(),
        "metadata": {"name": name, "annotations": {TRANSLATED_FROM: origin.to_string()}},
    })
}
