//! The front door: CRD types, defaults, validation, schema generation.
//!
//! ```text
//!  objects    the six kinds as Rust values            labels, taints    the words on nodes
//!  schema     one description per kind ──▶ crd        duration, cron    the small languages in fields
//!  kind       check, defaults, names                  budget            when and how many
//!  validate   what only the operator checks           hash              drift, as numbers
//!  older      what came before v1, and the way here
//! ```
//!
//! What is not here: any client, runtime or clock. Objects come as JSON or YAML and leave as such; time is a parameter.

pub mod budget;
pub mod crd;
pub mod cron;
pub mod duration;
pub mod hash;
pub mod kind;
pub mod labels;
pub mod objects;
pub mod older;
mod problem;
mod schema;
pub mod taints;
#[cfg(feature = "testing")]
pub mod testing;
pub mod validate;

pub use crd::{
    ConversionService, crd, crd_converted_by, crd_files, crds, crds_converted_by, crds_yaml, crds_yaml_converted_by,
    write_crds,
};
pub use duration::{DurationError, DurationOrNever, DurationText, parse_duration};
pub use kind::{CustomObject, Kind};
pub use labels::LabelRules;
pub use objects::*;
pub use problem::Problem;
