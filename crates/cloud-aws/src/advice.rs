//! What to tell people when AWS says no: the reason in one word, which object and field, which call, and what would help.
//!
//! ```text
//! Failure ─┬─ launch    why a launch failed: (reason, message) for the claim's condition
//!          ├─ denied    who may not do what to which resource, and the statement or annotation that is missing
//!          ├─ profile   an instance profile or a role that is not there
//!          └─ optional  calls that we can do without: each denied one switches its own feature off
//! ```
//!
//! Nothing here decides what happens next. It turns what AWS said into words, and keeps a list of what is switched off.

mod denied;
mod launch;
mod optional;
mod profile;

pub use denied::{Denied, Expected, denied, explain};
pub use launch::{UNFULFILLABLE, is_spot_role_missing, is_unfulfillable, launch_failure};
pub use optional::{Optional, OptionalCalls, Scope, SwitchedOff};
pub use profile::{invalid_profile, missing_role};
