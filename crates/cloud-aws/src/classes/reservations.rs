//! Capacity reservations that a class may use.

use crate::memory::Memory;
use crate::wire::{Aws, Failure, Filter, Reservation, ReservationQuery};
use kerf_api::{CapacityReservation, CapacityReservationSelectorTerm, Ec2NodeClass};
use kerf_model::UnixMillis;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long an answer of EC2 serves other classes with the same terms.
const FRESH_FOR: Duration = Duration::from_secs(60);
/// A capacity block is taken back at its end; from so long before, nothing new is put on it.
pub(crate) const EXPIRING_MS: i64 = 40 * 60 * 1_000;

#[derive(Debug)]
pub(super) struct Reservations {
    fresh: Memory<String, Vec<Reservation>>,
}

impl Default for Reservations {
    fn default() -> Self {
        Self { fresh: Memory::new(FRESH_FOR) }
    }
}

/// What a class may use, in order of id.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    /// Those that EC2 was asked about just now: only its fresh word may replace our own count.
    pub(super) counted: Vec<Reservation>,
    pub(super) status: Vec<CapacityReservation>,
    /// When the status changes by itself.
    pub(super) changes_after: Option<Duration>,
}

impl Reservations {
    /// Nothing is asked for a class that selects none.
    pub(super) async fn find(&self, wire: &dyn Aws, class: &Ec2NodeClass, now: UnixMillis) -> Result<Found, Failure> {
        let terms = class.spec.capacity_reservation_selector_terms.as_deref().unwrap_or_default();
        let mut found: BTreeMap<String, Reservation> = BTreeMap::new();
        let mut counted = Vec::new();
        for query in terms.iter().map(query_of) {
            let key = format!("{query:?}");
            let answer = match self.fresh.get(&key, now) {
                Some(answer) => answer,
                None => {
                    let answer = ask(wire, query).await?;
                    self.fresh.put(key, answer.clone(), now);
                    counted.extend(answer.clone());
                    answer
                }
            };
            found.extend(answer.into_iter().map(|reservation| (reservation.id.clone(), reservation)));
        }
        let usable: Vec<Reservation> = found.into_values().filter(|reservation| is_usable(reservation, now)).collect();
        Ok(Found { counted, ..status(&usable, now) })
    }
}

/// A reservation that somebody cancelled is no error: the class does without.
async fn ask(wire: &dyn Aws, query: ReservationQuery) -> Result<Vec<Reservation>, Failure> {
    match wire.describe_capacity_reservations(query).await {
        Err(failure) if failure.is_not_found() => Ok(Vec::new()),
        answer => answer,
    }
}

fn query_of(term: &CapacityReservationSelectorTerm) -> ReservationQuery {
    if let Some(id) = &term.id {
        return ReservationQuery { id: Some(id.clone()), filters: Vec::new() };
    }
    let mut filters = vec![Filter::new("state", ["active"])];
    filters.extend(term.owner_id.iter().map(|owner| Filter::new("owner-id", [owner])));
    filters.extend(term.instance_match_criteria.iter().map(|how| Filter::new("instance-match-criteria", [how])));
    filters.extend(term.tags.iter().flatten().map(|(key, value)| Filter::tag(key, value)));
    ReservationQuery { id: None, filters }
}

fn is_usable(reservation: &Reservation, now: UnixMillis) -> bool {
    let is_known = ["open", "targeted"].contains(&reservation.match_criteria.as_str())
        && ["default", "capacity-block"].contains(&kind(reservation));
    if !is_known {
        tracing::warn!(
            reservation = %reservation.id, criteria = %reservation.match_criteria, kind = %reservation.kind,
            "a capacity reservation of a kind that is not known is passed over"
        );
    }
    is_known && reservation.state == "active" && reservation.end_ms.is_none_or(|end| end > now.0)
}

fn kind(reservation: &Reservation) -> &str {
    if reservation.kind.is_empty() { "default" } else { &reservation.kind }
}

fn status(reservations: &[Reservation], now: UnixMillis) -> Found {
    let mut turns: Vec<i64> = Vec::new();
    let one = |reservation: &Reservation| {
        let expires = reservation.end_ms.filter(|_| kind(reservation) == "capacity-block").map(|end| end - EXPIRING_MS);
        turns.extend(expires.into_iter().chain(reservation.end_ms).filter(|at| *at > now.0));
        let state = if expires.is_some_and(|at| at <= now.0) { "expiring" } else { "active" };
        let end = reservation.end_ms.map(|end| super::conditions::rfc3339(UnixMillis(end)));
        let value = json!({
            "availabilityZone": reservation.zone,
            "endTime": end,
            "id": reservation.id,
            "instanceMatchCriteria": reservation.match_criteria,
            "instanceType": reservation.instance_type,
            "ownerID": reservation.owner_id,
            "reservationType": kind(reservation),
            "interruptible": reservation.is_interruptible,
            "state": state,
        });
        serde_json::from_value(value).expect("the status has these fields")
    };
    let status = reservations.iter().map(one).collect();
    let next = turns.into_iter().min().and_then(|at| u64::try_from(at - now.0).ok());
    Found { counted: Vec::new(), status, changes_after: next.map(Duration::from_millis) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::now_ready;
    use crate::wire::Tags;
    use crate::wire::scripted::Scripted;
    use serde_json::Value;

    const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
    const MINUTE: i64 = 60_000;

    fn reservation(id: &str) -> Reservation {
        Reservation {
            id: id.to_owned(),
            instance_type: "m5.large".to_owned(),
            zone: "eu-west-1a".to_owned(),
            owner_id: "123456789012".to_owned(),
            match_criteria: "targeted".to_owned(),
            kind: "default".to_owned(),
            state: "active".to_owned(),
            n_available: 3,
            ..Reservation::default()
        }
    }

    fn class(terms: Value) -> Ec2NodeClass {
        serde_json::from_value(json!({"spec": {"capacityReservationSelectorTerms": terms}})).unwrap()
    }

    fn ids(found: &Found) -> Vec<&str> {
        found.status.iter().map(|reservation| reservation.id.as_str()).collect()
    }

    #[test]
    fn a_class_that_selects_none_asks_nothing() {
        let aws = Scripted::default();
        let found = now_ready(Reservations::default().find(&aws, &class(Value::Null), NOW)).unwrap();
        assert!(found.status.is_empty() && aws.account().calls.is_empty());
    }

    #[test]
    fn ids_are_asked_one_by_one_and_others_by_filters() {
        let aws = Scripted::default();
        let team = Tags::from([("team".to_owned(), "a".to_owned())]);
        aws.account().reservations = vec![
            reservation("cr-2"),
            Reservation { tags: team, ..reservation("cr-1") },
            Reservation { state: "expired".to_owned(), ..reservation("cr-3") },
            Reservation { match_criteria: "odd".to_owned(), ..reservation("cr-4") },
            Reservation { match_criteria: "open".to_owned(), ..reservation("cr-5") },
        ];
        let terms = json!([
            {"id": "cr-2"}, {"id": "cr-3"}, {"id": "cr-4"}, {"id": "cr-gone"}, {"tags": {"team": "*"}},
            {"ownerID": "123456789012", "instanceMatchCriteria": "open"},
        ]);
        let reservations = Reservations::default();
        let found = now_ready(reservations.find(&aws, &class(terms.clone()), NOW)).unwrap();
        assert_eq!(ids(&found), ["cr-1", "cr-2", "cr-5"]);
        assert_eq!(aws.count("ec2:DescribeCapacityReservations"), 6);
        assert_eq!(found.counted.len(), 5);
        let again = now_ready(reservations.find(&aws, &class(terms), UnixMillis(NOW.0 + MINUTE - 1))).unwrap();
        assert_eq!((ids(&again), again.counted.len()), (ids(&found), 0));
        assert_eq!(aws.count("ec2:DescribeCapacityReservations"), 6, "fresh for a minute");
    }

    #[test]
    fn a_capacity_block_expires_forty_minutes_before_its_end() {
        for (kind, minutes_left, state, changes_after) in
            [("capacity-block", 41, "active", 1), ("capacity-block", 40, "expiring", 40), ("default", 10, "active", 10)]
        {
            let aws = Scripted::default();
            let end = UnixMillis(NOW.0 + minutes_left * MINUTE);
            aws.account().reservations =
                vec![Reservation { kind: kind.to_owned(), end_ms: Some(end.0), ..reservation("cr-1") }];
            let found = now_ready(Reservations::default().find(&aws, &class(json!([{"id": "cr-1"}])), NOW)).unwrap();
            assert_eq!(found.status[0].state.as_deref(), Some(state), "{kind} {minutes_left}");
            assert_eq!(found.changes_after, Some(Duration::from_secs(changes_after * 60)), "{kind} {minutes_left}");
            let found = now_ready(Reservations::default().find(&aws, &class(json!([{"id": "cr-1"}])), end)).unwrap();
            assert!(found.status.is_empty(), "it is over");
        }
    }

    #[test]
    fn the_status_says_what_the_contract_lists() {
        let aws = Scripted::default();
        aws.account().reservations = vec![Reservation { end_ms: Some(NOW.0 + 3_600_000), ..reservation("cr-1") }];
        let found = now_ready(Reservations::default().find(&aws, &class(json!([{"id": "cr-1"}])), NOW)).unwrap();
        assert_eq!(
            serde_json::to_value(&found.status[0]).unwrap(),
            json!({
                "availabilityZone": "eu-west-1a", "endTime": "2027-01-15T09:00:00Z", "id": "cr-1", "instanceMatchCriteria": "targeted",
                "instanceType": "m5.large", "ownerID": "123456789012", "reservationType": "default", "interruptible": false,
                "state": "active",
            })
        );
    }
}
