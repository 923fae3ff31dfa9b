//! The machines that were bought: what they are, what they cost, and what becomes of them.
//!
//! ```text
//! launched ──▶ visible to reads ──▶ [notice ──▶] ending ──▶ gone ──▶ forgotten, but for the bill
//! ```
//!
//! Nothing here asks the clock: every question says when it is asked, and what is due by then happens first.

use super::bill::{Bill, BillLine, Meter};
use super::notice::{Inbox, Notice, NoticeKind};
use kerf_cloud::{Instance, OfferingKey};
use kerf_model::{Labels, Resources, Text, UnixMillis};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long a machine that is gone is remembered by name.
const REMEMBERED_MS: i64 = 3_600_000;
/// How many lines of machines that are gone a bill still has; older ones are summed up.
const OLD_LINES_MAX: usize = 10_000;

#[derive(Default)]
pub(super) struct Fleet {
    machines: BTreeMap<Text, Machine>,
    by_claim: BTreeMap<Text, Text>,
    names: BTreeSet<Text>,
    /// By offering: what the last machine from it had, which the next one has too.
    alike: BTreeMap<OfferingKey, Alike>,
    /// What is due when, and for which machine.
    agenda: BTreeSet<(i64, Text)>,
    pub(super) inbox: Inbox,
    old_lines: Vec<BillLine>,
    older_micros: i64,
}

pub(super) struct Machine {
    pub(super) instance: Instance,
    pub(super) uid: Text,
    pub(super) node: Text,
    pub(super) key: OfferingKey,
    pub(super) launched_ms: i64,
    /// Reads know of it from here on.
    pub(super) visible_ms: i64,
    /// When it will be taken back: the notice, and the end.
    pub(super) loss: Option<Loss>,
    pub(super) ending: Option<Ending>,
    pub(super) meter: Meter,
    pub(super) operations: BTreeSet<Text>,
    pub(super) placing: Arc<Placing>,
}

/// What machines from one offering have in common, as a rule.
struct Alike {
    labels: Arc<Labels>,
    capacity: Arc<Resources>,
    allocatable: Arc<Resources>,
    placing: Arc<Placing>,
}

/// Where an EC2 machine stands, to tell later whether its class has moved on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Placing {
    pub(super) class_hash: Option<Text>,
    pub(super) subnet: Option<Text>,
    pub(super) security_groups: BTreeSet<Text>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Loss {
    pub(super) notice_ms: i64,
    pub(super) end_ms: i64,
    pub(super) is_told: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    pub(super) since_ms: i64,
    /// Reads know of it from here on.
    pub(super) visible_ms: i64,
    pub(super) gone_ms: i64,
}

/// How long an ending takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndingPace {
    pub(super) shutdown_ms: i64,
    pub(super) lag_ms: i64,
}

/// What the world outside has to do after a look at the fleet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The machine stops now.
    Stop { node: Text },
    /// It is no more; another of its kind can be had.
    Returned { key: OfferingKey },
}

/// Equal values are kept once, the latest where they differ.
fn share<T: PartialEq>(known: &mut Arc<T>, new: &mut Arc<T>) {
    if known == new {
        *new = known.clone();
    } else {
        *known = new.clone();
    }
}

impl Fleet {
    pub(super) fn add(&mut self, mut machine: Machine) {
        self.liken(&mut machine);
        let id = machine.instance.provider_id.clone();
        // A kwok node's name follows from its claim: a second machine of the claim takes the place of the one that is gone.
        self.forget(&id);
        self.by_claim.insert(machine.uid.clone(), id.clone());
        self.names.insert(machine.node.clone());
        if let Some(loss) = machine.loss {
            self.agenda.extend([(loss.notice_ms, id.clone()), (loss.end_ms, id.clone())]);
        }
        self.machines.insert(id, machine);
    }

    /// A thousand machines of a type have one set of labels.
    fn liken(&mut self, machine: &mut Machine) {
        let Machine { instance, key, placing, .. } = machine;
        let alike = self.alike.entry(key.clone()).or_insert_with(|| Alike {
            labels: instance.labels.clone(),
            capacity: instance.capacity.clone(),
            allocatable: instance.allocatable.clone(),
            placing: placing.clone(),
        });
        share(&mut alike.labels, &mut instance.labels);
        share(&mut alike.capacity, &mut instance.capacity);
        share(&mut alike.allocatable, &mut instance.allocatable);
        share(&mut alike.placing, placing);
    }

    pub(super) fn has_node(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    pub(super) fn machine(&self, provider_id: &str) -> Option<&Machine> {
        self.machines.get(provider_id)
    }

    pub(super) fn machine_mut(&mut self, provider_id: &str) -> Option<&mut Machine> {
        self.machines.get_mut(provider_id)
    }

    /// The machine of a claim, unless it is gone.
    pub(super) fn of_claim(&self, uid: &str, now: UnixMillis) -> Option<&Machine> {
        self.by_claim.get(uid).and_then(|id| self.machines.get(id)).filter(|machine| !machine.is_gone(now))
    }

    /// What reads say now, which may be behind.
    pub(super) fn visible(&self, now: UnixMillis) -> impl Iterator<Item = Instance> {
        self.machines.values().filter_map(move |machine| machine.read(now))
    }

    /// Begins to end a machine. False when there is none, or none any more.
    pub(super) fn end(&mut self, provider_id: &str, now: UnixMillis, pace: EndingPace) -> Option<Vec<Due>> {
        let machine = self.machines.get_mut(provider_id).filter(|machine| !machine.is_gone(now))?;
        if machine.ending.is_some() {
            return Some(Vec::new());
        }
        let ending = Ending {
            since_ms: now.0,
            visible_ms: now.0 + pace.lag_ms,
            gone_ms: now.0 + pace.shutdown_ms + pace.lag_ms,
        };
        machine.ending = Some(ending);
        machine.meter.stop(now);
        self.agenda.insert((ending.gone_ms, machine.instance.provider_id.clone()));
        Some(vec![Due::Stop { node: machine.node.clone() }])
    }

    /// Takes a machine back: notice now, the end two minutes later.
    pub(super) fn interrupt(&mut self, provider_id: &str, now: UnixMillis, warning_ms: i64) -> bool {
        let Some(machine) = self.machines.get_mut(provider_id).filter(|machine| machine.ending.is_none()) else {
            return false;
        };
        if machine.loss.is_none_or(|loss| !loss.is_told) {
            machine.loss = Some(Loss { notice_ms: now.0, end_ms: now.0 + warning_ms, is_told: false });
            let id = machine.instance.provider_id.clone();
            self.agenda.extend([(now.0, id.clone()), (now.0 + warning_ms, id)]);
        }
        true
    }

    /// Lets happen what is due. `pace` says how long an ending takes for a machine.
    pub(super) fn advance(&mut self, now: UnixMillis, pace: impl Fn(&Text) -> EndingPace) -> Vec<Due> {
        let mut due = Vec::new();
        while let Some((at_ms, id)) = self.agenda.first().filter(|(at_ms, _)| *at_ms <= now.0).cloned() {
            self.agenda.pop_first();
            self.happen(&id, UnixMillis(at_ms), pace(&id), &mut due);
        }
        due
    }

    fn happen(&mut self, id: &Text, at: UnixMillis, pace: EndingPace, due: &mut Vec<Due>) {
        let Some(machine) = self.machines.get_mut(id) else { return };
        if let Some(ending) = machine.ending {
            if at.0 >= ending.gone_ms + REMEMBERED_MS {
                self.forget(id);
            } else if at.0 == ending.gone_ms {
                due.push(Due::Returned { key: machine.key.clone() });
                self.agenda.insert((ending.gone_ms + REMEMBERED_MS, id.clone()));
            }
            return;
        }
        let Some(loss) = &mut machine.loss else { return };
        let notice = |kind| Notice { provider_id: id.clone(), kind, at };
        if at.0 >= loss.notice_ms && !loss.is_told {
            loss.is_told = true;
            self.inbox.put(notice(NoticeKind::SpotInterruption { ends_at: UnixMillis(loss.end_ms) }));
        } else if at.0 >= loss.end_ms {
            self.inbox.put(notice(NoticeKind::InstanceTerminated));
            due.extend(self.end(id, at, pace).into_iter().flatten());
        }
    }

    fn forget(&mut self, id: &Text) {
        let Some(machine) = self.machines.remove(id) else { return };
        self.names.remove(&machine.node);
        if self.by_claim.get(&machine.uid) == Some(id) {
            self.by_claim.remove(&machine.uid);
        }
        self.old_lines.push(machine.line());
        if self.old_lines.len() > OLD_LINES_MAX {
            self.older_micros += self.old_lines.remove(0).spent_micros;
        }
    }

    /// When something happens by itself next.
    pub(super) fn next_due(&self) -> Option<UnixMillis> {
        self.agenda.first().map(|(at_ms, _)| UnixMillis(*at_ms))
    }

    /// Spot machines that are paid for, to read their meters at a new price.
    pub(super) fn running_mut(&mut self) -> impl Iterator<Item = &mut Machine> {
        self.machines.values_mut().filter(|machine| machine.ending.is_none())
    }

    pub(super) fn bill(&mut self, now: UnixMillis) -> Bill {
        for machine in self.running_mut() {
            machine.meter.read(now);
        }
        let mut lines = self.old_lines.clone();
        lines.extend(self.machines.values().map(Machine::line));
        lines.sort_by(|a, b| (a.from, &a.provider_id).cmp(&(b.from, &b.provider_id)));
        Bill {
            spent_micros: self.older_micros + lines.iter().map(|line| line.spent_micros).sum::<i64>(),
            per_hour: self.running_mut().map(|machine| machine.meter.price()).sum(),
            lines,
        }
    }
}

impl Machine {
    pub(super) fn is_gone(&self, now: UnixMillis) -> bool {
        self.ending.is_some_and(|ending| ending.gone_ms <= now.0)
    }

    /// What a read says. None when it does not know of the machine yet, or any more.
    pub(super) fn read(&self, now: UnixMillis) -> Option<Instance> {
        let is_ending = self.ending.is_some_and(|ending| ending.visible_ms <= now.0);
        (self.visible_ms <= now.0 && !self.is_gone(now)).then(|| Instance { is_ending, ..self.instance.clone() })
    }

    /// What is true, whatever reads say.
    pub(super) fn truth(&self) -> Instance {
        Instance { is_ending: self.ending.is_some(), ..self.instance.clone() }
    }

    fn line(&self) -> BillLine {
        BillLine {
            provider_id: self.instance.provider_id.clone(),
            node: self.node.clone(),
            claim: self.instance.claim.clone(),
            offering: self.key.clone(),
            from: UnixMillis(self.launched_ms),
            until: self.ending.map(|ending| UnixMillis(ending.since_ms)),
            spent_micros: self.meter.spent_micros(),
        }
    }
}
