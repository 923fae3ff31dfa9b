//! Pieces that several kinds of v1beta1 share.

use crate::schema::parts::not_empty;
use crate::schema::{Merge, Schema, int64, list_of, object, text};

/// What v1 calls `WhenEmptyOrUnderutilized`.
pub const WHEN_UNDERUTILIZED: &str = "WhenUnderutilized";

pub(super) fn node_class_ref() -> Schema {
    object([
        (
            "apiVersion",
            text().about("API group and version of the NodeClass; karpenter.k8s.aws unless said otherwise."),
        ),
        ("kind", text().about("Kind of the NodeClass; EC2NodeClass unless said otherwise.")),
        ("name", text().rule(not_empty()).about("Name of the NodeClass.")),
    ])
    .require(["name"])
    .about("The NodeClass that says how the cloud builds these nodes.")
}

/// Looser than v1, and with a severity: releases before 0.36 wrote conditions in the manner of Knative.
pub(super) fn conditions() -> Schema {
    list_of(
        object([
            ("lastTransitionTime", text().about("When the status last changed.")),
            ("message", text().about("The same in a sentence, for people.")),
            ("observedGeneration", int64().about("The generation of the object that this statement is about.")),
            ("reason", text().about("Why the status is what it is, in one word for programs.")),
            ("severity", text().about("How much it matters that the status is not True.")),
            ("status", text().about("Whether the statement holds: True, False or Unknown.")),
            ("type", text().about("What the statement is about.")),
        ])
        .require(["status", "type"]),
    )
    .merge(Merge::MapBy("type"))
    .about("What is known about the object, one statement per type.")
}
