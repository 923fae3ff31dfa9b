//! How fast unhealthy nodes may be tainted: slower when much of a zone is down, not at all when everything is. It is then more likely
//! that the control plane has lost its network than that all nodes are broken.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::kubelet::after;

/// One node per ten seconds and zone, as by default in the real controller.
const NORMAL_EVERY: SignedDuration = SignedDuration::from_secs(10);
/// The rate in a large zone of which much is down.
const REDUCED_EVERY: SignedDuration = SignedDuration::from_secs(100);
const LARGE_ZONE_NODES: usize = 50;
/// From this share on a zone is partly down. Times a hundred.
const UNHEALTHY_PERCENT: usize = 55;

#[derive(Debug, Default)]
pub(super) struct Zones {
    zones: BTreeMap<String, Zone>,
    /// Everything is down.
    is_all_down: bool,
}

#[derive(Debug, Default)]
struct Zone {
    ready: BTreeSet<String>,
    unready: BTreeSet<String>,
    /// Nodes that wait for their taint, in order of arrival.
    queue: Vec<String>,
    /// When the next one may be tainted.
    next: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Normal,
    PartlyDown,
    Down,
}

/// Whether the whole cluster has just gone down or come up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    None,
    AllDown,
    SomeUp,
}

impl Zones {
    pub(super) fn set(&mut self, zone: &str, node: &str, is_ready: bool) {
        self.zones.retain(|name, other| {
            if name != zone {
                other.forget(node);
            }
            !other.is_empty()
        });
        let zone = self.zones.entry(zone.to_owned()).or_default();
        let (into, out_of) =
            if is_ready { (&mut zone.ready, &mut zone.unready) } else { (&mut zone.unready, &mut zone.ready) };
        out_of.remove(node);
        into.insert(node.to_owned());
    }

    pub(super) fn forget(&mut self, node: &str) {
        self.zones.retain(|_, zone| {
            zone.forget(node);
            !zone.is_empty()
        });
    }

    /// To be asked after every change.
    pub(super) fn turn(&mut self) -> Turn {
        let is_all_down = !self.zones.is_empty() && self.zones.values().all(|zone| zone.state() == State::Down);
        let was_all_down = std::mem::replace(&mut self.is_all_down, is_all_down);
        match (was_all_down, is_all_down) {
            (false, true) => Turn::AllDown,
            (true, false) => Turn::SomeUp,
            _ => Turn::None,
        }
    }

    /// Queues a node for its taint. One that waits already keeps its place.
    pub(super) fn want(&mut self, zone: &str, node: &str) {
        let zone = self.zones.entry(zone.to_owned()).or_default();
        if !zone.queue.iter().any(|waiting| waiting == node) {
            zone.queue.push(node.to_owned());
        }
    }

    pub(super) fn unwant(&mut self, node: &str) {
        for zone in self.zones.values_mut() {
            zone.queue.retain(|waiting| waiting != node);
        }
    }

    /// The nodes whose turn has come.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Vec<String> {
        let mut due = Vec::new();
        for zone in self.zones.values_mut() {
            let Some(every) = zone.every(self.is_all_down) else { continue };
            while !zone.queue.is_empty() && zone.next.is_none_or(|next| next <= now) {
                due.push(zone.queue.remove(0));
                zone.next = Some(after(now, every));
            }
        }
        due
    }

    pub(super) fn next(&self) -> Option<Timestamp> {
        let can_go = |zone: &&Zone| !zone.queue.is_empty() && zone.every(self.is_all_down).is_some();
        self.zones.values().filter(can_go).filter_map(|zone| zone.next).min()
    }
}

impl Zone {
    fn forget(&mut self, node: &str) {
        self.ready.remove(node);
        self.unready.remove(node);
        self.queue.retain(|waiting| waiting != node);
    }

    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.unready.is_empty() && self.queue.is_empty()
    }

    fn state(&self) -> State {
        let (n_ready, n_unready) = (self.ready.len(), self.unready.len());
        if n_ready == 0 && n_unready > 0 {
            State::Down
        } else if n_unready > 2 && n_unready * 100 >= UNHEALTHY_PERCENT * (n_unready + n_ready) {
            State::PartlyDown
        } else {
            State::Normal
        }
    }

    /// None is never.
    fn every(&self, is_all_down: bool) -> Option<SignedDuration> {
        match self.state() {
            _ if is_all_down => None,
            State::Normal | State::Down => Some(NORMAL_EVERY),
            State::PartlyDown if self.ready.len() + self.unready.len() > LARGE_ZONE_NODES => Some(REDUCED_EVERY),
            State::PartlyDown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Zones of the given numbers of ready and unready nodes; all unready ones are queued.
    fn zones(counts: &[(usize, usize)]) -> Zones {
        let mut zones = Zones::default();
        for (index, (n_ready, n_unready)) in counts.iter().enumerate() {
            let zone = format!("z{index}");
            for n in 0..*n_ready {
                zones.set(&zone, &format!("{zone}-up-{n}"), true);
            }
            for n in 0..*n_unready {
                let node = format!("{zone}-down-{n}");
                zones.set(&zone, &node, false);
                zones.want(&zone, &node);
            }
        }
        zones.turn();
        zones
    }

    #[test]
    fn the_more_is_down_the_slower_nodes_are_tainted() {
        // ready and unready by zone -> how many are tainted within a hundred seconds
        let cases: [(&[(usize, usize)], usize); 6] = [
            (&[(10, 1)], 1),
            (&[(90, 20)], 10),
            (&[(4, 6)], 0),
            (&[(40, 60)], 1),
            (&[(0, 6)], 0),
            (&[(0, 6), (3, 0)], 6),
        ];
        for (counts, expected) in cases {
            let mut zones = zones(counts);
            let tainted: usize = (0..100).map(|second| zones.take_due(at(second)).len()).sum();
            assert_eq!(tainted, expected, "{counts:?}");
        }
    }

    #[test]
    fn the_turns_of_a_cluster_are_told_once() {
        let mut zones = zones(&[(1, 0)]);
        assert_eq!(zones.turn(), Turn::None);
        zones.set("z0", "z0-up-0", false);
        assert_eq!((zones.turn(), zones.turn()), (Turn::AllDown, Turn::None));
        zones.set("z1", "new", true);
        assert_eq!((zones.turn(), zones.turn()), (Turn::SomeUp, Turn::None));
        zones.forget("new");
        zones.forget("z0-up-0");
        assert_eq!(zones.turn(), Turn::None);
    }
}
