//! Status conditions, told: an event and a count for each transition, a gauge for how things stand. Duty `status`.
//!
//! ```text
//! Change ─▶ marked ─▶ work: as last told │ as it is now ─▶ events, counts
//!                                                       └▶ Board ─▶ the page
//! ```
//!
//! It watches NodeClaims, NodePools, Nodes, CapacityBuffers and node classes, whoever sets their conditions. What was there before
//! us is how things stand, not news: after a restart nothing is told twice.
//!
//! Not for setting conditions: see [`crate::conditions`].

mod board;
mod subject;

pub use board::{FamilyOfKind, families_of_kinds};

use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::events::{About, Event};
use crate::world::{Change, World};
use board::{Board, Sheet};
use kerf_mirror::Kind;
use kerf_model::{NodeClassRef, Text, UnixMillis};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use subject::{Statement, Subject, statements};

/// How often the gauges are renewed while things change.
const RENEW_EVERY_MS: i64 = 10_000;

#[derive(Debug, Default)]
pub struct StatusTeller {
    board: Arc<Board>,
    marked: BTreeSet<Key>,
    /// As last told.
    seen: BTreeMap<Key, Subject>,
    /// Everything that was there at the start has been seen.
    is_primed: bool,
    is_dirty: bool,
    renewed: Option<UnixMillis>,
}

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Claim(Text),
    Pool(Text),
    Node(Text),
    Buffer(Text, Text),
    Class(NodeClassRef),
}

impl Duty for StatusTeller {
    fn name(&self) -> &'static str {
        "status"
    }

    fn observe(&mut self, change: &Change, world: &World) {
        let (key, is_there) = match change {
            Change::Claim { name, after, .. } => (Key::Claim(name.clone()), after.is_some()),
            Change::Pool { name, after, .. } => (Key::Pool(name.clone()), after.is_some()),
            Change::Node { name, after, .. } => (Key::Node(name.clone()), after.is_some()),
            Change::Class { class, after, .. } => (Key::Class(class.clone()), after.is_some()),
            Change::Other { key } if key.kind == Kind::CapacityBuffer => {
                let named = (key.namespace.clone(), key.name.clone());
                let is_there = world.buffers.contains_key(&named);
                (Key::Buffer(named.0, named.1), is_there)
            }
            _ => return,
        };
        // Whoever stands by for weeks must not remember everything that came and went.
        if is_there || self.seen.contains_key(&key) {
            self.marked.insert(key);
        } else {
            self.marked.remove(&key);
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.world.is_synced() {
            return None;
        }
        self.is_dirty |= !self.is_primed;
        for key in std::mem::take(&mut self.marked) {
            self.tell(key, desk);
        }
        let next = self.renewed.map(|then| UnixMillis(then.0.saturating_add(RENEW_EVERY_MS)));
        if self.is_dirty && next.is_none_or(|then| then <= desk.now) {
            (self.is_dirty, self.renewed) = (false, Some(desk.now));
            self.board.publish(Sheet {
                subjects: self.seen.values().cloned().collect(),
                class_kinds: desk.cloud.node_classes(),
            });
        }
        if !self.is_primed {
            self.is_primed = true;
            desk.metrics.attach("status", self.board.clone());
        }
        next.filter(|_| self.is_dirty)
    }

    fn done(&mut self, _: &Text, _: Outcome, _: &mut Desk<'_>) {}
}

impl StatusTeller {
    fn tell(&mut self, key: Key, desk: &mut Desk<'_>) {
        self.is_dirty = true;
        let now = Subject::of(&key, desk.world);
        let before = self.seen.remove(&key);
        match (&before, &now) {
            (Some(before), Some(now)) if before.uid() == now.uid() => self.tell_change(before, now, desk),
            (before, now) => {
                if let Some(before) = before {
                    self.tell_end(before, desk);
                }
                if let Some(now) = now
                    && self.is_primed
                {
                    for statement in statements(now) {
                        self.board.count_transition(now, &statement, &desk.cloud.node_classes());
                    }
                }
            }
        }
        if let Some(now) = now {
            self.seen.insert(key, now);
        }
    }

    fn tell_change(&self, before: &Subject, now: &Subject, desk: &mut Desk<'_>) {
        let earlier = statements(before);
        for statement in statements(now) {
            let known = earlier.iter().find(|known| known.kind == statement.kind);
            if known.is_some_and(|known| known.status == statement.status) {
                continue;
            }
            self.board.count_transition(now, &statement, &desk.cloud.node_classes());
            if let Some(known) = known {
                self.board.observe_transition(now, known, &statement, &desk.cloud.node_classes());
                if let Some(about) = now.about(desk.cloud.as_ref()) {
                    desk.event(transition(about, known, &statement));
                }
            }
        }
        let kept: &[String] = now.metadata().finalizers.as_deref().unwrap_or_default();
        tell_finalized(before, kept, desk);
    }

    fn tell_end(&self, before: &Subject, desk: &mut Desk<'_>) {
        tell_finalized(before, &[], desk);
        if let Some(deleted) = before.deleted_at() {
            let seconds = desk.now.0.saturating_sub(deleted.0).max(0) as f64 / 1_000.0;
            self.board.observe_termination(before, seconds, &desk.cloud.node_classes());
        }
    }
}

fn transition(about: About, from: &Statement<'_>, to: &Statement<'_>) -> Event {
    let mut message = format!(
        "Status condition transitioned, Type: {}, Status: {} -> {}, Reason: {}",
        to.kind, from.status, to.status, to.reason
    );
    if !to.message.is_empty() {
        message.push_str(", Message: ");
        message.push_str(to.message);
    }
    // Every transition is told; only the very same one is not told again.
    let same = [about.uid.clone(), Text::from(message.as_str()), to.since.0.to_string().into()];
    Event::normal(about, to.kind.to_owned(), crate::events::cut(message)).same_by(same)
}

/// Finalizers that an object under deletion no longer has.
fn tell_finalized(before: &Subject, kept: &[String], desk: &mut Desk<'_>) {
    let gone = before.metadata().finalizers.iter().flatten().filter(|finalizer| !kept.contains(finalizer));
    for finalizer in gone {
        if let Some(about) = before.about(desk.cloud.as_ref()) {
            let same = [about.uid.clone(), finalizer.as_str().into()];
            desk.event(Event::normal(about, "Finalized", format!("Finalized {finalizer}")).same_by(same));
        }
    }
}
