//! A rule that no keyword of OpenAPI can say, in CEL for the API server and in Rust for us.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// One `x-kubernetes-validations` entry with its twin in Rust.
///
/// The Rust side sees only values that already have the described shape (types, required fields, sizes), exactly like
/// CEL. Where CEL would stop with an evaluation error, the rule counts as broken; so the twin answers `false`.
#[derive(Clone)]
pub(crate) struct Rule {
    pub(crate) cel: Cow<'static, str>,
    /// What would do. Shown by the API server and by us alike.
    pub(crate) message: Cow<'static, str>,
    test: Test,
}

#[derive(Clone)]
enum Test {
    Now(Arc<OfOne>),
    /// Holds between the value before and the value after; silent on creation.
    Change(Arc<OfTwo>),
}

type OfOne = dyn Fn(&Value) -> bool + Send + Sync;
type OfTwo = dyn Fn(&Value, &Value) -> bool + Send + Sync;

impl Rule {
    pub(crate) fn new(
        cel: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
        holds: impl Fn(&Value) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { cel: cel.into(), message: message.into(), test: Test::Now(Arc::new(holds)) }
    }

    /// A rule about a change: the closure gets the new value, then the old one.
    pub(crate) fn on_change(
        cel: &'static str,
        message: &'static str,
        holds: impl Fn(&Value, &Value) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { cel: cel.into(), message: message.into(), test: Test::Change(Arc::new(holds)) }
    }

    pub(crate) fn holds(&self, new: &Value, old: Option<&Value>) -> bool {
        match (&self.test, old) {
            (Test::Now(holds), _) => holds(new),
            (Test::Change(holds), Some(old)) => holds(new, old),
            (Test::Change(_), None) => true,
        }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule").field("cel", &self.cel).finish_non_exhaustive()
    }
}

/// Looking into JSON the way CEL does.
pub(crate) trait Look {
    /// CEL's `has(self.name)`.
    fn has(&self, name: &str) -> bool;
    fn at(&self, name: &str) -> &Value;
    /// The string, or `""` where there is none.
    fn text(&self) -> &str;
    fn items(&self) -> &[Value];
    fn keys(&self) -> impl Iterator<Item = &String>;
    fn n_entries(&self) -> usize;
}

static NOTHING: Value = Value::Null;

impl Look for Value {
    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn at(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&NOTHING)
    }

    fn text(&self) -> &str {
        self.as_str().unwrap_or_default()
    }

    fn items(&self) -> &[Value] {
        self.as_array().map_or(&[], Vec::as_slice)
    }

    fn keys(&self) -> impl Iterator<Item = &String> {
        self.as_object().into_iter().flat_map(|object| object.keys())
    }

    fn n_entries(&self) -> usize {
        self.as_object().map_or(0, serde_json::Map::len)
    }
}
