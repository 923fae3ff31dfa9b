//! The time machine: the operator, a cloud and a whole control plane under one seed and a virtual clock.
//!
//! ```text
//! Rehearsal: plane (in process) ── changes ──▶ operator ── errands ──▶ plane's server, the cloud, the engine
//!                 ▲                                                          │
//!                 └──────────────── time moves when nobody has anything to do┘
//! ```
//!
//! Nothing here waits: an hour takes as long as its work. The same seed gives the same hour.

mod clerk;
mod rehearsal;
mod yard;

pub use rehearsal::{MakeDuties, Rehearsal, Setup};
pub use yard::{PlaneYard, sim_cloud};
