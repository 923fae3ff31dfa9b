//! The schema of CapacityBuffer.

use serde_json::json;

use super::parts::{conditions, resource_list};
use super::rule::Look as _;
use super::{Rule, Schema, int32, int64, object, text};

pub(crate) fn schema() -> Schema {
    object([("spec", spec()), ("status", status())])
        .require(["spec"])
        .about("Alpha. A CapacityBuffer keeps room free for pods that have not come yet.")
}

fn spec() -> Schema {
    object([
        (
            "provisioningStrategy",
            text()
                .default(json!("buffer.x-k8s.io/active-capacity"))
                .about("How the room is kept: by default as running, empty capacity."),
        ),
        (
            "podTemplateRef",
            local_object_ref("The PodTemplate, in the same namespace, that one unit of the buffer looks like."),
        ),
        (
            "scalableRef",
            object([
                ("apiGroup", text().about("API group of the workload; empty means apps.")),
                ("kind", text().min_length(1).about("Deployment, StatefulSet or ReplicaSet.")),
                ("name", text().min_length(1).about("Name of the workload, in the same namespace.")),
            ])
            .require(["kind", "name"])
            .about("The workload whose pods one unit of the buffer looks like."),
        ),
        ("replicas", int32().at_least(0).about("How many units to keep.")),
        (
            "percentage",
            int32()
                .at_least(0)
                .about("How many units to keep, as a share of the workload's replicas; the larger of the two counts."),
        ),
        ("limits", resource_list().about("The buffer never asks for more than this.")),
    ])
    .rule(Rule::new(
        "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
        "podTemplateRef needs replicas or limits to say how much",
        |spec| !spec.has("podTemplateRef") || spec.has("replicas") || spec.has("limits"),
    ))
    .rule(Rule::new(
        "!(has(self.podTemplateRef) && has(self.scalableRef))",
        "set podTemplateRef or scalableRef, not both",
        |spec| !(spec.has("podTemplateRef") && spec.has("scalableRef")),
    ))
    .about("How much room, and of what shape.")
}

fn local_object_ref(about: &'static str) -> Schema {
    object([("name", text().min_length(1).about("Name of the object."))]).require(["name"]).about(about)
}

fn status() -> Schema {
    object([
        ("podTemplateRef", local_object_ref("The PodTemplate that was read.")),
        ("podTemplateGeneration", int64().about("The generation of it that was read.")),
        ("replicas", int32().about("How many units the buffer comes to.")),
        ("provisioningStrategy", text().about("The strategy in use.")),
        ("conditions", conditions()),
    ])
    .about("What became of the buffer.")
}
