//! `kerf explain`: what was decided about one thing on a live cluster, and why.
//!
//! The operator keeps a bounded record of its decisions and answers questions about it on a port of its own, on loopback. This command
//! finds that port and asks: [`ask`] is the user's side, [`page`] the operator's, [`invitation`] what brings them together on one machine.

mod ask;
pub(crate) mod invitation;
pub(crate) mod page;

use crate::Outcome;
use anyhow::bail;
use clap::Args;
use kerf_controllers::explain::Explanation;
use kerf_controllers::shell::escaped;
use std::io::Write;
use std::path::PathBuf;

const HELP: &str = "\
The operator that leads is found by its lease, and asked through the API server, with your own credentials and rights: it takes get on
the lease and get and create on pods/portforward in the operator's namespace. No credentials reach the operator. One that runs outside of
a pod, such as `kerf up`, is asked on its own machine, by the user who runs it.

Examples:
  kerf explain pod inflate-7d9c-abcde
  kerf explain pod/inflate-7d9c-abcde -n web
  kerf explain nodepools default -o json
  kubectl kerf explain node ip-10-0-12-7.ec2.internal";

/// Say what was decided about a pod, node, NodeClaim or NodePool: when, why, what was turned down, and what would change the answer.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct ExplainArguments {
    /// What kind of thing and its name, or KIND/NAME.
    #[arg(required = true, num_args = 1..=2, value_names = ["KIND", "NAME"])]
    pub(crate) what: Vec<String>,

    /// Of the pod. Without it that of the kubeconfig's context.
    #[arg(short = 'n', long)]
    pub(crate) namespace: Option<String>,

    #[arg(short = 'o', long = "output", value_enum, default_value_t = crate::arguments::Format::Text)]
    pub(crate) output: crate::arguments::Format,

    /// Where the operator and its lease are. Without it kube-system, then karpenter.
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) operator_namespace: Option<String>,

    /// The operator's pod, as [NAMESPACE/]NAME, instead of the one that leads.
    #[arg(long, value_name = "POD")]
    pub(crate) pod: Option<String>,

    /// The operator's --explain-port.
    #[arg(long, value_name = "PORT", default_value_t = page::PORT)]
    pub(crate) explain_port: u16,

    /// The --explain-file of an operator on this machine, outside of a pod.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pod", "operator_namespace", "explain_port"])]
    pub(crate) explain_file: Option<PathBuf>,

    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pod,
    Node,
    NodeClaim,
    NodePool,
}

/// What is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Question {
    kind: Kind,
    name: String,
}

impl Question {
    /// As kubectl's users say it: `pod NAME`, `pods NAME`, `po/NAME`, `nodeclaims.karpenter.sh/NAME`.
    fn read(what: &[String]) -> anyhow::Result<Self> {
        let (kind, name) = match what {
            [kind, name] if !kind.contains('/') => (kind.as_str(), name.as_str()),
            [both] if both.contains('/') => both.split_once('/').unwrap_or_default(),
            [kind] => bail!("{kind} has a name: say `kerf explain {kind} NAME`"),
            _ => bail!("one thing at a time: say `kerf explain KIND NAME` or `kerf explain KIND/NAME`"),
        };
        if name.is_empty() || name.contains('/') {
            bail!("{name:?} is no name: say `kerf explain {kind} NAME`");
        }
        let plain = kind.split('.').next().unwrap_or_default().to_ascii_lowercase();
        let kind = match plain.as_str() {
            "pod" | "pods" | "po" => Kind::Pod,
            "node" | "nodes" | "no" => Kind::Node,
            "nodeclaim" | "nodeclaims" => Kind::NodeClaim,
            "nodepool" | "nodepools" => Kind::NodePool,
            _ => bail!("nothing is decided about a {kind}: ask about a pod, node, nodeclaim or nodepool"),
        };
        Ok(Self { kind, name: name.to_owned() })
    }

    /// As a path of the operator's port.
    fn path(&self, namespace: &str) -> String {
        let name = escaped(&self.name);
        match self.kind {
            Kind::Pod => format!("/explain/pod/{}/{name}", escaped(namespace)),
            Kind::Node => format!("/explain/node/{name}"),
            Kind::NodeClaim => format!("/explain/nodeclaim/{name}"),
            Kind::NodePool => format!("/explain/nodepool/{name}"),
        }
    }
}

pub(crate) fn run(arguments: &ExplainArguments, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let question = Question::read(&arguments.what)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let explanation: Explanation = runtime.block_on(ask::ask(arguments, &question))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> anyhow::Result<Question> {
        Question::read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn kinds_and_names_are_said_as_to_kubectl() {
        for (words, kind) in [
            (&["pod", "a"][..], Kind::Pod),
            (&["pod/a"], Kind::Pod),
            (&["Pods/a"], Kind::Pod),
            (&["po", "a"], Kind::Pod),
            (&["nodes", "a"], Kind::Node),
            (&["no/a"], Kind::Node),
            (&["nodeclaims", "a"], Kind::NodeClaim),
            (&["nodeclaim.karpenter.sh/a"], Kind::NodeClaim),
            (&["nodepools.v1.karpenter.sh", "a"], Kind::NodePool),
        ] {
            assert_eq!(read(words).unwrap(), Question { kind, name: "a".to_owned() }, "{words:?}");
        }
    }

    #[test]
    fn what_cannot_be_explained_is_answered_with_what_can() {
        for (words, expected) in [
            (&["pod"][..], "say `kerf explain pod NAME`"),
            (&["pod/"], "is no name"),
            (&["pod/a/b"], "is no name"),
            (&["pod/a", "b"], "one thing at a time"),
            (&["deployment/web"], "ask about a pod, node, nodeclaim or nodepool"),
        ] {
            let said = read(words).unwrap_err().to_string();
            assert!(said.contains(expected), "{words:?}: {said}");
        }
    }

    #[test]
    fn names_stay_one_part_of_the_path() {
        assert_eq!(read(&["pod", "a b?c"]).unwrap().path("x"), "/explain/pod/x/a%20b%3Fc");
    }
}
