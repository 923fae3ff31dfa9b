//! What laws and oracles share: clusters drawn at random, ways to change them, and words for what came out.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

pub mod change;
pub mod cluster;
pub mod describe;
pub mod pieces;

use kerf_model::{Money, Plan, PodId, Step};

/// Every pod that the plan places, with the name of its node or claim, in plan order.
pub fn placed(plan: &Plan) -> Vec<(PodId, String)> {
    let mut placed = Vec::new();
    for step in &plan.steps {
        let (pods, place) = match step {
            Step::Place(placement) => (&placement.pods, placement.node.to_string()),
            Step::Launch(launch) => (&launch.for_pods, launch.claim.to_string()),
        };
        placed.extend(pods.iter().map(|pod| (pod.clone(), place.clone())));
    }
    placed
}

/// What the launches cost if each gets its first choice.
pub fn price(plan: &Plan) -> Money {
    plan.steps
        .iter()
        .map(|step| match step {
            Step::Launch(launch) => launch.price(),
            Step::Place(_) => Money::ZERO,
        })
        .sum()
}
