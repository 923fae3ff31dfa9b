//! The AWS provider, end to end: our operator as a process, an emulated account, a cluster, and kubelets that join as their user data says.
//!
//! ```text
//! kerf run --cloud aws ─▶ emulator (moto)      CreateFleet, queue, images … judged by a policy where a test sets one
//!        │                    ▲
//!        ▼                    └── registrar ── a Node for every machine that runs, from its launch template's user data
//!     cluster ◀──────────────────────┘
//!        ▲
//!        └── tests: kubectl, a plain client, the account from outside
//! ```
//!
//! Each test has an account and a cluster of its own; what a test leaves behind in the account is a failure. The story of `life` is
//! told on a real Kubernetes, the others on ours. Without python3, pip or Go tests are left out, with the reason.
//!
//! Not for: what one call looks like, or what a class means (`cloud-aws`).

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]
#![expect(clippy::print_stdout, reason = "the counts are for the person who runs the tests")]

mod bench;
mod interruption;
mod life;
mod manifests;
mod policies;
mod process;
mod stage;
mod start;
mod stock;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use stage::{Counts, Needs, Stage};

/// Two machines' worth of work each: emulator, cluster, operator.
const TESTS_AT_ONCE: usize = 3;

/// One behaviour.
#[derive(Clone, Copy)]
pub(crate) struct Test {
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    pub(crate) body: fn(&mut Stage),
}

/// Those that take longest go first.
const TESTS: &[&[Test]] = &[life::TESTS, interruption::TESTS, policies::TESTS, start::TESTS, stock::TESTS];

fn main() -> ExitCode {
    // `cargo xtask bench aws` asks for numbers instead.
    if let Some(file) = std::env::var_os("KERF_BENCH_AWS") {
        return bench::run(std::path::Path::new(&file));
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(TESTS_AT_ONCE);
    kerf_e2e::panics::keep();
    let counts = Arc::new(Counts::default());
    let trials = TESTS.iter().copied().flatten().map(|test| trial(&counts, *test)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        println!("{}", counts.summary());
    }
    conclusion.exit_code()
}

fn trial(counts: &Arc<Counts>, test: Test) -> Trial {
    let counts = Arc::clone(counts);
    let run_once_more = move |counts: &Counts| match stage::run(counts, test) {
        // An account, a cluster and an operator on a shared machine: one failure may be bad luck, and is told; two are a defect.
        Err(first) => {
            println!("!!! {}: failed, and is repeated:\n{first}", test.name);
            stage::run(counts, test).inspect(|_| println!("!!! {}: failed once, passed when repeated", test.name))
        }
        answer => answer,
    };
    Trial::ignorable_test(test.name, move || match run_once_more(&counts) {
        Ok(Some(reason)) => Ok(Completion::ignored_with(reason)),
        Ok(None) => Ok(Completion::Completed),
        Err(message) => Err(Failed::from(message)),
    })
}
