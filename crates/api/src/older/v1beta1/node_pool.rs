//! The schema of NodePool v1beta1.

use serde_json::json;

use super::kubelet;
use super::parts::{WHEN_UNDERUTILIZED, conditions, node_class_ref};
use crate::schema::node_pool::{budget, budgets, template_metadata};
use crate::schema::parts::{requirements, resource_list, taints};
use crate::schema::rule::Look as _;
use crate::schema::{Rule, Schema, int_or_text, int32, object, one_of, patterns, text};

pub(super) fn schema() -> Schema {
    object([("spec", spec()), ("status", status())])
        .require(["spec"])
        .about("A NodePool says what nodes may look like, how many there may be, and when they may be replaced.")
}

fn spec() -> Schema {
    object([
        ("template", template()),
        ("disruption", disruption()),
        ("limits", limits()),
        ("weight", int32().range(1, 100).about("Pools of higher weight are tried first. Unset counts as 0.")),
    ])
    .require(["template"])
    .about("What is wanted of the pool.")
}

fn template() -> Schema {
    object([("metadata", template_metadata()), ("spec", template_spec())])
        .require(["spec"])
        .about("The form that every NodeClaim of the pool is cast in. Changing it drifts the nodes made before.")
}

fn template_spec() -> Schema {
    object([
        ("taints", taints("Taints that every node of the pool carries for good.")),
        (
            "startupTaints",
            taints("Taints that nodes are born with and that someone else takes off; pods need not tolerate them."),
        ),
        ("requirements", requirements(false)),
        (
            "resources",
            object([("requests", resource_list().about("Amounts per resource."))])
                .about("Means something on a NodeClaim only."),
        ),
        ("kubelet", kubelet::schema()),
        ("nodeClassRef", node_class_ref()),
    ])
    .require(["requirements", "nodeClassRef"])
    .about("What is wanted of every node.")
}

/// As published, but that `WhenUnderutilized` may have a `consolidateAfter`, which v1 wants and documents write.
fn disruption() -> Schema {
    let duration = || text().pattern(patterns::DURATION_OR_NEVER);
    object([
        (
            "consolidateAfter",
            duration()
                .about("How long a node must have been quiet before consolidation looks at it; `Never` forbids it."),
        ),
        (
            "consolidationPolicy",
            one_of(&["WhenEmpty", WHEN_UNDERUTILIZED])
                .default(json!(WHEN_UNDERUTILIZED))
                .about("Which nodes consolidation may remove or replace."),
        ),
        (
            "expireAfter",
            duration().default(json!("720h")).about("The age at which a node is replaced; `Never` keeps it."),
        ),
        ("budgets", budgets(budget().without("reasons"))),
    ])
    .default(json!({"consolidationPolicy": WHEN_UNDERUTILIZED, "expireAfter": "720h"}))
    .about("When and how fast nodes may be replaced.")
    .rule(Rule::new(
        "self.consolidationPolicy == 'WhenEmpty' ? has(self.consolidateAfter) : true",
        "consolidationPolicy WhenEmpty needs a consolidateAfter",
        |disruption| disruption.at("consolidationPolicy") != "WhenEmpty" || disruption.has("consolidateAfter"),
    ))
}

/// Flat as published, or nested below `resources` as v1alpha5 had it. A map whose values differ in type cannot be
/// described, so the commonest resources are, and any other is kept.
fn limits() -> Schema {
    let amount = |about| int_or_text().pattern(patterns::QUANTITY).about(about);
    object([
        ("cpu", amount("Cores.")),
        ("memory", amount("Bytes of memory.")),
        ("nodes", amount("The nodes themselves.")),
        ("pods", amount("Pods.")),
        ("resources", resource_list().about("The same, one level deeper, as older manifests have it.")),
    ])
    .keeping_unknown()
    .about("The pool stops growing when the sum over its nodes would pass one of these.")
    .rule(Rule::new(
        "!has(self.resources) || !(has(self.cpu) || has(self.memory) || has(self.nodes) || has(self.pods))",
        "limits stand either in limits or in limits.resources, not in both; move those of limits.resources to limits",
        |limits| !limits.has("resources") || !["cpu", "memory", "nodes", "pods"].iter().any(|name| limits.has(name)),
    ))
}

fn status() -> Schema {
    object([
        ("resources", resource_list().about("What the nodes of the pool hold together.")),
        ("conditions", conditions()),
    ])
    .about("What is known of the pool.")
}
