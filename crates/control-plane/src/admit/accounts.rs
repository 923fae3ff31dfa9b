//! Service accounts: every pod runs as one, and gets its token mounted.

use serde_json::{Value, json};

use super::{Look, forbidden, push};
use crate::builtin::tree::{at, has, items, items_mut, open, text};
use crate::error::ApiError;

const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
/// Letters of generated names, without those that make words.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

pub(super) fn admit(look: &dyn Look, pod: &mut Value, namespace: &str, name: &str) -> Result<(), ApiError> {
    // The pods of a node's own files have no account.
    if at(pod, "metadata.annotations").get("kubernetes.io/config.mirror").is_some() {
        return if text(pod, "spec.serviceAccountName").is_empty() {
            Ok(())
        } else {
            Err(forbidden("pods", name, "a mirror pod may not reference service accounts"))
        };
    }
    let given = text(pod, "spec.serviceAccountName");
    let account_name = if given.is_empty() { "default" } else { given }.to_owned();
    let Some(account) = look.get("", "serviceaccounts", namespace, &account_name) else {
        let why = format!(
            "error looking up service account {namespace}/{account_name}: serviceaccount \"{account_name}\" not found"
        );
        return Err(forbidden("pods", name, &why));
    };
    let account = account.value();
    let spec = open(pod, "spec");
    spec.insert("serviceAccountName".to_owned(), Value::from(account_name.as_str()));
    spec.insert("serviceAccount".to_owned(), Value::from(account_name));
    let is_mounted = at(pod, "spec.automountServiceAccountToken")
        .as_bool()
        .or(at(&account, "automountServiceAccountToken").as_bool())
        .unwrap_or(true);
    if is_mounted {
        mount_token(pod, name);
    }
    if items(pod, "spec.imagePullSecrets").is_empty() && !items(&account, "imagePullSecrets").is_empty() {
        let secrets: Vec<Value> =
            items(&account, "imagePullSecrets").iter().map(|secret| json!({ "name": text(secret, "name") })).collect();
        open(pod, "spec").insert("imagePullSecrets".to_owned(), Value::Array(secrets));
    }
    Ok(())
}

fn mount_token(pod: &mut Value, name: &str) {
    let existing = items(pod, "spec.volumes").iter().map(|volume| text(volume, "name"));
    let existing = existing.filter(|name| name.starts_with(VOLUME_PREFIX)).map(str::to_owned).next();
    let volume = existing.clone().unwrap_or_else(|| {
        let uid = text(pod, "metadata.uid");
        format!("{VOLUME_PREFIX}{}", letters(if uid.is_empty() { name } else { uid }))
    });
    let mut is_needed = false;
    for list in ["spec.initContainers", "spec.containers"] {
        for container in items_mut(pod, list) {
            if items(container, "volumeMounts").iter().any(|mount| text(mount, "mountPath") == MOUNT_PATH) {
                continue;
            }
            let mount = json!({ "name": volume, "readOnly": true, "mountPath": MOUNT_PATH });
            push(container, "", "volumeMounts", mount);
            is_needed = true;
        }
    }
    if existing.is_none() && is_needed {
        push(
            pod,
            "spec",
            "volumes",
            json!({
                "name": volume,
                "projected": { "defaultMode": 0o644, "sources": [
                    // Seven seconds more than an hour mark the tokens that the server itself asked for.
                    { "serviceAccountToken": { "path": "token", "expirationSeconds": 3607 } },
                    { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                    { "downwardAPI": { "items": [
                        { "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } },
                    ] } },
                ] },
            }),
        );
    }
    debug_assert!(!has(pod, "spec.volumes") || at(pod, "spec.volumes").is_array());
}

/// Five letters that follow from a text, as a name made by chance has.
fn letters(text: &str) -> String {
    // FNV-1a: spreads well enough, and is the same everywhere.
    let mut hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let mut name = String::new();
    for _ in 0..5 {
        let index = usize::try_from(hash % LETTERS.len() as u64).unwrap_or_default();
        name.push(char::from(LETTERS.get(index).copied().unwrap_or(b'b')));
        hash /= LETTERS.len() as u64;
    }
    name
}
