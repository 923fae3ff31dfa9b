//! `docs/limits.md` says what the code does.

use kerf_controllers::limits::{ALL, ELSEWHERE, document};

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
    }
}
