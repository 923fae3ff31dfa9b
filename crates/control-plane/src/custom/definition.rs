//! The definition itself: what is filled in, and what a definition must be like.
//!
//! A server keeps what all versions of a definition have in common in one place, and names that place in what it says: a
//! definition with one version is blamed at `spec.validation.openAPIV3Schema`, one with two different schemas at
//! `spec.versions[0].schema.openAPIV3Schema`.

mod defaults;
mod keywords;
mod shown;
mod structural;

use serde_json::{Value, json};

use super::formats::has_format;
use super::names::{is_dns1035_label, is_dns1123_subdomain};
use super::node::Node;
use super::{field_path, go};
use crate::error::{FieldError, FieldErrorKind};

pub fn default_definition(crd: &mut Value) {
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_empty = |value: Option<&Value>| value.and_then(Value::as_str).is_none_or(str::is_empty);
        if is_empty(names.get("singular")) && !kind.is_empty() {
            names.insert("singular".to_owned(), kind.to_lowercase().into());
        }
        if is_empty(names.get("listKind")) && !kind.is_empty() {
            names.insert("listKind".to_owned(), format!("{kind}List").into());
        }
    }
    let conversion = spec.entry("conversion").or_insert(Value::Null);
    if conversion.is_null() {
        *conversion = json!({ "strategy": "None" });
    }
    if let Some(service) = conversion.pointer_mut("/webhook/clientConfig/service").and_then(Value::as_object_mut) {
        service.entry("port").or_insert(json!(443));
    }
}

/// The status of a definition that nobody has looked at yet, whatever its maker says.
pub fn open_status(crd: &mut Value) {
    if let Some(map) = crd.as_object_mut() {
        let status =
            json!({ "acceptedNames": { "kind": "", "plural": "" }, "conditions": null, "storedVersions": null });
        map.insert("status".to_owned(), status);
    }
    remember_storage(crd);
}

/// Notes the version in which objects are written from now on among those in which some may be.
pub fn remember_storage(crd: &mut Value) {
    let versions = list(&crd["spec"]["versions"]);
    let Some(storage) = versions.iter().find(|version| version["storage"] == true) else { return };
    let storage = storage["name"].clone();
    let Some(status) = crd.get_mut("status").and_then(Value::as_object_mut) else { return };
    match status.get_mut("storedVersions").and_then(Value::as_array_mut) {
        Some(stored) if stored.contains(&storage) => {}
        Some(stored) => stored.push(storage),
        None => {
            status.insert("storedVersions".to_owned(), json!([storage]));
        }
    }
}

/// What is wrong with a definition that is created, or with what becomes of `old`.
#[must_use]
pub fn validate_definition(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &new["spec"];
    if old.is_none() {
        let name = text(&new["metadata"]["name"]);
        if name != format!("{}.{}", text(&spec["names"]["plural"]), text(&spec["group"])) && !name.is_empty() {
            errors.push(FieldError::invalid("metadata.name", name, "must be spec.names.plural+\".\"+spec.group"));
        }
    }
    check_spec(spec, &mut errors);
    if let Some(old) = old {
        check_change(spec, old, &mut errors);
    }
    check_stored_versions(new, &mut errors);
    check_approval(new, old, &mut errors);
    if spec["preserveUnknownFields"] == true && old.is_none_or(|old| old["spec"]["preserveUnknownFields"] != true) {
        let why =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", true, why));
    }
    errors
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Where a part of the versions is kept, and so where it is blamed.
struct Common {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable_fields: bool,
}

impl Common {
    fn of(versions: &[Value]) -> Self {
        let is_same = |field: &str| match versions.split_first() {
            Some((first, rest)) => rest.iter().all(|version| version.get(field) == first.get(field)),
            None => false,
        };
        Self {
            schema: is_same("schema"),
            subresources: is_same("subresources"),
            columns: is_same("additionalPrinterColumns"),
            selectable_fields: is_same("selectableFields"),
        }
    }
}

fn check_spec(spec: &Value, errors: &mut Vec<FieldError>) {
    let group = text(&spec["group"]);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if let Err(complaints) = is_dns1123_subdomain(group) {
        errors.push(FieldError::invalid("spec.group", group, complaints.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid("spec.group", group, "should be a domain with at least one dot"));
    }
    check_choice("spec.scope", text(&spec["scope"]), &["Cluster", "Namespaced"], errors);

    let versions = list(&spec["versions"]);
    let common = Common::of(versions);
    for (idx, version) in versions.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            errors.push(FieldError::required(format!("spec.versions[{idx}].schema.openAPIV3Schema"), ""));
        }
    }
    for (idx, version) in versions.iter().enumerate() {
        check_version(version, &format!("spec.versions[{idx}]"), &common, errors);
    }
    check_version_names(spec, versions, &common, errors);
    check_required_names(&spec["names"], errors);
    check_names(&spec["names"], "spec.names", errors);
    if let Some(first) = versions.first() {
        if common.schema {
            let has_status = versions.iter().any(|version| version["subresources"]["status"].is_object());
            check_schema(&first["schema"]["openAPIV3Schema"], "spec.validation", has_status, errors);
        }
        if common.subresources {
            check_subresources(&first["subresources"], "spec.subresources", errors);
        }
        if common.columns {
            check_columns(list(&first["additionalPrinterColumns"]), "spec.additionalPrinterColumns", errors);
        }
        if common.selectable_fields {
            check_selectable_fields(first, "spec.selectableFields", errors);
        }
    }
    check_conversion(&spec["conversion"], errors);
}

fn check_choice(field: &str, value: &str, accepted: &[&str], errors: &mut Vec<FieldError>) {
    if value.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if !accepted.contains(&value) {
        errors.push(FieldError::not_supported(field, value, accepted));
    }
}

fn check_version(version: &Value, path: &str, common: &Common, errors: &mut Vec<FieldError>) {
    let name = text(&version["name"]);
    if let Err(why) = is_dns1035_label(name) {
        errors.push(FieldError::invalid(format!("{path}.name"), name, why));
    }
    if let Some(warning) = version["deprecationWarning"].as_str() {
        let field = format!("{path}.deprecationWarning");
        let mut complain = |why: &str| errors.push(FieldError::invalid(field.as_str(), warning, why));
        if version["deprecated"] != true {
            complain("can only be set for deprecated versions");
        } else {
            if warning.len() > 256 {
                complain("must be <= 256 characters long");
            }
            if warning.is_empty() {
                complain("must not be an empty string");
            }
            if let Some((at, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
                complain(&format!(
                    "must only contain printable UTF-8 characters; non-printable character found at index {at}"
                ));
            }
        }
    }
    if !common.schema {
        let has_status = version["subresources"]["status"].is_object();
        check_schema(&version["schema"]["openAPIV3Schema"], &format!("{path}.schema"), has_status, errors);
    }
    if !common.subresources {
        check_subresources(&version["subresources"], &format!("{path}.subresources"), errors);
    }
    if !common.columns {
        check_columns(list(&version["additionalPrinterColumns"]), &format!("{path}.additionalPrinterColumns"), errors);
    }
    if !common.selectable_fields {
        check_selectable_fields(version, &format!("{path}.selectableFields"), errors);
    }
}

fn check_version_names(spec: &Value, versions: &[Value], common: &Common, errors: &mut Vec<FieldError>) {
    let names: Vec<&str> = versions.iter().map(|version| text(&version["name"])).collect();
    let mut complain = |why: &str| {
        let found = shown::versions(versions, common);
        errors.push(FieldError::new(
            FieldErrorKind::InvalidUnshown,
            "spec.versions",
            Value::Null,
            format!("{found}: {why}"),
        ));
    };
    let is_twice = names.iter().enumerate().any(|(idx, name)| names.iter().take(idx).any(|earlier| earlier == name));
    if is_twice {
        complain("must contain unique version names");
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        complain("must have exactly one version marked as storage version");
    }
    // The first version stands for all in the older form of the same definition, which is judged too.
    if let Some(first) = names.first().filter(|name| !name.is_empty())
        && let Err(why) = is_dns1035_label(first)
        && list(&spec["versions"]).len() == versions.len()
    {
        errors.push(FieldError::invalid("spec.version", *first, why));
    }
}

fn check_required_names(names: &Value, errors: &mut Vec<FieldError>) {
    for name in ["plural", "singular", "kind", "listKind"] {
        if text(&names[name]).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{name}"), ""));
        }
    }
}

fn check_names(names: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for name in ["plural", "singular", "kind", "listKind"] {
        let value = text(&names[name]);
        let may_be_mixed = matches!(name, "kind" | "listKind");
        let judged = if may_be_mixed { value.to_lowercase() } else { value.to_owned() };
        if let (false, Err(why)) = (value.is_empty(), is_dns1035_label(&judged)) {
            let why =
                if may_be_mixed { format!("may have mixed case, but should otherwise match: {why}") } else { why };
            errors.push(FieldError::invalid(format!("{path}.{name}"), value, why));
        }
    }
    let check_each = |field: &str, errors: &mut Vec<FieldError>| {
        for (idx, name) in list(&names[field]).iter().map(text).enumerate() {
            if let Err(why) = is_dns1035_label(name) {
                errors.push(FieldError::invalid(format!("{path}.{field}[{idx}]"), name, why));
            }
        }
    };
    check_each("shortNames", errors);
    let kind = text(&names["kind"]);
    if !kind.is_empty() && kind == text(&names["listKind"]) {
        errors.push(FieldError::invalid(format!("{path}.listKind"), kind, "kind and listKind may not be the same"));
    }
    check_each("categories", errors);
}

fn check_subresources(subresources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let scale = &subresources["scale"];
    if !scale.is_object() {
        return;
    }
    let rows: [(&str, &[&str], &str); 3] = [
        ("specReplicasPath", &[".spec."], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ];
    for (name, prefixes, why) in rows {
        let value = text(&scale[name]);
        let field = format!("{path}.scale.{name}");
        if value.is_empty() {
            if name != "labelSelectorPath" {
                errors.push(FieldError::required(field, ""));
            }
        } else if !value.starts_with('.') {
            errors.push(FieldError::invalid(field, value, "must be a simple json path starting with ."));
        } else if !prefixes.iter().any(|prefix| value.starts_with(prefix)) {
            errors.push(FieldError::invalid(field, value, why));
        }
    }
}

fn check_columns(columns: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    for (idx, column) in columns.iter().enumerate() {
        let field = |name: &str| format!("{path}[{idx}].{name}");
        if text(&column["name"]).is_empty() {
            errors.push(FieldError::required(field("name"), ""));
        }
        let kind = text(&column["type"]);
        let of_types = format!("must be one of {}", TYPES.join(","));
        if kind.is_empty() {
            errors.push(FieldError::required(field("type"), of_types));
        } else if !TYPES.contains(&kind) {
            errors.push(FieldError::invalid(field("type"), kind, of_types));
        }
        let format = text(&column["format"]);
        if !format.is_empty() && !FORMATS.contains(&format) {
            let why = format!("must be one of {}", FORMATS.join(","));
            errors.push(FieldError::invalid(field("format"), format, why));
        }
        let json_path = text(&column["jsonPath"]);
        if json_path.is_empty() {
            errors.push(FieldError::required(field("JSONPath"), ""));
        } else if !json_path.starts_with('.') {
            errors.push(FieldError::invalid(
                field("JSONPath"),
                json_path,
                "must be a simple json path starting with .",
            ));
        }
    }
}

fn check_selectable_fields(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const N_MAX: usize = 8;
    let fields = list(&version["selectableFields"]);
    if fields.is_empty() {
        return;
    }
    let root = Node::read(&version["schema"]["openAPIV3Schema"]);
    let mut known: Vec<String> = Vec::new();
    for (idx, json_path) in fields.iter().map(|field| text(&field["jsonPath"])).enumerate() {
        let field = format!("{path}[{idx}].jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(field, ""));
            continue;
        }
        let (found, node) = match field_path::read(json_path, &root, false) {
            Ok(found) => found,
            Err(why) => {
                errors.push(FieldError::invalid(field, json_path, format!("is an invalid path: {why}")));
                continue;
            }
        };
        if found.split('.').next() == Some("metadata") {
            errors.push(FieldError::invalid(field.as_str(), json_path, "must not point to fields in metadata"));
        }
        if !matches!(node.type_name.as_str(), "string" | "boolean" | "integer") {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats \
                       are allowed.";
            errors.push(FieldError::invalid(field.as_str(), json_path, why));
        }
        if known.contains(&found) {
            errors.push(FieldError::duplicate(field, json_path));
        } else {
            known.push(found);
        }
    }
    if known.len() > N_MAX {
        let why = format!("must have at most {N_MAX} items");
        errors.push(FieldError::new(FieldErrorKind::TooMany, path, known.len(), why));
    }
}

fn check_conversion(conversion: &Value, errors: &mut Vec<FieldError>) {
    const PATH: &str = "spec.conversion";
    if conversion.is_null() {
        return;
    }
    let strategy = text(&conversion["strategy"]);
    check_choice("spec.conversion.strategy", strategy, &["None", "Webhook"], errors);
    let client = &conversion["webhook"]["clientConfig"];
    let review_versions = list(&conversion["webhook"]["conversionReviewVersions"]);
    if strategy != "Webhook" {
        let why = "should not be set when strategy is not set to Webhook";
        if client.is_object() {
            errors.push(FieldError::forbidden(format!("{PATH}.webhookClientConfig"), why));
        }
        if !review_versions.is_empty() {
            errors.push(FieldError::forbidden(format!("{PATH}.conversionReviewVersions"), why));
        }
        return;
    }
    let field = format!("{PATH}.webhookClientConfig");
    if !client.is_object() {
        errors.push(FieldError::required(field, "required when strategy is set to Webhook"));
    } else if client["url"].is_string() == client["service"].is_object() {
        errors.push(FieldError::required(field, "exactly one of url or service is required"));
    } else if let Some(service) = client["service"].as_object() {
        for name in ["name", "namespace"] {
            if service.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                errors.push(FieldError::required(
                    format!("{field}.service.{name}"),
                    format!("service {name} is required"),
                ));
            }
        }
    } else if !text(&client["url"]).starts_with("https://") {
        let why = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
        errors.push(FieldError::invalid(format!("{field}.url"), text(&client["url"]), why));
    }
    let field = format!("{PATH}.conversionReviewVersions");
    let names: Vec<&str> = review_versions.iter().map(text).collect();
    if names.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    for (idx, name) in names.iter().enumerate() {
        if names.iter().take(idx).any(|earlier| earlier == name) {
            errors.push(FieldError::invalid(format!("{field}[{idx}]"), *name, "duplicate version"));
        } else if let Err(why) = is_dns1035_label(name) {
            errors.push(FieldError::invalid(format!("{field}[{idx}]"), *name, why));
        }
    }
    if !names.iter().any(|name| matches!(*name, "v1" | "v1beta1")) {
        errors.push(FieldError::invalid(field, json!(names), "must include at least one of v1, v1beta1"));
    }
}

/// What an update may not change.
fn check_change(spec: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let is_established = list(&old["status"]["conditions"])
        .iter()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
    let old = &old["spec"];
    let rows = [
        ("spec.scope", &spec["scope"], &old["scope"], is_established),
        ("spec.names.kind", &spec["names"]["kind"], &old["names"]["kind"], is_established),
        ("spec.group", &spec["group"], &old["group"], true),
        ("spec.names.plural", &spec["names"]["plural"], &old["names"]["plural"], true),
    ];
    for (field, new, old, is_fixed) in rows {
        if is_fixed && new != old {
            errors.push(FieldError::invalid(field, new.clone(), "field is immutable"));
        }
    }
}

fn check_stored_versions(crd: &Value, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "status.storedVersions";
    let versions = list(&crd["spec"]["versions"]);
    let storage: Vec<&str> =
        versions.iter().filter(|version| version["storage"] == true).map(|version| text(&version["name"])).collect();
    let mut stored: Vec<&str> = list(&crd["status"]["storedVersions"]).iter().map(text).collect();
    if stored.is_empty() {
        // A new definition has stored nothing; what it will store is filled in for it.
        stored.extend(storage.first());
    }
    if stored.is_empty() {
        errors.push(FieldError::invalid(FIELD, Value::Null, "must have at least one stored version"));
        return;
    }
    for name in storage.iter().filter(|name| !stored.contains(name)) {
        errors.push(FieldError::invalid(FIELD, json!(stored), format!("must have the storage version {name}")));
    }
    for (idx, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| version["name"] == *name) {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until \
                 a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            errors.push(FieldError::invalid(format!("{FIELD}[{idx}]"), *name, why));
        }
    }
}

/// Groups of the community need its word.
fn check_approval(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let group = text(&new["spec"]["group"]);
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
    let approval_of = |crd: &Value| text(&crd["metadata"]["annotations"][ANNOTATION]).to_owned();
    let approval = approval_of(new);
    if !is_protected || old.is_some_and(|old| approval_of(old) == approval) {
        return;
    }
    let field = format!("metadata.annotations[{ANNOTATION}]");
    let quoted = go::quote(ANNOTATION);
    let is_url = approval.contains("://") && has_format(&approval, "uri");
    if approval.is_empty() {
        let why = format!("protected groups must have approval annotation {quoted}, {SEE}");
        errors.push(FieldError::required(field, why));
    } else if !approval.starts_with("unapproved") && !is_url {
        let why = format!(
            "protected groups must have approval annotation {quoted} with either a URL or a reason starting with \
             \"unapproved\", {SEE}"
        );
        errors.push(FieldError::invalid(field, approval, why));
    }
}

/// A schema: that it is structural, that its defaults fit, that its keywords are allowed, and that its rules make sense.
fn check_schema(schema: &Value, path: &str, has_status: bool, errors: &mut Vec<FieldError>) {
    if !schema.is_object() {
        return;
    }
    let path = format!("{path}.openAPIV3Schema");
    let n_before = errors.len();
    if has_status && let Some(error) = shown::not_allowed_at_root(schema, &path) {
        errors.push(error);
    }
    if schema["nullable"] == true {
        errors.push(FieldError::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    let mut unreadable = None;
    let mut is_sound = false;
    match structural::unsupported(schema) {
        Some(why) => unreadable = Some(FieldError::invalid(path.as_str(), "", why)),
        None => {
            let mut found = structural::validate(schema, &path);
            if found.is_empty() {
                found = defaults::validate(schema, &path);
            }
            is_sound = found.is_empty();
            errors.extend(found);
        }
    }
    errors.extend(keywords::validate(schema, &path, is_sound));
    if errors.len() == n_before {
        errors.extend(unreadable);
    }
}
