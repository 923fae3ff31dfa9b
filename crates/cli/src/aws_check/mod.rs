//! `kerf aws check`: reads an account as the operator would, and says what is missing before anything is installed.
//!
//! ```text
//! rights    one cheap question per call that we make: allowed, denied, or not to be had
//! account   who we are, the cluster, the queue, the role that spot needs
//! classes   each EC2NodeClass resolved by the provider itself, over a wire that only reads
//!    └──────▶ Vec<Finding> ─▶ report: text or JSON; exit status 1 when something that is needed is missing
//! ```
//!
//! Nothing is changed: what the provider would make on its way (an instance profile) is answered as if it had been made.

#[cfg(any(feature = "aws", test))]
mod account;
#[cfg(any(feature = "aws", test))]
mod classes;
#[cfg(any(feature = "aws", test))]
mod look;
#[cfg(any(feature = "aws", test))]
mod read_only;
#[cfg_attr(not(any(feature = "aws", test)), expect(dead_code, reason = "nothing is found without the SDK"))]
mod report;
#[cfg(any(feature = "aws", test))]
mod rights;
#[cfg(test)]
mod tests;

use crate::Outcome;
use crate::input::{self, Sink, Trouble};
use crate::run::aws_arguments::AwsArguments;
use crate::run::aws_settings::AwsSettings;
use crate::run::settings::{Sources, environment};
use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use kerf_cloud_aws::settings::Settings;
use kerf_model::MinValuesPolicy;
use report::Report;
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct AwsCommand {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Check(Box<CheckArguments>),
}

const CHECK_HELP: &str = "\
Region and credentials are those of the AWS SDK: AWS_REGION, AWS_PROFILE, a pod's own role. Run it as the controller's role to learn what
the controller may do.

Exit status:
  0  nothing that is needed is missing
  1  something is, or AWS cannot be asked

Examples:
  kerf aws check --cluster-name demo --interruption-queue demo
  kerf aws check --cluster-name demo -f nodeclass.yaml -o json | jq '.findings[] | select(.verdict == \"missing\")'";

/// Read the account as the operator would, and say what is missing. Nothing is changed.
#[derive(Debug, Args)]
#[command(after_help = CHECK_HELP)]
pub(crate) struct CheckArguments {
    /// EC2NodeClasses to resolve: a file or folder, or "-"; other kinds are passed over. Without it one that selects by the tag
    /// karpenter.sh/discovery=NAME.
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-")]
    pub(crate) files: Vec<PathBuf>,

    /// The cluster's Kubernetes version, such as 1.35. Without it EKS is asked.
    #[arg(long, value_name = "VERSION")]
    pub(crate) kubernetes_version: Option<String>,

    /// How to print what was found.
    #[arg(short = 'o', long = "output", value_enum, default_value_t = Format::Text)]
    pub(crate) output: Format,

    #[command(flatten)]
    pub(crate) aws: AwsArguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

pub(crate) fn run(command: &AwsCommand, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let Verb::Check(arguments) = &command.verb;
    let settings = settings(arguments)?;
    let classes = read_classes(&arguments.files)?;
    let report = ask(settings, classes)?;
    match arguments.output {
        Format::Text => report.write_text(out)?,
        Format::Json => report.write_json(out)?,
    }
    Ok(if report.is_complete() { Outcome::Done } else { Outcome::Lacking })
}

#[cfg(feature = "aws")]
fn ask(mut settings: Settings, classes: Vec<Value>) -> anyhow::Result<Report> {
    use crate::run::aws::connect_sdk;
    use crate::run::clerk::RealTime;
    use anyhow::Context;
    use std::sync::Arc;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(async {
        let sdk = connect_sdk(env!("CARGO_PKG_VERSION")).await?;
        settings.region = sdk.region().to_owned();
        look::check(Arc::new(sdk), settings, classes, Arc::new(RealTime)).await
    })
}

#[cfg(not(feature = "aws"))]
fn ask(_: Settings, _: Vec<Value>) -> anyhow::Result<Report> {
    bail!("`kerf aws check` {}", crate::run::NOT_BUILT_IN)
}

fn settings(arguments: &CheckArguments) -> anyhow::Result<Settings> {
    let mut from = Sources::new(&environment);
    let given = AwsSettings::resolve(&arguments.aws, &mut from);
    let problems = given.problems();
    if !problems.is_empty() {
        bail!("cannot check like this:\n  {}", problems.join("\n  "));
    }
    let mut settings = given.of_provider(&kerf_controllers::Gates::default(), MinValuesPolicy::Strict);
    settings.kubernetes_version = arguments.kubernetes_version.clone().unwrap_or_default();
    Ok(settings)
}

/// The EC2NodeClasses of some files.
fn read_classes(files: &[PathBuf]) -> anyhow::Result<Vec<Value>> {
    #[derive(Default)]
    struct Found {
        classes: Vec<Value>,
        troubles: Vec<String>,
    }
    impl Sink for Found {
        fn object(&mut self, _: &str, value: Value) {
            if value["kind"] == "EC2NodeClass" {
                self.classes.push(value);
            }
        }

        fn trouble(&mut self, trouble: Trouble) {
            self.troubles.push(format!("{}: {}: {}", trouble.source, trouble.what, trouble.message));
        }
    }
    let mut found = Found::default();
    input::read_all(files, &mut found)?;
    if !found.troubles.is_empty() {
        bail!("{}", found.troubles.join("\n"));
    }
    if !files.is_empty() && found.classes.is_empty() {
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        bail!("there is no EC2NodeClass in {}", names.join(", "));
    }
    Ok(found.classes)
}
