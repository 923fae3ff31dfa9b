//! Names and values in one piece of memory: every object has some, and most objects are only kept.

use serde_json::{Map, Value};

/// In the order in which they came. Neither names nor values contain the byte zero: it stands between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(Box<str>);

impl Pairs {
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(this, _)| *this == name).map(|(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = self.0.split_terminator('\0');
        std::iter::from_fn(move || Some((rest.next()?, rest.next()?)))
    }

    /// The texts of a JSON object; what is no text counts as empty.
    #[must_use]
    pub fn of(map: &Map<String, Value>) -> Self {
        map.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default())).collect()
    }
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut text = String::new();
        for (name, value) in pairs {
            for part in [name.as_ref(), value.as_ref()] {
                text.extend(part.chars().filter(|letter| *letter != '\0'));
                text.push('\0');
            }
        }
        Self(text.into_boxed_str())
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
}
