//! Times as Go reads and Kubernetes writes them.

use jiff::Timestamp;

use super::go;
use crate::clock;

const SECONDS_LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICROS_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// `Time`: whole seconds, UTC.
pub(super) fn seconds(text: &str) -> Result<String, String> {
    read(text, SECONDS_LAYOUT).map(clock::seconds)
}

/// `MicroTime`: six digits after the point, no more and no fewer.
pub(super) fn micros(text: &str) -> Result<String, String> {
    read(text, MICROS_LAYOUT).map(clock::micros)
}

struct Reader<'a> {
    whole: &'a str,
    layout: &'a str,
    rest: &'a str,
}

impl Reader<'_> {
    fn wrong(&self, element: &str) -> String {
        format!(
            "parsing time {} as {}: cannot parse {} as {}",
            go::quote(self.whole),
            go::quote(self.layout),
            go::quote(self.rest),
            go::quote(element)
        )
    }

    fn out_of_range(&self, what: &str) -> String {
        format!("parsing time {}: {what} out of range", go::quote(self.whole))
    }

    fn literal(&mut self, mark: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(mark).ok_or_else(|| self.wrong(mark))?;
        Ok(())
    }

    fn digits(&mut self, count: usize, element: &str) -> Result<u32, String> {
        let digits = self.rest.get(..count).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let number = digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| self.wrong(element))?;
        self.rest = self.rest.get(count..).unwrap_or_default();
        Ok(number)
    }
}

fn read(text: &str, layout: &str) -> Result<Timestamp, String> {
    let mut reader = Reader { whole: text, layout, rest: text };
    reader.digits(4, "2006")?;
    reader.literal("-")?;
    let month = reader.digits(2, "01")?;
    if !(1..=12).contains(&month) {
        return Err(reader.out_of_range("month"));
    }
    reader.literal("-")?;
    reader.digits(2, "02")?;
    reader.literal("T")?;
    let hour = reader.digits(2, "15")?;
    if hour > 23 {
        return Err(reader.out_of_range("hour"));
    }
    reader.literal(":")?;
    let minute = reader.digits(2, "04")?;
    if minute > 59 {
        return Err(reader.out_of_range("minute"));
    }
    reader.literal(":")?;
    let second = reader.digits(2, "05")?;
    if second > 59 {
        return Err(reader.out_of_range("second"));
    }
    if layout == MICROS_LAYOUT {
        let fraction = reader
            .rest
            .get(..7)
            .filter(|text| text.starts_with('.') && text.bytes().skip(1).all(|byte| byte.is_ascii_digit()));
        if fraction.is_none() {
            return Err(reader.wrong(".000000"));
        }
        reader.rest = reader.rest.get(7..).unwrap_or_default();
    } else if let Some(fraction) = reader.rest.strip_prefix(['.', ',']) {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            reader.rest = fraction.get(digits..).unwrap_or_default();
        }
    }
    zone(&mut reader)?;
    if !reader.rest.is_empty() {
        return Err(format!("parsing time {}: extra text: {}", go::quote(text), go::quote(reader.rest)));
    }
    text.replacen(',', ".", 1).parse().map_err(|_| reader.out_of_range("day"))
}

fn zone(reader: &mut Reader<'_>) -> Result<(), String> {
    if let Some(rest) = reader.rest.strip_prefix('Z') {
        reader.rest = rest;
        return Ok(());
    }
    let offset = reader.rest.get(..6).filter(|text| {
        text.bytes().enumerate().all(|(index, byte)| match index {
            0 => byte == b'+' || byte == b'-',
            3 => byte == b':',
            _ => byte.is_ascii_digit(),
        })
    });
    if offset.is_none() {
        return Err(reader.wrong("Z07:00"));
    }
    reader.rest = reader.rest.get(6..).unwrap_or_default();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_one_form() {
        for (sent, kept) in [
            ("2026-11-15T12:00:00Z", "2026-11-15T12:00:00Z"),
            ("2026-11-15T12:00:00.987Z", "2026-11-15T12:00:00Z"),
            ("2026-11-15T14:00:00+02:00", "2026-11-15T12:00:00Z"),
        ] {
            assert_eq!(seconds(sent).as_deref(), Ok(kept));
        }
        assert_eq!(micros("2026-11-15T12:00:00.123456Z").as_deref(), Ok("2026-11-15T12:00:00.123456Z"));
    }

    #[test]
    fn what_is_no_time_is_refused_in_the_words_of_go() {
        let layout = "as \"2006-01-02T15:04:05Z07:00\": cannot parse";
        for (sent, words) in [
            ("abc", format!("parsing time \"abc\" {layout} \"abc\" as \"2006\"")),
            ("2026/01", format!("parsing time \"2026/01\" {layout} \"/01\" as \"-\"")),
            ("2026-01-02", format!("parsing time \"2026-01-02\" {layout} \"\" as \"T\"")),
            ("2026-13-02T00:00:00Z", "parsing time \"2026-13-02T00:00:00Z\": month out of range".to_owned()),
            ("2026-02-31T00:00:00Z", "parsing time \"2026-02-31T00:00:00Z\": day out of range".to_owned()),
            ("2026-01-02T00:00:00", format!("parsing time \"2026-01-02T00:00:00\" {layout} \"\" as \"Z07:00\"")),
            ("2026-01-02T00:00:00Zx", "parsing time \"2026-01-02T00:00:00Zx\": extra text: \"x\"".to_owned()),
        ] {
            assert_eq!(seconds(sent), Err(words));
        }
        assert!(micros("2026-11-15T12:00:00Z").unwrap_err().ends_with("cannot parse \"Z\" as \".000000\""));
    }
}
