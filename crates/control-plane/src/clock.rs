//! Time, passed in: real for people, virtual for tests and simulation.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

/// Where every part of the control plane reads the time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Real,
    /// So many times as fast as the wall's, from one moment on.
    Fast {
        speed: f64,
        from: Timestamp,
        began: Instant,
    },
    Virtual(Arc<Mutex<Timestamp>>),
}

impl Clock {
    #[must_use]
    pub fn real() -> Self {
        Self(Source::Real)
    }

    /// Begins now, and runs so many times as fast as the wall's. A speed of one is the real clock.
    #[must_use]
    pub fn faster(speed: f64) -> Self {
        if speed == 1.0 || !speed.is_finite() || speed <= 0.0 {
            return Self::real();
        }
        Self(Source::Fast { speed, from: Timestamp::now(), began: Instant::now() })
    }

    /// How long somebody has to sleep for a span of this clock to pass.
    #[must_use]
    pub fn in_real_time(&self, span: Duration) -> Duration {
        match &self.0 {
            Source::Fast { speed, .. } => span.div_f64(*speed),
            Source::Real | Source::Virtual(_) => span,
        }
    }

    /// A clock that stands still until it is moved.
    #[must_use]
    pub fn starting_at(start: Timestamp) -> Self {
        Self(Source::Virtual(Arc::new(Mutex::new(start))))
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::Real => Timestamp::now(),
            Source::Fast { speed, from, began } => {
                let passed = SignedDuration::from_secs_f64(began.elapsed().as_secs_f64() * speed);
                from.checked_add(passed).unwrap_or(Timestamp::MAX)
            }
            Source::Virtual(now) => *now.lock().expect("nobody panics while holding the time"),
        }
    }

    #[must_use]
    pub fn is_virtual(&self) -> bool {
        matches!(self.0, Source::Virtual(_))
    }

    /// Moves a virtual clock forward, never back. A real one moves by itself.
    pub fn advance_to(&self, then: Timestamp) {
        if let Source::Virtual(now) = &self.0 {
            let mut now = now.lock().expect("nobody panics while holding the time");
            *now = then.max(*now);
        }
    }

    pub fn advance(&self, by: SignedDuration) {
        self.advance_to(self.now() + by);
    }
}

/// `2026-11-15T12:00:00Z`: how Kubernetes writes `Time`.
#[must_use]
pub fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `2026-11-15T12:00:00.123456Z`: how Kubernetes writes `MicroTime`.
#[must_use]
pub fn micros(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_faster_clock_counts_more_of_its_own_time_than_of_ours() {
        let clock = Clock::faster(1_000_000.0);
        let (began, first) = (Instant::now(), clock.now());
        while clock.now().duration_since(first) < SignedDuration::from_hours(1) {
            std::thread::yield_now();
        }
        assert!(began.elapsed() < Duration::from_secs(60), "an hour of it is milliseconds of ours");
        assert_eq!(Clock::faster(60.0).in_real_time(Duration::from_secs(120)), Duration::from_secs(2));
        assert!(!Clock::faster(1.0).is_virtual());
    }

    #[test]
    fn a_virtual_clock_moves_only_forward_and_only_when_moved() {
        let start: Timestamp = "2026-01-01T00:00:00.5Z".parse().unwrap();
        let clock = Clock::starting_at(start);
        assert_eq!(clock.now(), start);
        clock.advance(SignedDuration::from_secs(90));
        clock.advance_to(start);
        assert_eq!(seconds(clock.now()), "2026-01-01T00:01:30Z");
        assert_eq!(micros(clock.now()), "2026-01-01T00:01:30.500000Z");
    }
}
