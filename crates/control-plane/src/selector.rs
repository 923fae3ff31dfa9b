//! Label and field selectors: read from a query or from an object, and asked of an object.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::store::Stored;

/// What labels must be like. The empty selector takes everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Labels(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

impl Labels {
    /// Reads `app=web,tier in (a, b),!old`.
    pub fn parse(text: &str) -> Result<Self, String> {
        Parser { tokens: tokens(text), at: 0 }.requirements().map(Self)
    }

    /// Reads a `LabelSelector` object. Null selects nothing, and an empty one everything, as everywhere in Kubernetes.
    #[must_use]
    pub fn of_object(selector: &Value) -> Option<Self> {
        let selector = selector.as_object()?;
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement { key: key.clone(), operator: Operator::In, values: vec![value] });
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let operator = match expression["operator"].as_str()? {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                _ => return None,
            };
            let values = expression["values"].as_array().into_iter().flatten();
            requirements.push(Requirement {
                key: expression["key"].as_str().unwrap_or_default().to_owned(),
                operator,
                values: values.filter_map(Value::as_str).map(str::to_owned).collect(),
            });
        }
        Some(Self(requirements))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn matches(&self, stored: &Stored) -> bool {
        self.0.iter().all(|requirement| requirement.holds(stored.label(&requirement.key)))
    }

    #[must_use]
    pub fn match_map(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| requirement.holds(labels.get(&requirement.key).map(String::as_str)))
    }
}

impl Requirement {
    fn holds(&self, found: Option<&str>) -> bool {
        let listed = || found.is_some_and(|found| self.values.iter().any(|value| value == found));
        let number = |text: &str| text.parse::<i64>().ok();
        let compared = |holds: fn(i64, i64) -> bool| {
            let wanted = self.values.first().and_then(|value| number(value));
            matches!((found.and_then(number), wanted), (Some(found), Some(wanted)) if holds(found, wanted))
        };
        match self.operator {
            Operator::In => listed(),
            Operator::NotIn => !listed(),
            Operator::Exists => found.is_some(),
            Operator::DoesNotExist => found.is_none(),
            Operator::GreaterThan => compared(|found, wanted| found > wanted),
            Operator::LessThan => compared(|found, wanted| found < wanted),
        }
    }
}

/// Words and marks of a selector, and nothing else: white space parts words.
fn tokens(text: &str) -> Vec<String> {
    let is_mark = |letter: char| matches!(letter, '(' | ')' | ',' | '!' | '=' | '<' | '>');
    let mut tokens = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter.is_whitespace() {
            continue;
        }
        let mut token = String::from(letter);
        if matches!(letter, '=' | '!') {
            if letters.peek() == Some(&'=') {
                token.push('=');
                letters.next();
            }
        } else if !is_mark(letter) {
            while let Some(&next) = letters.peek() {
                if is_mark(next) || next.is_whitespace() {
                    break;
                }
                token.push(next);
                letters.next();
            }
        }
        tokens.push(token);
    }
    tokens
}

struct Parser {
    tokens: Vec<String>,
    at: usize,
}

const BINARY: &str = "in, notin, =, ==, !=, gt, lt";

impl Parser {
    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        let token = self.peek().to_owned();
        self.at += 1;
        token
    }

    fn requirements(mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        if self.tokens.is_empty() {
            return Ok(requirements);
        }
        loop {
            if !is_word(self.peek()) && self.peek() != "!" {
                return Err(format!("found '{}', expected: !, identifier, or 'end of string'", self.peek()));
            }
            requirements.push(self.requirement().map_err(|error| format!("unable to parse requirement: {error}"))?);
            match self.next().as_str() {
                "" => return Ok(requirements),
                "," if is_word(self.peek()) || self.peek() == "!" => {}
                "," => return Err(format!("found '{}', expected: identifier after ','", self.peek())),
                other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.peek() == "!";
        if negated {
            self.next();
        }
        let key = self.next();
        if !is_word(&key) {
            return Err(format!("found '{key}', expected: identifier"));
        }
        if let Some(problem) = label_key_problem(&key) {
            return Err(format!("<nil>: Invalid value: \"{key}\": {problem}"));
        }
        if negated {
            return Ok(Requirement { key, operator: Operator::DoesNotExist, values: Vec::new() });
        }
        if matches!(self.peek(), "" | ",") {
            return Ok(Requirement { key, operator: Operator::Exists, values: Vec::new() });
        }
        let found = self.next();
        let (operator, values) = match found.as_str() {
            "=" | "==" => (Operator::In, vec![self.value()?]),
            "!=" => (Operator::NotIn, vec![self.value()?]),
            ">" | "gt" => (Operator::GreaterThan, vec![self.value()?]),
            "<" | "lt" => (Operator::LessThan, vec![self.value()?]),
            "in" => (Operator::In, self.values()?),
            "notin" => (Operator::NotIn, self.values()?),
            other => return Err(format!("found '{other}', expected: {BINARY}")),
        };
        for (index, value) in values.iter().enumerate() {
            if matches!(operator, Operator::GreaterThan | Operator::LessThan) && value.parse::<i64>().is_err() {
                return Err(format!(
                    "values[{index}]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
                ));
            }
            if let Some(problem) = label_value_problem(value) {
                return Err(format!("values[{index}][{key}]: Invalid value: \"{value}\": {problem}"));
            }
        }
        Ok(Requirement { key, operator, values })
    }

    /// One value; none at all means the empty one.
    fn value(&mut self) -> Result<String, String> {
        if matches!(self.peek(), "" | ",") {
            return Ok(String::new());
        }
        let value = self.next();
        if is_word(&value) { Ok(value) } else { Err(format!("found '{value}', expected: identifier")) }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != "(" {
            return Err(format!("found '{open}' expected: '('"));
        }
        let mut values = Vec::new();
        let mut expects_value = true;
        loop {
            let token = self.next();
            match token.as_str() {
                ")" => {
                    if expects_value {
                        values.push(String::new());
                    }
                    values.sort();
                    values.dedup();
                    return Ok(values);
                }
                "," => {
                    if expects_value {
                        values.push(String::new());
                    }
                    expects_value = true;
                }
                word if is_word(word) && expects_value => {
                    values.push(token);
                    expects_value = false;
                }
                other => return Err(format!("found '{other}', expected: ',', ')' or identifier")),
            }
        }
    }
}

fn is_word(token: &str) -> bool {
    token.chars().next().is_some_and(|first| !matches!(first, '(' | ')' | ',' | '!' | '=' | '<' | '>'))
}

const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
                         an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation \
                         is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                     start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                     for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Why a key is none, in the real server's words.
fn label_key_problem(key: &str) -> Option<String> {
    let name = key.rsplit_once('/').map_or(key, |(_, name)| name);
    if name.is_empty() {
        return Some("name part must be non-empty".to_owned());
    }
    if name.len() > 63 {
        return Some("name part must be no more than 63 bytes".to_owned());
    }
    (!is_label_text(name)).then(|| NAME_PART.to_owned())
}

fn label_value_problem(value: &str) -> Option<String> {
    if value.len() > 63 {
        return Some("must be no more than 63 bytes".to_owned());
    }
    (!value.is_empty() && !is_label_text(value)).then(|| VALUE.to_owned())
}

fn is_label_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends_well = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    ends_well(bytes.first())
        && ends_well(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// What fields must be like: `spec.nodeName=a,status.phase!=Running`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields(Vec<FieldTerm>);

#[derive(Clone, Debug, PartialEq)]
struct FieldTerm {
    field: String,
    value: String,
    negated: bool,
}

impl Fields {
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        for part in split_unescaped(text).into_iter().filter(|part| !part.is_empty()) {
            let (at, width, negated) =
                operator_of(&part).ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{part}'"))?;
            let (field, value) = (&part[..at], &part[at + width..]);
            terms.push(FieldTerm { field: field.to_owned(), value: unescape(value), negated });
        }
        Ok(Self(terms))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fields that it asks for.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|term| term.field.as_str())
    }

    /// The one name that can match, where the selector asks for it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.iter().find(|term| term.field == "metadata.name" && !term.negated).map(|term| term.value.as_str())
    }

    /// The one node that pods can be bound to, where the selector asks for it.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        let term = self.0.iter().find(|term| term.field == "spec.nodeName" && !term.negated)?;
        Some(term.value.as_str()).filter(|node| !node.is_empty())
    }

    #[must_use]
    pub fn matches(&self, stored: &Stored) -> bool {
        self.0.iter().all(|term| {
            let found = match term.field.as_str() {
                "metadata.name" => stored.key.name.as_str(),
                "metadata.namespace" => stored.key.namespace.as_str(),
                field => stored.field(field).unwrap_or_default(),
            };
            (found == term.value) != term.negated
        })
    }
}

/// Where the operator begins, how long it is, and whether it negates.
fn operator_of(part: &str) -> Option<(usize, usize, bool)> {
    let at = part.find(['=', '!'])?;
    let rest = &part[at..];
    if rest.starts_with("!=") {
        Some((at, 2, true))
    } else if rest.starts_with("==") {
        Some((at, 2, false))
    } else if rest.starts_with('=') {
        Some((at, 1, false))
    } else {
        None
    }
}

fn split_unescaped(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for letter in text.chars() {
        if letter == ',' && !escaped {
            parts.push(String::new());
            continue;
        }
        escaped = letter == '\\' && !escaped;
        if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    parts
}

fn unescape(value: &str) -> String {
    let mut text = String::new();
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        text.push(if letter == '\\' { letters.next().unwrap_or('\\') } else { letter });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn label_selectors_select() {
        let web = labels(&[("app", "web"), ("tier", "front"), ("size", "7")]);
        for (selector, selected) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier", true),
            ("app!=web", false),
            ("absent!=web", true),
            ("app in (web, api)", true),
            ("app notin (web,api)", false),
            ("!absent", true),
            ("!app", false),
            ("size>6", true),
            ("size < 7", false),
            ("absent in ()", false),
            ("app=", false),
        ] {
            assert_eq!(Labels::parse(selector).unwrap().match_map(&web), selected, "{selector}");
        }
    }

    #[test]
    fn bad_label_selectors_are_told() {
        for (selector, told) in [
            ("a in", "unable to parse requirement: found '' expected: '('"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            (",", "found ',', expected: !, identifier, or 'end of string'"),
            ("a=b,", "found '', expected: identifier after ','"),
            ("a=b)", "found ')', expected: ',' or 'end of string'"),
        ] {
            assert_eq!(Labels::parse(selector).unwrap_err(), told, "{selector}");
        }
    }

    #[test]
    fn field_selectors_are_read() {
        let fields = Fields::parse("spec.nodeName=a,status.phase!=Failed").unwrap();
        assert_eq!(fields.names().collect::<Vec<_>>(), ["spec.nodeName", "status.phase"]);
        assert_eq!(Fields::parse("metadata.name==x").unwrap().name(), Some("x"));
        assert_eq!(Fields::parse("nonsense").unwrap_err(), "invalid selector: 'nonsense'; can't understand 'nonsense'");
    }
}
