//! Time, passed in: real for people, virtual for tests and simulation.

use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};

/// Where every part of the control plane reads the time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Real,
    Virtual(Arc<Mutex<Timestamp>>),
}

impl Clock {
    #[must_use]
    pub fn real() -> Self {
        Self(Source::Real)
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
