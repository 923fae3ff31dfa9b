//! Amounts of resources, exact until they are rounded: `500m` of cpu twice is one whole, and `1Ki` is 1024.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// A quantity in billionths: the finest grain the API server keeps.
pub(crate) type Nanos = i128;

const NANO: Nanos = 1_000_000_000;

/// Amounts by resource name, as `resources.requests` has them.
pub(crate) type Amounts = BTreeMap<String, Nanos>;

/// What a pod asks for or a node has, rounded up as the scheduler counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    pub(crate) cpu_milli: i64,
    pub(crate) memory_bytes: i64,
    pub(crate) ephemeral_bytes: i64,
    /// Extended resources, huge pages and attachable volumes.
    pub(crate) scalars: BTreeMap<String, i64>,
}

impl Resources {
    pub(crate) fn of(amounts: &Amounts) -> Self {
        let mut resources = Self::default();
        for (name, nanos) in amounts {
            match name.as_str() {
                "cpu" => resources.cpu_milli = milli(*nanos),
                "memory" => resources.memory_bytes = whole(*nanos),
                "ephemeral-storage" => resources.ephemeral_bytes = whole(*nanos),
                name if is_scalar(name) => {
                    resources.scalars.insert(name.to_owned(), whole(*nanos));
                }
                _ => {}
            }
        }
        resources
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cpu_milli == 0 && self.memory_bytes == 0 && self.ephemeral_bytes == 0 && self.scalars.is_empty()
    }

    pub(crate) fn scalar(&self, name: &str) -> i64 {
        self.scalars.get(name).copied().unwrap_or(0)
    }

    /// Adds `sign` times the other: 1 for a pod that comes, -1 for one that goes.
    pub(crate) fn add(&mut self, other: &Self, sign: i64) {
        self.cpu_milli = self.cpu_milli.saturating_add(other.cpu_milli.saturating_mul(sign));
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes.saturating_mul(sign));
        self.ephemeral_bytes = self.ephemeral_bytes.saturating_add(other.ephemeral_bytes.saturating_mul(sign));
        for (name, amount) in &other.scalars {
            let sum = self.scalars.entry(name.clone()).or_default();
            *sum = sum.saturating_add(amount.saturating_mul(sign));
        }
    }
}

fn is_scalar(name: &str) -> bool {
    name.contains('/') || name.starts_with("hugepages-") || name.starts_with("attachable-volumes-")
}

pub(crate) fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    list.into_iter().flatten().map(|(name, quantity)| (name.clone(), parse(&quantity.0))).collect()
}

pub(crate) fn add(to: &mut Amounts, more: &Amounts) {
    for (name, nanos) in more {
        let sum = to.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*nanos);
    }
}

pub(crate) fn raise(to: &mut Amounts, more: &Amounts) {
    for (name, nanos) in more {
        let most = to.entry(name.clone()).or_insert(*nanos);
        *most = (*most).max(*nanos);
    }
}

/// Whole units, rounded away from zero.
pub(crate) fn whole(nanos: Nanos) -> i64 {
    rounded_up(nanos, NANO)
}

/// Thousandths, rounded away from zero.
pub(crate) fn milli(nanos: Nanos) -> i64 {
    rounded_up(nanos, NANO / 1000)
}

fn rounded_up(nanos: Nanos, unit: Nanos) -> i64 {
    let units = nanos / unit + if nanos % unit == 0 { 0 } else { nanos.signum() };
    i64::try_from(units).unwrap_or(if units < 0 { i64::MIN } else { i64::MAX })
}

/// A quantity's text. What is not one counts as nothing: the API server has refused it long before.
pub(crate) fn parse(text: &str) -> Nanos {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_negative = whole.starts_with('-');
    let Ok(digits) = format!("{}{fraction}", whole.trim_start_matches(['+', '-'])).parse::<i128>() else { return 0 };
    let Some((base, power)) = suffix_factor(suffix) else { return 0 };
    let decimals = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let amount = if base == 2 {
        let scaled =
            i128::checked_pow(2, u32::try_from(power).unwrap_or(0)).and_then(|factor| digits.checked_mul(factor));
        times_power_of_ten(scaled.unwrap_or(i128::MAX), 9_i32.saturating_sub(decimals))
    } else {
        times_power_of_ten(digits, power.saturating_add(9).saturating_sub(decimals))
    };
    if is_negative { -amount } else { amount }
}

fn suffix_factor(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        exponent => (10, exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

/// Rounded up, and stopped at the ends of the range.
fn times_power_of_ten(digits: i128, power: i32) -> i128 {
    let factor = i128::checked_pow(10, power.unsigned_abs());
    if power >= 0 {
        factor.and_then(|factor| digits.checked_mul(factor)).unwrap_or(if digits == 0 { 0 } else { i128::MAX })
    } else {
        factor.map_or(i128::from(digits != 0), |factor| digits / factor + i128::from(digits % factor != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_round_up_to_what_the_scheduler_counts_in() {
        for (text, units, thousandths) in [
            ("1", 1, 1000),
            ("500m", 1, 500),
            ("0.5", 1, 500),
            ("1500m", 2, 1500),
            ("1Ki", 1024, 1_024_000),
            ("1.5Gi", 1_610_612_736, 1_610_612_736_000),
            ("2k", 2000, 2_000_000),
            ("1e3", 1000, 1_000_000),
            ("1E", 1_000_000_000_000_000_000, i64::MAX),
            ("100u", 1, 1),
            ("-2", -2, -2000),
            ("0", 0, 0),
            ("x", 0, 0),
            ("", 0, 0),
            ("1e999999999999", 0, 0),
            ("1e999", i64::MAX, i64::MAX),
            ("1e-999", 1, 1),
        ] {
            assert_eq!((whole(parse(text)), milli(parse(text))), (units, thousandths), "{text}");
        }
    }
}
