//! Schedules of disruption budgets: any text is read or refused, and the next hit lies ahead.

#![no_main]

#[path = "../checks/cron.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|text: &str| checks::check(text));
