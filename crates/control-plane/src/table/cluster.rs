//! The rows of what a cluster is made of: nodes, services, volumes, claims, quotas, roles, webhooks, events.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::ages;
use super::read::{is_true, items, joined, labels, n_entries, number, selector, text, text_if_set, text_or};
use super::workloads::Around;

pub(super) fn node(object: &Value) -> Around {
    let (spec, status) = (&object["spec"], &object["status"]);
    let ready = items(&status["conditions"]).iter().rfind(|condition| condition["type"] == "Ready");
    let mut said = match ready {
        None => "Unknown",
        Some(ready) if ready["status"] == "True" => "Ready",
        Some(_) => "NotReady",
    }
    .to_owned();
    if is_true(&spec["unschedulable"]) {
        said.push_str(",SchedulingDisabled");
    }
    let roles: BTreeSet<&str> = object["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => (key == "kubernetes.io/role").then(|| text(value)),
        })
        .filter(|role| !role.is_empty())
        .collect();
    let roles = roles.into_iter().collect::<Vec<_>>().join(",");
    let roles = if roles.is_empty() { "<none>" } else { &roles };

    let info = &status["nodeInfo"];
    let mut kernel = text_or(&info["kernelVersion"], "<unknown>").to_owned();
    if !text(&info["architecture"]).is_empty() {
        kernel = format!("{kernel} ({})", text(&info["architecture"]));
    }
    let address = |kind: &str| {
        let found = items(&status["addresses"]).iter().find(|address| address["type"] == kind);
        found.map_or("<none>", |address| text(&address["address"])).to_owned()
    };
    let after = vec![
        json!(text(&info["kubeletVersion"])),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        json!(text_or(&info["osImage"], "<unknown>")),
        json!(kernel),
        json!(text_or(&info["containerRuntimeVersion"], "<unknown>")),
    ];
    (vec![json!(said), json!(roles)], after)
}

pub(super) fn service(object: &Value) -> Around {
    let spec = &object["spec"];
    let ports: Vec<String> = items(&spec["ports"])
        .iter()
        .map(|port| {
            let (own, protocol) = (number(&port["port"]), text(&port["protocol"]));
            match number(&port["nodePort"]) {
                on_nodes if on_nodes > 0 => format!("{own}:{on_nodes}/{protocol}"),
                _ => format!("{own}/{protocol}"),
            }
        })
        .collect();
    let cells = vec![
        json!(text(&spec["type"])),
        json!(text_if_set(&spec["clusterIPs"][0], "<none>")),
        json!(external_address(object)),
        json!(if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") }),
    ];
    (cells, vec![json!(labels(&spec["selector"]))])
}

fn external_address(service: &Value) -> String {
    let spec = &service["spec"];
    let mut given: Vec<&str> = Vec::new();
    let otherwise = match text(&spec["type"]) {
        "ClusterIP" | "NodePort" => "<none>",
        "LoadBalancer" => {
            let balancers: BTreeSet<&str> = items(&service["status"]["loadBalancer"]["ingress"])
                .iter()
                .map(|ingress| text_or(&ingress["ip"], text(&ingress["hostname"])))
                .filter(|address| !address.is_empty())
                .collect();
            given.extend(balancers);
            "<pending>"
        }
        "ExternalName" => return text(&spec["externalName"]).to_owned(),
        _ => return "<unknown>".to_owned(),
    };
    given.extend(items(&spec["externalIPs"]).iter().map(text));
    if given.is_empty() { otherwise.to_owned() } else { given.join(",") }
}

/// The first three addresses, and how many more there are.
pub(super) fn endpoints(object: &Value) -> Around {
    const SHOWN_MAX: usize = 3;
    let mut all = Vec::new();
    for subset in items(&object["subsets"]) {
        let addresses = || items(&subset["addresses"]).iter().map(|address| text(&address["ip"]));
        let ports = items(&subset["ports"]);
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            all.extend(addresses().map(|ip| {
                let port = number(&port["port"]);
                if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
            }));
        }
    }
    let shown = all.iter().take(SHOWN_MAX).cloned().collect::<Vec<_>>().join(",");
    let said = match () {
        () if items(&object["subsets"]).is_empty() => "<none>".to_owned(),
        () if all.len() > SHOWN_MAX => format!("{shown} + {} more...", all.len() - SHOWN_MAX),
        () => shown,
    };
    (vec![json!(said)], Vec::new())
}

pub(super) fn volume(object: &Value) -> Around {
    let (spec, status) = (&object["spec"], &object["status"]);
    let claim = &spec["claimRef"];
    let claim = if claim.is_object() {
        format!("{}/{}", text(&claim["namespace"]), text(&claim["name"]))
    } else {
        String::new()
    };
    let cells = vec![
        json!(quantity(&spec["capacity"]["storage"])),
        json!(access_modes(&spec["accessModes"])),
        json!(text(&spec["persistentVolumeReclaimPolicy"])),
        json!(phase(object)),
        json!(claim),
        json!(storage_class_of(object)),
        json!(text_if_set(&spec["volumeAttributesClassName"], "<unset>")),
        json!(text(&status["reason"])),
    ];
    (cells, vec![json!(text_if_set(&spec["volumeMode"], "<unset>"))])
}

pub(super) fn claim(object: &Value) -> Around {
    let (spec, status) = (&object["spec"], &object["status"]);
    let is_bound = !text(&spec["volumeName"]).is_empty();
    let (capacity, modes) = if is_bound {
        (quantity(&status["capacity"]["storage"]), access_modes(&status["accessModes"]))
    } else {
        (String::new(), String::new())
    };
    let cells = vec![
        json!(phase(object)),
        json!(text(&spec["volumeName"])),
        json!(capacity),
        json!(modes),
        json!(storage_class_of(object)),
        json!(text_if_set(&spec["volumeAttributesClassName"], "<unset>")),
    ];
    (cells, vec![json!(text_if_set(&spec["volumeMode"], "<unset>"))])
}

fn phase(object: &Value) -> &str {
    if object["metadata"]["deletionTimestamp"].is_string() { "Terminating" } else { text(&object["status"]["phase"]) }
}

fn quantity(value: &Value) -> String {
    text_or(value, "0").to_owned()
}

/// The annotation is older than the field, and goes first.
fn storage_class_of(object: &Value) -> &str {
    let annotated = &object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    text_if_set(annotated, text(&object["spec"]["storageClassName"]))
}

fn access_modes(modes: &Value) -> String {
    const SHORT: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let given = items(modes);
    let short = SHORT.iter().filter(|(mode, _)| given.iter().any(|given| given == mode)).map(|(_, short)| *short);
    short.collect::<Vec<_>>().join(",")
}

pub(super) fn storage_class(object: &Value) -> Around {
    let cells = vec![
        json!(text(&object["provisioner"])),
        json!(text_if_set(&object["reclaimPolicy"], "Delete")),
        json!(text_if_set(&object["volumeBindingMode"], "Immediate")),
        json!(is_true(&object["allowVolumeExpansion"])),
    ];
    (cells, Vec::new())
}

/// A storage class says beside its name that it is the default.
pub(super) fn storage_class_name(object: &Value) -> String {
    let annotations = &object["metadata"]["annotations"];
    let is_default =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
            .iter()
            .any(|key| annotations[*key] == "true");
    format!("{}{}", text(&object["metadata"]["name"]), if is_default { " (default)" } else { "" })
}

pub(super) fn csi_driver(object: &Value) -> Around {
    let spec = &object["spec"];
    let modes: Vec<&str> = items(&spec["volumeLifecycleModes"]).iter().map(text).collect();
    let tokens = &spec["tokenRequests"];
    let tokens = if tokens.is_array() { joined(tokens, "audience") } else { "<unset>".to_owned() };
    let cells = vec![
        json!(spec["attachRequired"].as_bool().unwrap_or(true)),
        json!(is_true(&spec["podInfoOnMount"])),
        json!(is_true(&spec["storageCapacity"])),
        json!(tokens),
        json!(is_true(&spec["requiresRepublish"])),
        json!(if modes.is_empty() { "<none>".to_owned() } else { modes.join(",") }),
    ];
    (cells, Vec::new())
}

pub(super) fn volume_attachment(object: &Value) -> Around {
    let spec = &object["spec"];
    let cells = vec![
        json!(text(&spec["attacher"])),
        json!(text(&spec["source"]["persistentVolumeName"])),
        json!(text(&spec["nodeName"])),
        json!(is_true(&object["status"]["attached"])),
    ];
    (cells, Vec::new())
}

/// `cpu: 1/4, pods: 3/10`, limits apart.
pub(super) fn quota(object: &Value) -> Around {
    let status = &object["status"];
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let mut hard: Vec<_> = status["hard"].as_object().into_iter().flatten().collect();
    hard.sort_by_key(|(name, _)| *name);
    for (name, hard) in hard {
        let said = format!("{name}: {}/{}", quantity(&status["used"][name]), quantity(hard));
        if name.starts_with("limits.") { limits.push(said) } else { requests.push(said) }
    }
    (vec![json!(requests.join(", ")), json!(limits.join(", "))], Vec::new())
}

pub(super) fn role_binding(object: &Value) -> Around {
    let role = &object["roleRef"];
    let role = format!("{}/{}", text(&role["kind"]), text(&role["name"]));
    let subjects = |kind: &str| {
        let of_kind = items(&object["subjects"]).iter().filter(|subject| subject["kind"] == kind);
        let named = of_kind.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text(&subject["namespace"]), text(&subject["name"])),
            _ => text(&subject["name"]).to_owned(),
        });
        json!(named.collect::<Vec<_>>().join(", "))
    };
    (vec![json!(role)], vec![subjects("User"), subjects("Group"), subjects("ServiceAccount")])
}

pub(super) fn admission_policy(object: &Value) -> Around {
    let kind = &object["spec"]["paramKind"];
    let kind = if kind.is_object() {
        format!("{}/{}", text(&kind["apiVersion"]), text(&kind["kind"]))
    } else {
        "<unset>".to_owned()
    };
    (vec![json!(n_entries(&object["spec"]["validations"])), json!(kind)], Vec::new())
}

pub(super) fn admission_policy_binding(object: &Value) -> Around {
    let by = &object["spec"]["paramRef"];
    let by = match (text(&by["name"]), text(&by["namespace"])) {
        ("", _) if by["selector"].is_object() => selector(&by["selector"]),
        ("", _) => "<unset>".to_owned(),
        (name, "") => format!("*/{name}"),
        (name, namespace) => format!("{namespace}/{name}"),
    };
    (vec![json!(text(&object["spec"]["policyName"])), json!(by)], Vec::new())
}

pub(super) fn resource_claim(object: &Value) -> Around {
    let is_deleting = object["metadata"]["deletionTimestamp"].is_string();
    let is_allocated = object["status"]["allocation"].is_object();
    let states = [
        (is_deleting, "deleted"),
        (!is_allocated && !is_deleting, "pending"),
        (is_allocated, "allocated"),
        (is_allocated && !items(&object["status"]["reservedFor"]).is_empty(), "reserved"),
    ];
    let said: Vec<&str> = states.iter().filter(|(holds, _)| *holds).map(|(_, state)| *state).collect();
    (vec![json!(said.join(","))], Vec::new())
}

pub(super) fn resource_slice(object: &Value) -> Around {
    let spec = &object["spec"];
    let cells = vec![json!(text(&spec["nodeName"])), json!(text(&spec["driver"])), json!(text(&spec["pool"]["name"]))];
    (cells, Vec::new())
}

/// All cells of an event, which puts the time first. Both groups that show events spell the fields in their own way.
pub(super) fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let either = |old: &str, new: &str| if object[old].is_null() { &object[new] } else { &object[old] };
    let first = match either("firstTimestamp", "deprecatedFirstTimestamp") {
        Value::Null => ages::since(&object["eventTime"], now),
        first => ages::since(first, now),
    };
    let mut last = match either("lastTimestamp", "deprecatedLastTimestamp") {
        Value::Null => first.clone(),
        last => ages::since(last, now),
    };
    let mut count = number(either("count", "deprecatedCount")).max(1);
    let series = &object["series"];
    if series.is_object() {
        last = ages::since(&series["lastObservedTime"], now);
        count = number(&series["count"]);
    }
    let about = either("involvedObject", "regarding");
    let kind = text(&about["kind"]).to_lowercase();
    let target = if text(&about["name"]).is_empty() { kind } else { format!("{kind}/{}", text(&about["name"])) };
    let source = either("source", "deprecatedSource");
    let controller = either("reportingComponent", "reportingController");
    let component = text_or(&source["component"], text(controller));
    let host = text_or(&source["host"], text(&object["reportingInstance"]));
    let source = if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") };
    vec![
        json!(last),
        json!(text(&object["type"])),
        json!(text(&object["reason"])),
        json!(target),
        json!(text(&about["fieldPath"])),
        json!(source),
        json!(text(either("message", "note")).trim()),
        json!(first),
        json!(count),
        object["metadata"]["name"].clone(),
    ]
}
