//! Notices of interruption, rehearsed: a simulated EC2, a queue like SQS, the whole operator, a virtual clock.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

mod documents;
mod queue;
mod replace;
mod stage;
