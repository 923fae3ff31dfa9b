//! How much of the cluster is known: `karpenter_cluster_state_*`. Always on, whatever else is observed.

use super::{Renewal, seconds};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::metrics::families::{CLUSTER_STATE_NODE_COUNT, CLUSTER_STATE_SYNCED, CLUSTER_STATE_UNSYNCED_TIME_SECONDS};
use crate::world::{Change, World};
use kerf_model::{Text, UnixMillis};

#[derive(Debug, Default)]
pub struct StateGauges {
    renewal: Renewal,
    unsynced_since: Option<UnixMillis>,
    was_synced: Option<bool>,
}

impl Duty for StateGauges {
    fn name(&self) -> &'static str {
        "state"
    }

    fn observe(&mut self, change: &Change, _: &World) {
        self.renewal.is_dirty |= matches!(change, Change::Node { .. } | Change::Claim { .. } | Change::Synced);
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        let is_synced = desk.world.is_synced();
        if !is_synced {
            let since = *self.unsynced_since.get_or_insert(desk.now);
            desk.metrics.set(&CLUSTER_STATE_UNSYNCED_TIME_SECONDS, &[], seconds(since, desk.now));
        }
        if self.was_synced != Some(is_synced) {
            self.was_synced = Some(is_synced);
            desk.metrics.set(&CLUSTER_STATE_SYNCED, &[], f64::from(u8::from(is_synced)));
            if is_synced {
                self.unsynced_since = None;
                desk.metrics.set(&CLUSTER_STATE_UNSYNCED_TIME_SECONDS, &[], 0.0);
            }
        }
        if self.renewal.is_due(desk.now) {
            let world = desk.world;
            let without_node = world.claims.values().filter(|claim| world.node_of_claim(claim).is_none()).count();
            desk.metrics.set(&CLUSTER_STATE_NODE_COUNT, &[], (world.nodes.len() + without_node) as f64);
        }
        self.renewal.wish()
    }

    fn done(&mut self, _: &Text, _: Outcome, _: &mut Desk<'_>) {}
}
