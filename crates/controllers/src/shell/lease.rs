//! Who may work: a Lease in the cluster, held by one process at a time.
//!
//! Nobody trusts anybody's clock: a lease has run out when it has not changed for its whole duration, on the watch of whoever
//! looks at it. Its holder gives up sooner (`renew`) than others take over (`lease`), so that there are never two.

use super::caller::send;
use crate::errand::{ApiCall, ApiFailure};
use crate::resource::LEASES;
use kube::Client;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// Others wait so long after the last sign of life.
    pub lease: Duration,
    /// The holder tries so long to give a sign of life before it gives up.
    pub renew: Duration,
    /// Between two attempts, to get it or to keep it.
    pub retry: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), renew: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

/// One contender. Its client is its own: a busy operator's rate limit must not cost it the lease.
pub struct Election {
    client: Client,
    namespace: String,
    name: String,
    identity: String,
    timings: Timings,
    /// The lease as last seen, and since when it looks so.
    seen: Option<(Value, Instant)>,
}

/// `<host>_<uuid>`: in a pod the host is called like the pod.
pub fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    let host = Some(host.trim()).filter(|host| !host.is_empty()).unwrap_or("kerf").to_owned();
    format!("{host}_{}", uuid::Uuid::new_v4())
}

impl Election {
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str, timings: Timings) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            timings,
            seen: None,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ends when the lease is ours.
    pub async fn acquire(&mut self) {
        let lease = format!("{}/{}", self.namespace, self.name);
        tracing::info!(lease, identity = self.identity, "attempting to acquire leader lease");
        let mut told = String::new();
        let mut other = String::new();
        loop {
            match self.attempt().await {
                Ok(Standing::Ours) => break,
                Ok(Standing::Held { by }) => {
                    if by != other {
                        tracing::info!(lease, holder = by, "another process leads; standing by");
                        other = by;
                    }
                }
                Err(failure) => {
                    let words = self.words(&failure);
                    if words != told {
                        tracing::error!("{words}");
                        told = words;
                    }
                }
            }
            tokio::time::sleep(self.timings.retry).await;
        }
        tracing::info!(lease, identity = self.identity, "successfully acquired lease");
    }

    /// Keeps the lease. Ends only when it is lost, and says why.
    pub async fn keep(&mut self) -> String {
        let mut last_success = Instant::now();
        loop {
            tokio::time::sleep(self.timings.retry).await;
            let deadline = last_success + self.timings.renew;
            let failure = match tokio::time::timeout_at(deadline, self.attempt()).await {
                Ok(Ok(Standing::Ours)) => {
                    last_success = Instant::now();
                    continue;
                }
                Ok(Ok(Standing::Held { by })) => return format!("the lease is held by {by}"),
                Ok(Err(failure)) => self.words(&failure),
                Err(_) => "no answer".to_owned(),
            };
            if Instant::now() >= deadline {
                return format!("it could not be renewed within {} s: {failure}", self.timings.renew.as_secs());
            }
            tracing::warn!(error = failure, "cannot renew the leader lease; trying again");
        }
    }

    /// Gives the lease back, so that the next one need not wait for it to run out.
    pub async fn release(&mut self) {
        match tokio::time::timeout(self.timings.renew, self.give_back()).await {
            Ok(Ok(true)) => tracing::info!("released the leader lease"),
            Ok(Ok(false)) => {}
            Ok(Err(failure)) => tracing::warn!(error = failure.message, "cannot release the leader lease"),
            Err(_) => tracing::warn!("cannot release the leader lease: no answer"),
        }
    }

    /// Whether it was ours to give.
    async fn give_back(&mut self) -> Result<bool, ApiFailure> {
        // Read, because a renewal that was cut short may have been written all the same.
        let get = ApiCall { method: "GET", path: self.path(), content_type: "", body: Value::Null };
        let mut lease = send(&self.client, get).await?;
        if holder(&lease) != self.identity {
            return Ok(false);
        }
        let now = micro_time();
        lease["spec"]["holderIdentity"] = json!("");
        lease["spec"]["leaseDurationSeconds"] = json!(1);
        lease["spec"]["renewTime"] = json!(now);
        lease["spec"]["acquireTime"] = json!(now);
        send(&self.client, self.put(lease)).await?;
        self.seen = None;
        Ok(true)
    }

    /// Tries once to get or to keep it.
    async fn attempt(&mut self) -> Result<Standing, ApiFailure> {
        // Whoever holds it writes it without reading: nobody else has a reason to change it.
        if let Some((lease, _)) = &self.seen
            && holder(lease) == self.identity
        {
            let put = self.put(self.claimed(lease.clone()));
            if let Ok(written) = send(&self.client, put).await {
                self.see(written);
                return Ok(Standing::Ours);
            }
        }
        let get = ApiCall { method: "GET", path: self.path(), content_type: "", body: Value::Null };
        let found = match send(&self.client, get).await {
            Err(failure) if failure.is_not_found() => {
                let written = send(&self.client, self.post()).await?;
                self.see(written);
                return Ok(Standing::Ours);
            }
            other => other?,
        };
        self.see(found.clone());
        let by = holder(&found);
        if !by.is_empty() && by != self.identity && !self.has_run_out() {
            return Ok(Standing::Held { by: by.to_owned() });
        }
        let written = send(&self.client, self.put(self.claimed(found))).await?;
        self.see(written);
        Ok(Standing::Ours)
    }

    fn see(&mut self, lease: Value) {
        let is_same = self.seen.as_ref().is_some_and(|(known, _)| known["spec"] == lease["spec"]);
        let since = match &self.seen {
            Some((_, since)) if is_same => *since,
            _ => Instant::now(),
        };
        self.seen = Some((lease, since));
    }

    fn has_run_out(&self) -> bool {
        let Some((lease, since)) = &self.seen else {
            return false;
        };
        let seconds = lease["spec"]["leaseDurationSeconds"].as_u64();
        let lasts = seconds.map_or(self.timings.lease, Duration::from_secs);
        since.elapsed() >= lasts
    }

    /// The lease as we want it to be.
    fn claimed(&self, mut lease: Value) -> Value {
        let now = micro_time();
        if holder(&lease) != self.identity {
            let transitions = lease["spec"]["leaseTransitions"].as_i64().unwrap_or(0);
            lease["spec"]["leaseTransitions"] = json!(transitions + 1);
            lease["spec"]["acquireTime"] = json!(now);
        }
        lease["spec"]["holderIdentity"] = json!(self.identity);
        lease["spec"]["leaseDurationSeconds"] = json!(self.timings.lease.as_secs().max(1));
        lease["spec"]["renewTime"] = json!(now);
        lease
    }

    fn post(&self) -> ApiCall {
        let now = micro_time();
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {
                "holderIdentity": self.identity, "leaseDurationSeconds": self.timings.lease.as_secs().max(1),
                "acquireTime": now, "renewTime": now, "leaseTransitions": 0,
            },
        });
        let path = LEASES.collection_in(&self.namespace);
        ApiCall { method: "POST", path, content_type: "application/json", body }
    }

    fn put(&self, lease: Value) -> ApiCall {
        ApiCall { method: "PUT", path: self.path(), content_type: "application/json", body: lease }
    }

    fn path(&self) -> String {
        LEASES.path(&self.namespace, &self.name)
    }

    fn words(&self, failure: &ApiFailure) -> String {
        let Self { namespace, name, .. } = self;
        match failure.status {
            403 => format!(
                "may not lead: {}; add to a Role in namespace {namespace}: {{apiGroups: [\"coordination.k8s.io\"], \
                 resources: [\"leases\"], verbs: [\"get\", \"watch\", \"create\", \"update\", \"patch\"]}}, or run with \
                 --disable-leader-election",
                failure.message
            ),
            404 => format!(
                "cannot create Lease {name}: {}; does namespace {namespace} exist? (--leader-election-namespace)",
                failure.message
            ),
            _ => format!("cannot get or renew Lease {namespace}/{name}: {}", failure.message),
        }
    }
}

enum Standing {
    Ours,
    Held { by: String },
}

fn holder(lease: &Value) -> &str {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default()
}

/// As Kubernetes writes a `MicroTime`.
fn micro_time() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
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
