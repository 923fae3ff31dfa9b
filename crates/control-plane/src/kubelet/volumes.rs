//! The volumes of a pod, as a kubelet waits for them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::CSIDriver;

use crate::hands::Hands;

/// The names of the claims a pod uses, generic ephemeral ones among them.
pub(crate) fn claims_of(pod: &Pod) -> Vec<String> {
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    volumes
        .iter()
        .filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => Some(source.claim_name.clone()),
            (None, Some(_)) => Some(format!("{pod_name}-{}", volume.name)),
            (None, None) => None,
        })
        .collect()
}

/// The name under which a node lists a CSI volume as attached and in use. None for a volume that nobody attaches.
pub(crate) fn volume_name(volume: &PersistentVolume) -> Option<String> {
    let csi = volume.spec.as_ref()?.csi.as_ref()?;
    Some(format!("kubernetes.io/csi/{}^{}", csi.driver, csi.volume_handle))
}

/// A claim that holds a pod back, or the attachable volumes of all its claims.
pub(super) enum Volumes {
    /// Not bound yet.
    Unbound { claim: String },
    /// Those that must be attached, by their names on the node.
    Bound(Vec<String>),
}

pub(super) fn look(pod: &Pod, hands: &Hands<'_>) -> Volumes {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut names = BTreeSet::new();
    for claim in claims_of(pod) {
        let volume = hands
            .get::<PersistentVolumeClaim>(namespace, &claim)
            .filter(|found| found.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound"))
            .and_then(|found| found.spec?.volume_name)
            .and_then(|name| hands.get::<PersistentVolume>("", &name));
        let Some(volume) = volume else { return Volumes::Unbound { claim } };
        let driver = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()).map(|csi| csi.driver.clone());
        let is_attached_by_controller = driver.as_ref().is_some_and(|driver| attach_required(driver, hands));
        names.extend(volume_name(&volume).filter(|_| is_attached_by_controller));
    }
    Volumes::Bound(names.into_iter().collect())
}

/// A driver that is not known wants its volumes attached.
pub(crate) fn attach_required(driver: &str, hands: &Hands<'_>) -> bool {
    hands.get::<CSIDriver>("", driver).is_none_or(|driver| driver.spec.attach_required.unwrap_or(true))
}
