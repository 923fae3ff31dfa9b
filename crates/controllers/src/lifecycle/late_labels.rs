//! Labels that the cloud knows only once the machine runs. Until then the claim has them empty, and its Node waits to be registered:
//! it takes labels over once, and pods that select by them must not be placed before.

use super::{Asking, Doing, Look, Memory, NAME, cloud_key};
use crate::desk::Desk;
use crate::errand::{CloudAnswer, CloudCall};
use crate::queue::earlier;
use kerf_api::NodeClaim;
use kerf_cloud::CloudError;
use kerf_model::{Labels, Text, UnixMillis};
use serde_json::json;
use std::collections::BTreeMap;

const AGAIN_MS: i64 = 5_000;

impl Look<'_, '_, '_> {
    /// The first label that is not known yet, if any; the cloud is being asked, or what it said is being written down.
    pub(super) fn awaits_label(&mut self, provider_id: &str) -> Option<&'static str> {
        let empty: Vec<&'static str> =
            self.desk.cloud.late_labels().into_iter().filter(|key| is_empty(self.claim, key)).collect();
        let first = *empty.first()?;
        let known = self.memory.late_labels.take().unwrap_or_default();
        let found: BTreeMap<&str, &Text> =
            empty.iter().filter_map(|key| Some((*key, known.get(*key).filter(|value| !value.is_empty())?))).collect();
        if !found.is_empty() {
            self.patch(json!({"metadata": {"labels": found}}), Doing::Describe);
            return Some(first);
        }
        match self.memory.labels_after.filter(|then| *then > self.desk.now) {
            Some(then) => self.again = earlier(self.again, Some(then)),
            None if self.memory.asking.is_none() => {
                self.memory.asking = Some(Asking::Labels);
                self.desk.ask_cloud(&cloud_key(self.name), CloudCall::Get { provider_id: provider_id.into() });
            }
            None => {}
        }
        Some(first)
    }
}

fn is_empty(claim: &NodeClaim, key: &str) -> bool {
    claim.metadata.labels.as_ref().and_then(|labels| labels.get(key)).is_some_and(String::is_empty)
}

/// The cloud has answered. What it does not know yet it is asked again.
pub(super) fn answered(name: &Text, memory: &mut Memory, answer: Result<CloudAnswer, CloudError>, desk: &Desk<'_>) {
    memory.labels_after = Some(UnixMillis(desk.now.0 + AGAIN_MS));
    match answer {
        Ok(CloudAnswer::Found(instance)) => memory.late_labels = Some(Labels::clone(&instance.labels)),
        Ok(_) => {}
        Err(error) => {
            tracing::error!(controller = NAME, NodeClaim = &**name, %error, "cannot read what a new machine is labelled with");
        }
    }
}
