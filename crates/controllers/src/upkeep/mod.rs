//! What keeps claims and nodes in order beside their life itself.
//!
//! ```text
//! expiration          claims that have lived their time are deleted
//! garbage collection  claims whose machine the cloud no longer has are deleted
//! consistency         nodes that have less than promised are told
//! hydration           claims and nodes of older days get the label that names their class
//! pod events          claims remember when a pod last came or went
//! ```
//!
//! Each is a duty of its own: none waits for another.

mod consistency;
mod expiration;
mod garbage;
mod hydration;
mod pod_events;

pub use consistency::Consistency;
pub use expiration::Expiration;
pub(crate) use expiration::expires;
pub use garbage::Garbage;
pub use hydration::{ClaimHydration, NodeHydration};
pub use pod_events::PodEvents;

use crate::errand::ApiFailure;
use crate::queue::Queue;
use kerf_model::{Text, UnixMillis};

/// All of them.
pub fn duties() -> Vec<Box<dyn crate::Duty>> {
    vec![
        Box::new(ClaimHydration::default()),
        Box::new(NodeHydration::default()),
        Box::new(PodEvents::default()),
        Box::new(Consistency::default()),
        Box::new(Expiration::default()),
        Box::new(Garbage::default()),
    ]
}

const BACKOFF_MS: (i64, i64) = (1_000, 60_000);

/// What a failed write leads to: an object that is gone or newer than we knew needs no hurry, since its change brings the next look.
fn again(queue: &mut Queue<Text>, key: &Text, failure: &ApiFailure, controller: &'static str, now: UnixMillis) {
    if failure.is_conflict() || failure.is_not_found() {
        queue.add_at(key.clone(), UnixMillis(now.0 + BACKOFF_MS.0));
    } else {
        tracing::error!(controller, name = &**key, error = %failure, "a write failed");
        queue.retry(key.clone(), now);
    }
}
