//! Where machines stand. The shell answers with the kubelets of the embedded control plane, a test with a list.

use kerf_model::{Labels, Resources, Taint, Text};
use std::collections::BTreeMap;
use std::time::Duration;

/// The power buttons.
pub trait Yard: Send + Sync {
    /// Powers a new machine on; it becomes a node by itself.
    fn boot(&self, machine: NewMachine);

    /// The machine stops and starts again.
    fn reboot(&self, node: &str);

    /// The machine is no more. Its Node object stays until somebody deletes it.
    fn terminate(&self, node: &str);
}

/// A machine to power on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMachine {
    /// The name of its node.
    pub name: Text,
    pub provider_id: Text,
    pub labels: Labels,
    pub annotations: BTreeMap<Text, Text>,
    pub capacity: Resources,
    pub allocatable: Resources,
    /// That it registers with.
    pub taints: Vec<Taint>,
    /// From power on to registration, and from there to Ready.
    pub boot_delay: Duration,
    pub ready_delay: Duration,
    /// By CSI driver: how many volumes can be attached.
    pub attach_limits: BTreeMap<Text, u32>,
    /// Where the node's name has one in it.
    pub internal_ip: Option<Text>,
}
