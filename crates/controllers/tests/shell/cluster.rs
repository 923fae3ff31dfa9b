//! The embedded control plane over TLS, and a cloud that sells nothing.

use kerf_cloud::{
    Answer, ClassStatus, CloudError, CloudProvider, Instance, InstanceRef, LaunchOrder, NodeClassKind, RepairPolicy,
    TypesAsk,
};
use kerf_control_plane::request::Request;
use kerf_control_plane::{ControlPlane, Options};
use kerf_model::{CapacityType, InstanceType, Money, Text, TypeName};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Long enough for a slow machine; nothing here waits for time to pass.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something to become true.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) struct Cluster(ControlPlane);

impl Cluster {
    pub(crate) fn without_definitions() -> Self {
        // It brings a runtime of its own, which may not begin within another.
        let start = || ControlPlane::start(&Options { with_controllers: false, ..Options::default() }).unwrap();
        Self(std::thread::spawn(start).join().unwrap())
    }

    pub(crate) fn with_definitions() -> Self {
        let cluster = Self::without_definitions();
        cluster.install_definitions();
        cluster
    }

    pub(crate) fn install_definitions(&self) {
        for definition in kerf_api::crds() {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            self.request("POST", path, "application/json", &serde_json::to_value(definition).unwrap()).unwrap();
        }
    }

    pub(crate) async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::from_yaml(&self.0.address().unwrap().kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        kerf_controllers::shell::client(&config).unwrap()
    }

    /// Without its controllers nobody else makes the account that pods run under.
    pub(crate) fn create_account(&self) {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        self.request("POST", "/api/v1/namespaces/default/serviceaccounts", "application/json", &account).unwrap();
    }

    pub(crate) fn create_pod(&self, name: &str) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "a", "image": "a"}]},
        });
        self.request("POST", "/api/v1/namespaces/default/pods", "application/json", &pod).unwrap();
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.request("GET", path, "", &Value::Null).ok()
    }

    pub(crate) fn delete(&self, path: &str) {
        let now = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        self.request("DELETE", path, "application/json", &now).unwrap();
    }

    pub(crate) fn patch(&self, path: &str, patch: &Value) {
        self.request("PATCH", path, "application/merge-patch+json", patch).unwrap();
    }

    fn request(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Result<Value, Value> {
        let answer = self.0.server().handle(&Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: String::new(),
            accept: "application/json".to_owned(),
            content_type: content_type.to_owned(),
            user_agent: "test".to_owned(),
            body: if body.is_null() { Vec::new().into() } else { body.to_string().into() },
        });
        let value = answer.to_value();
        if (200..300).contains(&answer.status) { Ok(value) } else { Err(value) }
    }
}

/// Serves KWOKNodeClasses, and nothing else.
pub(crate) struct NoCloud;

fn nothing<T: Send + 'static>() -> Answer<T> {
    Box::pin(std::future::ready(Err(CloudError::Unsupported { what: "anything".into() })))
}

impl CloudProvider for NoCloud {
    fn name(&self) -> &'static str {
        "none"
    }

    fn node_classes(&self) -> Vec<NodeClassKind> {
        vec![NodeClassKind::plain("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses")]
    }

    fn well_known_labels(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn instance_types(&self, _: &TypesAsk<'_>) -> Result<Arc<[Arc<InstanceType>]>, CloudError> {
        Ok(Arc::new([]))
    }

    fn price(&self, _: &TypeName, _: Option<&Text>, _: CapacityType) -> Option<Money> {
        None
    }

    fn launch(&self, _: Arc<LaunchOrder>) -> Answer<Instance> {
        nothing()
    }

    fn terminate(&self, _: InstanceRef) -> Answer<()> {
        nothing()
    }

    fn get(&self, _: Text) -> Answer<Instance> {
        nothing()
    }

    fn list(&self) -> Answer<Vec<Instance>> {
        nothing()
    }

    /// It never says whether it did it.
    fn reboot(&self, _: InstanceRef, _: Text) -> Answer<()> {
        Box::pin(std::future::pending())
    }

    fn resolve_class(&self, _: Arc<Value>) -> Answer<ClassStatus> {
        nothing()
    }

    fn drift(&self, _: InstanceRef, _: Arc<Value>) -> Answer<Option<Text>> {
        nothing()
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        Vec::new()
    }
}
