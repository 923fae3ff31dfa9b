//! What had no stock a moment ago, and should not be asked for again yet.
//!
//! ```text
//! CreateFleet's errors, spot interruptions ──▶ mark ──▶ 3 minutes ──▶ gone
//!                                                │
//!                                offerings, and whoever picks a subnet, look here
//! ```
//!
//! Each type has a number that moves whenever an entry of it comes or goes, so that whoever made offerings knows which of them
//! to make again.

use kerf_cloud::clock::Clock;
use kerf_model::{CapacityType, Text, UnixMillis};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Long enough not to ask a dry pool over and over, short enough to notice that it was filled.
pub(super) const REMEMBERED_FOR: Duration = Duration::from_secs(180);

pub struct Unavailable {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When each entry ends.
    entries: BTreeMap<Entry, UnixMillis>,
    /// By type: moves when an entry of it comes or goes.
    sequences: BTreeMap<Text, u64>,
    /// Moves when an entry comes or goes that concerns every type.
    sequence_of_all: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Entry {
    Offering { instance_type: Text, capacity_type: CapacityType, zone: Text, group: Option<Text> },
    CapacityType(CapacityType),
    Subnet(Text),
}

impl Unavailable {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// `group` is the placement group that could not take the type, for an error that is the group's alone.
    pub fn mark(&self, capacity_type: CapacityType, instance_type: &str, zone: &str, group: Option<&str>) {
        self.put(Entry::Offering {
            instance_type: instance_type.into(),
            capacity_type,
            zone: zone.into(),
            group: group.map(Text::from),
        });
    }

    /// Every type in every zone: the account may not buy this way at all.
    pub fn mark_capacity_type(&self, capacity_type: CapacityType) {
        self.put(Entry::CapacityType(capacity_type));
    }

    /// It has no addresses left.
    pub fn mark_subnet(&self, id: &str) {
        self.put(Entry::Subnet(id.into()));
    }

    /// Whether to leave it alone: for everyone, or within the placement group.
    pub fn is_marked(&self, capacity_type: CapacityType, instance_type: &str, zone: &str, group: Option<&str>) -> bool {
        let entry = |group: Option<&str>| Entry::Offering {
            instance_type: instance_type.into(),
            capacity_type,
            zone: zone.into(),
            group: group.map(Text::from),
        };
        self.is_capacity_type_marked(capacity_type)
            || self.is_alive(&entry(None))
            || group.is_some_and(|group| self.is_alive(&entry(Some(group))))
    }

    pub fn is_capacity_type_marked(&self, capacity_type: CapacityType) -> bool {
        self.is_alive(&Entry::CapacityType(capacity_type))
    }

    pub fn is_subnet_marked(&self, id: &str) -> bool {
        self.is_alive(&Entry::Subnet(id.into()))
    }

    /// Forgets what is over. What depends on a type's entries is as it was while both numbers are.
    pub fn sequences(&self, instance_types: impl Iterator<Item = Text>) -> (u64, Vec<u64>) {
        let now = self.clock.now();
        let mut state = self.lock();
        let over: Vec<Entry> =
            state.entries.iter().filter(|(_, ends)| !lasts(**ends, now)).map(|(entry, _)| entry.clone()).collect();
        for entry in over {
            state.entries.remove(&entry);
            state.moved(&entry);
        }
        let of_types = instance_types.map(|name| state.sequences.get(&name).copied().unwrap_or_default()).collect();
        (state.sequence_of_all, of_types)
    }

    fn put(&self, entry: Entry) {
        let ends = UnixMillis(self.clock.now().0 + REMEMBERED_FOR.as_millis() as i64);
        tracing::debug!(?entry, "left alone for a while");
        let mut state = self.lock();
        // Marking again lasts longer and changes nothing else.
        if state.entries.insert(entry.clone(), ends).is_none() {
            state.moved(&entry);
        }
    }

    fn is_alive(&self, entry: &Entry) -> bool {
        self.lock().entries.get(entry).is_some_and(|ends| lasts(*ends, self.clock.now()))
    }

    /// A panic elsewhere leaves the maps whole enough: a number that moved too often only costs work.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Not longer than it ever may: somebody may have set the clock back.
fn lasts(ends: UnixMillis, now: UnixMillis) -> bool {
    ends > now && ends.0 <= now.0.saturating_add(REMEMBERED_FOR.as_millis() as i64)
}

impl State {
    fn moved(&mut self, entry: &Entry) {
        match entry {
            Entry::Offering { instance_type, .. } => *self.sequences.entry(instance_type.clone()).or_default() += 1,
            Entry::CapacityType(_) | Entry::Subnet(_) => self.sequence_of_all += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::HandClock;

    #[test]
    fn an_offering_is_left_alone_for_three_minutes_after_the_last_mark() {
        let clock = Arc::new(HandClock::new());
        let memory = Unavailable::new(clock.clone());
        let is_marked = || memory.is_marked(CapacityType::Spot, "m5.large", "us-west-2a", None);
        assert!(!is_marked());
        memory.mark(CapacityType::Spot, "m5.large", "us-west-2a", None);
        clock.set_back(Duration::from_secs(3_600));
        assert!(!is_marked(), "nobody knows for how long it should be");
        memory.mark(CapacityType::Spot, "m5.large", "us-west-2a", None);
        clock.advance(Duration::from_secs(120));
        memory.mark(CapacityType::Spot, "m5.large", "us-west-2a", None);
        clock.advance(Duration::from_secs(179));
        assert!(is_marked());
        assert!(!memory.is_marked(CapacityType::OnDemand, "m5.large", "us-west-2a", None));
        assert!(!memory.is_marked(CapacityType::Spot, "m5.large", "us-west-2b", None));
        clock.advance(Duration::from_secs(1));
        assert!(!is_marked());
    }

    #[test]
    fn a_mark_within_a_placement_group_concerns_that_group_alone() {
        let memory = Unavailable::new(Arc::new(HandClock::new()));
        memory.mark(CapacityType::OnDemand, "m5.large", "us-west-2a", Some("pg-1"));
        let is_marked = |group| memory.is_marked(CapacityType::OnDemand, "m5.large", "us-west-2a", group);
        assert_eq!([is_marked(None), is_marked(Some("pg-1")), is_marked(Some("pg-2"))], [false, true, false]);
        memory.mark(CapacityType::OnDemand, "m5.large", "us-west-2a", None);
        assert!(is_marked(Some("pg-2")));
    }

    #[test]
    fn a_capacity_type_and_a_subnet_are_forgotten_too() {
        let clock = Arc::new(HandClock::new());
        let memory = Unavailable::new(clock.clone());
        memory.mark_capacity_type(CapacityType::Spot);
        memory.mark_subnet("subnet-1");
        assert!(memory.is_marked(CapacityType::Spot, "c5.large", "us-west-2c", None));
        assert!(memory.is_subnet_marked("subnet-1") && !memory.is_subnet_marked("subnet-2"));
        clock.advance(REMEMBERED_FOR);
        assert!(!memory.is_capacity_type_marked(CapacityType::Spot) && !memory.is_subnet_marked("subnet-1"));
    }

    #[test]
    fn a_types_number_moves_when_an_entry_comes_and_when_it_goes_but_not_when_it_is_repeated() {
        let clock = Arc::new(HandClock::new());
        let memory = Unavailable::new(clock.clone());
        let numbers = || memory.sequences(["m5.large", "c5.large"].into_iter().map(Text::from));
        assert_eq!(numbers(), (0, vec![0, 0]));
        memory.mark(CapacityType::Spot, "m5.large", "us-west-2a", None);
        memory.mark(CapacityType::Spot, "m5.large", "us-west-2a", None);
        assert_eq!(numbers(), (0, vec![1, 0]));
        memory.mark_subnet("subnet-1");
        assert_eq!(numbers(), (1, vec![1, 0]));
        clock.advance(REMEMBERED_FOR);
        assert_eq!(numbers(), (2, vec![2, 0]));
    }
}
