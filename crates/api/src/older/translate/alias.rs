//! An EC2NodeClass of `compute.k8s.aws`, read as the one of `karpenter.k8s.aws/v1beta1` that was meant.

use serde_json::{Value, json};

use super::read::{Section, Told};
use crate::kind::Kind;
use crate::older::{UBUNTU, UBUNTU_INCOMPATIBLE, convert, v1beta1};

const KIND: Kind = Kind::Ec2NodeClass;

/// The spec in v1.
pub(super) fn spec(root: &Section<'_>, name: &str, told: &mut Told) -> Value {
    let mut meant = json!({
        "apiVersion": format!("{}/{}", KIND.group(), v1beta1::VERSION),
        "kind": KIND.name(),
        "metadata": {"name": name},
    });
    match root.get("spec") {
        Some(spec) => meant["spec"] = spec.clone(),
        None => told.miss(root.at("spec"), "this field is required"),
    }
    for path in v1beta1::unknown_fields(KIND, &meant) {
        told.shrug(root.at(&path), &json!("a field"), "there is no such field; it is left out");
    }
    v1beta1::apply_defaults(KIND, &mut meant);
    let problems = v1beta1::check(KIND, &meant, None);
    let is_sound = problems.is_empty();
    problems.into_iter().for_each(|problem| told.pass_on(root.at(&problem.path), problem));
    let mut made = match convert(&meant, &KIND.api_version()) {
        Ok(made) => made,
        Err(error) => {
            told.refuse(root.at("spec"), &meant["spec"], error.to_string());
            return json!({});
        }
    };
    let note = made["metadata"]["annotations"][UBUNTU].as_str().unwrap_or_default();
    if note.split(',').any(|word| word == UBUNTU_INCOMPATIBLE) {
        told.refuse(root.at("spec.amiFamily"), &json!("Ubuntu"), super::images::NO_UBUNTU_TERMS);
    }
    if is_sound {
        // What v1beta1 takes and v1 does not has the same name in both.
        KIND.check(&made, None).into_iter().for_each(|problem| told.pass_on(root.at(&problem.path), problem));
    }
    made["spec"].take()
}
