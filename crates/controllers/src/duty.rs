//! A duty: one thing that the operator takes care of.

use crate::desk::Desk;
use crate::errand::Outcome;
use crate::world::{Change, World};
use kerf_model::{Text, UnixMillis};

/// A state machine without a thread, a clock or a client. It may forget everything at any time (a restart): what it needs to
/// go on must be in the cluster's objects.
pub trait Duty: Send {
    /// As upstream calls its controller: `nodeclaim.lifecycle`. Also the `controller` field of logs and metrics.
    fn name(&self) -> &'static str;

    /// Something changed; the world shows it already. For marking what to look at: no errands here.
    fn observe(&mut self, change: &Change, world: &World);

    /// Does what is due. Returns when it wants to be called again even if nothing changes.
    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis>;

    /// An errand of its own has ended; its key is free again. What the API server stored is in the world already.
    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>);
}
