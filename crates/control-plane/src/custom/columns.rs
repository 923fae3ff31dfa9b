//! JSON paths, as printer columns and selectable fields have them.
//!
//! A path is a row of steps, each from a set of values to another. A step that finds nothing yields nothing; one that cannot
//! be taken at all (an index into an object, or beyond a list's end) ends the search.

use std::cmp::Ordering;

use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// `[2]`, `[-1]`, `[1:3]`, `[::2]`.
    Slice {
        from: Option<i64>,
        until: Option<i64>,
        step: Option<i64>,
        is_index: bool,
    },
    /// `[*]` and `.*`.
    Every,
    /// `..`: everything below.
    Below,
    /// `['a','b']`, `[0,2]`.
    Either(Vec<Vec<Step>>),
    /// `[?(@.type=="Ready")]`.
    Where {
        left: Operand,
        comparison: Comparison,
        right: Operand,
    },
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    /// From the item, `@`.
    Path(Vec<Step>),
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Exists,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Reads `.spec.replicas`. `None` for what is no path.
    pub(super) fn read(text: &str) -> Option<Self> {
        let text = text.strip_prefix('$').unwrap_or(text);
        let mut reader = Reader { rest: text };
        let steps = reader.steps()?;
        reader.rest.is_empty().then_some(Self { steps })
    }

    /// What the path leads to, in order. `None` where it cannot be walked.
    pub(super) fn find<'a>(&self, value: &'a Value) -> Option<Vec<&'a Value>> {
        walk(&self.steps, vec![value])
    }

    /// The first of what the path leads to.
    pub(super) fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.find(value)?.into_iter().next()
    }
}

fn walk<'a>(steps: &[Step], from: Vec<&'a Value>) -> Option<Vec<&'a Value>> {
    steps.iter().try_fold(from, |values, step| take(step, values))
}

fn take<'a>(step: &Step, values: Vec<&'a Value>) -> Option<Vec<&'a Value>> {
    let mut found = Vec::new();
    match step {
        Step::Field(name) => found.extend(values.into_iter().filter_map(|value| value.as_object()?.get(name))),
        Step::Every => {
            for value in values {
                match value {
                    Value::Array(items) => found.extend(items),
                    Value::Object(members) => found.extend(members.values()),
                    _ => {}
                }
            }
        }
        Step::Below => {
            for value in values {
                below(value, &mut found);
            }
        }
        Step::Either(alternatives) => {
            for steps in alternatives {
                found.extend(walk(steps, values.clone())?);
            }
        }
        Step::Slice { from, until, step, is_index } => {
            for value in values.into_iter().filter(|value| !value.is_null()) {
                let items = value.as_array()?;
                let n_items = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let wrap = |at: i64| if at < 0 { at.saturating_add(n_items) } else { at };
                let start = wrap(from.unwrap_or(0));
                let end = if *is_index { start.saturating_add(1) } else { wrap(until.unwrap_or(n_items)) };
                if start == end {
                    continue;
                }
                let (start, end) = (usize::try_from(start).ok()?, usize::try_from(end).ok()?);
                let stride = usize::try_from(step.unwrap_or(1)).ok().filter(|stride| *stride > 0)?;
                found.extend(items.get(start..end)?.iter().step_by(stride));
            }
        }
        Step::Where { left, comparison, right } => {
            for value in values {
                let Some(items) = value.as_array() else { continue };
                found.extend(items.iter().filter(|item| holds(left, *comparison, right, item)));
            }
        }
    }
    Some(found)
}

fn below<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    found.push(value);
    match value {
        Value::Array(items) => items.iter().for_each(|item| below(item, found)),
        Value::Object(members) => members.values().for_each(|member| below(member, found)),
        _ => {}
    }
}

fn holds(left: &Operand, comparison: Comparison, right: &Operand, item: &Value) -> bool {
    let value_of = |operand: &Operand| match operand {
        Operand::Literal(value) => Some(value.clone()),
        Operand::Path(steps) => match walk(steps, vec![item])?.as_slice() {
            [one] => Some((*one).clone()),
            _ => None,
        },
    };
    let Some(left) = value_of(left) else { return false };
    if comparison == Comparison::Exists {
        return true;
    }
    let Some(right) = value_of(right) else { return false };
    let order = match (&left, &right) {
        (Value::Number(left), Value::Number(right)) => {
            left.as_f64().unwrap_or_default().partial_cmp(&right.as_f64().unwrap_or_default())
        }
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (left, right) if left == right => Some(Ordering::Equal),
        _ => None,
    };
    match comparison {
        Comparison::Exists => true,
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::NotEqual => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn eat(&mut self, word: &str) -> bool {
        match self.rest.strip_prefix(word) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn steps(&mut self) -> Option<Vec<Step>> {
        let mut steps = Vec::new();
        loop {
            if self.eat("..") {
                steps.push(Step::Below);
                if !self.rest.starts_with('[') {
                    steps.push(self.name()?);
                }
            } else if self.eat(".") {
                // A lone dot is the whole.
                if self.rest.is_empty() {
                    return Some(steps);
                }
                if !self.rest.starts_with('[') {
                    steps.push(self.name()?);
                }
            } else if self.eat("[") {
                steps.push(self.bracket()?);
            } else {
                return Some(steps);
            }
        }
    }

    fn name(&mut self) -> Option<Step> {
        let mut name = String::new();
        let mut rest = self.rest.chars();
        loop {
            let before = rest.as_str();
            match rest.next() {
                Some('\\') => name.extend(rest.next()),
                Some('.' | '[' | ' ' | ')' | '=' | '!' | '<' | '>' | ',' | ']') | None => {
                    self.rest = before;
                    break;
                }
                Some(c) => name.push(c),
            }
        }
        match name.as_str() {
            "" => None,
            "*" => Some(Step::Every),
            _ => Some(Step::Field(name)),
        }
    }

    fn bracket(&mut self) -> Option<Step> {
        if self.eat("*]") {
            return Some(Step::Every);
        }
        if self.eat("?(") {
            return self.filter();
        }
        let mut parts = Vec::new();
        loop {
            let quote = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
            let part = match quote {
                Some(quote) => Step::Field(self.quoted(quote)?),
                None => self.slice()?,
            };
            parts.push(vec![part]);
            if self.eat("]") {
                break;
            }
            if !self.eat(",") {
                return None;
            }
        }
        match parts.as_mut_slice() {
            [one] => one.pop(),
            _ => Some(Step::Either(parts)),
        }
    }

    fn quoted(&mut self, quote: char) -> Option<String> {
        let mut text = String::new();
        let mut rest = self.rest.strip_prefix(quote)?.chars();
        loop {
            match rest.next()? {
                '\\' => text.push(rest.next()?),
                c if c == quote => break,
                c => text.push(c),
            }
        }
        self.rest = rest.as_str();
        Some(text)
    }

    fn slice(&mut self) -> Option<Step> {
        let end = self.rest.find([',', ']'])?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        let number = |text: &str| match text.trim() {
            "" => Some(None),
            text => text.parse::<i64>().ok().map(Some),
        };
        let parts: Vec<&str> = text.split(':').collect();
        Some(match parts.as_slice() {
            [one] => Step::Slice { from: Some(number(one)??), until: None, step: None, is_index: true },
            [from, until] => Step::Slice { from: number(from)?, until: number(until)?, step: None, is_index: false },
            [from, until, step] => {
                Step::Slice { from: number(from)?, until: number(until)?, step: number(step)?, is_index: false }
            }
            _ => return None,
        })
    }

    fn filter(&mut self) -> Option<Step> {
        let left = self.operand()?;
        self.rest = self.rest.trim_start();
        let comparisons = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let comparison = comparisons.into_iter().find(|(word, _)| self.eat(word));
        let (comparison, right) = match comparison {
            Some((_, comparison)) => (comparison, self.operand()?),
            None => (Comparison::Exists, Operand::Literal(Value::Null)),
        };
        self.rest = self.rest.trim_start();
        self.eat(")]").then_some(Step::Where { left, comparison, right })
    }

    fn operand(&mut self) -> Option<Operand> {
        self.rest = self.rest.trim_start();
        if self.eat("@") {
            return self.steps().map(Operand::Path);
        }
        if let Some(quote) = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"')) {
            return self.quoted(quote).map(|text| Operand::Literal(text.into()));
        }
        let end = self.rest.find([' ', ')', '=', '!', '<', '>'])?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        serde_json::from_str(text).ok().map(Operand::Literal)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_where_the_server_s_paths_lead() {
        let object = json!({
            "metadata": { "labels": { "a.b/c": "dotted", "x": "plain" } },
            "spec": { "replicas": 3, "list": [{ "n": 1 }, { "n": 2 }, { "n": 3 }] },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "Other", "status": "False" }] },
        });
        let rows = [
            (".spec.replicas", json!([3])),
            (".metadata.labels.a\\.b/c", json!(["dotted"])),
            (".metadata.labels['a.b/c']", json!(["dotted"])),
            (".metadata.labels[\"x\"]", json!(["plain"])),
            (".spec.list[0].n", json!([1])),
            (".spec.list[-1].n", json!([3])),
            (".spec.list[1:].n", json!([2, 3])),
            (".spec.list[*].n", json!([1, 2, 3])),
            (".spec.list[0,2].n", json!([1, 3])),
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".status.conditions[?(@.type == 'Other')].status", json!(["False"])),
            (".spec.list[?(@.n>1)].n", json!([2, 3])),
            (".spec..n", json!([1, 2, 3])),
            (".missing.field", json!([])),
        ];
        for (path, expected) in rows {
            let found = JsonPath::read(path).unwrap_or_else(|| panic!("{path} is a path")).find(&object).unwrap();
            assert_eq!(json!(found), expected, "{path}");
        }
        assert_eq!(JsonPath::read(".spec.list[7]").unwrap().find(&object), None);
        for path in [".a[", ".a[?(", "a b", ".a['x]"] {
            assert_eq!(JsonPath::read(path), None, "{path}");
        }
    }
}
