//! The controllers of workloads: Deployments, ReplicaSets and the other owners of pods, disruption budgets, what every
//! namespace gets, and the cleaning up of pods that nobody else would delete.
//!
//! ```text
//! change ─▶ World (facts) ─▶ Queue: who has to look again ─▶ a desk's decision over the facts ─▶ Hands
//! ```
//!
//! They share one picture of the cluster and one queue, and write under one name, as the parts of the real
//! kube-controller-manager do. Each desk looks at one object at a time and does what is missing: looking twice does nothing
//! more, and a look that failed is repeated after a while. Deleting what lost its owner and emptying namespaces is not done here.

mod accounts;
mod budget;
mod cleanup;
mod cronjob;
mod daemonset;
mod deployment;
mod facts;
mod hash;
mod job;
mod owner;
mod queue;
mod replicas;
mod revisions;
mod route;
mod selector;
mod share;
mod statefulset;
mod world;

use jiff::{SignedDuration, Timestamp};

use self::queue::Queue;
use self::world::World;
use crate::drive::Controller;
use crate::error::ApiError;
use crate::hands::Hands;
use crate::store::{Change, Key};

/// When to look again, or why it did not work out.
pub(crate) type Synced = Result<Option<Timestamp>, ApiError>;

/// All of them, as one controller.
#[derive(Debug)]
pub struct Workloads {
    world: World,
    queue: Queue<Task>,
    patience: daemonset::Patience,
    records: job::Records,
    ca_pem: String,
}

/// One object for one desk to look at. Owners come before what they own, so that a step and its consequences share a turn.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Task {
    desk: Desk,
    key: Key,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Desk {
    Namespace,
    Deployment,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
    DaemonSet,
    CronJob,
    Job,
    Budget,
    Cleanup,
}

impl Default for Workloads {
    fn default() -> Self {
        Self::new("")
    }
}

impl Controller for Workloads {
    fn name(&self) -> &'static str {
        "workloads"
    }

    fn observe(&mut self, change: &Change) {
        let tasks = match (change.resource.group.as_str(), change.resource.plural.as_str()) {
            ("", "pods") => {
                let (before, after) = self.world.pods.observe(change);
                route::pod(&self.world, before.as_deref(), after.as_deref())
            }
            ("", "nodes") if self.world.observe_node(change) => route::node(&self.world),
            ("", "nodes") => Vec::new(),
            _ => {
                self.world.observe(change);
                route::other(&self.world, change)
            }
        };
        for task in tasks {
            self.queue.add(task);
        }
    }

    fn work(&mut self, hands: &mut Hands<'_>) -> Option<Timestamp> {
        for task in self.queue.take_due(hands.now()) {
            match self.look(hands, &task) {
                Ok(again) => {
                    self.queue.succeeded(&task);
                    if let Some(again) = again {
                        // Never in the same moment: a desk that asks for that would spin.
                        self.queue.add_at(task, again.max(soon(hands.now())));
                    }
                }
                Err(_) => self.queue.failed(task, hands.now()),
            }
        }
        self.queue.next()
    }
}

fn soon(now: Timestamp) -> Timestamp {
    now.saturating_add(SignedDuration::from_millis(5)).unwrap_or(now)
}

impl Workloads {
    /// `ca_pem` is what pods get to know the server by.
    #[must_use]
    pub fn new(ca_pem: &str) -> Self {
        Self {
            world: World::default(),
            queue: Queue::default(),
            patience: daemonset::Patience::default(),
            records: job::Records::default(),
            ca_pem: ca_pem.to_owned(),
        }
    }

    fn look(&mut self, hands: &mut Hands<'_>, task: &Task) -> Synced {
        let (world, key) = (&self.world, &task.key);
        match task.desk {
            Desk::Namespace => accounts::sync(world, hands, key, &self.ca_pem),
            Desk::Deployment => deployment::sync(world, hands, key),
            Desk::ReplicaSet => replicas::sync_replica_set(world, hands, key),
            Desk::ReplicationController => replicas::sync_replication_controller(world, hands, key),
            Desk::StatefulSet => statefulset::sync(world, hands, key),
            Desk::DaemonSet => daemonset::sync(world, hands, key, &mut self.patience),
            Desk::CronJob => cronjob::sync(world, hands, key),
            Desk::Job => job::sync(world, hands, key, &mut self.records),
            Desk::Budget => budget::sync(world, hands, key),
            Desk::Cleanup => cleanup::sync(world, hands),
        }
    }
}
