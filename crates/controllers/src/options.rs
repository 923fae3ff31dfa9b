//! What a platform engineer configures; made once by whoever starts the operator.

use kerf_mirror::MirrorSettings;

#[derive(Debug, Clone)]
pub struct Options {
    /// The release, as `build_info` and the user agent say it.
    pub version: String,
    pub gates: Gates,
    /// How the mirror looks, and how the engine plans.
    pub mirror: MirrorSettings,
    /// The provisioning window: how long at most, and how much quiet ends it.
    pub batch_max_ms: i64,
    pub batch_idle_ms: i64,
    /// Gauges of pods and nodes, status-condition metrics and events.
    pub observes_cluster_state: bool,
    /// What a recommendation to rebalance leads to.
    pub rebalance: Rebalance,
    /// The brake by hand: nothing that takes a node away begins unless somebody asked for it.
    pub pauses_disruption: bool,
    /// So many nodes may look empty, gone, expired or unclaimed at once before the brake is pulled, even in a small cluster.
    pub brake_above_nodes: usize,
    /// For tests: called with every snapshot that is thought about, to panic. No flag sets it.
    pub plant: Option<fn(&kerf_model::Snapshot)>,
    /// How long a search may be; counted in steps.
    pub effort: kerf_model::Effort,
}

/// What is done about a spot machine that is said to be at elevated risk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rebalance {
    /// It is told, as upstream does.
    #[default]
    Ignore,
    /// It is replaced before it goes.
    Replace,
}

/// Feature gates by upstream's names, and ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gates {
    pub node_repair: bool,
    pub reserved_capacity: bool,
    pub spot_to_spot_consolidation: bool,
    pub node_overlay: bool,
    pub static_capacity: bool,
    pub capacity_buffer: bool,
    pub terminate_first_drift: bool,
    pub terminate_first_repair: bool,
    pub pod_deletion_cost_management: bool,
    /// Ours: pods are bound to the node launched for them as soon as it registers.
    pub early_binding: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            node_repair: false,
            reserved_capacity: true,
            spot_to_spot_consolidation: false,
            node_overlay: false,
            static_capacity: false,
            capacity_buffer: false,
            terminate_first_drift: false,
            terminate_first_repair: false,
            pod_deletion_cost_management: false,
            early_binding: false,
        }
    }
}

impl Options {
    pub fn new(mirror: MirrorSettings) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            gates: Gates::default(),
            mirror,
            batch_max_ms: 10_000,
            batch_idle_ms: 1_000,
            observes_cluster_state: true,
            rebalance: Rebalance::default(),
            pauses_disruption: false,
            brake_above_nodes: crate::limits::BRAKE_NODES,
            plant: None,
            effort: kerf_model::Effort::default(),
        }
    }

    /// How long a node that was chosen for a pod is protected from disruption.
    pub fn nomination_ms(&self) -> i64 {
        (2 * self.batch_max_ms).max(10_000)
    }
}
