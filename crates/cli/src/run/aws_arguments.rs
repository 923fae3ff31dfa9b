//! The flags that only AWS knows: of `kerf run --cloud aws`, and of `kerf aws check`, which reads as the operator would.

use clap::Args;

#[derive(Debug, Default, Clone, Args)]
#[command(next_help_heading = "AWS")]
pub(crate) struct AwsArguments {
    /// The cluster's name: on tags, in user data, and where EKS is asked. Required with --cloud aws.
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_name: Option<String>,

    /// The API server's address for nodes. Without it EKS is asked.
    #[arg(long, value_name = "URL")]
    pub(crate) cluster_endpoint: Option<String>,

    /// The authority that nodes trust, in base64. Without it the one that we trust.
    #[arg(long, value_name = "BASE64")]
    pub(crate) cluster_ca_bundle: Option<String>,

    /// There is no way to the pricing and IAM services: built-in prices, and classes with an instanceProfile only.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) isolated_vpc: Option<bool>,

    /// Take the Kubernetes version from EKS rather than from the API server.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) eks_control_plane: Option<bool>,

    /// The share of memory that the hypervisor keeps, until a node has told [default: 0.075].
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub(crate) vm_memory_overhead_percent: Option<f64>,

    /// The name of the SQS queue of interruptions. Without it there are no notices.
    #[arg(long, value_name = "NAME")]
    pub(crate) interruption_queue: Option<String>,

    /// Network interfaces that pods do not get [default: 0].
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub(crate) reserved_enis: Option<i64>,

    /// Do not try with dry runs whether a node class could launch.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) disable_dry_run: Option<bool>,

    /// Launch nothing in zones that ARC has shifted away from.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) enable_zonal_shift: Option<bool>,

    /// How long a look-up of images counts [default: 1m, which is the least].
    #[arg(long, value_name = "DURATION")]
    pub(crate) ami_refresh_interval: Option<String>,

    /// How long a look-up of subnets counts [default: 1m, which is the least].
    #[arg(long, value_name = "DURATION")]
    pub(crate) subnet_refresh_interval: Option<String>,

    /// Feature gates of AWS, such as NodeClassCEL=true. Unknown ones are ignored.
    #[arg(long, value_name = "GATES")]
    pub(crate) aws_feature_gates: Option<String>,
}
