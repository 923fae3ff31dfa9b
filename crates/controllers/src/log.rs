//! The log: what happened, as JSON lines that upstream's readers know, or as plain lines for a terminal.
//!
//! ```text
//! tracing::info!(NodeClaim = "default-x7k2p", "launched nodeclaim")
//!   ─▶ {"level":"INFO","time":"2026-01-01T00:00:00.000Z","logger":"controller","message":"launched nodeclaim","commit":"…",
//!       "NodeClaim":{"name":"default-x7k2p"}}
//! ```
//!
//! Fields stand at the top level under their own names. A field that is named like a kind (`NodeClaim`, `Node`, `Pod`…) holds a name,
//! and is written as the reference that upstream writes; a field with a dot in its name (`requests.cpu`) becomes part of an object.
//!
//! It is a subscriber of its own because that is all it takes: duties open no spans, so a registry of spans would only cost. What
//! libraries have to say is kept from warnings upwards; their debugging is not ours.

use jiff::Timestamp;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// So many lines of one message in a second are written, and then every so-manieth.
const SAMPLE_FIRST: u64 = 100;
const SAMPLE_EVERY: u64 = 100;

/// Kinds whose name as a field means a reference to such an object.
const KINDS: [&str; 10] = [
    "NodeClaim",
    "Node",
    "NodePool",
    "NodeClass",
    "EC2NodeClass",
    "KWOKNodeClass",
    "NodeOverlay",
    "CapacityBuffer",
    "Pod",
    "PodDisruptionBudget",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    pub level: LogLevel,
    pub format: LogFormat,
    pub commit: String,
    /// `stdout`, `stderr`, or files that are appended to.
    pub output_paths: Vec<String>,
    /// Where to say that a line could not be written.
    pub error_output_paths: Vec<String>,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            level: LogLevel::Info,
            format: LogFormat::Json,
            commit: String::new(),
            output_paths: vec!["stdout".to_owned()],
            error_output_paths: vec!["stderr".to_owned()],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Json,
    /// Time, level, message and fields, separated by tabs.
    Console,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Debug,
    Info,
    Error,
}

impl std::str::FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "debug" => Ok(Self::Debug),
            "" | "info" => Ok(Self::Info),
            "error" => Ok(Self::Error),
            other => Err(format!("log-level {other:?} is unknown; use debug, info or error")),
        }
    }
}

impl LogLevel {
    fn most_verbose(self) -> Level {
        match self {
            Self::Debug => Level::DEBUG,
            Self::Info => Level::INFO,
            Self::Error => Level::ERROR,
        }
    }
}

/// Tells the time of a line.
pub type LogClock = Box<dyn Fn() -> Timestamp + Send + Sync>;
type Output = Box<dyn Write + Send>;

/// A subscriber that writes the log. Install it with `tracing::subscriber::set_global_default`.
pub struct Log {
    level: Level,
    format: LogFormat,
    commit: String,
    clock: LogClock,
    outputs: Mutex<Outputs>,
}

struct Outputs {
    lines: Vec<Output>,
    errors: Vec<Output>,
    /// The second that is counted, and how often each message came in it.
    second: i64,
    counts: BTreeMap<(Level, String), u64>,
}

impl Log {
    /// Opens the outputs. The error names the path that cannot be opened.
    pub fn open(settings: &LogSettings, clock: LogClock) -> io::Result<Self> {
        let lines = settings.output_paths.iter().map(|path| open(path)).collect::<io::Result<_>>()?;
        let errors = settings.error_output_paths.iter().map(|path| open(path)).collect::<io::Result<_>>()?;
        Ok(Self::to(settings, clock, lines, errors))
    }

    /// Writes to these instead of to the paths.
    pub fn to(settings: &LogSettings, clock: LogClock, lines: Vec<Output>, errors: Vec<Output>) -> Self {
        Self {
            level: settings.level.most_verbose(),
            format: settings.format,
            commit: settings.commit.clone(),
            clock,
            outputs: Mutex::new(Outputs { lines, errors, second: i64::MIN, counts: BTreeMap::new() }),
        }
    }

    fn line(&self, metadata: &Metadata<'_>, now: Timestamp, fields: Fields) -> String {
        let time = now.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string();
        let caller = (self.level == Level::DEBUG).then(|| caller(metadata)).flatten();
        match self.format {
            LogFormat::Json => {
                // Every entry keeps its place: people read the first words of a line.
                let mut line = String::from("{");
                let mut put = |key: &str, value: &Value| {
                    let comma = if line.len() > 1 { "," } else { "" };
                    let _ = write!(line, "{comma}{}:{value}", Value::from(key));
                };
                put("level", &metadata.level().as_str().into());
                put("time", &time.into());
                put("logger", &"controller".into());
                if let Some(caller) = caller {
                    put("caller", &caller.into());
                }
                put("message", &fields.message.into());
                put("commit", &self.commit.as_str().into());
                for (key, value) in &fields.others {
                    put(key, value);
                }
                line.push_str("}\n");
                line
            }
            LogFormat::Console => {
                let mut line = format!("{time}\t{}\t", metadata.level());
                if let Some(caller) = caller {
                    let _ = write!(line, "{caller}\t");
                }
                line.push_str(&fields.message);
                if !fields.others.is_empty() {
                    let others: Map<String, Value> = fields.others.into_iter().collect();
                    let _ = write!(line, "\t{}", Value::Object(others));
                }
                line.push('\n');
                line
            }
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_ours = metadata.target().starts_with("kerf");
        metadata.is_event() && *metadata.level() <= self.level && (is_ours || *metadata.level() <= Level::WARN)
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(self.level.into())
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let now = (self.clock)();
        let level = *event.metadata().level();
        let mut outputs = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
        if !outputs.is_sampled(level, &fields.message, now.as_second()) {
            return;
        }
        let line = self.line(event.metadata(), now, fields);
        outputs.write(&line);
    }

    // Nobody here opens spans; those of libraries are not written, so one number for all of them will do.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Outputs {
    /// Whether this line is among those that are written.
    fn is_sampled(&mut self, level: Level, message: &str, second: i64) -> bool {
        if self.second != second {
            self.second = second;
            self.counts.clear();
        }
        let count = self.counts.entry((level, message.to_owned())).or_insert(0);
        *count += 1;
        *count <= SAMPLE_FIRST || (*count - SAMPLE_FIRST).is_multiple_of(SAMPLE_EVERY)
    }

    fn write(&mut self, line: &str) {
        for output in &mut self.lines {
            if let Err(error) = output.write_all(line.as_bytes()).and_then(|()| output.flush()) {
                for errors in &mut self.errors {
                    // There is nobody left to tell.
                    let _ = writeln!(errors, "cannot write to the log: {error}");
                }
            }
        }
    }
}

fn open(path: &str) -> io::Result<Output> {
    match path {
        "stdout" => Ok(Box::new(io::stdout())),
        "stderr" => Ok(Box::new(io::stderr())),
        path => {
            let path = path.strip_prefix("file://").unwrap_or(path);
            let file = OpenOptions::new().create(true).append(true).open(path);
            let file = file.map_err(|error| io::Error::new(error.kind(), format!("log output {path:?}: {error}")))?;
            Ok(Box::new(file))
        }
    }
}

/// The file with its folder, and the line.
fn caller(metadata: &Metadata<'_>) -> Option<String> {
    let (file, line) = (metadata.file()?, metadata.line()?);
    let mut parts: Vec<&str> = file.rsplit('/').take(2).collect();
    parts.reverse();
    Some(format!("{}:{line}", parts.join("/")))
}

/// What an event carries.
#[derive(Debug, Default)]
struct Fields {
    message: String,
    others: Vec<(String, Value)>,
}

impl Fields {
    fn put(&mut self, name: &str, value: Value) {
        let name = name.strip_prefix("r#").unwrap_or(name);
        if let Some((whole, part)) = name.split_once('.') {
            let place = self.others.iter().position(|(key, _)| key == whole).unwrap_or_else(|| {
                self.others.push((whole.to_owned(), Value::Object(Map::new())));
                self.others.len() - 1
            });
            if let Value::Object(object) = &mut self.others[place].1 {
                object.insert(part.to_owned(), value);
            }
            return;
        }
        let value = match value {
            Value::String(text) if KINDS.contains(&name) => reference(&text),
            value => value,
        };
        // A field must not hide what every line has.
        let is_taken = matches!(name, "level" | "time" | "logger" | "caller" | "commit");
        let name = if is_taken { format!("{name}_") } else { name.to_owned() };
        self.others.push((name, value));
    }
}

/// `{"name": …}`, with the namespace where there is one.
fn reference(text: &str) -> Value {
    match text.split_once('/') {
        Some((namespace, name)) => serde_json::json!({"name": name, "namespace": namespace}),
        None => serde_json::json!({"name": text}),
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.put(field.name(), text.into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.put(field.name(), value.into());
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no infinity.
        let value = if value.is_finite() { value.into() } else { value.to_string().into() };
        self.put(field.name(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Paper {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn log_of(settings: LogSettings, scene: impl FnOnce()) -> String {
        let paper = Paper::default();
        let clock = Box::new(|| "2026-01-01T00:00:01.5Z".parse().unwrap());
        let log = Log::to(&settings, clock, vec![Box::new(paper.clone())], Vec::new());
        tracing::subscriber::with_default(log, scene);
        paper.text()
    }

    fn settings(level: LogLevel) -> LogSettings {
        LogSettings { level, commit: "abc1234".to_owned(), ..LogSettings::default() }
    }

    #[test]
    fn a_line_has_the_keys_that_readers_of_upstream_expect_in_their_order() {
        let text = log_of(settings(LogLevel::Info), || {
            tracing::debug!("not told");
            tracing::info!(
                controller = "nodeclaim.lifecycle",
                NodeClaim = "default-a",
                "provider-id" = "kwok://x",
                "launched nodeclaim"
            );
        });
        assert_eq!(
            text,
            "{\"level\":\"INFO\",\"time\":\"2026-01-01T00:00:01.500Z\",\"logger\":\"controller\",\
             \"message\":\"launched nodeclaim\",\"commit\":\"abc1234\",\"controller\":\"nodeclaim.lifecycle\",\
             \"NodeClaim\":{\"name\":\"default-a\"},\"provider-id\":\"kwok://x\"}\n"
        );
    }

    #[test]
    fn d3_18_facts_are_fields_with_their_types() {
        let text = log_of(settings(LogLevel::Debug), || {
            let error = io::Error::other("no \"answer\"");
            tracing::error!(Pod = "default/web-1", pods = 2, ratio = f64::NAN, seconds = 1.5, ok = true, error = %error,
                requests.cpu = "2", requests.memory = "4Gi", level = 7, "cannot");
        });
        let line: Value = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!(line["Pod"], json!({"name": "web-1", "namespace": "default"}));
        assert_eq!(
            (&line["pods"], &line["ratio"], &line["seconds"], &line["ok"]),
            (&json!(2), &json!("NaN"), &json!(1.5), &json!(true))
        );
        assert_eq!(line["requests"], json!({"cpu": "2", "memory": "4Gi"}));
        assert_eq!(line["error"], "no \"answer\"");
        assert_eq!((&line["level"], &line["level_"]), (&json!("ERROR"), &json!(7)));
        let caller = line["caller"].as_str().unwrap();
        assert!(caller.starts_with("src/log.rs:"), "{caller}");
    }

    #[test]
    fn levels_are_those_of_the_flag() {
        let scene = || {
            tracing::debug!("one");
            tracing::info!("two");
            tracing::error!("three");
            tracing::info!(target: "hyper", "of a library");
            tracing::warn!(target: "hyper", "a library warns");
        };
        let messages = |level: &str| {
            let text = log_of(settings(level.parse().unwrap()), scene);
            let message =
                |line: &str| serde_json::from_str::<Value>(line).unwrap()["message"].as_str().unwrap().to_owned();
            text.lines().map(message).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(messages("debug"), "one, two, three, a library warns");
        assert_eq!(messages(""), "two, three, a library warns");
        assert_eq!(messages("error"), "three");
        assert_eq!("warn".parse::<LogLevel>().unwrap_err(), "log-level \"warn\" is unknown; use debug, info or error");
    }

    #[test]
    fn of_one_message_in_a_second_a_hundred_are_written_and_then_every_hundredth() {
        let text = log_of(settings(LogLevel::Info), || {
            for n in 0..350 {
                tracing::info!(n, "again");
            }
            tracing::info!("something else");
        });
        let again: Vec<Value> =
            text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["n"].clone()).collect();
        assert_eq!(again.len(), 103);
        assert_eq!(again[99..], [json!(99), json!(199), json!(299), Value::Null]);
    }

    #[test]
    fn a_console_line_is_read_by_people() {
        let settings = LogSettings { format: LogFormat::Console, ..settings(LogLevel::Info) };
        let text = log_of(settings, || tracing::info!(Node = "a", "deleted node"));
        assert_eq!(text, "2026-01-01T00:00:01.500Z\tINFO\tdeleted node\t{\"Node\":{\"name\":\"a\"}}\n");
    }

    #[test]
    fn a_path_that_cannot_be_opened_is_named() {
        let settings = LogSettings { output_paths: vec!["/proc/none/log".to_owned()], ..LogSettings::default() };
        let error = Log::open(&settings, Box::new(Timestamp::now)).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("\"/proc/none/log\""), "{error}");
    }
}
