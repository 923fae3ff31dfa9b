//! Who is still waited for: what `/readyz` answers from.

use super::caller::Caller;
use crate::metrics::families::WATCH_AGE_SECONDS;
use crate::metrics::{Page, Source};
use crate::resource::{NODE_CLAIMS, NODE_POOLS};
use crate::watcher::MISSING;
use kerf_model::UnixMillis;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How often to look for definitions that are not there yet.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How each watched kind fares. A kind that nobody reported on is not waited for.
#[derive(Debug, Default)]
pub struct Health {
    kinds: Mutex<BTreeMap<String, Fare>>,
    /// What stands still, and why.
    standstills: Mutex<Vec<(String, String)>>,
}

#[derive(Debug, Default)]
struct Fare {
    /// Why it is not there yet.
    waits: Option<String>,
    is_stale: bool,
    /// When what is known of it was last known to be all there is.
    heard: Option<Instant>,
}

impl Fare {
    fn trouble(&self) -> Option<String> {
        if let Some(why) = &self.waits {
            return Some(why.clone());
        }
        let silence = self.heard.map_or(0, |heard| heard.elapsed().as_secs());
        self.is_stale.then(|| {
            format!(
                "stale: nothing was heard of it for {silence} s, so nothing voluntary begins; its watch is begun anew"
            )
        })
    }
}

impl Health {
    /// It is not there yet, and why.
    pub fn waits(&self, what: &str, why: impl Into<String>) {
        self.change(what, |fare| fare.waits = Some(why.into()));
    }

    /// It is there.
    pub fn has(&self, what: &str) {
        self.change(what, |fare| fare.waits = None);
    }

    /// Nothing was heard of it for too long; or it was again.
    pub(super) fn stale(&self, what: &str, is_stale: bool) {
        self.change(what, |fare| fare.is_stale = is_stale);
    }

    pub(super) fn heard(&self, what: &str, at: Instant) {
        self.change(what, |fare| fare.heard = Some(at));
    }

    /// What is still missing or stale, one line each; empty when everything is there. None before anybody reported.
    pub fn missing(&self) -> Option<Vec<String>> {
        let kinds = self.lock();
        if kinds.is_empty() {
            return None;
        }
        Some(kinds.iter().filter_map(|(what, fare)| Some(format!("{what}: {}", fare.trouble()?))).collect())
    }

    /// Everything that is waited for, and why it is still missing or stale where it is.
    pub fn checks(&self) -> Vec<(String, Option<String>)> {
        self.lock().iter().map(|(what, fare)| (what.clone(), fare.trouble())).collect()
    }

    /// What stands still of what is done of our own will, and why. It makes nobody unready.
    pub fn standstills(&self) -> Vec<(String, String)> {
        self.standstills.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn stand_still(&self, standstills: Vec<(String, String)>) {
        let mut told = self.standstills.lock().unwrap_or_else(PoisonError::into_inner);
        if *told != standstills {
            *told = standstills;
        }
    }

    pub fn is_ready(&self) -> bool {
        self.missing().is_some_and(|missing| missing.is_empty())
    }

    fn change(&self, what: &str, change: impl FnOnce(&mut Fare)) {
        let mut kinds = self.lock();
        match kinds.get_mut(what) {
            Some(fare) => change(fare),
            None => change(kinds.entry(what.to_owned()).or_default()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Fare>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The age of each watch, as of when the page is rendered.
impl Source for Health {
    fn render(&self, page: &mut Page, _: UnixMillis) {
        page.begin_family(&WATCH_AGE_SECONDS);
        for (what, fare) in self.lock().iter() {
            if let Some(heard) = fare.heard {
                page.sample(WATCH_AGE_SECONDS.name, &[("resource", what.as_str())], heard.elapsed().as_secs_f64());
            }
        }
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
        health.stale("pods", true);
        let missing = health.missing().unwrap().concat();
        assert!(missing.starts_with("pods: stale: nothing was heard of it"), "{missing}");
        health.stale("pods", false);
        assert!(health.is_ready());
    }
}
