//! What goes wrong between the operator and the world: by chance, or because a story says so.
//!
//! All of it is drawn from one seed, in the order in which things happen, so that a run repeats to the byte.

use jiff::Timestamp;
use kerf_control_plane::dice::Dice;
use kerf_controllers::dispatch::Refused;
use kerf_controllers::moment::Moment;
use kerf_controllers::{ApiCall, ApiFailure};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often something goes wrong by chance: out of a thousand requests, or calls to the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// The connection breaks, or is silent, before the server has read the request.
    pub unsent: u16,
    /// The server does it, and nobody hears so, or hears that it failed.
    pub lost: u16,
    /// It takes a while, on the way there or back.
    pub slow: u16,
    /// 409, 429, 500 or 503, the second and the last with Retry-After or without.
    pub refused: u16,
    /// The process ends before a request leaves.
    pub stops_before: u16,
    /// The process ends when the request has been carried out, before its answer comes.
    pub stops_after: u16,
    /// The cloud has answered; the process ends before that is written anywhere.
    pub stops_between: u16,
    /// The cloud does it, and nobody hears so.
    pub lost_in_cloud: u16,
    /// A piece of a watch comes late, cut in two at any byte.
    pub late_pieces: u16,
}

impl Faults {
    /// A little of everything.
    pub fn bad_day() -> Self {
        Self {
            unsent: 15,
            lost: 20,
            slow: 60,
            refused: 40,
            stops_before: 4,
            stops_after: 4,
            stops_between: 25,
            lost_in_cloud: 40,
            late_pieces: 150,
        }
    }

    fn is_calm(&self) -> bool {
        *self == Self::default()
    }
}

/// As long as a request may be on its way: less than what lies between the end of one leader and the beginning of the next.
const SLOW_MS: u64 = 4_000;
/// As long as a piece of a watch may be late.
const LATE_MS: u64 = 20_000;
/// As long as an API server waits for a webhook.
const WEBHOOK_MS: i64 = 10_000;

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It arrives, and so does its answer, each after so many milliseconds.
    Arrives { there_ms: i64, back_ms: i64 },
    /// It never arrives. Nobody says so, or the connection breaks.
    Unsent { is_silent: bool },
    /// It is done, and this is what is heard of it.
    Lost(Heard),
    /// Nothing is done.
    Refused { back_ms: i64, refused: Refused },
    /// The process that sends it ends.
    Stops { is_sent: bool },
}

/// What is heard of a request that was carried out, in place of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    Nothing,
    /// The connection breaks.
    Break,
    /// The server's own server did not answer it in time.
    Failure,
}

impl Heard {
    /// None for nothing.
    pub(crate) fn answer(self) -> Option<ApiFailure> {
        match self {
            Self::Nothing => None,
            Self::Break => Some(broken()),
            Self::Failure => Some(refusal(500, "InternalError", "etcdserver: request timed out", None).failure),
        }
    }
}

pub(crate) fn broken() -> ApiFailure {
    ApiFailure { status: 0, reason: String::new(), message: "connection reset by peer".to_owned() }
}

/// What becomes of a call to the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloudFate {
    Arrives,
    /// It is done, and nobody hears so.
    Lost,
    Stops,
}

pub(crate) struct Weather {
    pub(crate) faults: Faults,
    chance: Chance,
    /// Processes whose requests to the API server do not arrive, and until when.
    cut_off: BTreeMap<usize, Moment>,
    /// Kinds whose watches cannot be begun, by plural.
    frozen: BTreeMap<String, Moment>,
    /// Kinds of which the server has forgotten what was before: the next watch that goes on from there is told so.
    compacted: BTreeSet<String>,
    /// Paths that a webhook of somebody else's holds up.
    webhook: Option<(String, Moment)>,
    /// Requests whose answers are lost: a method, how their path ends, how many more of them, and what is heard.
    lost: Option<(&'static str, String, usize, Heard)>,
}

/// A stream for each purpose.
struct Chance {
    calls: Dice,
    of_cloud: Dice,
    watches: Dice,
    pieces: Dice,
    absences: Dice,
}

impl Weather {
    pub(crate) fn new(seed: u64) -> Self {
        let stream = |purpose| Dice::for_purpose(seed, purpose);
        Self {
            faults: Faults::default(),
            chance: Chance {
                calls: stream("calls"),
                of_cloud: stream("cloud"),
                watches: stream("watches"),
                pieces: stream("pieces"),
                absences: stream("absences"),
            },
            cut_off: BTreeMap::new(),
            frozen: BTreeMap::new(),
            compacted: BTreeSet::new(),
            webhook: None,
            lost: None,
        }
    }

    pub(crate) fn cut_off(&mut self, process: usize, until: Moment) {
        self.cut_off.insert(process, until);
    }

    pub(crate) fn freeze(&mut self, plural: &str, until: Moment) {
        self.frozen.insert(plural.to_owned(), until);
    }

    pub(crate) fn compact(&mut self, plural: &str) {
        self.compacted.insert(plural.to_owned());
    }

    pub(crate) fn hang_webhook(&mut self, path: &str, until: Moment) {
        self.webhook = Some((path.to_owned(), until));
    }

    pub(crate) fn lose(&mut self, method: &'static str, path: &str, n_times: usize, heard: Heard) {
        self.lost = Some((method, path.to_owned(), n_times, heard));
    }

    /// Everything works from now on.
    pub(crate) fn clear(&mut self) {
        let Self { faults, chance: _, cut_off, frozen, compacted, webhook, lost } = self;
        (*faults, *webhook, *lost) = (Faults::default(), None, None);
        cut_off.clear();
        frozen.clear();
        compacted.clear();
    }

    pub(crate) fn of_call(&mut self, process: usize, call: &ApiCall, now: Moment) -> Fate {
        if self.is_cut_off(process, now) {
            return Fate::Unsent { is_silent: true };
        }
        let is_write = call.method != "GET";
        if let Some((path, until)) = &self.webhook
            && is_write
            && *until > now
            && call.path.contains(path.as_str())
        {
            let message =
                "Internal error occurred: failed calling webhook \"slow.example.com\": context deadline exceeded";
            return Fate::Refused { back_ms: WEBHOOK_MS, refused: refusal(500, "InternalError", message, None) };
        }
        if let Some((method, path, left, heard)) = &mut self.lost
            && *left > 0
            && *method == call.method
            && call.path.ends_with(path.as_str())
        {
            *left -= 1;
            return Fate::Lost(*heard);
        }
        if self.faults.is_calm() {
            return Fate::Arrives { there_ms: 0, back_ms: 0 };
        }
        let (faults, dice) = (self.faults, &mut self.chance.calls);
        let mut roll = i64::try_from(dice.roll() % 1_000).unwrap_or(0);
        let mut falls = |share: u16| {
            roll -= i64::from(share);
            roll < 0
        };
        if falls(faults.unsent) {
            Fate::Unsent { is_silent: flip(dice) }
        } else if falls(faults.lost) {
            Fate::Lost([Heard::Nothing, Heard::Break, Heard::Failure][usize::try_from(dice.roll() % 3).unwrap_or(0)])
        } else if falls(faults.slow) {
            Fate::Arrives { there_ms: span(dice, SLOW_MS), back_ms: span(dice, SLOW_MS) }
        } else if falls(faults.refused) {
            let may_conflict = matches!(call.method, "PATCH" | "PUT");
            Fate::Refused { back_ms: 0, refused: drawn_refusal(dice, may_conflict) }
        } else if falls(faults.stops_before) {
            Fate::Stops { is_sent: false }
        } else if falls(faults.stops_after) {
            Fate::Stops { is_sent: true }
        } else {
            Fate::Arrives { there_ms: 0, back_ms: 0 }
        }
    }

    pub(crate) fn of_cloud_call(&mut self) -> CloudFate {
        let faults = self.faults;
        if faults.is_calm() {
            return CloudFate::Arrives;
        }
        let roll = u16::try_from(self.chance.of_cloud.roll() % 1_000).unwrap_or(0);
        if roll < faults.stops_between {
            CloudFate::Stops
        } else if roll < faults.stops_between + faults.lost_in_cloud {
            CloudFate::Lost
        } else {
            CloudFate::Arrives
        }
    }

    /// Whether a watch or list of a kind is not answered at all, or refused.
    pub(crate) fn of_watch(&mut self, process: usize, plural: &str, path: &str, now: Moment) -> Option<Fate> {
        if self.is_cut_off(process, now) || self.is_frozen(plural, now) {
            return Some(Fate::Unsent { is_silent: true });
        }
        if path.contains("&resourceVersion=") && self.compacted.remove(plural) {
            let message = "The resourceVersion for the provided watch is too old.";
            return Some(Fate::Refused { back_ms: 0, refused: refusal(410, "Expired", message, None) });
        }
        let dice = &mut self.chance.watches;
        if self.faults.is_calm() || dice.roll() % 1_000 >= u64::from(self.faults.refused) {
            return None;
        }
        Some(Fate::Refused { back_ms: 0, refused: drawn_refusal(dice, false) })
    }

    pub(crate) fn is_cut_off(&self, process: usize, now: Moment) -> bool {
        self.cut_off.get(&process).is_some_and(|until| *until > now)
    }

    pub(crate) fn is_frozen(&self, plural: &str, now: Moment) -> bool {
        self.frozen.get(plural).is_some_and(|until| *until > now)
    }

    /// How late a piece of a watch comes, and where it is cut in two.
    pub(crate) fn of_piece(&mut self, n_bytes: usize) -> Option<(i64, usize)> {
        let dice = &mut self.chance.pieces;
        if self.faults.late_pieces == 0 || dice.roll() % 1_000 >= u64::from(self.faults.late_pieces) {
            return None;
        }
        let cut = dice.roll() % u64::try_from(n_bytes.max(1)).unwrap_or(1);
        Some((span(dice, LATE_MS), usize::try_from(cut).unwrap_or(0)))
    }

    /// How long a process is away that has ended.
    pub(crate) fn absence_ms(&mut self) -> i64 {
        5_000 + span(&mut self.chance.absences, 15_000)
    }
}

fn drawn_refusal(dice: &mut Dice, may_conflict: bool) -> Refused {
    let retry_after = flip(dice).then(|| Duration::from_secs(1 + dice.roll() % 3));
    match dice.roll() % if may_conflict { 4 } else { 3 } {
        0 => refusal(429, "TooManyRequests", "the server has received too many requests", retry_after),
        1 => refusal(500, "InternalError", "etcdserver: leader changed", None),
        2 => refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request", retry_after),
        _ => refusal(409, "Conflict", "the object has been modified; please apply your changes to it", None),
    }
}

fn flip(dice: &mut Dice) -> bool {
    dice.roll().is_multiple_of(2)
}

fn span(dice: &mut Dice, most_ms: u64) -> i64 {
    i64::try_from(dice.roll() % most_ms).unwrap_or(0)
}

fn refusal(status: u16, reason: &str, message: &str, retry_after: Option<Duration>) -> Refused {
    let failure = ApiFailure { status, reason: reason.to_owned(), message: message.to_owned() };
    Refused { failure, retry_after }
}

/// Everything that happened, a line each; kept where something may go wrong.
#[derive(Debug, Default)]
pub(crate) struct Trace(pub(crate) Option<Vec<String>>);

impl Trace {
    pub(crate) fn note(&mut self, now: Timestamp, words: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.0 {
            lines.push(format!("{now} {}", words()));
        }
    }
}
