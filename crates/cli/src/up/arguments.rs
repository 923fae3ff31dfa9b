//! What can be said to `kerf up`.

use clap::Args;
use std::path::PathBuf;

const HELP: &str = "\
Examples:
  kerf up                         # then: export KUBECONFIG=~/.kube/kerf.yaml; kubectl scale deployment inflate --replicas 60
  kerf up --demo                  # the inflate story from 0 to 60 pods and back, with its bill
  kerf up --speed 60 -f pools/    # an hour per minute, with your own NodePools and workloads
  kerf up --bad-day               # stock-outs, slow and failed launches, spot losses, throttling

Nothing leaves this machine, nothing is kept: when it ends, the cluster is gone.";

/// Run a whole cluster in this process: an API server, a scheduler, workload controllers, a simulated EC2, and Kerf scaling it.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct UpArguments {
    /// Play the inflate story: 0 to 60 pods, and back to no node; print its timeline and the bill.
    #[arg(long)]
    pub(crate) demo: bool,

    /// How many times as fast as the wall's clock. The demo has its own default, 30.
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    pub(crate) speed: f64,

    /// A file or folder of manifests to begin with. May be repeated.
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR")]
    pub(crate) files: Vec<PathBuf>,

    /// Begin without the EC2NodeClass, NodePool and Deployment that a playground has otherwise.
    #[arg(long)]
    pub(crate) empty: bool,

    /// Where to write the kubeconfig. Default: ~/.kube/kerf.yaml.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The API server's port on loopback; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,

    /// The port of metrics on loopback; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) metrics_port: u16,

    /// The AWS region whose types and prices are simulated.
    #[arg(long, value_name = "REGION", default_value = "us-east-1")]
    pub(crate) region: String,

    /// Everything that happens by chance follows from it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// A cloud on which a little of everything goes wrong.
    #[arg(long)]
    pub(crate) bad_day: bool,

    /// Bind pods to the node launched for them as soon as it registers (feature gate EarlyBinding).
    #[arg(long)]
    pub(crate) early_binding: bool,

    /// Plain lines even on a terminal.
    #[arg(long)]
    pub(crate) plain: bool,
}

impl UpArguments {
    /// The speed that counts.
    pub(crate) fn speed(&self) -> f64 {
        const DEMO_SPEED: f64 = 30.0;
        if self.demo && self.speed == 1.0 { DEMO_SPEED } else { self.speed }
    }
}
