//! Requirements, as pools and overlays write them.

use super::names::{is_label_value, is_qualified_name};
use crate::labels::LabelRules;
use crate::objects::Operator;
use crate::problem::Problem;

/// One requirement and where it stands.
pub(super) struct Written<'a> {
    pub(super) path: String,
    pub(super) key: &'a str,
    pub(super) operator: &'a Operator,
    pub(super) values: &'a [String],
    pub(super) min_values: Option<i64>,
}

pub(super) fn check(requirement: &Written<'_>, rules: &LabelRules) -> Vec<Problem> {
    let Written { path, key, operator, values, min_values } = requirement;
    let mut problems = Vec::new();
    let mut say = |field: &str, found: String, wants: String| {
        problems.push(Problem::new(format!("{path}.{field}"), found, wants))
    };

    let key = rules.normalized(key);
    if !is_qualified_name(key) {
        say("key", format!("{key:?}"), "a label key such as example.com/team would do".to_owned());
    }
    if let Some(restriction) = rules.restriction(key) {
        say("key", format!("{key:?}"), restriction.to_string());
    }
    if let Operator::Other(word) = operator {
        say("operator", format!("{word:?}"), format!("one of {} would do", Operator::WORDS.join(", ")));
    }
    if operator.compares_numbers() {
        if !matches!(values, [only] if only.parse::<i64>().is_ok_and(|number| number >= 0)) {
            say(
                "values",
                format!("{values:?}"),
                format!("operator {operator} needs exactly one whole number, not below zero"),
            );
        }
    } else {
        for value in values.iter().filter(|value| !is_label_value(value)) {
            say(
                "values",
                format!("{value:?}"),
                "a label value is at most 63 characters, alphanumeric at both ends".to_owned(),
            );
        }
    }
    if **operator == Operator::In {
        check_in(key, values, *min_values, rules, &mut say);
    }
    problems
}

fn check_in(
    key: &str,
    values: &[String],
    min_values: Option<i64>,
    rules: &LabelRules,
    say: &mut impl FnMut(&str, String, String),
) {
    if values.is_empty() {
        say("values", "none".to_owned(), "operator In needs at least one value".to_owned());
        return;
    }
    let n_min = min_values.unwrap_or(0);
    let known = rules.known_values(key);
    let n_useful = match known {
        Some(known) => values.iter().filter(|value| known.contains(&value.as_str())).count(),
        None => values.len(),
    };
    let n_useful_wide = i64::try_from(n_useful).unwrap_or(i64::MAX);
    match known {
        Some(known) if n_useful == 0 => {
            say("values", format!("{values:?}"), format!("at least one of {} must be there", known.join(", ")))
        }
        _ if n_useful_wide < n_min => say(
            "minValues",
            n_min.to_string(),
            format!("at most {n_useful} would do, which is how many usable values are listed"),
        ),
        _ => {}
    }
}
