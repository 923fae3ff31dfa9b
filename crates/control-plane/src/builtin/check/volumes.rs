//! Volumes of pods, claims, volumes of the cluster.

use serde_json::Value;

use super::super::meta;
use super::super::names;
use super::super::quantity::Quantity;
use super::super::tree::{Faults, Path, ROOT, SPEC, at, entries, has, int, items, text};
use super::container::{VOLUME_FIELDS, descending, field_reference, no_backsteps, resource_reference};
use super::placement;

const ONE_TYPE: &str = "may not specify more than 1 volume type";
const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

/// Sources a pod may name, in the order in which the second is refused.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// The names of the volumes that are sound: mounts may use those.
pub(super) fn volumes<'a>(faults: &mut Faults, path: &Path<'_>, pod_name: &str, volumes: &'a [Value]) -> Vec<&'a str> {
    let mut sound: Vec<&str> = Vec::new();
    for (index, volume) in volumes.iter().enumerate() {
        let path = path.index(index);
        let n_before = faults.0.len();
        source(faults, &path, volume);
        let name = text(volume, "name");
        if name.is_empty() {
            faults.required(&path.field("name"), "");
        } else {
            for why in names::label(name) {
                faults.invalid(&path.field("name"), name, why);
            }
        }
        if sound.contains(&name) {
            faults.duplicate(&path.field("name"), name);
        }
        if faults.0.len() == n_before {
            sound.push(name);
        }
        let claim = text(volume, "persistentVolumeClaim.claimName");
        let is_made_by_pod = |other: &Value| {
            !pod_name.is_empty()
                && has(other, "ephemeral")
                && claim.strip_prefix(pod_name).and_then(|rest| rest.strip_prefix('-')) == Some(text(other, "name"))
        };
        if !claim.is_empty() && volumes.iter().any(is_made_by_pod) {
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            faults.invalid(&path.field("persistentVolumeClaim").field("claimName"), claim, detail);
        }
    }
    sound
}

fn source(faults: &mut Faults, path: &Path<'_>, volume: &Value) {
    let mut n_sources = 0;
    for kind in SOURCES {
        let found = at(volume, kind);
        if found.is_null() {
            continue;
        }
        let path = path.field(kind);
        n_sources += 1;
        if n_sources > 1 {
            faults.forbidden(&path, ONE_TYPE);
            continue;
        }
        match kind {
            "emptyDir" if Quantity::of(at(found, "sizeLimit")).is_some_and(Quantity::is_negative) => {
                faults.forbidden(&path.field("sizeLimit"), "SizeLimit field must be a valid resource quantity");
            }
            "hostPath" => host_path(faults, &path, found),
            "secret" => {
                required(faults, &path, found, &["secretName"]);
                files(faults, &path, found);
            }
            "configMap" => {
                required(faults, &path, found, &["name"]);
                files(faults, &path, found);
            }
            "persistentVolumeClaim" => required(faults, &path, found, &["claimName"]),
            "nfs" => nfs(faults, &path, found),
            "downwardAPI" => {
                mode(faults, &path.field("defaultMode"), at(found, "defaultMode"));
                downward(faults, &path, found);
            }
            "projected" => projected(faults, &path, found),
            "csi" => required(faults, &path, found, &["driver"]),
            "ephemeral" => {
                let path = path.field("volumeClaimTemplate");
                if has(found, "volumeClaimTemplate") {
                    claim_spec(faults, &path.field("spec"), at(found, "volumeClaimTemplate.spec"));
                } else {
                    faults.required(&path, "");
                }
            }
            "image" => required(faults, &path, found, &["reference"]),
            "awsElasticBlockStore" => required(faults, &path, found, &["volumeID"]),
            _ => {}
        }
    }
    if n_sources == 0 {
        faults.required(path, "must specify a volume type");
    }
}

fn required(faults: &mut Faults, path: &Path<'_>, source: &Value, fields: &[&str]) {
    for field in fields {
        if text(source, field).is_empty() {
            faults.required(&path.field(field), "");
        }
    }
}

fn host_path(faults: &mut Faults, path: &Path<'_>, source: &Value) {
    const KINDS: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    let target = text(source, "path");
    if target.is_empty() {
        faults.required(&path.field("path"), "");
        return;
    }
    no_backsteps(faults, &path.field("path"), target);
    faults.one_of(&path.field("type"), text(source, "type"), &KINDS);
}

fn nfs(faults: &mut Faults, path: &Path<'_>, source: &Value) {
    required(faults, path, source, &["server", "path"]);
    let target = text(source, "path");
    if !target.is_empty() && !target.starts_with('/') {
        faults.invalid(&path.field("path"), target, "must be an absolute path");
    }
}

fn mode(faults: &mut Faults, path: &Path<'_>, value: &Value) {
    if let Some(mode) = value.as_i64().filter(|mode| !(0..=0o777).contains(mode)) {
        faults.invalid(path, mode, FILE_MODE);
    }
}

/// Keys that become files.
fn files(faults: &mut Faults, path: &Path<'_>, source: &Value) {
    mode(faults, &path.field("defaultMode"), at(source, "defaultMode"));
    let list = path.field("items");
    for (index, item) in items(source, "items").iter().enumerate() {
        let path = list.index(index);
        required(faults, &path, item, &["key", "path"]);
        local_path(faults, &path.field("path"), text(item, "path"));
        mode(faults, &path.field("mode"), at(item, "mode"));
    }
}

fn local_path(faults: &mut Faults, path: &Path<'_>, target: &str) {
    descending(faults, path, target);
    if target.starts_with("..") && !target.starts_with("../") {
        faults.invalid(path, target, "must not start with '..'");
    }
}

fn downward(faults: &mut Faults, path: &Path<'_>, source: &Value) {
    // The real server names the source here, not the item.
    let list = path;
    for item in items(source, "items") {
        let target = text(item, "path");
        if target.is_empty() {
            faults.required(&list.field("path"), "");
        }
        local_path(faults, &list.field("path"), target);
        let (field, resource) = (at(item, "fieldRef"), at(item, "resourceFieldRef"));
        if !field.is_null() {
            field_reference(faults, &list.field("fieldRef"), field, &VOLUME_FIELDS);
            if !resource.is_null() {
                faults.invalid(list, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
            }
        } else if !resource.is_null() {
            resource_reference(faults, &list.field("resourceFieldRef"), resource, true);
        } else {
            faults.required(list, "one of fieldRef and resourceFieldRef is required");
        }
        mode(faults, &list.field("mode"), at(item, "mode"));
    }
}

fn projected(faults: &mut Faults, path: &Path<'_>, source: &Value) {
    mode(faults, &path.field("defaultMode"), at(source, "defaultMode"));
    let list = path.field("sources");
    for (index, one) in items(source, "sources").iter().enumerate() {
        let path = list.index(index);
        let mut n_kinds = 0;
        for kind in ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle"] {
            let found = at(one, kind);
            if found.is_null() {
                continue;
            }
            n_kinds += 1;
            let path = path.field(kind);
            if n_kinds > 1 {
                faults.forbidden(&path, ONE_TYPE);
                continue;
            }
            match kind {
                "secret" | "configMap" => {
                    required(faults, &path, found, &["name"]);
                    files(faults, &path, found);
                }
                "downwardAPI" => downward(faults, &path, found),
                "serviceAccountToken" => {
                    let seconds = int(found, "expirationSeconds").unwrap_or_default();
                    if seconds < 600 {
                        let detail = "may not specify a duration less than 10 minutes";
                        faults.invalid(&path.field("expirationSeconds"), seconds, detail);
                    }
                    required(faults, &path, found, &["path"]);
                }
                _ => {}
            }
        }
    }
}

fn access_modes(faults: &mut Faults, path: &Path<'_>, spec: &Value, detail: &str) {
    let modes = items(spec, "accessModes");
    if modes.is_empty() {
        faults.required(path, detail);
    }
    for mode in modes {
        faults.one_of(path, mode.as_str().unwrap_or_default(), &ACCESS_MODES);
    }
    let is_single = |mode: &&Value| *mode == "ReadWriteOncePod";
    if modes.iter().any(|mode| is_single(&mode)) && !modes.iter().all(|mode| is_single(&mode)) {
        faults.forbidden(path, "may not use ReadWriteOncePod with other access modes");
    }
}

pub(crate) fn claim_spec(faults: &mut Faults, path: &Path<'_>, spec: &Value) {
    if items(spec, "accessModes").is_empty() {
        faults.required(&path.field("accessModes"), "at least 1 access mode is required");
    }
    meta::selector(faults, &path.field("selector"), at(spec, "selector"));
    if !items(spec, "accessModes").is_empty() {
        access_modes(faults, &path.field("accessModes"), spec, "");
    }
    let storage_path = path.field("resources");
    let storage_path = storage_path.key("storage");
    match Quantity::of(at(spec, "resources.requests.storage")) {
        None => faults.required(&storage_path, ""),
        Some(storage) if !storage.is_positive() => {
            faults.invalid(&storage_path, storage.to_string(), "must be greater than zero");
        }
        Some(_) => {}
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        for why in names::subdomain(class) {
            faults.invalid(&path.field("storageClassName"), class, why);
        }
    }
    if let Some(mode) = spec.get("volumeMode").and_then(Value::as_str) {
        faults.one_of(&path.field("volumeMode"), mode, &VOLUME_MODES);
    }
    for source in ["dataSource", "dataSourceRef"] {
        let found = at(spec, source);
        if found.is_null() {
            continue;
        }
        required(faults, &path.field(source), found, &["name", "kind"]);
        if text(found, "apiGroup").is_empty() && text(found, "kind") != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            faults.invalid(&path.field(source), text(found, "kind"), detail);
        }
    }
}

pub(super) fn claim_update(faults: &mut Faults, new: &Value, old: &Value) {
    let mut after = at(new, "spec").clone();
    let mut before = at(old, "spec").clone();
    let is_bound = text(new, "status.phase") == "Bound";
    let put = |spec: &mut Value, key: &str, value: &Value| {
        if let Some(spec) = spec.as_object_mut() {
            if value.is_null() {
                spec.remove(key);
            } else {
                spec.insert(key.to_owned(), value.clone());
            }
        }
    };
    if text(old, "spec.volumeName").is_empty() {
        put(&mut before, "volumeName", at(new, "spec.volumeName"));
    }
    // A claim that named no class may take one later.
    if !has(old, "spec.storageClassName") && !text(new, "spec.storageClassName").is_empty() {
        put(&mut before, "storageClassName", at(new, "spec.storageClassName"));
    }
    if is_bound {
        put(&mut before, "volumeAttributesClassName", at(new, "spec.volumeAttributesClassName"));
        if let Some(requests) = after.pointer_mut("/resources/requests") {
            put(requests, "storage", at(old, "spec.resources.requests.storage"));
        }
    }
    if after != before {
        let shown = super::diff::between("PersistentVolumeClaimSpec", &before, &after);
        let detail = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
             claims\n{shown}"
        );
        faults.forbidden(&SPEC, detail);
    }
    let size = |object: &Value, path: &str| Quantity::of(at(object, path)).unwrap_or(Quantity::ZERO);
    let wanted = size(new, "spec.resources.requests.storage");
    if wanted < size(old, "spec.resources.requests.storage") && wanted <= size(old, "status.capacity.storage") {
        let resources = SPEC.field("resources");
        let requests = resources.field("requests");
        faults.forbidden(&requests.field("storage"), "field can not be less than status.capacity");
    }
    faults.immutable(&ROOT.field("volumeMode"), at(new, "spec.volumeMode"), at(old, "spec.volumeMode"));
}

/// What a volume of the cluster can be made of.
const VOLUME_SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

pub(super) fn persistent_volume(faults: &mut Faults, object: &Value) {
    let spec = at(object, "spec");
    access_modes(faults, &SPEC.field("accessModes"), spec, "");
    let capacity = SPEC.field("capacity");
    let n_resources = entries(spec, "capacity").count();
    if n_resources == 0 {
        faults.required(&capacity, "");
    }
    if n_resources > 1 || !has(spec, "capacity.storage") {
        let found = at(spec, "capacity").as_object().cloned().unwrap_or_default();
        faults.not_supported(&capacity, found, &["storage"]);
    }
    for (name, amount) in entries(spec, "capacity") {
        if let Some(amount) = Quantity::of(amount).filter(|amount| !amount.is_positive()) {
            faults.invalid(&capacity.key(name), amount.to_string(), "must be greater than zero");
        }
    }
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    if !policy.is_empty() {
        let path = SPEC.field("persistentVolumeReclaimPolicy");
        faults.one_of(&path, policy, &["Delete", "Recycle", "Retain"]);
    }
    if has(spec, "nodeAffinity") {
        let path = SPEC.field("nodeAffinity");
        if has(spec, "nodeAffinity.required") {
            placement::node_selector(faults, &path.field("required"), at(spec, "nodeAffinity.required"));
        } else {
            faults.required(&path.field("required"), "must specify required node constraints");
        }
    }
    let mut n_sources = 0;
    for kind in VOLUME_SOURCES {
        let source = at(spec, kind);
        if source.is_null() {
            continue;
        }
        let path = SPEC.field(kind);
        n_sources += 1;
        if n_sources > 1 {
            faults.forbidden(&path, ONE_TYPE);
            continue;
        }
        match kind {
            "hostPath" => host_path(faults, &path, source),
            "nfs" => nfs(faults, &path, source),
            "csi" => required(faults, &path, source, &["driver", "volumeHandle"]),
            "local" => {
                required(faults, &path, source, &["path"]);
                no_backsteps(faults, &path.field("path"), text(source, "path"));
                if !has(spec, "nodeAffinity") {
                    faults.required(&SPEC.field("nodeAffinity"), "Local volume requires node affinity");
                }
            }
            _ => {}
        }
    }
    if n_sources == 0 {
        faults.required(&SPEC, "must specify a volume type");
    }
    if text(spec, "hostPath.path") == "/" && policy == "Recycle" {
        faults.forbidden(
            &SPEC.field("persistentVolumeReclaimPolicy"),
            "may not be 'recycle' for a hostPath mount of '/'",
        );
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        for why in names::subdomain(class) {
            faults.invalid(&SPEC.field("storageClassName"), class, why);
        }
    }
    if let Some(mode) = spec.get("volumeMode").and_then(Value::as_str) {
        faults.one_of(&SPEC.field("volumeMode"), mode, &VOLUME_MODES);
    }
}

pub(super) fn persistent_volume_update(faults: &mut Faults, new: &Value, old: &Value) {
    let only = |object: &Value| -> Value {
        VOLUME_SOURCES
            .iter()
            .filter_map(|kind| Some(((*kind).to_owned(), at(object, "spec").get(kind)?.clone())))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let (after, before) = (only(new), only(old));
    if after != before {
        let shown = super::diff::between("PersistentVolumeSource", &before, &after);
        let detail = format!("spec.persistentvolumesource is immutable after creation\n{shown}");
        faults.forbidden(&SPEC.field("persistentvolumesource"), detail);
    }
    faults.immutable(&ROOT.field("volumeMode"), at(new, "spec.volumeMode"), at(old, "spec.volumeMode"));
    if has(old, "spec.nodeAffinity") && at(new, "spec.nodeAffinity") != at(old, "spec.nodeAffinity") {
        faults.invalid(&ROOT.field("nodeAffinity"), at(new, "spec.nodeAffinity").clone(), "field is immutable");
    }
}
