//! Expressions in kubelet settings, evaluated for each instance type (gate `NodeClassCEL`).
//!
//! The language is CEL, read and run by the `cel` crate. Ours are the variables, `min` and `max`, and what becomes of the result:
//! a whole number.

use crate::memory::Memory;
use cel::extractors::Arguments;
use cel::{Context, Env, ExecutionError, Program, Value};
use kerf_cloud::aws::TypeFacts;
use kerf_model::{Text, UnixMillis};
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// A class that is in use evaluates its expressions far more often than this.
const REMEMBERED_FOR: Duration = Duration::from_secs(12 * 3600);

pub(super) struct Expressions {
    env: Arc<Env>,
    programs: Memory<Text, Arc<Program>>,
}

/// What an expression may speak of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variables<'a> {
    pub(super) vcpus: i64,
    pub(super) memory_mib: i64,
    pub(super) default_enis: i64,
    pub(super) ips_per_eni: i64,
    pub(super) max_pods: i64,
    pub(super) instance_type: &'a str,
}

/// Some machine, to see whether an expression makes sense at all.
const SOME: Variables<'static> =
    Variables { vcpus: 2, memory_mib: 8192, default_enis: 3, ips_per_eni: 10, max_pods: 29, instance_type: "m5.large" };

impl<'a> Variables<'a> {
    pub(super) fn new(facts: &'a TypeFacts, max_pods: i64) -> Self {
        Self {
            vcpus: i64::from(facts.vcpus),
            memory_mib: i64::try_from(facts.memory_mib).unwrap_or(i64::MAX),
            default_enis: i64::from(facts.interfaces),
            ips_per_eni: i64::from(facts.addresses_per_interface),
            max_pods,
            instance_type: &facts.name,
        }
    }
}

impl Expressions {
    pub(super) fn new() -> Self {
        Self { env: Arc::new(Env::stdlib()), programs: Memory::new(REMEMBERED_FOR) }
    }

    /// Whether it could be evaluated for some machine. What depends on the machine's figures (a division by zero, say) shows
    /// when it is evaluated for that one.
    pub(super) fn compile(&self, text: &Text, now: UnixMillis) -> Result<(), String> {
        let program = self.program(text, now)?;
        match self.run(&program, &SOME) {
            Ok(value) => whole_number(&value).map(drop),
            Err(
                ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) | ExecutionError::Overflow(..),
            ) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(super) fn evaluate(&self, text: &Text, variables: &Variables<'_>, now: UnixMillis) -> Result<i64, String> {
        let program = self.program(text, now)?;
        let value = self.run(&program, variables).map_err(|error| error.to_string())?;
        whole_number(&value)
    }

    fn program(&self, text: &Text, now: UnixMillis) -> Result<Arc<Program>, String> {
        if let Some(program) = self.programs.get(text, now) {
            self.programs.touch(text, now);
            return Ok(program);
        }
        self.programs.expired(now);
        let program = self.env.compile(text).map_err(|errors| errors.to_string())?;
        let program = Arc::new(program);
        self.programs.put(text.clone(), program.clone(), now);
        Ok(program)
    }

    fn run(&self, program: &Program, variables: &Variables<'_>) -> Result<Value, ExecutionError> {
        let mut context = Context::with_env(self.env.clone());
        for (name, value) in [
            ("vcpus", variables.vcpus),
            ("memory_mib", variables.memory_mib),
            ("default_enis", variables.default_enis),
            ("ips_per_eni", variables.ips_per_eni),
            ("max_pods", variables.max_pods),
        ] {
            context.add_variable_from_value(name, value);
        }
        context.add_variable_from_value("instance_type", variables.instance_type.to_owned());
        context.add_function("min", least).expect("the standard library has no min");
        context.add_function("max", greatest).expect("the standard library has no max");
        program.execute(&context)
    }
}

fn least(Arguments(arguments): Arguments) -> Result<Value, ExecutionError> {
    choose("min", &arguments, Ordering::Less)
}

fn greatest(Arguments(arguments): Arguments) -> Result<Value, ExecutionError> {
    choose("max", &arguments, Ordering::Greater)
}

/// The first of two if it compares so, else the second. Whole numbers stay whole; beside a fraction they become one.
fn choose(function: &str, arguments: &[Value], wanted: Ordering) -> Result<Value, ExecutionError> {
    let wrong = || ExecutionError::FunctionError {
        function: function.to_owned(),
        message: format!("takes two numbers, found {arguments:?}"),
    };
    let number = |value: &Value| match value {
        Value::Int(number) => Ok(*number as f64),
        Value::Float(number) => Ok(*number),
        _ => Err(wrong()),
    };
    match arguments {
        [Value::Int(a), Value::Int(b)] => Ok(Value::Int(if a.cmp(b) == wanted { *a } else { *b })),
        [a, b] => {
            let (a, b) = (number(a)?, number(b)?);
            Ok(Value::Float(if a.total_cmp(&b) == wanted { a } else { b }))
        }
        _ => Err(wrong()),
    }
}

/// Fractions lose what follows the point.
fn whole_number(value: &Value) -> Result<i64, String> {
    match value {
        Value::Int(number) => Ok(*number),
        // Past 2^63 a float has no whole number that we could say.
        Value::Float(number) if number.is_finite() && number.abs() < 9.2e18 => Ok(number.trunc() as i64),
        Value::Float(number) => Err(format!("its result {number} is no number that could be used")),
        other => Err(format!("its result must be an int or a double, found {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(0);

    fn evaluate(text: &str) -> Result<i64, String> {
        Expressions::new().evaluate(&text.into(), &SOME, NOW)
    }

    #[test]
    fn expressions_come_out_as_the_contract_says() {
        for (text, expected) in [
            ("vcpus * 4 + 1", 9),
            ("memory_mib / 100", 81),
            ("min(max_pods, 110)", 29),
            ("max(max_pods, 110)", 110),
            ("min(vcpus, 1.5)", 1),
            ("max(2.9, 1)", 2),
            ("double(memory_mib) * 0.05", 409),
            ("-7.9", -7),
            ("vcpus > 4 ? 50 : 20", 20),
            ("instance_type.startsWith('m5.') ? 1 : 2", 1),
            ("default_enis * (ips_per_eni - 1) + 2", 29),
        ] {
            assert_eq!(evaluate(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_a_whole_number_is_refused() {
        for (text, part) in [
            ("1.0 / 0.0", "no number that could be used"),
            ("instance_type", "must be an int or a double"),
            ("true", "must be an int or a double"),
            ("1 / (vcpus - 2)", "zero"),
            ("min('a', 1)", "takes two numbers"),
            ("min(1)", "takes two numbers"),
        ] {
            let error = evaluate(text).unwrap_err();
            assert!(error.to_lowercase().contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn compiling_finds_what_would_fail_for_every_machine() {
        let expressions = Expressions::new();
        let compile = |text: &str| expressions.compile(&text.into(), NOW);
        assert_eq!(compile("vcpus * 10"), Ok(()));
        // Another machine may have other figures.
        assert_eq!(compile("100 / (vcpus - 2)"), Ok(()));
        for (text, part) in [
            ("vcpus *", ""),
            ("cores * 2", "cores"),
            ("vcpus * 0.5", ""),
            ("'text'", "int or a double"),
            ("ceil(1.5)", "ceil"),
        ] {
            let error = compile(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
