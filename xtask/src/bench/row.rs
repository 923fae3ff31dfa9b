//! What a row says: measured in a process of its own, read by the table, the file and the verdicts.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) pods: usize,
    pub(crate) placed: usize,
    /// The best of several runs of `plan_capacity` alone.
    pub(crate) seconds: f64,
    pub(crate) pods_per_second: f64,
    /// The most memory the process ever held: scene, snapshot, plan and all.
    pub(crate) peak_mb: f64,
    /// Nodes to launch.
    pub(crate) nodes: usize,
    pub(crate) dollars_per_hour: f64,
    pub(crate) bound_dollars_per_hour: f64,
    /// How far above the bound, as a fraction; none when there is nothing to buy.
    pub(crate) gap: Option<f64>,
    /// Constraints that the bound does not see.
    pub(crate) bound_ignores: Vec<String>,
    /// Pods that the first wave left over, where kube-scheduler places them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) stranded: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) peer: Option<Peer>,
    /// Our pods per second over the peer's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) ratio: Option<f64>,
}

/// The same scene, through the peer's scheduler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Peer {
    pub(crate) pods: usize,
    pub(crate) placed: usize,
    pub(crate) seconds: f64,
    pub(crate) pods_per_second: f64,
    pub(crate) peak_mb: f64,
    pub(crate) nodes: usize,
    pub(crate) dollars_per_hour: f64,
    pub(crate) bound_dollars_per_hour: f64,
    pub(crate) gap: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) stranded: Option<usize>,
    /// Whether it came to an end in time.
    pub(crate) finished: bool,
}

/// How far `dollars` is above `bound`, as a fraction.
pub(crate) fn gap(dollars: f64, bound: f64) -> Option<f64> {
    (bound > 0.0).then(|| (dollars - bound) / bound)
}

impl Row {
    /// Adds what the peer did with the same scene.
    pub(crate) fn beside(mut self, mut peer: Peer) -> Self {
        peer.bound_dollars_per_hour = self.bound_dollars_per_hour;
        peer.gap = gap(peer.dollars_per_hour, peer.bound_dollars_per_hour)
            .filter(|_| peer.finished && peer.placed == self.placed);
        self.ratio = (peer.pods_per_second > 0.0).then(|| self.pods_per_second / peer.pods_per_second);
        self.peer = Some(peer);
        self
    }
}
