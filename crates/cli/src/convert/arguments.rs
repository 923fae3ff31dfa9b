//! What can be said to `kerf convert`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

const HELP: &str = "\
Exit status:
  0  everything was converted
  1  the command line or the input could not be used; nothing is printed
  2  something has no equivalent in v1: it is listed on standard error, and objects that it matters for are left out

Examples:
  kerf convert -f provisioner.yaml --kubernetes-version 1.32 --default-instance-profile KarpenterNodeInstanceProfile-demo
  kubectl get provisioners,awsnodetemplates -o yaml | kerf convert -f - --kubernetes-version 1.32 > v1.yaml
  kerf convert -f nodepools.yaml -f ec2nodeclasses.yaml -o json | jq '.items[].metadata.name'

To leave a Provisioner behind: convert it, apply what is printed, delete it. What is printed carries an annotation that takes the pool from
its Provisioner, so that no node goes with it.";

/// Rewrite Provisioners, AWSNodeTemplates and v1beta1 objects as v1.
///
/// Pools and the classes they use belong together: give them in one call. Nothing is changed, and no cluster is contacted.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct ConvertArguments {
    /// A file or folder of objects in YAML or JSON, as kubectl prints them; "-" is standard input. May be repeated.
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-")]
    pub(crate) files: Vec<PathBuf>,

    /// How to print the objects: YAML documents, or one JSON list.
    #[arg(short = 'o', long = "output", value_enum, default_value_t = Language::Yaml)]
    pub(crate) output: Language,

    /// The cluster's version, such as 1.32. It decides about the images of those who name no family.
    #[arg(long, value_name = "VERSION", value_parser = parse_minor)]
    pub(crate) kubernetes_version: Option<u32>,

    /// The instance profile of those who name none, as the installation has it (chart value aws.defaultInstanceProfile).
    #[arg(long, value_name = "NAME")]
    pub(crate) default_instance_profile: Option<String>,

    /// The node role of those who name no instance profile, where the installation has no default profile.
    #[arg(long, value_name = "NAME", conflicts_with = "default_instance_profile")]
    pub(crate) role: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    Yaml,
    Json,
}

/// `1.32`, `v1.32.4-eks-1`
fn parse_minor(text: &str) -> Result<u32, String> {
    let version = text.strip_prefix('v').unwrap_or(text);
    let minor = version.strip_prefix("1.").and_then(|rest| rest.split(['.', '+', '-']).next()?.parse().ok());
    minor.ok_or_else(|| "a version such as 1.32 would do".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_people_and_servers_write_it() {
        for (text, minor) in
            [("1.32", Some(32)), ("v1.28.5-eks-1", Some(28)), ("1.33+", Some(33)), ("32", None), ("2.1", None)]
        {
            assert_eq!(parse_minor(text).ok(), minor, "{text}");
        }
    }
}
