//! Quantities in the one form that the server answers with: `1000m` is `1`, `1.5Gi` is `1536Mi`.

/// What a text that is no quantity is refused with.
pub const WRONG_FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const WRONG_SUFFIX: &str = "unable to parse quantity's suffix";
const WRONG_NUMBER: &str = "unable to parse numeric part of quantity";

/// The smallest part that is told apart, as a power of ten.
const NANO: i32 = -9;
const DECIMAL_SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

#[derive(Clone, Copy, PartialEq)]
enum Format {
    Decimal,
    Exponent,
    /// The power of two.
    Binary(u32),
}

/// The canonical form of a quantity, or why it is none.
pub fn canonical(text: &str) -> Result<String, &'static str> {
    let text = text.trim();
    let (negative, unsigned) = match text.as_bytes().first() {
        None => return Err(WRONG_FORMAT),
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        Some(_) => (false, text),
    };
    let whole_end = end_of_digits(unsigned, 0);
    let has_point = unsigned.as_bytes().get(whole_end) == Some(&b'.');
    let number_end = if has_point { end_of_digits(unsigned, whole_end + 1) } else { whole_end };
    let whole = &unsigned[..whole_end];
    let part = if has_point { &unsigned[whole_end + 1..number_end] } else { "" };
    let (format, exponent) = suffix(&unsigned[number_end..])?;
    if whole.is_empty() && part.is_empty() {
        // No digit at all, before a suffix that is fine by itself.
        return Err(if has_point || !unsigned.is_empty() { WRONG_NUMBER } else { WRONG_FORMAT });
    }
    let digits = format!("{whole}{part}");
    let digits = digits.trim_start_matches('0');
    let places = i32::try_from(part.len()).unwrap_or(i32::MAX);
    let Some(amount) = digits_of(digits) else {
        return Ok(match format {
            Format::Binary(_) => signed(negative, &i64::MAX.to_string()),
            _ => text.to_owned(),
        });
    };
    if amount == 0 {
        return Ok("0".to_owned());
    }
    let shown = match format {
        Format::Binary(power) => binary(amount, power, places),
        Format::Decimal => decimal(amount, exponent.saturating_sub(places), false),
        Format::Exponent => decimal(amount, exponent.saturating_sub(places), true),
    };
    Ok(signed(negative, &shown))
}

fn signed(negative: bool, shown: &str) -> String {
    if negative { format!("-{shown}") } else { shown.to_owned() }
}

fn end_of_digits(text: &str, from: usize) -> usize {
    text.bytes().skip(from).position(|byte| !byte.is_ascii_digit()).map_or(text.len(), |at| from + at)
}

/// `None` beyond what we can count.
fn digits_of(digits: &str) -> Option<u128> {
    if digits.is_empty() { Some(0) } else { digits.parse().ok() }
}

fn suffix(text: &str) -> Result<(Format, i32), &'static str> {
    if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(suffix, _)| *suffix == text) {
        return Ok((Format::Decimal, *exponent));
    }
    if let Some(step) = BINARY_SUFFIXES.iter().position(|suffix| *suffix == text) {
        return Ok((Format::Binary(u32::try_from(step * 10).unwrap_or(0)), 0));
    }
    let letters_end = text.bytes().position(|byte| !b"eEinumkKMGTP".contains(&byte)).unwrap_or(text.len());
    let tail = &text[letters_end..];
    let exponent_digits = tail.strip_prefix(['-', '+']).unwrap_or(tail);
    if !exponent_digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(WRONG_FORMAT);
    }
    let exponent = text.strip_prefix(['e', 'E']).and_then(|number| number.parse::<i32>().ok());
    exponent.map(|exponent| (Format::Exponent, exponent)).ok_or(WRONG_SUFFIX)
}

/// `amount × 10^scale`.
fn decimal(amount: u128, scale: i32, as_exponent: bool) -> String {
    let (mut amount, mut scale) = round_up_to_nano(amount, scale);
    while amount.is_multiple_of(10) {
        amount /= 10;
        scale = scale.saturating_add(1);
    }
    let largest = if as_exponent { i32::MAX } else { 18 };
    while scale.rem_euclid(3) != 0 || scale > largest {
        match amount.checked_mul(10) {
            Some(more) => amount = more,
            None => break,
        }
        scale -= 1;
    }
    if as_exponent {
        return if scale == 0 { amount.to_string() } else { format!("{amount}e{scale}") };
    }
    let suffix = DECIMAL_SUFFIXES.iter().find(|(_, exponent)| *exponent == scale).map_or("", |(suffix, _)| *suffix);
    format!("{amount}{suffix}")
}

/// Whoever asks for a little gets something: what is finer than a nano counts as a nano.
fn round_up_to_nano(amount: u128, scale: i32) -> (u128, i32) {
    if scale >= NANO {
        return (amount, scale);
    }
    let finer = scale.abs_diff(NANO);
    match 10_u128.checked_pow(finer) {
        Some(parts) => (amount.div_ceil(parts), NANO),
        None => (1, NANO),
    }
}

/// `amount × 2^power ÷ 10^places`.
fn binary(amount: u128, power: u32, places: i32) -> String {
    let most = u128::from(i64::MAX.unsigned_abs());
    let Some(scaled) = amount.checked_mul(1_u128 << power) else {
        return binary_whole(most);
    };
    let (scaled, scale) = round_up_to_nano(scaled, places.saturating_neg());
    let parts = 10_u128.checked_pow(scale.unsigned_abs()).unwrap_or(u128::MAX);
    if scaled / parts > most {
        return binary_whole(most);
    }
    if !scaled.is_multiple_of(parts) || scaled / parts < 1024 {
        return decimal(scaled, scale, false);
    }
    binary_whole(scaled / parts)
}

fn binary_whole(mut amount: u128) -> String {
    let mut step = 0;
    while amount.is_multiple_of(1024) && step + 1 < BINARY_SUFFIXES.len() {
        amount /= 1024;
        step += 1;
    }
    format!("{amount}{}", BINARY_SUFFIXES[step])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_has_one_form() {
        for (sent, kept) in [
            ("0", "0"),
            ("0Ki", "0"),
            ("1000m", "1"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("5.", "5"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("1000000k", "1G"),
            ("1000", "1k"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("1000e3", "1e6"),
            ("100Mi", "100Mi"),
            ("512", "512"),
            ("0.1n", "1n"),
            ("0.5Ki", "512"),
            ("0.0001Ki", "102400u"),
            ("1.1Ki", "1126400m"),
            ("-1.5Gi", "-1536Mi"),
            ("007", "7"),
            ("16Ei", "9223372036854775807"),
            ("1234567890123456789012345678901234567890Ki", "9223372036854775807"),
        ] {
            assert_eq!(canonical(sent).as_deref(), Ok(kept), "{sent}");
            assert_eq!(canonical(kept).as_deref(), Ok(kept), "{kept} is settled");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for (sent, why) in [
            ("", WRONG_FORMAT),
            ("abc", WRONG_FORMAT),
            ("1 Gi", WRONG_FORMAT),
            ("1Gb", WRONG_FORMAT),
            ("1kk", WRONG_SUFFIX),
            ("1ki", WRONG_SUFFIX),
            ("1e", WRONG_SUFFIX),
            ("é", WRONG_FORMAT),
        ] {
            assert_eq!(canonical(sent), Err(why), "{sent}");
        }
    }
}
