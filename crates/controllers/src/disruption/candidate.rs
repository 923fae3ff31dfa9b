//! Candidates: nodes that may be disrupted of our own will, and for the others the first thing that stands against it.

use super::commands::Commands;
use super::cost;
use super::guards::Guards;
use super::marks;
use crate::guard::guarded;
use crate::nominations::Nominations;
use crate::world::World;
use kerf_api::{NodeClaim, NodePool, labels};
use kerf_cloud::{CloudProvider, NodeClassKind, TypesAsk};
use kerf_mirror::PodState;
use kerf_model::{
    CapacityType, Labels, Money, NodeClassRef, Operator, PodId, PoolName, Requirement, Requirements, Text, TypeName,
    UnixMillis,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A node that may be disrupted, as far as node, pods and pool are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub claim: Text,
    pub node: Text,
    pub pool: Text,
    pub instance_type: Text,
    pub capacity_type: Text,
    /// Per hour; nothing where it is not known.
    pub price: Money,
    /// In [`cost::ONE`]s.
    pub reschedule_cost: i64,
    /// Pods that will want another place.
    pub n_pods: usize,
    /// It has rested for the pool's `consolidateAfter`.
    pub is_consolidatable: bool,
}

/// Why a node is no candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// A command has it already.
    InQueue,
    NoNode,
    Rebooting,
    Leaving,
    NotRegistered,
    NotInitialized,
    Nominated,
    NodeHeld,
    NoPoolLabel,
    PoolUnknown {
        pool: Text,
    },
    PodHeld {
        pod: PodId,
    },
    Guarded {
        budgets: Vec<Text>,
    },
}

impl Block {
    /// Whether people hear of it.
    pub fn is_told(&self) -> bool {
        *self != Block::InQueue
    }

    /// Whether it is about how the node ends already, and not about keeping it.
    pub fn is_end(&self) -> bool {
        matches!(self, Block::InQueue | Block::Leaving | Block::NoNode)
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Block::InQueue => f.write_str("Node is being disrupted"),
            Block::NoNode => f.write_str("NodeClaim does not have an associated node"),
            Block::Rebooting => f.write_str("Node is rebooting"),
            Block::Leaving => f.write_str("Node is deleting or marked for deletion"),
            Block::NotRegistered => f.write_str("Node isn't initialized nor registered"),
            Block::NotInitialized => f.write_str("Node isn't initialized"),
            Block::Nominated => f.write_str("Node is nominated for a pending pod"),
            Block::NodeHeld => write!(f, "Disruption is blocked through the {:?} annotation", labels::DO_NOT_DISRUPT),
            Block::NoPoolLabel => write!(f, "Node doesn't have required label {:?}", labels::NODE_POOL),
            Block::PoolUnknown { pool } => write!(f, "NodePool not found (NodePool={pool})"),
            Block::PodHeld { pod } => {
                write!(f, "Pod {:?} has {:?} annotation", pod.to_string(), labels::DO_NOT_DISRUPT)
            }
            Block::Guarded { budgets } => match budgets.as_slice() {
                [budget] => write!(f, "Pdb {:?} prevents pod evictions", &**budget),
                budgets => write!(f, "Eviction does not support multiple PDBs ({})", budgets.join(", ")),
            },
        }
    }
}

/// What candidates are judged by, at one time.
pub(crate) struct View<'a> {
    pub(crate) now: UnixMillis,
    pub(crate) world: &'a World,
    pub(crate) commands: &'a Commands,
    pub(crate) nominations: &'a Nominations,
    pub(crate) cloud: &'a dyn CloudProvider,
    pub(crate) guards: Guards,
    /// Pools that exist, are ours and can buy something.
    pub(crate) pools: BTreeMap<Text, Arc<NodePool>>,
}

impl View<'_> {
    /// Judges the node of a claim; the first objection counts.
    pub(crate) fn judge(&self, name: &Text, claim: &NodeClaim) -> Result<Candidate, Block> {
        if self.commands.contains(name) {
            return Err(Block::InQueue);
        }
        let Some(node) = self.world.node_of_claim(claim) else {
            return Err(Block::NoNode);
        };
        let node_name = marks::name_of(&node.metadata);
        if marks::is_true(claim, "Rebooting") {
            return Err(Block::Rebooting);
        }
        if marks::is_leaving(claim, Some(node)) || marks::is_true(claim, marks::DISRUPTION_REASON) {
            return Err(Block::Leaving);
        }
        if !marks::has_label(&node.metadata, labels::INITIALIZED) {
            let is_registered = marks::has_label(&node.metadata, labels::REGISTERED);
            return Err(if is_registered { Block::NotInitialized } else { Block::NotRegistered });
        }
        if [name, &node_name].iter().any(|place| self.nominations.is_nominated(place, self.now)) {
            return Err(Block::Nominated);
        }
        let annotations = node.metadata.annotations.as_ref();
        if annotations.and_then(|all| all.get(labels::DO_NOT_DISRUPT)).is_some_and(|value| value == "true") {
            return Err(Block::NodeHeld);
        }
        let Some(pool) = marks::label(&node.metadata, labels::NODE_POOL) else {
            return Err(Block::NoPoolLabel);
        };
        if !self.pools.contains_key(pool) {
            return Err(Block::PoolUnknown { pool: pool.into() });
        }
        let pods: Vec<&PodState> = self.world.pods_on(&node_name).map(|pod| &**pod).collect();
        self.judge_pods(&pods)?;
        let label = |key: &str| -> Text { marks::label(&node.metadata, key).unwrap_or_default().into() };
        let (instance_type, zone, capacity_type) =
            (label(labels::INSTANCE_TYPE), label(labels::ZONE), label(labels::CAPACITY_TYPE));
        let price = CapacityType::parse(&capacity_type)
            .and_then(|kind| self.cloud.price(&TypeName(instance_type.clone()), Some(&zone), kind));
        Ok(Candidate {
            claim: name.clone(),
            node: node_name,
            pool: pool.into(),
            instance_type,
            capacity_type,
            price: price.unwrap_or(Money::ZERO),
            reschedule_cost: cost::reschedule_cost(pods.iter().copied()),
            n_pods: pods.iter().filter(|pod| pod.is_reschedulable()).count(),
            is_consolidatable: marks::is_true(claim, marks::CONSOLIDATABLE),
        })
    }

    fn judge_pods(&self, pods: &[&PodState]) -> Result<(), Block> {
        if let Some(pod) = pods.iter().find(|pod| pod.is_active() && pod.is_held(self.now)) {
            return Err(Block::PodHeld { pod: pod.id.clone() });
        }
        for pod in pods {
            let budgets = self.guards.against(pod, self.now);
            if !budgets.is_empty() {
                return Err(Block::Guarded { budgets });
            }
        }
        Ok(())
    }
}

/// The pools whose nodes may be judged: ours, and able to buy something now or later.
pub(crate) fn usable_pools(world: &World, cloud: &dyn CloudProvider) -> BTreeMap<Text, Arc<NodePool>> {
    let classes = cloud.node_classes();
    let usable = world.pools.iter().filter(|(name, pool)| can_buy(world, cloud, &classes, name, pool));
    usable.map(|(name, pool)| (name.clone(), pool.clone())).collect()
}

fn can_buy(world: &World, cloud: &dyn CloudProvider, classes: &[NodeClassKind], name: &Text, pool: &NodePool) -> bool {
    let template = &pool.spec.template;
    let class = &template.spec.node_class_ref;
    let node_class = NodeClassRef {
        group: class.group.as_str().into(),
        kind: class.kind.as_str().into(),
        name: class.name.as_str().into(),
    };
    if !classes.iter().any(|kind| kind.is(&node_class)) {
        return false;
    }
    let written = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let labels: Labels =
        written.into_iter().flatten().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect();
    let mut requirements = Requirements::new();
    for written in &template.spec.requirements {
        let values: Vec<Text> = written.values.iter().map(|value| value.as_str().into()).collect();
        let operator = Operator::parse(written.operator.as_str());
        if let Some(requirement) = operator.and_then(|operator| Requirement::new(operator, &values)) {
            requirements.add(&written.key, requirement);
        }
    }
    let class_object = world.classes.get(&node_class).map(|class| &*class.value);
    let ask = TypesAsk {
        pool: &PoolName(name.clone()),
        labels: &labels,
        requirements: &requirements,
        node_class: &node_class,
        class_object,
    };
    // A class that brings a defect to light closes its own pools.
    let types = guarded(|| cloud.instance_types(&ask));
    types.is_ok_and(|types| types.is_ok_and(|types| !types.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_objection_has_its_words() {
        let pdb = |names: &[&str]| Block::Guarded { budgets: names.iter().map(|name| Text::from(*name)).collect() };
        for (block, expected) in [
            (Block::NoNode, "NodeClaim does not have an associated node"),
            (Block::Rebooting, "Node is rebooting"),
            (Block::Leaving, "Node is deleting or marked for deletion"),
            (Block::NotRegistered, "Node isn't initialized nor registered"),
            (Block::NotInitialized, "Node isn't initialized"),
            (Block::Nominated, "Node is nominated for a pending pod"),
            (Block::NodeHeld, "Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation"),
            (Block::NoPoolLabel, "Node doesn't have required label \"karpenter.sh/nodepool\""),
            (Block::PoolUnknown { pool: "x".into() }, "NodePool not found (NodePool=x)"),
            (
                Block::PodHeld { pod: PodId::new("a", "b") },
                "Pod \"a/b\" has \"karpenter.sh/do-not-disrupt\" annotation",
            ),
            (pdb(&["a/b"]), "Pdb \"a/b\" prevents pod evictions"),
            (pdb(&["a/b", "a/c"]), "Eviction does not support multiple PDBs (a/b, a/c)"),
        ] {
            assert_eq!(block.to_string(), expected);
            assert!(block.is_told());
        }
        assert!(!Block::InQueue.is_told());
    }
}
