//! Duty `disruption.standstill`: tells once when what is voluntary stands still, why, and when it goes on; and which objects cannot be
//! read.

use super::{Standstill, Voluntary, by_reason};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::events::{About, Event};
use crate::metrics::families;
use crate::resource::{NODE_POOLS, WATCHED};
use crate::world::{Change, World};
use kerf_mirror::ObjectKey;
use kerf_model::{Text, UnixMillis};
use std::collections::BTreeMap;

const NAME: &str = "disruption.standstill";

#[derive(Debug, Default)]
pub struct Tell {
    /// What stands still, and why, as it was told.
    told: BTreeMap<Voluntary, Standstill>,
    /// Objects that cannot be read, and why, as it was told.
    unreadable: BTreeMap<ObjectKey, String>,
}

impl Duty for Tell {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, _: &Change, _: &World) {}

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.world.is_synced() {
            return None;
        }
        let now = desk.standstills();
        if now != self.told {
            let before = std::mem::replace(&mut self.told, now);
            self.tell(&before, desk);
        }
        if *desk.world.unreadable() != self.unreadable {
            self.tell_unreadable(desk);
        }
        None
    }

    fn done(&mut self, _: &Text, _: Outcome, _: &mut Desk<'_>) {}
}

impl Tell {
    fn tell(&self, before: &BTreeMap<Voluntary, Standstill>, desk: &mut Desk<'_>) {
        for (why, what) in by_reason(&self.told) {
            if by_reason(before).get(&why) == Some(&what) {
                continue;
            }
            let words = format!("{what} stand still: {why}");
            tracing::warn!(controller = NAME, reason = why.reason(), "{words}");
            tell_pools("DisruptionBlocked", &words, why.reason(), desk);
        }
        let resumed: Vec<String> =
            before.keys().filter(|what| !self.told.contains_key(what)).map(ToString::to_string).collect();
        if !resumed.is_empty() {
            let words = format!("going on with {}", resumed.join(", "));
            tracing::info!(controller = NAME, "{words}");
            tell_pools("DisruptionUnblocked", &words, "", desk);
        }
        let family = &families::DISRUPTION_STANDSTILL;
        let series: Vec<(String, &str)> =
            self.told.iter().map(|(what, why)| (what.to_string(), why.reason())).collect();
        desk.metrics.replace(family, series.iter().map(|(what, why)| (vec![what.as_str(), *why], 1.0)));
    }
}

impl Tell {
    fn tell_unreadable(&mut self, desk: &mut Desk<'_>) {
        let before = std::mem::replace(&mut self.unreadable, desk.world.unreadable().clone());
        for (key, why) in self.unreadable.iter().filter(|(key, why)| before.get(key) != Some(why)) {
            if let Some(about) = about(key) {
                let words = format!("It cannot be read, and what is known of it may be old: {why}");
                let same = [key.to_string().into(), why.as_str().into()];
                desk.event(Event::warning(about, "Unreadable", words).same_by(same));
            }
        }
        for key in before.keys().filter(|key| !self.unreadable.contains_key(key)) {
            tracing::info!(controller = NAME, object = %key, "an object that could not be read can be read, or is gone");
        }
        let mut by_kind: BTreeMap<String, f64> = BTreeMap::new();
        for key in self.unreadable.keys() {
            *by_kind.entry(key.kind.to_string()).or_default() += 1.0;
        }
        let series = by_kind.iter().map(|(kind, n_objects)| (vec![kind.as_str()], *n_objects));
        desk.metrics.replace(&families::UNREADABLE_OBJECTS, series);
    }
}

/// What an event is about whose object is known by its key only. None for the provider's kinds: where they are served is not known
/// here, and they have a status to tell it.
pub(crate) fn about(key: &ObjectKey) -> Option<About> {
    let (_, resource) = WATCHED.into_iter().find(|(kind, _)| *kind == key.kind)?;
    Some(About {
        api_version: resource.api_version(),
        kind: resource.kind,
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        uid: Text::default(),
    })
}

/// Pools are where people look when nodes stay.
fn tell_pools(reason: &'static str, words: &str, same: &'static str, desk: &mut Desk<'_>) {
    for pool in desk.world.pools.values() {
        let about = About::of(NODE_POOLS, &pool.metadata);
        let same = [about.uid.clone(), "standstill".into(), same.into()];
        desk.event(Event::normal(about, reason, words).same_by(same));
    }
}
