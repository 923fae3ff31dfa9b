//! One body, two clusters: what the operator does, as a process, on ours and on a real Kubernetes.
//!
//! ```text
//! kerf run --cloud kwok ─▶ embedded    kerf-control-plane in this process, over TLS
//! kerf run --cloud kwok ─▶ real        etcd, kube-apiserver, controllers, scheduler, kwok
//!      ▲                                  ▲
//!      └─ metrics, explanations ─ tests ──┴─ stock kubectl, and a plain client
//! ```
//!
//! Each test has a namespace of its own and a NodePool of the same name, to which its pods are tied by their node selector, so that several
//! run beside each other under one operator. A test that ends the operator is listed after `alone`. Without Go the real half is left
//! out, with its count and the reason.
//!
//! `regression` says which test keeps which behaviour of upstream's own suite. A test that fails is repeated once: see `kerf_e2e::repeat`.
//!
//! On the real one the operator works as the service account of `deploy/rbac`, and has to make do with its rights: see `rights`.
//!
//! Not for: decisions (`engine`), nor what only time shows (`controllers/tests`, under a virtual clock).

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]
#![expect(clippy::print_stdout, reason = "the counts are for the person who runs the tests")]

mod process;
mod scene;
mod stage;

mod admission;
mod buffers;
mod claims;
mod commands;
mod crowd;
mod documents;
mod explain;
mod leadership;
mod provisioning;
mod regression;
mod removal;
mod rights;
mod silence;
mod spread;
mod static_capacity;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use kerf_e2e::panics;
use kerf_e2e::stages::Which;
use stage::{Stage, Stages};

/// Tests wait far more than they work, and so do the clusters.
const TESTS_AT_ONCE: usize = 8;

/// One behaviour.
#[derive(Clone, Copy)]
pub(crate) struct Test {
    pub(crate) name: &'static str,
    pub(crate) body: fn(&Stage<'_>),
    /// Nobody else is on the stage meanwhile.
    pub(crate) is_alone: bool,
    /// For what the other stage has no part for.
    pub(crate) only: Option<Which>,
}

/// Lists the tests of a module. A function that is forgotten here is unused, and the compiler says so.
macro_rules! tests {
    ($($name:ident),* $(,)? $(; alone $($alone:ident),+ $(,)?)? $(; only $which:ident $($there:ident),+ $(,)?)?) => {
        pub(crate) const TESTS: &[$crate::Test] = &[
            $($crate::Test { name: stringify!($name), body: $name, is_alone: false, only: None },)*
            $($($crate::Test { name: stringify!($alone), body: $alone, is_alone: true, only: None },)+)?
            $($($crate::Test {
                name: stringify!($there),
                body: $there,
                is_alone: true,
                only: Some(kerf_e2e::stages::Which::$which),
            },)+)?
        ];
    };
}
pub(crate) use tests;

/// Those that wait longest go first.
const MODULES: &[(&str, &[Test])] = &[
    ("removal", removal::TESTS),
    ("buffers", buffers::TESTS),
    ("documents", documents::TESTS),
    ("provisioning", provisioning::TESTS),
    ("claims", claims::TESTS),
    ("static", static_capacity::TESTS),
    ("admission", admission::TESTS),
    ("commands", commands::TESTS),
    ("explain", explain::TESTS),
    ("leadership", leadership::TESTS),
    ("silence", silence::TESTS),
    ("crowd", crowd::TESTS),
    ("spread", spread::TESTS),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(TESTS_AT_ONCE);
    panics::keep();
    let stages = Arc::new(Stages::new("operator"));
    let mut trials = Vec::new();
    // Module by module, so that both clusters are at work from beginning to end.
    for (module, tests) in MODULES {
        for which in Which::ALL {
            let here = |test: &Test| test.only.is_none_or(|only| only == which);
            for (index, test) in tests.iter().enumerate().filter(|(_, test)| here(test)) {
                trials.push(trial(&stages, which, module, index, *test));
            }
        }
    }
    if std::env::var_os("KERF_LONG").is_some() {
        trials.extend(crowd::LONG.iter().map(|test| trial(&stages, Which::Real, "held", 0, *test)));
    }
    trials.push(Trial::test("every_behaviour_of_the_regression_suite_has_a_test", || {
        regression::check().map_err(Failed::from)
    }));
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Afterwards: it judges what all of the others made the operator do.
    let judged = libtest_mimic::run(&arguments, vec![rights::trial(&stages)]);
    if !arguments.list {
        for line in stages.summary() {
            println!("{line}");
        }
        println!("{}", regression::told());
    }
    if conclusion.has_failed() { conclusion.exit_code() } else { judged.exit_code() }
}

fn trial(stages: &Arc<Stages>, which: Which, module: &'static str, index: usize, test: Test) -> Trial {
    let stages = Arc::clone(stages);
    Trial::ignorable_test(format!("{}::{module}::{}", which.name(), test.name), move || {
        // Short, for it is the name of a pool and so a part of every node's name.
        let namespace = format!("{module}-{}", index + 1);
        match stage::run(&stages, which, &namespace, test) {
            Ok(Some(reason)) => Ok(Completion::ignored_with(reason)),
            Ok(None) => Ok(Completion::Completed),
            Err(message) => Err(Failed::from(message)),
        }
    })
}
