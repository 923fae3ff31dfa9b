//! Cron schedules, as budgets write them: five fields or a macro, always in UTC.
//!
//! ```text
//!  minute  hour  day-of-month  month  day-of-week
//!   0-59   0-23     1-31       1-12      0-6
//!
//!  `*` and `?` mean any, `a-b` a range, `/step` every so many, `,` a list; months and days have names
//! ```
//!
//! Where both days are narrowed, either may match; where one is a star, the other decides.

use jiff::civil::{Date, DateTime};
use jiff::tz::Offset;
use jiff::{Timestamp, ToSpan};

/// A parsed schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    minutes: Field,
    hours: Field,
    days: Field,
    months: Field,
    weekdays: Field,
}

/// The values of one field as bits, and whether a star was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    bits: u64,
    is_star: bool,
}

impl Field {
    fn has(self, value: i8) -> bool {
        u8::try_from(value).is_ok_and(|value| self.bits >> value & 1 == 1)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    #[error(
        "schedule {text:?} has {n_fields} fields; five would do (minute hour day month weekday), or @hourly, \
         @daily, @weekly, @monthly, @yearly"
    )]
    WrongShape { text: String, n_fields: usize },
    #[error(
        "schedule macro {text:?} is unknown; @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually exist"
    )]
    UnknownMacro { text: String },
    #[error("{part:?} is no {field} of a schedule; {wants} would do")]
    BadField { field: &'static str, part: String, wants: String },
}

/// A schedule that has not struck by then never will (30 February).
const HORIZON_YEARS: i16 = 5;

impl Schedule {
    pub fn parse(text: &str) -> Result<Self, CronError> {
        let text = text.trim();
        if text.starts_with('@') {
            return Self::of_macro(text);
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(CronError::WrongShape { text: text.to_owned(), n_fields: fields.len() });
        };
        Ok(Self {
            minutes: MINUTE.parse(minutes)?,
            hours: HOUR.parse(hours)?,
            days: DAY.parse(days)?,
            months: MONTH.parse(months)?,
            weekdays: WEEKDAY.parse(weekdays)?,
        })
    }

    fn of_macro(text: &str) -> Result<Self, CronError> {
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ => return Err(CronError::UnknownMacro { text: text.to_owned() }),
        };
        Self::parse(fields)
    }

    /// The first hit strictly after `time`; `None` when there is none within five years.
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        let start = Offset::UTC
            .to_datetime(time)
            .with()
            .second(0)
            .subsec_nanosecond(0)
            .build()
            .ok()?
            .checked_add(1.minute())
            .ok()?;
        let last_year = start.year().saturating_add(HORIZON_YEARS);
        let mut day = start.date();
        let mut earliest = (start.hour(), start.minute());
        while day.year() <= last_year {
            if !self.months.has(day.month()) {
                day = day.last_of_month().tomorrow().ok()?;
                earliest = (0, 0);
                continue;
            }
            if self.is_on(day)
                && let Some((hour, minute)) = self.first_from(earliest)
            {
                let hit: DateTime = day.at(hour, minute, 0, 0);
                return Offset::UTC.to_timestamp(hit).ok();
            }
            day = day.tomorrow().ok()?;
            earliest = (0, 0);
        }
        None
    }

    fn is_on(&self, day: Date) -> bool {
        let by_day = self.days.has(day.day());
        let by_weekday = self.weekdays.has(day.weekday().to_sunday_zero_offset());
        if self.days.is_star || self.weekdays.is_star { by_day && by_weekday } else { by_day || by_weekday }
    }

    /// The first hour and minute of a day at or after the given ones.
    fn first_from(&self, (hour, minute): (i8, i8)) -> Option<(i8, i8)> {
        let minute_from = |from: i8| (from..60).find(|minute| self.minutes.has(*minute));
        if self.hours.has(hour)
            && let Some(minute) = minute_from(minute)
        {
            return Some((hour, minute));
        }
        let hour = (hour + 1..24).find(|hour| self.hours.has(*hour))?;
        Some((hour, minute_from(0)?))
    }
}

/// What one field may say.
struct Grammar {
    field: &'static str,
    min: u8,
    max: u8,
    /// Names for the values from `min` on.
    names: &'static [&'static str],
}

const MINUTE: Grammar = Grammar { field: "minute", min: 0, max: 59, names: &[] };
const HOUR: Grammar = Grammar { field: "hour", min: 0, max: 23, names: &[] };
const DAY: Grammar = Grammar { field: "day of month", min: 1, max: 31, names: &[] };
const MONTH: Grammar = Grammar {
    field: "month",
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAY: Grammar =
    Grammar { field: "day of week", min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

impl Grammar {
    fn parse(&self, text: &str) -> Result<Field, CronError> {
        let mut field = Field { bits: 0, is_star: false };
        for part in text.split(',') {
            let Field { bits, is_star } = self.parse_part(part).ok_or_else(|| self.bad(part))?;
            field.bits |= bits;
            field.is_star |= is_star;
        }
        Ok(field)
    }

    /// `range[/step]`, where a single value with a step runs to the end. A star keeps its meaning of "any day" only
    /// with a step of one.
    fn parse_part(&self, part: &str) -> Option<Field> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step.parse::<u8>().ok().filter(|step| *step > 0)?)),
            None => (part, None),
        };
        let is_star = matches!(range, "*" | "?");
        let (from, to) = if is_star {
            (self.min, self.max)
        } else if let Some((from, to)) = range.split_once('-') {
            (self.value(from)?, self.value(to)?)
        } else {
            let from = self.value(range)?;
            (from, if step.is_some() { self.max } else { from })
        };
        if from < self.min || to > self.max || from > to {
            return None;
        }
        let step = step.unwrap_or(1);
        let bits = (from..=to).step_by(usize::from(step)).fold(0, |bits, value| bits | 1 << value);
        Some(Field { bits, is_star: is_star && step == 1 })
    }

    fn value(&self, text: &str) -> Option<u8> {
        let word = text.to_lowercase();
        match self.names.iter().position(|name| *name == word) {
            Some(i) => u8::try_from(i).ok().map(|i| i + self.min),
            None => text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten(),
        }
    }

    fn bad(&self, part: &str) -> CronError {
        let names = match (self.names.first(), self.names.last()) {
            (Some(first), Some(last)) => format!(" or {first} to {last}"),
            _ => String::new(),
        };
        CronError::BadField {
            field: self.field,
            part: part.to_owned(),
            wants: format!("{} to {}{names}, *, a range or a step", self.min, self.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &str, after: &str) -> Option<String> {
        Schedule::parse(schedule).unwrap().next_after(after.parse().unwrap()).map(|time| time.to_string())
    }

    #[test]
    fn the_next_hit_is_strictly_later() {
        for (schedule, after, expected) in [
            ("* * * * *", "2024-01-01T00:00:00Z", Some("2024-01-01T00:01:00Z")),
            ("* * * * *", "2024-01-01T00:00:59.5Z", Some("2024-01-01T00:01:00Z")),
            ("0 0 * * *", "2024-01-01T00:00:00Z", Some("2024-01-02T00:00:00Z")),
            ("0 0 * * *", "2023-12-31T23:59:59Z", Some("2024-01-01T00:00:00Z")),
            ("@daily", "2024-02-28T12:00:00Z", Some("2024-02-29T00:00:00Z")),
            ("@midnight", "2024-02-28T12:00:00Z", Some("2024-02-29T00:00:00Z")),
            ("@hourly", "2024-01-01T10:30:00Z", Some("2024-01-01T11:00:00Z")),
            ("@weekly", "2024-01-01T00:00:00Z", Some("2024-01-07T00:00:00Z")),
            ("@monthly", "2024-01-01T00:00:00Z", Some("2024-02-01T00:00:00Z")),
            ("@yearly", "2024-01-01T00:00:00Z", Some("2025-01-01T00:00:00Z")),
            ("@annually", "2024-06-01T00:00:00Z", Some("2025-01-01T00:00:00Z")),
            ("*/15 9-17 * * mon-fri", "2024-01-05T17:45:00Z", Some("2024-01-08T09:00:00Z")),
            ("5/20 * * * *", "2024-01-01T00:06:00Z", Some("2024-01-01T00:25:00Z")),
            ("0 0 1,15 * *", "2024-01-02T00:00:00Z", Some("2024-01-15T00:00:00Z")),
            ("0 22 * JAN Sun", "2024-02-01T00:00:00Z", Some("2025-01-05T22:00:00Z")),
            ("0 0 29 2 *", "2024-03-01T00:00:00Z", Some("2028-02-29T00:00:00Z")),
            ("0 0 30 2 *", "2024-01-01T00:00:00Z", None),
            // Both days narrowed: either will do. One a star: the other decides.
            ("0 0 13 * fri", "2024-01-01T00:00:00Z", Some("2024-01-05T00:00:00Z")),
            ("0 0 13 * *", "2024-01-01T00:00:00Z", Some("2024-01-13T00:00:00Z")),
            ("0 0 13 * ?", "2024-01-01T00:00:00Z", Some("2024-01-13T00:00:00Z")),
            ("0 0 */2 * fri", "2024-01-01T00:00:00Z", Some("2024-01-03T00:00:00Z")),
        ] {
            assert_eq!(next(schedule, after).as_deref(), expected, "{schedule} after {after}");
        }
    }

    #[test]
    fn a_bad_schedule_is_told_with_its_part() {
        for (schedule, needle) in [
            ("* * * *", "4 fields"),
            ("* * * * * *", "6 fields"),
            ("", "0 fields"),
            ("@fortnightly", "@fortnightly"),
            ("@every 5m", "@every 5m"),
            ("60 * * * *", "minute"),
            ("* 24 * * *", "hour"),
            ("* * 0 * *", "day of month"),
            ("* * * 13 *", "month"),
            ("* * * * 7", "day of week"),
            ("* * * foo *", "foo"),
            ("5-1 * * * *", "5-1"),
            ("*/0 * * * *", "*/0"),
            ("1-2-3 * * * *", "1-2-3"),
            ("+5 * * * *", "+5"),
        ] {
            let message = Schedule::parse(schedule).unwrap_err().to_string();
            assert!(message.contains(needle), "{schedule}: {message}");
        }
    }
}
