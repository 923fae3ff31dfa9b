//! The checks of the fuzz targets over their committed seeds: what `cargo xtask fuzz` starts from holds on every day.

#[path = "../../fuzz/checks/control_plane.rs"]
mod control_plane;
#[path = "../../fuzz/checks/cron.rs"]
mod cron;
#[path = "../../fuzz/checks/dump.rs"]
mod dump;
#[path = "../../fuzz/checks/quantity.rs"]
mod quantity;
#[path = "../../fuzz/checks/requests.rs"]
mod requests;
#[path = "../../fuzz/checks/requirements.rs"]
mod requirements;
#[path = "../../fuzz/checks/selector.rs"]
mod selector;
#[path = "../../fuzz/checks/walk.rs"]
mod walk;

use std::path::Path;

/// Enough places to end inside every kind of token.
const PLACES: usize = 100;
/// A control plane for each of them takes its time.
const PLACES_OF_REQUESTS: usize = 12;

/// Each seed as it is, cut short at so many places, and with a byte flipped at them.
fn every_seed(target: &str, n_places: usize, check: fn(&str)) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(target);
    let mut n_seeds = 0;
    for entry in std::fs::read_dir(&folder).expect("the seeds are committed") {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a seed is text");
        check(&text);
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        for at in places.iter().step_by(places.len() / n_places + 1) {
            check(&text[..*at]);
            let mut flipped = text.clone().into_bytes();
            flipped[*at] ^= 0x01;
            if let Ok(flipped) = String::from_utf8(flipped) {
                check(&flipped);
            }
        }
        n_seeds += 1;
    }
    assert!(n_seeds > 0, "{target} has no seeds");
}

#[test]
fn quantities_survive_their_seeds() {
    every_seed("quantity", PLACES, quantity::check);
}

#[test]
fn requirements_survive_their_seeds() {
    every_seed("requirements", PLACES, requirements::check);
}

#[test]
fn selectors_survive_their_seeds() {
    every_seed("selector", PLACES, selector::check);
}

#[test]
fn schedules_survive_their_seeds() {
    every_seed("cron", PLACES, cron::check);
}

#[test]
fn dumps_survive_their_seeds() {
    every_seed("dump", PLACES, dump::check);
}

#[test]
fn requests_survive_their_seeds() {
    every_seed("requests", PLACES_OF_REQUESTS, requests::check);
}

#[test]
fn walks_survive_their_seeds() {
    every_seed("walk", PLACES_OF_REQUESTS, |text| walk::check(text.as_bytes()));
}

/// Without a fuzzer: choices from a sequence that is the same on every day.
#[test]
fn walks_without_a_fuzzer_find_nothing() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..40 {
        let bytes: Vec<u8> = (0..400)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect();
        walk::check(&bytes);
    }
}
