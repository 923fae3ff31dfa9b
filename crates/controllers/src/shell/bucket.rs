//! A token bucket: so many requests a second, and so many at once after a quiet time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct Bucket {
    /// None: no limit.
    rate: Option<Rate>,
    level: Mutex<Level>,
}

#[derive(Debug, Clone, Copy)]
struct Rate {
    per_second: f64,
    burst: f64,
}

#[derive(Debug, Clone, Copy)]
struct Level {
    /// Negative while requests wait for tokens that they have been promised.
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// A negative rate is no limit.
    pub fn new(per_second: f64, burst: u32, now: Instant) -> Self {
        let burst = f64::from(burst.max(1));
        let rate = (per_second > 0.0).then_some(Rate { per_second, burst });
        Self { rate, level: Mutex::new(Level { tokens: burst, at: now }) }
    }

    /// Takes a token, and says how long to wait for it. Whoever asks first is served first.
    pub fn reserve(&self, now: Instant) -> Duration {
        let Some(rate) = self.rate else {
            return Duration::ZERO;
        };
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(level.at).as_secs_f64();
        level.at = level.at.max(now);
        level.tokens = (level.tokens + passed * rate.per_second).min(rate.burst) - 1.0;
        if level.tokens >= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(-level.tokens / rate.per_second) }
    }

    pub async fn take(&self) {
        let wait = self.reserve(Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let start = Instant::now();
        let bucket = Bucket::new(200.0, 300, start);
        let waits: Vec<Duration> = (0..500).map(|_| bucket.reserve(start)).collect();
        assert!(waits[..300].iter().all(Duration::is_zero));
        assert_eq!(waits[300], Duration::from_millis(5));
        assert_eq!(waits[499], Duration::from_secs(1));
        assert!(bucket.reserve(start + Duration::from_secs(10)).is_zero());
    }

    #[test]
    fn a_quiet_time_saves_no_more_than_a_burst() {
        let start = Instant::now();
        let bucket = Bucket::new(10.0, 2, start);
        let later = start + Duration::from_secs(3_600);
        let free = (0..5).filter(|_| bucket.reserve(later).is_zero()).count();
        assert_eq!(free, 2);
    }

    #[test]
    fn a_negative_rate_is_no_limit() {
        let start = Instant::now();
        let bucket = Bucket::new(-1.0, 1, start);
        assert!((0..1_000).all(|_| bucket.reserve(start).is_zero()));
    }
}
