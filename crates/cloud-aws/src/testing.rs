//! For tests: orders and types in a line.

use kerf_cloud::LaunchOrder;
use kerf_model::{
    CapacityType, InstanceType, Money, NodeClassRef, Offering, Quantity, Requirement, Requirements, Resources, labels,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A claim of the pool `default` that anything suits.
pub(crate) fn order(name: &str, class: Option<Value>) -> LaunchOrder {
    LaunchOrder {
        claim: name.into(),
        uid: name.into(),
        pool: Some("default".into()),
        node_class: NodeClassRef {
            group: "karpenter.k8s.aws".into(),
            kind: "EC2NodeClass".into(),
            name: "default".into(),
        },
        class_object: class.map(Arc::new),
        requirements: Requirements::new(),
        requests: Resources::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        avoid: Vec::new(),
    }
}

/// `m5.large a:spot:10 b:on-demand:20`: a type of 2 CPUs and 29 pods; prices are in thousandths of a dollar. A reserved offering
/// is `a:reserved:1:cr-1:3`, with `:block` or `:interruptible` behind it where it is one. A `!` before the zone: not available.
pub(crate) fn type_of(text: &str) -> Arc<InstanceType> {
    let mut words = text.split_whitespace();
    let name = words.next().expect("a type has a name");
    let (family, size) = name.split_once('.').expect("a type has a size");
    let offerings = words.map(offering).collect();
    Arc::new(InstanceType {
        name: name.into(),
        requirements: Requirements::new()
            .with(labels::INSTANCE_TYPE, Requirement::is_in([name]))
            .with(kerf_api::labels::INSTANCE_FAMILY, Requirement::is_in([family]))
            .with(kerf_api::labels::INSTANCE_SIZE, Requirement::is_in([size])),
        offerings,
        capacity: Resources::new().with("cpu", Quantity::from_units(2)).with("pods", Quantity::from_units(29)),
        overhead: Resources::new(),
        attach_limits: BTreeMap::new(),
    })
}

fn offering(text: &str) -> Offering {
    let (text, available) = text.strip_prefix('!').map_or((text, true), |rest| (rest, false));
    let parts: Vec<&str> = text.split(':').collect();
    let [zone, kind, price, reserved @ ..] = &parts[..] else { panic!("{text} is no offering") };
    let kind = CapacityType::parse(kind).expect("a capacity type");
    let mut out = Offering::new(zone, kind, Money::from_micros(price.parse::<i64>().expect("a price") * 1_000));
    out.available = available;
    if let [id, room, marks @ ..] = reserved {
        let reservation_type = if marks.contains(&"block") { "capacity-block" } else { "default" };
        let interruptible = if marks.contains(&"interruptible") { "true" } else { "false" };
        for (key, value) in [
            (kerf_api::labels::CAPACITY_RESERVATION_ID, *id),
            (kerf_api::labels::CAPACITY_RESERVATION_TYPE, reservation_type),
            (kerf_api::labels::CAPACITY_RESERVATION_INTERRUPTIBLE, interruptible),
        ] {
            out.require(key, Requirement::is_in([value]));
        }
        out.reservation_capacity = room.parse().ok();
    }
    out
}
