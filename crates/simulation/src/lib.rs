//! The time machine: the operator, a cloud and a whole control plane under one seed and a virtual clock.
//!
//! ```text
//! Rehearsal ─┬▶ process: the operator, and the shell's own machines: a watcher per kind, the lease, a trip per errand
//!            │      ▲ bytes of watches, answers            │ requests, calls to the cloud
//!            │      └───── line ◀── stage, faults ◀────────┘ late, lost, refused, cut, repeated, …
//!            ├▶ plane: API server, scheduler, workload controllers, kubelets, in process
//!            └▶ time moves when nobody has anything to do
//! ```
//!
//! Nothing here waits: an hour takes as long as its work. The same seed gives the same hour.

mod clerk;
mod faults;
mod laws;
mod line;
mod process;
mod rehearsal;
mod stage;
mod yard;

pub use faults::{Faults, Heard};
pub use rehearsal::{MakeDuties, Rehearsal, RunsMachine, Setup};
pub use yard::{PlaneYard, sim_cloud};
