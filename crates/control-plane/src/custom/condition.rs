//! Expressions about plain JSON, each value under a name: what admission policies ask. No schema is at hand, so every value is
//! of any type until it is looked at.

use serde_json::Value;

use super::cel::{self, CompileError, EvalError, Expression, Type, V};

/// A question that is answered with yes or no.
#[derive(Debug)]
pub(crate) struct Condition(Expression);

/// An expression that yields a text.
#[derive(Debug)]
pub(crate) struct Sentence(Expression);

impl Condition {
    /// Reads it, or says why it cannot be read.
    pub(crate) fn read(source: &str, names: &[&str]) -> Result<Self, String> {
        cel::compile_over(source, names, &Type::Bool).map(Self).map_err(|error| said(error, "bool"))
    }

    pub(crate) fn holds(&self, values: &[(&str, &Value)]) -> Result<bool, String> {
        match cel::evaluate_over(&self.0, values) {
            Ok(V::Bool(answer)) => Ok(answer),
            Ok(other) => Err(format!("a {} is neither true nor false", other.type_name())),
            Err(error) => Err(told(error)),
        }
    }
}

impl Sentence {
    pub(crate) fn read(source: &str, names: &[&str]) -> Result<Self, String> {
        cel::compile_over(source, names, &Type::String).map(Self).map_err(|error| said(error, "string"))
    }

    pub(crate) fn says(&self, values: &[(&str, &Value)]) -> Result<String, String> {
        match cel::evaluate_over(&self.0, values) {
            Ok(V::Text(text)) => Ok(text.to_string()),
            Ok(other) => Err(format!("a {} is no text", other.type_name())),
            Err(error) => Err(told(error)),
        }
    }
}

fn said(error: CompileError, wanted: &str) -> String {
    match error {
        CompileError::Issues(issues) => format!("compilation error: compilation failed: {issues}"),
        CompileError::WrongType => format!("compilation error: must evaluate to {wanted}"),
    }
}

fn told(error: EvalError) -> String {
    match error {
        EvalError::Said(text) => text,
        EvalError::TooCostly => "operation cancelled: actual cost limit exceeded".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_reads_maps_lists_and_fields_that_may_be_missing() {
        let object = json!({"metadata": {"name": "n", "labels": {"a.b/c": "yes"}}, "spec": {"taints": [{"key": "k"}, {"key": "l"}], "n": 3, "namespace": "reserved elsewhere"}});
        let null = Value::Null;
        for (source, expected) in [
            ("object.metadata.name == 'n'", Ok(true)),
            ("has(object.metadata.labels) && 'a.b/c' in object.metadata.labels", Ok(true)),
            ("object.metadata.labels['a.b/c'] != 'yes'", Ok(false)),
            ("!has(object.metadata.annotations)", Ok(true)),
            ("object.spec.taints.exists(taint, taint.key == 'l')", Ok(true)),
            ("object.spec.taints.all(taint, taint.key == 'l')", Ok(false)),
            ("size(object.spec.taints) == 2 && object.spec.n < 4", Ok(true)),
            ("object.spec.namespace == 'reserved elsewhere'", Ok(true)),
            ("oldObject == null", Ok(true)),
            ("object.spec.none == 1", Err("no such key: none".to_owned())),
        ] {
            let condition = Condition::read(source, &["object", "oldObject"]).unwrap();
            assert_eq!(condition.holds(&[("object", &object), ("oldObject", &null)]), expected, "{source}");
        }
        assert!(
            Condition::read("params.x == 1", &["object"]).unwrap_err().contains("undeclared reference to 'params'")
        );
        assert!(Condition::read("object.metadata.name", &["object"]).unwrap_err().ends_with("must evaluate to bool"));
        let sentence = Sentence::read("'not ' + string(object.metadata.name)", &["object"]).unwrap();
        assert_eq!(sentence.says(&[("object", &object)]), Ok("not n".to_owned()));
    }
}
