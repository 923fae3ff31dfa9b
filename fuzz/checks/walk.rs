//! The request path over requests that almost make sense: each byte of the input is a choice, so that most of them get past
//! the first door and the odd thing sits deep inside.

use crate::control_plane::{Rehearsal, request};
use serde_json::{Map, Value, json};

pub(crate) fn check(input: &[u8]) {
    let mut choices = Choices { bytes: input, at: 0 };
    let mut rehearsal = Rehearsal::new(choices.once_in(6));
    for _ in 0..12 {
        if choices.is_over() {
            break;
        }
        step(&mut choices, &mut rehearsal);
    }
    rehearsal.settle();
    rehearsal.end();
}

/// The input, a choice at a time. When it is over, every choice is the first.
struct Choices<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Choices<'_> {
    fn is_over(&self) -> bool {
        self.at >= self.bytes.len()
    }

    fn byte(&mut self) -> u8 {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }

    fn below(&mut self, n: usize) -> usize {
        let number =
            if n > 256 { usize::from(self.byte()) << 8 | usize::from(self.byte()) } else { usize::from(self.byte()) };
        number % n.max(1)
    }

    fn of<'b, T>(&mut self, list: &'b [T]) -> &'b T {
        &list[self.below(list.len())]
    }

    /// True once in `n` times.
    fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }
}

#[rustfmt::skip]
const RESOURCES: &[(&str, &str, &str, bool)] = &[
    ("v1", "configmaps", "ConfigMap", true), ("v1", "pods", "Pod", true), ("v1", "nodes", "Node", false), ("v1", "namespaces", "Namespace", false),
    ("apps/v1", "deployments", "Deployment", true), ("kerf.test/v1", "gadgets", "Gadget", true), ("apps/v1", "replicasets", "ReplicaSet", true),
    ("apps/v1", "statefulsets", "StatefulSet", true), ("apps/v1", "daemonsets", "DaemonSet", true), ("batch/v1", "jobs", "Job", true),
    ("batch/v1", "cronjobs", "CronJob", true), ("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", true), ("v1", "events", "Event", true),
    ("events.k8s.io/v1", "events", "Event", true), ("coordination.k8s.io/v1", "leases", "Lease", true), ("v1", "services", "Service", true),
    ("v1", "persistentvolumeclaims", "PersistentVolumeClaim", true), ("v1", "persistentvolumes", "PersistentVolume", false),
    ("storage.k8s.io/v1", "storageclasses", "StorageClass", false), ("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", false),
    ("v1", "limitranges", "LimitRange", true), ("v1", "resourcequotas", "ResourceQuota", true), ("v1", "serviceaccounts", "ServiceAccount", true),
    ("v1", "secrets", "Secret", true), ("apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", false),
    ("rbac.authorization.k8s.io/v1", "roles", "Role", true), ("resource.k8s.io/v1", "resourceclaims", "ResourceClaim", true),
    ("storage.k8s.io/v1", "csinodes", "CSINode", false), ("v1", "bindings", "Binding", true), ("v1", "gizmos", "Gizmo", true),
];
const NAMES: &[&str] = &[
    "web",
    "a",
    "n1",
    "default",
    "high",
    "gadgets.kerf.test",
    "new",
    "new",
    "",
    "Bad_Name",
    "..",
    "%00",
    "x%2Fy",
    "kube-system",
    "é",
];
const NAMESPACES: &[&str] = &["default", "default", "default", "other", "kube-system", "missing", "Bad Name"];
const SUBRESOURCES: &[&str] = &[
    "",
    "",
    "",
    "",
    "/status",
    "/scale",
    "/eviction",
    "/binding",
    "/token",
    "/finalize",
    "/ephemeralcontainers",
    "/resize",
    "/log",
];
#[rustfmt::skip]
const QUERIES: &[&str] = &[
    "", "dryRun=All", "dryRun=Some", "fieldManager=me", "fieldManager=you", "force=true", "fieldValidation=Strict", "fieldValidation=Warn", "fieldValidation=x",
    "limit=1", "limit=-1", "limit=99999999999999999999", "continue=nonsense", "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Miwic3RhcnQiOiJiXHUwMDAwIn0",
    "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiIn0", "resourceVersion=0", "resourceVersion=1", "resourceVersion=18446744073709551615", "resourceVersion=-1",
    "resourceVersionMatch=Exact", "resourceVersionMatch=NotOlderThan", "watch=true", "watch=1", "watch=false", "sendInitialEvents=true", "allowWatchBookmarks=true",
    "timeoutSeconds=1", "timeoutSeconds=-5", "labelSelector=app%3Dweb", "labelSelector=app%20in%20(web,db)", "labelSelector=%21app", "labelSelector=((", "labelSelector=a%3E9999999999999999999999",
    "fieldSelector=metadata.name%3Dweb", "fieldSelector=spec.nodeName%21%3D", "fieldSelector=a%5C", "propagationPolicy=Foreground", "propagationPolicy=Orphan", "propagationPolicy=Background",
    "gracePeriodSeconds=0", "gracePeriodSeconds=-9223372036854775808", "gracePeriodSeconds=9223372036854775807", "orphanDependents=true", "includeObject=Object", "includeObject=None", "pretty=true", "%", "&&=&=",
];
#[rustfmt::skip]
const ACCEPTS: &[&str] = &[
    "", "", "", "application/json", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/yaml", "application/vnd.kubernetes.protobuf", "*/*;q=0.1", ";;;,", "application/json;as=",
];
const PATCHES: &[&str] = &[
    "merge-patch+json",
    "json-patch+json",
    "strategic-merge-patch+json",
    "apply-patch+yaml",
    "json",
    "apply-patch+cbor",
    "",
];
#[rustfmt::skip]
const BESIDE: &[&str] = &[
    "/", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/apis/kerf.test/v1", "/version", "/healthz", "/livez/ping", "/readyz", "/openapi/v2", "/openapi/v3",
    "/openapi/v3/api/v1", "/openapi/v3/apis/kerf.test/v1", "/apis/x/y/z", "//", "/api/v1/namespaces/a/b/c/d/e/f", "/api/v1/%ff", "api", "/metrics",
];

fn step(choices: &mut Choices<'_>, rehearsal: &mut Rehearsal) {
    match choices.below(24) {
        0 => return rehearsal.advance(choices.byte()),
        1 | 2 => return rehearsal.settle(),
        3 => {
            let (path, query) = (*choices.of(BESIDE), *choices.of(QUERIES));
            let mut asked = request(["GET", "POST", "HEAD"][choices.below(3)], path, query, "", "");
            asked.accept = (*choices.of(ACCEPTS)).to_owned();
            return rehearsal.ask(&asked);
        }
        _ => {}
    }
    let &(api_version, plural, kind, is_namespaced) = choices.of(RESOURCES);
    let method = *choices.of(&["POST", "PATCH", "PUT", "GET", "DELETE", "PATCH", "POST", "PUT", "HEAD", "OPTIONS"]);
    let root = if api_version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{api_version}") };
    let namespace = if is_namespaced != choices.once_in(40) {
        format!("/namespaces/{}", choices.of(NAMESPACES))
    } else {
        String::new()
    };
    let is_collection = (method == "POST") != choices.once_in(6);
    let name = *choices.of(NAMES);
    let mut path = format!("{root}{namespace}/{plural}");
    if !is_collection || method == "POST" && choices.once_in(4) {
        path.push_str(&format!("/{name}{}", choices.of(SUBRESOURCES)));
    }
    let n_queries = choices.below(4);
    let query: Vec<&str> = (0..n_queries).map(|_| *choices.of(QUERIES)).collect();
    let (content_type, body) = match method {
        "PATCH" => patch(choices, api_version, kind, name, &rehearsal.last),
        "DELETE" if choices.once_in(3) => {
            ("application/json".to_owned(), mutated(choices, delete_options()).to_string())
        }
        "POST" | "PUT" => {
            let template = if choices.once_in(3) { rehearsal.last.clone() } else { template(api_version, kind, name) };
            (
                choices.of(&["application/json", "application/json", "application/yaml", "text/plain", ""]).to_string(),
                mutated(choices, template).to_string(),
            )
        }
        _ => (String::new(), String::new()),
    };
    let body = match choices.below(16) {
        0 => body.chars().take(body.chars().count() / 2).collect(),
        1 => body.replacen('{', "[", 1),
        _ => body,
    };
    let mut asked = request(method, &path, &query.join("&"), &content_type, body);
    asked.accept = (*choices.of(ACCEPTS)).to_owned();
    rehearsal.ask(&asked);
}

fn delete_options() -> Value {
    json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "propagationPolicy": "Foreground", "preconditions": {"uid": "x", "resourceVersion": "1"}, "dryRun": []})
}

/// A body for a patch of some kind, and its content type.
fn patch(choices: &mut Choices<'_>, api_version: &str, kind: &str, name: &str, last: &Value) -> (String, String) {
    let content = *choices.of(PATCHES);
    let template = if choices.once_in(3) { last.clone() } else { template(api_version, kind, name) };
    let body = match content {
        "json-patch+json" => {
            let paths = pointers(&template);
            let n = 1 + choices.below(4);
            let steps: Vec<Value> = (0..n)
                .map(|_| {
                    let op = *choices.of(&["add", "replace", "remove", "test", "copy", "move", "dance"]);
                    let tail = *choices.of(&["", "/0", "/-", "/99999999999999999999", "/x~1y", "/~"]);
                    let path = format!("{}{tail}", choices.of(&paths));
                    let from = choices.of(&paths).clone();
                    mutated(choices, json!({"op": op, "path": path, "from": from, "value": odd(0)}))
                })
                .collect();
            Value::from(steps)
        }
        "strategic-merge-patch+json" => {
            let patch = mutated(choices, template);
            with_directives(choices, patch)
        }
        _ => mutated(choices, template),
    };
    (format!("application/{content}"), body.to_string())
}

/// Puts a directive of the strategic patch somewhere.
fn with_directives(choices: &mut Choices<'_>, mut patch: Value) -> Value {
    for _ in 0..choices.below(3) {
        let paths = pointers(&patch);
        let path = choices.of(&paths).clone();
        let (key, value) = match choices.below(8) {
            0 => ("$patch", json!("delete")),
            1 => ("$patch", json!("replace")),
            2 => ("$patch", json!("merge")),
            3 => ("$patch", json!(7)),
            4 => ("$retainKeys", json!(["name", 1])),
            5 => ("$setElementOrder/containers", json!([{"name": "c"}, {}, 3])),
            6 => ("$deleteFromPrimitiveList/finalizers", json!(["kerf.test/hold"])),
            _ => ("$setElementOrder/finalizers", json!(["a", {"b": 1}])),
        };
        match patch.pointer_mut(&path) {
            Some(Value::Object(map)) => drop(map.insert(key.to_owned(), value)),
            Some(Value::Array(list)) => list.push(json!({key: value})),
            _ => {}
        }
    }
    patch
}

/// The value after some accidents at places that the input chooses.
fn mutated(choices: &mut Choices<'_>, mut value: Value) -> Value {
    for _ in 0..choices.below(4) {
        let paths = pointers(&value);
        let path = choices.of(&paths).clone();
        let how = choices.below(6);
        let strange = odd(choices.below(ODDITIES));
        let donor = choices.of(&paths).clone();
        let copied = value.pointer(&donor).cloned().unwrap_or_default();
        let Some(place) = value.pointer_mut(&path) else { continue };
        match (how, place) {
            (0, place) => *place = strange,
            (1, Value::Object(map)) => {
                let first = map.keys().next().cloned();
                first.and_then(|key| map.remove(&key));
            }
            (2, Value::Object(map)) => drop(map.insert("unknown".to_owned(), strange)),
            (3, Value::Array(list)) => list.extend(list.clone()),
            (4, Value::Array(list)) => list.push(strange),
            (5, place) => *place = copied,
            (_, place) => *place = strange,
        }
    }
    value
}

const ODDITIES: usize = 24;

fn odd(which: usize) -> Value {
    match which {
        0 => Value::Null,
        1 => json!(""),
        2 => json!(-1),
        3 => json!(0),
        4 => json!(i64::MAX),
        5 => json!(i64::MIN),
        6 => json!(1e308),
        7 => json!(0.1),
        8 => json!(true),
        9 => json!([]),
        10 => json!({}),
        11 => json!([null]),
        12 => json!("x".repeat(300)),
        13 => json!("é\u{0}\u{10ffff}"),
        14 => json!("99999999999999999999999999Ei"),
        15 => json!("1e-99999999999"),
        16 => json!("2026-13-45T99:99:99Z"),
        17 => json!("-262144-01-01T00:00:00Z"),
        18 => json!("100%"),
        19 => (0..100).fold(json!(1), |inner, _| json!([inner])),
        20 => json!({"": {"": {"": 0}}}),
        21 => json!(u64::MAX),
        22 => json!("a/b/c"),
        _ => json!([[1, "a"], {"k": [{}]}]),
    }
}

/// Every place in a value, the root first.
fn pointers(value: &Value) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut waiting = vec![(String::new(), value)];
    while let Some((path, value)) = waiting.pop() {
        let children: Vec<(String, &Value)> = match value {
            Value::Object(map) => map
                .iter()
                .map(|(key, child)| (format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), child))
                .collect(),
            Value::Array(list) => {
                list.iter().enumerate().map(|(index, child)| (format!("{path}/{index}"), child)).collect()
            }
            _ => Vec::new(),
        };
        for (path, child) in children {
            found.push(path.clone());
            waiting.push((path, child));
        }
        if found.len() > 2_000 {
            break;
        }
    }
    found
}

/// An object of the kind that would be welcome.
#[rustfmt::skip]
fn template(api_version: &str, kind: &str, name: &str) -> Value {
    let labels = json!({"app": "web"});
    let pod = json!({"metadata": {"labels": labels}, "spec": {
        "containers": [{"name": "c", "image": "i:1", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}], "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v", "emptyDir": {}}], "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}], "nodeSelector": {"a": "b"},
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}]}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}}]}});
    let selector = json!({"matchLabels": labels});
    let mut finite = pod.clone();
    finite["spec"]["restartPolicy"] = json!("Never");
    let claim = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}});
    let content = match kind {
        "ConfigMap" => json!({"data": {"a": "1"}, "binaryData": {"b": "eA=="}, "immutable": false}),
        "Secret" => json!({"stringData": {"a": "1"}, "type": "Opaque"}),
        "Pod" => json!({"spec": pod["spec"], "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
        "Node" => json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "unschedulable": true}, "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"}, "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}, "conditions": [{"type": "Ready", "status": "False"}]}}),
        "Namespace" => json!({"spec": {"finalizers": ["kubernetes"]}}),
        "Deployment" => json!({"spec": {"replicas": 2, "selector": selector, "template": pod, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}}}),
        "ReplicaSet" | "DaemonSet" => json!({"spec": {"selector": selector, "template": pod}}),
        "StatefulSet" => json!({"spec": {"replicas": 2, "serviceName": "s", "selector": selector, "template": pod, "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}]}}),
        "Job" => json!({"spec": {"completions": 2, "parallelism": 1, "backoffLimit": 3, "template": finite}}),
        "CronJob" => json!({"spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": finite}}}}),
        "PodDisruptionBudget" => json!({"spec": {"maxUnavailable": "50%", "selector": selector}}),
        "Event" => json!({"involvedObject": {"kind": "Pod", "namespace": "default", "name": "web"}, "regarding": {"kind": "Pod", "namespace": "default", "name": "web"}, "reason": "R", "action": "A", "message": "m", "note": "n", "type": "Normal",
            "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c", "reportingInstance": "i", "firstTimestamp": "2026-01-01T00:00:00Z", "count": 1}),
        "Lease" => json!({"spec": {"holderIdentity": "me", "leaseDurationSeconds": 10, "renewTime": "2026-01-01T00:00:00.000000Z"}}),
        "Service" => json!({"spec": {"selector": labels, "ports": [{"port": 80, "targetPort": "http"}], "type": "ClusterIP"}}),
        "PersistentVolumeClaim" => json!({"spec": claim}),
        "PersistentVolume" => json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": {"driver": "d", "volumeHandle": "h"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}}}),
        "StorageClass" => json!({"provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]}),
        "PriorityClass" => json!({"value": 10, "globalDefault": true}),
        "LimitRange" => json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1m"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}, "maxLimitRequestRatio": {"cpu": "4"}}]}}),
        "ResourceQuota" => json!({"spec": {"hard": {"pods": "5", "requests.cpu": "2", "count/configmaps": "3"}, "scopes": ["NotTerminating"]}}),
        "CustomResourceDefinition" => json!({"spec": {"group": "kerf.test", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "additionalPrinterColumns": [{"name": "A", "type": "date", "jsonPath": ".spec.a[?(@.b==\"c\")].d"}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "required": ["a"], "x-kubernetes-validations": [{"rule": "self.a.size() > 0", "message": "m"}], "properties": {
                "a": {"type": "array", "items": {"type": "string", "pattern": "^(a+)+$", "maxLength": 5}}, "b": {"type": "integer", "default": 3, "minimum": 1}, "c": {"x-kubernetes-int-or-string": true}, "d": {"type": "object", "additionalProperties": {"type": "number"}}}}}}}}]}}),
        "Role" => json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        "ResourceClaim" => json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}}),
        "Binding" => json!({"target": {"kind": "Node", "name": "n1"}}),
        "Gadget" => json!({"spec": {"size": 3, "replicas": 1, "free": {"a": [1]}, "parts": [{"name": "x"}, {"name": "y"}]}, "status": {"replicas": 1}}),
        _ => json!({}),
    };
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), json!(api_version));
    object.insert("kind".to_owned(), json!(kind));
    object.insert("metadata".to_owned(), json!({"name": name, "labels": labels, "annotations": {"kerf.test/a": "b"}, "finalizers": ["kerf.test/hold"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"}]}));
    if let Value::Object(content) = content {
        object.extend(content);
    }
    // What the doors beside an object take, under the same names.
    object.insert("deleteOptions".to_owned(), json!({"gracePeriodSeconds": 1}));
    object.insert("target".to_owned(), json!({"kind": "Node", "name": "n1"}));
    Value::Object(object)
}
