//! The paths of a resource, and what may be done there.

use serde_json::{Map, Value, json};

use super::{Format, types};
use crate::kind::{Resource, Subresource};

const LIST: [(&str, &str); 10] = [
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const WRITE: [(&str, &str); 3] = [("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const DELETE: [(&str, &str); 4] = [
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

pub(super) fn of_resource(format: Format, resource: &Resource, paths: &mut Map<String, Value>) {
    let maker = Maker { format, resource };
    let root = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    let plural = &resource.plural;
    let (collection, scope) = if resource.namespaced {
        (format!("{root}/namespaces/{{namespace}}/{plural}"), "Namespaced")
    } else {
        (format!("{root}/{plural}"), "")
    };
    let name = types::name_of(resource);
    let list = format!("{name}List");
    // Nothing is kept of a binding: it can only be posted.
    if resource.is("", "Binding") {
        let mut item = maker.item(resource.namespaced, false);
        maker.put(&mut item, "post", "post", "create", scope, &name, &name, &WRITE);
        paths.insert(collection, Value::Object(item));
        return;
    }
    if resource.namespaced {
        let mut everywhere = maker.item(false, false);
        maker.put(&mut everywhere, "get", "list", "list", "AllNamespaces", "", &list, &LIST);
        paths.insert(format!("{root}/{plural}"), Value::Object(everywhere));
    }
    let mut many = maker.item(resource.namespaced, false);
    maker.put(&mut many, "get", "list", "list", scope, "", &list, &LIST);
    maker.put(&mut many, "post", "post", "create", scope, &name, &name, &WRITE);
    let both: Vec<(&str, &str)> = LIST.iter().chain(&DELETE).copied().filter(|(name, _)| *name != "watch").collect();
    maker.put(
        &mut many,
        "delete",
        "deletecollection",
        "deleteCollection",
        scope,
        types::DELETE_OPTIONS,
        types::STATUS,
        &both,
    );
    let mut one = maker.item(resource.namespaced, true);
    maker.get_put_patch(&mut one, scope, &name);
    maker.put(&mut one, "delete", "delete", "delete", scope, types::DELETE_OPTIONS, types::STATUS, &DELETE);
    for subresource in &resource.subresources {
        let mut item = maker.item(resource.namespaced, true);
        let name = types::name_of_sub(resource, *subresource);
        let scope = format!("{scope}:{}", subresource.name());
        match subresource {
            Subresource::Eviction | Subresource::Binding | Subresource::Token => {
                maker.put(&mut item, "post", "post", "create", &scope, &name, &name, &WRITE);
            }
            Subresource::Finalize => maker.put(&mut item, "put", "put", "replace", &scope, &name, &name, &WRITE),
            _ => maker.get_put_patch(&mut item, &scope, &name),
        }
        paths.insert(format!("{collection}/{{name}}/{}", subresource.name()), Value::Object(item));
    }
    paths.insert(format!("{collection}/{{name}}"), Value::Object(one));
    paths.insert(collection, Value::Object(many));
}

struct Maker<'a> {
    format: Format,
    resource: &'a Resource,
}

impl Maker<'_> {
    fn item(&self, in_namespace: bool, of_one: bool) -> Map<String, Value> {
        let mut parameters = Vec::new();
        for (name, is_there) in [("name", of_one), ("namespace", in_namespace)] {
            if is_there {
                let mut parameter = self.parameter(name, "string", "path");
                if let Value::Object(fields) = &mut parameter {
                    fields.insert("required".to_owned(), json!(true));
                }
                parameters.push(parameter);
            }
        }
        parameters.push(self.parameter("pretty", "string", "query"));
        Map::from_iter([("parameters".to_owned(), Value::Array(parameters))])
    }

    fn parameter(&self, name: &str, kind: &str, place: &str) -> Value {
        match self.format {
            Format::V2 => json!({ "name": name, "in": place, "type": kind, "uniqueItems": true }),
            Format::V3 => json!({ "name": name, "in": place, "schema": { "type": kind, "uniqueItems": true } }),
        }
    }

    fn get_put_patch(&self, item: &mut Map<String, Value>, scope: &str, name: &str) {
        self.put(item, "get", "get", "read", scope, "", name, &[]);
        self.put(item, "put", "put", "replace", scope, name, name, &WRITE);
        let patch: Vec<(&str, &str)> = WRITE.iter().copied().chain([("force", "boolean")]).collect();
        self.put(item, "patch", "patch", "patch", scope, types::PATCH, name, &patch);
    }

    /// Only built-in kinds know how to merge strategically, and kubectl chooses by this.
    fn patches(&self) -> &'static [&'static str] {
        if self.resource.custom.is_some() { &PATCHES[..3] } else { &PATCHES }
    }

    #[expect(clippy::too_many_arguments, reason = "a row of the table of operations has this many columns")]
    fn put(
        &self,
        item: &mut Map<String, Value>,
        method: &str,
        action: &str,
        verb: &str,
        scope: &str,
        takes: &str,
        gives: &str,
        parameters: &[(&str, &str)],
    ) {
        let mut parameters: Vec<Value> =
            parameters.iter().map(|(name, kind)| self.parameter(name, kind, "query")).collect();
        let is_required = method != "delete";
        let mut operation = Map::new();
        let mut say = |key: &str, value: Value| {
            operation.insert(key.to_owned(), value);
        };
        say("operationId", json!(self.operation_id(verb, scope)));
        say("tags", json!([self.tag()]));
        say("x-kubernetes-action", json!(action));
        say("x-kubernetes-group-version-kind", self.kind_of(gives, takes));
        let given = self.format.reference(gives);
        match self.format {
            Format::V3 => {
                say(
                    "responses",
                    json!({
                        "200": { "description": "OK", "content": { "application/json": { "schema": given } } },
                        "401": { "description": "Unauthorized" },
                    }),
                );
                if !takes.is_empty() {
                    let taken = json!({ "schema": self.format.reference(takes) });
                    let content: Map<String, Value> = if takes == types::PATCH {
                        self.patches().iter().map(|media| ((*media).to_owned(), taken.clone())).collect()
                    } else {
                        Map::from_iter([("*/*".to_owned(), taken)])
                    };
                    say("requestBody", json!({ "content": content, "required": is_required }));
                }
            }
            Format::V2 => {
                say("schemes", json!(["https"]));
                say("produces", json!(["application/json"]));
                say("consumes", if takes == types::PATCH { json!(self.patches()) } else { json!(["*/*"]) });
                say(
                    "responses",
                    json!({
                        "200": { "description": "OK", "schema": given },
                        "401": { "description": "Unauthorized" },
                    }),
                );
                if !takes.is_empty() {
                    let taken = self.format.reference(takes);
                    parameters
                        .insert(0, json!({ "name": "body", "in": "body", "required": is_required, "schema": taken }));
                }
            }
        }
        if !parameters.is_empty() {
            say("parameters", Value::Array(parameters));
        }
        item.insert(method.to_owned(), Value::Object(operation));
    }

    /// Subresources with a type of their own are of that kind.
    fn kind_of(&self, gives: &str, takes: &str) -> Value {
        let own = types::name_of(self.resource);
        let speaks_of = |name: &str| gives == name || takes == name;
        let (group, version, kind) = match () {
            () if speaks_of("io.k8s.api.autoscaling.v1.Scale") => ("autoscaling", "v1", "Scale"),
            () if speaks_of("io.k8s.api.policy.v1.Eviction") => ("policy", "v1", "Eviction"),
            () if speaks_of("io.k8s.api.core.v1.Binding") && own != "io.k8s.api.core.v1.Binding" => {
                ("", "v1", "Binding")
            }
            () if speaks_of("io.k8s.api.authentication.v1.TokenRequest") => {
                ("authentication.k8s.io", "v1", "TokenRequest")
            }
            () => (self.resource.group.as_str(), self.resource.version.as_str(), self.resource.kind.as_str()),
        };
        json!({ "group": group, "version": version, "kind": kind })
    }

    fn tag(&self) -> String {
        let group = if self.resource.group.is_empty() { "core" } else { &self.resource.group };
        format!("{}_{}", group.trim_end_matches(".k8s.io").replace('.', "_"), self.resource.version)
    }

    /// `listAppsV1NamespacedDeployment`, `listAppsV1DeploymentForAllNamespaces`, `readCoreV1NodeStatus`.
    fn operation_id(&self, verb: &str, scope: &str) -> String {
        let capital = |word: &str| {
            let mut letters = word.chars();
            letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect::<String>())
        };
        let (scope, sub) = scope.split_once(':').unwrap_or((scope, ""));
        let group =
            if self.resource.group.is_empty() { "core" } else { self.resource.group.trim_end_matches(".k8s.io") };
        let group: String = group.split('.').map(capital).collect();
        let (before, after) = match scope {
            "AllNamespaces" => ("", "ForAllNamespaces"),
            "Namespaced" if verb == "deleteCollection" => ("CollectionNamespaced", ""),
            "" if verb == "deleteCollection" => ("Collection", ""),
            other => (other, ""),
        };
        let verb = if verb == "deleteCollection" { "delete" } else { verb };
        let version = capital(&self.resource.version);
        let sub = match sub {
            "ephemeralcontainers" => "Ephemeralcontainers".to_owned(),
            other => capital(other),
        };
        format!("{verb}{group}{version}{before}{}{sub}{after}", self.resource.kind)
    }
}
