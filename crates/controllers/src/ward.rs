//! A duty under guard: when it panics, it is shown what there is piece by piece, until it is known which object it panics on. It leaves that
//! one alone for a while, and goes on with all others.
//!
//! ```text
//! work panics ─▶ work with nothing shown ── panics, too ─▶ rest, then again: it is not about one object
//!                    └─▶ show a group, work ── calm ─▶ the next group
//!                             └── panics ─▶ halves ─▶ … ─▶ one object: barred, told, shown again later
//! ```
//!
//! Showing is what every change does anyway: each object's work is done as it comes, so that finding the culprit costs the others nothing but
//! a look. A duty keeps its memory: what it had noted to look at in the moment of the panic is lost, and shown again with everything else. One that
//! panics with nothing shown, and again after a rest, is replaced by a new one; one that does so after it was shown something, at once: it
//! remembers the culprit, and would panic on whatever comes next.

use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::events::Event;
use crate::guard::{Defect, guarded};
use crate::limits::{POISON_KEPT_FIRST, POISON_KEPT_MOST, WARD_REST_FIRST, WARD_REST_MOST};
use crate::metrics::families;
use crate::moment::millis;
use crate::queue::earlier;
use crate::standstill::about;
use crate::world::{Change, World};
use kerf_mirror::ObjectKey;
use kerf_model::{Text, UnixMillis};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub(crate) struct Ward {
    duty: Box<dyn Duty>,
    /// Objects that it is not shown, until when, and how long that was.
    barred: BTreeMap<ObjectKey, (UnixMillis, i64)>,
    /// Panics in the midst of looking at a change.
    untold: Vec<(ObjectKey, Defect)>,
    trial: Option<Trial>,
    /// It panics whatever it is shown: not before.
    rests_until: Option<UnixMillis>,
    rest_ms: i64,
    /// It has rested, and panics on: what it remembers may be what it trips over.
    is_worn: bool,
}

#[derive(Default)]
struct Trial {
    /// It has worked with nothing shown.
    is_probed: bool,
    groups: VecDeque<Vec<ObjectKey>>,
    /// It was shown something since it was made, or taken for sound.
    has_shown: bool,
    /// Another one has taken its place, and has to see what the first was shown.
    begins_anew: bool,
    /// What changed meanwhile.
    changed: BTreeSet<ObjectKey>,
}

impl Ward {
    pub(crate) fn new(duty: Box<dyn Duty>) -> Self {
        Self {
            duty,
            barred: BTreeMap::new(),
            untold: Vec::new(),
            trial: None,
            rests_until: None,
            rest_ms: 0,
            is_worn: false,
        }
    }

    /// Whether another one of its kind should take its place.
    pub(crate) fn is_worn(&self) -> bool {
        self.is_worn
    }

    /// Another one takes its place, which remembers nothing. It is shown what there is when the rest is over. None where there is no other.
    pub(crate) fn replace(&mut self, duty: Option<Box<dyn Duty>>) {
        self.is_worn = false;
        let Some(duty) = duty else { return };
        tracing::warn!(controller = duty.name(), "it begins anew, and remembers nothing");
        self.duty = duty;
        if let Some(trial) = &mut self.trial {
            (trial.is_probed, trial.has_shown, trial.begins_anew) = (false, false, true);
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.duty.name()
    }

    pub(crate) fn observe(&mut self, change: &Change, world: &World) {
        let is_usual = self.barred.is_empty() && self.trial.is_none();
        if let Some(key) = change.key().filter(|_| !is_usual) {
            if self.barred.contains_key(&key) {
                return;
            }
            if let Some(trial) = &mut self.trial {
                trial.changed.insert(key);
                return;
            }
        }
        if let Err(defect) = guarded(|| self.duty.observe(change, world))
            && let Some(key) = change.key()
        {
            self.untold.push((key, defect));
        }
    }

    /// `shown` is what changed since it last worked.
    pub(crate) fn work(&mut self, shown: &[Change], desk: &mut Desk<'_>) -> Option<UnixMillis> {
        for (key, defect) in std::mem::take(&mut self.untold) {
            self.bar(key, &defect, desk);
        }
        if self.rests_until.is_some_and(|until| until > desk.now) {
            return self.rests_until;
        }
        if self.is_worn {
            // Until what is under way has ended.
            return None;
        }
        let due: Vec<ObjectKey> =
            self.barred.iter().filter(|(_, (until, _))| *until <= desk.now).map(|(key, _)| key.clone()).collect();
        for key in due {
            // Its time is remembered: if it panics again, it is barred for longer.
            let trial = self.trial.get_or_insert_with(|| Trial { is_probed: true, ..Trial::default() });
            trial.changed.insert(key);
        }
        let wish = if self.trial.is_some() {
            self.try_group(desk)
        } else {
            match guarded(|| self.duty.work(desk)) {
                Ok(wish) => {
                    (self.rests_until, self.rest_ms) = (None, 0);
                    wish
                }
                Err(defect) => {
                    tell(self.duty.name(), &defect, desk);
                    self.begin_trial(shown, desk);
                    Some(desk.now)
                }
            }
        };
        earlier(wish, self.barred.values().map(|(until, _)| *until).filter(|until| *until > desk.now).min())
    }

    pub(crate) fn done(&mut self, key: &Text, outcome: Outcome, shown: &[Change], desk: &mut Desk<'_>) {
        if let Err(defect) = guarded(|| self.duty.done(key, outcome, desk)) {
            tell(self.duty.name(), &defect, desk);
            self.begin_trial(shown, desk);
        }
    }

    fn begin_trial(&mut self, shown: &[Change], desk: &Desk<'_>) {
        let latest: Vec<ObjectKey> = shown.iter().filter_map(Change::key).collect();
        let all: Vec<ObjectKey> = desk.world.everything().iter().filter_map(Change::key).collect();
        let groups = [latest, all].into_iter().filter(|group| !group.is_empty());
        self.trial = Some(Trial { groups: groups.collect(), ..Trial::default() });
    }

    /// The next step of finding out.
    fn try_group(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        let trial = self.trial.as_mut()?;
        let group = if trial.is_probed { trial.groups.pop_front() } else { Some(Vec::new()) };
        let group = group.or_else(|| {
            let all = || desk.world.everything().iter().filter_map(Change::key).collect();
            std::mem::take(&mut trial.begins_anew).then(all)
        });
        let mut changed = || Some(std::mem::take(&mut trial.changed)).filter(|changed| !changed.is_empty());
        let Some(mut group) = group.or_else(|| changed().map(|changed| changed.into_iter().collect())) else {
            self.trial = None;
            // What it had noted for no object's sake is lost, too.
            if desk.world.is_synced()
                && let Err(defect) = guarded(|| self.duty.observe(&Change::Synced, desk.world))
            {
                tell(self.duty.name(), &defect, desk);
            }
            return Some(desk.now);
        };
        group.retain(|key| self.barred.get(key).is_none_or(|(until, _)| *until <= desk.now));
        let (duty, world) = (&mut self.duty, desk.world);
        let outcome = guarded(|| {
            for key in &group {
                duty.observe(&world.as_change_or_end(key), world);
            }
            duty.work(desk)
        });
        let has_shown = std::mem::replace(&mut trial.has_shown, !group.is_empty());
        // Whether it remembers what it tripped over.
        trial.is_probed = outcome.is_ok();
        match (outcome, group.len()) {
            (Ok(_), _) => {
                (self.rests_until, self.rest_ms) = (None, 0);
                self.barred.retain(|key, _| !group.contains(key));
                count(self.duty.name(), &self.barred, desk);
                Some(desk.now)
            }
            (Err(defect), 0) if has_shown => {
                tell(self.duty.name(), &defect, desk);
                self.is_worn = true;
                Some(desk.now)
            }
            (Err(defect), 0) => {
                self.is_worn = self.rest_ms > 0;
                self.rest_ms = longer(self.rest_ms, WARD_REST_FIRST, WARD_REST_MOST);
                let until = UnixMillis(desk.now.0.saturating_add(self.rest_ms));
                let (name, ms) = (self.duty.name(), self.rest_ms);
                tracing::error!(controller = name, error = %defect, again_after = format!("{ms}ms"), "it panics whatever it is shown: it rests");
                desk.metrics.add(&families::DEFECTS_TOTAL, &[name], 1.0);
                self.rests_until = Some(until);
                Some(until)
            }
            (Err(defect), 1) => {
                if let Some(key) = group.pop() {
                    self.bar(key, &defect, desk);
                }
                Some(desk.now)
            }
            (Err(_), n_objects) => {
                let second = group.split_off(n_objects / 2);
                trial.groups.push_front(second);
                trial.groups.push_front(group);
                Some(desk.now)
            }
        }
    }

    /// It is not shown for a while.
    fn bar(&mut self, key: ObjectKey, defect: &Defect, desk: &mut Desk<'_>) {
        let name = self.duty.name();
        let ms = longer(self.barred.get(&key).map_or(0, |(_, ms)| *ms), POISON_KEPT_FIRST, POISON_KEPT_MOST);
        desk.metrics.add(&families::DEFECTS_TOTAL, &[name], 1.0);
        tracing::error!(controller = name, object = %key, error = %defect, again_after = format!("{ms}ms"), "an object makes it panic: left alone");
        if let Some(about) = about(&key) {
            let minutes = ms / 60_000;
            let words = format!("{name} panics on it and leaves it alone for {minutes} minutes ({defect})");
            let same = [key.to_string().into(), name.into()];
            desk.event(Event::warning(about, "Quarantined", crate::events::cut(words)).same_by(same));
        }
        self.barred.insert(key, (UnixMillis(desk.now.0.saturating_add(ms)), ms));
        count(name, &self.barred, desk);
    }
}

fn tell(name: &str, defect: &Defect, desk: &Desk<'_>) {
    desk.metrics.add(&families::DEFECTS_TOTAL, &[name], 1.0);
    tracing::error!(controller = name, error = %defect, "held a panic");
}

fn count(name: &str, barred: &BTreeMap<ObjectKey, (UnixMillis, i64)>, desk: &Desk<'_>) {
    desk.metrics.set(&families::QUARANTINED_OBJECTS, &[name], barred.len() as f64);
}

fn longer(ms: i64, first: Duration, most: Duration) -> i64 {
    ms.saturating_mul(2).clamp(millis(first), millis(most))
}
