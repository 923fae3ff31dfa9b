//! Paths in definitions that lead along a schema: the `fieldPath` of a rule and the `jsonPath` of a selectable field.

use super::node::Node;

/// The path as errors show it and the schema it leads to, or what is wrong with it.
///
/// Steps are `.name`, and where `allows_brackets` also `['name']`.
pub(super) fn read<'a>(path: &str, node: &'a Node, allows_brackets: bool) -> Result<(String, &'a Node), String> {
    let mut shown = String::new();
    let mut node = node;
    let mut tokens = tokens(path).into_iter();
    while let Some(token) = tokens.next() {
        let name = match token {
            "." => tokens.next().ok_or("unexpected end of JSON path")?.to_owned(),
            "[" if !allows_brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = tokens.next().ok_or("unexpected end of JSON path")?;
                let inner = quoted
                    .strip_prefix('\'')
                    .and_then(|rest| rest.strip_suffix('\''))
                    .ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                let name = unescape(inner)?;
                match tokens.next() {
                    Some("]") => name,
                    Some(other) => return Err(format!("expected ] but got {other}")),
                    None => return Err("unexpected end of JSON path".to_owned()),
                }
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        if !node.properties.is_empty() {
            node = node.properties.get(&name).ok_or("does not refer to a valid field")?;
            if !shown.is_empty() {
                shown.push('.');
            }
            shown.push_str(&name);
        } else {
            node = node.additional_node().ok_or("does not refer to a valid field")?;
            shown.push_str(&format!("[{name}]"));
        }
    }
    Ok((shown, node))
}

/// The delimiters `.`, `[` and `]`, quoted texts, and what is between them.
fn tokens(path: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '.' | '[' | ']' => 1,
            '\'' => {
                let bytes = rest.as_bytes();
                let close =
                    (1..bytes.len()).find(|at| bytes.get(*at) == Some(&b'\'') && bytes.get(at - 1) != Some(&b'\\'));
                close.map_or(rest.len(), |at| at + 1)
            }
            _ => rest.find(['.', '[', ']']).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(end);
        found.push(token);
        rest = after;
    }
    found
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match rest.next() {
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some(c @ ('\'' | '\\')) => c,
            Some(c) => return Err(format!("invalid string literal: invalid escape char \\{c}")),
            None => return Err("invalid string literal: invalid escape char \\".to_owned()),
        });
    }
    Ok(out)
}
