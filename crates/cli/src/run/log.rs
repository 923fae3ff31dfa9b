//! The log: JSON lines, as upstream writes them.

use super::settings::{LogLevel, LogSettings};
use anyhow::Context;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::Arc;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Begins to log. Once in the life of a process.
pub(crate) fn start(settings: &LogSettings) -> anyhow::Result<()> {
    let level = match settings.level {
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Info => Level::INFO,
        LogLevel::Error => Level::ERROR,
    };
    // Libraries tell of every frame and connection at debug level: only ours may.
    let targets = Targets::new()
        .with_default(level.min(Level::WARN))
        .with_target("kerf", level)
        .with_target("kerf_controllers", level)
        .with_target("kerf_cli", level);
    let sinks = Sinks::open(&settings.paths)?;
    let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(move || sinks.clone());
    tracing_subscriber::registry().with(targets).with(lines).try_init().context("the log was begun twice")
}

/// Everywhere that the log goes.
#[derive(Clone)]
struct Sinks(Arc<Vec<Sink>>);

enum Sink {
    Stdout,
    Stderr,
    File(File),
}

impl Sinks {
    fn open(paths: &[String]) -> anyhow::Result<Self> {
        let open = |path: &String| {
            Ok(match path.as_str() {
                "stdout" => Sink::Stdout,
                "stderr" => Sink::Stderr,
                file => {
                    let file = file.strip_prefix("file://").unwrap_or(file);
                    let opened = OpenOptions::new().create(true).append(true).open(file);
                    Sink::File(opened.with_context(|| format!("cannot write the log to {file} (LOG_OUTPUT_PATHS)"))?)
                }
            })
        };
        paths.iter().map(open).collect::<anyhow::Result<Vec<_>>>().map(|sinks| Self(Arc::new(sinks)))
    }
}

impl Write for Sinks {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        for sink in &*self.0 {
            match sink {
                Sink::Stdout => io::stdout().lock().write_all(line)?,
                Sink::Stderr => io::stderr().lock().write_all(line)?,
                Sink::File(file) => (&*file).write_all(line)?,
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
