//! Storage classes: the default one, and whether a claim may grow.

use serde_json::Value;

use super::{Look, forbidden, is_annotated};
use crate::builtin::quantity::Quantity;
use crate::builtin::tree::{at, flag, has, open, text};
use crate::error::ApiError;

const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// A claim that names no class gets the default one; of several, the youngest.
pub(super) fn default_class(look: &dyn Look, claim: &mut Value) {
    let annotated = at(claim, "metadata.annotations").get("volume.beta.kubernetes.io/storage-class").is_some();
    if has(claim, "spec.storageClassName") || annotated {
        return;
    }
    let classes = look.list("storage.k8s.io", "storageclasses", "");
    let newest = classes
        .iter()
        .map(|stored| stored.value())
        .filter(|class| is_annotated(class, DEFAULT))
        .map(|class| (text(&class, "metadata.creationTimestamp").to_owned(), text(&class, "metadata.name").to_owned()))
        .min_by(|a, b| (&b.0, &a.1).cmp(&(&a.0, &b.1)));
    if let Some((_, name)) = newest {
        open(claim, "spec").insert("storageClassName".to_owned(), Value::from(name));
    }
}

pub(super) fn judge_growth(look: &dyn Look, new: &Value, old: &Value, name: &str) -> Result<(), ApiError> {
    let size = |claim: &Value| Quantity::of(at(claim, "spec.resources.requests.storage")).unwrap_or(Quantity::ZERO);
    if size(new) <= size(old) {
        return Ok(());
    }
    if text(old, "status.phase") != "Bound" {
        let why = "Only bound persistent volume claims can be expanded";
        return Err(forbidden("persistentvolumeclaims", name, why));
    }
    let class = text(new, "spec.storageClassName");
    let class = if class == text(old, "spec.storageClassName") { class } else { "" };
    let may_grow = look
        .get("storage.k8s.io", "storageclasses", "", class)
        .is_some_and(|stored| flag(&stored.value(), "allowVolumeExpansion"));
    if may_grow {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support \
               resize";
    Err(forbidden("persistentvolumeclaims", name, why))
}
