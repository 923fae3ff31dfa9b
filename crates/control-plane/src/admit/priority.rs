//! Priorities: a pod's number comes from its class, and one class at most is everybody's.

use serde_json::Value;

use super::{Look, forbidden, stored_flag};
use crate::builtin::tree::{flag, int, open, text};
use crate::error::ApiError;

const GROUP: &str = "scheduling.k8s.io";
const PLURAL: &str = "priorityclasses";

struct Class {
    name: String,
    value: i64,
    policy: String,
}

fn class_of(object: &Value) -> Class {
    let policy = text(object, "preemptionPolicy");
    Class {
        name: text(object, "metadata.name").to_owned(),
        value: int(object, "value").unwrap_or_default(),
        policy: if policy.is_empty() { "PreemptLowerPriority" } else { policy }.to_owned(),
    }
}

/// Of several defaults the lowest counts.
fn default_class(look: &dyn Look) -> Option<Class> {
    let all = look.list(GROUP, PLURAL, "");
    let defaults = all.iter().filter(|stored| stored_flag(stored, "globalDefault"));
    defaults.map(|stored| class_of(&stored.value())).min_by(|a, b| (a.value, &a.name).cmp(&(b.value, &b.name)))
}

pub(super) fn admit(look: &dyn Look, pod: &mut Value, name: &str) -> Result<(), ApiError> {
    let asked = text(pod, "spec.priorityClassName").to_owned();
    let class = if asked.is_empty() {
        default_class(look).unwrap_or(Class {
            name: String::new(),
            value: 0,
            policy: "PreemptLowerPriority".to_owned(),
        })
    } else {
        let Some(stored) = look.get(GROUP, PLURAL, "", &asked) else {
            let why = format!("no PriorityClass with name {asked} was found");
            return Err(forbidden("pods", name, &why));
        };
        class_of(&stored.value())
    };
    if let Some(given) = int(pod, "spec.priority").filter(|given| *given != class.value) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {} from the given PriorityClass name",
            class.value
        );
        return Err(forbidden("pods", name, &why));
    }
    let policy = text(pod, "spec.preemptionPolicy");
    if !policy.is_empty() && policy != class.policy {
        let why = format!(
            "the string value of PreemptionPolicy ({policy}) must not be provided in pod spec; priority admission \
             controller computed {} from the given PriorityClass name",
            class.policy
        );
        return Err(forbidden("pods", name, &why));
    }
    let spec = open(pod, "spec");
    if !class.name.is_empty() {
        spec.insert("priorityClassName".to_owned(), Value::from(class.name));
    }
    spec.insert("priority".to_owned(), Value::from(class.value));
    spec.insert("preemptionPolicy".to_owned(), Value::from(class.policy));
    Ok(())
}

/// One class at most is the default.
pub(super) fn one_default(look: &dyn Look, class: &Value, name: &str, is_create: bool) -> Result<(), ApiError> {
    if !flag(class, "globalDefault") {
        return Ok(());
    }
    match default_class(look) {
        Some(other) if is_create || other.name != name => {
            let why = format!("PriorityClass {} is already marked as default. Only one default can exist", other.name);
            Err(ApiError::forbidden(GROUP, PLURAL, name, &why))
        }
        _ => Ok(()),
    }
}
