//! Duty `disruption.brake`: while the brake is pulled, asks whether it is so.
//!
//! | looks | who is asked | agrees when |
//! |---|---|---|
//! | empty | the API server, for all pods, page by page | nobody is listed on a node that still looks empty |
//! | gone | the cloud, for all instances | none of the machines is listed |
//! | expired | the API server, what time it is (an event that it does not store) | their time is over by its clock, too |
//! | unclaimed | the cloud, for all instances; then the API server, for all `NodeClaim`s | none of the machines has a claim, and as many machines of the list have one, or a Node: under another cluster's name there are few |

use super::brake::Looks;
use crate::conditions::time;
use crate::desk::Desk;
use crate::disruption::marks;
use crate::duty::Duty;
use crate::errand::{CloudAnswer, CloudCall, Outcome};
use crate::limits::{BRAKE_AGAIN_FIRST, BRAKE_AGAIN_MOST, BRAKE_CATCH_UP, BRAKE_CLOCK_MAY_DIFFER, LIST_PAGES_MAX};
use crate::moment::millis;
use crate::queue::{Queue, earlier};
use crate::resource::{EVENTS, NODE_CLAIMS, PODS};
use crate::upkeep::expires;
use crate::world::{Change, World, claim_provider_id};
use crate::write;
use k8s_openapi::api::core::v1::Pod;
use kerf_mirror::{Kind, ObjectKey, PodState};
use kerf_model::{PodId, Text, UnixMillis};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const NAME: &str = "disruption.brake";
const NO_LIST: &str = "its answer is no list";
const ENDLESS: &str = "its list has no end";

/// Nothing is removed before the answers to these.
pub struct Check {
    /// When to ask, by what looks how.
    queue: Queue<Looks>,
    /// When the answer that is under way was asked for.
    asked: BTreeMap<Looks, UnixMillis>,
    pods: Pods,
    claims: Claims,
}

/// A fresh list of pods.
#[derive(Debug, Default)]
struct Pods {
    n_pages: usize,
    /// Pods on nodes that looked empty, by claim.
    found: Vec<Found>,
    /// All pages are there; what was found is weighed until then, because our own picture may be a moment behind.
    weighed_until: Option<UnixMillis>,
}

#[derive(Debug)]
struct Found {
    claim: Text,
    node: Text,
    pod: PodId,
    version: u64,
}

/// A fresh list of claims, and the machines that were listed before it.
#[derive(Debug, Default)]
struct Claims {
    machines: BTreeSet<Text>,
    n_pages: usize,
    /// Whose machine no claim seemed to know.
    found: Vec<Text>,
    n_known: usize,
}

impl Default for Check {
    fn default() -> Self {
        Self {
            queue: Queue::new(millis(BRAKE_AGAIN_FIRST), millis(BRAKE_AGAIN_MOST)),
            asked: BTreeMap::new(),
            pods: Pods::default(),
            claims: Claims::default(),
        }
    }
}

impl Duty for Check {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, _: &Change, _: &World) {}

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        // What was asked and is not under way any more had an answer that nobody could take in: it is asked again.
        let is_weighing = self.pods.weighed_until.is_some();
        let is_under_way = |looks: Looks| desk.is_busy(looks.as_str()) || looks == Looks::Empty && is_weighing;
        let lost: Vec<Looks> = self.asked.keys().copied().filter(|looks| !is_under_way(*looks)).collect();
        for looks in lost {
            self.asked.remove(&looks);
            self.queue.retry(looks, desk.now);
        }
        for looks in Looks::ALL {
            if let Some(pulled) = desk.brake.pulled_by(looks)
                && !self.asked.contains_key(&looks)
            {
                match pulled.objection {
                    None if self.queue.n_failures(&looks) == 0 => self.queue.add(looks),
                    _ => self.queue.add_at(looks, UnixMillis(desk.now.0 + millis(BRAKE_AGAIN_MOST))),
                }
            }
        }
        for looks in self.queue.take_due(desk.now) {
            if desk.brake.pulled_by(looks).is_some() && !self.asked.contains_key(&looks) {
                self.ask(looks, desk);
            }
        }
        let was_pulled = desk.brake.pulled().is_some();
        self.weigh(desk);
        if was_pulled && desk.brake.pulled().is_none() {
            // Whoever waits for it has worked already in this round.
            return Some(desk.now);
        }
        earlier(self.queue.next(), self.pods.weighed_until)
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        let Some(looks) = Looks::ALL.into_iter().find(|looks| looks.as_str() == &**key) else {
            return;
        };
        match (looks, outcome) {
            (Looks::Empty, Outcome::Api(Ok(page))) => self.took_page(page, desk),
            (Looks::Unclaimed, Outcome::Cloud(Ok(CloudAnswer::Listed(instances)))) => {
                let machines = instances.into_iter().map(|it| it.provider_id).collect();
                self.claims = Claims { machines, ..Claims::default() };
                desk.call(key, write::get(NODE_CLAIMS.page("")));
            }
            (Looks::Unclaimed, Outcome::Api(Ok(page))) => self.took_claims(page, desk),
            (Looks::Gone, Outcome::Cloud(Ok(CloudAnswer::Listed(instances)))) => {
                let listed: BTreeSet<&str> =
                    instances.iter().filter(|it| !it.is_ending).map(|it| &*it.provider_id).collect();
                let is_there = |claim: &Text| {
                    let claim = desk.world.claims.get(claim);
                    claim.and_then(|claim| claim_provider_id(claim)).is_some_and(|id| listed.contains(id))
                };
                let there: Vec<Text> =
                    desk.brake.suspects(looks).map(|(claim, _)| claim.clone()).filter(is_there).collect();
                // The newer of two lists counts, but two that differ about so many are none to go by.
                there.iter().for_each(|claim| desk.brake.clear(looks, claim));
                let objection = (!there.is_empty()).then(|| format!("it has the machines of {}", few(&there)));
                self.judged(looks, objection, desk);
            }
            (Looks::Expired, Outcome::Api(Ok(event))) => {
                let objection = match event["metadata"]["creationTimestamp"].as_str().map(str::parse::<jiff::Timestamp>)
                {
                    Some(Ok(server)) => {
                        let latest = UnixMillis(server.as_millisecond() + millis(BRAKE_CLOCK_MAY_DIFFER));
                        let claims = desk.brake.suspects(looks).filter_map(|(claim, _)| desk.world.claims.get(claim));
                        let n_young = claims.filter(|claim| expires(claim).is_some_and(|then| then > latest)).count();
                        (n_young > 0).then(|| format!("by it, {server}, the time of {n_young} of them is not over"))
                    }
                    _ => Some("it does not tell its time".to_owned()),
                };
                self.judged(looks, objection, desk);
            }
            (_, Outcome::Api(Err(failure))) => self.judged(looks, Some(failure.to_string()), desk),
            (_, Outcome::Cloud(Err(error))) => self.judged(looks, Some(error.to_string()), desk),
            (_, _) => self.judged(looks, Some("the answer makes no sense".to_owned()), desk),
        }
    }
}

impl Check {
    fn ask(&mut self, looks: Looks, desk: &mut Desk<'_>) {
        self.asked.insert(looks, desk.now);
        let key: Text = looks.as_str().into();
        match looks {
            Looks::Empty => {
                self.pods = Pods::default();
                desk.call(&key, write::get(PODS.page("")));
            }
            Looks::Gone | Looks::Unclaimed => desk.ask_cloud(&key, CloudCall::List),
            Looks::Expired => desk.call(&key, what_time_is_it(desk.now)),
        }
    }

    /// The answer is there, and agrees unless there is an objection.
    fn judged(&mut self, looks: Looks, objection: Option<String>, desk: &mut Desk<'_>) {
        let Some(asked) = self.asked.remove(&looks) else { return };
        match objection {
            None => {
                self.queue.forget(&looks);
                desk.brake.agree(looks, asked, desk.now);
                tracing::info!(controller = NAME, looks = looks.as_str(), "it is so; going on");
                // Some may have come to look so meanwhile.
                desk.note_looks(looks, []);
            }
            Some(objection) => {
                let ms = self.queue.retry(looks, desk.now);
                tracing::warn!(
                    controller = NAME,
                    looks = looks.as_str(),
                    objection,
                    again_after = format!("{ms}ms"),
                    "it may not be so"
                );
                desk.brake.object(looks, objection);
            }
        }
    }

    fn took_page(&mut self, mut answer: Value, desk: &mut Desk<'_>) {
        let claims: BTreeMap<&Text, Text> = desk
            .brake
            .suspects(Looks::Empty)
            .filter_map(|(claim, _)| {
                let node = desk.world.node_of_claim(desk.world.claims.get(claim)?)?;
                Some((claim, marks::name_of(&node.metadata)))
            })
            .collect();
        let claims: BTreeMap<&str, &Text> = claims.iter().map(|(claim, node)| (&**node, *claim)).collect();
        let Some(Value::Array(items)) = answer.get_mut("items").map(Value::take) else {
            return self.judged(Looks::Empty, Some(NO_LIST.to_owned()), desk);
        };
        for item in items {
            let Some(claim) = item["spec"]["nodeName"].as_str().and_then(|node| claims.get(node)) else { continue };
            self.pods.found.extend(found(claim, item));
        }
        self.pods.n_pages += 1;
        match next_page(&answer) {
            Some(_) if self.pods.n_pages >= LIST_PAGES_MAX => {
                self.judged(Looks::Empty, Some(ENDLESS.to_owned()), desk);
            }
            Some(token) => desk.call(&Looks::Empty.as_str().into(), write::get(PODS.page(token))),
            None => self.pods.weighed_until = Some(UnixMillis(desk.now.0 + millis(BRAKE_CATCH_UP))),
        }
    }

    fn took_claims(&mut self, mut answer: Value, desk: &mut Desk<'_>) {
        let looks = Looks::Unclaimed;
        let Some(Value::Array(items)) = answer.get_mut("items").map(Value::take) else {
            return self.judged(looks, Some(NO_LIST.to_owned()), desk);
        };
        for id in items.iter().filter_map(|item| item["status"]["providerID"].as_str()) {
            self.claims.n_known += usize::from(self.claims.machines.contains(id));
            if desk.brake.is_suspect(looks, id) {
                self.claims.found.push(id.into());
            }
        }
        self.claims.n_pages += 1;
        match next_page(&answer) {
            Some(_) if self.claims.n_pages >= LIST_PAGES_MAX => self.judged(looks, Some(ENDLESS.to_owned()), desk),
            Some(token) => desk.call(&looks.as_str().into(), write::get(NODE_CLAIMS.page(token))),
            None => {
                let Claims { machines, found, n_known, .. } = std::mem::take(&mut self.claims);
                let suspects: Vec<Text> = desk.brake.suspects(looks).map(|(id, _)| id.clone()).collect();
                let (left, gone): (Vec<Text>, Vec<Text>) = suspects.into_iter().partition(|id| machines.contains(id));
                found.iter().chain(&gone).for_each(|id| desk.brake.clear(looks, id));
                // Whoever buys under another cluster's name has a few of his own in its list.
                let n_ours = n_known + left.iter().filter(|id| !desk.world.nodes_of(id).is_empty()).count();
                let objection = if !found.is_empty() {
                    Some(format!("NodeClaims have machines {}", few(&found)))
                } else if n_ours < left.len() {
                    let n_machines = machines.len();
                    let words = "have a NodeClaim or a Node here: the others may be another cluster's (is the cluster's name right?)";
                    Some(format!("only {n_ours} of {n_machines} machines {words}"))
                } else {
                    None
                };
                self.judged(looks, objection, desk);
            }
        }
    }

    /// Whoever was found on a node that looks empty stands against that, unless we know something newer, or the node has come to look
    /// otherwise.
    fn weigh(&mut self, desk: &mut Desk<'_>) {
        let Some(until) = self.pods.weighed_until else { return };
        let (brake, world) = (&*desk.brake, desk.world);
        self.pods.found.retain(|found| {
            let is_leaving = world.claims.get(&found.claim).is_none_or(|claim| marks::is_leaving(claim, None));
            !is_leaving && brake.is_suspect(Looks::Empty, &found.claim) && !knows_newer(world, found)
        });
        let objection = match self.pods.found.first() {
            None => None,
            Some(_) if desk.now < until => return,
            Some(first) => {
                let others = self.pods.found.iter().map(|it| &it.node).collect::<BTreeSet<_>>().len() - 1;
                let others =
                    if others > 0 { format!(", and {others} more nodes are not empty") } else { String::new() };
                Some(format!("node {} runs pod {}{others}", first.node, first.pod))
            }
        };
        self.pods = Pods::default();
        self.judged(Looks::Empty, objection, desk);
    }
}

/// A pod of the list, if it keeps its node from being empty. One that cannot be read does.
fn found(claim: &Text, item: Value) -> Option<Found> {
    let text = |pointer: &str| item.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let pod = PodId::new(text("/metadata/namespace"), text("/metadata/name"));
    let node = text("/spec/nodeName").into();
    let version = text("/metadata/resourceVersion").parse().unwrap_or(u64::MAX);
    let is_in_the_way = serde_json::from_value::<Pod>(item).map_or(true, |pod| PodState::read(&pod).is_reschedulable());
    is_in_the_way.then(|| Found { claim: claim.clone(), node, pod, version })
}

fn knows_newer(world: &World, found: &Found) -> bool {
    let (namespace, name) = (found.pod.namespace.clone(), found.pod.name.clone());
    world.knows_newer(&ObjectKey { kind: Kind::Pod, class_kind: None, namespace, name }, found.version)
}

fn next_page(answer: &Value) -> Option<&str> {
    answer["metadata"]["continue"].as_str().filter(|token| !token.is_empty())
}

/// An event that is not stored, for the sake of the time that the API server writes on it.
fn what_time_is_it(now: UnixMillis) -> crate::ApiCall {
    let ours = time(now);
    let body = json!({
        "metadata": {"generateName": "kerf-clock-", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Namespace", "name": "default", "namespace": "default"},
        "reason": "Clock", "message": "What time is it?", "type": "Normal", "source": {"component": "karpenter"},
        "firstTimestamp": ours, "lastTimestamp": ours, "count": 1,
    });
    let mut call = write::create(EVENTS, "default", &body);
    call.path.push_str("?dryRun=All");
    call
}

fn few(claims: &[Text]) -> String {
    match claims {
        [] => String::new(),
        [one] => one.to_string(),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
    }
}
