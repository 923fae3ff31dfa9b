//! A watcher, and a server that answers as it is told.

use super::*;
use crate::errand::ApiFailure;
use crate::resource::{NODE_OVERLAYS, PODS};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(300);

struct Stage {
    watcher: Watcher,
    now: Moment,
    /// Everything it wanted done, in words.
    told: Vec<String>,
    asked: Vec<String>,
    until: Moment,
}

impl Stage {
    fn new(kind: Kind, resource: Resource) -> Self {
        Self::with(kind, resource, Siblings::new(1))
    }

    fn with(kind: Kind, resource: Resource, siblings: Arc<Siblings>) -> Self {
        let is_optional = kind == Kind::NodeOverlay;
        let watcher = Watcher::new(Source { kind, resource, is_optional }, siblings, LIMIT, Moment(0));
        let mut stage = Self { watcher, now: Moment(0), told: Vec::new(), asked: Vec::new(), until: Moment(0) };
        stage.hears(News::None);
        stage
    }

    fn pods() -> Self {
        Self::new(Kind::Pod, PODS)
    }

    /// Shows everything there is: these pods.
    fn beginning(mut self, names: &[(&str, u64)]) -> Self {
        self.hears(News::Opened { is_wire: false });
        for (name, version) in names {
            self.says(&json!({"type": "ADDED", "object": pod(name, *version)}));
        }
        self.says(&end(9));
        self
    }

    fn hears(&mut self, news: News) {
        let mut news = Some(news);
        loop {
            match self.watcher.step(self.now, news.take().unwrap_or(News::None)) {
                Do::Ask(ask) => {
                    let (_, query) = ask.path.split_once('?').unwrap();
                    self.asked.push(query.to_owned());
                }
                Do::Wake(Wake::Observed(object)) => self.told.push(format!("{} is there", object.key().name)),
                Do::Wake(Wake::Gone(key, at)) => self.told.push(format!("{} went at {at:?}", key.name)),
                Do::Wake(Wake::Relisted { at, present, .. }) => {
                    let names: Vec<&str> = present.iter().map(|key| &*key.name).collect();
                    let at = at.map_or_else(String::new, |at| format!(" at {at}"));
                    self.told.push(format!("left{at}: {}", names.join(" ")));
                }
                Do::Wake(Wake::Synced(_)) => self.told.push("synced".to_owned()),
                Do::Wake(Wake::Stale(_, is_stale)) => self.told.push(format!("stale: {is_stale}")),
                Do::Wake(other) => self.told.push(format!("{other:?}")),
                Do::Report(Report::Has) => {}
                Do::Report(report) => self.told.push(format!("{report:?}")),
                Do::Wait(until) => {
                    self.until = until;
                    return;
                }
            }
        }
    }

    fn says(&mut self, event: &Value) {
        self.hears(News::Piece(Bytes::from(format!("{event}\n"))));
    }

    fn refuses(&mut self, status: u16) {
        let failure = ApiFailure { status, reason: String::new(), message: "no".to_owned() };
        self.hears(News::Refused(failure.into()));
    }

    /// Nothing comes, up to this second; the requests that it makes meanwhile are not answered either.
    fn is_silent_until(&mut self, second: i64) {
        while self.until <= Moment(second * 1_000) {
            assert!(self.until >= self.now, "it waits for the past");
            self.now = self.until;
            self.hears(News::Silence);
        }
        self.now = Moment(second * 1_000);
    }

    #[track_caller]
    fn has_told(&mut self, expected: &[&str]) {
        assert_eq!(std::mem::take(&mut self.told), expected);
    }

    #[track_caller]
    fn has_asked(&mut self, expected: &[&str]) {
        let asked = std::mem::take(&mut self.asked);
        assert_eq!(asked.len(), expected.len(), "{asked:?}");
        for (asked, expected) in asked.iter().zip(expected) {
            assert!(asked.contains(expected), "{asked:?} instead of {expected}");
        }
    }
}

fn pod(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "namespace": "a", "uid": name, "resourceVersion": version.to_string()}})
}

fn end(version: u64) -> Value {
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version.to_string(), "annotations": annotations}}})
}

fn bookmark(version: u64) -> Value {
    json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version.to_string()}}})
}

fn page(names: &[(&str, u64)], token: &str) -> News {
    let items: Vec<Value> = names.iter().map(|(name, version)| pod(name, *version)).collect();
    News::Page(json!({"metadata": {"resourceVersion": "20", "continue": token}, "items": items}).to_string().into())
}

#[test]
fn a_watch_begins_with_everything_and_goes_on_from_the_last_version() {
    let mut stage = Stage::pods().beginning(&[("one", 3), ("two", 4)]);
    stage.has_asked(&["sendInitialEvents=true"]);
    stage.has_told(&["Waits(\"being listed\")", "one is there", "two is there", "synced"]);
    stage.says(&json!({"type": "DELETED", "object": pod("two", 12)}));
    stage.has_told(&["two went at Some(12)"]);
    // Cut in the middle of an event: what had begun is told again by the next watch.
    stage.hears(News::Piece(Bytes::from_static(b"{\"type\":\"ADDED\",\"obj")));
    stage.hears(News::Closed { broke: Some("reset".to_owned()) });
    stage.has_asked(&["resourceVersion=12"]);
    stage.hears(News::Opened { is_wire: false });
    let event = format!("{}\n", json!({"type": "ADDED", "object": pod("three", 14)}));
    for byte in event.into_bytes() {
        stage.hears(News::Piece(Bytes::from(vec![byte])));
    }
    stage.has_told(&["three is there"]);
}

#[test]
fn an_older_server_is_asked_for_pages() {
    let mut stage = Stage::pods();
    stage.refuses(422);
    stage.hears(page(&[("one", 3)], "a/b"));
    stage.hears(page(&[("two", 4)], ""));
    stage.has_asked(&["sendInitialEvents=true", "limit=500", "limit=500&continue=a%2Fb", "resourceVersion=20"]);
    stage.has_told(&["Waits(\"being listed\")", "one is there", "two is there", "synced"]);
}

#[test]
fn what_is_compacted_is_shown_anew_and_what_is_gone_is_forgotten() {
    let mut stage = Stage::pods().beginning(&[("stays", 3), ("goes", 4)]);
    stage.told.clear();
    stage.says(&json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}));
    stage.is_silent_until(1);
    let mut stage = stage.beginning(&[("stays", 3), ("comes", 15)]);
    stage.has_asked(&["sendInitialEvents=true", "sendInitialEvents=true"]);
    stage.has_told(&["stays is there", "comes is there", "left at 9: stays comes"]);
}

#[test]
fn what_could_not_be_read_and_went_while_nobody_listened_is_forgotten_too() {
    let mut stage = Stage::pods();
    stage.hears(News::Opened { is_wire: false });
    let mut odd = pod("odd", 3);
    odd["spec"] = json!("none");
    stage.says(&json!({"type": "ADDED", "object": odd}));
    stage.hears(News::Closed { broke: Some("reset".to_owned()) });
    stage.told.clear();
    stage.is_silent_until(1);
    let mut stage = stage.beginning(&[("one", 4)]);
    stage.has_told(&["one is there", "left at 9: one", "synced"]);
}

#[test]
fn a_frozen_watch_is_begun_anew_and_only_then_stale() {
    let mut stage = Stage::pods().beginning(&[("one", 3)]);
    stage.told.clear();
    stage.asked.clear();
    stage.now = Moment(60_000);
    stage.says(&bookmark(10));
    // A minute later the next bookmark is due. None comes.
    stage.is_silent_until(60 + 149);
    stage.has_asked(&[]);
    stage.is_silent_until(60 + 151);
    stage.has_asked(&["sendInitialEvents=true"]);
    stage.is_silent_until(60 + 299);
    stage.has_told(&[]);
    stage.is_silent_until(660);
    stage.has_told(&["Stale(true)", "stale: true"]);
    // However long it is away, it is asked again, at most half a minute and a deadline later.
    assert!(stage.asked.len() > 4, "{:?}", stage.asked);
    while !stage.watcher.listens() {
        stage.is_silent_until(stage.now.0 / 1_000 + 1);
    }
    stage.refuses(422);
    stage.hears(page(&[("two", 14)], ""));
    stage.has_told(&["two is there", "left at 20: two", "Stale(false)", "stale: false"]);
}

#[test]
fn a_watch_that_drips_and_never_ends_is_begun_anew() {
    let mut stage = Stage::pods().beginning(&[("a", 5)]);
    let n_asked = stage.asked.len();
    let mut second = 0;
    while stage.asked.len() == n_asked {
        second += 10;
        assert!(second < 400, "it drips for ever");
        stage.is_silent_until(second);
        // A byte of an event that never becomes one.
        stage.hears(News::Piece(Bytes::from_static(b" ")));
    }
    assert!(second >= 240, "it may last as long as it was asked to: {second}");
}

#[test]
fn a_watch_that_has_shown_everything_may_be_quiet() {
    let stage = Stage::pods().beginning(&[("a", 3)]);
    assert_eq!(stage.until, stage.now.after(LIMIT / 2), "not only for as long as its beginning may pause");
}

#[test]
fn a_server_that_recovers_in_time_is_never_stale() {
    let mut stage = Stage::pods().beginning(&[("one", 3)]);
    stage.told.clear();
    stage.is_silent_until(151);
    let mut stage = stage.beginning(&[("one", 3)]);
    stage.is_silent_until(300);
    stage.has_told(&["one is there", "left at 9: one"]);
}

#[test]
fn a_quiet_watch_that_ends_when_it_was_asked_to_is_a_sign_of_life() {
    let mut stage = Stage::pods().beginning(&[("one", 3)]);
    stage.told.clear();
    let lasts = i64::try_from(stage.watcher.lasts().as_secs()).unwrap();
    assert!((240..285).contains(&lasts));
    for round in 1..10 {
        // Without bookmarks the patience would end before.
        stage.now = Moment(round * lasts * 1_000);
        stage.hears(News::Closed { broke: None });
        stage.hears(News::Opened { is_wire: false });
    }
    stage.has_told(&[]);
    assert!(stage.asked.last().unwrap().ends_with("resourceVersion=9"));
}

#[test]
fn under_a_short_limit_watches_end_sooner_than_their_silence_is_noticed() {
    for (limit, lasts, patience) in [(20, 8, 10), (5, 2, 2), (60, 24, 30), (300, 240, 150), (3_600, 240, 270)] {
        let source = Source { kind: Kind::Pod, resource: PODS, is_optional: false };
        let watcher = Watcher::new(source, Siblings::new(1), Duration::from_secs(limit), Moment(0));
        let spread = if limit < 180 { 0 } else { watcher.lasts().as_secs() - 240 };
        assert_eq!(watcher.lasts().as_secs(), lasts + spread, "{limit}");
        let expected = if limit == 3_600 { patience + spread } else { patience };
        assert_eq!(watcher.patience().as_secs(), expected, "{limit}");
    }
}

#[test]
fn a_busy_operator_is_not_taken_for_a_silent_server() {
    let mut stage = Stage::pods().beginning(&[("one", 3)]);
    stage.told.clear();
    // Nobody asked for an hour, because nobody took what it had to say; then a piece is there.
    stage.now = Moment(3_600_000);
    stage.hears(News::None);
    stage.says(&bookmark(10));
    stage.has_told(&[]);
    stage.has_asked(&["sendInitialEvents=true"]);
}

#[test]
fn what_is_told_twice_is_shown_twice_and_harms_nobody() {
    let mut stage = Stage::pods().beginning(&[("one", 3)]);
    stage.told.clear();
    for _ in 0..2 {
        stage.says(&json!({"type": "MODIFIED", "object": pod("one", 11)}));
    }
    stage.has_told(&["one is there", "one is there"]);
    stage.hears(News::Closed { broke: None });
    assert!(stage.asked.last().unwrap().ends_with("resourceVersion=11"));
}

#[test]
fn a_page_that_never_comes_is_asked_for_again() {
    let mut stage = Stage::pods();
    stage.refuses(422);
    stage.is_silent_until(59);
    stage.has_asked(&["sendInitialEvents=true", "limit=500"]);
    stage.is_silent_until(61);
    stage.has_asked(&["limit=500"]);
    let told = stage.told.join("\n");
    assert!(told.contains("cannot list pods: no answer within 60 s"), "{told}");
    stage.hears(page(&[("one", 3)], ""));
    assert_eq!(stage.told.last().unwrap(), "synced");
}

#[test]
fn a_list_without_an_end_is_given_up() {
    let mut stage = Stage::pods();
    stage.refuses(422);
    for _ in 0..LIST_PAGES_MAX {
        stage.hears(page(&[], "more"));
    }
    assert!(stage.told.last().unwrap().contains("more than"), "{:?}", stage.told);
}

#[test]
fn a_kind_that_one_can_do_without_is_never_stale_while_it_is_not_served() {
    let mut stage = Stage::new(Kind::NodeOverlay, NODE_OVERLAYS);
    for _ in 0..500 {
        stage.refuses(404);
        stage.now = stage.until;
        stage.hears(News::Silence);
    }
    stage.has_told(&["Waits(\"being listed\")", "synced"]);
    assert!(stage.now > Moment(600_000));
}

#[test]
fn of_two_kinds_of_node_classes_the_first_is_stale_and_the_last_is_synced() {
    let siblings = Siblings::new(2);
    let class = |plural| Resource { group: "a.b", version: "v1", plural, kind: "Class", is_namespaced: false };
    let mut one = Stage::with(Kind::NodeClass, class("ones"), Arc::clone(&siblings)).beginning(&[]);
    let mut other = Stage::with(Kind::NodeClass, class("others"), siblings).beginning(&[]);
    one.has_told(&["Waits(\"being listed\")"]);
    other.has_told(&["Waits(\"being listed\")", "synced"]);
    one.is_silent_until(301);
    other.is_silent_until(301);
    one.has_told(&["Stale(true)", "stale: true"]);
    other.has_told(&["Stale(true)"]);
}
