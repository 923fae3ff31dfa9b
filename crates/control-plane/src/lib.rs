//! The rehearsal stage: a Kubernetes control plane in one process.
//!
//! ```text
//! kubectl, clients ──TLS──▶ serve ─┐
//! kube::Client ──in process──▶ service ─┤
//!                                       ▼
//!              request ─▶ rest: decode ─▶ default ─▶ admit ─▶ validate ─▶ track fields ─▶ store ─▶ log ─▶ watches
//!                           ▲                                                              │
//!            hands ─────────┘                                                              ▼
//!              └── drive: scheduler, workloads, nodes, volumes, kubelets, garbage ◀── every change
//! ```
//!
//! The server is synchronous and asks no clock but the one passed in; under a virtual clock and one seed a run repeats to the
//! byte. It is for rehearsal: everything is in memory, everybody who has the token may do everything, and nothing is kept.

pub mod admit;
pub mod builtin;
mod certificates;
pub mod clock;
mod control_plane;
pub mod custom;
pub mod definitions;
pub mod dice;
pub mod discovery;
pub mod drive;
pub mod error;
pub mod expiry;
pub mod garbage;
pub mod hands;
pub mod kind;
pub mod kubelet;
pub mod managed;
pub mod namespaces;
pub mod nodes;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod quotas;
pub mod request;
pub mod rest;
pub mod scheduler;
pub mod schema;
mod secrets;
pub mod selector;
mod serve;
pub mod server;
pub mod service;
mod shared;
pub mod state;
pub mod store;
pub mod table;
pub mod volumes;
pub mod workloads;

pub use control_plane::{Address, ControlPlane, Options};
pub use custom::Converter;
pub use server::Server;
