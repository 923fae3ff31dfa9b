//! Duty `provider.chores`: runs what the provider wants to be called for now and then, and does what it asks.
//!
//! ```text
//! CloudProvider::chores ─▶ schedule ─▶ run_chore(InUse) ─▶ report ─┬▶ asks: end a claim, relabel it, tell a pool
//!                            ▲  again: as asked, or every …         └▶ samples: figures for the metrics page
//!                            └─────────────────────────────────────┘
//! ```
//!
//! What a chore is about is the provider's business; that only the operator changes the cluster is ours.

use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::{CloudAnswer, CloudCall, Outcome};
use crate::events::{About, Event};
use crate::interruption::ending::{By, End, Endings};
use crate::limits::ORPHAN_DRAINS;
use crate::metrics::{Family, Metrics, Shape, families};
use crate::moment::after;
use crate::queue::{Queue, earlier};
use crate::resource::{NODE_CLAIMS, NODE_POOLS, NODES, Resource};
use crate::standstill::{Looks, Standstill, Voluntary};
use crate::world::{Change, World, claim_provider_id};
use crate::write;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kerf_api::{NodeClaim, NodePool};
use kerf_cloud::{Chore, ChoreAsk, ChoreReport, ClaimInUse, CloudError, InUse, InstanceRef, PoolInUse, Sample};
use kerf_model::{
    ClaimName, Labels, NodeClassRef, Operator, PoolName, Requirement, Requirements, Revision, Text, UnixMillis,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const NAME: &str = "provider.chores";
/// How often a collection asks whether it may go on.
const HELD_MS: i64 = 10_000;
const BACKOFF_MS: (i64, i64) = (1_000, 300_000);
/// What our errands begin with, beside those for the ends of claims.
const RELABEL_CLAIM: &str = "relabel-claim/";
const RELABEL_NODE: &str = "relabel-node/";
const END_NODE: &str = "end-node/";
const END_MACHINE: &str = "end-machine/";

#[derive(Debug)]
pub struct Chores {
    /// None before the provider was asked.
    known: Option<BTreeMap<&'static str, Chore>>,
    schedule: Queue<&'static str>,
    endings: Endings,
    /// Labels that are to be true, by claim.
    relabels: BTreeMap<Text, BTreeMap<Text, Option<Text>>>,
    queue: Queue<Text>,
    /// What was last frozen, for chores that follow each other.
    in_use: Option<(Revision, Arc<InUse>)>,
}

impl Default for Chores {
    fn default() -> Self {
        Self {
            known: None,
            schedule: Queue::new(BACKOFF_MS.0, BACKOFF_MS.1),
            endings: Endings::default(),
            relabels: BTreeMap::new(),
            queue: Queue::new(BACKOFF_MS.0, BACKOFF_MS.1),
            in_use: None,
        }
    }
}

impl Duty for Chores {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, _: &World) {
        match change {
            Change::Claim { name, after: None, .. } => {
                self.relabels.remove(name);
                self.queue.forget(name);
            }
            Change::Synced => self.known = None,
            _ => {}
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.world.is_synced() {
            return None;
        }
        if self.known.is_none() {
            self.learn_chores(desk);
        }
        for name in self.schedule.take_due(desk.now) {
            // What is under way is scheduled again when it has ended.
            if self.collects(name) && desk.may_begin(Voluntary::Collection).is_err() {
                self.schedule.add_at(name, UnixMillis(desk.now.0 + HELD_MS));
            } else if !desk.is_busy(name) {
                let in_use = self.in_use(desk);
                desk.ask_cloud(&name.into(), CloudCall::RunChore { name, in_use });
            }
        }
        let (_, endings_wish) = self.endings.work(NAME, desk);
        for claim in self.queue.take_due(desk.now) {
            self.relabel(&claim, desk);
        }
        earlier(self.schedule.next(), earlier(endings_wish, self.queue.next()))
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        let chore = self.known.as_ref().and_then(|known| known.get(&**key)).copied();
        match (chore, outcome) {
            (Some(chore), Outcome::Cloud(answer)) => self.ran(chore, answer, desk),
            (_, outcome) => {
                if let Some(provider_id) = key.strip_prefix(END_MACHINE) {
                    machine_ended(provider_id, &outcome);
                } else if !self.endings.done(NAME, key, &outcome, desk) {
                    self.relabelled(key, &outcome, desk);
                }
            }
        }
    }
}

impl Chores {
    fn collects(&self, name: &str) -> bool {
        self.known.as_ref().and_then(|known| known.get(name)).is_some_and(|chore| chore.collects)
    }

    fn learn_chores(&mut self, desk: &Desk<'_>) {
        let chores = desk.cloud.chores();
        for chore in &chores {
            let first = if chore.at_start { desk.now } else { after(desk.now, chore.every) };
            self.schedule.add_at(chore.name, first);
        }
        self.known = Some(chores.into_iter().map(|chore| (chore.name, chore)).collect());
    }

    fn in_use(&mut self, desk: &Desk<'_>) -> Arc<InUse> {
        let revision = desk.world.mirror.revision();
        match &self.in_use {
            Some((known, in_use)) if *known == revision => in_use.clone(),
            _ => {
                let in_use = Arc::new(in_use(desk.world));
                self.in_use = Some((revision, in_use.clone()));
                in_use
            }
        }
    }

    fn ran(&mut self, chore: Chore, answer: Result<CloudAnswer, CloudError>, desk: &mut Desk<'_>) {
        match answer {
            Ok(CloudAnswer::Chore(report)) => {
                self.schedule.succeeded(&chore.name);
                let then = after(desk.now, report.again_after.unwrap_or(chore.every));
                self.schedule.add_at(chore.name, then);
                if self.take_in(*report, desk).is_err() {
                    self.schedule.add_at(chore.name, UnixMillis(desk.now.0 + HELD_MS));
                }
            }
            Ok(_) => self.schedule.add_at(chore.name, after(desk.now, chore.every)),
            Err(CloudError::Unsupported { .. }) => self.schedule.forget(&chore.name),
            Err(error) => {
                tracing::error!(controller = chore.name, %error, "a chore of the provider failed");
                self.schedule.retry(chore.name, desk.now);
                if let CloudError::Throttled { retry_after, .. } = error {
                    self.schedule.forget(&chore.name);
                    self.schedule.add_at(chore.name, after(desk.now, retry_after));
                }
            }
        }
    }

    /// An error when machines are not ended now although a chore asks for it.
    fn take_in(&mut self, report: ChoreReport, desk: &mut Desk<'_>) -> Result<(), Standstill> {
        feed(desk.metrics, &report.samples);
        let machines: Vec<(Text, bool)> = report.asks.iter().filter_map(machine).collect();
        for ask in report.asks {
            match ask {
                ChoreAsk::EndClaim { claim, reason, message, by_force } => {
                    self.end(&claim.0, &reason, &message, by_force, desk);
                }
                ChoreAsk::Relabel { claim, labels } => {
                    self.relabels.entry(claim.0.clone()).or_default().extend(labels);
                    self.queue.add(claim.0);
                }
                // All of them at once, below.
                ChoreAsk::EndMachine { .. } => {}
                ChoreAsk::TellPool { pool, is_warning, reason, message } => {
                    if let Some(object) = desk.world.pools.get(&pool.0) {
                        let about = About::of(NODE_POOLS, &object.metadata);
                        // The same reason may be told about several zones.
                        let same = [about.uid.clone(), message.clone()];
                        let event = Event::normal(about, reason.to_string(), message.to_string()).same_by(same);
                        desk.event(Event { is_warning, ..event });
                    }
                }
            }
        }
        let living = || machines.iter().filter(|(_, is_ending)| !is_ending).map(|(provider_id, _)| provider_id);
        // Most chores have nothing to do with machines.
        let may_take = match living().next() {
            Some(_) => desk.may_take(Voluntary::Collection, Looks::Unclaimed, living()),
            None => Ok(()),
        };
        for (provider_id, is_ending) in machines {
            if is_ending || may_take.is_ok() {
                end_machine(&provider_id, is_ending, desk);
            }
        }
        may_take
    }

    fn end(&mut self, name: &Text, reason: &Text, message: &str, by_force: bool, desk: &mut Desk<'_>) {
        let Some(claim) = desk.world.claims.get(name).cloned() else {
            return;
        };
        if claim.metadata.deletion_timestamp.is_none() || by_force {
            let node = desk.world.node_of_claim(&claim).map(|node| About::of(NODES, &node.metadata));
            for about in [About::of(NODE_CLAIMS, &claim.metadata)].into_iter().chain(node) {
                desk.event(Event::warning(about, reason.to_string(), message));
            }
        }
        let by = if by_force { By::Force } else { By::Leave };
        self.endings.ask(name, &claim, End { reason: snake_case(reason).into(), by });
    }

    /// Brings the labels of a claim, and then those of its node, to what is true.
    fn relabel(&mut self, name: &Text, desk: &mut Desk<'_>) {
        let (Some(labels), Some(claim)) = (self.relabels.get(name), desk.world.claims.get(name)) else {
            self.relabels.remove(name);
            return;
        };
        let keys: [Text; 2] = [format!("{RELABEL_CLAIM}{name}").into(), format!("{RELABEL_NODE}{name}").into()];
        if keys.iter().any(|key| desk.is_busy(key)) {
            return;
        }
        let node = desk.world.node_of_claim(claim);
        if lacks(&claim.metadata, labels) {
            desk.call(&keys[0], relabelling(NODE_CLAIMS, name, labels));
        } else if let Some(node) = node.filter(|node| lacks(&node.metadata, labels)) {
            let node = node.metadata.name.clone().unwrap_or_default();
            desk.call(&keys[1], relabelling(NODES, &node, labels));
        } else {
            tracing::info!(controller = NAME, NodeClaim = &**name, "relabelled nodeclaim and node");
            self.relabels.remove(name);
        }
    }

    fn relabelled(&mut self, key: &str, outcome: &Outcome, desk: &Desk<'_>) {
        let Some(name) = key.strip_prefix(RELABEL_CLAIM).or_else(|| key.strip_prefix(RELABEL_NODE)) else {
            return;
        };
        match outcome {
            Outcome::Api(Err(failure)) => {
                tracing::error!(controller = NAME, NodeClaim = name, error = %failure, "relabelling failed");
                self.queue.retry(name.into(), desk.now);
            }
            _ => {
                self.queue.succeeded(&name.into());
                self.queue.add(name.into());
            }
        }
    }
}

fn machine(ask: &ChoreAsk) -> Option<(Text, bool)> {
    match ask {
        ChoreAsk::EndMachine { provider_id, is_ending } => Some((provider_id.clone(), *is_ending)),
        _ => None,
    }
}

/// Deletes the Node of a machine that no claim knows, which drains it; or ends the machine, once it has none. The next look at the cloud
/// tells of it again, until it is gone.
fn end_machine(provider_id: &Text, is_ending: bool, desk: &mut Desk<'_>) {
    let world = desk.world;
    if !world.claims_of(provider_id).is_empty() {
        // It has come meanwhile.
        return;
    }
    let nodes = world.nodes_of(provider_id);
    let Some(node) = nodes.first() else {
        if !is_ending {
            ask_for_end(provider_id, desk);
        }
        return;
    };
    let Some(deleted) = &node.metadata.deletion_timestamp else {
        let name = node.metadata.name.clone().unwrap_or_default();
        let key: Text = format!("{END_NODE}{name}").into();
        if !desk.is_busy(&key) {
            desk.call(&key, write::delete(NODES, "", &name, node.metadata.uid.as_deref()));
        }
        return;
    };
    // A claim could say how long its drain may take; nobody can of a machine without one.
    if !is_ending && desk.now >= after(UnixMillis(deleted.0.as_millisecond()), ORPHAN_DRAINS) {
        ask_for_end(provider_id, desk);
    }
}

fn ask_for_end(provider_id: &Text, desk: &mut Desk<'_>) {
    let key: Text = format!("{END_MACHINE}{provider_id}").into();
    if !desk.is_busy(&key) {
        let claim = ClaimName(Text::default());
        let instance = InstanceRef { provider_id: provider_id.clone(), claim, node_name: None };
        desk.ask_cloud(&key, CloudCall::Terminate(instance));
    }
}

fn machine_ended(provider_id: &str, outcome: &Outcome) {
    match outcome {
        Outcome::Cloud(Err(error)) if !error.is_not_found() => {
            tracing::error!(controller = NAME, "provider-id" = provider_id, %error, "ending an instance that no nodeclaim knows");
        }
        Outcome::Cloud(Ok(_)) => {
            tracing::info!(controller = NAME, "provider-id" = provider_id, "ended an instance that no nodeclaim knows");
        }
        _ => {}
    }
}

/// Writes figures onto the page. A gauge's figures take the place of all that it had.
fn feed(metrics: &Metrics, samples: &[Sample]) {
    let mut by_family: BTreeMap<&'static str, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        by_family.entry(sample.family).or_default().push(sample);
    }
    for (name, samples) in by_family {
        let Some(family) = families::ALL.iter().find(|family| family.name == name) else {
            tracing::debug!(controller = NAME, family = name, "figures of a family that there is not");
            continue;
        };
        let fitting = samples.into_iter().filter(|sample| sample.labels.len() == family.labels.len());
        let labelled =
            fitting.map(|sample| (sample.labels.iter().map(|label| &**label).collect::<Vec<_>>(), sample.value));
        write_figures(metrics, family, labelled);
    }
}

fn write_figures<'a>(metrics: &Metrics, family: &Family, figures: impl Iterator<Item = (Vec<&'a str>, f64)>) {
    match family.shape {
        Shape::Gauge => metrics.replace(family, figures),
        Shape::Counter => figures.for_each(|(labels, value)| metrics.add(family, &labels, value)),
        Shape::Histogram(_) | Shape::Summary => {
            figures.for_each(|(labels, value)| metrics.observe(family, &labels, value));
        }
    }
}

fn lacks(metadata: &ObjectMeta, wanted: &BTreeMap<Text, Option<Text>>) -> bool {
    let has = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key));
    wanted.iter().any(|(key, value)| has(key).map(String::as_str) != value.as_deref())
}

fn relabelling(resource: Resource, name: &str, labels: &BTreeMap<Text, Option<Text>>) -> crate::errand::ApiCall {
    let labels: BTreeMap<&str, Value> = labels
        .iter()
        .map(|(key, value)| (&**key, value.as_deref().map_or(Value::Null, |value| json!(value))))
        .collect();
    write::patch(resource, "", name, json!({"metadata": {"labels": labels}}))
}

/// What the cluster uses now.
fn in_use(world: &World) -> InUse {
    InUse {
        classes: world.classes.values().map(|class| class.value.clone()).collect(),
        claims: world.claims.iter().map(|(name, claim)| claim_in_use(name, claim)).collect(),
        pools: world.pools.iter().map(|(name, pool)| pool_in_use(name, pool)).collect(),
    }
}

fn claim_in_use(name: &Text, claim: &NodeClaim) -> ClaimInUse {
    ClaimInUse {
        name: ClaimName(name.clone()),
        provider_id: claim_provider_id(claim).map(Text::from),
        node_class: class_ref(&claim.spec.node_class_ref),
        labels: texts(claim.metadata.labels.as_ref()),
        annotations: texts(claim.metadata.annotations.as_ref()),
        is_deleting: claim.metadata.deletion_timestamp.is_some(),
    }
}

fn pool_in_use(name: &Text, pool: &NodePool) -> PoolInUse {
    let template = &pool.spec.template;
    let mut requirements = Requirements::new();
    for written in &template.spec.requirements {
        let values: Vec<Text> = written.values.iter().map(|value| value.as_str().into()).collect();
        // What cannot be read is told on the pool's status.
        let operator = Operator::parse(written.operator.as_str());
        if let Some(requirement) = operator.and_then(|operator| Requirement::new(operator, &values)) {
            requirements.add(&written.key, requirement);
        }
    }
    PoolInUse {
        name: PoolName(name.clone()),
        node_class: class_ref(&template.spec.node_class_ref),
        labels: texts(template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref())),
        requirements,
    }
}

fn class_ref(class: &kerf_api::NodeClassRef) -> NodeClassRef {
    NodeClassRef {
        group: class.group.as_str().into(),
        kind: class.kind.as_str().into(),
        name: class.name.as_str().into(),
    }
}

fn texts(map: Option<&BTreeMap<String, String>>) -> Labels {
    map.into_iter().flatten().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect()
}

/// `instance_unhealthy` of `InstanceUnhealthy`.
fn snake_case(words: &str) -> String {
    let mut out = String::with_capacity(words.len() + 4);
    for letter in words.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(family: &'static str, labels: &[&str], value: f64) -> Sample {
        Sample { family, labels: labels.iter().map(|label| (*label).into()).collect(), value }
    }

    #[test]
    fn figures_of_a_gauge_take_the_place_of_what_it_had_and_those_of_a_counter_add_up() {
        let metrics = Metrics::default();
        let cores = families::CLOUDPROVIDER_INSTANCE_TYPE_CPU_CORES;
        let unhealthy = families::INTERRUPTION_INSTANCE_STATUS_UNHEALTHY_TOTAL;
        feed(&metrics, &[sample(cores.name, &["m5.large"], 2.0), sample(cores.name, &["m5.xlarge"], 4.0)]);
        feed(&metrics, &[sample(cores.name, &["m5.large"], 2.0), sample("no_such_family", &[], 1.0)]);
        assert_eq!(metrics.get(&cores, &["m5.large"]), Some(2.0));
        assert_eq!(metrics.get(&cores, &["m5.xlarge"]), None);
        for _ in 0..2 {
            feed(&metrics, &[sample(unhealthy.name, &["SystemStatus"], 1.0), sample(unhealthy.name, &[], 1.0)]);
        }
        assert_eq!(
            metrics.get(&unhealthy, &["SystemStatus"]),
            Some(2.0),
            "and a figure without its labels is left out"
        );
    }

    #[test]
    fn a_reason_reads_as_metrics_write_reasons() {
        assert_eq!(snake_case("InstanceUnhealthy"), "instance_unhealthy");
        assert_eq!(snake_case("capacity_block_expiring"), "capacity_block_expiring");
    }

    #[test]
    fn labels_are_compared_by_what_is_there_and_what_should_not_be() {
        let wanted = BTreeMap::from([("a".into(), Some("1".into())), ("b".into(), None)]);
        let labelled = |pairs: &[(&str, &str)]| ObjectMeta {
            labels: Some(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()),
            ..ObjectMeta::default()
        };
        assert!(!lacks(&labelled(&[("a", "1"), ("c", "3")]), &wanted));
        assert!(lacks(&labelled(&[("a", "2")]), &wanted));
        assert!(lacks(&labelled(&[("a", "1"), ("b", "2")]), &wanted));
        assert!(lacks(&ObjectMeta::default(), &wanted));
    }
}
