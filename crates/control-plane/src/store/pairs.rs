//! Names and values in one piece of memory: every object has some, and most objects are only kept.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard};

use serde_json::{Map, Value};

/// Names are spelled once: every node has the same forty labels, every pod the same fields. A letter stands for each, given out as names are
/// first met; when all letters are taken, new names are spelled out.
static NAMES: LazyLock<RwLock<Names>> = LazyLock::new(RwLock::default);

const LETTERS: RangeInclusive<char> = '\u{100}'..='\u{7ff}';

#[derive(Default)]
struct Names {
    /// In order of their letters.
    spelled: Vec<&'static str>,
    letters: HashMap<&'static str, char>,
}

impl Names {
    fn letter(&self, name: &str) -> Option<char> {
        self.letters.get(name).copied()
    }

    /// The letter for a name that may be new.
    fn learn(&mut self, name: &str) -> Option<char> {
        let known = self.letter(name);
        let letter = known.or_else(|| LETTERS.clone().nth(self.spelled.len()))?;
        if known.is_none() {
            // Kept for good, as are its few hundred fellows.
            let name: &'static str = Box::leak(name.into());
            self.spelled.push(name);
            self.letters.insert(name, letter);
        }
        Some(letter)
    }

    fn spelled<'a>(&self, name: &'a str) -> &'a str {
        let mut letters = name.chars();
        match (letters.next(), letters.next()) {
            (Some(letter), None) if LETTERS.contains(&letter) => {
                let index = u32::from(letter) - u32::from(*LETTERS.start());
                self.spelled.get(index as usize).copied().unwrap_or(name)
            }
            _ => name,
        }
    }
}

fn names() -> RwLockReadGuard<'static, Names> {
    NAMES.read().unwrap_or_else(PoisonError::into_inner)
}

fn letter_of(name: &str) -> Option<char> {
    let known = names().letter(name);
    known.or_else(|| NAMES.write().unwrap_or_else(PoisonError::into_inner).learn(name))
}

/// In the order in which they came; copies share them. Neither names nor values contain the byte zero: it stands between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(Arc<str>);

impl Pairs {
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut buffer = [0; 4];
        let wanted = names().letter(name).map_or(name, |letter| letter.encode_utf8(&mut buffer));
        self.written().find(|(this, _)| *this == wanted).map(|(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.written().map(|(name, value)| (names().spelled(name), value))
    }

    /// Names as they are kept.
    fn written(&self) -> impl Iterator<Item = (&str, &str)> {
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
        let mut text = String::with_capacity(512);
        for (name, value) in pairs {
            match letter_of(name.as_ref()) {
                Some(letter) => text.push(letter),
                // No name that was ever admitted has such letters.
                None => {
                    text.extend(name.as_ref().chars().filter(|letter| *letter != '\0' && !LETTERS.contains(letter)))
                }
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
    fn a_name_takes_two_bytes_and_reads_as_it_is() {
        let list = ["karpenter.k8s.aws/instance-cpu-manufacturer", "a", "spec.nodeName"];
        let pairs: Pairs = list.map(|name| (name, "value")).into_iter().collect();
        assert_eq!(pairs.iter().collect::<Vec<_>>(), list.map(|name| (name, "value")));
        assert_eq!(pairs.0.len(), list.len() * "nn\0value\0".len());
        assert_eq!(pairs.get("spec.nodeName"), Some("value"));
        assert_eq!(pairs, list.map(|name| (name, "value")).into_iter().collect());
    }

    #[test]
    fn when_all_letters_are_taken_names_are_spelled_out() {
        let mut names = Names::default();
        let letters: Vec<Option<char>> = (0..2000).map(|index| names.learn(&format!("name-{index}"))).collect();
        let n_letters = LETTERS.count();
        assert!(letters[..n_letters].iter().all(Option::is_some) && letters[n_letters..].iter().all(Option::is_none));
        assert_eq!(letters[0], names.learn("name-0"));
        assert_eq!(names.spelled("\u{101}"), "name-1");
        assert_eq!(names.spelled("name-1999"), "name-1999");
    }
}
