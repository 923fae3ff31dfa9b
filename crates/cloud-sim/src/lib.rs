//! Clouds that cost nothing: the kwok provider, and a simulated EC2.
//!
//! ```text
//! KwokCloud ── NodeDesk ─▶ an API server: nodes that are nothing but objects
//!           └─ Clock
//! SimCloud ─── Yard ─────▶ simulated machines, which become nodes by themselves
//!           └─ Clock
//! ```
//!
//! What is not here: a client, a runtime, a clock, a die. The owner passes in how to reach the cluster and how to wait, so
//! that the same code serves a shell with a runtime and a test that polls by hand under a virtual clock.

mod chance;
mod choice;
pub mod ec2_class;
pub mod kwok;
pub mod sim;

#[cfg(test)]
mod by_hand;

pub use kerf_cloud::clock::{Clock, Wait};
pub use kwok::{Created, KwokCloud, NodeDesk};
pub use sim::{Bill, BillLine, Faults, NewMachine, Notice, NoticeKind, SimCloud, SimOptions, Span, Yard};
