//! Money is integer microdollars per hour, so that equal means equal.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};

/// Microdollars per hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Money {
    pub micros: i64,
}

impl Money {
    pub const ZERO: Money = Money { micros: 0 };

    pub fn from_micros(micros: i64) -> Self {
        Self { micros }
    }

    /// Rounds to the nearest microdollar. Prices come from the outside as decimal fractions of a dollar.
    pub fn from_dollars(dollars: f64) -> Self {
        Self { micros: (dollars * 1e6).round() as i64 }
    }

    pub fn dollars(self) -> f64 {
        self.micros as f64 / 1e6
    }
}

impl Add for Money {
    type Output = Money;
    fn add(self, other: Money) -> Money {
        Money { micros: self.micros.saturating_add(other.micros) }
    }
}
impl AddAssign for Money {
    fn add_assign(&mut self, other: Money) {
        *self = *self + other;
    }
}
impl Sub for Money {
    type Output = Money;
    fn sub(self, other: Money) -> Money {
        Money { micros: self.micros.saturating_sub(other.micros) }
    }
}
impl SubAssign for Money {
    fn sub_assign(&mut self, other: Money) {
        *self = *self - other;
    }
}
impl Mul<i64> for Money {
    type Output = Money;
    fn mul(self, times: i64) -> Money {
        Money { micros: self.micros.saturating_mul(times) }
    }
}
impl Sum for Money {
    fn sum<I: Iterator<Item = Money>>(iter: I) -> Money {
        iter.fold(Money::ZERO, Add::add)
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.micros < 0 { "-" } else { "" };
        // Four digits tell any two instance types apart, and no total needs more.
        write!(f, "{sign}${:.4}", self.micros.unsigned_abs() as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_survives_the_trip_through_decimal_dollars() {
        assert_eq!(Money::from_dollars(0.027_147_483_648).micros, 27_147);
        assert_eq!(Money::from_dollars(0.192).to_string(), "$0.1920");
        assert_eq!(Money::from_micros(-5_000_000).to_string(), "-$5.0000");
    }
}
