//! How long anything may take, and how much of it there may be: every deadline and bound of the shell in one table.
//!
//! `docs/limits.md` is made from it. A bound that only one piece of code understands stays there, and that document names it.

use std::fmt::Write as _;
use std::time::Duration;

/// One line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub name: &'static str,
    pub value: Value,
    /// What it bounds.
    pub what: &'static str,
    /// Why it is so, and not more or less.
    pub why: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    Time(Duration),
    Count(usize),
}

macro_rules! limits {
    ($($name:ident: $type:ty = $form:ident $value:expr, $what:literal, $why:literal;)*) => {
        $(#[doc = $what] pub const $name: $type = $value;)*
        /// All of them, in the order of the document.
        pub const ALL: &[Limit] =
            &[$(Limit { name: stringify!($name), value: Value::$form($name), what: $what, why: $why },)*];
    };
}

limits! {
    CONNECT_WITHIN: Duration = Time Duration::from_secs(10),
        "A TCP connection to the API server, or to a proxy before it.",
        "As long as client-go's TLS handshake may take; a server that is there answers within milliseconds.";
    KEEPALIVE_AFTER: Duration = Time Duration::from_secs(30),
        "Silence on a connection after which the kernel asks whether the other side is there.",
        "As client-go dials. The client speaks HTTP/1, which has no pings of its own.";
    KEEPALIVE_EVERY: Duration = Time Duration::from_secs(10),
        "Between two such questions.",
        "Three of them without an answer end a connection a minute after its other side has gone.";
    KEEPALIVE_TRIES: usize = Count 3,
        "Such questions without an answer before the connection counts as broken.",
        "As above.";
    UNACKNOWLEDGED: Duration = Time Duration::from_secs(60),
        "What was sent and is not acknowledged by the other side's kernel, before the connection counts as broken.",
        "Linux alone would try for a quarter of an hour.";
    CREDENTIALS_WITHIN: Duration = Time Duration::from_secs(60),
        "A kubeconfig's exec plugin, at start.",
        "Plugins sign in over a network; one that waits for a person waits in vain in a pod.";
    ANSWER_WITHIN: Duration = Time Duration::from_secs(60),
        "A request to the API server, from its first sending to the last byte of its answer, repetitions and their waits included.",
        "kube-apiserver ends requests of its own after as long.";
    TRIES_MAX: usize = Count 5,
        "How often a request is sent when the server asks to come back later (429, 503 with Retry-After; reads also without).",
        "Whoever ordered it has its own, slower repetition; evictions are never sent twice here.";
    AGAIN_FIRST: Duration = Time Duration::from_millis(500),
        "The first wait before a read is repeated without Retry-After; each further one is twice as long.",
        "Five tries then take 7.5 s.";
    SHARE_OF_EVICTIONS: usize = Count 4,
        "Evictions may use one in so many of the slots for requests under way, on top of those; events as many.",
        "Admission webhooks may hold each of them for 30 s: no other write waits for that.";
    RATE_OF_EVICTIONS: usize = Count 2,
        "Evictions may use one in so many requests of the client's rate; the others are left to other requests.",
        "Hundreds of pods that a budget holds are asked again and again.";
}

/// The body of `docs/limits.md`.
pub fn document() -> String {
    let mut text = String::from(HEAD);
    for Limit { name, value, what, why } in ALL {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{name}` | {} | {what} | {why} |", shown(*value));
    }
    text.push_str(TAIL);
    text
}

fn shown(value: Value) -> String {
    match value {
        Value::Count(count) => count.to_string(),
        Value::Time(time) if time.subsec_millis() > 0 => format!("{} ms", time.as_millis()),
        Value::Time(time) if time.as_secs() >= 120 && time.as_secs().is_multiple_of(60) => {
            format!("{} min", time.as_secs() / 60)
        }
        Value::Time(time) => format!("{} s", time.as_secs()),
    }
}

const HEAD: &str = "# Deadlines and bounds

Every request, list, watch, cloud call and page ends, and everything that is held has a bound. The first table is made from
`crates/controllers/src/limits.rs`: `KERF_WRITE_DOCS=1 cargo test -p kerf-controllers --test limits`.

| name | value | what it bounds | why so |
|---|---|---|---|
";

const TAIL: &str = "
";
