//! A plug: nodes as EC2 instances, launched through EC2 Fleet, without node groups.
//!
//! ```text
//!                 ┌ classes ── subnets, security groups, images, profiles, reservations, placement groups, verdicts
//!   operator ──▶ AwsCloud ── supply ── types, prices, offerings (what can be bought now)
//!                 ├ launch ── filters, launch templates (user data), CreateFleet in batches
//!                 ├ instances ── read, list, tag, end
//!                 └ interruption ── the queue's messages as notices
//!                        │
//!                   wire::Aws            every call as plain data: no SDK in sight
//!                   ├ sdk::Sdk           the official SDK (cargo feature `sdk`)
//!                   └ wire::scripted     answers from a table, for tests
//! ```
//!
//! What is absent: pods, watches, writes to Kubernetes. This room answers the operator's questions; the operator acts.

pub mod advice;
pub mod batch;
pub mod bootstrap;
#[cfg(any(test, feature = "testing"))]
pub mod by_hand;
pub mod chores;
pub mod classes;
pub mod cloud;
pub mod instances;
pub mod interruption;
pub mod launch;
pub mod limits;
pub mod memory;
#[cfg(feature = "testing")]
pub mod oracle;
#[cfg(feature = "sdk")]
pub mod sdk;
pub mod settings;
pub mod supply;
pub mod tally;
pub mod templates;
#[cfg(test)]
mod testing;
pub mod wire;
