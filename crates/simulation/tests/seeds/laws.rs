//! What must hold at any time, and what when trouble is over: as the account and the objects say, whatever the operator thinks.

use kerf_cloud_sim::SimCloud;
use kerf_simulation::Rehearsal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What a pool allows.
pub(crate) struct Allowed {
    pub(crate) pool: &'static str,
    pub(crate) cores: u32,
    pub(crate) disrupted: usize,
}

/// At any time.
pub(crate) fn always(scene: &Rehearsal, cloud: &SimCloud, allowed: &[Allowed]) -> Vec<String> {
    let mut breaches = scene.breaches().to_vec();
    let claims = scene.claims();
    let names: BTreeSet<&str> = claims.iter().map(name).collect();
    let running = cloud.running();
    let mut machines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in &running {
        machines.entry(&line.claim).or_default().push(&line.provider_id);
    }
    for (claim, ids) in &machines {
        if ids.len() > 1 {
            breaches.push(format!("double launch: {claim} has {}", ids.join(", ")));
        }
        if !names.contains(claim) {
            breaches.push(format!("orphan: {} has no claim {claim}", ids.join(", ")));
        }
    }
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for claim in &claims {
        if let Some(id) = claim["status"]["providerID"].as_str()
            && let Some(other) = owners.insert(id, name(claim))
        {
            breaches.push(format!("one machine for two: {id} is {other}'s and {}'s", name(claim)));
        }
    }
    // A limit is about what stays: what goes may be replaced before it is gone, and a Node that somebody deletes takes its claim with it. What
    // is only marked may stay after all.
    let nodes = scene.nodes();
    let is_going = |node: &&Value| !node["metadata"]["deletionTimestamp"].is_null();
    let going: BTreeSet<&str> =
        nodes.iter().filter(is_going).filter_map(|node| node["spec"]["providerID"].as_str()).collect();
    let stays = |claim: &&Value| {
        claim["metadata"]["deletionTimestamp"].is_null()
            && claim["status"]["providerID"].as_str().is_none_or(|id| !going.contains(id))
    };
    let staying: BTreeSet<&str> = claims.iter().filter(stays).map(name).collect();
    for Allowed { pool, cores, disrupted } in allowed {
        let is_of_pool = |claim: &str| pool_of(claim) == *pool && staying.contains(claim);
        let of_pool = running.iter().filter(|line| is_of_pool(&line.claim));
        let n_cores: u32 = of_pool.map(|line| cores_of(line.offering.instance_type.as_str())).sum();
        if n_cores > *cores {
            breaches.push(format!("limit: pool {pool} has {n_cores} cores of {cores}"));
        }
        let goes = |claim: &&Value| {
            pool_of(name(claim)) == *pool
                && !claim["metadata"]["deletionTimestamp"].is_null()
                && is_true(claim, "DisruptionReason")
                && !is_true(claim, "InstanceTerminating")
        };
        let going: Vec<&str> = claims.iter().filter(goes).map(name).collect();
        if going.len() > *disrupted {
            breaches.push(format!("budget: pool {pool} lets {disrupted} go, not {}", going.join(", ")));
        }
    }
    breaches
}

/// When trouble has been over for long enough, and so many pods of each deployment are wanted.
pub(crate) fn at_rest(scene: &Rehearsal, cloud: &SimCloud, wanted: &[(&str, u64)]) -> Vec<String> {
    let mut breaches = Vec::new();
    let pods = scene.pods();
    for (app, n_wanted) in wanted {
        let stays = |pod: &&Value| {
            pod["metadata"]["labels"]["app"] == *app
                && pod["status"]["phase"] == "Running"
                && pod["metadata"]["deletionTimestamp"].is_null()
        };
        let n_running = pods.iter().filter(stays).count();
        if u64::try_from(n_running) != Ok(*n_wanted) {
            breaches.push(format!("{n_running} pods of {app} run, not {n_wanted}"));
        }
    }
    for pod in &pods {
        if pod["status"]["phase"] != "Running" {
            let phase = pod["status"]["phase"].as_str().unwrap_or_default();
            breaches.push(format!("pod {} is left {phase}", name(pod)));
        }
    }
    let (claims, nodes) = (scene.claims(), scene.nodes());
    let ids = |objects: &[Value], pointer: &str| -> BTreeSet<String> {
        objects.iter().filter_map(|it| Some(it.pointer(pointer)?.as_str()?.to_owned())).collect()
    };
    let of_claims = ids(&claims, "/status/providerID");
    let of_nodes = ids(&nodes, "/spec/providerID");
    let running: BTreeSet<String> = cloud.running().iter().map(|line| line.provider_id.to_string()).collect();
    if of_claims != running || of_nodes != running {
        breaches.push(format!("machines {running:?}, claims of {of_claims:?}, nodes of {of_nodes:?}"));
    }
    // Pools let empty nodes go.
    for node in &nodes {
        let is_on_it = |pod: &Value| pod["spec"]["nodeName"] == node["metadata"]["name"];
        if !pods.iter().any(is_on_it) {
            breaches.push(format!("idle: node {} runs nothing", name(node)));
        }
    }
    for node in &nodes {
        let taints = node["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_marked = taints.iter().any(|taint| taint["key"] == "karpenter.sh/disrupted");
        if is_marked && node["metadata"]["deletionTimestamp"].is_null() {
            breaches.push(format!("node {} is still marked to go", name(node)));
        }
    }
    for claim in &claims {
        if claim["metadata"]["deletionTimestamp"].is_null() && is_true(claim, "DisruptionReason") {
            breaches.push(format!("claim {} still has a reason to go", name(claim)));
        }
    }
    if scene.leader().is_none() {
        breaches.push("nobody leads".to_owned());
    }
    breaches
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Claims are called after their pools.
fn pool_of(claim: &str) -> &str {
    claim.rsplit_once('-').map_or(claim, |(pool, _)| pool)
}

fn is_true(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// The sizes that the pools of the story allow.
fn cores_of(instance_type: &str) -> u32 {
    match instance_type.rsplit('.').next() {
        Some("large") => 2,
        Some("xlarge") => 4,
        _ => panic!("no pool allows {instance_type}"),
    }
}
