//! NodePools, as facts.

use crate::ids::{PoolName, Text};
use crate::labels::Labels;
use crate::offering::InstanceType;
use crate::requirement::Requirements;
use crate::resources::Resources;
use crate::taint::Taint;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct Pool {
    pub name: PoolName,
    /// Higher is tried first.
    pub weight: i32,
    /// Template labels, as written. The pool's own name label is implied.
    pub labels: Labels,
    /// `spec.template.spec.requirements`, as written.
    pub requirements: Requirements,
    pub taints: Vec<Taint>,
    pub startup_taints: Vec<Taint>,
    /// Upper bounds on the pool's total; `nodes` counts nodes.
    pub limits: Resources,
    /// Capacity of the pool's nodes and claims that are not on their way out, `nodes` included.
    pub in_use: Resources,
    pub node_class: NodeClassRef,
    /// What the provider offers to this pool, overlays applied. Pools of one node class share the list.
    pub types: Arc<[Arc<InstanceType>]>,
    /// A static pool keeps a fixed number of nodes and never grows for pods.
    pub is_static: bool,
    pub readiness: Readiness,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeClassRef {
    pub group: Text,
    pub kind: Text,
    pub name: Text,
}

impl NodeClassRef {
    /// The label by which a node is known to be managed, such as `karpenter.k8s.aws/ec2nodeclass`.
    pub fn label_key(&self) -> String {
        format!("{}/{}", self.group, self.kind.to_lowercase())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// Why the pool cannot be used now, in the words of whoever found out.
    NotReady(Text),
}
