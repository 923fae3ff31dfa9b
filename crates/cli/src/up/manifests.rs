//! Objects that a playground begins with.

use crate::input::{self, Sink, Trouble};
use anyhow::{Context, bail};
use kerf_control_plane::ControlPlane;
use kerf_control_plane::request::Request;
use kerf_controllers::ApiCall;
use kerf_controllers::shell::Caller;
use serde_json::Value;
use std::path::Path;

/// Our definitions, as `kerf crds` prints them.
pub(crate) fn install_definitions(plane: &ControlPlane) -> anyhow::Result<()> {
    for definition in kerf_api::crds() {
        let body = serde_json::to_vec(&definition).context("a definition is JSON")?;
        let request = Request {
            method: "POST".to_owned(),
            path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
            content_type: "application/json".to_owned(),
            body: body.into(),
            ..Request::default()
        };
        let answer = plane.server().handle(&request);
        if answer.status != 201 {
            bail!("a definition of ours is refused: {}", answer.to_value()["message"]);
        }
    }
    // Their kinds are served once the controller that establishes them has worked.
    plane.settle();
    Ok(())
}

pub(crate) async fn apply_file(caller: &Caller, path: &Path) -> anyhow::Result<()> {
    let mut gathered = Gathered::default();
    input::read_all(&[path.to_owned()], &mut gathered)?;
    if let Some(trouble) = gathered.troubles.first() {
        bail!("{trouble}");
    }
    for (source, value) in gathered.objects {
        apply_value(caller, &value).await.with_context(|| source)?;
    }
    Ok(())
}

pub(crate) async fn apply(caller: &Caller, source: &str, text: &str) -> anyhow::Result<()> {
    for document in text.split("\n---\n") {
        let value: Value = serde_norway::from_str(document).with_context(|| format!("{source} is not YAML"))?;
        apply_value(caller, &value).await.with_context(|| source.to_owned())?;
    }
    Ok(())
}

/// Server-side apply, as `kubectl apply --server-side` does it.
async fn apply_value(caller: &Caller, value: &Value) -> anyhow::Result<()> {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    if name.is_empty() {
        bail!("{kind} of {api_version} has no metadata.name");
    }
    let root = if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") };
    let resources =
        caller.get(&root).await.map_err(|_| anyhow::anyhow!("nobody here serves {api_version} ({kind} {name})"))?;
    let resource = resources["resources"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|resource| resource["kind"] == kind && !resource["name"].as_str().unwrap_or_default().contains('/'));
    let Some(resource) = resource else { bail!("nobody here serves {kind} of {api_version}") };
    let plural = resource["name"].as_str().unwrap_or_default();
    let path = if resource["namespaced"] == true {
        let namespace = Some(text("/metadata/namespace")).filter(|it| !it.is_empty()).unwrap_or("default");
        format!("{root}/namespaces/{namespace}/{plural}/{name}")
    } else {
        format!("{root}/{plural}/{name}")
    };
    let call = ApiCall {
        method: "PATCH",
        path: format!("{path}?fieldManager=kerf-up&force=true"),
        content_type: "application/apply-patch+yaml",
        body: value.clone(),
    };
    caller.call(call).await.map(drop).map_err(|failure| anyhow::anyhow!("{kind} {name}: {failure}"))
}

#[derive(Default)]
struct Gathered {
    objects: Vec<(String, Value)>,
    troubles: Vec<String>,
}

impl Sink for Gathered {
    fn object(&mut self, source: &str, value: Value) {
        self.objects.push((source.to_owned(), value));
    }

    fn trouble(&mut self, trouble: Trouble) {
        self.troubles.push(format!("{}: {}: {}", trouble.source, trouble.what, trouble.message));
    }
}
