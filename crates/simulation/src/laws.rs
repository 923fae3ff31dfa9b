//! What must hold at the moment when something is sent, whatever went wrong before.

use crate::rehearsal::RunsMachine;
use crate::stage::request;
use kerf_api::labels::TERMINATION_FINALIZER;
use kerf_control_plane::Server;
use kerf_controllers::moment::Moment;
use kerf_controllers::resource::{LEASES, NODES, PODS};
use kerf_controllers::{ApiCall, CloudCall, Errand};
use serde_json::Value;

/// Where the lease is that processes of a rehearsal contend for.
pub(crate) const LEASE: (&str, &str) = ("kube-system", kerf_controllers::lease::NAME);

#[derive(Default)]
pub(crate) struct Laws {
    pub(crate) breaches: Vec<String>,
    /// Somebody has edited the lease: until then its holder need not know.
    pub(crate) stolen_until: Option<Moment>,
    pub(crate) account: Option<RunsMachine>,
}

impl Laws {
    /// Something that changes the world leaves a process.
    pub(crate) fn sent(&mut self, server: &Server, now: Moment, identity: Option<&str>, what: &Errand) {
        if is_write(what)
            && let Some(identity) = identity
            && self.stolen_until.is_none_or(|until| until <= now)
        {
            let held = request(server, "GET", &LEASES.path(LEASE.0, LEASE.1), "", &Value::Null).unwrap_or_default();
            if held["spec"]["holderIdentity"] != identity {
                let holder = &held["spec"]["holderIdentity"];
                self.breaches.push(format!("unfenced: {identity} sends {} while {holder} leads", words(what)));
            }
        }
        let runs = |id: &str| self.account.as_ref().is_some_and(|runs| runs(id));
        for (node, _) in ended_by(server, what).iter().filter(|(_, id)| runs(id)) {
            let pods = pods_left(server, node);
            if !pods.is_empty() {
                self.breaches.push(format!("undrained: {node} is ended with {}", pods.join(", ")));
            }
        }
    }
}

/// Nodes that something ends, and their machines: those of a machine that is to end, and one that nobody's finalizer of ours keeps any more.
fn ended_by(server: &Server, what: &Errand) -> Vec<(String, String)> {
    let is_meant: &dyn Fn(&Value) -> bool = match what {
        Errand::Cloud(CloudCall::Terminate(instance)) => &|node| node["spec"]["providerID"] == *instance.provider_id,
        Errand::Api(call) if lets_go(call) => {
            &|node| call.path == NODES.path("", node["metadata"]["name"].as_str().unwrap_or_default())
        }
        _ => return Vec::new(),
    };
    let list = request(server, "GET", &NODES.collection(), "", &Value::Null).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let nodes = list["items"].as_array().into_iter().flatten().filter(|node| is_meant(node));
    nodes.map(|node| (text(&node["metadata"]["name"]), text(&node["spec"]["providerID"]))).collect()
}

/// Whether our finalizer is on something no more.
fn lets_go(call: &ApiCall) -> bool {
    let finalizers = call.body.pointer("/metadata/finalizers").and_then(Value::as_array);
    call.method == "PATCH" && finalizers.is_some_and(|all| !all.iter().any(|one| one == TERMINATION_FINALIZER))
}

/// Pods on a node that nobody has asked to go, whoever made them. Those of a DaemonSet go with their node.
fn pods_left(server: &Server, node: &str) -> Vec<String> {
    let path = format!("{}?fieldSelector=spec.nodeName%3D{node}", PODS.collection());
    let list = request(server, "GET", &path, "", &Value::Null).unwrap_or_default();
    let is_left = |pod: &&Value| {
        let owner = pod.pointer("/metadata/ownerReferences/0/kind");
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        pod["metadata"]["deletionTimestamp"].is_null()
            && owner.is_none_or(|owner| owner != "DaemonSet")
            && matches!(phase, "Pending" | "Running")
    };
    let left = list["items"].as_array().into_iter().flatten().filter(is_left);
    left.map(|pod| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

fn is_write(errand: &Errand) -> bool {
    match errand {
        Errand::Api(call) => call.method != "GET",
        Errand::Cloud(call) => call.changes_something(),
        Errand::Think(_) => false,
    }
}

pub(crate) fn words(errand: &Errand) -> String {
    match errand {
        Errand::Api(call) => format!("{} {}", call.method, call.path),
        Errand::Cloud(CloudCall::Launch(order)) => format!("launch {}", order.claim),
        Errand::Cloud(CloudCall::Terminate(instance)) => format!("terminate {}", instance.provider_id),
        Errand::Cloud(CloudCall::Get { provider_id }) => format!("get {provider_id}"),
        Errand::Cloud(CloudCall::IsReleased { provider_id }) => format!("whose is {provider_id}"),
        Errand::Cloud(CloudCall::List) => "list".to_owned(),
        Errand::Cloud(CloudCall::Reboot { instance, .. }) => format!("reboot {}", instance.provider_id),
        Errand::Cloud(CloudCall::ResolveClass(_)) => "resolve a class".to_owned(),
        Errand::Cloud(CloudCall::EndClass(_)) => "end a class".to_owned(),
        Errand::Cloud(CloudCall::Drift { instance, .. }) => format!("drift of {}", instance.provider_id),
        Errand::Cloud(CloudCall::LabelInstance(instance)) => format!("label {}", instance.provider_id),
        Errand::Cloud(CloudCall::Notices) => "notices".to_owned(),
        Errand::Cloud(CloudCall::Acknowledge(receipts)) => format!("acknowledge {}", receipts.join(" ")),
        Errand::Cloud(CloudCall::RunChore { name, .. }) => format!("run {name}"),
        Errand::Think(_) => "think".to_owned(),
    }
}
