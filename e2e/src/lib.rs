//! A visit to a real control plane.
//!
//! [`control_plane`] builds etcd, kube-apiserver and kubectl from their Go modules, once, and starts them on loopback
//! in seconds; [`client`] talks to the result in plain HTTPS; [`crds`] teaches it our kinds; [`packages`]
//! fetches clients that others wrote; [`aws`] is an account on loopback, whose machines join; [`operator`] is our own
//! program as a process, [`rights`] what it may do and did, and [`proxy`] a network that loses its connections; [`stages`] runs one body on two
//! clusters, [`repeat`] tells bad luck from defects, [`panics`] keeps their words, and [`skipped`] counts what could not run.
//! The questions themselves live in `tests/`.
//!
//! Not for: anything a lower rung can answer. There is no kubelet here, and no cloud but an emulated one. No async runtime
//! either: a test that asks one question at a time reads better without.

pub mod aws;
pub mod client;
pub mod control_plane;
pub mod crds;
pub mod operator;
pub mod packages;
pub mod panics;
pub mod proxy;
pub mod repeat;
pub mod rights;
pub mod skipped;
pub mod stages;
