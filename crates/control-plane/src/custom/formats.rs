//! The string and number formats that API servers check; any other `format` is only a remark.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// `int32`, `int64`.
    Integer(String),
    /// `float`, `double`.
    Number(String),
    /// The name as written, for messages, and the name without dashes, by which it is known.
    Text { written: String, known_as: String },
}

const TEXT_FORMATS: [&str; 26] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

impl Format {
    /// The format that a schema asks for, if it is one that is checked for that type.
    pub(super) fn of(format: &str, type_name: &str, is_int_or_string: bool) -> Option<Self> {
        if format.is_empty() {
            return None;
        }
        let known_as = format.replace('-', "");
        match type_name {
            // An int-or-string has two types, which reads as none.
            "" | "string" if TEXT_FORMATS.contains(&known_as.as_str()) => {
                Some(Self::Text { written: format.to_owned(), known_as })
            }
            "integer" if !is_int_or_string && matches!(format, "int32" | "int64") => {
                Some(Self::Integer(format.to_owned()))
            }
            "number" if matches!(format, "float" | "double") => Some(Self::Number(format.to_owned())),
            _ => None,
        }
    }
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(Patterns::new);

struct Patterns {
    /// Read when somebody asks: all letters of all scripts take eight megabytes.
    hostname: LazyLock<Regex>,
    uuid: Regex,
    uuid3: Regex,
    uuid4: Regex,
    uuid5: Regex,
    credit_card: Regex,
    ssn: Regex,
    hex_color: Regex,
    rgb_color: Regex,
    base64: Regex,
    time: Regex,
    duration: Regex,
    object_id: Regex,
    short_name: Regex,
    long_name: Regex,
}

impl Patterns {
    fn new() -> Self {
        let read = |pattern: &str| Regex::new(pattern).expect("these patterns are read by every test");
        let uuid = |third: &str, fourth: &str| {
            read(&format!("(?i)^[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{third}-?{fourth}-?[0-9a-f]{{12}}$"))
        };
        let any = "[0-9a-f]{4}";
        let variant = "[89ab][0-9a-f]{3}";
        let channel = "(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])";
        let label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
        Self {
            hostname: LazyLock::new(|| {
                let pattern = r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$";
                Regex::new(pattern).expect("this pattern is read by a test")
            }),
            uuid: uuid(any, any),
            uuid3: uuid("3[0-9a-f]{3}", any),
            uuid4: uuid("4[0-9a-f]{3}", variant),
            uuid5: uuid("5[0-9a-f]{3}", variant),
            credit_card: read(
                "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$",
            ),
            ssn: read("^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"),
            hex_color: read("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
            rgb_color: read(&format!(
                r"^rgb\([\t\n\f\r ]*{channel}[\t\n\f\r ]*,[\t\n\f\r ]*{channel}[\t\n\f\r ]*,[\t\n\f\r ]*{channel}[\t\n\f\r ]*\)$"
            )),
            base64: read("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"),
            time: read("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"),
            duration: read(r"([0-9]+)[\t\n\f\r ]*([A-Za-zµ]+)"),
            object_id: read("^[0-9a-fA-F]{24}$"),
            short_name: read(&format!("^{label}$")),
            long_name: read(&format!(r"^{label}(\.{label})*$")),
        }
    }
}

/// Whether a text has a format, by the name without dashes.
pub(super) fn has_format(text: &str, format: &str) -> bool {
    let patterns = &*PATTERNS;
    match format {
        "bsonobjectid" => patterns.object_id.is_match(text),
        "uri" => is_request_uri(text),
        "email" => is_email(text),
        "hostname" => {
            patterns.hostname.is_match(text) && text.len() <= 255 && text.split('.').all(|label| label.len() <= 63)
        }
        "ipv4" => parse_ip(text, true).is_some() && text.contains('.'),
        "ipv6" => parse_ip(text, false).is_some() && text.contains(':'),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => patterns.uuid.is_match(text),
        "uuid3" => patterns.uuid3.is_match(text),
        "uuid4" => patterns.uuid4.is_match(text),
        "uuid5" => patterns.uuid5.is_match(text),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_credit_card(text, patterns),
        "ssn" => text.len() == 11 && patterns.ssn.is_match(text),
        "hexcolor" => patterns.hex_color.is_match(text),
        "rgbcolor" => patterns.rgb_color.is_match(text),
        "byte" => patterns.base64.is_match(text),
        "date" => is_date(text),
        "datetime" => is_date_time(text, patterns),
        "duration" => go_duration_nanos(text).is_some() || is_wordy_duration(text, patterns),
        "k8sshortname" => text.len() <= 63 && patterns.short_name.is_match(text),
        "k8slongname" => text.len() <= 253 && patterns.long_name.is_match(text),
        _ => true,
    }
}

/// An address as Go reads it. Leading zeroes are tolerated where `is_sloppy`.
pub(super) fn parse_ip(text: &str, is_sloppy: bool) -> Option<IpAddr> {
    if is_sloppy && text.contains('.') && !text.contains(':') {
        let parts: Vec<&str> = text.split('.').collect();
        let [a, b, c, d] = parts.as_slice() else { return None };
        let octet = |part: &str| {
            let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            is_number
                .then(|| part.trim_start_matches('0'))
                .and_then(|digits| if digits.is_empty() { Some(0) } else { digits.parse::<u8>().ok() })
        };
        return Some(IpAddr::V4(Ipv4Addr::new(octet(a)?, octet(b)?, octet(c)?, octet(d)?)));
    }
    if text.contains(':') {
        return text.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    text.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let bits_max = match parse_ip(address, true) {
        Some(IpAddr::V4(_)) => 32,
        Some(IpAddr::V6(_)) => 128,
        None => return false,
    };
    !bits.is_empty()
        && bits.bytes().all(|byte| byte.is_ascii_digit())
        && bits.parse::<u32>().is_ok_and(|n| n <= bits_max)
}

fn is_mac(text: &str) -> bool {
    let is_hex = |part: &str, n: usize| part.len() == n && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    if text.contains('.') {
        let groups: Vec<&str> = text.split('.').collect();
        return matches!(groups.len(), 3 | 4 | 10) && groups.iter().all(|group| is_hex(group, 4));
    }
    let separator = if text.contains(':') { ':' } else { '-' };
    let groups: Vec<&str> = text.split(separator).collect();
    matches!(groups.len(), 6 | 8 | 20) && groups.iter().all(|group| is_hex(group, 2))
}

fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let rest = match scheme_end(text) {
        Scheme::Bad => return false,
        Scheme::None if text.starts_with('/') => text,
        Scheme::None => return false,
        Scheme::Until(at) => match text.get(at + 1..) {
            Some(rest) => rest,
            None => return false,
        },
    };
    let rest = rest.split('?').next().unwrap_or_default();
    if !rest.starts_with('/') {
        // An opaque URI such as `mailto:a@b`.
        return matches!(scheme_end(text), Scheme::Until(_));
    }
    let (authority, path) = match rest.strip_prefix("//") {
        Some(after) if !rest.starts_with("///") => match after.find('/') {
            Some(at) => (after.get(..at).unwrap_or_default(), after.get(at..).unwrap_or_default()),
            None => (after, ""),
        },
        _ => ("", rest),
    };
    is_authority(authority) && has_valid_escapes(path)
}

enum Scheme {
    None,
    Bad,
    Until(usize),
}

fn scheme_end(text: &str) -> Scheme {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Scheme::Bad,
            b':' => return Scheme::Until(at),
            _ => return Scheme::None,
        }
    }
    Scheme::None
}

fn is_authority(authority: &str) -> bool {
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if let Some(user) = user {
        let is_user_char = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
        if !user.bytes().all(is_user_char) {
            return false;
        }
    }
    if let Some(after) = host.strip_prefix('[') {
        let Some((address, port)) = after.split_once(']') else { return false };
        return address.parse::<Ipv6Addr>().is_ok() && is_port(port);
    }
    let port = host.rfind(':').and_then(|at| host.get(at..)).unwrap_or_default();
    let is_host_char =
        |byte: u8| byte >= 0x80 || byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:[]<>\"%".contains(&byte);
    is_port(port) && host.bytes().all(is_host_char) && has_valid_escapes(host)
}

fn is_port(port: &str) -> bool {
    port.is_empty() || port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn has_valid_escapes(text: &str) -> bool {
    let mut parts = text.split('%');
    parts.next();
    parts.all(|part| part.len() >= 2 && part.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}

/// An address as a mail header has it: `a@b`, `Name <a@b>`, `<a@b>`.
fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let address = match text.strip_suffix('>').and_then(|head| head.rsplit_once('<')) {
        Some((name, address)) => {
            let name = name.trim();
            let is_quoted = name.len() >= 2 && name.starts_with('"') && name.ends_with('"');
            if !is_quoted && name.chars().any(|c| "()<>[]:;@\\,\"".contains(c)) {
                return false;
            }
            address
        }
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let is_atom = |part: &str| {
        !part.is_empty()
            && part.chars().all(|c| !c.is_ascii() || c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c))
    };
    let is_dotted = |text: &str| text.split('.').all(is_atom);
    let is_quoted = local.len() >= 2 && local.starts_with('"') && local.ends_with('"');
    let is_literal = domain.starts_with('[') && domain.ends_with(']') && domain.len() > 2;
    (is_dotted(local) || is_quoted) && (is_dotted(domain) || is_literal)
}

fn is_isbn10(text: &str) -> bool {
    let digits = without_spaces_and_dashes(text);
    let bytes = digits.as_bytes();
    if bytes.len() != 10 || !bytes.iter().take(9).all(u8::is_ascii_digit) {
        return false;
    }
    let value = |byte: u8| if byte == b'X' { 10 } else { u32::from(byte.wrapping_sub(b'0')) };
    let last = bytes.last().copied().unwrap_or_default();
    (last == b'X' || last.is_ascii_digit())
        && bytes.iter().zip(1_u32..).map(|(byte, place)| place * value(*byte)).sum::<u32>() % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let digits = without_spaces_and_dashes(text);
    let bytes = digits.as_bytes();
    if bytes.len() != 13 || !bytes.iter().all(u8::is_ascii_digit) {
        return false;
    }
    bytes.iter().zip([1_u32, 3].into_iter().cycle()).map(|(byte, weight)| weight * u32::from(byte - b'0')).sum::<u32>()
        % 10
        == 0
}

fn without_spaces_and_dashes(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '\t' | '\n' | '\u{c}' | '\r' | ' ' | '-')).collect()
}

fn is_credit_card(text: &str, patterns: &Patterns) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !patterns.credit_card.is_match(&digits) {
        return false;
    }
    let sum: u32 = digits
        .bytes()
        .rev()
        .zip([false, true].into_iter().cycle())
        .map(|(byte, is_doubled)| {
            let digit = u32::from(byte - b'0');
            match digit * 2 {
                _ if !is_doubled => digit,
                doubled if doubled >= 10 => doubled % 10 + 1,
                doubled => doubled,
            }
        })
        .sum();
    sum.is_multiple_of(10)
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_shaped = bytes.len() == 10
        && bytes
            .iter()
            .enumerate()
            .all(|(at, byte)| if matches!(at, 4 | 7) { *byte == b'-' } else { byte.is_ascii_digit() });
    is_shaped && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str, patterns: &Patterns) -> bool {
    let lower = text.to_lowercase();
    let Some((date, time)) = lower.split_once('t') else { return false };
    let time = time.split('t').next().unwrap_or_default();
    if !is_date(date) {
        return false;
    }
    let Some(parts) = patterns.time.captures(time) else { return false };
    let part = |idx: usize| parts.get(idx).map_or("", |found| found.as_str());
    part(1) <= "23" && part(2) <= "59" && part(3) <= "59"
}

/// `22 ns`, `3 weeks`.
fn is_wordy_duration(text: &str, patterns: &Patterns) -> bool {
    const UNITS: [&[&str]; 8] = [
        &["ns", "nano"],
        &["us", "µs", "micro"],
        &["ms", "milli"],
        &["s", "sec"],
        &["m", "min"],
        &["h", "hr", "hour"],
        &["d", "day"],
        &["w", "wk", "week"],
    ];
    let mut is_known = false;
    for found in patterns.duration.captures_iter(text) {
        if found.get(1).is_none_or(|digits| digits.as_str().parse::<i64>().is_err()) {
            return false;
        }
        let unit = found.get(2).map_or(String::new(), |unit| unit.as_str().to_lowercase());
        is_known |= UNITS.iter().any(|variants| {
            variants.contains(&unit.as_str()) || variants.last().is_some_and(|last| unit.starts_with(last))
        });
    }
    is_known
}

/// A Go duration such as `1h30m` or `-1.5s`, in nanoseconds.
pub(super) fn go_duration_nanos(text: &str) -> Option<i64> {
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits_end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (whole, after) = rest.split_at(digits_end);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len())),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let unit_end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let unit_nanos: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(unit_nanos)?)?;
        let mut scale = unit_nanos;
        for digit in fraction.bytes() {
            // Digits beyond the nanosecond are dropped.
            total = total.checked_add(i128::from(digit - b'0') * scale / 10)?;
            scale /= 10;
        }
        rest = after;
    }
    let signed = if is_negative { -total } else { total };
    i64::try_from(signed).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_and_refuse_what_the_server_does() {
        let rows: [(&str, &[&str], &[&str]); 17] = [
            (
                "uri",
                &["http://a.b/c?d#e", "/abs", "mailto:a@b", "http://user:pass@h/"],
                &["", "a.b", "./rel", "http://a b"],
            ),
            ("email", &["a@b", "Jo <a@b.c>", "a.b@c.d"], &["", "a", "a@", "a b@c", "@b"]),
            ("hostname", &["a", "a.example", "1a.com"], &["", "-a", "a..b", "a_b"]),
            ("ipv4", &["1.2.3.4", "01.2.3.4"], &["1.2.3", "1.2.3.256", "::1"]),
            ("ipv6", &["::1", "fe80::1"], &["1.2.3.4", ":::"]),
            ("cidr", &["10.0.0.0/8", "fe80::/64"], &["10.0.0.0", "10.0.0.0/33", "x/8"]),
            ("mac", &["00:11:22:33:44:55", "0011.2233.4455"], &["00:11", "gg:11:22:33:44:55"]),
            ("uuid", &["123e4567-e89b-12d3-a456-426614174000"], &["123"]),
            ("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000"]),
            ("isbn", &["3836221195", "978-0321751041"], &["3836221196", "x"]),
            ("creditcard", &["4220855426222389", "4220 8554 2622 2389"], &["4220855426213389", ""]),
            ("byte", &["aGk=", "aGVsbG8h"], &["a", "a=", "é"]),
            ("date", &["2024-02-29"], &["2023-02-29", "24-1-1"]),
            (
                "datetime",
                &["2014-12-15T19:30:20Z", "2014-12-15t19:30:20.000+01:00"],
                &["2014-12-15", "2014-12-15T25:00:00Z"],
            ),
            ("duration", &["1h30m", "22 ns", "3 weeks", "-1.5s"], &["", "1", "x", "1parsec"]),
            ("hexcolor", &["#fff", "00ff00"], &["#ff", "x"]),
            ("k8sshortname", &["a-b"], &["A", "a.b", "-a"]),
        ];
        for (format, good, bad) in rows {
            for text in good {
                assert!(has_format(text, format), "{text:?} is a {format}");
            }
            for text in bad {
                assert!(!has_format(text, format), "{text:?} is no {format}");
            }
        }
    }

    #[test]
    fn a_go_duration_is_read_to_the_nanosecond() {
        assert_eq!(go_duration_nanos("1h30m"), Some(5_400_000_000_000));
        assert_eq!(go_duration_nanos("-1.5s"), Some(-1_500_000_000));
        assert_eq!(go_duration_nanos(".5ms"), Some(500_000));
        assert_eq!(go_duration_nanos("9999999999h"), None);
        assert_eq!(go_duration_nanos("1d"), None);
    }
}
