//! `docs/limits.md` says what the code does.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use kerf_controllers::limits::{ALL, ELSEWHERE, document};
use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn the_document_has_every_deadline_and_bound_as_it_is_in_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
    if std::env::var_os("KERF_WRITE_DOCS").is_some() {
        std::fs::write(path, document()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == document(),
        "docs/limits.md is not what the code says: KERF_WRITE_DOCS=1 cargo test -p kerf-controllers --test limits"
    );
}

#[test]
fn each_one_has_a_name_of_its_own_and_a_reason() {
    for (nth, limit) in ALL.iter().enumerate() {
        assert!(!limit.why.is_empty() && limit.what.ends_with('.') && limit.why.ends_with('.'), "{}", limit.name);
        assert!(ALL[..nth].iter().all(|other| other.name != limit.name), "{} is there twice", limit.name);
        assert!(!limit.what.contains('|') && !limit.why.contains('|'), "{} would break the table", limit.name);
    }
}

#[test]
fn those_that_stand_elsewhere_are_there() {
    for (file, name, _) in ELSEWHERE {
        let path = format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(source.contains(&format!("const {name}: ")), "{file} has no {name}");
        // A room that names its limits in a file of their own uses them in others, and so does who starts it.
        let mut user = source;
        if let Some(room) = path.strip_suffix("/limits.rs") {
            for folder in [room, concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/src")] {
                read_all(Path::new(folder), &mut user);
            }
            user = user.replacen(name, "", 1);
        }
        assert!(n_mentions(&user, name) > 1, "{file} does not use its {name}");
    }
}

#[test]
fn no_bound_is_left_out() {
    let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut missing = Vec::new();
    for room in ["controllers", "cloud-aws", "cli", "mirror"] {
        let mut sources = BTreeMap::new();
        read_each(Path::new(&format!("{crates}/{room}/src")), &mut |path, source| {
            sources.insert(path.to_owned(), source);
        });
        for (path, source) in sources {
            let file = path.to_string_lossy().replace(&format!("{crates}/"), "");
            for name in bounds(&source) {
                if !ELSEWHERE.iter().any(|(known, its, _)| *known == file && *its == name)
                    && !file.ends_with("limits.rs")
                {
                    missing.push(format!("{file}: {name}"));
                }
            }
        }
    }
    assert!(missing.is_empty(), "name them in `ELSEWHERE`: {missing:#?}");
}

/// Constants that are called like bounds.
fn bounds(source: &str) -> Vec<&str> {
    let constants = source.lines().filter_map(|line| line.split_once("const ")?.1.split_once(": "));
    let names = constants.map(|(name, _)| name);
    let endings = ["_MAX", "_WITHIN", "TIMEOUT_MS", "PATIENCE_MS"];
    names.filter(|name| endings.iter().any(|ending| name.ends_with(ending))).collect()
}

#[test]
fn each_one_is_used_by_what_it_bounds() {
    let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut sources = String::new();
    for room in ["controllers", "cli"] {
        read_all(Path::new(&format!("{crates}/{room}/src")), &mut sources);
    }
    for limit in ALL {
        // Where it is named, where it is brought in, and where it is used; or by its whole path.
        let by_path = sources.contains(&format!("limits::{}", limit.name));
        assert!(by_path || n_mentions(&sources, limit.name) > 2, "nobody uses {}", limit.name);
    }
}

fn read_all(folder: &Path, out: &mut String) {
    read_each(folder, &mut |_, source| out.push_str(&source));
}

fn read_each(folder: &Path, each: &mut impl FnMut(&Path, String)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_each(&path, each);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            each(&path, std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// As a word of its own.
fn n_mentions(source: &str, name: &str) -> usize {
    let is_word = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    let places = source.match_indices(name);
    let whole = places.filter(|(at, _)| {
        !is_word(source[..*at].chars().next_back()) && !is_word(source[at + name.len()..].chars().next())
    });
    whole.count()
}
