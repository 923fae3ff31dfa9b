//! Programs that run beside each other, in two lanes.
//!
//! ```text
//! waits ─▶ suites that mostly wait for clusters, one after the other       ─┐
//! cores ─▶ suites and checks that compute, one after the other, more nicely ─┴─▶ Ended, in order of the end
//! ```
//!
//! On two cores, a suite that waits leaves one of them idle. Two that start clusters would only be in each other's way.

use anyhow::{Context as _, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any program of the test command takes on a busy machine. What hangs is ended, so that the run can say so.
const DEADLINE: Duration = Duration::from_secs(30 * 60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) command: Command,
    /// What to type to run it alone.
    pub(crate) repeat: String,
    pub(crate) lane: Lane,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Waits,
    Cores,
}

pub(crate) struct Ended {
    pub(crate) name: String,
    pub(crate) took: Duration,
    pub(crate) repeat: String,
    /// Everything it said.
    pub(crate) output: String,
    /// Why it did not end well.
    pub(crate) failure: Option<String>,
}

/// Runs all jobs, and tells each end as it comes. What a program says is kept under `logs`.
pub(crate) fn run(jobs: Vec<Job>, logs: &Path, mut told: impl FnMut(&Ended)) -> Result<Vec<Ended>> {
    fs::create_dir_all(logs).with_context(|| format!("cannot make {}", logs.display()))?;
    let (waits, cores): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(|job| job.lane == Lane::Waits);
    thread::scope(|scope| {
        let (sender, ends) = mpsc::channel();
        for lane in [waits, cores] {
            let sender = sender.clone();
            scope.spawn(move || run_lane(lane, logs, &sender));
        }
        drop(sender);
        Ok(ends.into_iter().inspect(|ended| told(ended)).collect())
    })
}

fn run_lane(jobs: Vec<Job>, logs: &Path, sender: &Sender<Ended>) {
    for mut job in jobs {
        let began = Instant::now();
        let log = logs.join(format!("{}.log", job.name.replace([' ', '/'], "-")));
        let failure = run_one(&mut job.command, &log, DEADLINE).unwrap_or_else(|error| Some(format!("{error:#}")));
        // What is not text must not hide the rest.
        let output = fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let ended = Ended { name: job.name, took: began.elapsed(), repeat: job.repeat, output, failure };
        if sender.send(ended).is_err() {
            return;
        }
    }
}

/// Why the program did not end well, if so.
fn run_one(command: &mut Command, log: &PathBuf, deadline: Duration) -> Result<Option<String>> {
    let file = File::create(log).with_context(|| format!("cannot make {}", log.display()))?;
    let began = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone().context("one file, two names")?)
        .stderr(file)
        .spawn()
        .context("it does not start")?;
    loop {
        if let Some(status) = child.try_wait().context("it cannot be waited for")? {
            return Ok((!status.success()).then(|| status.to_string()));
        }
        if began.elapsed() >= deadline {
            child.kill().context("it cannot be ended")?;
            child.wait().context("it cannot be waited for")?;
            return Ok(Some(format!("ended after {} s without an answer", deadline.as_secs())));
        }
        thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, script: &str, lane: Lane) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { name: name.to_owned(), command, repeat: format!("sh {name}"), lane }
    }

    #[test]
    fn a_failure_in_one_lane_is_told_and_all_others_still_run() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = vec![
            job("bad one", "echo alas; echo twice >&2; exit 3", Lane::Waits),
            job("good", "echo fine", Lane::Waits),
            job("other", "true", Lane::Cores),
        ];
        let mut n_told = 0;
        let ended = run(jobs, folder.path(), |_| n_told += 1).unwrap();
        assert_eq!((ended.len(), n_told), (3, 3));
        let bad = ended.iter().find(|ended| ended.name == "bad one").unwrap();
        assert_eq!(bad.output, "alas\ntwice\n");
        assert_eq!(bad.failure.as_deref(), Some("exit status: 3"));
        assert!(ended.iter().filter(|ended| ended.failure.is_none()).count() == 2);
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mut hanging = Command::new("sleep");
        let failure = run_one(hanging.arg("60"), &folder.path().join("log"), Duration::from_millis(200)).unwrap();
        assert!(failure.unwrap().starts_with("ended after"));
    }
}
