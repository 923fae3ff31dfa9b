//! Volumes: claims find or get their volume, nodes get their volumes attached, and nothing in use is deleted.
//!
//! ```text
//! claims, volumes, classes ─▶ Binder ─▶ bound pairs; new volumes from a provisioner that is simulated, whatever its name
//! pods on nodes ───────────▶ AttachDetach ─▶ VolumeAttachments, by an attacher that is simulated; volumesAttached of nodes
//! ```
//!
//! Which volume a claim gets when its pod is scheduled is the scheduler's decision: it writes the claim's `selected-node`, or reserves a
//! volume by its `claimRef`. What the real controllers do and these do not: resizing, recycling, snapshots, in-tree plugins.

use jiff::SignedDuration;

use crate::drive::Controller;

mod attach;
mod binder;
mod matching;
mod provision;
#[cfg(test)]
mod tests;
mod users;

pub use attach::AttachDetach;
pub use binder::Binder;

/// How long the simulated storage takes.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    pub provision: SignedDuration,
    pub attach: SignedDuration,
    pub detach: SignedDuration,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        let second = SignedDuration::from_secs(1);
        Self { provision: second, attach: second, detach: second }
    }
}

/// Both of them.
#[must_use]
pub fn controllers(options: &VolumeOptions) -> Vec<Box<dyn Controller>> {
    vec![Box::new(Binder::new(options.clone())), Box::new(AttachDetach::new(options.clone()))]
}
