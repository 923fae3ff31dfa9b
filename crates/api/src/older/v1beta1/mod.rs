//! The kinds as v1beta1 had them: what may be written, what is filled in, what is refused.
//!
//! Where this generation is the same as v1, the parts of the v1 schema are used, so that a v1beta1 object may also say
//! what only later releases knew there (`minValues`, the operators `Gte` and `Lte`, `volumeInitializationRate`). On
//! purpose it takes more than the published v1beta1: nested limits, `WhenUnderutilized` with `consolidateAfter`, a role
//! that changes.

mod ec2_node_class;
mod kubelet;
mod node_claim;
mod node_pool;
mod parts;

use std::sync::LazyLock;

use serde_json::Value;

use crate::kind::Kind;
use crate::problem::Problem;
use crate::schema::{self, Schema};

pub use ec2_node_class::{AMI_FAMILIES, UBUNTU};
pub use parts::WHEN_UNDERUTILIZED;

pub const VERSION: &str = "v1beta1";

/// The kinds that this generation had.
pub const KINDS: &[Kind] = &[Kind::NodePool, Kind::NodeClaim, Kind::Ec2NodeClass];

/// The kind of an object of this generation; `None` for everything else, v1 included.
pub fn kind_of(object: &Value) -> Option<Kind> {
    let (api_version, name) = (object.get("apiVersion")?.as_str()?, object.get("kind")?.as_str()?);
    let (group, version) = api_version.split_once('/')?;
    KINDS.iter().copied().find(|kind| version == VERSION && kind.group() == group && kind.name() == name)
}

/// Fills in what the API server would have filled in. Does nothing for a kind that this generation did not have.
pub fn apply_defaults(kind: Kind, object: &mut Value) {
    if let Some(schema) = schema(kind) {
        schema::fill_defaults(schema, object);
    }
}

/// Everything an API server would refuse `object` for, defaults being filled in. `old` is the object before an update.
pub fn check(kind: Kind, object: &Value, old: Option<&Value>) -> Vec<Problem> {
    schema(kind).map_or_else(Vec::new, |schema| schema::check(schema, object, old))
}

/// Fields that this generation does not have; an API server drops them.
pub fn unknown_fields(kind: Kind, object: &Value) -> Vec<String> {
    schema(kind).map_or_else(Vec::new, |schema| schema::unknown_fields(schema, object))
}

pub(crate) fn schema(kind: Kind) -> Option<&'static Schema> {
    static SCHEMAS: LazyLock<[Schema; 3]> =
        LazyLock::new(|| [node_pool::schema(), node_claim::schema(), ec2_node_class::schema()]);
    let idx = KINDS.iter().position(|known| *known == kind)?;
    Some(&SCHEMAS[idx])
}
