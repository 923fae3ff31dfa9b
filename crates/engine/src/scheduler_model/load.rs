//! How full a node is, and the points it gets for it.

use super::ModelNode;

/// What kube-scheduler counts for a pod that requests no cpu, in thousandths.
const DEFAULT_CPU: i64 = 100;
/// The same for memory: 200 MiB, in thousandths of a byte.
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024 * 1000;

#[derive(Clone, Copy)]
pub(super) struct Load {
    allocatable: [i64; 2],
    requested: [i64; 2],
    /// As `requested`, with kube-scheduler's defaults for pods that request nothing.
    non_zero: [i64; 2],
}

impl Load {
    pub(super) fn of(node: &ModelNode) -> Self {
        let requested = [node.requested_cpu, node.requested_memory];
        Self { allocatable: [node.allocatable_cpu, node.allocatable_memory], requested, non_zero: requested }
    }

    pub(super) fn add(&mut self, cpu: i64, memory: i64) {
        self.requested[0] += cpu;
        self.requested[1] += memory;
        self.non_zero[0] += or_default(cpu, DEFAULT_CPU);
        self.non_zero[1] += or_default(memory, DEFAULT_MEMORY);
    }

    /// Least allocated plus balanced allocation, each 0 to 100, with the pod on the node. The second looks at how the
    /// balance changes (kube-scheduler 1.36), and skips pods that request nothing.
    pub(super) fn score(&self, cpu: i64, memory: i64) -> u8 {
        let mut with = *self;
        with.add(cpu, memory);
        let balanced = if cpu == 0 && memory == 0 { 0 } else { 50 + (50 + with.balance() - self.balance()) / 2 };
        (with.least_allocated() + balanced) as u8
    }

    fn least_allocated(&self) -> i64 {
        let mut sum = 0;
        let mut n_resources = 0;
        for (allocatable, requested) in self.allocatable.iter().zip(&self.non_zero) {
            if *allocatable > 0 {
                n_resources += 1;
                sum += (allocatable - requested).max(0) * 100 / allocatable;
            }
        }
        if n_resources == 0 { 0 } else { sum / n_resources }
    }

    /// 50 to 100: how near the used parts of cpu and memory are to each other.
    fn balance(&self) -> i64 {
        let fraction = |resource: usize| {
            (self.allocatable[resource] > 0)
                .then(|| (self.requested[resource] as f64 / self.allocatable[resource] as f64).min(1.0))
        };
        // Two fractions deviate from their mean by half their distance.
        let deviation = match (fraction(0), fraction(1)) {
            (Some(cpu), Some(memory)) => (cpu - memory).abs() / 2.0,
            _ => 0.0,
        };
        ((1.0 - deviation) * 100.0) as i64
    }
}

fn or_default(amount: i64, default: i64) -> i64 {
    if amount == 0 { default } else { amount }
}
