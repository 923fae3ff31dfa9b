//! A plan carried out: claims become nodes, pods run, and the rest can be asked about.

use super::ask::{PeerAnswer, PeerClaim};
use super::objects;
use super::scenario::Scenario;
use kerf_model::labels;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The cluster after the answer was carried out, except that the pods named stay where they are.
pub(crate) fn after(scenario: &Scenario, answer: &PeerAnswer, except: &[String]) -> Scenario {
    let mut next = scenario.clone();
    let mut places: BTreeMap<&str, String> = BTreeMap::new();
    for (node, pods) in &answer.existing {
        places.extend(pods.iter().map(|pod| (pod.as_str(), node.clone())));
    }
    let n_nodes = scenario.objects.iter().filter(|object| object["kind"] == "Node").count();
    for (position, claim) in answer.claims.iter().enumerate() {
        let name = format!("bought-{:02}", n_nodes + position);
        places.extend(claim.pods.iter().map(|pod| (pod.as_str(), name.clone())));
        next.objects.extend(launched(scenario, claim, &name));
    }
    for object in next.objects.iter_mut().filter(|object| object["kind"] == "Pod") {
        let name = pod_name(object);
        if let Some(node) = places.get(name.as_str()).filter(|_| !except.contains(&name)) {
            object["spec"]["nodeName"] = json!(node);
            object["status"] = json!({"phase": "Running"});
        }
    }
    next
}

/// As the peer's harness names it.
pub(crate) fn pod_name(pod: &Value) -> String {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    match text("namespace") {
        "default" => text("name").to_owned(),
        namespace => format!("{namespace}/{}", text("name")),
    }
}

/// The cheapest offering that the claim allows, as a node.
fn launched(scenario: &Scenario, claim: &PeerClaim, name: &str) -> Vec<Value> {
    let allows = |key: &str, value: &str| {
        claim.requirements.get(key).is_none_or(|requirement| match requirement.operator.as_str() {
            "In" => requirement.values.iter().any(|allowed| allowed == value),
            "NotIn" => !requirement.values.iter().any(|refused| refused == value),
            operator => operator == "Exists",
        })
    };
    let Some(kind) = scenario.types.iter().find(|kind| kind["name"] == claim.cheapest_type.as_str()) else {
        return Vec::new();
    };
    let value_of = |offering: &Value, key: &str| -> String {
        let requirements = offering["Requirements"].as_array().into_iter().flatten();
        let own = requirements.filter(|requirement| requirement["key"] == key);
        own.filter_map(|requirement| requirement["values"][0].as_str()).collect()
    };
    let price = |offering: &&Value| (offering["Price"].as_f64().unwrap_or(f64::MAX) * 1e6) as i64;
    let cheapest = kind["offerings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|offering| {
            [labels::ZONE, labels::CAPACITY_TYPE].into_iter().all(|key| allows(key, &value_of(offering, key)))
        })
        .min_by_key(price);
    let mut all = objects::labels_of_type(kind);
    for (key, requirement) in &claim.requirements {
        if let ("In", [first, ..]) = (requirement.operator.as_str(), requirement.values.as_slice())
            && all.get(key).is_none()
        {
            all[key] = json!(first);
        }
    }
    if let Some(offering) = cheapest {
        for key in [labels::ZONE, labels::CAPACITY_TYPE] {
            all[key] = json!(value_of(offering, key));
        }
    }
    all[labels::HOSTNAME] = json!(name);
    let pool = scenario
        .objects
        .iter()
        .find(|object| object["kind"] == "NodePool" && object["metadata"]["name"] == claim.pool.as_str());
    let taints = pool.and_then(|pool| pool.pointer("/spec/template/spec/taints")).and_then(Value::as_array);
    objects::machine(name, &all, taints.map_or(&[], Vec::as_slice), kind, true)
}
