//! The laws that every plan must keep. This room knows what kube-scheduler and the NodePools insist on, and nothing of
//! how plans are found: it shares no code with the search, so that a mistake there does not become a mistake here.
//!
//! A claim is judged by everything the cloud may make of it: each option, in each offering that its requirements still
//! allow. Preferences (`PreferNoSchedule`, preferred terms, `ScheduleAnyway`) bind nobody here, for a plan may give
//! them up.
//!
//! ```text
//! picture ── who is placed where (each pod once, known nodes, pools that can grow)
//!    ├────── launches   options, prices, limits, minValues, reservations
//!    ├────── room       resources, taints, requirements, ports, volumes; by place
//!    ├────── company    pod affinity and anti-affinity; by term
//!    └────── spread     topology spread; by constraint
//! market ─── what a claim can become: types, offerings, daemons; remembered, for claims repeat
//! ```

mod breach;
mod company;
mod domains;
mod launches;
mod market;
mod picture;
mod room;
mod spread;
#[cfg(test)]
mod tests;

pub use breach::Breach;

use domains::Domains;
use kerf_model::{Plan, Snapshot};
use market::Market;
use picture::Picture;

/// Judges a plan by the laws.
///
/// Flow: places every pod of the plan in thought, then asks each law about the final state.
/// Guarantees: the answer follows from the two arguments alone; breaches come in the order of the laws, then of the plan.
/// Assumptions: the indices inside the snapshot are sound.
/// Caveats: what the plan leaves out is not judged, nor what was wrong with the cluster before. Leaving
/// nodes and the pods bound to them are looked through: they bar nobody, count for nobody, and keep nobody company.
pub fn audit(snapshot: &Snapshot, plan: &Plan) -> Result<(), Vec<Breach>> {
    let mut breaches = Vec::new();
    let mut market = Market::new(snapshot);
    let picture = Picture::draw(snapshot, plan, &mut market, &mut breaches);
    launches::check(&picture, &mut market, &mut breaches);
    room::check(&picture, &mut market, &mut breaches);
    let mut domains = Domains::new(&picture);
    company::check_anti_affinity(&picture, &mut market, &mut domains, &mut breaches);
    company::check_affinity(&picture, &mut market, &mut domains, &mut breaches);
    spread::check(&picture, &mut market, &mut domains, &mut breaches);
    if breaches.is_empty() { Ok(()) } else { Err(breaches) }
}
