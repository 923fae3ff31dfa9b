//! What we say when an object is wrong.

use std::fmt;

/// One thing wrong with an object: where, what was found there, and what would do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// From the root of the object, as the API server writes it: `spec.template.spec.requirements[0].key`,
    /// `spec.tags[some/key]`.
    pub path: String,
    /// What is there now, short enough for one line.
    pub found: String,
    /// What would be accepted instead.
    pub wants: String,
}

impl Problem {
    pub fn new(path: impl Into<String>, found: impl Into<String>, wants: impl Into<String>) -> Self {
        Self { path: path.into(), found: found.into(), wants: wants.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: found {}; {}", self.path, self.found, self.wants)
    }
}

impl std::error::Error for Problem {}

/// Shows a JSON value in at most some sixty characters.
pub(crate) fn brief(value: &serde_json::Value) -> String {
    const WIDTH: usize = 60;
    let text = value.to_string();
    if text.chars().count() <= WIDTH {
        return text;
    }
    let start: String = text.chars().take(WIDTH).collect();
    format!("{start}…")
}
