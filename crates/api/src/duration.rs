//! Durations as Go writes them: `1h30m`, `0.5s`, `-2ms`.
//!
//! The schema allows only whole hours, minutes and seconds, but annotations and kubelet settings use the whole syntax,
//! and an object that passed an older schema may too. Text is kept; the number is made on request.

use std::fmt;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// The word for "not at all" in `expireAfter` and `consolidateAfter`.
pub const NEVER: &str = "Never";

/// A duration that remembers how it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationText(String);

impl DurationText {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn parse(&self) -> Result<SignedDuration, DurationError> {
        parse_duration(&self.0)
    }
}

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A duration, or the word `Never`, as written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationOrNever(String);

impl DurationOrNever {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn never() -> Self {
        Self(NEVER.to_owned())
    }

    pub fn is_never(&self) -> bool {
        self.0 == NEVER
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `None` is "never".
    pub fn parse(&self) -> Result<Option<SignedDuration>, DurationError> {
        if self.is_never() { Ok(None) } else { parse_duration(&self.0).map(Some) }
    }
}

impl fmt::Display for DurationOrNever {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("{text:?} is not a duration; write numbers with a unit, such as 1h30m or 45s")]
    NotADuration { text: String },
    #[error("{text:?} is longer than a duration can be (about 292 years)")]
    TooLong { text: String },
}

/// Reads Go's duration syntax: an optional sign, then numbers (a fraction is fine) each followed by `ns`, `us`, `µs`,
/// `ms`, `s`, `m` or `h`; the bare `0` needs no unit. Anything past 64-bit nanoseconds is refused, as Go refuses it.
pub fn parse_duration(text: &str) -> Result<SignedDuration, DurationError> {
    let not_a_duration = || DurationError::NotADuration { text: text.to_owned() };
    let too_long = || DurationError::TooLong { text: text.to_owned() };

    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return Err(not_a_duration());
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let (whole, after_whole) = take_digits(rest);
        let (fraction, after_number) = match after_whole.strip_prefix('.') {
            Some(tail) => take_digits(tail),
            None => ("", after_whole),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(not_a_duration());
        }
        let unit_len = after_number.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after_number.len());
        let (unit, tail) = after_number.split_at(unit_len);
        let unit_nanos = nanos_per(unit).ok_or_else(not_a_duration)?;
        let whole_nanos = if whole.is_empty() { 0 } else { whole.parse::<i64>().map_err(|_| too_long())? };
        nanos += i128::from(whole_nanos) * unit_nanos + fraction_nanos(fraction, unit_nanos);
        if nanos > i128::from(i64::MAX) + i128::from(negative) {
            return Err(too_long());
        }
        rest = tail;
    }
    let signed = if negative { -nanos } else { nanos };
    i64::try_from(signed).map(SignedDuration::from_nanos).map_err(|_| too_long())
}

fn take_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn nanos_per(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// Digits beyond the eighteenth are below a nanosecond of every unit, and dropped.
fn fraction_nanos(digits: &str, unit_nanos: i128) -> i128 {
    let mut scale: i128 = 1;
    let mut value: i128 = 0;
    for digit in digits.bytes().take(18) {
        value = value * 10 + i128::from(digit - b'0');
        scale *= 10;
    }
    value * unit_nanos / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(text: &str) -> Option<i128> {
        parse_duration(text).ok().map(|duration| duration.as_nanos())
    }

    #[test]
    fn durations_read_as_go_reads_them() {
        for (text, expected) in [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("720h", Some(720 * 3_600_000_000_000)),
            ("1h30m", Some(5_400_000_000_000)),
            ("1m1h", Some(3_660_000_000_000)),
            ("5m0s", Some(300_000_000_000)),
            ("1.5h", Some(5_400_000_000_000)),
            (".5s", Some(500_000_000)),
            ("1.s", Some(1_000_000_000)),
            ("-2ms", Some(-2_000_000)),
            ("+3us", Some(3_000)),
            ("4µs", Some(4_000)),
            ("7ns", Some(7)),
            ("", None),
            ("-", None),
            ("s", None),
            (".s", None),
            ("1", None),
            ("1d", None),
            ("1h 30m", None),
            ("Never", None),
            ("2562047h47m16.854775807s", Some(i128::from(i64::MAX))),
            ("2562047h47m16.854775808s", None),
            ("-2562047h47m16.854775808s", Some(i128::from(i64::MIN))),
            ("9999999h", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(nanos(text), expected, "{text}");
        }
    }

    #[test]
    fn text_survives_reading_and_writing() {
        for text in ["720h", "0h720m", "Never", "60s"] {
            let duration: DurationOrNever = serde_json::from_value(text.into()).unwrap();
            assert_eq!(serde_json::to_value(&duration).unwrap(), text);
        }
    }

    #[test]
    fn never_is_no_duration_at_all() {
        assert_eq!(DurationOrNever::never().parse(), Ok(None));
        assert_eq!(DurationOrNever::new("0s").parse(), Ok(Some(SignedDuration::ZERO)));
        assert!(DurationOrNever::new("never").parse().is_err());
    }
}
