//! The Node that a claim becomes, and what a Node says about its instance.

use crate::chance::Chance;
use crate::choice::Candidate;
use jiff::Timestamp;
use kerf_api::taints;
use kerf_cloud::{Instance, LaunchOrder};
use kerf_model::{Labels, Quantity, Requirements, Resources, Text, labels};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub(crate) const PROVIDER_PREFIX: &str = "kwok://";
/// Marks a node as kwok's, as a label and as an annotation.
const FAKE_NODE: &str = "kwok.x-k8s.io/node";
/// Which kwok controller plays the node.
const PARTITION: &str = "kwok-partition";
/// Read by eks-node-viewer.
const PRICE: &str = "eks-node-viewer/instance-price";

/// A node to be, before it is an object.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) name: Text,
    pub(crate) provider_id: Text,
    pub(crate) labels: Labels,
    pub(crate) annotations: BTreeMap<Text, Text>,
    pub(crate) capacity: Resources,
    pub(crate) allocatable: Resources,
}

/// `kwok-<claim>-<two words>-<number>-<ten letters>-<number>`, all of it from the claim's name and uid: a claim that is launched
/// twice gets one node.
pub(crate) fn node_name(order: &LaunchOrder) -> Text {
    const FIRST: [&str; 16] = [
        "amber", "brisk", "calm", "dapper", "early", "fond", "gentle", "hardy", "idle", "jolly", "keen", "lucid",
        "merry", "nimble", "odd", "plain",
    ];
    const SECOND: [&str; 16] = [
        "adder", "badger", "curlew", "dormouse", "eider", "finch", "gannet", "heron", "ibis", "jackdaw", "kite",
        "lapwing", "marten", "newt", "otter", "plover",
    ];
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let draw = |number| Chance::new(0).bits("kwok node", &format!("{} {}", order.claim, order.uid), number);
    let words = draw(0);
    let mut left = draw(1);
    let mut letters = String::new();
    for _ in 0..10 {
        letters.push(char::from(LETTERS[(left % 36) as usize]));
        left /= 36;
    }
    let (first, second) = (FIRST[(words % 16) as usize], SECOND[(words / 16 % 16) as usize]);
    format!("kwok-{}-{first}{second}-{}-{letters}-{}", order.claim, words >> 8 & 0xfff, draw(2) >> 32).into()
}

/// The node of an order under an offering.
pub(crate) fn draft(order: &LaunchOrder, chosen: &Candidate<'_>) -> Draft {
    let name = node_name(order);
    let mut annotations = order.annotations.clone();
    annotations.insert(FAKE_NODE.into(), "fake".into());
    // What the type does not know of, an overlay may have given it: such a resource is there as asked for.
    let capacity = order.requests.overlaid(&chosen.it.capacity_of(chosen.offering));
    let allocatable = order.requests.overlaid(&chosen.it.allocatable_of(chosen.offering));
    Draft {
        provider_id: format!("{PROVIDER_PREFIX}{name}").into(),
        labels: node_labels(order, chosen),
        annotations,
        capacity,
        allocatable,
        name,
    }
}

fn node_labels(order: &LaunchOrder, chosen: &Candidate<'_>) -> Labels {
    let mut out = order.labels.clone();
    // Later ones win: the offering knows best.
    for requirements in [&order.requirements, &chosen.it.requirements, &chosen.offering.requirements] {
        out.extend(single_values(requirements));
    }
    let price = format!("{:.6}", chosen.offering.price.dollars());
    for (key, value) in [
        (labels::INSTANCE_TYPE, chosen.it.name.as_str()),
        (labels::HOSTNAME, order.claim.as_str()),
        (FAKE_NODE, "fake"),
        (PARTITION, "a"),
        (PRICE, &price),
    ] {
        out.insert(key.into(), value.into());
    }
    out
}

fn single_values(requirements: &Requirements) -> impl Iterator<Item = (Text, Text)> {
    requirements.iter().filter_map(|(key, requirement)| Some((key.clone(), requirement.single()?.clone())))
}

impl Draft {
    pub(crate) fn object(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": &*self.name, "labels": texts(&self.labels), "annotations": texts(&self.annotations) },
            "spec": {
                "providerID": &*self.provider_id,
                "taints": [{ "key": taints::UNREGISTERED, "effect": taints::NO_EXECUTE }],
            },
            "status": {
                "capacity": quantities(&self.capacity),
                "allocatable": quantities(&self.allocatable),
                "phase": "Pending",
            },
        })
    }

    pub(crate) fn instance(&self, order: &LaunchOrder, created_ms: i64) -> Instance {
        Instance {
            provider_id: self.provider_id.clone(),
            claim: order.claim.0.clone(),
            labels: self.labels.clone().into(),
            capacity: self.capacity.clone().into(),
            allocatable: self.allocatable.clone().into(),
            created_ms,
            ..Instance::default()
        }
    }
}

/// What a Node says about its instance. None when it is not one of kwok's.
pub(crate) fn instance_of(node: &Value) -> Option<Instance> {
    let metadata = &node["metadata"];
    let provider_id = node["spec"]["providerID"].as_str().filter(|id| id.starts_with(PROVIDER_PREFIX))?;
    let labels: Labels = string_map(&metadata["labels"]);
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let owner = owners.filter(|owner| owner["kind"] == "NodeClaim").find_map(|owner| owner["name"].as_str());
    let claim = owner.map(Text::from).or_else(|| labels.get(labels::HOSTNAME).cloned()).unwrap_or_default();
    Some(Instance {
        provider_id: provider_id.into(),
        claim,
        capacity: resources(&node["status"]["capacity"]).into(),
        allocatable: resources(&node["status"]["allocatable"]).into(),
        is_ending: is_deleting(node),
        created_ms: metadata["creationTimestamp"]
            .as_str()
            .and_then(|text| text.parse::<Timestamp>().ok())
            .map_or(0, Timestamp::as_millisecond),
        labels: labels.into(),
        ..Instance::default()
    })
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn texts(map: &BTreeMap<Text, Text>) -> Map<String, Value> {
    map.iter().map(|(key, value)| (key.to_string(), Value::from(&**value))).collect()
}

fn quantities(resources: &Resources) -> Map<String, Value> {
    resources.iter().map(|(name, amount)| (name.to_string(), amount.to_string().into())).collect()
}

fn string_map(object: &Value) -> BTreeMap<Text, Text> {
    let entries = object.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into()))).collect()
}

/// The API server keeps only what is a quantity; anything else cannot be in an answer of its.
fn resources(object: &Value) -> Resources {
    let entries = object.as_object().into_iter().flatten();
    entries.filter_map(|(name, amount)| Some((name.as_str(), Quantity::parse(amount.as_str()?).ok()?))).collect()
}
