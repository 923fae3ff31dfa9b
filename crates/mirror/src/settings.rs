//! What is configured about looking.

use kerf_api::LabelRules;
use kerf_model::{Settings, Spread, Text};
use std::collections::BTreeSet;

/// Made once by whoever owns the mirror.
#[derive(Debug, Clone)]
pub struct MirrorSettings {
    /// Handed on to the engine.
    pub scheduling: Settings,
    pub gates: Gates,
    /// Which labels pods may ask for.
    pub labels: LabelRules,
    /// The cluster's default spread constraints, without selectors: those are deduced from each pod.
    pub default_spreads: Vec<Spread>,
    /// CSI drivers whose volumes the provider's nodes cannot attach.
    pub unsupported_drivers: BTreeSet<Text>,
    /// Topology keys of storage classes that the provider's nodes never carry.
    pub unsupported_topology_keys: BTreeSet<Text>,
    pub view: View,
}

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// A live cluster: controllers and the scheduler have had their say.
    Live,
    /// Files, perhaps written by hand: pods that nobody looked at yet count as waiting, workloads whose pods are not
    /// there count with the pods they would create, and a pool without a status is ready.
    Files,
}

/// The feature gates that change what is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gates {
    pub node_overlay: bool,
    pub capacity_buffer: bool,
}

impl MirrorSettings {
    pub fn new(view: View) -> Self {
        Self {
            scheduling: Settings::default(),
            gates: Gates::default(),
            labels: LabelRules::core(),
            default_spreads: Vec::new(),
            unsupported_drivers: BTreeSet::new(),
            unsupported_topology_keys: BTreeSet::new(),
            view,
        }
    }
}
