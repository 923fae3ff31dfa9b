//! What a cloud tells its customers without being asked.

use kerf_model::{Text, UnixMillis};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub provider_id: Text,
    pub kind: NoticeKind,
    pub at: UnixMillis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeKind {
    /// The spot instance will be taken back then.
    SpotInterruption { ends_at: UnixMillis },
    /// It was.
    InstanceTerminated,
}
