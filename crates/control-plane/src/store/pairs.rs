//! Names and values in one piece of memory: every object has some, and most objects are only kept.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::builtin::fields::{CORE_EVENT, POD};

/// Names that most objects have, of pods and of events: one byte stands for each. Others are spelled out.
fn frequent() -> impl Iterator<Item = &'static str> {
    POD.into_iter().chain(CORE_EVENT)
}

/// In the order in which they came; copies share them. Neither names nor values contain the byte zero: it stands between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(Arc<str>);

impl Pairs {
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(this, _)| *this == name).map(|(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = self.0.split_terminator('\0');
        std::iter::from_fn(move || Some((spelled(rest.next()?), rest.next()?)))
    }

    /// The texts of a JSON object; what is no text counts as empty.
    #[must_use]
    pub fn of(map: &Map<String, Value>) -> Self {
        map.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default())).collect()
    }
}

fn spelled(name: &str) -> &str {
    match name.as_bytes() {
        [byte] => usize::from(*byte).checked_sub(1).and_then(|index| frequent().nth(index)).unwrap_or(name),
        _ => name,
    }
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut text = String::with_capacity(512);
        for (name, value) in pairs {
            match frequent().zip('\u{1}'..).find(|(known, _)| *known == name.as_ref()) {
                Some((_, byte)) => text.push(byte),
                // No name that was ever admitted has such a letter.
                None => text.extend(name.as_ref().chars().filter(|letter| !letter.is_control())),
            }
            text.push('\0');
            text.extend(value.as_ref().chars().filter(|letter| *letter != '\0'));
            text.push('\0');
        }
        // A copy takes what it needs; what is made smaller in place may keep its room.
        Self(text.as_str().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_by_name_and_may_be_empty() {
        let pairs: Pairs = [("app", "web"), ("empty", ""), ("zero", "a\0b")].into_iter().collect();
        assert_eq!(pairs.get("app"), Some("web"));
        assert_eq!(pairs.get("empty"), Some(""));
        assert_eq!(pairs.get("zero"), Some("ab"));
        assert_eq!(pairs.get("web"), None);
        assert_eq!(pairs.iter().count(), 3);
        assert_eq!(Pairs::default().iter().count(), 0);
    }

    #[test]
    fn names_that_most_objects_have_take_a_byte_and_read_as_they_are() {
        let pairs: Pairs = frequent().map(|name| (name, "value")).collect();
        assert_eq!(pairs.iter().map(|(name, _)| name).collect::<Vec<_>>(), frequent().collect::<Vec<_>>());
        assert_eq!(pairs.0.len(), frequent().count() * "n\0value\0".len());
        assert_eq!(pairs.get("status.phase"), Some("value"));
        let strange: Pairs = [("\u{1}", "no")].into_iter().collect();
        assert_eq!(strange.get("spec.nodeName"), None);
    }
}
