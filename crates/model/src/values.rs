//! A set of texts in one piece: a catalogue has forty thousand of them, most with one member.

use crate::ids::Text;
use std::ops::Deref;

/// In order, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Values(Box<[Text]>);

impl Values {
    pub fn contains(&self, value: &str) -> bool {
        self.0.binary_search_by(|known| (**known).cmp(value)).is_ok()
    }
}

impl Deref for Values {
    type Target = [Text];

    fn deref(&self) -> &[Text] {
        &self.0
    }
}

impl FromIterator<Text> for Values {
    fn from_iter<I: IntoIterator<Item = Text>>(values: I) -> Self {
        let mut values: Vec<Text> = values.into_iter().collect();
        values.sort_unstable();
        values.dedup();
        Self(values.into())
    }
}

impl IntoIterator for Values {
    type Item = Text;
    type IntoIter = std::vec::IntoIter<Text>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_vec().into_iter()
    }
}

impl<'a> IntoIterator for &'a Values {
    type Item = &'a Text;
    type IntoIter = std::slice::Iter<'a, Text>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_a_set() {
        let values: Values = ["b", "a", "c", "a"].into_iter().map(Text::from).collect();
        assert_eq!(values.iter().map(|value| &**value).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(values.contains("b") && !values.contains("d") && !Values::default().contains(""));
        assert_eq!(values, ["c", "b", "a"].into_iter().map(Text::from).collect());
    }
}
