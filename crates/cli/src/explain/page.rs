//! The operator's side: answers on a port of its own, on loopback.
//!
//! ```text
//! in a pod         nobody but the pod reaches it, and who forwards its ports:  the API server asks RBAC
//! outside of one   whoever is on the machine reaches it:                       it wants the secret of an invitation
//! ```

use super::invitation::{Invitation, Left, cluster};
use anyhow::Context;
use kerf_controllers::explain::{Subject, explain};
use kerf_controllers::limits::EXPLAIN_WITHIN;
use kerf_controllers::shell::{Bounds, Handle, PageRequest, Pages, Reply, host, secret, serve};
use kerf_model::PodId;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Where the page is in a pod, unless somebody says otherwise.
pub(crate) const PORT: u16 = 8082;

/// Who is on the same machine shows that they may ask.
pub(super) const SECRET_HEADER: &str = "x-kerf-secret";

/// Who may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Guard {
    /// Whoever gets here.
    Reached,
    /// Whoever knows this.
    Secret(String),
}

/// The page in a pod.
pub(crate) fn in_pod(handle: &Handle, port: u16) -> anyhow::Result<SocketAddr> {
    open(handle, port, Guard::Reached)
}

/// The page outside of a pod, and the file that invites to it.
pub(crate) fn outside(
    handle: &Handle,
    port: u16,
    cluster_url: &impl ToString,
    identity: &str,
    file: Option<&Path>,
) -> anyhow::Result<(SocketAddr, Left)> {
    let secret = secret();
    let address = open(handle, port, Guard::Secret(secret.clone()))?;
    let (host, identity) = (host().unwrap_or_default(), identity.to_owned());
    let left = Invitation { cluster: cluster(cluster_url), host, identity, address, secret }.leave(file)?;
    Ok((address, left))
}

fn open(handle: &Handle, port: u16, guard: Guard) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .with_context(|| format!("cannot listen on port {port} of loopback (--explain-port)"))?;
    let address = listener.local_addr().context("a port has an address")?;
    serve("explain", listener, pages(handle, guard), Bounds::default()).context("cannot start a thread")?;
    Ok(address)
}

fn pages(handle: &Handle, guard: Guard) -> Pages {
    let handle = handle.clone();
    let one_at_a_time = Arc::new(Semaphore::new(1));
    Pages::default().with("/explain/", move |request| {
        let subject = guard.admit(&request).and_then(|()| subject(request.uri().path()).ok_or_else(how_to_ask));
        let (handle, one_at_a_time) = (handle.clone(), Arc::clone(&one_at_a_time));
        async move {
            let answer = async {
                match subject {
                    Ok(subject) => answer(&handle, one_at_a_time, subject).await,
                    Err(reply) => reply,
                }
            };
            let late = || Reply::text(503, "the operator is too busy to answer now: ask again\n");
            tokio::time::timeout(EXPLAIN_WITHIN, answer).await.unwrap_or_else(|_| late())
        }
    })
}

async fn answer(handle: &Handle, one_at_a_time: Arc<Semaphore>, subject: Subject) -> Reply {
    let Ok(turn) = one_at_a_time.acquire_owned().await else {
        return Reply::text(503, "the operator is stopping\n");
    };
    let look = handle.look(move |operator| {
        // Whoever asked may have given up: until it is answered, their question still is the one that may be asked.
        let _turn = turn;
        explain(operator, &subject)
    });
    match look.await {
        Some(Some(explanation)) => match serde_json::to_vec(&explanation) {
            Ok(body) => Reply::json(200, body),
            Err(error) => Reply::text(500, format!("{error}\n")),
        },
        Some(None) => Reply::text(404, "it is neither in the cluster nor in the record of decisions\n"),
        None => Reply::text(503, "the operator is stopping\n"),
    }
}

fn how_to_ask() -> Reply {
    Reply::text(
        404,
        "ask for /explain/pod/NAMESPACE/NAME, /explain/node/NAME, /explain/nodeclaim/NAME or /explain/nodepool/NAME\n",
    )
}

fn subject(path: &str) -> Option<Subject> {
    let parts: Vec<&str> = path.strip_prefix("/explain/")?.split('/').collect();
    Some(match parts.as_slice() {
        ["pod", namespace, name] => Subject::Pod(PodId::new(namespace, name)),
        ["node", name] => Subject::Node((*name).to_owned()),
        ["nodeclaim", name] => Subject::NodeClaim((*name).to_owned()),
        ["nodepool", name] => Subject::NodePool((*name).to_owned()),
        _ => return None,
    })
}

impl Guard {
    fn admit(&self, request: &PageRequest) -> Result<(), Reply> {
        let Self::Secret(secret) = self else { return Ok(()) };
        let given = request.headers().get(SECRET_HEADER).map(http::HeaderValue::as_bytes).unwrap_or_default();
        if is_same(given, secret.as_bytes()) {
            return Ok(());
        }
        Err(Reply::text(401, "show the secret of the operator's file, as `kerf explain` does on its machine\n"))
    }
}

/// However much of it is right takes the same time.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_what_is_asked_about() {
        assert_eq!(subject("/explain/pod/default/web"), Some(Subject::Pod(PodId::new("default", "web"))));
        assert_eq!(subject("/explain/nodepool/default"), Some(Subject::NodePool("default".to_owned())));
        for odd in ["/explain/", "/explain/pod/web", "/explain/service/a", "/explain/node/a/b", "/other/node/a"] {
            assert_eq!(subject(odd), None, "{odd}");
        }
    }

    #[test]
    fn nothing_but_the_whole_secret_is_the_secret() {
        for (given, expected) in [("secret", true), ("secreT", false), ("secre", false), ("", false)] {
            assert_eq!(is_same(given.as_bytes(), b"secret"), expected, "{given:?}");
        }
    }
}
