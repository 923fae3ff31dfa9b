//! Machines: what a cloud boots, and a kubelet then makes a node of.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// One machine, from the push of the power button on.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// The node's name.
    pub name: String,
    pub provider_id: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Machines of one type share these.
    pub capacity: Arc<BTreeMap<String, Quantity>>,
    /// The capacity, where it is left empty.
    pub allocatable: Arc<BTreeMap<String, Quantity>>,
    /// Taints the node registers with, `karpenter.sh/unregistered:NoExecute` among them.
    pub taints: Vec<Taint>,
    /// From power on to registration.
    pub boot_delay: SignedDuration,
    /// From registration to Ready.
    pub ready_delay: SignedDuration,
    /// `v1.36.3` where it is left empty.
    pub kubelet_version: String,
    /// Overrides the `pods` of the capacity.
    pub max_pods: Option<u32>,
    /// Images that are there from the start.
    pub images: Vec<String>,
    /// An address from the kubelets' own range where there is none.
    pub internal_ip: Option<String>,
    pub csi_drivers: Vec<CsiDriver>,
}

/// A CSI driver that runs on a machine from the start.
#[derive(Clone, Debug, Default)]
pub struct CsiDriver {
    pub name: String,
    pub node_id: String,
    pub topology_keys: Vec<String>,
    /// How many volumes may be attached.
    pub allocatable: Option<i32>,
}

/// A trouble that a machine may be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    MemoryPressure,
    DiskPressure,
    PidPressure,
    /// The kubelet runs, and says that it is not ready.
    NotReady,
}

/// The power buttons of all machines. Clones press the same buttons; the kubelets look at them the next time they work.
#[derive(Clone, Default)]
pub struct Machines(Arc<Mutex<Buttons>>);

#[derive(Default)]
struct Buttons {
    pressed: Vec<Order>,
    wake: Option<Arc<dyn Fn() + Send + Sync>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Order {
    Boot(Box<Machine>),
    PowerOff(String),
    PowerOn(String),
    Terminate(String),
    Trouble(String, Trouble, bool),
}

impl Machines {
    /// Powers a new machine on. A name that a living machine has is left to it.
    pub fn boot(&self, machine: Machine) {
        self.press(Order::Boot(Box::new(machine)));
    }

    /// The machine stops in mid-sentence: no heartbeats, no word about its pods. It stays where it is.
    pub fn power_off(&self, name: &str) {
        self.press(Order::PowerOff(name.to_owned()));
    }

    /// The machine boots again, and registers its node again if that is gone.
    pub fn power_on(&self, name: &str) {
        self.press(Order::PowerOn(name.to_owned()));
    }

    /// The machine is no more. Its node object stays until somebody deletes it.
    pub fn terminate(&self, name: &str) {
        self.press(Order::Terminate(name.to_owned()));
    }

    /// Begins or ends a trouble.
    pub fn trouble(&self, name: &str, trouble: Trouble, is_there: bool) {
        self.press(Order::Trouble(name.to_owned(), trouble, is_there));
    }

    /// Whom to tell that a button was pressed: whoever lets the kubelets work.
    pub fn on_press(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).wake = Some(Arc::new(wake));
    }

    pub(crate) fn take(&self) -> Vec<Order> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).pressed)
    }

    fn press(&self, order: Order) {
        let wake = {
            let mut buttons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            buttons.pressed.push(order);
            buttons.wake.clone()
        };
        // Not under the lock: whoever is woken may want it at once.
        if let Some(wake) = wake {
            wake();
        }
    }
}

impl fmt::Debug for Machines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_pressed = self.0.lock().unwrap_or_else(PoisonError::into_inner).pressed.len();
        f.debug_struct("Machines").field("n_pressed", &n_pressed).finish()
    }
}
