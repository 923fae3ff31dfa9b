//! The checks of the fuzz targets over their committed seeds: what `cargo xtask fuzz` starts from holds on every day.

#[path = "../../fuzz/checks/cron.rs"]
mod cron;
#[path = "../../fuzz/checks/dump.rs"]
mod dump;
#[path = "../../fuzz/checks/quantity.rs"]
mod quantity;
#[path = "../../fuzz/checks/requirements.rs"]
mod requirements;
#[path = "../../fuzz/checks/selector.rs"]
mod selector;

use std::path::Path;

/// Each seed as it is, cut short at every place, and with a byte flipped at every place.
fn every_seed(target: &str, check: fn(&str)) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(target);
    let mut n_seeds = 0;
    for entry in std::fs::read_dir(&folder).expect("the seeds are committed") {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a seed is text");
        check(&text);
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        // A long seed is cut at some hundred places: enough to end inside every kind of token.
        for at in places.iter().step_by(places.len() / 100 + 1) {
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
    every_seed("quantity", quantity::check);
}

#[test]
fn requirements_survive_their_seeds() {
    every_seed("requirements", requirements::check);
}

#[test]
fn selectors_survive_their_seeds() {
    every_seed("selector", selector::check);
}

#[test]
fn schedules_survive_their_seeds() {
    every_seed("cron", cron::check);
}

#[test]
fn dumps_survive_their_seeds() {
    every_seed("dump", dump::check);
}
