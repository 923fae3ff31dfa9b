//! `capacityreservation.capacitytype` and `capacityreservation.expiration`: claims whose reservation is no longer what it was.

use super::claims_by_instance;
use crate::wire::{Aws, Ec2Instance, Failure, Filter, InstanceQuery};
use kerf_api::Ec2NodeClass;
use kerf_api::labels::{CAPACITY_RESERVATION_ID, CAPACITY_RESERVATION_TYPE, CAPACITY_TYPE};
use kerf_cloud::{ChoreAsk, ChoreReport, ClaimInUse, InUse};
use kerf_model::{CapacityType, UnixMillis};
use std::collections::{BTreeMap, BTreeSet};

/// So many values an EC2 filter may have.
const FILTER_MAX: usize = 200;
/// Before its end a capacity block is drained for so long.
const EXPIRING_MS: i64 = 40 * 60_000;

/// An instance may outlive its reservation: it is then an on-demand instance like any other, and its claim and node should say so.
pub async fn capacity_types(wire: &dyn Aws, in_use: &InUse) -> Result<ChoreReport, Failure> {
    let claims = claims_by_instance(in_use);
    let reserved: Vec<(&str, &ClaimInUse)> = claims
        .into_iter()
        .filter(|(_, claim)| label(claim, CAPACITY_TYPE) == CapacityType::Reserved.as_str())
        .collect();
    let mut report = ChoreReport::default();
    for some in reserved.chunks(FILTER_MAX) {
        let ids = some.iter().map(|(id, _)| *id);
        let query = InstanceQuery {
            ids: Vec::new(),
            // By filter: one id that is gone would fail a question that names it.
            filters: vec![
                Filter::new("instance-id", ids),
                Filter::new("instance-state-name", ["pending", "running", "stopping", "stopped"]),
            ],
        };
        let on_demand: BTreeSet<String> = wire
            .describe_instances(query)
            .await?
            .into_iter()
            .filter(|instance| !is_reserved(instance) && !instance.is_spot)
            .map(|instance| instance.id)
            .collect();
        let left = some.iter().filter(|(id, _)| on_demand.contains(*id));
        report.asks.extend(left.map(|(_, claim)| ChoreAsk::Relabel {
            claim: claim.name.clone(),
            labels: BTreeMap::from([
                (CAPACITY_TYPE.into(), Some(CapacityType::OnDemand.as_str().into())),
                (CAPACITY_RESERVATION_ID.into(), None),
                (CAPACITY_RESERVATION_TYPE.into(), None),
            ]),
        }));
    }
    Ok(report)
}

fn is_reserved(instance: &Ec2Instance) -> bool {
    instance.reservation_id.is_some()
        && instance.reservation_preference.as_deref() == Some("capacity-reservations-only")
}

/// EC2 ends the instances of a capacity block with the block. Those who are on them leave before.
pub fn expirations(in_use: &InUse, now: UnixMillis) -> ChoreReport {
    let expiring = expiring_blocks(in_use, now);
    let mut report = ChoreReport::default();
    for claim in in_use.claims.iter().filter(|claim| !claim.is_deleting) {
        let id = label(claim, CAPACITY_RESERVATION_ID);
        if let Some(end) = expiring.get(id) {
            let message = format!("capacity block {id} ends{end}: EC2 will end its instances");
            report.asks.push(ChoreAsk::EndClaim {
                claim: claim.name.clone(),
                reason: "CapacityBlockExpiring".into(),
                message: message.into(),
                by_force: false,
            });
        }
    }
    report
}

/// By id, with ` at …` where that is known.
fn expiring_blocks(in_use: &InUse, now: UnixMillis) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for object in &in_use.classes {
        // A class that cannot be read is told on its own status.
        let Ok(class) = serde_json::from_value::<Ec2NodeClass>((**object).clone()) else {
            continue;
        };
        for reservation in class.status.map(|status| status.capacity_reservations).unwrap_or_default() {
            if reservation.reservation_type.as_deref() != Some("capacity-block") {
                continue;
            }
            let end_ms = reservation.end_time.as_ref().map(|end| end.0.as_millisecond());
            // The status may be a minute old; the end is not.
            let is_near = end_ms.is_some_and(|end| end - EXPIRING_MS <= now.0);
            if is_near || reservation.state.as_deref() == Some("expiring") {
                let at = reservation.end_time.map_or_else(String::new, |end| format!(" at {}", end.0));
                out.insert(reservation.id, at);
            }
        }
    }
    out
}

fn label<'a>(claim: &'a ClaimInUse, key: &str) -> &'a str {
    claim.labels.get(key).map(|value| &**value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{claim, in_use, now};
    use super::*;
    use crate::wire::scripted::Scripted;
    use serde_json::json;

    fn reserved(n: usize) -> ClaimInUse {
        claim(
            n,
            &[(CAPACITY_TYPE, "reserved"), (CAPACITY_RESERVATION_ID, "cr-1"), (CAPACITY_RESERVATION_TYPE, "default")],
        )
    }

    fn instance(n: usize, reservation: Option<&str>) -> Ec2Instance {
        Ec2Instance {
            id: format!("i-{n}"),
            state: "running".to_owned(),
            reservation_id: reservation.map(str::to_owned),
            reservation_preference: Some("capacity-reservations-only".to_owned()),
            ..Ec2Instance::default()
        }
    }

    #[test]
    fn an_instance_that_left_its_reservation_is_on_demand_from_then_on() {
        let aws = Scripted::default();
        aws.account().instances = vec![instance(1, Some("cr-1")), instance(2, None), instance(3, None)];
        let mut going = reserved(4);
        going.is_deleting = true;
        aws.account().instances.push(instance(4, None));
        let claims = vec![reserved(1), reserved(2), claim(3, &[(CAPACITY_TYPE, "on-demand")]), going, reserved(5)];
        let report = now(capacity_types(&aws, &in_use(claims, Vec::new(), json!({})))).unwrap();
        let [ChoreAsk::Relabel { claim, labels }] = report.asks.as_slice() else { panic!("{report:?}") };
        assert_eq!(&*claim.0, "c-2");
        assert_eq!(labels[CAPACITY_TYPE].as_deref(), Some("on-demand"));
        assert_eq!((&labels[CAPACITY_RESERVATION_ID], &labels[CAPACITY_RESERVATION_TYPE]), (&None, &None));
        assert_eq!(labels.len(), 3, "whether it was interruptible stays");
    }

    #[test]
    fn without_reserved_claims_nobody_is_asked_and_many_are_asked_about_in_parts() {
        let aws = Scripted::default();
        now(capacity_types(&aws, &in_use(vec![claim(1, &[])], Vec::new(), json!({})))).unwrap();
        assert_eq!(aws.count("ec2:DescribeInstances"), 0);
        let many = (0..450).map(reserved).collect();
        now(capacity_types(&aws, &in_use(many, Vec::new(), json!({})))).unwrap();
        assert_eq!(aws.count("ec2:DescribeInstances"), 3);
    }

    #[test]
    fn a_capacity_block_is_left_forty_minutes_before_its_end() {
        let block = |id: &str, kind: &str, state: &str, end: &str| {
            json!({
                "id": id, "availabilityZone": "eu-west-1a", "instanceMatchCriteria": "targeted", "instanceType": "p5.48xlarge",
                "ownerID": "111122223333", "reservationType": kind, "state": state, "endTime": end,
            })
        };
        let status = json!({"capacityReservations": [
            block("cr-1", "capacity-block", "active", "2026-01-01T01:00:00Z"),
            block("cr-2", "capacity-block", "expiring", "2026-01-01T09:00:00Z"),
            block("cr-3", "default", "active", "2026-01-01T00:30:00Z"),
        ]});
        let claims = || (1..=4).map(|n| claim(n, &[(CAPACITY_RESERVATION_ID, &format!("cr-{n}"))])).collect();
        let ended = |at: &str| {
            let at: jiff::Timestamp = at.parse().unwrap();
            let report = expirations(&in_use(claims(), Vec::new(), status.clone()), UnixMillis(at.as_millisecond()));
            let name = |ask: &ChoreAsk| match ask {
                ChoreAsk::EndClaim { claim, by_force: false, .. } => claim.to_string(),
                other => panic!("{other:?}"),
            };
            report.asks.iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(ended("2026-01-01T00:19:59Z"), ["c-2"]);
        assert_eq!(ended("2026-01-01T00:20:00Z"), ["c-1", "c-2"]);
    }
}
