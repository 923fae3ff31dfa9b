//! What changed between two trees, in the form in which the real server shows it: Go's way of printing structures.

use serde_json::Value;

/// The changed lines of `type_name`, each side with its sign.
///
/// The real server prints Go structures with the names of their types; a tree knows only its fields. The fields that
/// changed are named and shown with both values, the unchanged ones are counted.
pub(super) fn between(type_name: &str, before: &Value, after: &Value) -> String {
    let mut lines = vec![format!("  core.{type_name}{{")];
    let empty = serde_json::Map::new();
    let (old, new) = (before.as_object().unwrap_or(&empty), after.as_object().unwrap_or(&empty));
    let mut keys: Vec<&String> = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))).collect();
    keys.sort();
    let mut n_same = 0;
    for key in keys {
        let (was, is) = (old.get(key), new.get(key));
        if was == is {
            n_same += 1;
            continue;
        }
        let field = go_name(key);
        lines.push(format!("- \t{field}: {},", show(was)));
        lines.push(format!("+ \t{field}: {},", show(is)));
    }
    if n_same > 0 {
        lines.push(format!("  \t... // {n_same} identical fields"));
    }
    lines.push("  }\n".to_owned());
    lines.join("\n")
}

fn go_name(key: &str) -> String {
    let mut letters = key.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn show(value: Option<&Value>) -> String {
    value.map_or_else(|| "nil".to_owned(), ToString::to_string)
}
