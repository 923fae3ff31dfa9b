//! Seeds: a cluster lives through half an hour of trouble, drawn from one number, and must come out whole.
//!
//! `KERF_SEEDS_SECONDS=600` tries for so long, `KERF_SEEDS=17..18` tries just these, and `KERF_SEEDS_TRACE=FILE` keeps everything that
//! happened with the last of them.

mod laws;
mod planted;
mod story;

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use story::Ended;

/// Where seeds begin, unless told.
const FIRST: u64 = 1;
const SECONDS: u64 = 90;
/// Fewer than this in that time say nothing.
const LEAST: u64 = 4;
/// As much of the trace is shown of a seed that fails.
const SHOWN: usize = 60;

#[test]
fn a_cluster_comes_out_of_any_trouble_whole() {
    let seconds = variable("KERF_SEEDS_SECONDS").map_or(SECONDS, |text| text.parse().expect("a number of seconds"));
    let range = variable("KERF_SEEDS").map(|text| {
        let (from, to) = text.split_once("..").expect("KERF_SEEDS=FROM..TO");
        from.parse().expect("a number")..to.parse().expect("a number")
    });
    let until = Instant::now() + Duration::from_secs(seconds);
    let last = range.as_ref().map_or(u64::MAX, |range| range.end);
    let next = AtomicU64::new(range.as_ref().map_or(FIRST, |range| range.start));
    let n_run = AtomicU64::new(0);
    let (has_failed, failed) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let work = || {
        while !has_failed.load(Ordering::Relaxed) && (range.is_some() || Instant::now() < until) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= last {
                return;
            }
            let ended = surely(seed);
            n_run.fetch_add(1, Ordering::Relaxed);
            if let Some(path) = variable("KERF_SEEDS_TRACE") {
                std::fs::write(path, ended.trace.join("\n")).expect("a file that can be written");
            }
            if !ended.breaches.is_empty() {
                has_failed.store(true, Ordering::Relaxed);
                failed.lock().expect("nobody panics with it").push((seed, ended));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    // Past the capture of the harness: how many there were is to be read of a test that passes, too.
    let n_run = n_run.load(Ordering::Relaxed);
    let _ = writeln!(std::io::stderr(), "seeds: {n_run} tried");
    let mut failed = failed.into_inner().expect("nobody panics with it");
    failed.sort_by_key(|(seed, _)| *seed);
    let n_least = range.map_or(LEAST, |range| range.end.saturating_sub(range.start).max(1));
    assert!(!failed.is_empty() || n_run >= n_least, "only {n_run} seeds in {seconds} s");
    assert!(failed.is_empty(), "{}", failed.iter().map(|(seed, ended)| words(*seed, ended)).collect::<String>());
}

/// A panic is a breach, too, and must not hide its seed.
fn surely(seed: u64) -> Ended {
    std::panic::catch_unwind(|| story::run(seed, false)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
        Ended { breaches: vec![format!("panic: {}", words.unwrap_or_default())], trace: Vec::new() }
    })
}

#[test]
fn a_seed_repeats_to_the_byte() {
    for seed in [1, 2] {
        let (one, other) = (story::run(seed, false), story::run(seed, false));
        let differs = one.trace.iter().zip(&other.trace).position(|(one, other)| one != other);
        assert_eq!(differs.map(|at| (&one.trace[at], &other.trace[at])), None, "seed {seed}");
        assert_eq!(one.trace.len(), other.trace.len(), "seed {seed}");
        assert!(one.trace.len() > 100, "seed {seed}: something happens");
    }
}

fn words(seed: u64, ended: &Ended) -> String {
    let mut words = format!(
        "\nseed {seed}: {}\nrepeat it: KERF_SEEDS={seed}..{} cargo test -p kerf-simulation --test seeds whole\n",
        ended.breaches.join("\n  "),
        seed + 1
    );
    for line in &ended.trace[ended.trace.len().saturating_sub(SHOWN)..] {
        // Writing to a string cannot fail.
        let _ = writeln!(words, "    {line}");
    }
    words
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}
