//! The user's side: find the operator that leads, and ask it.
//!
//! ```text
//! lease ─▶ who leads ─┬─ an operator on this machine, outside of a pod ─▶ loopback, with the secret of its file
//!                     └─ a pod ─▶ API server ─ pods/portforward ─▶ loopback in the pod
//! ```
//!
//! Who the user is, the API server is told and nobody else.

use super::invitation::{self, Invitation, cluster};
use super::page::SECRET_HEADER;
use super::{ExplainArguments, Question};
use crate::run::connect;
use anyhow::{Context, anyhow, bail};
use http::Request;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kerf_controllers::dispatch::Trouble;
use kerf_controllers::explain::Explanation;
use kerf_controllers::shell::{Caller, Limits};
use kube::{Api, Client};
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

const LEASE: &str = kerf_controllers::lease::NAME;
const LEASE_NAMESPACES: [&str; 2] = ["kube-system", "karpenter"];

/// The operator takes ten seconds at most; the rest is the API server, the node and the way.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// A pool with the longest record is some kilobytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// A word about why a port cannot be forwarded comes with its end.
const LAST_WORD_WITHIN: Duration = Duration::from_secs(1);

/// The operator's pod.
struct Leader {
    namespace: String,
    pod: String,
    /// As in the lease; empty when the user named the pod.
    identity: String,
}

pub(super) async fn ask(arguments: &ExplainArguments, question: &Question) -> anyhow::Result<Explanation> {
    if let Some(file) = &arguments.explain_file {
        let invitation = Invitation::read(file)?;
        let path = question.path(arguments.namespace.as_deref().unwrap_or("default"));
        return within(at_loopback(&invitation, &path)).await?.read();
    }
    let config = connect::config(arguments.kubeconfig.as_deref(), env!("CARGO_PKG_VERSION")).await?;
    let cluster = cluster(&config.cluster_url);
    let path = question.path(arguments.namespace.as_deref().unwrap_or(&config.default_namespace));
    let client = connect::client(config)?;
    within(async {
        let leader = leader(arguments, &Caller::new(client.clone(), Limits::none())).await;
        let holder = leader.as_ref().map_or("", |leader| leader.identity.as_str());
        // The one that leads, before one that does not ask who leads.
        let mut near = invitation::for_cluster(&cluster);
        near.retain(|it| arguments.pod.is_none() && (it.identity == holder || it.identity.is_empty()));
        near.sort_by_key(|it| it.identity.is_empty());
        for invitation in near {
            // An operator that was killed leaves its file behind.
            if let Ok(answer) = at_loopback(&invitation, &path).await {
                return answer.read();
            }
        }
        through_api_server(client, &leader?, arguments.explain_port, &path).await?.read()
    })
    .await
}

async fn within<T>(ask: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let late = || anyhow!("there was no answer within {} s: ask again", ANSWER_WITHIN.as_secs());
    tokio::time::timeout(ANSWER_WITHIN, ask).await.unwrap_or_else(|_| Err(late()))
}

async fn leader(arguments: &ExplainArguments, caller: &Caller) -> anyhow::Result<Leader> {
    let namespaces: Vec<&str> = match &arguments.operator_namespace {
        Some(namespace) => vec![namespace],
        None => LEASE_NAMESPACES.into(),
    };
    if let Some(pod) = &arguments.pod {
        let (namespace, pod) = pod.split_once('/').unwrap_or((namespaces[0], pod));
        return Ok(Leader { namespace: namespace.to_owned(), pod: pod.to_owned(), identity: String::new() });
    }
    let mut forbidden = None;
    for namespace in &namespaces {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{LEASE}");
        let lease = match caller.get(&path).await.map_err(Trouble::of) {
            Ok(lease) => lease,
            Err(Trouble::Missing) => continue,
            Err(Trouble::Forbidden { message }) => {
                forbidden = Some(message);
                continue;
            }
            Err(Trouble::Unauthorized { message }) => {
                bail!("the API server does not accept your credentials: {message}")
            }
            Err(trouble) => bail!("cannot look who leads: {trouble:?}"),
        };
        let holder = lease.pointer("/spec/holderIdentity").and_then(Value::as_str).unwrap_or_default();
        if !holder.is_empty() {
            let pod = holder.rsplit_once('_').map_or(holder, |(host, _)| host);
            let (namespace, pod, identity) = ((*namespace).to_owned(), pod.to_owned(), holder.to_owned());
            return Ok(Leader { namespace, pod, identity });
        }
    }
    match forbidden {
        Some(message) => bail!(
            "you may not look who leads ({message}): ask for get on lease {LEASE}, or name the operator's pod with --pod; a pod's \
             own events have the reason, too"
        ),
        None => bail!(
            "no operator was found: nobody holds a lease {LEASE} in {}; name the namespace with --operator-namespace, or the file \
             of an operator outside of a pod with --explain-file",
            namespaces.join(" or ")
        ),
    }
}

/// What the operator said.
struct Answer {
    status: u16,
    body: Bytes,
}

impl Answer {
    fn read(self) -> anyhow::Result<Explanation> {
        if self.status == 200 {
            return serde_json::from_slice(&self.body)
                .context("the operator's answer cannot be read: is it a kerf of this version?");
        }
        bail!("{}", String::from_utf8_lossy(&self.body).trim());
    }
}

async fn at_loopback(invitation: &Invitation, path: &str) -> anyhow::Result<Answer> {
    let address = invitation.address;
    let stream = TcpStream::connect(address).await;
    let stream = stream.with_context(|| format!("the operator is not at {address} any more"))?;
    exchange(stream, path, Some(&invitation.secret))
        .await
        .with_context(|| format!("cannot ask the operator at {address}"))
}

async fn through_api_server(client: Client, leader: &Leader, port: u16, path: &str) -> anyhow::Result<Answer> {
    let Leader { namespace, pod, .. } = leader;
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let mut forward = pods.portforward(pod, &[port]).await.map_err(|error| refused(leader, error))?;
    let (Some(stream), Some(trouble)) = (forward.take_stream(port), forward.take_error(port)) else {
        bail!("port {port} of pod {namespace}/{pod} was not forwarded");
    };
    match exchange(stream, path, None).await {
        Ok(answer) => Ok(answer),
        Err(error) => {
            let said = tokio::time::timeout(LAST_WORD_WITHIN, trouble).await.ok().flatten();
            let words = said.map(|said| format!(" ({})", said.trim())).unwrap_or_default();
            Err(error.context(format!(
                "nobody answers on port {port} of pod {namespace}/{pod}{words}: is it a kerf of this version, and is its port \
                 another one (--explain-port)?"
            )))
        }
    }
}

fn refused(leader: &Leader, error: kube::Error) -> anyhow::Error {
    let Leader { namespace, pod, .. } = leader;
    match error {
        kube::Error::Api(status) if status.code == 403 => anyhow!(
            "the API server does not let you ask: {} (it takes get and create on pods/portforward in namespace {namespace}; a pod's \
             own events have the reason, too)",
            status.message
        ),
        kube::Error::Api(status) if status.code == 404 => anyhow!(
            "the operator that leads runs on {pod}, which is no pod of namespace {namespace}: an operator outside of a pod is asked on \
             its own machine, by its own user; one in a pod is named with --pod ({})",
            status.message
        ),
        kube::Error::Api(status) => {
            anyhow!("the API server cannot forward a port of pod {namespace}/{pod}: {}", status.message)
        }
        error => {
            anyhow!(error).context(format!("cannot forward a port of pod {namespace}/{pod} through the API server"))
        }
    }
}

/// One question and its answer, over whatever leads there.
async fn exchange<S>(stream: S, path: &str, secret: Option<&str>) -> anyhow::Result<Answer>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut request = Request::get(path).header(http::header::HOST, "localhost");
    if let Some(secret) = secret {
        request = request.header(SECRET_HEADER, secret);
    }
    let request = request.body(Empty::<Bytes>::new()).context("that is no name")?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.context("the connection broke")?;
    // Ends with the answer; what goes wrong with it is told where the answer is awaited.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await.context("the connection broke")?;
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow!(error)).context("the answer broke off")?.to_bytes();
    Ok(Answer { status, body })
}
