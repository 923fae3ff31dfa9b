//! NodePools and node classes.

use crate::object::NodeClassObject;
use crate::read::{self, Reader};
use crate::requirement::{self, Author, Written};
use crate::settings::View;
use kerf_api::{LabelRules, NodePool};
use kerf_model::{Labels, NodeClassRef, PoolName, Requirements, Resources, Taint, Text};
use serde_json::Value;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub(crate) struct PoolFact {
    pub(crate) name: PoolName,
    pub(crate) weight: i32,
    pub(crate) labels: Labels,
    pub(crate) requirements: Requirements,
    pub(crate) taints: Vec<Taint>,
    pub(crate) startup_taints: Vec<Taint>,
    pub(crate) limits: Resources,
    pub(crate) node_class: NodeClassRef,
    pub(crate) is_static: bool,
    /// Why it cannot be used, by its own account.
    pub(crate) obstacle: Option<Text>,
}

impl PoolFact {
    pub(crate) fn read(reader: &mut Reader, pool: &NodePool, rules: &LabelRules, view: View) -> Self {
        let template = &pool.spec.template;
        let mut requirements = Requirements::new();
        for (position, written) in template.spec.requirements.iter().enumerate() {
            let field = format!("spec.template.spec.requirements[{position}]");
            let written = Written::of_pool(written);
            if let Some(message) = requirement::add(reader, &field, &mut requirements, written, Author::Pool, rules) {
                reader.fault(field, message);
            }
        }
        for problem in pool.validate(rules) {
            if !reader.has_note_on(&problem.path) {
                let message = format!("found {}; {}", problem.found, problem.wants);
                reader.fault(problem.path, message);
            }
        }
        let reference = &template.spec.node_class_ref;
        let mut fact = Self {
            name: PoolName(pool.metadata.name.as_deref().unwrap_or_default().into()),
            weight: pool.spec.weight.unwrap_or(0),
            labels: read::labels(template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref())),
            requirements,
            taints: reader.taints("spec.template.spec.taints", template.spec.taints.as_ref()),
            startup_taints: reader.taints("spec.template.spec.startupTaints", template.spec.startup_taints.as_ref()),
            limits: reader.resources("spec.limits", pool.spec.limits.as_ref()),
            node_class: NodeClassRef {
                group: reference.group.as_str().into(),
                kind: reference.kind.as_str().into(),
                name: reference.name.as_str().into(),
            },
            is_static: pool.spec.replicas.is_some(),
            obstacle: None,
        };
        fact.obstacle = fact.find_obstacle(reader, pool, view);
        fact
    }

    fn find_obstacle(&self, reader: &Reader, pool: &NodePool, view: View) -> Option<Text> {
        if read::is_deleting(&pool.metadata) {
            return Some("it is being deleted".into());
        }
        if let Some(fault) = &reader.fault {
            return Some(format!("{}: {}", fault.field, fault.message).into());
        }
        let conditions = pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let ready = read::condition(conditions, "Ready").map(|condition| condition.status.as_str());
        match (view, ready) {
            (_, Some("True")) | (View::Files, None | Some("Unknown")) => None,
            // The root condition only counts; the one that is to blame has the words.
            (_, Some("False")) => {
                let blamed = conditions
                    .iter()
                    .find(|condition| {
                        condition.status == "False"
                            && condition.type_ != "Ready"
                            && condition.type_ != "NodeRegistrationHealthy"
                    })
                    .or_else(|| read::condition(conditions, "Ready"));
                Some(blamed.map_or_else(String::new, in_words).into())
            }
            (View::Live, _) | (_, Some(_)) => Some("nobody has looked at it yet".into()),
        }
    }
}

fn in_words(condition: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition) -> String {
    let mut words = format!("{}={}", condition.type_, condition.status);
    for part in [&condition.reason, &condition.message] {
        if !part.is_empty() {
            words.push_str(", ");
            words.push_str(part);
        }
    }
    words
}

#[derive(Debug, Clone)]
pub(crate) struct ClassFact {
    pub(crate) value: Arc<Value>,
    pub(crate) obstacle: Option<Text>,
}

impl ClassFact {
    pub(crate) fn read(class: &NodeClassObject) -> Self {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        let ready = class
            .value
            .pointer("/status/conditions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .find(|condition| condition.get("type").and_then(Value::as_str) == Some("Ready"));
        let part = |part: &str| ready.and_then(|ready| ready.get(part)).and_then(Value::as_str).unwrap_or_default();
        let obstacle = if read::is_deleting(&class.metadata) {
            Some(format!("its {} {name} is being deleted", class.kind))
        } else if part("status") == "False" {
            let words = [part("reason"), part("message")].into_iter().filter(|words| !words.is_empty());
            Some(format!("its {} {name} is not ready: {}", class.kind, words.collect::<Vec<_>>().join(", ")))
        } else {
            None
        };
        Self { value: class.value.clone(), obstacle: obstacle.map(Into::into) }
    }
}
