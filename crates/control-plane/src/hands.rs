//! What the cluster's own controllers may do: the same request path as a client's, under a name of their own.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;

use crate::dice::Dice;
use crate::error::{ApiError, ApiResult};
use crate::kind::{Resource, Subresource};
use crate::patch;
use crate::rest::Write;
use crate::schema::{self, FieldValidation};
use crate::state::{State, set_meta};
use crate::store::{Key, Stored};

/// A typed kind of k8s-openapi.
pub trait Kube: k8s_openapi::Resource + k8s_openapi::Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned {}

impl<T: k8s_openapi::Resource + k8s_openapi::Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned> Kube for T {}

pub struct Hands<'a> {
    state: &'a mut State,
    /// Under which name it writes: `kube-scheduler`, `kube-controller-manager`…
    manager: &'a str,
    dice: &'a mut Dice,
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

impl<'a> Hands<'a> {
    #[must_use]
    pub fn new(state: &'a mut State, manager: &'a str, dice: &'a mut Dice) -> Self {
        Self { state, manager, dice }
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.state.now()
    }

    /// The next number of this controller's own stream of the one seed.
    pub fn random(&mut self) -> u64 {
        self.dice.roll()
    }

    #[must_use]
    pub fn get<T: Kube>(&self, namespace: &str, name: &str) -> Option<T> {
        let resource = self.resource::<T>().ok()?;
        self.state.find(&resource, namespace, name)?.read()
    }

    /// An empty namespace means all.
    #[must_use]
    pub fn list<T: Kube>(&self, namespace: &str) -> Vec<T> {
        let Ok(resource) = self.resource::<T>() else { return Vec::new() };
        self.state.store.list(&resource.id(), namespace).filter_map(|stored| stored.read()).collect()
    }

    /// A pod as it is stored now.
    #[must_use]
    pub fn pod(&self, key: &Key) -> Option<&Arc<Stored>> {
        self.state.store.pod(key)
    }

    /// The pods that are bound to a node.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Arc<Stored>> {
        self.state.store.pods_on(node)
    }

    /// Their keys, for those who then change them.
    #[must_use]
    pub fn keys_on(&self, node: &str) -> Vec<Key> {
        self.pods_on(node).map(|pod| pod.key.clone()).collect()
    }

    pub fn create<T: Kube>(&mut self, object: &T) -> ApiResult<T> {
        let resource = self.resource::<T>()?;
        let namespace = object.metadata().namespace.clone().unwrap_or_default();
        let value = conformed(&resource, tree(object)?)?;
        let written = self.state.create_object(&resource, &namespace, value, &Write::by(self.manager))?;
        typed(&written.json)
    }

    pub fn update<T: Kube>(&mut self, object: &T) -> ApiResult<T> {
        self.put(object, None)
    }

    pub fn update_status<T: Kube>(&mut self, object: &T) -> ApiResult<T> {
        self.put(object, Some(Subresource::Status))
    }

    pub fn merge_patch<T: Kube>(
        &mut self,
        namespace: &str,
        name: &str,
        subresource: Option<Subresource>,
        patch: &Value,
    ) -> ApiResult<T> {
        let resource = self.resource::<T>()?;
        let live = self.live(&resource, namespace, name)?;
        let mut patched = patch::merge(&live.value(), patch);
        if patch["metadata"]["resourceVersion"].is_null() {
            set_meta(&mut patched, "resourceVersion", live.revision.to_string());
        }
        let value = conformed(&resource, patched)?;
        let write = Write::by(self.manager).on(subresource);
        typed(&self.state.update_object(&resource, &live, value, &write)?.json)
    }

    /// `options` is a `DeleteOptions`.
    pub fn delete<T: Kube>(&mut self, namespace: &str, name: &str, options: &Value) -> ApiResult<()> {
        let resource = self.resource::<T>()?;
        let live = self.live(&resource, namespace, name)?;
        self.state.delete_object(&resource, &live, options).map(|_| ())
    }

    pub fn bind(&mut self, namespace: &str, pod: &str, node: &str) -> ApiResult<()> {
        let write = Write::by(self.manager);
        self.state.bind_pod(namespace, pod, node, &json!({}), &write)
    }

    pub fn evict(&mut self, namespace: &str, pod: &str, options: &Value) -> ApiResult<()> {
        self.state.evict_pod(namespace, pod, options)
    }

    pub fn event(&mut self, event: Event<'_>) {
        self.state.record(event);
    }

    /// Everything, for the controllers that work on objects of any kind.
    pub(crate) fn state(&mut self) -> &mut State {
        self.state
    }

    fn put<T: Kube>(&mut self, object: &T, subresource: Option<Subresource>) -> ApiResult<T> {
        let resource = self.resource::<T>()?;
        let metadata = object.metadata();
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let live = self.live(&resource, &namespace, metadata.name.as_deref().unwrap_or_default())?;
        let value = conformed(&resource, tree(object)?)?;
        let write = Write::by(self.manager).on(subresource);
        typed(&self.state.update_object(&resource, &live, value, &write)?.json)
    }

    fn live(&self, resource: &Resource, namespace: &str, name: &str) -> ApiResult<Arc<Stored>> {
        self.state
            .find(resource, namespace, name)
            .ok_or_else(|| ApiError::not_found(&resource.group, &resource.plural, name))
    }

    fn resource<T: Kube>(&self) -> ApiResult<Arc<Resource>> {
        self.state.catalog.get(T::GROUP, T::VERSION, T::URL_PATH_SEGMENT).cloned().ok_or_else(ApiError::no_such_path)
    }
}

fn tree<T: Serialize>(object: &T) -> ApiResult<Value> {
    serde_json::to_value(object).map_err(|error| ApiError::bad_request(error.to_string()))
}

fn typed<T: DeserializeOwned>(json: &[u8]) -> ApiResult<T> {
    serde_json::from_slice(json).map_err(|error| ApiError::new(500, "InternalError", error.to_string()))
}

/// What a typed writer made, in the server's own form: canonical quantities, no empty fields.
fn conformed(resource: &Resource, value: Value) -> ApiResult<Value> {
    match &resource.schema {
        Some(schema) => Ok(schema::conform(schema, value, FieldValidation::Ignore)?.value),
        None => Ok(value),
    }
}
