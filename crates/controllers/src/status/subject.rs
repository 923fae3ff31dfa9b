//! Objects of different kinds, seen as what they all are here: a name, some labels, some conditions.

use super::Key;
use crate::events::About;
use crate::resource::{CAPACITY_BUFFERS, NODE_CLAIMS, NODE_POOLS, NODES, Resource};
use crate::world::World;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use kerf_api::{CapacityBuffer, NodeClaim, NodePool};
use kerf_cloud::CloudProvider;
use kerf_mirror::NodeClassObject;
use kerf_model::UnixMillis;
use serde_json::Value;
use std::sync::Arc;

/// The object itself is shared with the world.
#[derive(Debug, Clone)]
pub(crate) enum Subject {
    Claim(Arc<NodeClaim>),
    Pool(Arc<NodePool>),
    Node(Arc<Node>),
    Buffer(Arc<CapacityBuffer>),
    Class(Arc<NodeClassObject>),
}

/// One condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Statement<'a> {
    pub(crate) kind: &'a str,
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
    pub(crate) since: UnixMillis,
}

impl Subject {
    pub(crate) fn of(key: &Key, world: &World) -> Option<Self> {
        Some(match key {
            Key::Claim(name) => Self::Claim(world.claims.get(name)?.clone()),
            Key::Pool(name) => Self::Pool(world.pools.get(name)?.clone()),
            Key::Node(name) => Self::Node(world.nodes.get(name)?.clone()),
            Key::Buffer(namespace, name) => {
                Self::Buffer(world.buffers.get(&(namespace.clone(), name.clone()))?.clone())
            }
            Key::Class(class) => Self::Class(world.classes.get(class)?.clone()),
        })
    }

    pub(crate) fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Claim(claim) => &claim.metadata,
            Self::Pool(pool) => &pool.metadata,
            Self::Node(node) => &node.metadata,
            Self::Buffer(buffer) => &buffer.metadata,
            Self::Class(class) => &class.metadata,
        }
    }

    pub(crate) fn uid(&self) -> &str {
        self.metadata().uid.as_deref().unwrap_or_default()
    }

    pub(crate) fn kind(&self) -> &str {
        match self {
            Self::Class(class) => &class.kind,
            other => other.resource().map_or("", |resource| resource.kind),
        }
    }

    pub(crate) fn group(&self) -> &str {
        match self {
            Self::Class(class) => &class.group,
            other => other.resource().map_or("", |resource| resource.group),
        }
    }

    pub(crate) fn deleted_at(&self) -> Option<UnixMillis> {
        self.metadata().deletion_timestamp.as_ref().map(millis)
    }

    pub(crate) fn about(&self, cloud: &dyn CloudProvider) -> Option<About> {
        if let Some(resource) = self.resource() {
            return Some(About::of(resource, self.metadata()));
        }
        let classes = cloud.node_classes();
        let class = classes.iter().find(|class| class.kind == self.kind() && class.group == self.group())?;
        let resource = Resource {
            group: class.group,
            version: class.version,
            plural: class.plural,
            kind: class.kind,
            is_namespaced: false,
        };
        Some(About::of(resource, self.metadata()))
    }

    /// None for node classes: those are the provider's.
    fn resource(&self) -> Option<Resource> {
        match self {
            Self::Claim(_) => Some(NODE_CLAIMS),
            Self::Pool(_) => Some(NODE_POOLS),
            Self::Node(_) => Some(NODES),
            Self::Buffer(_) => Some(CAPACITY_BUFFERS),
            Self::Class(_) => None,
        }
    }
}

/// What is said of an object.
pub(crate) fn statements(subject: &Subject) -> Vec<Statement<'_>> {
    match subject {
        Subject::Claim(claim) => of_conditions(claim.status.as_ref().map(|status| status.conditions.as_slice())),
        Subject::Pool(pool) => of_conditions(pool.status.as_ref().map(|status| status.conditions.as_slice())),
        Subject::Buffer(buffer) => of_conditions(buffer.status.as_ref().map(|status| status.conditions.as_slice())),
        Subject::Node(node) => of_node(node),
        Subject::Class(class) => of_value(&class.value),
    }
}

fn of_conditions(conditions: Option<&[Condition]>) -> Vec<Statement<'_>> {
    let of = |condition: &'_ Condition| millis(&condition.last_transition_time);
    let conditions = conditions.unwrap_or_default().iter();
    conditions
        .map(|condition| Statement {
            kind: &condition.type_,
            status: &condition.status,
            reason: &condition.reason,
            message: &condition.message,
            since: of(condition),
        })
        .collect()
}

fn of_node(node: &Node) -> Vec<Statement<'_>> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions
        .iter()
        .map(|condition| Statement {
            kind: &condition.type_,
            status: &condition.status,
            reason: condition.reason.as_deref().unwrap_or_default(),
            message: condition.message.as_deref().unwrap_or_default(),
            since: condition.last_transition_time.as_ref().map_or(UnixMillis(0), millis),
        })
        .collect()
}

fn of_value(value: &Value) -> Vec<Statement<'_>> {
    let conditions = value.pointer("/status/conditions").and_then(Value::as_array);
    let read = |condition: &'_ Value| -> Option<UnixMillis> {
        let at: jiff::Timestamp = condition["lastTransitionTime"].as_str()?.parse().ok()?;
        Some(UnixMillis(at.as_millisecond()))
    };
    conditions
        .into_iter()
        .flatten()
        .map(|condition| Statement {
            kind: condition["type"].as_str().unwrap_or_default(),
            status: condition["status"].as_str().unwrap_or_default(),
            reason: condition["reason"].as_str().unwrap_or_default(),
            message: condition["message"].as_str().unwrap_or_default(),
            since: read(condition).unwrap_or(UnixMillis(0)),
        })
        .collect()
}

fn millis(time: &Time) -> UnixMillis {
    UnixMillis(time.0.as_millisecond())
}
