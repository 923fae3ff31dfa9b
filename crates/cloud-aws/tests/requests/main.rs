//! The exact shape of every call: what the SDK would send, caught on its way out.
//!
//! No network and no emulator: a recorder stands in for the HTTP client, keeps the request and answers with canned text.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

mod ec2;
mod launches;
mod others;
mod recorder;
