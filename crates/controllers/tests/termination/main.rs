//! The end of nodes, rehearsed on the embedded control plane under a virtual clock.
//!
//! Mostly only the two duties of termination run. The claim's own end is another duty's: where a test needs it, it plays that part by
//! hand (the termination time on the claim, the Node's deletion). In `whole` all duties run.

#![allow(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

mod documents;
mod drain;
mod machines;
mod queue;
mod stage;
mod whole;
