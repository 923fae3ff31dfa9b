//! `cargo xtask e2e`: the visits that take a stage of their own, one by one. `cargo xtask test` makes them all.

use crate::toolbox;
use anyhow::{Context as _, Result, bail};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    stage: Stage,
}

#[derive(Debug, clap::Subcommand)]
enum Stage {
    /// The AWS provider on an emulated account, with a cluster and kubelets that join (needs python3 with pip; Go for the real cluster).
    Aws {
        /// Only tests whose names contain this.
        filter: Option<String>,
    },
    /// The operator on our control plane and on a real one.
    Operator {
        /// Only tests whose names contain this.
        filter: Option<String>,
    },
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let (target, filter) = match &args.stage {
        Stage::Aws { filter } => ("aws", filter),
        Stage::Operator { filter } => ("operator", filter),
    };
    let mut command = toolbox::cargo();
    command.args(["test", "--locked", "--package", "kerf-e2e", "--test", target, "--"]).args(filter);
    let status = command.status().with_context(|| format!("`{}` does not start", toolbox::typed(&command)))?;
    if !status.success() {
        bail!("the {target} stage failed; to repeat it: {}", toolbox::typed(&command));
    }
    Ok(())
}
