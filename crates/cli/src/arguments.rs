//! What can be said on the command line.

use crate::aws_check::AwsCommand;
use crate::convert::arguments::ConvertArguments;
use crate::explain::ExplainArguments;
use crate::instance_types::InstanceTypesArguments;
use crate::run::arguments::RunArguments;
use crate::up::UpArguments;
use clap::{Args, Parser, Subcommand, ValueEnum};
use kerf_mirror::Gates;
use kerf_model::{Binder, MinValuesPolicy, PreferencePolicy};
use std::path::PathBuf;

/// Plans nodes for Kubernetes pods: what to launch, for how much, and why a pod stays pending.
#[derive(Debug, Parser)]
#[command(name = "kerf", version, propagate_version = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Up(Box<UpArguments>),
    Run(Box<RunArguments>),
    Explain(ExplainArguments),
    Plan(Box<PlanArguments>),
    InstanceTypes(Box<InstanceTypesArguments>),
    Convert(ConvertArguments),
    Crds(CrdsArguments),
    /// Questions about an AWS account.
    Aws(AwsCommand),
}

const PLAN_HELP: &str = "\
Exit status:
  0  every pod has a place
  1  the command line or the input could not be used
  2  pods stay pending (pods that ask not to run on a NodePool's nodes do not count)

Examples:
  kubectl get pods,nodes,nodepools,nodeclaims,ec2nodeclasses,daemonsets,deployments,replicasets,\\
statefulsets,pdb,pv,pvc,storageclasses,csinodes,namespaces,priorityclasses -A -o json | kerf plan -f -
  kerf plan -f dump/ --region eu-west-1
  kerf plan -f pool.yaml -f deployment.yaml -o json | jq .cost

A dump of pods shows what waits now. A Deployment, StatefulSet, ReplicaSet or Job whose pods are not in the files counts with the pods it would create.";

/// Read a cluster, from files or live, and print what would be launched for its pending pods.
///
/// Nothing is changed; without --live no cluster is contacted.
#[derive(Debug, Args)]
#[command(after_help = PLAN_HELP)]
pub(crate) struct PlanArguments {
    /// A file or folder of Kubernetes objects in YAML or JSON, as kubectl prints them; "-" is standard input. May be
    /// repeated.
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-")]
    pub(crate) files: Vec<PathBuf>,

    /// Plan for the connected cluster instead of files. It is only read.
    #[arg(long, conflicts_with = "files")]
    pub(crate) live: bool,

    /// Of the connected cluster. Without it, KUBECONFIG, the pod's own account, or ~/.kube/config.
    #[arg(long, value_name = "FILE", requires = "live")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Instance types in the kwok provider's format, for all pools. Without it, KWOKNodeClass pools get kwok's own
    /// types and EC2NodeClass pools the built-in AWS catalogue.
    #[arg(long, value_name = "FILE")]
    pub(crate) instance_types: Option<PathBuf>,

    /// The AWS region whose types and prices count. Without it, the region of the node classes' subnets, else
    /// us-east-1.
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Option<String>,

    /// How to print the plan.
    #[arg(short = 'o', long = "output", value_enum, default_value_t = Format::Text)]
    pub(crate) output: Format,

    /// Who puts the pods onto the new nodes.
    #[arg(long, value_enum, default_value_t = PlacedBy::KubeScheduler)]
    pub(crate) placed_by: PlacedBy,

    /// Whether preferences of pods constrain as long as they can be met.
    #[arg(long, value_enum, ignore_case = true, default_value_t = Preferences::Respect)]
    pub(crate) preference_policy: Preferences,

    /// What happens when too few values are left for a pool's minValues.
    #[arg(long, value_enum, ignore_case = true, default_value_t = MinValues::Strict)]
    pub(crate) min_values_policy: MinValues,

    /// Feature gates, as the operator takes them, such as NodeOverlay=true,CapacityBuffer=true.
    #[arg(long, value_name = "GATES", value_parser = parse_gates, default_value = "ReservedCapacity=true")]
    pub(crate) feature_gates: FeatureGates,

    /// Stop searching after so many steps; the plan is sound even then.
    #[arg(long, value_name = "STEPS")]
    pub(crate) effort: Option<u64>,

    /// The cluster's default spread constraints: {podTopologySpread: {defaultConstraints: [...]}}.
    #[arg(long, value_name = "FILE")]
    pub(crate) scheduler_config: Option<PathBuf>,

    /// The moment of the picture, for files that are older than now (2026-01-31T12:00:00Z).
    #[arg(long, value_name = "TIME")]
    pub(crate) now: Option<jiff::Timestamp>,
}

/// Print the CustomResourceDefinitions.
#[derive(Debug, Args)]
pub(crate) struct CrdsArguments {
    /// Only this kind, such as NodePool or ec2nodeclasses.
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
    Yaml,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlacedBy {
    /// Kerf binds them where they were planned.
    Kerf,
    /// kube-scheduler does, in its own order.
    KubeScheduler,
}

impl From<PlacedBy> for Binder {
    fn from(placed_by: PlacedBy) -> Self {
        match placed_by {
            PlacedBy::Kerf => Binder::Kerf,
            PlacedBy::KubeScheduler => Binder::KubeScheduler,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preferences {
    Respect,
    Ignore,
}

impl From<Preferences> for PreferencePolicy {
    fn from(preferences: Preferences) -> Self {
        match preferences {
            Preferences::Respect => PreferencePolicy::Respect,
            Preferences::Ignore => PreferencePolicy::Ignore,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MinValues {
    Strict,
    #[value(alias = "BestEffort")]
    BestEffort,
}

impl From<MinValues> for MinValuesPolicy {
    fn from(min_values: MinValues) -> Self {
        match min_values {
            MinValues::Strict => MinValuesPolicy::Strict,
            MinValues::BestEffort => MinValuesPolicy::BestEffort,
        }
    }
}

/// The gates that a plan depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FeatureGates {
    pub(crate) mirror: Gates,
    pub(crate) reserved_capacity: bool,
}

fn parse_gates(text: &str) -> Result<FeatureGates, String> {
    let gates = crate::run::gates::parse(text)?;
    let mirror = Gates { node_overlay: gates.node_overlay, capacity_buffer: gates.capacity_buffer };
    Ok(FeatureGates { mirror, reserved_capacity: gates.reserved_capacity })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn gates_read_as_the_operator_reads_them() {
        let gates = parse_gates("NodeRepair=true, NodeOverlay=true,CapacityBuffer=false,ReservedCapacity=0").unwrap();
        assert!(gates.mirror.node_overlay && !gates.mirror.capacity_buffer && !gates.reserved_capacity);
        assert!(parse_gates("").unwrap().reserved_capacity);
        assert!(parse_gates("NodeOverlay=").is_err());
        assert!(parse_gates("NodeOverlay").is_err());
    }

    #[test]
    fn policies_may_be_written_as_the_operator_writes_them() {
        let parse = |arguments: &[&str]| Arguments::try_parse_from([&["kerf", "plan"], arguments].concat());
        for arguments in [
            &["--preference-policy", "Ignore", "--min-values-policy", "BestEffort"][..],
            &["--preference-policy", "ignore", "--min-values-policy", "best-effort"][..],
        ] {
            let Command::Plan(plan) = parse(arguments).unwrap().command else { panic!("not a plan") };
            assert_eq!(plan.preference_policy, Preferences::Ignore);
            assert_eq!(plan.min_values_policy, MinValues::BestEffort);
        }
        assert!(parse(&["--preference-policy", "maybe"]).is_err());
    }
}
