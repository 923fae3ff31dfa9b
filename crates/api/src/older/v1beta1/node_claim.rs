//! The schema of NodeClaim v1beta1.

use super::kubelet;
use super::parts::{conditions, node_class_ref};
use crate::schema::parts::{requirements, resource_list, taints};
use crate::schema::{Rule, Schema, object, text};

pub(super) fn schema() -> Schema {
    object([("spec", spec()), ("status", status())])
        .require(["spec"])
        .about("A NodeClaim is one node that was asked for, from the wish to the running machine.")
}

fn spec() -> Schema {
    object([
        ("taints", taints("Taints that the node carries for good.")),
        ("startupTaints", taints("Taints that the node is born with and that someone else takes off.")),
        ("requirements", requirements(true)),
        (
            "resources",
            object([("requests", resource_list().about("Amounts per resource."))])
                .about("The least the launched node must provide."),
        ),
        ("kubelet", kubelet::schema()),
        ("nodeClassRef", node_class_ref()),
    ])
    .require(["requirements", "nodeClassRef"])
    .rule(Rule::on_change(
        "self == oldSelf",
        "the spec of a NodeClaim never changes; make a new claim instead",
        |new, old| new == old,
    ))
    .about("What is wanted of the node. It never changes.")
}

fn status() -> Schema {
    object([
        ("nodeName", text().about("The Node that came of it.")),
        ("providerID", text().about("How the cloud calls the machine.")),
        ("imageID", text().about("The image the machine was started from.")),
        ("capacity", resource_list().about("What the machine is expected to hold.")),
        ("allocatable", resource_list().about("What of it is expected to be left for pods.")),
        ("conditions", conditions()),
    ])
    .about("What became of the claim.")
}
