//! One cluster and its waiting pods, as Kubernetes objects: the peer and we are given the same text.

use anyhow::{Result, bail};
use kerf_api::{NodeOverlay, labels as api_labels};
use kerf_cloud::kwok;
use kerf_mirror::{Inquiry, LabelRules, Mirror, MirrorSettings, Stock, Supply, Types, View};
use kerf_model::{
    Binder, CapacityType, Money, NodeClassRef, PreferencePolicy, Snapshot, Text, TypeName, UnixMillis, labels,
};
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) ignores_preferences: bool,
    /// In the format of kwok's file.
    pub(crate) types: Vec<Value>,
    pub(crate) objects: Vec<Value>,
}

impl Scenario {
    /// As `bench/peer/README.md` describes it, on one line.
    pub(crate) fn line(&self) -> String {
        self.json().to_string()
    }

    pub(crate) fn json(&self) -> Value {
        let policy = if self.ignores_preferences { "Ignore" } else { "Respect" };
        json!({
            "name": self.name,
            "options": {"preferencePolicy": policy},
            "instanceTypes": self.types,
            "objects": self.objects,
        })
    }

    /// The same with every object of a kind changed.
    pub(crate) fn changed(&self, kind: &str, change: impl Fn(&mut Value)) -> Self {
        let mut out = self.clone();
        out.objects.iter_mut().filter(|object| object["kind"] == kind).for_each(change);
        out
    }

    /// The picture as our mirror freezes it. A note means that the two sides may not have read the same.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        let parsed = kwok::parse(&json!(self.types).to_string());
        if let Some(problem) = parsed.problems.first() {
            bail!("{}: {problem}", self.name);
        }
        let shop = Shop { types: parsed.types.into_iter().map(Arc::new).collect() };
        let mut mirror = Mirror::new(self.settings());
        for object in &self.objects {
            mirror.observe_value(&self.name, object.clone());
        }
        let snapshot = mirror.snapshot(UnixMillis(0), &shop);
        // A pod that contradicts itself is among the drawn ones on purpose.
        if let Some(note) = snapshot.notes.iter().find(|note| !note.message.contains("at once")) {
            bail!("{}: {} {}: {}", self.name, note.object, note.field, note.message);
        }
        Ok(snapshot)
    }

    fn settings(&self) -> MirrorSettings {
        let mut settings = MirrorSettings::new(View::Files);
        settings.labels = LabelRules::kwok();
        settings.scheduling.placed_by = Binder::Kerf;
        settings.scheduling.well_known =
            labels::WELL_KNOWN.iter().chain(api_labels::KWOK_WELL_KNOWN).map(|key| Text::from(*key)).collect();
        if self.ignores_preferences {
            settings.scheduling.preferences = PreferencePolicy::Ignore;
        }
        settings
    }
}

/// Sells the same to every pool.
struct Shop {
    types: Types,
}

impl Supply for Shop {
    fn serves(&self, _: &NodeClassRef) -> bool {
        true
    }

    fn types(&self, inquiries: &[Inquiry<'_>], _: &[Arc<NodeOverlay>]) -> Stock {
        Stock { types: inquiries.iter().map(|_| Ok(self.types.clone())).collect(), rejected_overlays: Vec::new() }
    }

    fn price(&self, _: &TypeName, _: Option<&Text>, _: CapacityType) -> Option<Money> {
        None
    }
}
