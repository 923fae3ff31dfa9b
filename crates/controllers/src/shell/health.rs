//! Who is still waited for: what `/readyz` answers from.

use super::caller::Caller;
use crate::resource::{NODE_CLAIMS, NODE_POOLS};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often to look for definitions that are not there yet.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How each watched kind fares. A kind that nobody reported on is not waited for.
#[derive(Debug, Default)]
pub struct Health(Mutex<BTreeMap<String, Option<String>>>);

impl Health {
    /// It is not there yet, and why.
    pub fn waits(&self, what: &str, why: impl Into<String>) {
        self.lock().insert(what.to_owned(), Some(why.into()));
    }

    /// It is there.
    pub fn has(&self, what: &str) {
        self.lock().insert(what.to_owned(), None);
    }

    /// What is still missing, one line each; empty when everything is there. None before anybody reported.
    pub fn missing(&self) -> Option<Vec<String>> {
        let kinds = self.lock();
        if kinds.is_empty() {
            return None;
        }
        Some(kinds.iter().filter_map(|(what, why)| why.as_ref().map(|why| format!("{what}: {why}"))).collect())
    }

    pub fn is_ready(&self) -> bool {
        self.missing().is_some_and(|missing| missing.is_empty())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Option<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For one that does not watch yet: whether the kinds that it will watch are served. Ends when they are.
pub(super) async fn find_kinds(caller: Caller, health: Arc<Health>) {
    let awaited = [NODE_POOLS, NODE_CLAIMS];
    for resource in awaited {
        health.waits(resource.plural, "not looked for yet");
    }
    let mut told = String::new();
    loop {
        let missing: Vec<String> = match caller.get("/apis/karpenter.sh/v1").await {
            Ok(list) => {
                let names: Vec<&str> = list["resources"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|resource| resource.get("name").and_then(Value::as_str))
                    .collect();
                awaited
                    .iter()
                    .filter(|resource| !names.contains(&resource.plural))
                    .map(|it| it.plural.to_owned())
                    .collect()
            }
            Err(failure) if failure.is_not_found() => awaited.iter().map(|it| it.plural.to_owned()).collect(),
            Err(failure) => {
                if told != failure.message {
                    tracing::error!(error = failure.message, "cannot look for the definitions of karpenter.sh");
                    told = failure.message;
                }
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            }
        };
        for resource in awaited {
            if missing.iter().any(|name| name == resource.plural) {
                health.waits(resource.plural, MISSING);
            } else {
                health.has(resource.plural);
            }
        }
        if missing.is_empty() {
            return;
        }
        let now = missing.join(", ");
        if told != now {
            tracing::error!(kinds = now, "the API server does not serve these kinds: {MISSING}");
            told = now;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What to do about a kind that is not served.
pub(super) const MISSING: &str =
    "its CustomResourceDefinition is not installed; run `kerf crds | kubectl apply --server-side -f -`";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kind_that_is_waited_for_is_named() {
        let health = Health::default();
        assert!(!health.is_ready(), "nobody has looked yet");
        health.waits("pods", "being listed");
        health.has("nodes");
        assert_eq!(health.missing(), Some(vec!["pods: being listed".to_owned()]));
        health.has("pods");
        assert!(health.is_ready());
    }
}
