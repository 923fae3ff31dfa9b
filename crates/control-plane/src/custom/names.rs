//! The rules for names that definitions use, and the words in which they are told.

use std::sync::LazyLock;

use regex::Regex;

static LABEL: LazyLock<Regex> = LazyLock::new(|| Regex::new("^[a-z]([-a-z0-9]*[a-z0-9])?$").expect("a fixed pattern"));
static SUBDOMAIN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$").expect("a fixed pattern")
});

/// Several complaints are joined by commas, as definitions have it.
pub(super) fn is_dns1035_label(name: &str) -> Result<(), String> {
    let mut complaints = Vec::new();
    if name.len() > 63 {
        complaints.push("must be no more than 63 bytes".to_owned());
    }
    if !LABEL.is_match(name) {
        complaints.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, \
             and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
             '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join(",")) }
}

pub(super) fn is_dns1123_subdomain(name: &str) -> Result<(), Vec<String>> {
    let mut complaints = Vec::new();
    if name.len() > 253 {
        complaints.push("must be no more than 253 bytes".to_owned());
    }
    if !SUBDOMAIN.is_match(name) {
        complaints.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
             and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    if complaints.is_empty() { Ok(()) } else { Err(complaints) }
}

/// A name that could not stand in a URL.
pub(super) fn not_a_path_segment(name: &str) -> Option<String> {
    if matches!(name, "." | "..") {
        return Some(format!("may not be '{name}'"));
    }
    let complaints: Vec<String> =
        ['/', '%'].into_iter().filter(|c| name.contains(*c)).map(|c| format!("may not contain '{c}'")).collect();
    (!complaints.is_empty()).then(|| complaints.join(","))
}
