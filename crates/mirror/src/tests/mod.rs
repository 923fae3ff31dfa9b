//! Small clusters in YAML, and what is seen of them. One helper knows the API; the rest is data.

mod bad_input;
mod nodes;
mod pods;
mod pools;
mod topology;
mod volumes;
mod workloads;

use crate::{Inquiry, Mirror, MirrorSettings, Stock, Supply, View};
use kerf_model::{
    CapacityType, InstanceType, Money, NodeClassRef, Offering, Quantity, Requirement, Requirements, Resources,
    Snapshot, Text, TypeName, UnixMillis, Why, labels,
};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Sells `t.small` in zones a and b, on demand for $1 and spot for $0.3, to classes of kind `TestNodeClass`.
pub(crate) struct TestSupply;

impl Supply for TestSupply {
    fn serves(&self, node_class: &NodeClassRef) -> bool {
        &*node_class.kind == "TestNodeClass"
    }

    fn types(&self, inquiries: &[Inquiry<'_>], _: &[Arc<kerf_api::NodeOverlay>]) -> Stock {
        let offering = |zone: &str, kind, dollars| Offering::new(zone, kind, Money::from_dollars(dollars));
        let small = InstanceType {
            name: "t.small".into(),
            requirements: Requirements::new().with(labels::INSTANCE_TYPE, Requirement::is_in(["t.small"])),
            offerings: vec![
                offering("a", CapacityType::OnDemand, 1.0),
                offering("b", CapacityType::OnDemand, 1.1),
                offering("a", CapacityType::Spot, 0.3),
            ],
            capacity: Resources::new().with("cpu", Quantity::from_units(2)),
            overhead: Resources::new(),
            attach_limits: BTreeMap::from([("ebs.csi.aws.com".into(), 26)]),
        };
        let types: crate::Types = Arc::from([Arc::new(small)]);
        Stock { types: inquiries.iter().map(|_| Ok(types.clone())).collect(), rejected_overlays: Vec::new() }
    }

    fn price(&self, instance_type: &TypeName, _: Option<&Text>, _: CapacityType) -> Option<Money> {
        (instance_type.as_str() == "m5.large").then(|| Money::from_dollars(0.096))
    }
}

pub(crate) fn observed(settings: MirrorSettings, yaml: &str) -> Mirror {
    let mut mirror = Mirror::new(settings);
    for (position, document) in serde_norway::Deserializer::from_str(yaml).enumerate() {
        let value = Value::deserialize(document).unwrap();
        mirror.observe_value(&format!("test.yaml#{position}"), value);
    }
    mirror
}

pub(crate) fn files() -> MirrorSettings {
    MirrorSettings::new(View::Files)
}

pub(crate) fn snapshot(yaml: &str) -> Snapshot {
    observed(files(), yaml).snapshot(UnixMillis(1_700_000_000_000), &TestSupply)
}

/// `namespace/name` of the pods that wait, in order.
pub(crate) fn waiting(snapshot: &Snapshot) -> String {
    snapshot.pods.iter().map(|pod| pod.id.to_string()).collect::<Vec<_>>().join(" ")
}

/// Object, field and message of every note.
pub(crate) fn notes(snapshot: &Snapshot) -> String {
    let line = |note: &kerf_model::Note| format!("{} | {} | {}", note.object, note.field, note.message);
    snapshot.notes.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(crate) fn ill(snapshot: &Snapshot) -> String {
    let line = |(pod, why): &(kerf_model::PodId, Why)| format!("{pod}: {why}");
    snapshot.ill.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A pod named `p` with the given fields of its spec added.
pub(crate) fn pod(spec: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: p, labels: {{app: p}}}}, spec: {{containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}], {spec}}}}}"
    )
}
