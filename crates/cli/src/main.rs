//! The porch: the one binary, `kerf`.
//!
//! ```text
//! arguments ─▶ input (files) ─▶ mirror ─▶ Snapshot ─▶ engine ─▶ output (text, json, yaml)
//!                                  ▲
//!                                  └── supply (catalogues)
//! run: settings ─▶ client, cloud ─▶ the shell of kerf-controllers, until it is asked to stop
//! ```

mod arguments;
mod aws_check;
mod convert;
mod explain;
mod input;
mod instance_types;
mod live;
mod output;
mod plan;
mod run;
mod supply;
mod up;

use arguments::{Arguments, Command};
use clap::{CommandFactory, FromArgMatches};
use std::io::Write;
use std::process::ExitCode;

/// Objects are read on one thread and let go on another, by the ten thousand at a start: there this one is twice as quick as the
/// system's. All threads share one arena (`.cargo/config.toml`), so that what one lets go of another takes: a large playground takes a
/// tenth less than with an arena for each.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What the exit status says. `--help` tells the user the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Done; for `plan`: every pod has a place.
    Done,
    /// Some pods stay pending; for `convert`: some of it has no equivalent.
    Pending,
    /// Something that is needed is missing.
    Lacking,
}

fn main() -> ExitCode {
    let arguments = match parse() {
        Ok(arguments) => arguments,
        // Help and version are answers, anything else is a mistake of usage. clap's own status for it, 2, means
        // something else here.
        Err(error) => {
            let is_mistake = error.use_stderr();
            let _ = error.print();
            return if is_mistake { ExitCode::from(1) } else { ExitCode::SUCCESS };
        }
    };
    // Their words go to standard output from several threads: nobody else may hold it.
    match &arguments.command {
        Command::Run(arguments) => return ended(run::run(arguments).map(|()| Outcome::Done)),
        Command::Up(arguments) => return ended(up::run(arguments).map(|()| Outcome::Done)),
        _ => {}
    }
    let mut stdout = std::io::BufWriter::new(std::io::stdout().lock());
    let outcome = match arguments.command {
        Command::Plan(arguments) => plan::run(&arguments, &mut stdout),
        Command::Convert(arguments) => convert::run(&arguments, &mut stdout),
        Command::Crds(arguments) => crds(&arguments, &mut stdout),
        Command::Explain(arguments) => explain::run(&arguments, &mut stdout),
        Command::Aws(command) => aws_check::run(&command, &mut stdout),
        Command::InstanceTypes(arguments) => instance_types::run(&arguments, &mut stdout),
        Command::Run(_) | Command::Up(_) => unreachable!("they have their own way out, above"),
    };
    ended(outcome.and_then(|outcome| Ok(stdout.flush().map(|()| outcome)?)))
}

fn ended(outcome: anyhow::Result<Outcome>) -> ExitCode {
    match outcome {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Pending) => ExitCode::from(2),
        Ok(Outcome::Lacking) => ExitCode::from(1),
        // Whoever closes the pipe has seen enough.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "kerf: {error:#}");
            ExitCode::from(1)
        }
    }
}

/// As a kubectl plugin the binary is called `kubectl-kerf`, and should call itself what the user typed.
fn parse() -> Result<Arguments, clap::Error> {
    let mut command = Arguments::command();
    let called = std::env::args_os().next().map(std::path::PathBuf::from);
    let stem = called.as_deref().and_then(|path| path.file_stem()).and_then(|stem| stem.to_str());
    if stem == Some("kubectl-kerf") || stem == Some("kubectl_kerf") {
        command = command.bin_name("kubectl kerf");
    }
    Arguments::from_arg_matches(&command.try_get_matches()?)
}

fn crds(arguments: &arguments::CrdsArguments, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let kind = match &arguments.kind {
        None => None,
        Some(word) => Some(kerf_api::Kind::from_word(word).ok_or_else(|| {
            let known: Vec<&str> = kerf_api::Kind::ALL.iter().map(|kind| kind.name()).collect();
            anyhow::anyhow!("there is no kind {word:?}; there are {}", known.join(", "))
        })?),
    };
    write!(out, "{}", kerf_api::crds_yaml(kind))?;
    Ok(Outcome::Done)
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
