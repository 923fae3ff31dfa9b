//! The schema of NodeClaim.

use serde_json::json;

use super::parts::{node_class_ref, relaxed_conditions, requirements, resource_list, taints};
use super::{Rule, Schema, instant, object, patterns, text};

pub(crate) fn schema() -> Schema {
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
        ("nodeClassRef", node_class_ref()),
        (
            "terminationGracePeriod",
            text().pattern(patterns::DURATION).about(
                "How long the node may drain before what is left on it is deleted by force. Unset waits \
                 for as long as it takes.",
            ),
        ),
        (
            "expireAfter",
            text()
                .pattern(patterns::DURATION_OR_NEVER)
                .default(json!("720h"))
                .about("The age at which the node is replaced, whatever its state; `Never` keeps it."),
        ),
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
        ("lastPodEventTime", instant().about("When a pod last came to the node, ended or began to leave.")),
        ("conditions", relaxed_conditions()),
    ])
    .about("What became of the claim.")
}
