//! Emptiness: nodes that nobody would miss go, all at once as far as budgets let them.
//!
//! A node is taken when two looks, 5 s apart, both find it empty: a pod that is on its way has that long to arrive.

use super::candidate::Candidate;
use super::cost;
use kerf_api::{DurationOrNever, NodePool};
use kerf_model::Text;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

/// Between the first look and the deed.
pub const VALIDATION_MS: i64 = 5_000;

/// Why a candidate is not removed as empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// Its pool keeps a fixed number of nodes.
    Static,
    ConsolidationDisabled {
        pool: Text,
    },
    ForBuffer {
        node: Text,
    },
    InUse {
        n_pods: usize,
    },
    /// `consolidateAfter` has not passed.
    Resting,
}

impl Unfit {
    /// Whether people hear of it.
    pub fn is_told(&self) -> bool {
        matches!(self, Unfit::ConsolidationDisabled { .. } | Unfit::ForBuffer { .. })
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Static => f.write_str("NodePool is static"),
            Unfit::ConsolidationDisabled { pool } => write!(f, "NodePool {:?} has consolidation disabled", &**pool),
            Unfit::ForBuffer { node } => write!(f, "Node {:?} has buffer pods", &**node),
            Unfit::InUse { n_pods } => write!(f, "Node runs {n_pods} pods"),
            Unfit::Resting => f.write_str("Node has not rested for consolidateAfter"),
        }
    }
}

/// Whether a candidate may go as empty. Every consolidation policy allows that.
pub fn judge(candidate: &Candidate, pool: &NodePool, is_for_buffer: bool) -> Result<(), Unfit> {
    if pool.is_static() {
        return Err(Unfit::Static);
    }
    let after = pool.spec.disruption.as_ref().and_then(|disruption| disruption.consolidate_after.as_ref());
    if after.is_some_and(DurationOrNever::is_never) {
        return Err(Unfit::ConsolidationDisabled { pool: candidate.pool.clone() });
    }
    if is_for_buffer {
        return Err(Unfit::ForBuffer { node: candidate.node.clone() });
    }
    if !cost::is_empty(candidate.reschedule_cost) {
        return Err(Unfit::InUse { n_pods: candidate.n_pods });
    }
    if candidate.is_consolidatable { Ok(()) } else { Err(Unfit::Resting) }
}

/// Which of the empty nodes go now: what saves most per cost first, within what each pool has left. The second list stays for now.
pub fn choose(mut ready: Vec<Candidate>, left: &BTreeMap<Text, u32>) -> (Vec<Candidate>, Vec<Candidate>) {
    ready.sort_by(|one, other| {
        // price/cost compared without dividing
        let worth = |it: &Candidate, by: &Candidate| i128::from(it.price.micros) * i128::from(by.reschedule_cost);
        let order = Reverse(worth(one, other)).cmp(&Reverse(worth(other, one)));
        order.then_with(|| one.node.cmp(&other.node))
    });
    let mut left = left.clone();
    ready.into_iter().partition(|candidate| match left.get_mut(&candidate.pool) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_model::Money;
    use serde_json::{Value, json};

    fn candidate(node: &str, pool: &str, micros: i64) -> Candidate {
        Candidate {
            claim: node.into(),
            node: node.into(),
            pool: pool.into(),
            instance_type: "t".into(),
            capacity_type: "on-demand".into(),
            price: Money::from_micros(micros),
            reschedule_cost: cost::ONE,
            n_pods: 0,
            is_consolidatable: true,
        }
    }

    fn pool(spec: &Value) -> NodePool {
        let mut spec = spec.clone();
        spec["template"] = json!({"spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}});
        let pool =
            json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": spec});
        serde_json::from_value(pool).unwrap()
    }

    #[test]
    fn an_empty_node_that_has_rested_goes_whatever_the_policy() {
        for policy in ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"] {
            let pool = pool(&json!({"disruption": {"consolidateAfter": "30s", "consolidationPolicy": policy}}));
            assert_eq!(judge(&candidate("a", "p", 1), &pool, false), Ok(()), "{policy}");
        }
    }

    #[test]
    fn each_refusal_says_why() {
        let empty = candidate("a", "p", 1);
        let busy = Candidate { reschedule_cost: 2 * cost::ONE, n_pods: 1, ..empty.clone() };
        let young = Candidate { is_consolidatable: false, ..empty.clone() };
        let usual = json!({"disruption": {"consolidateAfter": "0s"}});
        let never = json!({"disruption": {"consolidateAfter": "Never"}});
        for (candidate, spec, is_for_buffer, expected, is_told) in [
            (&empty, &json!({"replicas": 1}), false, "NodePool is static", false),
            (&empty, &never, false, "NodePool \"p\" has consolidation disabled", true),
            (&empty, &usual, true, "Node \"a\" has buffer pods", true),
            (&busy, &usual, false, "Node runs 1 pods", false),
            (&young, &usual, false, "Node has not rested for consolidateAfter", false),
        ] {
            let unfit = judge(candidate, &pool(spec), is_for_buffer).unwrap_err();
            assert_eq!((unfit.to_string().as_str(), unfit.is_told()), (expected, is_told));
        }
    }

    #[test]
    fn budgets_cut_off_the_cheapest_of_each_pool() {
        let ready = ["a 1 p", "b 3 p", "c 2 p", "d 9 q", "e 9 r", "f 3 p"].map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            candidate(words[0], words[2], words[1].parse().unwrap())
        });
        let left = BTreeMap::from([("p".into(), 3), ("q".into(), 0), ("r".into(), 7)]);
        let (chosen, kept) = choose(ready.to_vec(), &left);
        let names = |list: &[Candidate]| list.iter().map(|it| it.node.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&chosen), ["e", "b", "f", "c"]);
        assert_eq!(names(&kept), ["d", "a"]);
        let mut backwards = ready.to_vec();
        backwards.reverse();
        assert_eq!(choose(backwards, &left).0, chosen);
    }
}
