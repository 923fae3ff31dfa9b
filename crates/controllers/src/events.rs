//! Kubernetes events: told once, not over and over.

use crate::errand::ApiCall;
use crate::limits::{EVENTS_MAX, EVENTS_TOLD_MAX};
use crate::resource::{EVENTS, Resource};
use crate::write;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kerf_model::{PodId, Text, UnixMillis};
use serde_json::json;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

/// How long the same thing is not told again.
pub const QUIET_MS: i64 = 120_000;

#[derive(Debug, Clone)]
pub struct Event {
    pub about: About,
    pub is_warning: bool,
    pub reason: Cow<'static, str>,
    pub message: String,
    /// What makes it the same event again, beside the reason.
    pub same: Vec<Text>,
    pub quiet_ms: i64,
    /// At most so many per second over all of this reason, with twice as many in a burst.
    pub per_second: Option<u32>,
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    pub api_version: String,
    pub kind: &'static str,
    pub namespace: Text,
    pub name: Text,
    pub uid: Text,
}

impl About {
    pub fn of(resource: Resource, metadata: &ObjectMeta) -> Self {
        let text = |text: &Option<String>| -> Text { text.as_deref().unwrap_or_default().into() };
        Self {
            api_version: resource.api_version(),
            kind: resource.kind,
            namespace: text(&metadata.namespace),
            name: text(&metadata.name),
            uid: text(&metadata.uid),
        }
    }

    pub fn pod(id: &PodId, uid: &Text) -> Self {
        Self {
            api_version: "v1".to_owned(),
            kind: "Pod",
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            uid: uid.clone(),
        }
    }
}

impl Event {
    pub fn normal(about: About, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let same = vec![about.uid.clone()];
        let reason = reason.into();
        Self { about, is_warning: false, reason, message: message.into(), same, quiet_ms: QUIET_MS, per_second: None }
    }

    pub fn warning(about: About, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { is_warning: true, ..Self::normal(about, reason, message) }
    }

    /// What makes it the same event again; the object's uid unless said.
    pub fn same_by(mut self, same: impl IntoIterator<Item = Text>) -> Self {
        self.same = same.into_iter().collect();
        self
    }

    pub fn quiet_for(mut self, quiet_ms: i64) -> Self {
        self.quiet_ms = quiet_ms;
        self
    }

    pub fn at_most(mut self, per_second: u32) -> Self {
        self.per_second = Some(per_second);
        self
    }
}

/// The reason, and what makes it the same event again.
type Key = (Cow<'static, str>, Vec<Text>);

/// Which events were told lately, and which are about to be.
#[derive(Debug, Default)]
pub struct Events {
    told: BTreeMap<Key, UnixMillis>,
    expiry: VecDeque<(UnixMillis, Key)>,
    /// Tokens left, times a thousand, and when that was.
    rates: BTreeMap<Cow<'static, str>, (i64, UnixMillis)>,
    ready: Vec<(UnixMillis, Event)>,
    /// Handed out to be written, and not answered yet.
    n_under_way: usize,
    n_untold: usize,
}

impl Events {
    pub fn tell(&mut self, now: UnixMillis, event: Event) {
        while let Some((until, _)) = self.expiry.front()
            && (*until <= now || self.expiry.len() >= EVENTS_TOLD_MAX)
        {
            let (until, key) = self.expiry.pop_front().expect("there is a first");
            if self.told.get(&key) == Some(&until) {
                self.told.remove(&key);
            }
        }
        let key = (event.reason.clone(), event.same.clone());
        if self.told.get(&key).is_some_and(|until| *until > now) || !self.may_tell(now, &event) {
            return;
        }
        if self.ready.len() + self.n_under_way >= EVENTS_MAX {
            // Not remembered as told: who says it again later may be heard.
            self.n_untold += 1;
            return;
        }
        let until = UnixMillis(now.0.saturating_add(event.quiet_ms));
        self.told.insert(key.clone(), until);
        let place = self.expiry.partition_point(|(other, _)| *other <= until);
        self.expiry.insert(place, (until, key));
        self.ready.push((now, event));
    }

    fn may_tell(&mut self, now: UnixMillis, event: &Event) -> bool {
        let Some(per_second) = event.per_second.map(i64::from) else {
            return true;
        };
        let full = 2 * per_second * 1_000;
        let (tokens, at) = self.rates.entry(event.reason.clone()).or_insert((full, now));
        *tokens = (*tokens + (now.0 - at.0).max(0).saturating_mul(per_second)).min(full);
        *at = now;
        if *tokens < 1_000 {
            return false;
        }
        *tokens -= 1_000;
        true
    }

    /// The requests that write what was told since the last time.
    pub fn take(&mut self) -> Vec<ApiCall> {
        self.n_under_way += self.ready.len();
        self.ready.drain(..).map(|(at, event)| call(at, &event)).collect()
    }
}

impl Events {
    /// Whatever is told next is news.
    pub fn forget(&mut self) {
        self.told.clear();
        self.expiry.clear();
        self.rates.clear();
    }

    /// One that was handed out is written, or will not be.
    pub fn ended(&mut self) {
        self.n_under_way = self.n_under_way.saturating_sub(1);
    }

    /// How many there was no room for, since the last time.
    pub fn take_untold(&mut self) -> usize {
        std::mem::take(&mut self.n_untold)
    }
}

fn call(at: UnixMillis, event: &Event) -> ApiCall {
    let time = timestamp(at);
    let namespace = if event.about.namespace.is_empty() { "default" } else { &event.about.namespace };
    let name = format!("{}.{:x}", event.about.name, fingerprint(at, event));
    let body = json!({
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {
            "apiVersion": event.about.api_version, "kind": event.about.kind,
            "namespace": &*event.about.namespace, "name": &*event.about.name, "uid": &*event.about.uid,
        },
        "reason": event.reason, "message": event.message,
        "type": if event.is_warning { "Warning" } else { "Normal" },
        "source": {"component": "karpenter"}, "reportingComponent": "karpenter", "reportingInstance": "",
        "firstTimestamp": time, "lastTimestamp": time, "count": 1,
    });
    write::create(EVENTS, namespace, &body)
}

/// Different events of one object at one time have different names.
fn fingerprint(at: UnixMillis, event: &Event) -> u64 {
    let text = format!("{}/{}/{}/{}", at.0, event.reason, event.about.uid, event.message);
    kerf_api::hash::fnv1(text.as_bytes())
}

/// What the API server takes.
pub(crate) const MESSAGE_MAX: usize = 1024;

/// Longer messages keep their beginning, up to the end of a sentence or clause where one is near.
pub fn cut(mut message: String) -> String {
    if message.len() <= MESSAGE_MAX {
        return message;
    }
    let mut end = MESSAGE_MAX - 3;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let ends = ["; ", ". ", "\n"].iter().filter_map(|mark| message[..end].rfind(mark));
    // A sentence that is longer than half of the room is cut within.
    let whole = ends.max().filter(|end| *end >= MESSAGE_MAX / 2);
    message.truncate(whole.unwrap_or(end));
    message.push_str("...");
    message
}

/// As Kubernetes writes a `Time`.
pub fn timestamp(at: UnixMillis) -> String {
    let at = jiff::Timestamp::from_millisecond(at.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str) -> Event {
        Event::normal(About::pod(&PodId::new("a", name), &name.into()), "Nominated", "it")
    }

    #[test]
    fn the_same_is_not_told_again_for_a_while() {
        let mut events = Events::default();
        for ms in [0, 1, QUIET_MS - 1, QUIET_MS] {
            events.tell(UnixMillis(ms), event("p"));
        }
        events.tell(UnixMillis(QUIET_MS), event("q"));
        assert_eq!(events.take().len(), 3);
        assert!(events.told.len() <= 2);
    }

    #[test]
    fn what_the_server_does_not_take_does_not_pile_up_and_is_told_once_it_does() {
        let mut events = Events::default();
        for n in 0..EVENTS_MAX + 7 {
            events.tell(UnixMillis(0), event(&n.to_string()));
        }
        assert_eq!((events.take().len(), events.take_untold()), (EVENTS_MAX, 7));
        events.tell(UnixMillis(1), event("late"));
        assert_eq!((events.take().len(), events.take_untold()), (0, 1));
        events.ended();
        events.tell(UnixMillis(2), event("late"));
        assert_eq!((events.take().len(), events.take_untold()), (1, 0), "it was not remembered as told");
    }

    #[test]
    fn so_many_are_remembered_as_told_and_no_more() {
        let mut events = Events::default();
        for n in 0..EVENTS_TOLD_MAX + 5 {
            events.tell(UnixMillis(0), event(&n.to_string()));
            events.take();
            events.ended();
        }
        assert!(events.told.len() <= EVENTS_TOLD_MAX && events.expiry.len() <= EVENTS_TOLD_MAX);
    }

    #[test]
    fn a_reason_may_have_a_rate() {
        let mut events = Events::default();
        for n in 0..50 {
            events.tell(UnixMillis(0), event(&n.to_string()).at_most(5));
        }
        assert_eq!(events.take().len(), 10);
        events.tell(UnixMillis(400), event("late").at_most(5));
        events.tell(UnixMillis(400), event("later").at_most(5));
        events.tell(UnixMillis(400), event("latest").at_most(5));
        assert_eq!(events.take().len(), 2);
    }

    #[test]
    fn a_message_that_is_too_long_ends_with_a_whole_sentence() {
        assert_eq!(cut("short".to_owned()), "short");
        let sentence = "nodepool default: did not tolerate taint (taint=a=b:NoSchedule); ";
        let cut_off = cut(sentence.repeat(30));
        assert!(cut_off.len() <= MESSAGE_MAX && cut_off.len() > MESSAGE_MAX - sentence.len(), "{}", cut_off.len());
        assert!(cut_off.ends_with("NoSchedule)..."), "{cut_off}");
        let one_word = cut("ä".repeat(1_000));
        assert!(one_word.len() <= MESSAGE_MAX && one_word.len() > MESSAGE_MAX - 5);
    }
}
