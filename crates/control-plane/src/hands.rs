//! What the cluster's own controllers may do: the same request path as a client's, under a name of their own.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ApiResult;
use crate::kind::Subresource;

/// A typed kind of k8s-openapi.
pub trait Kube: k8s_openapi::Resource + k8s_openapi::Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned {}

impl<T: k8s_openapi::Resource + k8s_openapi::Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned> Kube for T {}

pub struct Hands<'a> {
    now: &'a Timestamp,
}

/// Something to tell about an object.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    pub about: ObjectReference,
    /// `Normal` or `Warning`.
    pub kind: &'a str,
    pub reason: &'a str,
    pub action: &'a str,
    pub note: String,
    /// Who tells it: `default-scheduler`, `deployment-controller`…
    pub component: &'a str,
}

impl Hands<'_> {
    #[must_use]
    pub fn now(&self) -> Timestamp {
        *self.now
    }

    /// The next number of this controller's own stream of the one seed.
    pub fn random(&mut self) -> u64 {
        unreachable!()
    }

    #[must_use]
    pub fn get<T: Kube>(&self, _namespace: &str, _name: &str) -> Option<T> {
        unreachable!()
    }

    /// An empty namespace means all.
    #[must_use]
    pub fn list<T: Kube>(&self, _namespace: &str) -> Vec<T> {
        unreachable!()
    }

    pub fn create<T: Kube>(&mut self, _object: &T) -> ApiResult<T> {
        unreachable!()
    }

    pub fn update<T: Kube>(&mut self, _object: &T) -> ApiResult<T> {
        unreachable!()
    }

    pub fn update_status<T: Kube>(&mut self, _object: &T) -> ApiResult<T> {
        unreachable!()
    }

    pub fn merge_patch<T: Kube>(
        &mut self,
        _namespace: &str,
        _name: &str,
        _subresource: Option<Subresource>,
        _patch: &Value,
    ) -> ApiResult<T> {
        unreachable!()
    }

    pub fn delete<T: Kube>(&mut self, _namespace: &str, _name: &str, _options: &Value) -> ApiResult<()> {
        unreachable!()
    }

    pub fn bind(&mut self, _namespace: &str, _pod: &str, _node: &str) -> ApiResult<()> {
        unreachable!()
    }

    pub fn event(&mut self, _event: Event<'_>) {
        unreachable!()
    }
}
