//! Which volume suits which claim.

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};

use crate::kubelet::amount::amount;
use crate::selector::Labels;

const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The class of a claim; empty is none. The old annotation is still heard.
pub(super) fn class_of_claim(claim: &PersistentVolumeClaim) -> &str {
    let old = claim.metadata.annotations.as_ref().and_then(|annotations| annotations.get(OLD_CLASS));
    let new = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    old.or(new).map(String::as_str).unwrap_or_default()
}

pub(super) fn class_of_volume(volume: &PersistentVolume) -> &str {
    let old = volume.metadata.annotations.as_ref().and_then(|annotations| annotations.get(OLD_CLASS));
    let new = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    old.or(new).map(String::as_str).unwrap_or_default()
}

pub(super) fn is_for(reference: &ObjectReference, claim: &PersistentVolumeClaim) -> bool {
    let uid = reference.uid.as_deref().unwrap_or_default();
    reference.name == claim.metadata.name
        && reference.namespace == claim.metadata.namespace
        && (uid.is_empty() || Some(uid) == claim.metadata.uid.as_deref())
}

/// Whether a volume that a claim asks for by name will do. The words of the refusal are the real ones.
pub(super) fn satisfies(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), String> {
    if volume.metadata.deletion_timestamp.is_some() {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        return Err(format!("the volume is marked for deletion \"{name}\""));
    }
    let refuse = |why: &str| Err(why.to_owned());
    if size_of(volume) < size_wanted(claim) {
        return refuse("requested PV is too small");
    }
    if class_of_volume(volume) != class_of_claim(claim) {
        return refuse("storageClassName does not match");
    }
    if attributes_class(volume, claim) {
        return refuse("volumeAttributesClassName does not match");
    }
    if !has_same_mode(volume, claim) {
        return refuse("incompatible volumeMode");
    }
    if !has_access_modes(volume, claim) {
        return refuse("incompatible accessMode");
    }
    Ok(())
}

/// The volume that is reserved for the claim, or else the one with the fewest access modes and then the least size; the first by name
/// of equals.
///
/// With `reserved_only` the scheduler will choose, and only its choice counts.
pub(super) fn best_match<'a>(
    claim: &PersistentVolumeClaim,
    volumes: impl Iterator<Item = &'a PersistentVolume>,
    reserved_only: bool,
) -> Option<&'a PersistentVolume> {
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let selector = selector
        .map(|selector| serde_json::to_value(selector).ok().as_ref().and_then(Labels::of_object).unwrap_or_default());
    let mut best: Option<(usize, i64, &PersistentVolume)> = None;
    for volume in volumes {
        let suits = volume.metadata.deletion_timestamp.is_none()
            && size_of(volume) >= size_wanted(claim)
            && has_same_mode(volume, claim)
            && !attributes_class(volume, claim);
        if !suits {
            continue;
        }
        match volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) {
            Some(reference) if is_for(reference, claim) => return Some(volume),
            Some(_) => continue,
            None => {}
        }
        let is_available = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Available");
        let labels = volume.metadata.labels.clone().unwrap_or_default();
        if reserved_only
            || !is_available
            || class_of_volume(volume) != class_of_claim(claim)
            || !has_access_modes(volume, claim)
            || selector.as_ref().is_some_and(|selector| !selector.match_map(&labels))
        {
            continue;
        }
        let n_modes = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_ref()).map_or(0, Vec::len);
        let candidate = (n_modes, size_of(volume), volume);
        if best.as_ref().is_none_or(|best| (candidate.0, candidate.1) < (best.0, best.1)) {
            best = Some(candidate);
        }
    }
    best.map(|(_, _, volume)| volume)
}

/// Whether several nodes may have the volume at once.
pub(super) fn is_shareable(volume: &PersistentVolume) -> bool {
    let modes = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    modes.is_empty() || modes.iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany")
}

fn size_of(volume: &PersistentVolume) -> i64 {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    capacity.map_or(0, |quantity| amount("storage", quantity))
}

fn size_wanted(claim: &PersistentVolumeClaim) -> i64 {
    let request = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage"));
    request.map_or(0, |quantity| amount("storage", quantity))
}

fn has_same_mode(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let of_volume = volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or("Filesystem");
    let of_claim = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or("Filesystem");
    of_volume == of_claim
}

/// Whether their attributes classes differ.
fn attributes_class(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let of_volume = volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let of_claim = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    of_volume.unwrap_or_default() != of_claim.unwrap_or_default()
}

fn has_access_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let offered = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    let wanted = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    wanted.iter().all(|mode| offered.contains(mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn volume(name: &str, size: &str, modes: &[&str], more: Value) -> PersistentVolume {
        let mut volume = json!({
            "metadata": {"name": name, "labels": {"name": name}},
            "spec": {"capacity": {"storage": size}, "accessModes": modes, "storageClassName": "c"},
            "status": {"phase": "Available"},
        });
        if let (Some(spec), Some(more)) = (volume["spec"].as_object_mut(), more.as_object()) {
            spec.extend(more.clone());
        }
        serde_json::from_value(volume).unwrap()
    }

    fn claim(more: Value) -> PersistentVolumeClaim {
        let mut claim = json!({
            "metadata": {"name": "data", "namespace": "ns", "uid": "u"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "c", "resources": {"requests": {"storage": "2Gi"}}},
        });
        if let (Some(spec), Some(more)) = (claim["spec"].as_object_mut(), more.as_object()) {
            spec.extend(more.clone());
        }
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn a_claim_gets_what_is_reserved_for_it_or_the_least_that_suits() {
        let rwo = ["ReadWriteOnce"];
        let reserved = |name: &str, uid: &str| json!({"claimRef": {"namespace": "ns", "name": name, "uid": uid}});
        let volumes = [
            volume("a-small", "1Gi", &rwo, json!({})),
            volume("b-large", "9Gi", &rwo, json!({})),
            volume("c-fits", "3Gi", &rwo, json!({})),
            volume("d-many-modes", "2Gi", &["ReadWriteOnce", "ReadWriteMany"], json!({})),
            volume("e-other-class", "2Gi", &rwo, json!({"storageClassName": "other"})),
            volume("f-block", "2Gi", &rwo, json!({"volumeMode": "Block"})),
            volume("g-taken", "2Gi", &rwo, reserved("other", "x")),
        ];
        let mine = volume("h-mine", "5Gi", &rwo, reserved("data", ""));
        let former = volume("h-former", "5Gi", &rwo, reserved("data", "former"));
        // claim, one more volume, reserved only -> choice
        let cases = [
            (json!({}), None, false, Some("c-fits")),
            (json!({}), None, true, None),
            (json!({}), Some(&mine), true, Some("h-mine")),
            (json!({}), Some(&mine), false, Some("h-mine")),
            (json!({}), Some(&former), true, None),
            (json!({"selector": {"matchLabels": {"name": "b-large"}}}), None, false, Some("b-large")),
            (json!({"accessModes": ["ReadWriteMany"]}), None, false, Some("d-many-modes")),
            (json!({"volumeMode": "Block"}), None, false, Some("f-block")),
            (json!({"storageClassName": "other"}), None, false, Some("e-other-class")),
            (json!({"resources": {"requests": {"storage": "1Ti"}}}), None, false, None),
        ];
        for (more, another, reserved_only, expected) in cases {
            let found = best_match(&claim(more.clone()), volumes.iter().chain(another), reserved_only);
            assert_eq!(found.and_then(|volume| volume.metadata.name.as_deref()), expected, "{more}");
        }
    }

    #[test]
    fn a_volume_asked_for_by_name_must_do() {
        let cases = [
            (volume("v", "2Gi", &["ReadWriteOnce"], json!({})), Ok(())),
            (volume("v", "1Gi", &["ReadWriteOnce"], json!({})), Err("requested PV is too small")),
            (
                volume("v", "2Gi", &["ReadWriteOnce"], json!({"storageClassName": ""})),
                Err("storageClassName does not match"),
            ),
            (volume("v", "2Gi", &["ReadWriteOnce"], json!({"volumeMode": "Block"})), Err("incompatible volumeMode")),
            (volume("v", "2Gi", &["ReadOnlyMany"], json!({})), Err("incompatible accessMode")),
        ];
        for (volume, expected) in cases {
            assert_eq!(satisfies(&volume, &claim(json!({}))), expected.map_err(str::to_owned));
        }
    }
}
