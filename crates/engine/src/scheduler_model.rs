//! A model of kube-scheduler, to judge plans by: it spreads where we packed, and takes pods in its own order.
//!
//! Pods come one at a time. Each goes to the node with the best score among those that can take it: least allocated
//! plus balanced allocation over cpu and memory, in whole points as the default profile computes them; ties fall to a
//! seeded draw. What the model leaves out: scores of preferences, of the built-in soft spreading, of image locality, and
//! the sampling of nodes in clusters above a hundred nodes. Nothing is preempted.
//!
//! The caller interns: pods that are alike are one class, nodes that a class cannot tell apart by labels and taints are
//! one kind. Everything about who may be where is a count of pods in a *group*, per node or per zone:
//!
//! ```text
//! hostname anti-affinity, host ports   per_host  AtMost(1)      the class counts itself
//! another pod's anti-affinity          per_host  AtMost(0)      the class is not of the group
//! hostname or zone spread              per_host / per_zone  Skew
//! hostname or zone affinity            per_host / per_zone  Near
//! ```
//!
//! Cost: a class keeps its score of every node, and looks again only at nodes that took a pod since. A placement costs
//! one pass over bytes and a few scores, never more than the plain way of scoring every node.

mod load;
mod stage;
#[cfg(test)]
mod tests;

use stage::Stage;

/// No zone is known.
pub const NO_ZONE: u32 = u32::MAX;
/// Where a pod that found no node is put.
pub const STRANDED: u32 = u32::MAX;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelNode {
    /// Index into the `kinds` of classes.
    pub kind: u32,
    /// Dense zone index, or `NO_ZONE`.
    pub zone: u32,
    /// What is left, in the dimensions of `ModelClass::requests`, `pods` among them.
    pub free: Vec<i64>,
    /// In thousandths, as `Quantity` has them: below 90 TB of memory the arithmetic is exact.
    pub allocatable_cpu: i64,
    pub allocatable_memory: i64,
    /// What the pods on it request.
    pub requested_cpu: i64,
    pub requested_memory: i64,
    /// Pods on it, by group.
    pub counts: Vec<(u32, u32)>,
}

/// Pods that are alike.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelClass {
    pub requests: Vec<i64>,
    pub cpu: i64,
    pub memory: i64,
    pub priority: i32,
    /// For each kind of node, whether labels and taints let the class in. A kind beyond the end does not.
    pub kinds: Vec<bool>,
    /// Groups that count pods of this class.
    pub counts_in: Vec<u32>,
    pub per_host: Vec<Constraint>,
    pub per_zone: Vec<Constraint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Constraint {
    pub group: u32,
    pub rule: Rule,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// At most so many pods of the group in the domain, the pod itself included where it counts.
    AtMost(u32),
    /// No more than this above the emptiest domain that has a node the class may use. With fewer such domains than
    /// `min_domains` the emptiest counts as empty.
    Skew { max_skew: u32, min_domains: u32 },
    /// A pod of the group is in the domain already; or none is anywhere, and the class is of the group itself.
    Near,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// By class.
    pub stranded: Vec<u32>,
    /// For each pod of the order the node it went to, or `STRANDED`. Shorter than the order when cut off.
    pub placed_on: Vec<u32>,
    pub steps: u64,
    /// The budget was spent before the order was done.
    pub is_cut_off: bool,
}

impl Outcome {
    pub fn n_stranded(&self) -> usize {
        self.stranded.iter().map(|count| *count as usize).sum()
    }
}

/// Places the pods one at a time in the given order (a class per pod).
///
/// Guarantees: the same arguments give the same outcome. Assumptions: indices are sound, and rows of one length.
/// Caveats: one step is one look at one node for one pod; the budget is checked before each pod.
pub fn place(nodes: &[ModelNode], classes: &[ModelClass], order: &[u32], seed: u64, budget: u64) -> Outcome {
    let mut stage = Stage::new(nodes, classes);
    let mut draw = SplitMix64::new(seed);
    let mut outcome = Outcome {
        stranded: vec![0; classes.len()],
        placed_on: Vec::with_capacity(order.len()),
        steps: 0,
        is_cut_off: false,
    };
    for class in order {
        if stage.steps >= budget {
            outcome.is_cut_off = true;
            break;
        }
        let class = *class as usize;
        match stage.choose(class, &mut draw) {
            Some(node) => {
                stage.bind(class, node);
                outcome.placed_on.push(node as u32);
            }
            None => {
                outcome.stranded[class] += 1;
                outcome.placed_on.push(STRANDED);
            }
        }
    }
    outcome.steps = stage.steps;
    outcome
}

/// Orders in which the pods might come: class by class, in turns, largest first, smallest first, then seeded shuffles.
/// Higher priorities come first in each of them, as in kube-scheduler's queue.
pub fn orders(counts: &[u32], classes: &[ModelClass], n_orders: usize, seed: u64) -> Vec<Vec<u32>> {
    let by_class = |sequence: &[u32]| -> Vec<u32> {
        sequence.iter().flat_map(|class| std::iter::repeat_n(*class, counts[*class as usize] as usize)).collect()
    };
    let arrival: Vec<u32> = (0..counts.len() as u32).collect();
    let mut largest = arrival.clone();
    largest.sort_by_key(|class| {
        let class = &classes[*class as usize];
        std::cmp::Reverse((class.cpu, class.memory))
    });
    let smallest: Vec<u32> = largest.iter().rev().copied().collect();
    let mut draw = SplitMix64::new(seed);
    (0..n_orders)
        .map(|idx| {
            let mut order = match idx {
                0 => by_class(&arrival),
                1 => in_turns(counts),
                2 => by_class(&largest),
                3 => by_class(&smallest),
                _ => shuffled(by_class(&arrival), &mut draw),
            };
            order.sort_by_key(|class| std::cmp::Reverse(classes[*class as usize].priority));
            order
        })
        .collect()
}

/// Each class sends one pod per round, until it has none left.
fn in_turns(counts: &[u32]) -> Vec<u32> {
    let mut left: Vec<(u32, u32)> = counts.iter().enumerate().map(|(class, n)| (class as u32, *n)).collect();
    let mut order = Vec::with_capacity(counts.iter().map(|n| *n as usize).sum());
    loop {
        left.retain(|(_, n)| *n > 0);
        if left.is_empty() {
            return order;
        }
        for (class, n) in &mut left {
            order.push(*class);
            *n -= 1;
        }
    }
}

fn shuffled(mut order: Vec<u32>, draw: &mut SplitMix64) -> Vec<u32> {
    for end in (1..order.len()).rev() {
        order.swap(end, draw.below(end as u64 + 1) as usize);
    }
    order
}

/// Sebastiano Vigna's splitmix64: small, fast, and the same on every machine.
#[derive(Debug, Clone)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which must not be zero. The bias is below one in 2^64 / end.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }
}
