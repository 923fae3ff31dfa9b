//! ValidatingAdmissionPolicies: rules that a cluster's owner adds, asked of every object that is created or changed.
//!
//! ```text
//! binding ─▶ policy: does it match the request? ─▶ its conditions ─▶ its validations ─▶ denied, in the policy's words
//! ```
//!
//! Not here: parameters, variables, audit annotations, the authorizer, and requests to delete or connect. A policy that asks for one
//! of the first four cannot be read, and fails as its `failurePolicy` says. Policies are read anew for each request that they match: a
//! rehearsal has few.

use serde_json::{Value, json};

use super::Look;
use crate::builtin::tree::{at, entries, items, text};
use crate::custom::condition::{Condition, Sentence};
use crate::error::ApiError;
use crate::kind::{Resource, Subresource};
use crate::selector::Labels;

const GROUP: &str = "admissionregistration.k8s.io";
/// What an expression may name.
const NAMES: [&str; 4] = ["object", "oldObject", "request", "namespaceObject"];

/// What is asked for.
pub(super) struct Asked<'a> {
    pub(super) resource: &'a Resource,
    pub(super) subresource: Option<Subresource>,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) new: &'a Value,
    /// Null for a creation.
    pub(super) old: &'a Value,
}

pub(super) fn judge(look: &dyn Look, asked: &Asked<'_>) -> Result<(), ApiError> {
    // Policies cannot lock themselves away.
    if asked.resource.group == GROUP {
        return Ok(());
    }
    for binding in look.list(GROUP, "validatingadmissionpolicybindings", "") {
        let binding = binding.value();
        let Some(policy) = look.get(GROUP, "validatingadmissionpolicies", "", text(&binding, "spec.policyName")) else {
            continue;
        };
        let policy = policy.value();
        let denies = items(&binding, "spec.validationActions").iter().any(|action| action == "Deny");
        let bound = at(&binding, "spec.matchResources");
        if denies
            && asked.is_matched(look, at(&policy, "spec.matchConstraints"))
            && (bound.is_null() || asked.is_matched(look, bound))
        {
            asked.judge_by(look, &policy, text(&binding, "metadata.name"))?;
        }
    }
    Ok(())
}

impl Asked<'_> {
    fn operation(&self) -> &'static str {
        if self.old.is_null() { "CREATE" } else { "UPDATE" }
    }

    fn is_matched(&self, look: &dyn Look, constraints: &Value) -> bool {
        let rules = items(constraints, "resourceRules");
        let has_rule = |rules: &[Value]| rules.iter().any(|rule| self.is_ruled(rule));
        (rules.is_empty() || has_rule(rules))
            && !has_rule(items(constraints, "excludeResourceRules"))
            && selects(at(constraints, "objectSelector"), [self.new, self.old].as_slice())
            && self.is_in_namespace(look, at(constraints, "namespaceSelector"))
    }

    /// Whether a rule about groups, versions, operations and resources means this.
    fn is_ruled(&self, rule: &Value) -> bool {
        let has = |field: &str, word: &str| items(rule, field).iter().any(|given| given == "*" || given == word);
        let plural = self.resource.plural.as_str();
        let below = self.subresource.map(Subresource::name);
        let is_named = |given: &str| match (given.split_once('/'), below) {
            (None, None) => given == "*" || given == plural,
            (Some((of, sub)), Some(below)) => (of == "*" || of == plural) && (sub == "*" || sub == below),
            (Some(("*", "*")), None) => true,
            _ => false,
        };
        let names = items(rule, "resourceNames");
        let is_scoped = match text(rule, "scope") {
            "Cluster" => !self.resource.namespaced,
            "Namespaced" => self.resource.namespaced,
            _ => true,
        };
        has("apiGroups", &self.resource.group)
            && has("apiVersions", &self.resource.version)
            && has("operations", self.operation())
            && items(rule, "resources").iter().filter_map(Value::as_str).any(is_named)
            && (names.is_empty() || names.iter().any(|name| name == self.name))
            && is_scoped
    }

    fn is_in_namespace(&self, look: &dyn Look, selector: &Value) -> bool {
        if self.resource.is("", "Namespace") {
            return selects(selector, [self.new].as_slice());
        }
        if !self.resource.namespaced {
            return true;
        }
        let namespace = look.get("", "namespaces", "", self.namespace).map(|namespace| namespace.value());
        namespace.is_none_or(|namespace| selects(selector, [&namespace].as_slice()))
    }

    fn judge_by(&self, look: &dyn Look, policy: &Value, binding: &str) -> Result<(), ApiError> {
        let namespace = match self.resource.namespaced {
            true => look.get("", "namespaces", "", self.namespace).map(|namespace| namespace.value()),
            false => None,
        };
        let (request, namespace) = (self.request(), namespace.unwrap_or(Value::Null));
        let values =
            [("object", self.new), ("oldObject", self.old), ("request", &request), ("namespaceObject", &namespace)];
        let denied = |why: &str, reason: &str| {
            let policy = text(policy, "metadata.name");
            let message =
                format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {why}");
            Err(self.denied(&message, reason))
        };
        let fails = text(policy, "spec.failurePolicy") != "Ignore";
        if !at(policy, "spec.paramKind").is_null() {
            return if fails { denied("parameters are not known here", "") } else { Ok(()) };
        }
        for condition in items(policy, "spec.matchConditions") {
            match ask(text(condition, "expression"), &values) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(why) if fails => return denied(&why, ""),
                Err(_) => return Ok(()),
            }
        }
        for validation in items(policy, "spec.validations") {
            let expression = text(validation, "expression");
            match ask(expression, &values) {
                Ok(true) => {}
                Ok(false) => return denied(&message(validation, &values), text(validation, "reason")),
                Err(why) if fails => {
                    return denied(&format!("expression '{expression}' resulted in error: {why}"), "");
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// As much of an AdmissionRequest as there is to know.
    fn request(&self) -> Value {
        let (group, version) = (&self.resource.group, &self.resource.version);
        let (kind, resource) = (
            json!({"group": group, "version": version, "kind": self.resource.kind}),
            json!({"group": group, "version": version, "resource": self.resource.plural}),
        );
        json!({
            "kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource,
            "subResource": self.subresource.map_or("", Subresource::name),
            "name": self.name, "namespace": self.namespace, "operation": self.operation(),
        })
    }

    fn denied(&self, message: &str, reason: &str) -> ApiError {
        let mut error = ApiError::forbidden(&self.resource.group, &self.resource.plural, self.name, message);
        (error.code, error.reason) = match reason {
            "Unauthorized" => (401, "Unauthorized"),
            "Forbidden" => (403, "Forbidden"),
            "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
            _ => (422, "Invalid"),
        };
        error.cause("", message, "")
    }
}

fn ask(expression: &str, values: &[(&str, &Value)]) -> Result<bool, String> {
    Condition::read(expression, &NAMES)?.holds(values)
}

/// What a failed validation says: its own words, made or written, or else the expression.
fn message(validation: &Value, values: &[(&str, &Value)]) -> String {
    let made = Some(text(validation, "messageExpression"))
        .filter(|source| !source.is_empty())
        .and_then(|source| Sentence::read(source, &NAMES).and_then(|sentence| sentence.says(values)).ok());
    match (made, text(validation, "message")) {
        (Some(made), _) if !made.trim().is_empty() => made,
        (_, "") => format!("failed expression: {}", text(validation, "expression")),
        (_, written) => written.trim().to_owned(),
    }
}

/// Whether a selector takes one of the objects. One that is not there, and an empty one, take all.
fn selects(selector: &Value, objects: &[&Value]) -> bool {
    let Some(selector) = Labels::of_object(selector).filter(|selector| !selector.is_empty()) else { return true };
    objects.iter().filter(|object| !object.is_null()).any(|object| {
        let labels = entries(object, "metadata.labels");
        let labels = labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect();
        selector.match_map(&labels)
    })
}
