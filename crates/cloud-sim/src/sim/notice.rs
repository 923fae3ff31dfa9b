//! What a cloud tells its customers without being asked.

use kerf_model::{Text, UnixMillis};
use std::collections::BTreeMap;

/// How many notices one question is answered with, and how long they are then not told again: as a queue of the cloud does it.
const BATCH: usize = 10;
const HIDDEN_MS: i64 = 20_000;

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

/// Notices that nobody has acknowledged. Each is told again after a while.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    n_notices: u64,
    /// With when it is told next, in order.
    letters: BTreeMap<u64, (Notice, UnixMillis)>,
}

impl Inbox {
    pub(super) fn put(&mut self, notice: Notice) {
        self.n_notices += 1;
        let at = notice.at;
        self.letters.insert(self.n_notices, (notice, at));
    }

    /// All of them; none is told again.
    pub(super) fn take(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.letters).into_values().map(|(notice, _)| notice).collect()
    }

    pub(super) fn tell(&mut self, now: UnixMillis) -> Vec<kerf_cloud::Notice> {
        let due = self.letters.iter_mut().filter(|(_, (_, next))| *next <= now).take(BATCH);
        due.map(|(number, (notice, next))| {
            *next = UnixMillis(now.0 + HIDDEN_MS);
            notice.written(*number)
        })
        .collect()
    }

    pub(super) fn acknowledge(&mut self, receipts: &[Text]) {
        for number in receipts.iter().filter_map(|receipt| receipt.parse::<u64>().ok()) {
            self.letters.remove(&number);
        }
    }
}

impl Notice {
    /// As the operator reads it.
    fn written(&self, number: u64) -> kerf_cloud::Notice {
        let (kind, until_ms, detail) = match self.kind {
            NoticeKind::SpotInterruption { ends_at } => {
                (kerf_cloud::NoticeKind::SpotInterrupted, Some(ends_at.0), "the instance will terminate")
            }
            NoticeKind::InstanceTerminated => {
                (kerf_cloud::NoticeKind::InstanceTerminated, None, "the instance is shutting-down")
            }
        };
        kerf_cloud::Notice {
            receipt: number.to_string().into(),
            id: format!("notice-{number}").into(),
            kind,
            instances: self.provider_id.rsplit('/').next().map(Text::from).into_iter().collect(),
            happened_ms: self.at.0,
            until_ms,
            detail: detail.into(),
        }
    }
}
