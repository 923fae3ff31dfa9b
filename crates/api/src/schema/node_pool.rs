//! The schema of NodePool.

use serde_json::json;

use super::parts::{conditions, keys_are_not, node_class_ref, requirements, resource_list, restricted_keys, taints};
use super::rule::Look as _;
use super::{Merge, Rule, Schema, int32, int64, list_of, map_of, object, one_of, patterns, text};
use crate::labels::{self, restricted_in_schema};
use crate::objects::{ConsolidationPolicy, DisruptionReason};

pub(crate) fn schema() -> Schema {
    object([("spec", spec()), ("status", status())])
        .require(["spec"])
        .about("A NodePool says what nodes may look like, how many there may be, and when they may be replaced.")
}

fn spec() -> Schema {
    object([
        ("template", template()),
        ("disruption", disruption()),
        (
            "limits",
            resource_list().about(
                "The pool stops growing when the sum over its nodes would pass one of these; \
                 `nodes` counts the nodes themselves.",
            ),
        ),
        ("weight", int32().range(1, 100).about("Pools of higher weight are tried first. Unset counts as 0.")),
        (
            "replicas",
            int64()
                .at_least(0)
                .about("Alpha. Makes the pool static: it keeps this many nodes whether or not pods ask for them."),
        ),
    ])
    .require(["template"])
    .rule(Rule::on_change(
        "has(self.replicas) == has(oldSelf.replicas)",
        "a pool stays static (with replicas) or dynamic (without) for life; make a new pool instead",
        |new, old| new.has("replicas") == old.has("replicas"),
    ))
    .rule(Rule::new(
        "!has(self.replicas) || !has(self.limits) || self.limits.size() == ('nodes' in self.limits ? 1 : 0)",
        "a pool with replicas can limit nothing but nodes",
        |spec| {
            let limits = spec.at("limits");
            !spec.has("replicas") || !spec.has("limits") || limits.n_entries() == usize::from(limits.has("nodes"))
        },
    ))
    .rule(Rule::new(
        "!(has(self.replicas) && has(self.weight))",
        "a pool with replicas has no weight; set one or the other",
        |spec| !(spec.has("replicas") && spec.has("weight")),
    ))
    .about("What is wanted of the pool.")
}

fn template() -> Schema {
    object([("metadata", template_metadata()), ("spec", template_spec())])
        .require(["spec"])
        .about("The form that every NodeClaim of the pool is cast in. Changing it drifts the nodes made before.")
}

pub(crate) fn template_metadata() -> Schema {
    object([
        ("labels", template_labels()),
        (
            "annotations",
            map_of(text()).merge(Merge::GranularMap).about("Annotations that every node of the pool gets."),
        ),
    ])
    .about("Labels and annotations of the nodes.")
}

fn template_labels() -> Schema {
    map_of(text().max_length(63).pattern(patterns::LABEL_VALUE))
        .max_properties(100)
        .merge(Merge::AtomicMap)
        .about("Labels that every node of the pool gets.")
        .rule(restricted_keys(restricted_in_schema::CORE))
        .rule(keys_are_not(labels::NODE_POOL))
        .rule(keys_are_not(labels::HOSTNAME))
        .rule(restricted_keys(restricted_in_schema::AWS))
}

fn template_spec() -> Schema {
    object([
        ("taints", taints("Taints that every node of the pool carries for good.")),
        (
            "startupTaints",
            taints("Taints that nodes are born with and that someone else takes off; pods need not tolerate them."),
        ),
        ("requirements", requirements(false)),
        ("nodeClassRef", fixed_node_class_ref()),
        (
            "terminationGracePeriod",
            text().pattern(patterns::DURATION).about(
                "How long a node may drain before what is left on it is deleted by force. Unset waits \
                 for as long as it takes.",
            ),
        ),
        (
            "expireAfter",
            text()
                .pattern(patterns::DURATION_OR_NEVER)
                .default(json!("720h"))
                .about("The age at which a node is replaced, whatever its state; `Never` keeps it."),
        ),
    ])
    .require(["requirements", "nodeClassRef"])
    .about("What is wanted of every node.")
}

/// A pool may move to another NodeClass of the same kind, never to another kind.
fn fixed_node_class_ref() -> Schema {
    node_class_ref()
        .rule(Rule::on_change(
            "self.group == oldSelf.group",
            "the group of the NodeClass cannot change; make a new pool instead",
            |new, old| new.at("group") == old.at("group"),
        ))
        .rule(Rule::on_change(
            "self.kind == oldSelf.kind",
            "the kind of the NodeClass cannot change; make a new pool instead",
            |new, old| new.at("kind") == old.at("kind"),
        ))
}

fn disruption() -> Schema {
    object([
        (
            "consolidateAfter",
            text().pattern(patterns::DURATION_OR_NEVER).default(json!("0s")).about(
                "How long a node must have been quiet (no pod came or went) before consolidation looks \
                 at it; `Never` forbids it.",
            ),
        ),
        (
            "consolidationPolicy",
            one_of(ConsolidationPolicy::WORDS)
                .default(json!("WhenEmptyOrUnderutilized"))
                .about("Which nodes consolidation may remove or replace."),
        ),
        ("budgets", budgets(budget())),
    ])
    .default(json!({"consolidateAfter": "0s"}))
    .about("When and how fast nodes may be replaced of our own will.")
}

pub(crate) fn budget() -> Schema {
    object([
        (
            "nodes",
            text()
                .pattern(patterns::BUDGET_NODES)
                .default(json!("10%"))
                .about("At most this many nodes at once: a count, or a percentage of the pool (rounded up)."),
        ),
        (
            "reasons",
            list_of(one_of(DisruptionReason::WORDS))
                .merge(Merge::Set)
                .max_items(50)
                .about("The reasons this budget is for. Unset means all of them."),
        ),
        (
            "schedule",
            text().pattern(patterns::BUDGET_SCHEDULE).about(
                "When the budget begins to hold: five cron fields or a macro such as @daily, in UTC. \
                 Goes with `duration`.",
            ),
        ),
        (
            "duration",
            text()
                .pattern(patterns::BUDGET_DURATION)
                .about("How long it then holds, in hours and minutes. Goes with `schedule`."),
        ),
    ])
    .require(["nodes"])
}

pub(crate) fn budgets(budget: Schema) -> Schema {
    list_of(budget)
        .merge(Merge::AtomicList)
        .max_items(50)
        .default(json!([{"nodes": "10%"}]))
        .about("Limits on how many nodes are disrupted at once. Of all that hold at a moment, the tightest counts.")
        .rule(Rule::new(
            "self.all(b, has(b.schedule) == has(b.duration))",
            "schedule and duration go together; set both or neither",
            |list| list.items().iter().all(|b| b.has("schedule") == b.has("duration")),
        ))
}

fn status() -> Schema {
    object([
        ("resources", resource_list().about("What the nodes of the pool hold together.")),
        ("nodes", int64().default(json!(0)).about("How many nodes the pool has.")),
        (
            "nodeClassObservedGeneration",
            int64().about(
                "The generation of the NodeClass at the last look; a new one starts the registration record afresh.",
            ),
        ),
        ("conditions", conditions()),
    ])
    .about("What is known of the pool.")
}
