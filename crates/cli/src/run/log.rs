//! The log: JSON lines, as upstream writes them.

use super::settings::{LogLevel, LogSettings};
use anyhow::Context;
use kerf_controllers::log;

/// Begins to log. Once in the life of a process.
pub(crate) fn start(settings: &LogSettings) -> anyhow::Result<()> {
    let settings = log::LogSettings {
        level: match settings.level {
            LogLevel::Debug => log::LogLevel::Debug,
            LogLevel::Info => log::LogLevel::Info,
            LogLevel::Error => log::LogLevel::Error,
        },
        format: log::LogFormat::Json,
        commit: super::COMMIT.to_owned(),
        output_paths: settings.paths.clone(),
        error_output_paths: settings.error_paths.clone(),
    };
    let log = log::Log::open(&settings, Box::new(jiff::Timestamp::now))
        .context("cannot write the log (LOG_OUTPUT_PATHS, LOG_ERROR_OUTPUT_PATHS)")?;
    tracing::subscriber::set_global_default(log).context("the log was begun twice")
}
