//! What every namespace gets: the `default` ServiceAccount, and the certificate by which its pods know the server.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Synced;
use super::owner::is_namespace_going;
use super::world::World;
use crate::error::{ApiError, ApiResult};
use crate::hands::Hands;
use crate::store::Key;

pub(crate) const DEFAULT_ACCOUNT: &str = "default";
pub(crate) const ROOT_CERTIFICATE: &str = "kube-root-ca.crt";
pub(crate) const CERTIFICATE_FIELD: &str = "ca.crt";

const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints \
                           such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
                           distributions of Kubernetes clusters.";

pub(crate) fn sync(world: &World, hands: &mut Hands<'_>, key: &Key, ca_pem: &str) -> Synced {
    let Some(namespace) = world.namespaces.get(key) else { return Ok(None) };
    if is_going(namespace) {
        return Ok(None);
    }
    if !world.default_accounts.contains(&key.name) {
        let account = ServiceAccount { metadata: named(key, DEFAULT_ACCOUNT), ..ServiceAccount::default() };
        settle(hands.create(&account).map(|_| ()))?;
    }
    let wanted = ConfigMap {
        metadata: ObjectMeta {
            annotations: Some([("kubernetes.io/description".to_owned(), DESCRIPTION.to_owned())].into()),
            ..named(key, ROOT_CERTIFICATE)
        },
        data: Some([(CERTIFICATE_FIELD.to_owned(), ca_pem.to_owned())].into()),
        ..ConfigMap::default()
    };
    match world.root_certificates.get(&key.name) {
        None => settle(hands.create(&wanted).map(|_| ()))?,
        Some(known) if known != ca_pem => settle(hands.update(&wanted).map(|_| ()))?,
        Some(_) => {}
    }
    Ok(None)
}

fn is_going(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    namespace.metadata.deletion_timestamp.is_some() || phase == Some("Terminating")
}

fn named(namespace: &Key, name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), namespace: Some(namespace.name.clone()), ..ObjectMeta::default() }
}

/// Somebody else may have been faster, or the namespace may just be going.
fn settle(result: ApiResult<()>) -> Result<(), ApiError> {
    match result {
        Err(error) if error.reason == "AlreadyExists" || is_namespace_going(&error) || error.code == 404 => Ok(()),
        other => other,
    }
}
