//! Selector terms in words, and what an account has instead of what was asked for.

use crate::wire::Tags;
use std::collections::{BTreeMap, BTreeSet};

/// So many values of a tag are named; a message is for people.
const NAMED_MAX: usize = 5;

/// One term as written: `tags a=b, c=*` or `id subnet-1`.
pub(super) fn term_in_words(tags: Option<&BTreeMap<String, String>>, others: &[(&str, Option<&String>)]) -> String {
    let tags = tags.filter(|tags| !tags.is_empty()).map(|tags| {
        let pairs: Vec<String> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
        format!("tags {}", pairs.join(", "))
    });
    let others = others.iter().filter_map(|(name, value)| value.map(|value| format!("{name} {value}")));
    let parts: Vec<String> = others.chain(tags).collect();
    if parts.is_empty() { "(empty)".to_owned() } else { parts.join(" and ") }
}

/// What the tags that were asked for look like on what there is: `karpenter.sh/discovery: 3 with other values (prod, test)`.
pub(super) fn tags_seen<'a>(wanted: impl Iterator<Item = &'a BTreeMap<String, String>>, all: &[&Tags]) -> String {
    let keys: BTreeSet<&str> = wanted.flat_map(|tags| tags.keys()).map(String::as_str).collect();
    let seen = keys.into_iter().map(|key| {
        let values: Vec<&str> = all.iter().filter_map(|tags| tags.get(key)).map(String::as_str).collect();
        let distinct: BTreeSet<&str> = values.iter().copied().collect();
        let named: Vec<&str> = distinct.iter().copied().take(NAMED_MAX).collect();
        let more = if distinct.len() > NAMED_MAX { ", …" } else { "" };
        match values.len() {
            0 => format!("none has the tag {key}"),
            n => format!("{n} have the tag {key} ({}{more})", named.join(", ")),
        }
    });
    seen.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(pairs: &[(&str, &str)]) -> Tags {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn terms_read_as_they_were_written() {
        let id = "subnet-1".to_owned();
        assert_eq!(term_in_words(Some(&tags(&[("a", "b"), ("c", "*")])), &[("id", None)]), "tags a=b, c=*");
        assert_eq!(term_in_words(None, &[("id", Some(&id))]), "id subnet-1");
        assert_eq!(term_in_words(None, &[]), "(empty)");
    }

    #[test]
    fn what_there_is_instead_is_counted_by_tag() {
        let all = [tags(&[("k", "prod")]), tags(&[("k", "test")]), tags(&[])];
        let wanted = tags(&[("k", "demo"), ("other", "*")]);
        let said = tags_seen([&wanted].into_iter(), &all.iter().collect::<Vec<_>>());
        assert_eq!(said, "2 have the tag k (prod, test); none has the tag other");
    }
}
