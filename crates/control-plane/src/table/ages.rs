//! How long ago, in the two or three figures that people read.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// The time since the instant that an object names; `<unknown>` where it names none.
pub(super) fn since(instant: &Value, now: Timestamp) -> String {
    read(instant).map_or_else(|| "<unknown>".to_owned(), |then| human(now.duration_since(then)))
}

/// An instant as Kubernetes writes it.
pub(super) fn read(instant: &Value) -> Option<Timestamp> {
    instant.as_str()?.parse().ok()
}

/// `45s`, `5m30s`, `3h20m`, `6d4h`, `400d`, `3y12d`: finer while it is young. A moment in the future is taken for now, as
/// clocks differ; more than that is `<invalid>`.
pub(super) fn human(age: SignedDuration) -> String {
    let seconds = age.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let pair = |whole: i64, unit: &str, rest: i64, rest_unit: &str| {
        if rest == 0 { format!("{whole}{unit}") } else { format!("{whole}{unit}{rest}{rest_unit}") }
    };
    match () {
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => pair(days, "d", hours % 24, "h"),
        () if years < 2 => format!("{days}d"),
        () if years < 8 => pair(years, "y", days % 365, "d"),
        () => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_finer_while_it_is_young() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 3600;
        const DAY: i64 = 24 * HOUR;
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (2 * MINUTE, "2m"),
            (9 * MINUTE + 59, "9m59s"),
            (10 * MINUTE + 59, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (7 * HOUR + 59 * MINUTE, "7h59m"),
            (8 * HOUR + 59 * MINUTE, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (7 * DAY + 23 * HOUR, "7d23h"),
            (8 * DAY + 23 * HOUR, "8d"),
            (730 * DAY - 1, "729d"),
            (730 * DAY, "2y"),
            (731 * DAY, "2y1d"),
            (8 * 365 * DAY, "8y"),
            (9 * 365 * DAY + 9 * DAY, "9y"),
        ];
        for (seconds, said) in cases {
            assert_eq!(human(SignedDuration::from_secs(seconds)), said, "{seconds} s");
        }
    }
}
