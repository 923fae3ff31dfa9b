//! `kerf explain`: what was decided about one thing on a live cluster, and why.
//!
//! The operator keeps a bounded record of its decisions and answers questions about it on its metrics port, to whoever the cluster
//! knows. This command finds that port and asks.

mod ask;
pub(crate) mod page;

pub(crate) use ask::NOTICE;

use crate::Outcome;
use clap::{Args, ValueEnum};
use kerf_controllers::explain::Explanation;
use std::io::Write;
use std::path::PathBuf;

const HELP: &str = "\
The operator is found by --server, by the address that `kerf up` leaves in the cluster, or by the leader's lease in the namespaces
kube-system and karpenter, through the API server's proxy to the pod. The token of the kubeconfig tells who asks.

Examples:
  kerf explain pod inflate-7d9c-abcde
  kerf explain nodepool default -o json
  kubectl kerf explain node ip-10-0-12-7.ec2.internal";

/// Say what was decided about a pod, node, NodeClaim or NodePool: when, why, what was turned down, and what would change the answer.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct ExplainArguments {
    /// What kind of thing.
    #[arg(value_enum)]
    pub(crate) kind: Kind,

    pub(crate) name: String,

    /// Of the pod.
    #[arg(short = 'n', long, default_value = "default")]
    pub(crate) namespace: String,

    #[arg(short = 'o', long = "output", value_enum, default_value_t = crate::arguments::Format::Text)]
    pub(crate) output: crate::arguments::Format,

    /// The operator's own address, such as http://127.0.0.1:8080.
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,

    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    #[value(alias = "pods", alias = "po")]
    Pod,
    #[value(alias = "nodes", alias = "no")]
    Node,
    #[value(alias = "nodeclaims")]
    Nodeclaim,
    #[value(alias = "nodepools")]
    Nodepool,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Pod => "pod",
            Kind::Node => "node",
            Kind::Nodeclaim => "nodeclaim",
            Kind::Nodepool => "nodepool",
        }
    }
}

impl ExplainArguments {
    /// The question, as a path of the operator's port.
    fn path(&self) -> String {
        match self.kind {
            Kind::Pod => format!("/explain/pod/{}/{}", self.namespace, self.name),
            kind => format!("/explain/{}/{}", kind.word(), self.name),
        }
    }
}

pub(crate) fn run(arguments: &ExplainArguments, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let explanation: Explanation = runtime.block_on(ask::ask(arguments))?;
    match arguments.output {
        crate::arguments::Format::Text => write!(out, "{}", explanation.to_text())?,
        crate::arguments::Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &explanation)?;
            writeln!(out)?;
        }
        crate::arguments::Format::Yaml => serde_norway::to_writer(&mut *out, &explanation)?,
    }
    Ok(Outcome::Done)
}
