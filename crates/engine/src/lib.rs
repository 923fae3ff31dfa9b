//! The study: plans capacity from one frozen picture; no I/O, no async, no clock.
//!
//! ```text
//! Snapshot ─▶ market, problem, relax, topology   the question, as dense vectors
//!                  │
//!   scope, bin, draft, domains                   the rules, checked at the few doors of a draft
//!                  │
//!   by_value (prices), alike, first_fit          three ways to search
//!                  │
//!   bound, judge (scheduler_model)               how good is it, and who has the last word
//!                  │
//!   write, refuse (ease, typo) ─▶ Plan, Report   the answer, with its reasons
//! ```
//!
//! `audit` stands apart: it knows the laws and nothing of the search.

mod alike;
pub mod audit;
mod bin;
mod bits;
mod bound;
mod by_value;
mod desk;
mod domains;
mod draft;
mod ease;
mod first_fit;
mod judge;
mod market;
mod memo;
mod plan;
mod prices;
mod problem;
mod refuse;
mod relax;
pub mod scheduler_model;
mod scope;
mod topology;
mod typo;
mod write;

pub use audit::audit;
pub use plan::{THREAD, plan_capacity, plan_first_fit};
