//! Which claims a fleet was for, written on its instances: whoever comes after us finds what we launched and did not live to tell.
//!
//! ```text
//! kerf.dev/claims: 8 letters for each claim, in order      i-th claim ── has ── i-th instance of the fleet, by id
//! ```
//!
//! A process looks once, before its first launch; and again where EC2 says that it has seen a token before.

use super::fleet::fnv;
use crate::instances::{CLAIM_TAG, CLUSTER_TAG};
use crate::limits::TRACED_FOR;
use crate::settings::Settings;
use crate::wire::{Aws, Ec2Instance, Failure, Filter, InstanceQuery, Tags};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::lock::Mutex as Turn;
use kerf_cloud::clock::Clock;
use kerf_model::{Text, UnixMillis};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The first tag; the next are `kerf.dev/claims-1` and so on.
const TAG: &str = "kerf.dev/claims";
const MARK_LEN: usize = 8;
/// EC2 gives a tag's value 256 letters.
const MARKS_PER_TAG: usize = 32;

pub(super) struct Traces {
    wire: Arc<dyn Aws>,
    settings: Arc<Settings>,
    clock: Arc<dyn Clock>,
    seen: Turn<Option<Seen>>,
}

struct Seen {
    began: UnixMillis,
    by_mark: BTreeMap<String, Ec2Instance>,
}

impl Traces {
    pub(super) fn new(wire: Arc<dyn Aws>, settings: Arc<Settings>, clock: Arc<dyn Clock>) -> Self {
        Self { wire, settings, clock, seen: Turn::new(None) }
    }

    /// What was launched for a claim before, running or ended, as EC2 showed it at or after `since`; None: any look will do.
    pub(super) async fn of(&self, uid: &Text, since: Option<UnixMillis>) -> Result<Option<Ec2Instance>, Failure> {
        let mut seen = self.seen.lock().await;
        let is_fresh = seen.as_ref().is_some_and(|seen| since.is_none_or(|since| seen.began >= since));
        if !is_fresh {
            *seen = Some(self.look().await?);
        }
        Ok(seen.as_ref().and_then(|seen| seen.by_mark.get(&mark(uid)).cloned()))
    }

    async fn look(&self) -> Result<Seen, Failure> {
        let began = self.clock.now();
        // Ended ones, too: without them it could not be told whose the others are.
        let filters = vec![Filter::new("tag-key", [TAG]), Filter::tag(CLUSTER_TAG, &self.settings.cluster_name)];
        let listed = self.wire.describe_instances(InstanceQuery { ids: Vec::new(), filters }).await?;
        let mut fleets: BTreeMap<Vec<String>, Vec<Ec2Instance>> = BTreeMap::new();
        for instance in listed {
            fleets.entry(marks(&instance.tags)).or_default().push(instance);
        }
        let is_young = |instance: &Ec2Instance| began.0 - instance.launched_ms < TRACED_FOR.as_millis() as i64;
        let mut by_mark = BTreeMap::new();
        for (marks, mut instances) in fleets {
            instances.sort_by(|a, b| a.id.cmp(&b.id));
            let shares = marks.into_iter().zip(instances).filter(|(_, instance)| is_young(instance));
            by_mark.extend(shares.filter(|(_, instance)| !instance.tags.contains_key(CLAIM_TAG)));
        }
        Ok(Seen { began, by_mark })
    }
}

/// What the instances of a fleet are tagged with, for claims in their order.
pub(super) fn tags<'a>(uids: impl Iterator<Item = &'a Text>) -> Tags {
    let marks: Vec<String> = uids.map(mark).collect();
    let named = marks.chunks(MARKS_PER_TAG).zip(0..);
    named.map(|(some, number)| (name(number), some.concat())).collect()
}

fn marks(tags: &Tags) -> Vec<String> {
    let values = (0..).map_while(|number| tags.get(&name(number)));
    let letters: Vec<char> = values.flat_map(|value| value.chars()).collect();
    letters.chunks_exact(MARK_LEN).map(|mark| mark.iter().collect()).collect()
}

fn name(number: usize) -> String {
    match number {
        0 => TAG.to_owned(),
        _ => format!("{TAG}-{number}"),
    }
}

fn mark(uid: &Text) -> String {
    let hash = fnv(0xcbf2_9ce4_8422_2325, uid).to_be_bytes();
    // The low bytes of FNV-1a are the better mixed ones.
    URL_SAFE_NO_PAD.encode(&hash[2..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claims_of_a_fleet_are_read_back_in_their_order() {
        for n in [1_usize, 31, 32, 33, 320] {
            let uids: Vec<Text> = (0..n).map(|n| Text::from(format!("uid-{n}"))).collect();
            let tags = tags(uids.iter());
            assert_eq!(tags.len(), n.div_ceil(MARKS_PER_TAG), "{n}");
            assert!(tags.values().all(|value| value.len() <= 256), "{tags:?}");
            assert_eq!(marks(&tags), uids.iter().map(mark).collect::<Vec<_>>(), "{n}");
        }
    }
}
