//! What only pods have: binding to a node, and eviction within a disruption budget.

use std::sync::Arc;

use serde_json::{Value, json};

use super::objects::success;
use super::write::Write;
use super::{Answer, Call, bodies};
use crate::clock;
use crate::error::{ApiError, ApiResult, FieldError};
use crate::kind::{Resource, Subresource};
use crate::selector::Labels;
use crate::state::{State, meta};
use crate::store::{Key, ResourceId, Stored};

/// More evictions than this may not be under way in one budget: the real server's bound on what it writes down.
const DISRUPTED_PODS_MAX: usize = 2000;

/// Beyond this many the tokens of before are forgotten.
const TOKENS_MAX: usize = 10_000;

impl State {
    /// `POST …/bindings`, with the pod's name in the body.
    pub(super) fn bind_by_body(&mut self, call: &Call<'_>) -> ApiResult<Answer> {
        let (binding, _) = bodies::object(call, call.write()?.validation)?;
        let name = meta(&binding, "name").to_owned();
        self.bind_from(call, &name, &binding)
    }

    /// `POST …/pods/<name>/binding`.
    pub(super) fn bind_named(&mut self, call: &Call<'_>) -> ApiResult<Answer> {
        let binding = self.subresource_body(call, "v1", "Binding")?;
        self.bind_from(call, &call.name, &binding)
    }

    fn bind_from(&mut self, call: &Call<'_>, name: &str, binding: &Value) -> ApiResult<Answer> {
        let write = call.write()?;
        let node = binding["target"]["name"].as_str().unwrap_or_default();
        let kind = binding["target"]["kind"].as_str().unwrap_or_default();
        let mut errors = Vec::new();
        if !matches!(kind, "" | "Node") {
            errors.push(FieldError::not_supported("target.kind", kind, &["Node", "<empty>"]));
        }
        if node.is_empty() {
            errors.push(FieldError::required("target.name", ""));
        }
        if let Some(error) = errors.first() {
            return Err(ApiError::new(500, "", error.to_string()));
        }
        self.bind_pod(&call.namespace, name, node, binding, &write)?;
        Ok(Answer::json(201, &success(None)))
    }

    /// Puts a pod onto a node.
    pub(crate) fn bind_pod(
        &mut self,
        namespace: &str,
        name: &str,
        node: &str,
        binding: &Value,
        write: &Write,
    ) -> ApiResult<()> {
        let pods = self.pods();
        let live = self.find(&pods, namespace, name).ok_or_else(|| ApiError::not_found("", "pods", name))?;
        let conflict = |why: String| ApiError::conflict("", "pods/binding", name, &why);
        let mut pod = live.value();
        let wanted_uid = binding["metadata"]["uid"].as_str().unwrap_or_default();
        if !wanted_uid.is_empty() && wanted_uid != &*live.uid {
            return Err(conflict(format!(
                "Precondition failed: UID in precondition: {wanted_uid}, UID in object meta: {}",
                live.uid
            )));
        }
        if live.is_deleting {
            return Err(conflict(format!("pod {name} is being deleted, cannot be assigned to a host")));
        }
        let assigned = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if !assigned.is_empty() {
            return Err(conflict(format!("pod {name} is already assigned to node \"{assigned}\"")));
        }
        if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
            return Err(conflict(format!("pod {name} has non-empty .spec.schedulingGates")));
        }
        if let Some(spec) = pod["spec"].as_object_mut() {
            spec.insert("nodeName".to_owned(), node.into());
        }
        for field in ["annotations", "labels"] {
            for (key, value) in binding["metadata"][field].as_object().into_iter().flatten() {
                let Some(metadata) = pod["metadata"].as_object_mut() else { continue };
                if let Some(map) = metadata.entry(field).or_insert_with(|| json!({})).as_object_mut() {
                    map.insert(key.clone(), value.clone());
                }
            }
        }
        self.label_by_node(&mut pod, node);
        if let Some(status) = pod["status"].as_object_mut() {
            status.remove("nominatedNodeName");
        }
        let now = clock::seconds(self.now());
        set_condition(
            &mut pod,
            json!({ "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now }),
        );
        self.keep_tracked(&pods, &live, pod, write, Subresource::Binding);
        Ok(())
    }

    /// A pod that gets its node gets the labels that say where the node is.
    fn label_by_node(&self, pod: &mut Value, node: &str) {
        const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];
        let Some(node) = self.store.get(&ResourceId::new("", "nodes"), &Key::new("", node)) else { return };
        let Some(metadata) = pod["metadata"].as_object_mut() else { return };
        for (key, value) in node.labels.iter().filter(|(key, _)| TOPOLOGY.contains(key)) {
            if let Some(labels) = metadata.entry("labels").or_insert_with(|| json!({})).as_object_mut() {
                labels.insert(key.to_owned(), json!(value));
            }
        }
    }

    pub(super) fn evict(&mut self, call: &Call<'_>) -> ApiResult<Answer> {
        let eviction = self.subresource_body(call, "policy/v1", "Eviction")?;
        let said = meta(&eviction, "name");
        if !said.is_empty() && said != call.name {
            return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
        }
        let mut options = match &eviction["deleteOptions"] {
            Value::Object(_) => eviction["deleteOptions"].clone(),
            _ => json!({}),
        };
        if call.write()?.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        self.evict_pod(&call.namespace, &call.name, &options)?;
        Ok(Answer::json(201, &success(None)))
    }

    /// Deletes a pod if its disruption budget allows it.
    pub(crate) fn evict_pod(&mut self, namespace: &str, name: &str, options: &Value) -> ApiResult<()> {
        let pods = self.pods();
        let live = self.find(&pods, namespace, name).ok_or_else(|| ApiError::not_found("", "pods", name))?;
        let pod = live.value();
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        let needs_no_budget = matches!(phase, "Succeeded" | "Failed" | "Pending") || live.is_deleting;
        let is_dry = options["dryRun"].as_array().is_some_and(|list| !list.is_empty());
        if !needs_no_budget {
            self.spend_budget(&live, &pod, is_dry)?;
        }
        if !is_dry && !live.is_deleting {
            self.mark_disrupted(&pods, &live, pod);
        }
        let live = self.find(&pods, namespace, name).unwrap_or(live);
        let mut options = options.clone();
        // The marking above has moved the revision that the caller may have seen.
        if let Some(preconditions) = options.get_mut("preconditions").and_then(Value::as_object_mut) {
            preconditions.remove("resourceVersion");
        }
        self.delete_object(&pods, &live, &options)?;
        Ok(())
    }

    /// Takes one disruption from the pod's budget, or says why there is none.
    fn spend_budget(&mut self, live: &Arc<Stored>, pod: &Value, is_dry: bool) -> ApiResult<()> {
        let id = ResourceId::new("policy", "poddisruptionbudgets");
        let budgets: Vec<Arc<Stored>> = self
            .store
            .list(&id, &live.key.namespace)
            .filter(|budget| {
                Labels::of_object(&budget.value()["spec"]["selector"]).is_some_and(|labels| labels.matches(live))
            })
            .cloned()
            .collect();
        let budget = match budgets.as_slice() {
            [] => return Ok(()),
            [budget] => budget,
            _ => {
                return Err(ApiError::new(
                    500,
                    "InternalError",
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let mut object = budget.value();
        let (spec, status) = (&object["spec"], &object["status"]);
        let number = |field: &str| status[field].as_i64().unwrap_or(0);
        if !is_ready(pod) {
            // A pod that is not healthy costs nothing, where the policy or the healthy count says so.
            let always = spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
            if always || number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0 {
                return Ok(());
            }
        }
        let name = budget.key.name.as_str();
        let refused = |message: String| {
            ApiError::new(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
                .cause("DisruptionBudget", message, "")
        };
        if number("observedGeneration") < object["metadata"]["generation"].as_i64().unwrap_or(0) {
            let mut error = refused(format!("The disruption budget {name} is still being processed by the server."));
            error.details.retry_after_seconds = 10;
            return Err(error);
        }
        if number("disruptionsAllowed") < 0 {
            return Err(ApiError::forbidden(
                "policy",
                "poddisruptionbudgets",
                name,
                "pdb disruptions allowed is negative",
            ));
        }
        if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > DISRUPTED_PODS_MAX) {
            return Err(ApiError::forbidden(
                "policy",
                "poddisruptionbudgets",
                name,
                "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            ));
        }
        if number("disruptionsAllowed") == 0 {
            return Err(refused(format!(
                "The disruption budget {name} needs {} healthy pods and has {} currently",
                number("desiredHealthy"),
                number("currentHealthy")
            )));
        }
        let left = number("disruptionsAllowed") - 1;
        let now = clock::seconds(self.now());
        if let Some(status) = object["status"].as_object_mut() {
            status.insert("disruptionsAllowed".to_owned(), left.into());
            let disrupted = status.entry("disruptedPods").or_insert_with(|| json!({}));
            if let Some(disrupted) = disrupted.as_object_mut() {
                disrupted.insert(live.key.name.clone(), now.clone().into());
            }
        }
        if left == 0 {
            let observed = object["status"]["observedGeneration"].clone();
            set_condition(
                &mut object,
                json!({
                    "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
                    "lastTransitionTime": now, "observedGeneration": observed,
                }),
            );
        }
        let Some(resource) = self.catalog.get("policy", "v1", "poddisruptionbudgets").cloned() else { return Ok(()) };
        if !is_dry {
            self.keep_tracked(&resource, budget, object, &Write::by("kube-apiserver"), Subresource::Status);
        }
        Ok(())
    }

    fn mark_disrupted(&mut self, pods: &Arc<Resource>, live: &Arc<Stored>, mut pod: Value) {
        let now = clock::seconds(self.now());
        let generation = pod["metadata"]["generation"].clone();
        set_condition(
            &mut pod,
            json!({
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": now,
                "observedGeneration": generation,
            }),
        );
        self.keep_tracked(pods, live, pod, &Write::by("kube-apiserver"), Subresource::Status);
    }

    /// Stores what the server itself changed, with the change tracked, past validation.
    pub(super) fn keep_tracked(
        &mut self,
        resource: &Arc<Resource>,
        live: &Arc<Stored>,
        mut new: Value,
        write: &Write,
        subresource: Subresource,
    ) {
        if let Some(schema) = &resource.schema {
            let write = write.clone().on(Some(subresource));
            let api_version = resource.api_version();
            let writer = self.writer(&api_version, &write);
            crate::managed::track(schema, Some(&live.value()), &mut new, &writer, &[]);
        }
        // Built-in kinds, that is: nothing is converted, and nothing refused.
        let _ = self.keep(resource, live.key.clone(), new, false);
    }

    /// A token for a service account. Whoever has it may do everything, as everybody here.
    pub(super) fn issue_token(&mut self, call: &Call<'_>) -> ApiResult<Answer> {
        self.find(&call.resource, &call.namespace, &call.name).ok_or_else(|| call.not_found())?;
        let mut request: Value = serde_json::from_slice(&call.request.body)
            .map_err(|error| ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}")))?;
        let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(3600).clamp(600, 1 << 32);
        let token = self.new_token()?;
        let ends = self.now().saturating_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(self.now());
        let Some(map) = request.as_object_mut() else {
            return Err(ApiError::bad_request(
                "couldn't get version/kind; json parse error: the body is not an object",
            ));
        };
        map.insert("kind".to_owned(), "TokenRequest".into());
        map.insert("apiVersion".to_owned(), "authentication.k8s.io/v1".into());
        map.insert("metadata".to_owned(), json!({ "name": call.name, "namespace": call.namespace }));
        map.insert("status".to_owned(), json!({ "token": token, "expirationTimestamp": clock::seconds(ends) }));
        if self.tokens.len() >= TOKENS_MAX {
            self.tokens.clear();
        }
        self.tokens.insert(token);
        Ok(Answer::json(201, &request))
    }

    /// In process nobody has to show one, and everything repeats under one seed; strangers can reach a socket.
    fn new_token(&mut self) -> ApiResult<String> {
        if self.token.is_empty() {
            return Ok(format!("kerf-account-{}", self.dice.uid()));
        }
        crate::secrets::token().map_err(|error| ApiError::new(500, "InternalError", error.to_string()))
    }

    pub(crate) fn pods(&self) -> Arc<Resource> {
        Arc::clone(self.catalog.get("", "v1", "pods").expect("pods are built in"))
    }

    /// The body of a subresource with a kind of its own.
    fn subresource_body(&self, call: &Call<'_>, api_version: &str, kind: &str) -> ApiResult<Value> {
        let is_yaml = bodies::is_yaml(&call.request.content_type)?;
        let mode = call.write()?.validation;
        let schema = crate::schema::Schema::built_in(api_version, kind).ok_or_else(ApiError::no_such_path)?;
        let decoded = crate::schema::decode(&schema, kind, api_version, &call.request.body, is_yaml, mode)?;
        Ok(decoded.value)
    }
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Puts a condition in the place of the one of its type. Its transition time stays when its status does.
pub(crate) fn set_condition(object: &mut Value, mut condition: Value) {
    let Some(root) = object.as_object_mut() else { return };
    let status = root.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else { return };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if conditions.is_null() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|it| it["type"] == condition["type"]) {
        Some(present) => {
            if present["status"] == condition["status"]
                && let (Some(map), Some(time)) = (condition.as_object_mut(), present.get("lastTransitionTime"))
            {
                map.insert("lastTransitionTime".to_owned(), time.clone());
            }
            *present = condition;
        }
        None => conditions.push(condition),
    }
}
