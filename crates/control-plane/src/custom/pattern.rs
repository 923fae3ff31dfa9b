//! Regular expressions as API servers read them (RE2, as Go has it), for the `regex` crate.
//!
//! The two dialects differ where it is easily overlooked: `\d`, `\w`, `\s` and `\b` are about ASCII there and about Unicode
//! here, brackets within a class are plain characters there and nested classes here, and a brace that repeats nothing is
//! itself there and an error here.

use std::fmt::Write as _;

use regex::Regex;

/// Why a pattern cannot be read, in the words of the server.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    Regex::new(&translate(pattern)).map_err(|error| explain(pattern, &error))
}

fn explain(pattern: &str, error: &regex::Error) -> String {
    // The crate's message is a drawing over several lines, with the reason last.
    let reason = error.to_string();
    let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let said = match reason.as_str() {
        "unclosed group" => "missing closing )",
        "unopened group" => "unexpected )",
        "unclosed character class" => "missing closing ]",
        "repetition operator missing expression" => "missing argument to repetition operator",
        _ => return format!("error parsing regexp: {reason}: `{pattern}`"),
    };
    match said {
        "missing argument to repetition operator" => {
            let operator = pattern.chars().find(|c| "*+?".contains(*c)).unwrap_or('*');
            format!("error parsing regexp: {said}: `{operator}`")
        }
        "missing closing ]" => {
            let from = pattern.find('[').and_then(|at| pattern.get(at..)).unwrap_or(pattern);
            format!("error parsing regexp: {said}: `{from}`")
        }
        _ => format!("error parsing regexp: {said}: `{pattern}`"),
    }
}

fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern.chars().peekable();
    let mut in_class = false;
    let mut class_start = false;
    while let Some(c) = rest.next() {
        let was_class_start = std::mem::take(&mut class_start);
        match c {
            '\\' => {
                let Some(next) = rest.next() else {
                    out.push('\\');
                    break;
                };
                escape(&mut out, next, in_class, &mut rest);
            }
            '[' if !in_class => {
                in_class = true;
                class_start = true;
                out.push('[');
                if rest.peek() == Some(&'^') {
                    out.push('^');
                    rest.next();
                }
                // A bracket that closes at once is a member.
                if rest.peek() == Some(&']') {
                    out.push_str("\\]");
                    rest.next();
                    class_start = false;
                }
            }
            '[' if rest.peek() == Some(&':') => out.push('['),
            '[' => out.push_str("\\["),
            ']' if in_class && out.ends_with(':') => {
                out.push(']');
                // The end of a named class such as `[:alpha:]`, which is not the end of the class around it.
                if !out.rsplit('[').next().is_some_and(|name| name.starts_with(':')) {
                    in_class = false;
                }
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_class && !was_class_start && rest.peek() == Some(&'-') => out.push_str("\\-"),
            '{' if !in_class => {
                let ahead: String = rest.clone().take_while(|c| *c != '}').take(16).collect();
                let is_repetition = rest.clone().nth(ahead.chars().count()) == Some('}') && is_count(&ahead);
                out.push_str(if is_repetition { "{" } else { "\\{" });
                if is_repetition {
                    for _ in 0..=ahead.chars().count() {
                        out.extend(rest.next());
                    }
                }
            }
            '}' if !in_class => out.push_str("\\}"),
            other => out.push(other),
        }
    }
    out
}

/// `3`, `3,` or `3,5`.
fn is_count(text: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once(',') {
        Some((from, to)) => is_number(from) && (to.is_empty() || is_number(to)),
        None => is_number(text),
    }
}

fn escape(out: &mut String, escaped: char, in_class: bool, rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    let plain = match escaped {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => "\\t\\n\\f\\r ",
        'D' => "^0-9",
        'W' => "^0-9A-Za-z_",
        'S' => "^\\t\\n\\f\\r ",
        'b' | 'B' if !in_class => {
            let _ = write!(out, "(?-u:\\{escaped})");
            return;
        }
        'Q' if !in_class => {
            let mut quoted = String::new();
            while let Some(c) = rest.next() {
                if c == '\\' && rest.peek() == Some(&'E') {
                    rest.next();
                    break;
                }
                quoted.push(c);
            }
            out.push_str(&regex::escape(&quoted));
            return;
        }
        other => {
            out.push('\\');
            out.push(other);
            // `\p{Greek}` and `\x{10FFFF}` have braces that repeat nothing.
            if matches!(other, 'p' | 'P' | 'x') && rest.peek() == Some(&'{') {
                for c in rest.by_ref() {
                    out.push(c);
                    if c == '}' {
                        break;
                    }
                }
            }
            return;
        }
    };
    match (in_class, plain.starts_with('^')) {
        (true, false) => out.push_str(plain),
        _ => {
            let _ = write!(out, "[{plain}]");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_here_what_they_mean_to_the_server() {
        let rows = [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١٢", false),
            (r"^[\w-]+$", "a-b_c", true),
            (r"^[\w-]+$", "é", false),
            ("^[[]a[]]$", "[a]", true),
            ("^[]]$", "]", true),
            ("^[a&&b]+$", "a&b", true),
            ("^a{2}$", "aa", true),
            ("^a{2,}$", "aaa", true),
            ("^a{,2}$", "a{,2}", true),
            ("^a{x$", "a{x", true),
            ("^{}$", "{}", true),
            ("^[[:alpha:]_]+$", "ab_", true),
            ("^[[:alpha:]_]+$", "ab1", false),
            (r"^\p{Greek}$", "λ", true),
            (r"\bfoo\b", "a foo b", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^[^\s]+$", "a b", false),
        ];
        for (pattern, text, expected) in rows {
            let compiled = compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(compiled.is_match(text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_pattern_that_cannot_be_read_says_why() {
        assert_eq!(compile("(a").unwrap_err(), "error parsing regexp: missing closing ): `(a`");
        assert_eq!(compile("*a").unwrap_err(), "error parsing regexp: missing argument to repetition operator: `*`");
        assert_eq!(compile("x[a").unwrap_err(), "error parsing regexp: missing closing ]: `[a`");
    }
}
