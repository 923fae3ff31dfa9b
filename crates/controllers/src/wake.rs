//! Everything that can wake the operator. To know what it reacts to, read this.

use crate::errand::{Outcome, Ticket};
use kerf_mirror::{Kind, Object, ObjectKey};
use kerf_model::Text;

#[derive(Debug)]
pub enum Wake {
    /// An object is there, new or changed.
    Observed(Box<Object>),
    /// An object is gone, and at which version.
    Gone(ObjectKey, Option<u64>),
    /// Everything of a kind has been seen once. Decisions wait for this.
    Synced(Kind),
    /// After a break in a watch: of this kind only these were left at a version. What is known to be newer has come since.
    Relisted { kind: Kind, class_kind: Option<Text>, at: Option<u64>, present: Vec<ObjectKey> },
    /// An object is there and could not be read; the others go on. Without a key it has not even a name.
    Unreadable { key: Option<ObjectKey>, what: String, field: String, message: String },
    /// True: nothing was heard of a kind for longer than is right. False: it is heard of again.
    Stale(Kind, bool),
    /// An errand has ended.
    Done(Ticket, Outcome),
}
