//! Whatever stands in a dump becomes facts or notes, never a panic; and looking twice shows the same.

use kerf_api::NodeOverlay;
use kerf_mirror::{Inquiry, Mirror, MirrorSettings, Stock, Supply, View};
use kerf_model::{CapacityType, Money, NodeClassRef, Text, TypeName, UnixMillis};
use serde_json::Value;
use std::sync::Arc;

pub(crate) fn check(text: &str) {
    let mut mirror = Mirror::new(MirrorSettings::new(View::Files));
    for (position, document) in text.split("\n---").enumerate() {
        if let Ok(value) = serde_norway::from_str::<Value>(document) {
            mirror.observe_value(&format!("dump:{position}"), value);
        }
    }
    let first = mirror.snapshot(UnixMillis(0), &Nothing);
    let second = mirror.snapshot(UnixMillis(0), &Nothing);
    assert_eq!(first.pods, second.pods);
    assert_eq!(first.notes, second.notes);
    let n_demands = first.demands.len();
    assert!(first.pods.iter().all(|pod| (pod.demand.0 as usize) < n_demands));
}

/// A cloud that serves everyone and sells nothing.
struct Nothing;

impl Supply for Nothing {
    fn serves(&self, _: &NodeClassRef) -> bool {
        true
    }

    fn types(&self, inquiries: &[Inquiry<'_>], _: &[Arc<NodeOverlay>]) -> Stock {
        Stock { types: inquiries.iter().map(|_| Ok(Arc::from([]))).collect(), rejected_overlays: Vec::new() }
    }

    fn price(&self, _: &TypeName, _: Option<&Text>, _: CapacityType) -> Option<Money> {
        None
    }
}
