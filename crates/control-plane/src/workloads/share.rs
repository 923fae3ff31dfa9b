//! Numbers given as a count or as a percentage.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// `value` of `total`. None when it is neither a number nor a percentage.
pub(crate) fn scaled(value: &IntOrString, total: i32, round_up: bool) -> Option<i32> {
    match value {
        IntOrString::Int(n) => Some(*n),
        IntOrString::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse::<i32>().ok()?.into();
            let hundredfold = percent.saturating_mul(total.into());
            let share = if round_up {
                hundredfold.div_euclid(100) + i64::from(hundredfold.rem_euclid(100) != 0)
            } else {
                hundredfold.div_euclid(100)
            };
            Some(i32::try_from(share).unwrap_or(if share < 0 { i32::MIN } else { i32::MAX }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_counts_or_percentages_rounded_as_asked() {
        for (value, total, up, expected) in [
            ("25%", 10, true, Some(3)),
            ("25%", 10, false, Some(2)),
            ("0%", 10, true, Some(0)),
            ("100%", 7, false, Some(7)),
            ("25", 10, true, None),
            ("x%", 10, true, None),
            ("2147483647%", i32::MAX, true, Some(i32::MAX)),
        ] {
            assert_eq!(scaled(&IntOrString::String(value.to_owned()), total, up), expected, "{value} of {total}");
        }
        assert_eq!(scaled(&IntOrString::Int(3), 1, false), Some(3));
    }
}
