//! Quantities: `100m`, `1.5Gi`, `1e3`. Counted in billionths, which is as fine as Kubernetes counts.

use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Binary,
    Decimal,
    Exponent,
}

/// A parsed quantity. Compared and added by amount; written in the family it came in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    nanos: i128,
    family: Family,
}

const NANOS: i128 = 1_000_000_000;
/// The largest amount Kubernetes counts: 2^63 - 1 whole units.
const MAX: i128 = i64::MAX as i128 * NANOS;

impl Quantity {
    pub(crate) const ZERO: Self = Self { nanos: 0, family: Family::Decimal };

    pub(crate) fn whole(units: i64) -> Self {
        Self { nanos: i128::from(units) * NANOS, family: Family::Decimal }
    }

    /// A number or a text, as objects have them.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (is_negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, text.get(1..)?),
            b'+' => (false, text.get(1..)?),
            _ => (false, text),
        };
        let end = rest.bytes().position(|byte| !byte.is_ascii_digit() && byte != b'.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at_checked(end)?;
        let (units, fraction) = number.split_once('.').unwrap_or((number, ""));
        if units.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let (multiplier, exponent, family) = scale(suffix)?;
        let mut nanos = 0_i128;
        // Digits are taken as whole numbers at a growing negative power of ten; what is finer than a billionth rounds up.
        let digits = units.bytes().chain(fraction.bytes()).map(|byte| i128::from(byte - b'0'));
        for digit in digits.take(40) {
            nanos = nanos.saturating_mul(10).saturating_add(digit);
        }
        let n_fraction = i32::try_from(fraction.len().min(40usize.saturating_sub(units.len()))).unwrap_or(40);
        nanos = nanos.saturating_mul(multiplier);
        nanos = shift(nanos, exponent.saturating_add(9).saturating_sub(n_fraction)).min(MAX);
        Some(Self { nanos: if is_negative { -nanos } else { nanos }, family })
    }

    pub(crate) fn is_negative(self) -> bool {
        self.nanos < 0
    }

    pub(crate) fn is_positive(self) -> bool {
        self.nanos > 0
    }

    pub(crate) fn is_whole(self) -> bool {
        self.nanos % NANOS == 0
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let family = if self.nanos == 0 { other.family } else { self.family };
        Self { nanos: self.nanos.saturating_add(other.nanos).clamp(-MAX, MAX), family }
    }

    pub(crate) fn max(self, other: Self) -> Self {
        if other > self { other } else { self }
    }

    /// How many times the other, as a plain number.
    pub(crate) fn ratio(self, other: Self) -> f64 {
        if other.nanos == 0 { 0.0 } else { self.nanos as f64 / other.nanos as f64 }
    }

    /// Rounded up to thousandths, as resource lists are when they are read.
    pub(crate) fn round_up_to_milli(self) -> Self {
        let millis = NANOS / 1000;
        let up = self.nanos.div_euclid(millis) + i128::from(self.nanos.rem_euclid(millis) != 0);
        Self { nanos: up * millis, family: self.family }
    }
}

/// Multiplier, power of ten and family of a suffix.
fn scale(suffix: &str) -> Option<(i128, i32, Family)> {
    let binary = |power: u32| Some((1_i128 << (10 * power), 0, Family::Binary));
    let decimal = |exponent: i32| Some((1, exponent, Family::Decimal));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            Some((1, exponent.parse::<i32>().ok()?, Family::Exponent))
        }
    }
}

/// Times a power of ten, rounding away from zero.
fn shift(amount: i128, exponent: i32) -> i128 {
    let mut amount = amount;
    let mut left = exponent.clamp(-60, 60);
    while left > 0 {
        amount = amount.saturating_mul(10);
        left -= 1;
    }
    while left < 0 && amount != 0 {
        amount = amount / 10 + i128::from(amount % 10 != 0);
        left += 1;
    }
    amount
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// The canonical text: no fraction, the largest suffix of the family that keeps it whole.
impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        // Binary suffixes are for whole numbers of at least 1024; the rest is decimal.
        if self.family == Family::Binary && self.nanos % NANOS == 0 && self.nanos.abs() >= 1024 * NANOS {
            let mut units = self.nanos / NANOS;
            let mut suffix = "";
            for next in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
                if units % 1024 != 0 {
                    break;
                }
                units /= 1024;
                suffix = next;
            }
            return write!(f, "{units}{suffix}");
        }
        let mut amount = self.nanos;
        let mut exponent = -9;
        while amount % 1000 == 0 && exponent < 18 {
            amount /= 1000;
            exponent += 3;
        }
        if self.family == Family::Exponent {
            return if exponent == 0 { write!(f, "{amount}") } else { write!(f, "{amount}e{exponent}") };
        }
        let suffix = match exponent {
            -9 => "n",
            -6 => "u",
            -3 => "m",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            18 => "E",
            _ => "",
        };
        write!(f, "{amount}{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_as_kubernetes_writes_them() {
        for (given, written) in [
            ("0", "0"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1.5Gi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("1024", "1024"),
            ("1024Ki", "1Mi"),
            ("100Ki", "100Ki"),
            ("1e3", "1e3"),
            ("1500", "1500"),
            ("2000", "2k"),
            ("-1", "-1"),
            ("100u", "100u"),
            ("1E", "1E"),
            ("0.5Ki", "512"),
        ] {
            let quantity = Quantity::parse(given).unwrap();
            assert_eq!(quantity.to_string(), written, "{given}");
        }
        for bad in ["", "x", "1x", "1.2.3", "-", "1ee3", ".", "1 Gi", "é"] {
            assert!(Quantity::parse(bad).is_none(), "{bad}");
        }
        assert_eq!(Quantity::parse("100u").unwrap().round_up_to_milli().to_string(), "1m");
        assert!(Quantity::parse("1Gi").unwrap() > Quantity::parse("1G").unwrap());
        assert!(Quantity::parse("99999999999999999999999999999999999999999999999E").is_some());
    }
}
