//! The objects, in the order and the shape that people write them in.

use super::arguments::Language;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;

pub(super) fn write(out: &mut impl Write, objects: Vec<Value>, language: Language) -> anyhow::Result<()> {
    match language {
        Language::Yaml => {
            for object in &objects {
                write!(out, "---\n{}", document(object))?;
            }
        }
        // What kubectl apply reads.
        Language::Json => {
            serde_json::to_writer_pretty(&mut *out, &json!({"apiVersion": "v1", "kind": "List", "items": objects}))?;
            writeln!(out)?;
        }
    }
    Ok(())
}

/// YAML that reads the same in 1.1, as kubectl has it, and in 1.2: in the older one `on`, `1_000` and `1:30` are no strings. The library
/// that we read YAML with puts quotes only where 1.2 needs them.
fn document(object: &Value) -> String {
    let mut text = String::new();
    put(&mut text, object, 0);
    text.trim_start().to_owned() + "\n"
}

/// Writes what stands behind a key or a dash, with the space or the line break before it.
fn put(text: &mut String, value: &Value, indent: usize) {
    let margin = "  ".repeat(indent);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            // In order, whatever order `serde_json` was built to keep.
            for (name, field) in fields.iter().collect::<BTreeMap<_, _>>() {
                text.push_str(&format!("\n{margin}{}:", in_line(name)));
                // A list begins below the first letter of its name.
                put(text, field, if field.is_array() { indent } else { indent + 1 });
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                text.push_str(&format!("\n{margin}-"));
                let begin = text.len();
                put(text, item, indent + 1);
                // `- key: value`, `- - item`
                if matches!(item, Value::Object(_) | Value::Array(_)) && text[begin..].starts_with('\n') {
                    text.replace_range(begin..=begin + margin.len() + 2, " ");
                }
            }
        }
        Value::Object(_) => text.push_str(" {}"),
        Value::Array(_) => text.push_str(" []"),
        Value::String(content) if is_block(content) => {
            let (lines, sign) = content.strip_suffix('\n').map_or((content.as_str(), "-"), |lines| (lines, ""));
            text.push_str(&format!(" |{sign}"));
            for line in lines.split('\n') {
                text.push('\n');
                // An empty line stays empty.
                text.push_str(if line.is_empty() { "" } else { &margin });
                text.push_str(line);
            }
        }
        Value::String(content) => text.push_str(&format!(" {}", in_line(content))),
        other => text.push_str(&format!(" {other}")),
    }
}

/// Whether it is text of several lines that can be shown as such.
fn is_block(text: &str) -> bool {
    let begins_well = !text.starts_with([' ', '\t', '\n']);
    let is_shown = |c: char| c == '\n' || c == '\t' || is_printable(c);
    text.contains('\n') && begins_well && !text.ends_with("\n\n") && text.chars().all(is_shown)
}

/// As plain as it can be while it stays a string.
fn in_line(text: &str) -> String {
    if is_plain(text) {
        text.to_owned()
    } else if text.chars().all(is_printable) {
        format!("'{}'", text.replace('\'', "''"))
    } else {
        let escaped = |c: char| match c {
            '"' | '\\' => format!("\\{c}"),
            '\n' => "\\n".to_owned(),
            '\t' => "\\t".to_owned(),
            c if is_printable(c) => c.to_string(),
            c => format!("\\U{:08X}", u32::from(c)),
        };
        format!("\"{}\"", text.chars().map(escaped).collect::<String>())
    }
}

fn is_printable(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Whether nobody takes it for anything but this string. Says no in doubt: quotes harm nobody.
fn is_plain(text: &str) -> bool {
    /// What YAML 1.1 takes for a boolean or for nothing, in small letters.
    const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let begins_well = text.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '/' | '_' | '$'));
    let is_marked = text.contains(": ") || text.contains(" #") || text.ends_with([':', ' ']);
    // Numbers of any base, instants, and sixtieths such as 1:30.
    let is_numeric = text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_hexdigit() || "+-._:xoXOTtZz ".contains(c));
    let is_word = WORDS.contains(&text.to_lowercase().as_str());
    begins_well && !is_marked && !is_numeric && !is_word && text.chars().all(is_printable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_older_readers_take_for_something_else_is_quoted() {
        for text in [
            "on",
            "Off",
            "y",
            "N",
            "yes",
            "NO",
            "true",
            "null",
            "~",
            "",
            "1_000",
            "12_3.5",
            "0o7",
            "0b1",
            "1:30",
            "190:20:30",
            "1",
            "1.5",
            "1e3",
            "0x1F",
            "-1",
            "+1",
            ".5",
            ".inf",
            ".nan",
            "2023-01-01",
            "2023-01-01T00:00:00Z",
            "=",
            "<<",
            "- a",
            "a: b",
            "a #b",
            "a:",
            "*a",
            "&a",
            "!a",
            "%a",
            "@a",
            "`a",
            "{a",
            "[a",
            "|",
            ">",
            "?",
            "---",
            "...",
            " a",
            "a ",
            "it's",
            "'a'",
            "\"a\"",
            "1_000:30",
        ] {
            let is_quoted = |written: &str| written.starts_with('\'') && written.ends_with('\'');
            assert!(is_quoted(&in_line(text)) || text == "it's", "{text:?}: {}", in_line(text));
        }
    }

    #[test]
    fn what_everybody_reads_alike_has_no_quotes() {
        for text in
            ["karpenter.sh/v1", "al2023@latest", "20Gi", "100m", "10%", "720h", "c5.large", "online", "nobody", "it's"]
        {
            assert_eq!(in_line(text), text);
        }
    }

    #[test]
    fn it_reads_back_as_it_was() {
        let texts = [
            "a\nb",
            "a\nb\n",
            "a\n\n",
            "\na",
            " a\nb",
            "\ta\nb",
            "a\n\tb\n  c \n\nd",
            "\n",
            "a\rb",
            "a\tb",
            "\u{7f}\u{85}\u{2028}",
            "\u{feff}",
            "ü: \"ö\"",
            "back\\slash\n\0",
            "#!/bin/sh\necho 'a: b' # c\n",
            "😀",
        ];
        let object = json!({
            "texts": texts,
            "nested": [[1, [2, -3.5]], [], {}, [{"a": {"b": [{"c": null, "d": true}], "e": "x\ny"}}], {"f": ["g\nh\n"], "i": {}}],
            "on": {"1:30": "off", "a\nb": u64::MAX, "": i64::MIN},
        });
        let read: Value = serde_norway::from_str(&document(&object)).unwrap();
        assert_eq!(read, object, "{}", document(&object));
    }
}
