//! Schedules of disruption budgets: any text is read or refused, and the next hit lies ahead.

use jiff::Timestamp;
use kerf_api::cron::Schedule;

pub(crate) fn check(text: &str) {
    let Ok(schedule) = Schedule::parse(text) else {
        return;
    };
    // A leap day, so that the 29th of February is near.
    let now = Timestamp::from_second(1_709_164_800).expect("29 February 2024");
    let Some(next) = schedule.next_after(now) else {
        return;
    };
    assert!(next > now, "{text:?} hits at {next}, not after {now}");
    if let Some(after) = schedule.next_after(next) {
        assert!(after > next, "{text:?} hits at {next} again");
    }
}
