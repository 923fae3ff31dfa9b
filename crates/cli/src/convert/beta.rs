//! Objects of v1beta1, and those of v1 as they are.
//!
//! One object at a time is converted by `kerf_api::older`. What needs two is done here: the kubelet's settings, which v1beta1 had on the
//! pool and v1 has on the class.

use super::alpha;
use super::gather::{Found, Sorted};
use super::made::{self, Made};
use kerf_api::Kind;
use kerf_api::labels::KUBELET_CONVERSION;
use kerf_api::objects::{AmiFamily, Ec2NodeClass};
use kerf_api::older::marks::{self, RELEASED_FROM};
use kerf_api::older::{self, class_name_of_template, v1beta1};
use serde_json::{Map, Value, json};

/// An object on its way.
pub(super) struct Current<'a> {
    from: &'a Found,
    /// In v1.
    object: Value,
    /// Of a pool: the kubelet's settings that still have to find their class.
    kubelet: Option<Map<String, Value>>,
    is_left_out: bool,
}

impl Current<'_> {
    fn is_named(&self, name: &str) -> bool {
        self.object["metadata"]["name"] == name
    }

    /// Whether it comes out just like that other object.
    pub(super) fn is_printed_as(&self, other: &Value) -> bool {
        !self.is_left_out && made::cleaned(&self.object) == made::cleaned(other)
    }
}

/// Adds the classes and what is of no concern. What comes back are the pools.
pub(super) fn convert_classes<'a>(input: &'a Sorted, made: &mut Made) -> Vec<Current<'a>> {
    for (kind, found) in &input.others {
        if has_spec(found, made) {
            made.add(found, *kind, &found.value);
        }
    }
    let mut classes = current(Kind::Ec2NodeClass, &input.classes, input, made);
    // Who is of the right group goes first.
    classes.sort_by_key(|class| class.from.is_alias());
    let mut pools = current(Kind::NodePool, &input.pools, input, made);
    let derived = settle_kubelets(&mut classes, &mut pools, made);
    for class in classes.iter().chain(&derived).filter(|class| !class.is_left_out) {
        if class.from.is_alias() {
            made.add_translated(class.from, Kind::Ec2NodeClass, &class.object, input);
        } else {
            made.add(class.from, Kind::Ec2NodeClass, &class.object);
        }
    }
    pools
}

/// A pool is of use with the class that it means, and with no other.
pub(super) fn add_pools(pools: Vec<Current<'_>>, input: &Sorted, made: &mut Made) {
    for pool in pools.into_iter().filter(|pool| !pool.is_left_out) {
        match why_without_class(&pool, input, made) {
            Some(message) => {
                let name = format!("{:?}", class_of(&pool.object));
                made.refuse(pool.from, "spec.template.spec.nodeClassRef.name", &name, &message);
            }
            None => drop(made.add(pool.from, Kind::NodePool, &pool.object)),
        }
    }
}

/// Why the class that a pool names is not the one that it means; nothing where it is, or where the input does not know that name.
fn why_without_class(pool: &Current<'_>, input: &Sorted, made: &Made) -> Option<String> {
    let name = class_of(&pool.object);
    if name.is_empty() || made.has_class_from(name, pool.from) || made.has(Kind::NodePool, &pool.object) {
        return None;
    }
    let mut meant = input.classes.iter().filter(|class| class.name() == name).peekable();
    if meant.peek().is_some() {
        let is_made = meant.any(|class| made.has_class_from(name, input.maker(&class.value).unwrap_or(class)));
        return (!is_made).then(|| "the EC2NodeClass of that name is left out, and the pool with it".to_owned());
    }
    made.class_source(name).map(|who| {
        format!("{who} becomes an EC2NodeClass of that name, which may not be the one that is meant; give that along")
    })
}

/// Each of them in v1. What no API server would take is told and left out.
fn current<'a>(kind: Kind, list: &'a [Found], input: &Sorted, made: &mut Made) -> Vec<Current<'a>> {
    let mut converted = Vec::new();
    for from in list {
        if input.makes_again(&from.value) {
            continue;
        }
        if from.is_alias() {
            converted.push(meant_by(from, made));
            continue;
        }
        if !has_spec(from, made) {
            continue;
        }
        let is_of_v1 = from.value["apiVersion"] == kind.api_version();
        let mut object = match older::convert(&from.value, &kind.api_version()) {
            Ok(object) => object,
            Err(error) => {
                made.refuse(from, "apiVersion", &from.value["apiVersion"].to_string(), &error.to_string());
                continue;
            }
        };
        let mut is_left_out = false;
        if !is_of_v1 {
            is_left_out = !judge(kind, from, &object, made);
        } else if let Some(origin) = marks::origin(&object) {
            // Whoever applies it takes it over.
            object["metadata"]["annotations"][RELEASED_FROM] = format!("{}/{}", origin.resource, origin.name).into();
        }
        let kubelet = object.pointer("/metadata/annotations").and_then(|all| all.get(KUBELET_CONVERSION)?.as_str());
        let kubelet =
            kubelet.and_then(|text| serde_json::from_str(text).ok()).filter(|map: &Map<_, _>| !map.is_empty());
        converted.push(Current { from, object, kubelet, is_left_out });
    }
    converted
}

/// Objects of v1 come out as they are, but one that no API server would take for an object is told.
fn has_spec(from: &Found, made: &mut Made) -> bool {
    let odd = from.value.get("spec").filter(|spec| !spec.is_object());
    if let Some(odd) = odd {
        made.refuse(from, "spec", &odd.to_string(), "an object would do");
    }
    odd.is_none()
}

/// The class that one of `compute.k8s.aws` means.
fn meant_by<'a>(from: &'a Found, made: &mut Made) -> Current<'a> {
    let translation = older::translate_alias(&from.value);
    let is_left_out = !translation.may_launch();
    let object = translation.node_class.map(|class| alpha::released(class, Some(from))).unwrap_or_default();
    alpha::tell(translation.warnings, translation.refusals, &[from], made);
    Current { from, object, kubelet: None, is_left_out }
}

/// Says what is wrong with it; whether it can be used.
fn judge(kind: Kind, from: &Found, object: &Value, made: &mut Made) -> bool {
    let n_before = made.refusals.len();
    let mut old = from.value.clone();
    v1beta1::apply_defaults(kind, &mut old);
    let mut problems = v1beta1::check(kind, &old, None);
    if problems.is_empty() {
        problems = kind.check(object, None);
    }
    for problem in problems {
        made.refuse(from, &problem.path, &problem.found, &problem.wants);
    }
    let note =
        object.pointer("/metadata/annotations").and_then(|all| all.get(older::UBUNTU)?.as_str()).unwrap_or_default();
    if note.split(',').any(|word| word == older::UBUNTU_INCOMPATIBLE) {
        let message =
            "images of Ubuntu are no longer looked up; select one by amiSelectorTerms, or name another family";
        made.refuse(from, "spec.amiFamily", "\"Ubuntu\"", message);
    }
    let is_usable = made.refusals.len() == n_before;
    for path in v1beta1::unknown_fields(kind, &from.value) {
        made.shrug(from, &path, "there is no such field; it is left out");
    }
    is_usable
}

/// Gives each class the kubelet settings of the pools that use it. Where they do not agree, each pool that has some gets a class of its
/// own: a copy.
fn settle_kubelets<'a>(classes: &mut [Current<'a>], pools: &mut [Current<'a>], made: &mut Made) -> Vec<Current<'a>> {
    for pool in pools.iter_mut() {
        pool.kubelet = pool.kubelet.take().and_then(|kubelet| fitted(kubelet, pool, classes, made));
    }
    let agreed: Vec<bool> = pools.iter().map(|pool| is_agreed(pool, pools, classes)).collect();
    let written: Vec<bool> = classes.iter().map(|class| kubelet_of(class).is_some()).collect();
    let mut derived = Vec::new();
    for (pool, is_agreed) in pools.iter_mut().zip(agreed) {
        let Some(kubelet) = pool.kubelet.take() else { continue };
        let from = pool.from;
        let path = kubelet_path(from);
        let class_name = class_of(&pool.object).to_owned();
        let Some(idx) = find_class(&class_name, classes) else { continue };
        let settings = Value::Object(kubelet);
        if is_agreed && written[idx] {
            // The class says so already.
            continue;
        }
        if is_agreed {
            classes[idx].object["spec"]["kubelet"] = settings;
            let message = format!("these go to EC2NodeClass {class_name}, {DRIFT}");
            made.warn(from, path, &message);
            continue;
        }
        let name = class_name_of_template(&class_name, from.name(), true);
        let message = format!(
            "others who use EC2NodeClass {class_name} have other settings; this pool gets a class of its own, {name}, {DRIFT}"
        );
        made.warn(from, path, &message);
        let mut own = classes[idx].object.clone();
        own["metadata"]["name"] = json!(name);
        own["spec"]["kubelet"] = settings;
        derived.push(Current { from, object: own, kubelet: None, is_left_out: false });
        pool.object["spec"]["template"]["spec"]["nodeClassRef"]["name"] = json!(name);
    }
    derived
}

const DRIFT: &str = "whose hash is another one: where an operator acts on drift, nodes of this pool may be replaced";

/// The kubelet's settings of a pool as its class takes them; nothing where they do not count, or where the pool is left out.
fn fitted(
    kubelet: Map<String, Value>,
    pool: &mut Current<'_>,
    classes: &[Current<'_>],
    made: &mut Made,
) -> Option<Map<String, Value>> {
    if pool.is_left_out {
        return None;
    }
    let (from, path) = (pool.from, kubelet_path(pool.from));
    let class_name = class_of(&pool.object);
    let Some(class) = find_class(class_name, classes).map(|idx| &classes[idx]) else {
        let kind = pool.object.pointer("/spec/template/spec/nodeClassRef/kind").and_then(Value::as_str);
        let why = match kind {
            Some(kind) if kind != Kind::Ec2NodeClass.name() => format!("{kind} has none; take them out"),
            _ if class_name.is_empty() => "the pool names none".to_owned(),
            _ => format!("there is no EC2NodeClass {class_name:?} to go by; give it along"),
        };
        let message = format!("these belong to the class now, and {why}");
        made.refuse(from, path, &Value::Object(kubelet).to_string(), &message);
        pool.is_left_out = true;
        return None;
    };
    let read = serde_json::from_value::<Ec2NodeClass>(class.object.clone());
    let family = read.map_or(AmiFamily::Custom, |class| class.resolved_ami_family());
    let (kubelet, warnings) = older::fit_kubelet(&from.title(), path, &kubelet, &family);
    // Whoever wrote both in v1 was heard by the class: the annotation is what an earlier conversion left.
    let is_of_v1 = from.value["apiVersion"] == Kind::NodePool.api_version();
    if let Some(written) = kubelet_of(class).filter(|_| is_of_v1) {
        if *written != kubelet {
            let message = format!(
                "EC2NodeClass {class_name} has kubelet settings of its own, and those count; the annotation {KUBELET_CONVERSION} \
                 is left out"
            );
            made.warn(from, path, &message);
        }
        return None;
    }
    alpha::tell(warnings, Vec::new(), &[from], made);
    Some(kubelet)
}

/// Older objects have a field; upstream's conversion left an annotation.
fn kubelet_path(from: &Found) -> &'static str {
    let is_field = from.value.pointer("/spec/template/spec/kubelet").is_some();
    if is_field { "spec.template.spec.kubelet" } else { "metadata.annotations" }
}

fn find_class(name: &str, classes: &[Current<'_>]) -> Option<usize> {
    classes.iter().position(|class| class.is_named(name) && !class.is_left_out)
}

fn kubelet_of<'a>(class: &'a Current<'_>) -> Option<&'a Map<String, Value>> {
    class.object.pointer("/spec/kubelet")?.as_object().filter(|kubelet| !kubelet.is_empty())
}

/// Whether everybody who uses the pool's class wants the same settings, the class itself included. Who has none goes by the class.
fn is_agreed(pool: &Current<'_>, pools: &[Current<'_>], classes: &[Current<'_>]) -> bool {
    let class_name = class_of(&pool.object);
    let written = find_class(class_name, classes).and_then(|idx| kubelet_of(&classes[idx]));
    let mut others = pools.iter().filter(|other| !other.is_left_out && class_of(&other.object) == class_name);
    others.all(|other| other.kubelet.as_ref().or(written) == pool.kubelet.as_ref())
        && written.is_none_or(|written| Some(written) == pool.kubelet.as_ref())
}

/// The EC2NodeClass that a pool names; nothing for one that goes by another kind of class.
fn class_of(pool: &Value) -> &str {
    let reference = pool.pointer("/spec/template/spec/nodeClassRef");
    let text = |name: &str| reference.and_then(|reference| reference.get(name)?.as_str());
    text("name").filter(|_| text("kind") == Some("EC2NodeClass")).unwrap_or_default()
}
