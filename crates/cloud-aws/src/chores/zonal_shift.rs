//! `zonalshift`: zones that the cluster is shifted away from. What is there stays; nothing new is bought there.
//!
//! A shift that the service no longer lists while it lists another is kept until its own end, as upstream does: an answer that lacks
//! it may be an answer in part.

use crate::wire::{Aws, Failure};
use kerf_api::Ec2NodeClass;
use kerf_cloud::{ChoreAsk, ChoreReport, InUse, PoolInUse};
use kerf_model::{Text, UnixMillis, labels};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// Zones that are shifted away from, by id, and until when.
#[derive(Debug, Default)]
pub struct ZonalShifts(Mutex<BTreeMap<String, i64>>);

impl ZonalShifts {
    /// Answers with the ids of zones to do without, and what to tell pools.
    pub async fn run(
        &self,
        wire: &dyn Aws,
        cluster_arn: &str,
        in_use: &InUse,
        now: UnixMillis,
    ) -> Result<(BTreeSet<String>, ChoreReport), Failure> {
        let listed = wire.get_managed_resource(cluster_arn.to_owned()).await?;
        let applied: BTreeMap<String, i64> = listed
            .into_iter()
            .filter(|shift| shift.status == "APPLIED" && shift.expires_ms > now.0)
            .map(|shift| (shift.zone_id, shift.expires_ms))
            .collect();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before: BTreeSet<String> = known.keys().cloned().collect();
        if applied.is_empty() {
            known.clear();
        }
        known.extend(applied);
        known.retain(|_, expires_ms| *expires_ms > now.0);
        let after: BTreeSet<String> = known.keys().cloned().collect();
        let mut report = ChoreReport::default();
        let names = zone_names(in_use);
        for (ids, is_active) in [(after.difference(&before), true), (before.difference(&after), false)] {
            for id in ids {
                tracing::info!(controller = "zonalshift", "zone-id" = id, is_active, "a zonal shift changed");
                report.asks.extend(tell_pools(id, names.get(id), is_active, in_use));
            }
        }
        Ok((after, report))
    }

    /// The zones to do without, as last seen.
    pub fn zone_ids(&self, now: UnixMillis) -> BTreeSet<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().filter(|(_, expires_ms)| **expires_ms > now.0).map(|(id, _)| id.clone()).collect()
    }
}

/// Names of zones by their ids, as far as the subnets of classes tell.
fn zone_names(in_use: &InUse) -> BTreeMap<String, String> {
    // A class that cannot be read is told on its own status.
    let classes =
        in_use.classes.iter().filter_map(|object| serde_json::from_value::<Ec2NodeClass>((**object).clone()).ok());
    let subnets = classes.flat_map(|class| class.status.map(|status| status.subnets).unwrap_or_default());
    subnets.filter_map(|subnet| Some((subnet.zone_id?, subnet.zone))).collect()
}

/// Pools that could have bought something there.
fn tell_pools<'a>(
    id: &'a str,
    name: Option<&'a String>,
    is_active: bool,
    in_use: &'a InUse,
) -> impl Iterator<Item = ChoreAsk> + 'a {
    let uses_it = move |pool: &&PoolInUse| {
        let allows = |key: &str, value: &str| pool.requirements.get(key).is_none_or(|allowed| allowed.has(value));
        name.is_none_or(|name| allows(labels::ZONE, name)) && allows(kerf_api::labels::ZONE_ID, id)
    };
    let zone = name.map_or_else(|| id.to_owned(), |name| format!("{name} ({id})"));
    let (reason, words): (Text, Text) = match is_active {
        true => {
            ("ZonalShiftActive".into(), format!("Zone {zone} is shifted away from: nothing is launched there").into())
        }
        false => ("ZonalShiftCleared".into(), format!("Zone {zone} can be used again").into()),
    };
    in_use.pools.iter().filter(uses_it).map(move |pool| ChoreAsk::TellPool {
        pool: pool.name.clone(),
        is_warning: is_active,
        reason: reason.clone(),
        message: words.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{in_use, now, pool};
    use super::*;
    use crate::wire::ZonalShift;
    use crate::wire::scripted::Scripted;
    use serde_json::json;

    fn shift(zone: &str, status: &str, expires_ms: i64) -> ZonalShift {
        ZonalShift { zone_id: zone.to_owned(), status: status.to_owned(), expires_ms }
    }

    fn look(shifts: &ZonalShifts, listed: &[ZonalShift], at: i64) -> (Vec<String>, Vec<String>) {
        let aws = Scripted::default();
        aws.account().shifts = listed.to_vec();
        let subnets = json!({"subnets": [
            {"id": "subnet-1", "zone": "eu-west-1a", "zoneID": "euw1-az1"},
            {"id": "subnet-2", "zone": "eu-west-1b", "zoneID": "euw1-az2"},
        ]});
        let pools = vec![pool("everywhere", &[]), pool("in-b", &["eu-west-1b"])];
        let (zones, report) =
            now(shifts.run(&aws, "arn", &in_use(Vec::new(), pools, subnets), UnixMillis(at))).unwrap();
        assert_eq!(shifts.zone_ids(UnixMillis(at)), zones);
        let told = report.asks.iter().map(|ask| match ask {
            ChoreAsk::TellPool { pool, reason, is_warning, .. } => {
                assert_eq!(*is_warning, &**reason == "ZonalShiftActive");
                format!("{pool} {reason}")
            }
            other => panic!("{other:?}"),
        });
        (zones.into_iter().collect(), told.collect())
    }

    #[test]
    fn a_shift_is_told_to_the_pools_that_can_use_the_zone_when_it_begins_and_when_it_ends() {
        let shifts = ZonalShifts::default();
        let a = shift("euw1-az1", "APPLIED", 1_000);
        assert_eq!(
            look(&shifts, std::slice::from_ref(&a), 0),
            (vec!["euw1-az1".into()], vec!["everywhere ZonalShiftActive".into()])
        );
        assert_eq!(look(&shifts, &[a], 10), (vec!["euw1-az1".into()], vec![]));
        assert_eq!(look(&shifts, &[], 20), (vec![], vec!["everywhere ZonalShiftCleared".into()]));
        let b = shift("euw1-az2", "APPLIED", 1_000);
        assert_eq!(
            look(&shifts, &[b], 30).1,
            ["everywhere ZonalShiftActive".to_owned(), "in-b ZonalShiftActive".to_owned()]
        );
    }

    #[test]
    fn only_applied_and_unexpired_shifts_count_and_one_that_is_missing_beside_another_lives_until_its_end() {
        let shifts = ZonalShifts::default();
        assert_eq!(
            look(&shifts, &[shift("euw1-az1", "NOT_APPLIED", 1_000), shift("euw1-az2", "APPLIED", 0)], 0).0.len(),
            0
        );
        let (a, b) = (shift("euw1-az1", "APPLIED", 500), shift("euw1-az2", "APPLIED", 1_000));
        assert_eq!(look(&shifts, &[a], 1).0, ["euw1-az1"]);
        assert_eq!(look(&shifts, std::slice::from_ref(&b), 2).0, ["euw1-az1", "euw1-az2"]);
        assert_eq!(look(&shifts, &[b], 500).0, ["euw1-az2"]);
    }
}
