//! Cron schedules: five fields with names, ranges and steps, the `@` words, and `@every`.

use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

/// Days without a match after which there is none: no date is further away than the next leap day around a century.
const DAYS_MAX: usize = 366 * 9;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Schedule {
    Every(SignedDuration),
    Fields(Fields),
}

/// Which minutes, hours, days, months and weekdays, a bit each.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// A day matches both fields if one of them was left open, and either of them if not.
    is_day_open: bool,
}

impl Schedule {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let expanded = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        if let Some(every) = expanded.strip_prefix("@every ") {
            let every = duration(every).ok_or_else(|| format!("failed to parse duration {text}"))?;
            return Ok(Self::Every(every.max(SignedDuration::from_secs(1))));
        }
        if expanded.starts_with('@') {
            return Err(format!("unrecognized descriptor: {text}"));
        }
        let words: Vec<&str> = expanded.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = words.as_slice() else {
            return Err(format!("expected exactly 5 fields, found {}: [{}]", words.len(), words.join(" ")));
        };
        const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
        const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
        let is_open = |field: &str| field.split(',').any(|part| matches!(part, "*" | "?") || part.starts_with("*/"));
        Ok(Self::Fields(Fields {
            minutes: field(minutes, 0, 59, &[])?,
            hours: field(hours, 0, 23, &[])?,
            days: field(days, 1, 31, &[])?,
            months: field(months, 1, 12, &MONTHS)?,
            weekdays: field(weekdays, 0, 6, &WEEKDAYS)?,
            is_day_open: is_open(days) || is_open(weekdays),
        }))
    }

    /// The first time after `after`. None when there is none.
    pub(crate) fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Every(every) => Timestamp::from_second(after.as_second()).ok()?.checked_add(*every).ok(),
            Self::Fields(fields) => fields.next(after, zone),
        }
    }

    /// The last time up to `now` that is after `since`, and about how many there were.
    pub(crate) fn last(&self, since: Timestamp, now: Timestamp, zone: &TimeZone) -> Option<(Timestamp, i64)> {
        let first = self.next(since, zone).filter(|first| *first <= now)?;
        let Some(second) = self.next(first, zone).filter(|second| *second <= now) else { return Some((first, 1)) };
        let gap = second.as_second().saturating_sub(first.as_second()).max(1);
        let n_missed = now.as_second().saturating_sub(first.as_second()) / gap + 1;
        // Close to now, with one gap to spare where the gaps differ.
        let skipped = SignedDuration::from_secs((n_missed - 2).saturating_mul(gap));
        let mut last = None;
        let mut next = self.next(first.checked_add(skipped).ok()?, zone);
        while let Some(at) = next.filter(|at| *at <= now) {
            last = Some(at);
            next = self.next(at, zone);
        }
        last.or(Some(second)).map(|last| (last, n_missed))
    }
}

impl Fields {
    fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let start = zone.to_datetime(after);
        let mut date = start.date();
        for _ in 0..DAYS_MAX {
            if self.has_day(date)
                && let Some(found) = self.times(date, zone).find(|at| *at > after)
            {
                return Some(found);
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let has = |field: u64, n: i8| field >> n & 1 == 1;
        let weekday = Weekday::to_sunday_zero_offset(date.weekday());
        let (day, weekday) = (has(self.days, date.day()), has(self.weekdays, weekday));
        has(self.months, date.month()) && if self.is_day_open { day && weekday } else { day || weekday }
    }

    fn times(&self, date: Date, zone: &TimeZone) -> impl Iterator<Item = Timestamp> {
        let (hours, minutes) = (self.hours, self.minutes);
        let of_hour =
            move |hour: i8| (0..60_i8).filter(move |m| minutes >> m & 1 == 1).map(move |minute| (hour, minute));
        (0..24_i8).filter(move |hour| hours >> hour & 1 == 1).flat_map(of_hour).filter_map(move |(hour, minute)| {
            let civil: DateTime = date.at(hour, minute, 0, 0);
            zone.to_timestamp(civil).ok()
        })
    }
}

/// One field as bits: `*`, `1,3`, `2-6`, `*/15`, `10-40/5`, names where there are some.
fn field(text: &str, min: u32, max: u32, names: &[&str]) -> Result<u64, String> {
    text.split(',').try_fold(0, |bits, part| Ok(bits | range(part, min, max, names)?))
}

fn range(text: &str, min: u32, max: u32, names: &[&str]) -> Result<u64, String> {
    let (span, step) = match text.split_once('/') {
        None => (text, None),
        Some((_, step)) if step.contains('/') => return Err(format!("too many slashes: {text}")),
        Some((span, step)) => (span, Some(number(step, &[], 0)?)),
    };
    let (first, last) = match span.split_once('-') {
        None if matches!(span, "*" | "?") => (min, max),
        None => {
            let only = number(span, names, min)?;
            (only, if step.is_some() { max } else { only })
        }
        Some((_, last)) if last.contains('-') => return Err(format!("too many hyphens: {text}")),
        Some((first, last)) => (number(first, names, min)?, number(last, names, min)?),
    };
    let step = step.unwrap_or(1);
    if first < min {
        return Err(format!("beginning of range ({first}) below minimum ({min}): {text}"));
    }
    if last > max {
        return Err(format!("end of range ({last}) above maximum ({max}): {text}"));
    }
    if first > last {
        return Err(format!("beginning of range ({first}) beyond end of range ({last}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    Ok((first..=last).step_by(step).fold(0, |bits, n| bits | 1 << n))
}

fn number(text: &str, names: &[&str], min: u32) -> Result<u32, String> {
    let lower = text.to_ascii_lowercase();
    if let Some(idx) = names.iter().position(|name| *name == lower) {
        return Ok(min + u32::try_from(idx).unwrap_or(0));
    }
    text.parse().map_err(|_| format!("failed to parse int from {text}"))
}

/// `1h30m`, as Go writes durations.
fn duration(text: &str) -> Option<SignedDuration> {
    let mut rest = text.trim();
    let mut total = SignedDuration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !(letter.is_ascii_digit() || letter == '.'))?;
        let n: f64 = rest.get(..digits)?.parse().ok()?;
        let unit_end =
            rest.get(digits..)?.find(|letter: char| letter.is_ascii_digit()).map_or(rest.len(), |at| digits + at);
        let seconds = match rest.get(digits..unit_end)? {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        total = total.checked_add(SignedDuration::try_from_secs_f64(n * seconds).ok()?)?;
        rest = rest.get(unit_end..)?;
    }
    (total > SignedDuration::ZERO).then(|| SignedDuration::from_secs(total.as_secs()))
}

/// Minutes since the epoch: what makes the name of a Job the same for the same time.
pub(crate) fn minutes_of(at: Timestamp) -> i64 {
    at.as_second().div_euclid(60)
}

/// A moment after `at`, so that clocks that differ a little agree that the time has come.
pub(crate) fn a_little_after(at: Timestamp) -> Timestamp {
    at.checked_add(100.milliseconds()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("{text}:00Z").parse().unwrap()
    }

    #[test]
    fn the_next_time_is_found() {
        for (schedule, after, expected) in [
            ("*/5 * * * *", "2026-01-01T00:00", "2026-01-01T00:05"),
            ("*/5 * * * *", "2026-01-01T00:04", "2026-01-01T00:05"),
            ("30 6-16/4 * * 1-5", "2026-01-02T14:30", "2026-01-05T06:30"),
            ("0 0 1 * *", "2026-01-31T12:00", "2026-02-01T00:00"),
            ("0 0 29 2 *", "2026-01-01T00:00", "2028-02-29T00:00"),
            ("15 3 * JAN-mar SUN", "2026-03-29T04:00", "2027-01-03T03:15"),
            // Either day matches when both are given.
            ("0 0 13 * 5", "2026-01-03T00:00", "2026-01-09T00:00"),
            ("0 0 13 * 5", "2026-01-09T00:00", "2026-01-13T00:00"),
            ("0 0 */2 * 1", "2026-01-06T00:00", "2026-01-19T00:00"),
            ("5/20 * * * *", "2026-01-01T00:06", "2026-01-01T00:25"),
            ("@hourly", "2026-01-01T00:00", "2026-01-01T01:00"),
            ("@weekly", "2026-01-01T00:00", "2026-01-04T00:00"),
            ("@every 1h30m", "2026-01-01T00:00", "2026-01-01T01:30"),
            ("0 0 ? * *", "2026-01-01T00:00", "2026-01-02T00:00"),
        ] {
            let next = Schedule::parse(schedule).unwrap().next(at(after), &TimeZone::UTC);
            assert_eq!(next, Some(at(expected)), "{schedule} after {after}");
        }
        let never = Schedule::parse("59 23 31 2 *").unwrap();
        assert_eq!(never.next(at("2026-01-01T00:00"), &TimeZone::UTC), None);
    }

    #[test]
    fn the_last_time_and_how_many_were_missed() {
        let hourly = Schedule::parse("0 * * * *").unwrap();
        for (since, now, expected) in [
            ("2026-01-01T00:00", "2026-01-01T00:59", None),
            ("2026-01-01T00:00", "2026-01-01T01:00", Some(("2026-01-01T01:00", 1))),
            ("2026-01-01T00:00", "2026-01-01T03:30", Some(("2026-01-01T03:00", 3))),
            ("2026-01-01T00:00", "2026-02-01T00:30", Some(("2026-02-01T00:00", 744))),
        ] {
            let last = hourly.last(at(since), at(now), &TimeZone::UTC);
            assert_eq!(last, expected.map(|(last, n)| (at(last), n)), "{since} {now}");
        }
        let uneven = Schedule::parse("30 6-16/4 * * 1-5").unwrap();
        let last = uneven.last(at("2026-01-02T14:30"), at("2026-01-07T09:00"), &TimeZone::UTC);
        assert_eq!(last.map(|(last, _)| last), Some(at("2026-01-07T06:30")));
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for (text, why) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("x * * * *", "failed to parse int from x"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("@never", "unrecognized descriptor: @never"),
            ("@every x", "failed to parse duration @every x"),
        ] {
            assert_eq!(Schedule::parse(text), Err(why.to_owned()), "{text}");
        }
    }
}
