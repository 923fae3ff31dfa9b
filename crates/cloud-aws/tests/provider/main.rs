//! The whole provider over an AWS that answers from tables.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

mod conformance;
mod launches;
mod once;
mod remembered;
mod stage;
mod upgrade;
