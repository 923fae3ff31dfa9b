//! The flags of `kerf run`: upstream's names, and a few of ours. Each has a variable that it wins over.

use super::aws_arguments::AwsArguments;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

const RUN_HELP: &str = "\
Every flag except --kubeconfig has an environment variable of the same name in capitals (METRICS_PORT for --metrics-port);
the flag wins. A variable that cannot be read is named in the log, and the default counts.

Exit status:
  0  asked to stop, and stopped
  1  could not start, or could not go on (the lease was lost)

Examples:
  kerf run --cloud kwok --disable-leader-election
  kerf run --cloud aws --cluster-name demo --interruption-queue demo
  kerf run --kubeconfig ~/.kube/config --leader-election-namespace kube-system --log-level debug";

/// Run the operator against a cluster.
#[derive(Debug, Default, Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct RunArguments {
    /// Who sells the nodes (KERF_CLOUD). Without it aws where it is built in and CLUSTER_NAME is set, else kwok.
    #[arg(long, value_enum, value_name = "CLOUD")]
    pub(crate) cloud: Option<Cloud>,

    /// A kubeconfig file. Without it KUBECONFIG, then the pod's own account, then ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// kwok: instance types in JSON, instead of the built-in ones.
    #[arg(long, value_name = "FILE")]
    pub(crate) instance_types_file_path: Option<String>,

    #[command(flatten)]
    pub(crate) aws: AwsArguments,

    /// Kept for charts that set it; nothing reads it.
    #[arg(long, value_name = "NAME")]
    pub(crate) karpenter_service: Option<String>,

    /// Where /metrics is served [default: 8080]; 0 takes a free port.
    #[arg(long, value_name = "PORT")]
    pub(crate) metrics_port: Option<u16>,

    /// Where /healthz and /readyz are served [default: 8081]; 0 takes a free port.
    #[arg(long, value_name = "PORT")]
    pub(crate) health_probe_port: Option<u16>,

    /// Where `kerf explain` is answered, on loopback only [default: 8082 in a pod, a free port elsewhere]. On the host's network, whoever is
    /// on that node reaches it.
    #[arg(long, value_name = "PORT")]
    pub(crate) explain_port: Option<u16>,

    /// Outside of a pod: where the address and the secret for `kerf explain` are left, for this user alone [default: a file in
    /// ~/.kube/kerf].
    #[arg(long, value_name = "FILE")]
    pub(crate) explain_file: Option<String>,

    /// Requests per second to the API server [default: 200]; negative for any number.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub(crate) kube_client_qps: Option<i64>,

    /// Requests at once after a quiet time [default: 300].
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub(crate) kube_client_burst: Option<i64>,

    /// Serve /debug/pprof/ on the metrics port.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) enable_profiling: Option<bool>,

    /// Do not watch before leading [default: true].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) disable_controller_warmup: Option<bool>,

    /// After so long without a word about a kind, not even a bookmark, the operator is not ready and begins nothing voluntary [default:
    /// 5m].
    #[arg(long, value_name = "DURATION")]
    pub(crate) watch_stale_after: Option<String>,

    /// The brake by hand: take no node away unless somebody asked for it or the cloud takes it back.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) pause_disruption: Option<bool>,

    /// When more than so many nodes, and more than 30 % of them, look empty, gone, expired or unclaimed within two minutes, removing them
    /// waits for a fresh answer [default: 20, the least].
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub(crate) brake_above_nodes: Option<i64>,

    /// Work without asking whether another process does.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) disable_leader_election: Option<bool>,

    /// No gauges of pods, nodes and pools, no metrics and events of status conditions.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) disable_cluster_state_observability: Option<bool>,

    /// The name of the Lease [default: karpenter-leader-election].
    #[arg(long, value_name = "NAME")]
    pub(crate) leader_election_name: Option<String>,

    /// Its namespace. Without it the pod's own.
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) leader_election_namespace: Option<String>,

    /// The container's memory limit in bytes; a warning is logged at 90 % of it [default: -1, none].
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub(crate) memory_limit: Option<i64>,

    /// The container's CPU request in thousandths; more of it allows more requests at a time [default: 1000].
    #[arg(long, value_name = "MILLICORES", allow_negative_numbers = true)]
    pub(crate) cpu_requests: Option<i64>,

    /// debug, info or error [default: info].
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,

    /// Where the log goes: stdout, stderr or files, with commas between [default: stdout].
    #[arg(long, value_name = "PATHS")]
    pub(crate) log_output_paths: Option<String>,

    /// Where the logger tells of its own trouble [default: stderr].
    #[arg(long, value_name = "PATHS")]
    pub(crate) log_error_output_paths: Option<String>,

    /// The longest that pods wait for others to be planned with them [default: 10s].
    #[arg(long, value_name = "DURATION")]
    pub(crate) batch_max_duration: Option<String>,

    /// Quiet time after which pods are planned [default: 1s].
    #[arg(long, value_name = "DURATION")]
    pub(crate) batch_idle_duration: Option<String>,

    /// Respect or Ignore: whether preferences of pods constrain as long as they can be met [default: Respect].
    #[arg(long, value_name = "POLICY")]
    pub(crate) preference_policy: Option<String>,

    /// Strict or BestEffort: what happens when too few values are left for a pool's minValues [default: Strict].
    #[arg(long, value_name = "POLICY")]
    pub(crate) min_values_policy: Option<String>,

    /// Leave pods with claims for devices alone [default: true].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) ignore_dra_requests: Option<bool>,

    /// Repair nodes as before v1.15; deprecated.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) legacy_node_repair: Option<bool>,

    /// Feature gates, such as NodeOverlay=true,EarlyBinding=true. Unknown ones are ignored.
    #[arg(long, value_name = "GATES")]
    pub(crate) feature_gates: Option<String>,

    /// The cluster's default spread constraints, in YAML or JSON: {podTopologySpread: {defaultConstraints: [...]}}.
    #[arg(long, value_name = "YAML")]
    pub(crate) scheduler_config: Option<String>,

    /// ignore or replace: what a recommendation to rebalance a spot instance leads to, an event or a replacement [default:
    /// ignore].
    #[arg(long, value_name = "WHAT")]
    pub(crate) rebalance: Option<String>,
}

/// Who sells the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cloud {
    /// Nodes that are nothing but objects, for clusters with a kwok controller.
    Kwok,
    /// The simulated cloud of `kerf up`.
    Sim,
    /// EC2, where it is built in (cargo feature `aws`).
    Aws,
}
