//! The spelling of keys, values and amounts.

use std::sync::LazyLock;

use regex_lite::Regex;

use crate::schema::patterns;

/// An optional DNS prefix of at most 253 characters and a slash, then a name of at most 63.
pub fn is_qualified_name(text: &str) -> bool {
    static PATTERN: LazyLock<Regex> = LazyLock::new(|| compile(patterns::QUALIFIED_NAME));
    let (prefix, name) = text.split_once('/').unwrap_or(("", text));
    prefix.len() <= 253 && name.len() <= 63 && PATTERN.is_match(text)
}

/// At most 63 characters, alphanumeric at both ends; empty is fine.
pub fn is_label_value(text: &str) -> bool {
    static PATTERN: LazyLock<Regex> = LazyLock::new(|| compile(patterns::LABEL_VALUE));
    text.len() <= 63 && PATTERN.is_match(text)
}

/// Whether Kubernetes can read an amount: `2`, `500m`, `1.5Gi`, `1e3`.
pub fn is_quantity(text: &str) -> bool {
    static PATTERN: LazyLock<Regex> = LazyLock::new(|| compile(patterns::QUANTITY));
    PATTERN.is_match(text)
}

/// Whether the schema takes it as the size of a volume.
pub(crate) fn is_volume_size(text: &str) -> bool {
    static PATTERN: LazyLock<Regex> = LazyLock::new(|| compile(patterns::VOLUME_SIZE));
    PATTERN.is_match(text)
}

fn compile(pattern: &'static str) -> Regex {
    Regex::new(pattern).expect("patterns are constants, compiled by every test")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_as_kubernetes_spells_them() {
        let long_name = "x".repeat(64);
        let long_prefix = format!("{}/x", "a".repeat(254));
        for (text, expected) in [
            ("team", true),
            ("example.com/team", true),
            ("Team_1.x", true),
            ("Example.com/team", false),
            ("example.com/", false),
            ("/team", false),
            ("a/b/c", false),
            ("-team", false),
            ("", false),
            (long_name.as_str(), false),
            (long_prefix.as_str(), false),
        ] {
            assert_eq!(is_qualified_name(text), expected, "{text}");
        }
    }

    #[test]
    fn label_values_may_be_empty_but_not_long() {
        assert!(is_label_value(""));
        assert!(is_label_value("a-b_c.d"));
        assert!(!is_label_value("a b"));
        assert!(!is_label_value("-a"));
        assert!(!is_label_value(&"x".repeat(64)));
    }
}
