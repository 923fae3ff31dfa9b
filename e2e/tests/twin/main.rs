//! One body, two stages: each behaviour of a control plane is asked of ours and of a real Kubernetes.
//!
//! ```text
//! tests!(a_name, …) in each module ─▶ embedded::<module>::a_name    kerf-control-plane in this process, over TLS
//!                                  └▶ real::<module>::a_name        etcd, kube-apiserver, controllers, scheduler, kwok
//! ```
//!
//! A stage is one cluster for all tests of this process; each test has a namespace of its own there, named after its module and
//! place, so that even messages with names in them are the same on both. A test that counts things of the whole cluster,
//! nodes above all, is listed after `alone`. Without Go the real half is left out, with its count and the reason.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]
#![expect(clippy::print_stdout, reason = "the counts are for the person who runs the tests")]

mod expect;
mod objects;
mod stage;

mod admission;
mod apply;
mod crud;
mod definitions;
mod deletes;
mod discovery;
mod dryrun;
mod errors;
mod events;
mod jobs;
mod lists;
mod namespaces;
mod nodes;
mod patches;
mod scheduling;
mod subresources;
mod tables;
mod updates;
mod versions;
mod volumes;
mod watch;
mod workloads;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use kerf_e2e::panics;
use kerf_e2e::stages::Which;
use stage::{Stage, Stages};

/// One behaviour.
#[derive(Clone, Copy)]
pub(crate) struct Test {
    pub(crate) name: &'static str,
    pub(crate) body: fn(&Stage),
    /// Nobody else is on the stage meanwhile.
    pub(crate) is_alone: bool,
}

/// Lists the tests of a module. A function that is forgotten here is unused, and the compiler says so.
macro_rules! tests {
    ($($name:ident),* $(,)? $(; alone $($alone:ident),+ $(,)?)?) => {
        pub(crate) const TESTS: &[$crate::Test] = &[
            $($crate::Test { name: stringify!($name), body: $name, is_alone: false },)*
            $($($crate::Test { name: stringify!($alone), body: $alone, is_alone: true },)+)?
        ];
    };
}
pub(crate) use tests;

const MODULES: &[(&str, &[Test])] = &[
    ("discovery", discovery::TESTS),
    ("crud", crud::TESTS),
    ("lists", lists::TESTS),
    ("watch", watch::TESTS),
    ("updates", updates::TESTS),
    ("deletes", deletes::TESTS),
    ("dryrun", dryrun::TESTS),
    ("patches", patches::TESTS),
    ("apply", apply::TESTS),
    ("subresources", subresources::TESTS),
    ("tables", tables::TESTS),
    ("events", events::TESTS),
    ("namespaces", namespaces::TESTS),
    ("admission", admission::TESTS),
    ("definitions", definitions::TESTS),
    ("versions", versions::TESTS),
    ("errors", errors::TESTS),
    ("scheduling", scheduling::TESTS),
    ("nodes", nodes::TESTS),
    ("volumes", volumes::TESTS),
    ("workloads", workloads::TESTS),
    ("jobs", jobs::TESTS),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    panics::keep();
    let stages = Arc::new(Stages::new("twin"));
    let mut trials = Vec::new();
    for which in Which::ALL {
        for (module, tests) in MODULES {
            for (index, test) in tests.iter().enumerate() {
                trials.push(trial(&stages, which, module, index, *test));
            }
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        for line in stages.summary() {
            println!("{line}");
        }
    }
    conclusion.exit_code()
}

fn trial(stages: &Arc<Stages>, which: Which, module: &'static str, index: usize, test: Test) -> Trial {
    let stages = Arc::clone(stages);
    Trial::ignorable_test(format!("{}::{module}::{}", which.name(), test.name), move || {
        // Short enough for every name that a test makes of it, and the same on both stages.
        let namespace = format!("{module}-{}", index + 1);
        match stage::run(&stages, which, &namespace, test) {
            Ok(Some(reason)) => Ok(Completion::ignored_with(reason)),
            Ok(None) => Ok(Completion::Completed),
            Err(message) => Err(Failed::from(message)),
        }
    })
}
