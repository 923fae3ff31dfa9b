//! Pieces that several kinds share.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

/// Resource name to amount, both as written.
pub type ResourceList = BTreeMap<String, Quantity>;

choice! {
    /// How a requirement compares a label with its values.
    Operator {
        In = "In",
        NotIn = "NotIn",
        Exists = "Exists",
        DoesNotExist = "DoesNotExist",
        Gt = "Gt",
        Lt = "Lt",
        Gte = "Gte",
        Lte = "Lte",
    }
}

impl Operator {
    /// Whether the operator compares with exactly one whole number.
    pub fn compares_numbers(&self) -> bool {
        matches!(self, Self::Gt | Self::Lt | Self::Gte | Self::Lte)
    }
}

/// One condition on a node label, as NodePool and NodeClaim write it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    #[serde(default, deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// The launch must keep at least this many different values open (alpha).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_values: Option<i64>,
}

/// Which NodeClass a pool or claim is built with.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeClassRef {
    pub group: String,
    pub kind: String,
    pub name: String,
}

/// Go writes an empty list as `null` where a field is not `omitempty`; both mean "none".
pub(crate) fn null_as_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
