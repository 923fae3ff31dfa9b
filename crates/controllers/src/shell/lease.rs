//! Drives the lease over the network. When it is whose, [`crate::lease`] knows.

use super::caller::send;
use super::clock::Timeline;
use crate::errand::{ApiCall, ApiFailure};
use crate::lease::{Do, Lease, Mandate, News, Timings};
use kerf_model::UnixMillis;
use kube::Client;
use serde_json::Value;
use std::pin::Pin;
use std::sync::Arc;

/// One contender. Its client is its own: a busy operator's rate limit must not cost it the lease.
pub struct Election {
    client: Client,
    lease: Lease,
    timeline: Timeline,
}

/// `<host>_<uuid>`: in a pod the host is called like the pod. Where it is not, on the host's network say, POD_NAME tells the pod's name.
pub fn identity() -> String {
    let pod = std::env::var("POD_NAME").ok();
    let host = pod.filter(|name| !name.is_empty()).or_else(host);
    format!("{}_{}", host.as_deref().unwrap_or("kerf"), uuid::Uuid::new_v4())
}

/// This machine's name, or the pod's.
pub fn host() -> Option<String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    Some(host.trim().to_owned()).filter(|host| !host.is_empty())
}

/// What nobody guesses.
pub fn secret() -> String {
    format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}

type Answer = Pin<Box<dyn Future<Output = Result<Value, ApiFailure>> + Send>>;

impl Election {
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str, timings: Timings) -> Self {
        Self { client, lease: Lease::new(namespace, name, identity, timings), timeline: Timeline::begin() }
    }

    pub fn name(&self) -> &str {
        self.lease.name()
    }

    /// What everybody who works under it asks, and on which clock.
    pub(super) fn mandate(&self) -> (Arc<Mandate>, Timeline) {
        (Arc::clone(self.lease.mandate()), self.timeline)
    }

    /// Ends when the lease is ours.
    pub async fn acquire(&mut self) {
        let lease = format!("{}/{}", self.lease.namespace(), self.lease.name());
        tracing::info!(lease, identity = self.lease.identity(), "attempting to acquire leader lease");
        let (mut told, mut other) = (String::new(), String::new());
        loop {
            match self.next().await {
                Do::StandsBy { holder } if holder != other => {
                    tracing::info!(lease, holder, "another process leads; standing by");
                    other = holder;
                }
                Do::Troubled { why } if why != told => {
                    tracing::error!("{why}");
                    told = why;
                }
                Do::Leads => break,
                _ => {}
            }
        }
        tracing::info!(lease, identity = self.lease.identity(), "successfully acquired lease");
    }

    /// Keeps the lease. Ends only when it is lost, and says why.
    pub async fn keep(&mut self) -> String {
        loop {
            match self.next().await {
                Do::Lost { why } => return why,
                Do::Troubled { why } => tracing::warn!(error = why, "cannot renew the leader lease; trying again"),
                _ => {}
            }
        }
    }

    /// Gives the lease back, so that the next one need not wait for it to run out.
    pub async fn release(&mut self) {
        self.lease.give_back();
        loop {
            match self.next().await {
                Do::GivenBack { was_ours: Ok(true) } => return tracing::info!("released the leader lease"),
                Do::GivenBack { was_ours: Ok(false) } => return,
                Do::GivenBack { was_ours: Err(error) } => {
                    return tracing::warn!(error, "cannot release the leader lease");
                }
                _ => {}
            }
        }
    }

    /// Until there is something to tell. Nothing is lost when it is dropped: a request that was under way counts as unanswered.
    async fn next(&mut self) -> Do {
        let mut asked: Option<Answer> = None;
        let mut news = News::None;
        loop {
            let (now, wall) = (self.timeline.now(), UnixMillis(jiff::Timestamp::now().as_millisecond()));
            match self.lease.step(now, wall, std::mem::replace(&mut news, News::None)) {
                Do::Ask(call) => asked = Some(ask(self.client.clone(), call)),
                Do::Wait(until) => {
                    let answer = async {
                        match &mut asked {
                            Some(answer) => answer.await,
                            None => std::future::pending().await,
                        }
                    };
                    news = match tokio::time::timeout_at(self.timeline.instant(until), answer).await {
                        Ok(answer) => {
                            asked = None;
                            News::Answer(answer)
                        }
                        Err(_) => News::Silence,
                    };
                }
                told => return told,
            }
        }
    }
}

fn ask(client: Client, call: ApiCall) -> Answer {
    Box::pin(async move { send(&client, call).await })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_names_the_host_and_is_never_the_same() {
        let (one, other) = (identity(), identity());
        assert_ne!(one, other);
        let (host, uuid) = one.rsplit_once('_').unwrap();
        assert!(!host.is_empty() && uuid.len() == 36);
    }
}
