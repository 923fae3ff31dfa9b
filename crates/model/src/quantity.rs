//! Kubernetes quantities, as whole thousandths.
//!
//! One representation for every resource keeps the arithmetic exact for millicores and large enough for terabytes:
//! 9.2 × 10^15 bytes. What is larger saturates, which only ever happens to limits that mean "no limit".

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// An amount of some resource, in thousandths of its unit (millicores, thousandths of a byte, …).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Quantity {
    pub milli: i64,
}

/// Why a text is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a quantity: {why} (use a number with an optional suffix such as m, k, M, Gi or e3)")]
pub struct QuantityError {
    pub text: String,
    pub why: &'static str,
}

impl Quantity {
    pub const ZERO: Quantity = Quantity { milli: 0 };

    pub fn from_milli(milli: i64) -> Self {
        Self { milli }
    }

    pub fn from_units(units: i64) -> Self {
        Self { milli: units.saturating_mul(1000) }
    }

    pub fn from_mebibytes(mebibytes: i64) -> Self {
        Self::from_units(mebibytes.saturating_mul(1 << 20))
    }

    /// Whole units, rounded up, as Kubernetes reads a count.
    pub fn units(self) -> i64 {
        self.milli.div_euclid(1000) + i64::from(self.milli.rem_euclid(1000) != 0)
    }

    pub fn is_zero(self) -> bool {
        self.milli == 0
    }

    /// Reads the Kubernetes notation. Fractions of a thousandth round away from zero, as the API server does.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let error = |why| QuantityError { text: text.to_owned(), why };
        let (negative, body) = match text.as_bytes().first() {
            None => return Err(error("it is empty")),
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
        };
        let end = body.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(body.len());
        let (number, suffix) = body.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') {
            return Err(error("it has two decimal points"));
        }
        if whole.is_empty() && fraction.is_empty() {
            return Err(error("it has no digits"));
        }
        let (factor, divisor) = scale(suffix).ok_or_else(|| error("its suffix is unknown"))?;
        let mut digits: i128 = 0;
        let mut fraction_scale: i128 = 1;
        // Whether anything follows the digits that we keep: it rounds away from zero like any other fraction.
        let mut has_rest = false;
        for (position, byte) in whole.bytes().chain(fraction.bytes()).enumerate() {
            let is_fraction = position >= whole.len();
            // 38 digits fit an i128. A whole part beyond 25 digits is larger than any amount we know, and a digit
            // behind the eighteenth of a fraction only matters by being there.
            if digits > 10_i128.pow(24) || fraction_scale == 10_i128.pow(18) {
                if !is_fraction {
                    return Ok(Self::saturated(negative));
                }
                has_rest |= byte != b'0';
                continue;
            }
            digits = digits * 10 + i128::from(byte - b'0');
            if is_fraction {
                fraction_scale *= 10;
            }
        }
        let Some(scaled) = digits.checked_mul(factor).and_then(|d| d.checked_mul(1000)) else {
            return Ok(Self::saturated(negative));
        };
        let denominator = divisor.saturating_mul(fraction_scale);
        let milli = scaled / denominator + i128::from(scaled % denominator != 0 || has_rest);
        let milli = i64::try_from(milli).unwrap_or(i64::MAX);
        Ok(Self { milli: if negative { -milli } else { milli } })
    }

    fn saturated(negative: bool) -> Self {
        Self { milli: if negative { -i64::MAX } else { i64::MAX } }
    }
}

/// A suffix as a fraction: multiply by the first, divide by the second.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (10_i128.pow(15), 1),
        "E" => (10_i128.pow(18), 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            match power {
                0..=18 => (10_i128.pow(power.unsigned_abs()), 1),
                -18..0 => (1, 10_i128.pow(power.unsigned_abs())),
                _ => return None,
            }
        }
    })
}

impl Add for Quantity {
    type Output = Quantity;
    fn add(self, other: Quantity) -> Quantity {
        Quantity { milli: self.milli.saturating_add(other.milli) }
    }
}
impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Quantity) {
        *self = *self + other;
    }
}
impl Sub for Quantity {
    type Output = Quantity;
    fn sub(self, other: Quantity) -> Quantity {
        Quantity { milli: self.milli.saturating_sub(other.milli) }
    }
}
impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Quantity) {
        *self = *self - other;
    }
}

impl fmt::Display for Quantity {
    /// The shortest exact notation: binary suffixes for whole mebibytes and up, plain units, else thousandths.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.milli % 1000 != 0 {
            return write!(f, "{}m", self.milli);
        }
        let units = self.milli / 1000;
        if units != 0 {
            for (suffix, size) in [("Ti", 1_i64 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)] {
                if units % size == 0 {
                    return write!(f, "{}{suffix}", units / size);
                }
            }
        }
        write!(f, "{units}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milli(text: &str) -> i64 {
        Quantity::parse(text).expect(text).milli
    }

    #[test]
    fn every_suffix_reads_as_kubernetes_reads_it() {
        for (text, expected) in [
            ("0", 0),
            ("1", 1000),
            ("1.5", 1500),
            (".5", 500),
            ("100m", 100),
            ("1k", 1_000_000),
            ("1Ki", 1_024_000),
            ("1.5Gi", 1_610_612_736_000),
            ("2M", 2_000_000_000),
            ("1e3", 1_000_000),
            ("1E3", 1_000_000),
            ("12e-1", 1200),
            ("-2", -2000),
            ("+2", 2000),
            ("1n", 1),
            ("100u", 1),
            ("1E", i64::MAX),
            ("99999999999999999999999999999999999999999", i64::MAX),
        ] {
            assert_eq!(milli(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused_with_its_text() {
        for text in ["", "-", "abc", "1.2.3", "1GiB", "1 Gi", "0x10", "e3", "1e99", "٣"] {
            let error = Quantity::parse(text).expect_err(text);
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn printing_and_reading_again_gives_the_same_amount() {
        for text in ["0", "1500m", "3", "4Gi", "3100Mi", "1Ti", "17", "1001", "-2Gi"] {
            assert_eq!(Quantity::parse(&Quantity::parse(text).unwrap().to_string()), Quantity::parse(text), "{text}");
        }
    }
}
