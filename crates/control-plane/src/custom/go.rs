//! How Go prints things, for messages that must read the same.

use std::fmt::Write as _;

/// `%q`, as `strconv.Quote` has it.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `%v` of a float: the shortest digits, with an exponent from a million on.
pub(super) fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() };
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0".to_owned() } else { "0".to_owned() };
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{value}")
}

/// Whether a float is a whole number that JSON can carry.
pub(super) fn is_json_integer(value: f64) -> bool {
    const MAX_SAFE: f64 = 9_007_199_254_740_991.0;
    if !value.is_finite() || value.abs() > MAX_SAFE {
        return false;
    }
    (value - value.trunc()).abs() < 1e-9
}

/// The whole number that a number is, if it is one and 64 bits hold it.
pub(super) fn to_integer(float: f64, integer: Option<i64>) -> Option<i64> {
    if integer.is_some() {
        return integer;
    }
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "only what survives both ways is kept"
    )]
    let there_and_back = float as i64 as f64;
    #[expect(clippy::cast_possible_truncation, reason = "it has just survived both ways")]
    #[expect(clippy::float_cmp, reason = "exactly equal is the question")]
    (float.is_finite() && there_and_back == float && float.abs() < 9.2e18).then_some(float as i64)
}
