//! Events are forgotten an hour after they were last written, as etcd's lease does it for the real server, and sooner where there are
//! very many: a hundred thousand pods tell half a million stories, and here all of them would be in memory.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::drive::Controller;
use crate::hands::Hands;
use crate::store::{Change, ChangeKind, Key, ResourceId};

/// The real server's default.
const EVENT_TTL: SignedDuration = SignedDuration::from_hours(1);

/// So many are kept; beyond them those go that were not written for the longest. Some 2 kB each with all that is kept beside them.
const EVENTS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub struct EventExpiry {
    /// Events whose time has not been asked yet.
    new: Vec<Key>,
    due: BTreeSet<(Timestamp, Key)>,
    due_of: BTreeMap<Key, Timestamp>,
}

impl Controller for EventExpiry {
    fn name(&self) -> &'static str {
        "event-ttl"
    }

    fn observe(&mut self, change: &Change) {
        if change.resource != ResourceId::new("", "events") {
            return;
        }
        let key = &change.object.key;
        if let Some(before) = self.due_of.remove(key) {
            self.due.remove(&(before, key.clone()));
        }
        if change.kind != ChangeKind::Deleted {
            self.new.push(key.clone());
        }
    }

    fn work(&mut self, hands: &mut Hands<'_>) -> Option<Timestamp> {
        let now = hands.now();
        for key in self.new.drain(..) {
            let then = now.saturating_add(EVENT_TTL).unwrap_or(now);
            if let Some(before) = self.due_of.insert(key.clone(), then) {
                self.due.remove(&(before, key.clone()));
            }
            self.due.insert((then, key));
        }
        while let Some((then, key)) = self.due.first().cloned() {
            if then > now && self.due.len() <= EVENTS_MAX {
                return Some(then);
            }
            self.due.remove(&(then, key.clone()));
            self.due_of.remove(&key);
            let state = hands.state();
            if let Some(events) = state.catalog.get("", "v1", "events").cloned() {
                state.take_away(&events, &key);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clock::Clock;
    use crate::request::Request;
    use crate::{ControlPlane, Options};

    #[test]
    fn of_very_many_events_the_oldest_go() {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let plane = ControlPlane::in_process(&Options { clock, with_controllers: false, ..Options::default() });
        let call = |method: &str, path: &str, body: String| {
            plane.server().handle(&Request {
                method: method.to_owned(),
                path: format!("/api/v1/namespaces/default/events{path}"),
                content_type: "application/json".to_owned(),
                body: body.into(),
                ..Request::default()
            })
        };
        let add = |name: &str| {
            let event = json!({
                "metadata": { "name": name }, "reason": "Tested", "type": "Normal",
                "involvedObject": { "kind": "Pod", "namespace": "default", "name": "web" },
            });
            assert_eq!(call("POST", "", event.to_string()).status, 201);
        };
        add("first");
        add("second");
        plane.advance(SignedDuration::from_secs(1));
        (2..EVENTS_MAX).for_each(|index| add(&format!("event-{index}")));
        plane.advance(SignedDuration::from_secs(1));
        assert_eq!(call("GET", "/first", String::new()).status, 200, "as many as are kept");
        add("last");
        plane.advance(SignedDuration::from_secs(1));
        assert_eq!(call("GET", "/first", String::new()).status, 404);
        assert_eq!(call("GET", "/second", String::new()).status, 200);
        assert_eq!(call("GET", "/last", String::new()).status, 200);
    }

    #[test]
    fn an_event_goes_an_hour_after_it_was_last_written() {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let plane = ControlPlane::in_process(&Options { clock, ..Options::default() });
        let call = |method: &str, name: &str, content_type: &str, body: String| {
            plane.server().handle(&Request {
                method: method.to_owned(),
                path: format!("/api/v1/namespaces/default/events{name}"),
                content_type: content_type.to_owned(),
                body: body.into(),
                ..Request::default()
            })
        };
        let event = json!({
            "metadata": { "name": "one" }, "reason": "Tested", "type": "Normal",
            "involvedObject": { "kind": "Pod", "namespace": "default", "name": "web" },
        });
        assert_eq!(call("POST", "", "application/json", event.to_string()).status, 201);
        plane.advance(SignedDuration::from_mins(40));
        let patch = json!({ "count": 2 }).to_string();
        assert_eq!(call("PATCH", "/one", "application/merge-patch+json", patch).status, 200);
        plane.advance(SignedDuration::from_mins(59));
        assert_eq!(call("GET", "/one", "", String::new()).status, 200);
        plane.advance(SignedDuration::from_mins(2));
        assert_eq!(call("GET", "/one", "", String::new()).status, 404);
    }
}
