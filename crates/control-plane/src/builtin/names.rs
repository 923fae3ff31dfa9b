//! What names, labels, keys and ports may look like, and what is said when they do not.
//!
//! Checked by hand rather than by regular expression: these run several times for every object that is written.

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                     and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                         must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
                         is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                         character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                           must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
                           regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
                          'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                       regex used for validation is '[0-9]+%')";
const HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for \
                      validation is '[-A-Za-z0-9]+')";
const ENVIRONMENT: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";

pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// Labels and their keys count bytes.
fn too_many_bytes(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

pub(crate) fn between(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Begins and ends with `edge`, and has only `edge` and `inner` between.
fn is_framed(text: &str, edge: fn(u8) -> bool, inner: &[u8]) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            edge(first) && edge(last) && bytes.iter().all(|byte| edge(*byte) || inner.contains(byte))
        }
        _ => false,
    }
}

fn is_label(text: &str) -> bool {
    is_framed(text, is_lower, b"-")
}

fn is_subdomain(text: &str) -> bool {
    !text.is_empty() && text.split('.').all(is_label)
}

/// What is wrong with a DNS-1123 label.
pub(crate) fn label(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push(too_long(63));
    }
    if !is_label(text) {
        wrong.push(if is_subdomain(text) { "must not contain dots".to_owned() } else { LABEL.to_owned() });
    }
    wrong
}

/// What is wrong with a DNS-1123 subdomain.
pub(crate) fn subdomain(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 253 {
        wrong.push(too_long(253));
    }
    if !is_subdomain(text) {
        wrong.push(SUBDOMAIN.to_owned());
    }
    wrong
}

/// Roles and their bindings: anything that can be one part of a path.
pub(crate) fn path_segment(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"].into_iter().filter(|part| text.contains(part)).map(|part| format!("may not contain '{part}'")).collect()
}

/// What is wrong with a label key, an annotation key, a finalizer.
pub(crate) fn qualified(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut parts = text.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > 253 {
                    wrong.push(format!("prefix part {}", too_many_bytes(253)));
                }
                if !is_subdomain(prefix) {
                    wrong.push(format!("prefix part {SUBDOMAIN}"));
                }
            }
            name
        }
        _ => {
            wrong.push(format!(
                "a valid label key {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            return wrong;
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        wrong.push(format!("name part {}", too_many_bytes(63)));
    }
    if !is_framed(name, |byte| byte.is_ascii_alphanumeric(), b"-_.") {
        wrong.push(format!("name part {QUALIFIED}"));
    }
    wrong
}

pub(crate) fn label_value(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push(too_many_bytes(63));
    }
    if !text.is_empty() && !is_framed(text, |byte| byte.is_ascii_alphanumeric(), b"-_.") {
        wrong.push(LABEL_VALUE.to_owned());
    }
    wrong
}

/// Keys of config maps and secrets.
pub(crate) fn config_key(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 253 {
        wrong.push(too_long(253));
    }
    let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if text.is_empty() || !text.bytes().all(is_sound) {
        wrong.push(CONFIG_KEY.to_owned());
    }
    match text {
        "." => wrong.push("must not be '.'".to_owned()),
        ".." => wrong.push("must not be '..'".to_owned()),
        _ if text.starts_with("..") => wrong.push("must not start with '..'".to_owned()),
        _ => {}
    }
    wrong
}

pub(crate) fn environment_variable(text: &str) -> Option<&'static str> {
    let is_sound = |c: char| (' '..='~').contains(&c) && c != '=';
    (!text.chars().all(is_sound)).then_some(ENVIRONMENT)
}

pub(crate) fn header(text: &str) -> Option<&'static str> {
    let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (text.is_empty() || !text.bytes().all(is_sound)).then_some(HEADER)
}

pub(crate) fn percent(text: &str) -> Option<&'static str> {
    let digits = text.strip_suffix('%').unwrap_or_default();
    (digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(PERCENT)
}

/// The name of a container's port.
pub(crate) fn port_name(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut tell = |is_wrong: bool, why: String| {
        if is_wrong {
            wrong.push(why);
        }
    };
    tell(text.len() > 15, too_long(15));
    let is_sound = !text.is_empty() && text.bytes().all(|byte| is_lower(byte) || byte == b'-');
    tell(!is_sound, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    tell(!text.bytes().any(|byte| byte.is_ascii_lowercase()), "must contain at least one letter (a-z)".to_owned());
    tell(text.contains("--"), "must not contain consecutive hyphens".to_owned());
    tell(text.starts_with('-') || text.ends_with('-'), "must not begin or end with a hyphen".to_owned());
    wrong
}

pub(crate) fn port_number(number: i64) -> Option<String> {
    (!(1..=65_535).contains(&number)).then(|| between(1, 65_535))
}

/// A name that more letters will follow: an ending dash is fine.
pub(crate) fn as_prefix(name: &str) -> String {
    match name.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut masked: String = rest.chars().take(rest.chars().count().saturating_sub(1)).collect();
            masked.push('a');
            masked
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_as_the_real_server_judges_them() {
        for good in ["a", "a-b", "0", "a.b", "a--b.c"] {
            assert!(subdomain(good).is_empty(), "{good}");
        }
        for bad in ["", "A", "-a", "a-", "a..b", ".a", "a_b", "é"] {
            assert_eq!(subdomain(bad), [SUBDOMAIN], "{bad}");
        }
        assert_eq!(label("a.b"), ["must not contain dots"]);
        assert!(qualified("example.com/a_b").is_empty() && qualified("A.b_c-d").is_empty());
        assert_eq!(qualified("/a"), ["prefix part must be non-empty"]);
        assert_eq!(qualified("").len(), 2);
        assert!(qualified("a/b/c")[0].starts_with("a valid label key must consist"));
        assert!(label_value("").is_empty() && label_value("a.B_1").is_empty() && !label_value("a b").is_empty());
        assert_eq!(config_key("..a"), ["must not start with '..'"]);
        assert_eq!(as_prefix("web-"), "wea");
        assert!(percent("10%").is_none() && percent("%").is_some() && percent("ten").is_some());
    }
}
