//! What the machines cost so far.

use kerf_cloud::OfferingKey;
use kerf_model::{Money, Text, UnixMillis};

/// A machine is paid by the second, and for a minute at least.
const LEAST_MS: i64 = 60_000;
const HOUR_MS: i128 = 3_600_000;

/// Everything that was spent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bill {
    /// In microdollars, in total.
    pub spent_micros: i64,
    /// What the running machines cost together.
    pub per_hour: Money,
    /// One per machine, the first launched first. Of very many that are long gone only the latest.
    pub lines: Vec<BillLine>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BillLine {
    pub provider_id: Text,
    pub node: Text,
    pub claim: Text,
    pub offering: OfferingKey,
    pub from: UnixMillis,
    /// None: it is still running.
    pub until: Option<UnixMillis>,
    pub spent_micros: i64,
}

/// Counts what one machine costs.
#[derive(Debug, Clone)]
pub(super) struct Meter {
    price: Money,
    /// What is paid in any case.
    least: Money,
    read_ms: i64,
    is_running: bool,
    /// Microdollars per hour, times milliseconds.
    sum: i128,
}

impl Meter {
    pub(super) fn start(price: Money, now: UnixMillis) -> Self {
        Self { price, least: price, read_ms: now.0, is_running: true, sum: 0 }
    }

    pub(super) fn price(&self) -> Money {
        self.price
    }

    pub(super) fn read(&mut self, now: UnixMillis) {
        if self.is_running && now.0 > self.read_ms {
            self.sum += i128::from(self.price.micros) * i128::from(now.0 - self.read_ms);
            self.read_ms = now.0;
        }
    }

    /// From now on it costs this.
    pub(super) fn change_price(&mut self, price: Money, now: UnixMillis) {
        self.read(now);
        self.price = price;
    }

    pub(super) fn stop(&mut self, now: UnixMillis) {
        self.read(now);
        self.is_running = false;
    }

    pub(super) fn spent_micros(&self) -> i64 {
        let least = i128::from(self.least.micros) * i128::from(LEAST_MS);
        i64::try_from(self.sum.max(least) / HOUR_MS).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_paid_by_the_second_and_for_a_minute_at_least() {
        for (seconds, spent_micros) in [(1, 1_000), (60, 1_000), (90, 1_500), (3600, 60_000)] {
            let mut meter = Meter::start(Money::from_micros(60_000), UnixMillis(5_000));
            meter.stop(UnixMillis(5_000 + seconds * 1000));
            meter.read(UnixMillis(i64::MAX));
            assert_eq!(meter.spent_micros(), spent_micros, "{seconds} s");
        }
    }

    #[test]
    fn a_new_price_counts_from_when_it_is_new() {
        let mut meter = Meter::start(Money::from_micros(60_000), UnixMillis(0));
        meter.change_price(Money::from_micros(120_000), UnixMillis(1_800_000));
        meter.read(UnixMillis(3_600_000));
        assert_eq!(meter.spent_micros(), 90_000);
    }
}
