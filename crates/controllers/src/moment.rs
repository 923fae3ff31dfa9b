//! Instants of a clock that only goes forward: not the wall's, which somebody may set. And spans, counted on either.

use kerf_model::UnixMillis;
use std::time::Duration;

/// Milliseconds since such a clock began. Only differences mean anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(pub i64);

impl Moment {
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(millis(wait)))
    }

    /// Zero when `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// A span as clocks here count it.
pub(crate) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// So much later on the wall's clock.
pub(crate) fn after(now: UnixMillis, span: Duration) -> UnixMillis {
    UnixMillis(now.0.saturating_add(millis(span)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_has_passed_before_an_instant() {
        let (one, other) = (Moment(5), Moment(5).after(Duration::from_secs(2)));
        assert_eq!(other.since(one), Duration::from_secs(2));
        assert_eq!(one.since(other), Duration::ZERO);
        assert_eq!(Moment(i64::MAX).after(Duration::MAX), Moment(i64::MAX));
    }
}
