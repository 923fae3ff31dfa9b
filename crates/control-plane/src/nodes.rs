//! The life of nodes as the controller manager sees it: who is healthy, who is tainted for it, and which pods must go.
//!
//! ```text
//! leases, heartbeats ─▶ Lifecycle ─▶ Ready=Unknown, taints by condition, NoExecute taints (at most so many per zone and time)
//! NoExecute taints ───▶ TaintEviction ─▶ pods that do not tolerate them, or no longer, are deleted
//! nodes that are gone ▶ PodGarbage ─▶ pods that are left behind are deleted
//! ```
//!
//! The real controllers look at all nodes every few seconds; these look at a node when something happens to it or is due, and so act up
//! to five seconds sooner.

use crate::drive::Controller;

mod eviction;
mod garbage;
mod known;
mod lifecycle;
mod taints;
#[cfg(test)]
mod tests;
mod zones;

pub use eviction::TaintEviction;
pub use garbage::PodGarbage;
pub use lifecycle::{Lifecycle, LifecycleOptions};

pub(crate) use known::KnownNode;
pub(crate) use taints::OUT_OF_SERVICE;

/// All of them, with the real defaults.
#[must_use]
pub fn controllers() -> Vec<Box<dyn Controller>> {
    vec![
        Box::new(Lifecycle::new(LifecycleOptions::default())),
        Box::new(TaintEviction::default()),
        Box::new(PodGarbage::default()),
    ]
}
