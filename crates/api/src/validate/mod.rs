//! What the API server cannot check, and the operator does: it becomes a `ValidationSucceeded` condition, or a note
//! beside a dump.
//!
//! The schema's own rules are in [`crate::Kind::check`]. Some of them are looked at again here, because an object may
//! have been stored under an older schema; where the two judges differ (label domains, most of all), the difference is
//! on purpose.

pub mod ec2_node_class;
pub mod kubelet;
mod kubelet_fields;
mod names;
mod node_overlay;
mod node_pool;
mod requirements;

pub(crate) use names::is_volume_size;
pub use names::{is_label_value, is_qualified_name, is_quantity};
