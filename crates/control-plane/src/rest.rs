//! The request path: from a request to an answer, on memory alone.
//!
//! ```text
//! handle ─▶ target + query ─▶ read: get, list, watch
//!                          ├▶ write: create, update ◀─ patch, apply      decode ▶ default ▶ admit ▶ validate ▶ track ▶ store
//!                          ├▶ delete, delete a collection
//!                          └▶ pods: bind, evict;   scale;   events in two groups;   reviews of tokens and rights
//! ```
//!
//! Nothing here panics on what a client sends, and nothing waits: a watch is handed back as a value, and whoever serves it does
//! the waiting.

pub mod answer;
mod bodies;
mod delete;
pub mod events;
mod objects;
mod patching;
mod pods;
mod read;
mod reviews;
mod scale;
mod versions;
pub mod watch;
mod write;
mod yaml;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

pub use answer::{Answer, Body};
pub use delete::Deleted;
pub(crate) use pods::set_condition;
pub use write::{Write, Written};

use crate::error::{ApiError, ApiResult};
use crate::kind::{Resource, Subresource};
use crate::request::{Query, Request, Target};
use crate::schema::FieldValidation;
use crate::state::State;
use crate::{discovery, openapi, protobuf};

/// A request whose path names a resource.
pub(crate) struct Call<'a> {
    pub(crate) request: &'a Request,
    pub(crate) query: Query,
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: Option<Subresource>,
}

impl State {
    /// Answers a request. Every request gets an answer; a refusal is a `Status`.
    pub fn handle(&mut self, request: &Request) -> Answer {
        let answer = if protobuf::is_protobuf(&request.content_type) && !request.body.is_empty() {
            protobuf::read(&request.body).map_err(ApiError::bad_request).and_then(|tree| {
                let body = Bytes::from(tree.to_string());
                self.answer(&Request { content_type: "application/json".to_owned(), body, ..request.clone() })
            })
        } else {
            self.answer(request)
        };
        answer.unwrap_or_else(|error| Answer::refusal(&error))
    }

    fn answer(&mut self, request: &Request) -> ApiResult<Answer> {
        if let Some(answer) = self.answer_beside_resources(request).or_else(|| self.review(request)) {
            return answer;
        }
        let Some(target) = Target::parse(&request.path) else { return Ok(no_such_page()) };
        if !self.catalog.iter().any(|resource| resource.group == target.group) {
            return Ok(no_such_page());
        }
        let resource = self
            .catalog
            .get(&target.group, &target.version, &target.plural)
            .cloned()
            .ok_or_else(ApiError::no_such_path)?;
        if resource.namespaced && target.namespace.is_empty() && !target.name.is_empty() {
            return Err(ApiError::no_such_path());
        }
        if !resource.namespaced && !target.namespace.is_empty() {
            return Err(ApiError::no_such_path());
        }
        let subresource =
            match target.subresource.as_str() {
                "" => None,
                name => Some(Subresource::parse(name).filter(|subresource| resource.has(*subresource)).ok_or_else(
                    || match &resource.custom {
                        Some(_) => ApiError::not_found(&resource.group, &resource.plural, &target.name),
                        None => ApiError::no_such_path(),
                    },
                )?),
            };
        let call = Call {
            request,
            query: Query::parse(&request.query),
            resource,
            namespace: target.namespace,
            name: target.name,
            subresource,
        };
        let answer = answer::check_accept(&request.accept)
            .and_then(|()| answer::check_include(&call))
            .and_then(|()| self.dispatch(&call));
        let Some(custom) = call.resource.custom.as_ref().filter(|custom| !custom.warnings().is_empty()) else {
            return answer;
        };
        // Whatever is asked of a deprecated version, and whatever comes of it.
        let mut answer = answer.unwrap_or_else(|error| Answer::refusal(&error));
        answer.warnings.splice(0..0, custom.warnings().iter().cloned());
        Ok(answer)
    }

    fn dispatch(&mut self, call: &Call<'_>) -> ApiResult<Answer> {
        let is_collection = call.name.is_empty();
        match (call.request.method.as_str(), is_collection, call.subresource) {
            ("POST", true, None) if call.resource.is("", "Binding") => self.bind_by_body(call),
            (_, _, _) if call.resource.is("", "Binding") => Err(method_not_allowed()),
            ("GET" | "HEAD", true, None) if call.query.flag("watch") => self.watch(call),
            ("GET" | "HEAD", true, None) => self.list(call),
            ("GET" | "HEAD", false, None) if call.query.flag("watch") => self.watch(call),
            ("GET" | "HEAD", false, Some(Subresource::Scale)) => self.get_scale(call),
            ("GET" | "HEAD", false, None | Some(Subresource::Status)) => self.get(call),
            ("GET" | "HEAD", false, Some(Subresource::EphemeralContainers | Subresource::Resize)) => self.get(call),
            ("POST", true, None) => self.create(call),
            ("POST", false, Some(Subresource::Eviction)) => self.evict(call),
            ("POST", false, Some(Subresource::Binding)) => self.bind_named(call),
            ("POST", false, Some(Subresource::Token)) => self.issue_token(call),
            ("PUT", false, Some(Subresource::Scale)) => self.put_scale(call),
            ("PUT", false, subresource) if is_writable(subresource) => self.replace(call),
            ("PATCH", false, Some(Subresource::Scale)) => self.patch_scale(call),
            ("PATCH", false, subresource) if is_writable(subresource) => self.patch(call),
            ("DELETE", false, None) => self.delete(call),
            ("DELETE", true, None) => self.delete_collection(call),
            _ => Err(method_not_allowed()),
        }
    }

    /// Health, version, discovery and OpenAPI.
    fn answer_beside_resources(&mut self, request: &Request) -> Option<ApiResult<Answer>> {
        let path = match request.path.as_str() {
            "/" => "/",
            path => path.trim_end_matches('/'),
        };
        let is_beside = matches!(path, "/" | "/api" | "/apis" | "/version" | "/openapi/v2" | "/openapi/v3")
            || ["/healthz", "/livez", "/readyz", "/openapi/v3/"].iter().any(|prefix| path.starts_with(prefix))
            || is_group_path(path);
        if !is_beside {
            return None;
        }
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            return Some(Err(method_not_allowed()));
        }
        Some(match path {
            "/version" => Ok(Answer::json(200, &discovery::version())),
            "/openapi/v2" if openapi::wire::is_asked(&request.accept) => {
                let document = Bytes::from(openapi::wire::document(&openapi::v2(&self.catalog)));
                Ok(Answer::bytes(200, document).of_type(openapi::wire::CONTENT_TYPE))
            }
            "/openapi/v2" => Ok(Answer::json(200, &openapi::v2(&self.catalog))),
            "/openapi/v3" => Ok(Answer::json(200, &openapi::v3_index(&self.catalog))),
            path if path.starts_with("/openapi/v3/") => self.open_api_of(path),
            path if is_health(path) => Ok(health(path, &Query::parse(&request.query))),
            path if is_group_path(path) && !self.serves_group(path) => Ok(no_such_page()),
            path => discovery::answer(&self.catalog, path, &request.accept)
                .map(|(document, content_type)| Answer::json(200, &document).of_type(content_type))
                .ok_or_else(ApiError::no_such_path),
        })
    }

    fn serves_group(&self, path: &str) -> bool {
        let mut segments = path.split('/').skip(1);
        match (segments.next(), segments.next()) {
            (Some("apis"), Some(group)) => self.catalog.iter().any(|resource| resource.group == group),
            _ => true,
        }
    }

    fn open_api_of(&self, path: &str) -> ApiResult<Answer> {
        let segments: Vec<&str> = path.split('/').skip(3).collect();
        let (group, version) = match segments.as_slice() {
            ["api", version] => ("", *version),
            ["apis", group, version] => (*group, *version),
            _ => return Err(ApiError::no_such_path()),
        };
        openapi::v3(&self.catalog, group, version)
            .map(|document| Answer::json(200, &document))
            .ok_or_else(ApiError::no_such_path)
    }
}

impl Call<'_> {
    /// How a write shall be done.
    pub(crate) fn write(&self) -> ApiResult<Write> {
        let dry_run: Vec<&str> = self.query.all("dryRun").collect();
        if let Some(odd) = dry_run.iter().find(|word| **word != "All" && !word.is_empty()) {
            let error =
                crate::error::FieldError::not_supported("dryRun", Value::from(vec![Value::from(*odd)]), &["All"]);
            return Err(ApiError::invalid("meta.k8s.io", self.options_kind(), "", &[error]));
        }
        let manager = self.query.get("fieldManager");
        if manager.len() > 128 || manager.chars().any(char::is_control) {
            let error = crate::error::FieldError::new(
                crate::error::FieldErrorKind::TooLong,
                "fieldManager",
                Value::Null,
                "may not be more than 128 bytes",
            );
            return Err(ApiError::invalid("meta.k8s.io", self.options_kind(), "", &[error]));
        }
        let validation = match self.query.get("fieldValidation") {
            // Built-in and custom resources alike warn by default.
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            odd => {
                let error =
                    crate::error::FieldError::not_supported("fieldValidation", odd, &["", "Ignore", "Strict", "Warn"]);
                return Err(ApiError::invalid("meta.k8s.io", self.options_kind(), "", &[error]));
            }
        };
        Ok(Write {
            dry_run: dry_run.contains(&"All"),
            manager: if manager.is_empty() { manager_of(&self.request.user_agent) } else { manager.to_owned() },
            validation,
            subresource: self.subresource,
        })
    }

    fn options_kind(&self) -> &'static str {
        match self.request.method.as_str() {
            "POST" => "CreateOptions",
            "PUT" => "UpdateOptions",
            "PATCH" => "PatchOptions",
            _ => "DeleteOptions",
        }
    }

    pub(crate) fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.resource.group, &self.resource.plural, &self.name)
    }
}

/// Who a client is when it does not say: the first word of its user agent.
fn manager_of(user_agent: &str) -> String {
    let first = user_agent.split('/').next().unwrap_or_default();
    let manager: String = first.chars().filter(|letter| !letter.is_control()).take(128).collect();
    if manager.is_empty() { "unknown".to_owned() } else { manager }
}

fn is_writable(subresource: Option<Subresource>) -> bool {
    use Subresource::{EphemeralContainers, Finalize, Resize, Status};
    matches!(subresource, None | Some(Status | EphemeralContainers | Resize | Finalize))
}

pub(crate) fn method_not_allowed() -> ApiError {
    ApiError::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
}

/// `/api/v1`, `/apis/apps`, `/apis/apps/v1`: discovery, not a resource.
fn is_group_path(path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    matches!(segments.as_slice(), ["api", _] | ["apis", _] | ["apis", _, _])
}

/// Outside of every group the real server answers in plain words.
fn no_such_page() -> Answer {
    Answer {
        status: 404,
        content_type: "text/plain; charset=utf-8".to_owned(),
        body: Body::Whole(Bytes::from_static(b"404 page not found\n")),
        warnings: Vec::new(),
    }
}

fn is_health(path: &str) -> bool {
    ["/healthz", "/livez", "/readyz"]
        .iter()
        .any(|root| path == *root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/')))
}

fn health(path: &str, query: &Query) -> Answer {
    let root = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    let is_verbose = query.has("verbose") && path.trim_matches('/') == root;
    let text = if is_verbose { format!("[+]ping ok\n[+]log ok\n{root} check passed\n") } else { "ok".to_owned() };
    Answer {
        status: 200,
        content_type: "text/plain; charset=utf-8".to_owned(),
        body: Body::Whole(Bytes::from(text)),
        warnings: Vec::new(),
    }
}
