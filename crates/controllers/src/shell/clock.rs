//! Time, passed in: the wall's, or a faster one.

use crate::moment::Moment;
use kerf_model::UnixMillis;
use std::time::Duration;
use tokio::time::Instant;

/// Assumptions: it moves forward by itself, steadily enough that `wait_until` is right when it is asked.
pub trait Clock: Send + Sync {
    fn now(&self) -> UnixMillis;

    /// How long to sleep, in real time, until this clock shows `then`. Zero for what has passed.
    fn wait_until(&self, then: UnixMillis) -> Duration;
}

/// The clock on the wall.
#[derive(Debug, Clone, Copy, Default)]
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(jiff::Timestamp::now().as_millisecond())
    }

    fn wait_until(&self, then: UnixMillis) -> Duration {
        Duration::from_millis(u64::try_from(then.0.saturating_sub(self.now().0)).unwrap_or(0))
    }
}

/// Longer than any process lives.
const FAR: Duration = Duration::from_secs(3_600 * 24 * 365 * 30);

/// The machine's own clock, which nobody sets: what deadlines are counted on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeline(Instant);

impl Timeline {
    pub(super) fn begin() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(self) -> Moment {
        Moment(i64::try_from(self.0.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    pub(super) fn instant(self, moment: Moment) -> Instant {
        let then = self.0.checked_add(moment.since(Moment(0)));
        then.unwrap_or_else(|| self.0 + FAR)
    }
}
