//! The loop that lets the cluster's own controllers work.

use jiff::Timestamp;

use crate::hands::Hands;
use crate::store::Change;

/// A part of the cluster that reacts to changes: a state machine without a thread, a clock or dice of its own.
pub trait Controller: Send {
    fn name(&self) -> &'static str;

    /// A change in the store; every change since the beginning, in order. For caches and queues.
    fn observe(&mut self, change: &Change);

    /// Does what is due. Returns when it wants to be called again even if nothing changes.
    fn work(&mut self, hands: &mut Hands<'_>) -> Option<Timestamp>;
}
