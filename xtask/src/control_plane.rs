//! `cargo xtask control-plane`: a real cluster at hand, to look at what we install there and at what becomes of it.
//!
//! ```text
//! up      builds it on the first day, starts it, prints the line that points kubectl at it
//! down    ends it and throws its data away
//! path    where the binaries and the running one's files are
//! ```
//!
//! Nodes with the annotation `kwok.x-k8s.io/node: fake` get a simulated kubelet.

use anyhow::{Context as _, Result};
use kerf_e2e::control_plane::build::{self, Prepared};
use kerf_e2e::control_plane::standing::{self, Up};
use kerf_e2e::control_plane::{Address, parts};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Copy, Debug, clap::Subcommand)]
enum Verb {
    /// Builds what is missing and starts the control plane in the background.
    Up,
    /// Ends the control plane and clears its data.
    Down,
    /// Builds what is missing and prints where everything lies.
    Path,
}

#[expect(clippy::print_stdout, reason = "what a command answers goes to stdout; progress goes to stderr")]
pub(crate) fn run(args: &Args) -> Result<()> {
    let lines = match args.verb {
        Verb::Up => up()?,
        Verb::Down => down()?,
        Verb::Path => path()?,
    };
    for line in lines {
        println!("{line}");
    }
    Ok(())
}

fn up() -> Result<Vec<String>> {
    Ok(match standing::up(&build::to_stderr).context("the control plane does not start")? {
        Up::Started(address) => told("up", &address),
        Up::AlreadyUp(address) => told("up already", &address),
        Up::Skipped(reason) => vec![format!("# skipped: {reason}")],
    })
}

/// The lines are comments and assignments, so that `eval "$(cargo xtask control-plane up)"` works.
fn told(state: &str, address: &Address) -> Vec<String> {
    vec![
        format!("# Kubernetes {} is {state} at {}", parts::KUBERNETES.version, address.endpoint),
        format!("export KUBECONFIG={}", address.kubeconfig.display()),
    ]
}

fn down() -> Result<Vec<String>> {
    let was_up = standing::down().context("the control plane does not end")?;
    Ok(vec![if was_up { "the control plane is down".to_owned() } else { "no control plane was up".to_owned() }])
}

fn path() -> Result<Vec<String>> {
    let mut lines = match build::prepare(parts::CLUSTER, &build::to_stderr)? {
        Prepared::Ready(binaries) => {
            binaries.iter().map(|(name, path)| format!("{name}\t{}", path.display())).collect()
        }
        Prepared::Skipped(reason) => vec![format!("skipped: {reason}")],
    };
    lines.push(format!("standing\t{}", standing::folder()?.display()));
    Ok(lines)
}
