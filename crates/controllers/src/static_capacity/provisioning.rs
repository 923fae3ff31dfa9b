//! `static.provisioning`: claims for a static pool that has too few.
//!
//! When a pool is deleted, its claims go with it, and that may be heard before the pool's own end. So the API server is asked for the pool
//! before any claim is made.

use super::{RECHECK_MS, mark, replicas, tally};
use crate::claims::{Wish, claim_for, labels_of, name_for};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::metrics::families;
use crate::pools::{is_ready, is_served};
use crate::queue::Queue;
use crate::resource::{NODE_CLAIMS, NODE_POOLS};
use crate::world::{Change, World};
use crate::write;
use kerf_api::NodePool;
use kerf_model::resources::NODES;
use kerf_model::{Quantity, Text, UnixMillis};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const NAME: &str = "static.provisioning";
/// How often a pool is looked at that its limit keeps from growing.
const LIMITED_RECHECK_MS: i64 = 30_000;

pub struct Provisioning {
    queue: Queue<Text>,
    /// Claims that were asked for and not answered, by pool.
    in_flight: BTreeMap<Text, BTreeSet<Text>>,
}

impl Default for Provisioning {
    fn default() -> Self {
        Self { queue: Queue::new(1_000, 60_000), in_flight: BTreeMap::new() }
    }
}

impl Duty for Provisioning {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, world: &World) {
        mark(&mut self.queue, change, world);
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        // Claims that have not been seen yet would be made twice.
        if !desk.world.is_synced() {
            return None;
        }
        for name in self.queue.take_due(desk.now) {
            if let Some(pool) = desk.world.pools.get(&name).cloned()
                && let Some(n_wanted) = replicas(&pool)
                && is_served(&**desk.cloud, &pool)
            {
                let missing = self.missing(desk, &name, &pool, n_wanted);
                let key = key(&name, "");
                if is_ready(&pool) && missing.n_claims > 0 && !desk.is_busy(&key) {
                    desk.call(&key, write::get(NODE_POOLS.path("", &name)));
                }
                let wait = if is_ready(&pool) && missing.is_limited { LIMITED_RECHECK_MS } else { RECHECK_MS };
                self.queue.add_at(name, UnixMillis(desk.now.0 + wait));
            }
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        let Some((pool, claim)) = key.split_once('/').map(|(pool, claim)| (Text::from(pool), Text::from(claim))) else {
            return;
        };
        if claim.is_empty() {
            return self.looked(desk, &pool, outcome);
        }
        if let Some(in_flight) = self.in_flight.get_mut(&pool) {
            in_flight.remove(&claim);
        }
        match outcome {
            Outcome::Api(Err(failure)) => {
                let wait_ms = self.queue.retry(pool.clone(), desk.now);
                if failure.already_exists() {
                    // Asked for by a predecessor; the watch will show it.
                    tracing::debug!(controller = NAME, NodePool = %pool, NodeClaim = %claim, "nodeclaim exists already");
                } else {
                    tracing::error!(controller = NAME, NodePool = %pool, NodeClaim = %claim, error = %failure, wait_ms, "creating nodeclaim");
                }
            }
            _ => {
                self.queue.succeeded(&pool);
                self.queue.add(pool.clone());
                desk.metrics.add(&families::NODECLAIMS_CREATED_TOTAL, &["provisioned", &pool, "false"], 1.0);
                tracing::info!(controller = NAME, NodePool = %pool, NodeClaim = %claim, "created nodeclaim");
            }
        }
    }
}

impl Provisioning {
    /// The API server has said whether the pool is there.
    fn looked(&mut self, desk: &mut Desk<'_>, name: &Text, outcome: Outcome) {
        let found = match outcome {
            Outcome::Api(Ok(found)) => found,
            Outcome::Api(Err(failure)) if !failure.is_not_found() => {
                let wait_ms = self.queue.retry(name.clone(), desk.now);
                tracing::error!(controller = NAME, NodePool = %name, error = %failure, wait_ms, "reading nodepool");
                return;
            }
            _ => return,
        };
        // Another one of its name, or one that goes, is heard of by the watch.
        let is_same = |pool: &&Arc<NodePool>| {
            found["metadata"]["uid"].as_str() == pool.metadata.uid.as_deref()
                && found["metadata"]["deletionTimestamp"].is_null()
        };
        if let Some(pool) = desk.world.pools.get(name).filter(is_same).cloned()
            && let Some(n_wanted) = replicas(&pool)
        {
            self.provision(desk, name, &pool, n_wanted);
        }
    }

    fn missing(&self, desk: &Desk<'_>, name: &Text, pool: &NodePool, n_wanted: usize) -> Missing {
        let tally = tally(desk.world, name);
        missing(&Count {
            n_wanted,
            limit: limit(pool),
            n_active: tally.active.len() + self.in_flight.get(name).map_or(0, BTreeSet::len),
            n_pending: tally.n_pending,
            n_deleting: tally.n_deleting,
        })
    }

    /// Asks for the claims that are missing.
    fn provision(&mut self, desk: &mut Desk<'_>, name: &Text, pool: &NodePool, n_wanted: usize) {
        let missing = self.missing(desk, name, pool, n_wanted);
        let in_flight = self.in_flight.entry(name.clone()).or_default();
        let names = free_names(name, pool, limit(pool), missing.n_claims, |claim| {
            desk.world.claims.contains_key(claim) || in_flight.contains(claim)
        });
        for claim_name in names {
            let mut wish = Wish::plain(claim_name.clone(), pool);
            wish.labels = labels_of(&wish.requirements, &desk.options.mirror.labels);
            match claim_for(pool, wish) {
                Ok(claim) => {
                    in_flight.insert(claim_name.clone());
                    desk.call(&key(name, &claim_name), write::create(NODE_CLAIMS, "", &claim));
                }
                Err(error) => {
                    tracing::error!(controller = NAME, NodePool = %name, error = %error, "cannot make a nodeclaim of the template");
                }
            }
        }
    }
}

/// Of an errand; without a claim it is about the pool itself.
fn key(pool: &str, claim: &str) -> Text {
    format!("{pool}/{claim}").into()
}

/// What is there of a pool, and what is wanted.
#[derive(Debug, Clone, Copy)]
struct Count {
    n_wanted: usize,
    limit: Option<usize>,
    n_active: usize,
    n_pending: usize,
    n_deleting: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct Missing {
    n_claims: usize,
    is_limited: bool,
}

/// How many claims to make. What a disruption has chosen has its replacement among the active ones, or is about to.
fn missing(count: &Count) -> Missing {
    let Count { n_wanted, limit, n_active, n_pending, n_deleting } = *count;
    if n_active + n_pending >= n_wanted {
        return Missing { n_claims: 0, is_limited: false };
    }
    let n_missing = n_wanted - n_active;
    let room = limit.map_or(usize::MAX, |limit| limit.saturating_sub(n_active + n_pending + n_deleting));
    Missing { n_claims: n_missing.min(room), is_limited: room < n_missing }
}

/// `limits.nodes`; a part of a node is none.
fn limit(pool: &NodePool) -> Option<usize> {
    let text = pool.spec.limits.as_ref()?.get(NODES)?;
    let limit = Quantity::parse(&text.0).ok()?;
    Some(usize::try_from(limit.milli / 1_000).unwrap_or(0))
}

/// The first names of the pool's list that nobody has. The list ends with the limit.
fn free_names(
    pool_name: &str,
    pool: &NodePool,
    limit: Option<usize>,
    n_names: usize,
    is_taken: impl Fn(&Text) -> bool,
) -> Vec<Text> {
    let uid = pool.metadata.uid.as_deref().unwrap_or_default();
    let mut names = Vec::new();
    let mut seen = BTreeSet::new();
    let mut slot = 0_usize;
    while names.len() < n_names && seen.len() < limit.unwrap_or(usize::MAX) {
        let name = name_for(pool_name, &format!("{uid}/{slot}"));
        slot += 1;
        // Two places on the list may lead to one name; it counts once.
        if seen.insert(name.clone()) && !is_taken(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pool(limits: &serde_json::Value) -> NodePool {
        serde_json::from_value(json!({
            "metadata": {"name": "s", "uid": "u"},
            "spec": {"limits": limits, "template": {"spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}}},
        }))
        .unwrap()
    }

    #[test]
    fn as_many_claims_are_made_as_are_missing_and_the_limit_allows() {
        for (n_wanted, limit, n_active, n_pending, n_deleting, expected) in [
            (10, None, 0, 0, 0, (10, false)),
            (10, None, 10, 0, 0, (0, false)),
            (10, None, 12, 0, 0, (0, false)),
            (10, Some(5), 0, 0, 0, (5, true)),
            (10, Some(5), 5, 0, 0, (0, true)),
            (5, Some(5), 4, 0, 1, (0, true)),
            (5, None, 4, 0, 1, (1, false)),
            (4, None, 3, 1, 0, (0, false)),
            (5, Some(6), 3, 1, 0, (2, false)),
            (5, Some(5), 3, 1, 0, (1, true)),
            (3, Some(0), 0, 0, 0, (0, true)),
        ] {
            let count = Count { n_wanted, limit, n_active, n_pending, n_deleting };
            let expected = Missing { n_claims: expected.0, is_limited: expected.1 };
            assert_eq!(missing(&count), expected, "{count:?}");
        }
    }

    #[test]
    fn names_are_those_of_the_list_and_the_list_ends_with_the_limit() {
        let pool = pool(&json!({}));
        let all = free_names("s", &pool, Some(5), 9, |_| false);
        assert_eq!(all.len(), 5);
        let rest = free_names("s", &pool, Some(5), 9, |name| *name == all[1] || *name == all[3]);
        assert_eq!(rest, [all[0].clone(), all[2].clone(), all[4].clone()]);
        assert_eq!(free_names("s", &pool, None, 2, |_| false), all[..2]);
    }

    #[test]
    fn the_limit_is_whole_nodes() {
        assert_eq!(limit(&pool(&json!({}))), None);
        assert_eq!(limit(&pool(&json!({"nodes": "5"}))), Some(5));
        assert_eq!(limit(&pool(&json!({"nodes": "2500m"}))), Some(2));
    }
}
