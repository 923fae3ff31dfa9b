//! Nodes of the cluster that are not ours, such as those of a managed node group whose notices come through the same queue: they
//! are cordoned, and their pods are asked to leave for as long as the notice allows. Nobody is forced: the machine is not ours to
//! hurry.

use super::NAME;
use crate::desk::Desk;
use crate::errand::Outcome;
use crate::queue::{Queue, earlier};
use crate::resource::NODES;
use crate::termination::{Drain, Until};
use crate::write;
use k8s_openapi::api::core::v1::Node;
use kerf_model::{Text, UnixMillis};
use serde_json::json;
use std::collections::BTreeMap;

/// How long a drain may take where the notice does not say: what the termination handler waits for a node by default.
const PATIENCE_MS: i64 = 120_000;
const BACKOFF_MS: (i64, i64) = (500, 10_000);
/// Until what was written shows.
const SHOWN_MS: i64 = 1_000;
const PREFIX: &str = "cordon/";

#[derive(Debug)]
pub(super) struct Guests {
    queue: Queue<Text>,
    /// Until when each is waited for.
    until: BTreeMap<Text, UnixMillis>,
}

impl Default for Guests {
    fn default() -> Self {
        Self { queue: Queue::new(BACKOFF_MS.0, BACKOFF_MS.1), until: BTreeMap::new() }
    }
}

impl Guests {
    pub(super) fn ask(&mut self, node: &Text, until: Option<UnixMillis>, now: UnixMillis) {
        let until = until.filter(|until| *until > now).unwrap_or(UnixMillis(now.0 + PATIENCE_MS));
        let known = self.until.entry(node.clone()).or_insert(until);
        *known = (*known).min(until);
        self.queue.add(node.clone());
    }

    /// Something about a node or its pods changed.
    pub(super) fn mark(&mut self, node: &str) {
        if let Some((name, _)) = self.until.get_key_value(node) {
            self.queue.add(name.clone());
        }
    }

    /// Answers the nodes that are drained, gone or out of time, and when to look again.
    pub(super) fn work(&mut self, desk: &mut Desk<'_>) -> (Vec<Text>, Option<UnixMillis>) {
        let mut settled = Vec::new();
        for name in self.queue.take_due(desk.now) {
            let Some(until) = self.until.get(&name).copied() else {
                continue;
            };
            let key: Text = format!("{PREFIX}{name}").into();
            if desk.is_busy(&key) {
                continue;
            }
            let node = desk.world.nodes.get(&name).filter(|node| node.metadata.deletion_timestamp.is_none()).cloned();
            match node {
                Some(node) if !is_cordoned(&node) && until > desk.now => {
                    desk.call(&key, write::patch(NODES, "", &name, json!({"spec": {"unschedulable": true}})));
                }
                Some(_) => match drain(&name, until, desk) {
                    Some(again) => self.queue.add_at(name, again),
                    None => settled.push(name),
                },
                None => settled.push(name),
            }
        }
        for name in &settled {
            self.until.remove(name);
            self.queue.forget(name);
        }
        (settled, self.queue.next())
    }

    pub(super) fn done(&mut self, key: &str, outcome: &Outcome, desk: &Desk<'_>) -> bool {
        let Some(name) = key.strip_prefix(PREFIX).map(Text::from) else {
            return false;
        };
        match outcome {
            Outcome::Api(Err(failure)) => {
                tracing::error!(controller = NAME, Node = &*name, error = %failure, "cordoning a node failed");
                self.queue.retry(name, desk.now);
            }
            _ => {
                self.queue.succeeded(&name);
                // An answer that cannot be read shows no cordon, and what is not seen would be asked for at once.
                self.queue.add_at(name, UnixMillis(desk.now.0 + SHOWN_MS));
            }
        }
        true
    }
}

/// Asks pods to leave. Answers when to look again; None when nobody is waited for any more.
fn drain(name: &Text, until: UnixMillis, desk: &mut Desk<'_>) -> Option<UnixMillis> {
    // A daemon would be back at once: nothing keeps it off a node that is only cordoned.
    let pods = desk.world.pods_on(name).filter(|pod| !pod.is_daemon());
    let drain = Drain::look(pods, None, desk.now);
    if drain.n_waiting == 0 {
        tracing::info!(controller = NAME, Node = &**name, "drained a node that is not ours");
        return None;
    }
    if until <= desk.now {
        tracing::info!(
            controller = NAME,
            Node = &**name,
            pods = drain.n_waiting,
            "no time left to drain a node that is not ours"
        );
        return None;
    }
    for pod in &drain.leaving {
        desk.evictions.ask(pod, Until::GivenUp(until));
    }
    earlier(drain.again_at, Some(until))
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false)
}
