//! Definitions with several versions: read, written, watched and listed in each, and kept in one.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

mod versions {
    pub(super) mod stage;

    mod converted;
    mod failing;
    mod fields;
    mod migrated;
    mod plain;
    mod serving;
    mod watched;
}
