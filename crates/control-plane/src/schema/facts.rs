//! Reads `facts.txt`: what the JSON schemas of the built-in types leave out.

use std::collections::BTreeMap;

/// The facts about one type, by its full OpenAPI name.
#[derive(Debug, Default)]
pub(super) struct TypeFacts<'a> {
    pub(super) atomic: bool,
    /// Embedded structs and their fields.
    parts: Vec<(&'a str, &'a str)>,
    fields: BTreeMap<&'a str, FieldFacts<'a>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FieldFacts<'a> {
    pub(super) pointer: bool,
    pub(super) inline: bool,
    pub(super) written_when_empty: bool,
    pub(super) left_out_when_empty: bool,
    pub(super) optional: bool,
    pub(super) go_type: Option<String>,
    pub(super) keys: Vec<&'a str>,
    pub(super) set: bool,
    pub(super) atomic: Option<bool>,
    pub(super) merge: Option<&'a str>,
    pub(super) retain_keys: bool,
    pub(super) replace: bool,
    pub(super) default: Option<&'a str>,
}

impl<'a> TypeFacts<'a> {
    pub(super) fn field(&self, name: &str) -> FieldFacts<'a> {
        self.fields.get(name).cloned().unwrap_or_default()
    }

    /// The embedded struct that Go has a field in.
    pub(super) fn part(&self, field: &str) -> &'a str {
        let holds = |list: &str| match list.strip_prefix('-') {
            Some(others) => !others.split(',').any(|other| other == field),
            None => list.split(',').any(|name| name == field),
        };
        self.parts.iter().find(|(_, list)| holds(list)).map_or("", |(part, _)| part)
    }

    #[cfg(test)]
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.fields.keys().copied()
    }
}

/// Every type that has something to say.
pub(super) fn read(text: &str) -> BTreeMap<String, TypeFacts<'_>> {
    let mut types: BTreeMap<String, TypeFacts<'_>> = BTreeMap::new();
    let mut package = String::new();
    let mut current = String::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            package = full_package(name);
            continue;
        }
        let mut words = line.split_whitespace();
        if !line.starts_with(' ')
            && let Some(name) = words.next()
        {
            let bare = name.trim_end_matches('#');
            current = format!("{package}.{bare}");
            types.entry(current.clone()).or_default().atomic = name.ends_with('#');
        }
        let facts = types.entry(current.clone()).or_default();
        for word in words {
            match word.strip_prefix('^').and_then(|part| part.split_once(':')) {
                Some(part) => facts.parts.push(part),
                None => facts.fields.extend([field(word)]),
            }
        }
    }
    types
}

fn full_package(name: &str) -> String {
    match name {
        "apiextensions.v1" => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1".to_owned(),
        "meta.v1" => "io.k8s.apimachinery.pkg.apis.meta.v1".to_owned(),
        other => format!("io.k8s.api.{other}"),
    }
}

const MARKS: [char; 12] = ['*', '=', '!', '?', '%', ':', '@', '#', '+', '&', '~', '$'];

fn field(word: &str) -> (&str, FieldFacts<'_>) {
    // Two fields of JSONSchemaProps begin with a dollar sign.
    let start = usize::from(word.starts_with('$'));
    let cut = |text: &str, from: usize| text[from..].find(MARKS).map_or(text.len(), |at| from + at);
    let (name, mut rest) = word.split_at(cut(word, start));
    let mut facts = FieldFacts::default();
    while let Some(mark) = rest.chars().next() {
        let body = &rest[1..];
        // A default is the last mark of a word, and a Go type may hold none of the marks but its own brackets.
        let end = if mark == '$' { body.len() } else { cut(body, 0) };
        let (argument, after) = body.split_at(end);
        match mark {
            '*' => facts.pointer = true,
            '=' => facts.inline = true,
            '!' => facts.written_when_empty = true,
            '?' => facts.left_out_when_empty = true,
            '%' => facts.optional = true,
            ':' => facts.go_type = Some(go_type(argument)),
            '@' if argument == "set" => facts.set = true,
            '@' => facts.keys = argument.split(',').collect(),
            '#' => facts.atomic = Some(argument == "atomic"),
            '+' => facts.merge = Some(argument),
            '&' => facts.retain_keys = true,
            '~' => facts.replace = true,
            _ => facts.default = Some(argument),
        }
        rest = after;
    }
    (name, facts)
}

/// `[].Capability` is `[]v1.Capability`.
fn go_type(short: &str) -> String {
    let long = short.replace("{}", "map[string]");
    let mut out = String::with_capacity(long.len() + 4);
    let mut before = None;
    for letter in long.chars() {
        if letter == '.' && !before.is_some_and(|letter: char| letter.is_ascii_alphanumeric()) {
            out.push_str("v1");
        }
        out.push(letter);
        before = Some(letter);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read() {
        let types =
            read("# why\n[core.v1]\nThing# ^Part:a,z ^Rest:-a,b,z a*:.Kind b@x,y+x&\n  c$/etc/x d:{}.Extra $ref*\n");
        let thing = &types["io.k8s.api.core.v1.Thing"];
        assert!(thing.atomic);
        let a = thing.field("a");
        assert!(a.pointer && a.go_type.as_deref() == Some("v1.Kind"));
        assert_eq!(["a", "b", "c"].map(|name| thing.part(name)), ["Part", "", "Rest"]);
        let b = thing.field("b");
        assert!(b.keys == ["x", "y"] && b.merge == Some("x") && b.retain_keys);
        assert_eq!(thing.field("c").default, Some("/etc/x"));
        assert_eq!(thing.field("d").go_type.as_deref(), Some("map[string]v1.Extra"));
        assert!(thing.field("$ref").pointer);
        assert!(!thing.field("unlisted").pointer);
    }
}
