//! Expressions in kubelet settings, evaluated for each instance type (gate `NodeClassCEL`).
//!
//! The language is CEL, read and run by the `cel` crate. Ours are the variables, `min` and `max`, what becomes of the result (a whole
//! number), and the limits: an expression that is too large, or could take too long, is refused before it is begun.

use super::cost;
use crate::limits::EXPRESSION_STACK_BYTES;
use crate::memory::Memory;
use cel::extractors::Arguments;
use cel::{Context, Env, ExecutionError, Program, Value};
use kerf_cloud::EXPRESSION_THREAD;
use kerf_cloud::aws::TypeFacts;
use kerf_model::{Text, UnixMillis};
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// A class that is in use evaluates its expressions far more often than this.
const REMEMBERED_FOR: Duration = Duration::from_secs(12 * 3600);

/// Deeper expressions are evaluated on a stack of their own: each call within a call may take 35 KiB, where it was not optimised.
const SHALLOW: usize = 16;

pub(super) struct Expressions {
    env: Arc<Env>,
    programs: Memory<Text, Arc<Readied>>,
}

struct Readied {
    program: Program,
    depth: usize,
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

    fn program(&self, text: &Text, now: UnixMillis) -> Result<Arc<Readied>, String> {
        if let Some(program) = self.programs.get(text, now) {
            self.programs.touch(text, now);
            return Ok(program);
        }
        self.programs.expired(now);
        cost::check_text(text)?;
        let program = Arc::new(on_large_stack(|| self.read(text))??);
        self.programs.put(text.clone(), program.clone(), now);
        Ok(program)
    }

    fn read(&self, text: &str) -> Result<Readied, String> {
        let program = self.env.compile(text).map_err(|errors| errors.to_string())?;
        let depth = cost::check_tree(program.expression())?;
        Ok(Readied { program, depth })
    }

    fn run(&self, readied: &Readied, variables: &Variables<'_>) -> Result<Value, ExecutionError> {
        if readied.depth <= SHALLOW {
            return self.execute(&readied.program, variables);
        }
        let failed = |message| ExecutionError::FunctionError { function: "expression".to_owned(), message };
        on_large_stack(|| self.execute(&readied.program, variables)).map_err(failed)?
    }

    fn execute(&self, program: &Program, variables: &Variables<'_>) -> Result<Value, ExecutionError> {
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

/// Parser and interpreter call themselves, and need more stack than there is where plans are made.
fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(EXPRESSION_THREAD.to_owned()).stack_size(EXPRESSION_STACK_BYTES);
        let thread = thread.spawn_scoped(scope, work).map_err(|error| format!("there is no thread for it: {error}"))?;
        thread.join().map_err(|_| "it met a defect of the interpreter".to_owned())
    })
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

    fn nested(n: usize, open: &str, inside: &str, close: &str) -> String {
        format!("{}{inside}{}", open.repeat(n), close.repeat(n))
    }

    #[test]
    fn an_expression_that_is_too_large_or_could_take_too_long_is_refused_before_it_is_begun() {
        let tens = "[1,2,3,4,5,6,7,8,9,10]";
        let each =
            |depth: usize| (0..depth).fold("1".to_owned(), |inside, n| format!("size({tens}.map(x{n}, {inside}))"));
        let doubled =
            |n: usize| (0..n).fold("['aaaaaaaa']".to_owned(), |inside, n| format!("{inside}.map(x{n}, x{n} + x{n})"));
        for (text, part) in [
            (nested(25, "(", "1", ")"), "deep"),
            (nested(25, "[", "1", "]"), "deep"),
            (nested(250, "(", "1", ")"), "operators, brackets"),
            ("1".to_owned() + &"+1".repeat(300), "operators, brackets"),
            ("1".to_owned() + &"+1".repeat(100), "100 is the limit"),
            ("-".repeat(300) + "1", "operators, brackets"),
            ("!".repeat(300) + "true", "operators, brackets"),
            ("vcpus ".repeat(500), "bytes"),
            (each(3), "steps"),
            (nested(20, "[1].map(x, ", "1", ")"), "steps"),
            (each(5), "steps"),
            (format!("size({}[0])", doubled(9)), "steps"),
            (format!("{tens}.all(a, {tens}.all(b, {tens}.all(c, {tens}.all(d, true)))) ? 1 : 2"), "steps"),
        ] {
            let began = std::time::Instant::now();
            let error = evaluate(&text).unwrap_err();
            assert!(error.contains(part) && error.contains("limit"), "{text}: {error}");
            assert!(began.elapsed() < Duration::from_secs(5), "{text}");
            assert_eq!(Expressions::new().compile(&text.as_str().into(), NOW), Err(error));
        }
    }

    #[test]
    fn what_people_write_is_far_below_the_limits() {
        let names: Vec<String> = (0..40).map(|n| format!("'m{n}.4xlarge'")).collect();
        for (text, expected) in [
            ("min(110, max(10, default_enis * (ips_per_eni - 1) + 2))".to_owned(), 29),
            (
                "instance_type.startsWith('m5.') || instance_type.startsWith('c5.') ? vcpus * 8 : vcpus * 4".to_owned(),
                16,
            ),
            (format!("instance_type in [{}] ? 1 : 2", names.join(", ")), 2),
            ("[2, 4, 8, 16].exists(n, n == vcpus) ? 1 : 2".to_owned(), 1),
            (nested(24, "(", "vcpus", ")"), 2),
            ("1".to_owned() + &"+1".repeat(98), 99),
        ] {
            assert_eq!(evaluate(&text), Ok(expected), "{text}");
        }
    }

    /// On a stack half as large as that of the threads that the operator thinks on.
    #[test]
    fn the_largest_expression_that_is_read_needs_little_stack() {
        let deepest = nested(24, "(-(!(vcpus > 0) ? 1 : 2) + ", "1", ")").replacen("(-(", "(", 0);
        let texts = [
            nested(24, "(", "1", ")"),
            nested(24, "[", "1", "]"),
            nested(12, "(vcpus > 1 ? (", "1", ") : 2)"),
            "1".to_owned() + &"+1".repeat(98),
            "1".to_owned() + &"+1".repeat(255),
            "-".repeat(255) + "1",
            nested(24, "min(1, ", "1", ")"),
            nested(24, "[1].map(x, ", "1", ")"),
            "1".to_owned() + &"?1:1".repeat(100),
            "true".to_owned() + &"&&true".repeat(120),
            "a".to_owned() + &".a".repeat(255),
            deepest,
        ];
        let on_small_stack = std::thread::Builder::new().stack_size(1 << 20).spawn(move || {
            for text in texts {
                let began = std::time::Instant::now();
                // Whether it makes sense is not the question.
                let _ = evaluate(&text);
                assert!(began.elapsed() < Duration::from_secs(5), "{text}");
            }
        });
        on_small_stack.unwrap().join().unwrap();
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]
        #[test]
        fn no_expression_panics_or_takes_long(words in proptest::collection::vec(proptest::sample::select(WORDS.to_vec()), 1..60)) {
            let began = std::time::Instant::now();
            let _ = evaluate(&words.concat());
            proptest::prop_assert!(began.elapsed() < Duration::from_secs(5), "{}", words.concat());
        }
    }

    const WORDS: [&str; 48] = [
        "vcpus",
        "memory_mib",
        "max_pods",
        "instance_type",
        "1",
        "0",
        "-9223372036854775808",
        "9223372036854775807u",
        "1e308",
        "'a'",
        "b'\\xff'",
        "true",
        "null",
        " ",
        "+",
        "-",
        "*",
        "/",
        "%",
        "==",
        "<",
        "&&",
        "||",
        "!",
        "?",
        ":",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ".",
        "min(",
        "max(",
        "int(",
        "uint(",
        "double(",
        "string(",
        "size(",
        ".map(x, ",
        ".all(x, ",
        ".exists_one(x, ",
        ".filter(x, x",
        ".contains(",
        "duration('1h')",
        " in ",
    ];
}
