//! What the operator may do, as `deploy/rbac` says, and what it did, as the API server's audit log says.
//!
//! ```text
//! deploy/rbac/*.yaml ─▶ install: its account, a token, a kubeconfig ─▶ the operator ─▶ kube-apiserver ─▶ audit log
//!          └─▶ Granted ──────────────────────── compare ◀───────────────────────────────── Asked ◀──┘
//! ```
//!
//! Not for: who may read the operator's pages, and what kubectl's users may do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::client::Client;
use crate::control_plane::Address;

/// Where the files say that it lives.
const NAMESPACE: &str = "kube-system";
const ACCOUNT: &str = "karpenter";
/// Longer than any test.
const TOKEN_SECONDS: u64 = 24 * 3600;
const LOG: &str = "audit";

/// For `--cloud aws`, and the ground of the others.
pub const AWS: &str = "aws.yaml";
/// Beside it, for `--cloud kwok`.
pub const KWOK: &str = "kwok.yaml";
/// Beside it, one for each gate that needs more.
pub const GATES: [&str; 4] =
    ["gate-capacity-buffer.yaml", "gate-early-binding.yaml", "gate-node-overlay.yaml", "gate-static-capacity.yaml"];

/// Rights that only `--cloud aws` makes use of.
pub const OF_AWS: [&str; 5] = [
    "get services kube-dns in kube-system",
    "list ec2nodeclasses.karpenter.k8s.aws",
    "watch ec2nodeclasses.karpenter.k8s.aws",
    "patch ec2nodeclasses.karpenter.k8s.aws",
    "patch ec2nodeclasses.karpenter.k8s.aws/status",
];

/// One verb on one resource, all over the cluster or in one namespace, for all names or for one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    pub verb: String,
    /// `plural.group/subresource`, as kubectl writes it.
    pub resource: String,
    pub namespace: Option<String>,
    pub name: Option<String>,
}

/// Every right of some of the files.
pub struct Granted(BTreeSet<Right>);

/// What was asked for, each with how the server first answered it and how often it was refused for want of a right.
#[derive(Default)]
pub struct Asked(BTreeMap<Right, Answered>);

#[derive(Default)]
struct Answered {
    n_forbidden: usize,
    /// The server's reason, where it refused.
    why: String,
}

/// How the two differ; what people read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Asked for and not granted by the files, whatever the server said.
    pub missing: Vec<String>,
    /// Granted, and never asked for.
    pub unused: Vec<String>,
}

/// How the API server calls the operator's account.
pub(crate) fn user() -> String {
    format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}")
}

pub(crate) fn log_path(folder: &Path) -> PathBuf {
    folder.join(format!("{LOG}.log"))
}

/// Creates account and roles, and writes a kubeconfig for the account into `folder`, with its token in a file of its own beside it.
pub fn install(client: &Client, address: &Address, files: &[&str], folder: &Path) -> Result<PathBuf> {
    for object in documents(files)? {
        let path = path(&object)?;
        let answer = client.apply(&path, "kerf", &object.to_string())?;
        ensure!(answer.is_success(), "{path} is refused: {}", answer.message());
    }
    let (kubeconfig, token) = (folder.join("operator.kubeconfig"), folder.join("operator.token"));
    fs::write(&token, token_of(client)?).context("cannot write the operator's token")?;
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {
            "server": address.endpoint, "certificate-authority-data": STANDARD.encode(&address.ca_pem),
        }}],
        "users": [{"name": "it", "user": {"tokenFile": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    });
    fs::write(&kubeconfig, config.to_string()).context("cannot write the operator's kubeconfig")?;
    Ok(kubeconfig)
}

fn token_of(client: &Client) -> Result<String> {
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": TOKEN_SECONDS},
    });
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token");
    let answer = client.post(&path, &request)?;
    ensure!(answer.is_success(), "no token for the operator: {}", answer.message());
    answer.body["status"]["token"].as_str().map(str::to_owned).context("a token request without a token")
}

/// The objects of some of the files under `deploy/rbac`.
fn documents(files: &[&str]) -> Result<Vec<Value>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/rbac"));
    let mut objects = Vec::new();
    for file in files {
        let path = folder.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
        for document in serde_norway::Deserializer::from_str(&text) {
            objects.push(Value::deserialize(document).with_context(|| format!("{file} is not YAML"))?);
        }
    }
    Ok(objects)
}

fn path(object: &Value) -> Result<String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).with_context(|| format!("no {pointer}"));
    let (version, kind, name) = (text("/apiVersion")?, text("/kind")?, text("/metadata/name")?);
    let root = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
    let namespace = text("/metadata/namespace").map(|namespace| format!("namespaces/{namespace}/")).unwrap_or_default();
    Ok(format!("{root}/{namespace}{}s/{name}", kind.to_lowercase()))
}

impl Right {
    fn of(verb: &str, group: &str, resource: &str) -> Self {
        let (plural, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let group = if group.is_empty() { String::new() } else { format!(".{group}") };
        let subresource = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
        let resource = format!("{plural}{group}{subresource}");
        Self { verb: verb.to_owned(), resource, namespace: None, name: None }
    }

    /// Whether whoever has this right may do the other, which names one object.
    fn covers(&self, other: &Self) -> bool {
        let has = |granted: &Option<String>, asked: &Option<String>| granted.is_none() || granted == asked;
        (&self.verb, &self.resource) == (&other.verb, &other.resource)
            && has(&self.namespace, &other.namespace)
            && has(&self.name, &other.name)
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, " in {namespace}")?;
        }
        Ok(())
    }
}

impl Granted {
    pub fn read(files: &[&str]) -> Result<Self> {
        let objects = documents(files)?;
        let mut rights = BTreeSet::new();
        let is_role = |object: &&Value| object["kind"] == "ClusterRole" || object["kind"] == "Role";
        for role in objects.iter().filter(is_role) {
            let namespace = role["metadata"]["namespace"].as_str().map(str::to_owned);
            for rule in role["rules"].as_array().into_iter().flatten() {
                let texts = |key: &str| rule[key].as_array().into_iter().flatten().filter_map(Value::as_str);
                let names: Vec<Option<String>> =
                    match texts("resourceNames").map(|name| Some(name.to_owned())).collect() {
                        names if Vec::is_empty(&names) => vec![None],
                        names => names,
                    };
                for ((group, resource), verb) in texts("apiGroups")
                    .flat_map(|group| texts("resources").map(move |resource| (group, resource)))
                    .flat_map(|of| texts("verbs").map(move |verb| (of, verb)))
                {
                    let right = Right::of(verb, group, resource);
                    let named = names.iter().map(|name| Right { name: name.clone(), ..right.clone() });
                    rights.extend(named.map(|right| Right { namespace: namespace.clone(), ..right }));
                }
            }
        }
        Ok(Self(rights))
    }
}

impl Asked {
    /// Reads the audit log of a control plane, whose folder it lies in.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let mut asked = Self::default();
        // A log that has grown large is put aside under a longer name.
        for entry in fs::read_dir(folder).context("the control plane's folder cannot be read")? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(LOG) && name.ends_with(".log") {
                let file = File::open(&path).with_context(|| format!("{} cannot be read", path.display()))?;
                for line in BufReader::new(file).lines() {
                    // Its last line may be on its way.
                    if let Ok(event) = serde_json::from_str(&line?) {
                        asked.hear(&event);
                    }
                }
            }
        }
        Ok(asked)
    }

    fn hear(&mut self, event: &Value) {
        let of = &event["objectRef"];
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        // What is no object, discovery for one, every account may ask for.
        let (Some(verb), Some(plural)) = (text(&event["verb"]), text(&of["resource"])) else { return };
        let resource = match text(&of["subresource"]) {
            Some(subresource) => format!("{plural}/{subresource}"),
            None => plural,
        };
        let right = Right {
            namespace: text(&of["namespace"]),
            name: text(&of["name"]),
            ..Right::of(&verb, of["apiGroup"].as_str().unwrap_or_default(), &resource)
        };
        let answered = self.0.entry(right).or_default();
        let notes = &event["annotations"];
        if notes["authorization.k8s.io/decision"] == "forbid" {
            answered.n_forbidden += 1;
            answered.why = text(&event["responseStatus"]["message"]).unwrap_or_default();
        }
    }

    /// Compares with what is granted.
    #[must_use]
    pub fn against(&self, granted: &Granted) -> Difference {
        let mut difference = Difference::default();
        let mut told = BTreeSet::new();
        for (right, answered) in &self.0 {
            let is_granted = granted.0.iter().any(|it| it.covers(right));
            if (!is_granted || answered.n_forbidden > 0) && told.insert((&right.verb, &right.resource)) {
                let why = if answered.why.is_empty() { String::new() } else { format!(": {}", answered.why) };
                difference.missing.push(format!("{right}{why}"));
            }
        }
        let is_unused = |right: &&Right| !self.0.keys().any(|asked| right.covers(asked));
        difference.unused = granted.0.iter().filter(is_unused).map(Right::to_string).collect();
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(events: &[Value]) -> Asked {
        let mut asked = Asked::default();
        events.iter().for_each(|event| asked.hear(event));
        asked
    }

    fn granted(rights: &[(&str, &str, Option<&str>)]) -> Granted {
        let right = |(verb, resource, name): &(&str, &str, Option<&str>)| Right {
            verb: (*verb).to_owned(),
            resource: (*resource).to_owned(),
            namespace: None,
            name: name.map(str::to_owned),
        };
        Granted(rights.iter().map(right).collect())
    }

    #[test]
    fn every_file_is_read_and_no_right_is_a_wildcard_or_reads_secrets() {
        let files = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/rbac")).unwrap();
        let mut names: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let known: Vec<&str> = [AWS].into_iter().chain(GATES).chain([KWOK]).collect();
        assert_eq!(names, known);
        let Granted(rights) = Granted::read(&known).unwrap();
        assert!(rights.len() > 40, "{}", rights.len());
        for right in &rights {
            assert!(!right.to_string().contains('*') && !right.resource.starts_with("secrets"), "{right}");
        }
        let renews =
            rights.iter().find(|right| right.verb == "update" && right.resource.starts_with("leases")).unwrap();
        assert_eq!(renews.to_string(), "update leases.coordination.k8s.io karpenter-leader-election in kube-system");
    }

    #[test]
    fn every_binding_names_a_role_of_its_file_and_the_account() {
        for object in documents(&[AWS, KWOK, GATES[0], GATES[1], GATES[2]]).unwrap() {
            if object["kind"].as_str().unwrap().ends_with("Binding") {
                assert_eq!(object["roleRef"]["name"], object["metadata"]["name"]);
                let account = json!([{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}]);
                assert_eq!(object["subjects"], account);
            }
        }
    }

    #[test]
    fn what_is_asked_and_what_is_granted_are_compared_verb_by_verb() {
        let event = |verb: &str, resource: &str, name: &str, decision: &str| {
            json!({
                "verb": verb, "annotations": {"authorization.k8s.io/decision": decision},
                "responseStatus": {"message": if decision == "forbid" { "no" } else { "" }},
                "objectRef": {"resource": resource, "apiGroup": "karpenter.sh", "subresource": "status", "name": name},
            })
        };
        let asked = asked(&[
            event("patch", "nodepools", "a", "allow"),
            event("patch", "nodepools", "b", "allow"),
            event("get", "nodepools", "a", "forbid"),
            json!({"verb": "get", "requestURI": "/version"}),
        ]);
        let rights = [("patch", "nodepools.karpenter.sh/status", None), ("list", "pods", None)];
        let expected = Difference {
            missing: vec!["get nodepools.karpenter.sh/status a: no".to_owned()],
            unused: vec!["list pods".to_owned()],
        };
        assert_eq!(asked.against(&granted(&rights)), expected);
        // A right for one name is none for another.
        let named = granted(&[("patch", "nodepools.karpenter.sh/status", Some("a"))]);
        assert_eq!(asked.against(&named).missing[1], "patch nodepools.karpenter.sh/status b");
    }
}
