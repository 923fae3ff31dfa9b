//! The way from an object's root to a value, written down only when something is said about that value.

use std::fmt;

#[derive(Clone, Copy, Debug)]
pub(super) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    /// Where the way begins: nothing for a whole object, or the field that a part of it is in.
    Root(&'a str),
    Field(&'a str),
    Key(&'a str),
    Item(usize),
}

impl<'a> Path<'a> {
    pub(super) fn root(base: &'a str) -> Self {
        Self { parent: None, step: Step::Root(base) }
    }

    pub(super) fn field(&'a self, name: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Field(name) }
    }

    /// A member of a map: `labels[app]`.
    pub(super) fn key(&'a self, name: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Key(name) }
    }

    pub(super) fn item(&'a self, idx: usize) -> Self {
        Self { parent: Some(self), step: Step::Item(idx) }
    }

    pub(super) fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    /// As field errors have it: a whole object is `<nil>`.
    pub(super) fn to_field(self) -> String {
        let text = self.to_string();
        if text.is_empty() { "<nil>".to_owned() } else { text }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root(base) => f.write_str(base),
            Step::Field(name) if self.parent.is_some_and(Self::is_empty) => f.write_str(name),
            Step::Field(name) => write!(f, ".{name}"),
            Step::Key(name) => write!(f, "[{name}]"),
            Step::Item(idx) => write!(f, "[{idx}]"),
        }
    }
}

impl Path<'_> {
    fn is_empty(&self) -> bool {
        matches!(self.step, Step::Root(base) if base.is_empty())
    }
}
