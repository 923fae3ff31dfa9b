//! Parts of definitions as the server shows them in what it says: with the names that they have inside of it.

use serde_json::{Value, json};

use super::{Common, list};
use crate::error::{FieldError, FieldErrorKind};

/// JSON with members in the order written here, which a map would not keep.
struct Shown(String);

impl Shown {
    fn object(members: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        let members: Vec<String> = members.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        Self(format!("{{{}}}", members.join(",")))
    }
}

/// Text for a value as Go's JSON has it: some characters that mean something in HTML are escaped.
fn json_text(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn text(value: &Value) -> String {
    json_text(&json!(value.as_str().unwrap_or_default()))
}

fn flag(value: &Value) -> String {
    (*value == true).to_string()
}

fn items(values: &[Value], each: impl Fn(&Value) -> String) -> String {
    if values.is_empty() {
        return "null".to_owned();
    }
    format!("[{}]", values.iter().map(each).collect::<Vec<_>>().join(","))
}

pub(super) fn rule(rule: &Value) -> String {
    Shown::object([
        ("Rule", text(&rule["rule"])),
        ("Message", text(&rule["message"])),
        ("MessageExpression", text(&rule["messageExpression"])),
        ("Reason", json_text(&rule["reason"])),
        ("FieldPath", text(&rule["fieldPath"])),
        ("OptionalOldSelf", json_text(&rule["optionalOldSelf"])),
    ])
    .0
}

/// What all versions have in common is kept elsewhere, and not shown here.
pub(super) fn versions(versions: &[Value], common: &Common) -> String {
    let of_version = |version: &Value| {
        let unless = |is_common: bool, shown: String| if is_common { "null".to_owned() } else { shown };
        Shown::object([
            ("Name", text(&version["name"])),
            ("Served", flag(&version["served"])),
            ("Storage", flag(&version["storage"])),
            ("Deprecated", flag(&version["deprecated"])),
            ("DeprecationWarning", json_text(&version["deprecationWarning"])),
            ("Schema", unless(common.schema, validation(&version["schema"]))),
            ("Subresources", unless(common.subresources, subresources(&version["subresources"]))),
            (
                "AdditionalPrinterColumns",
                unless(common.columns, items(list(&version["additionalPrinterColumns"]), column)),
            ),
            (
                "SelectableFields",
                unless(
                    common.selectable_fields,
                    items(list(&version["selectableFields"]), |field| {
                        Shown::object([("JSONPath", text(&field["jsonPath"]))]).0
                    }),
                ),
            ),
        ])
        .0
    };
    items(versions, of_version)
}

fn validation(schema: &Value) -> String {
    if schema.is_null() {
        return "null".to_owned();
    }
    Shown::object([("OpenAPIV3Schema", props(&schema["openAPIV3Schema"]))]).0
}

fn subresources(subresources: &Value) -> String {
    if subresources.is_null() {
        return "null".to_owned();
    }
    let scale = &subresources["scale"];
    let scale_shown = if scale.is_null() {
        "null".to_owned()
    } else {
        Shown::object([
            ("SpecReplicasPath", text(&scale["specReplicasPath"])),
            ("StatusReplicasPath", text(&scale["statusReplicasPath"])),
            ("LabelSelectorPath", json_text(&scale["labelSelectorPath"])),
        ])
        .0
    };
    Shown::object([("Status", json_text(&subresources["status"])), ("Scale", scale_shown)]).0
}

fn column(column: &Value) -> String {
    Shown::object([
        ("Name", text(&column["name"])),
        ("Type", text(&column["type"])),
        ("Format", text(&column["format"])),
        ("Description", text(&column["description"])),
        ("Priority", column["priority"].as_i64().unwrap_or_default().to_string()),
        ("JSONPath", text(&column["jsonPath"])),
    ])
    .0
}

/// What kind of thing a keyword's value is, which settles how it is shown when it is not said.
enum Kind {
    Text,
    Flag,
    Any,
    Items,
    Schema,
    Schemas,
    Named,
    SchemaOrBool,
    SchemaOrList,
    Rules,
}

const KEYWORDS: [(&str, &str, Kind); 44] = [
    ("ID", "id", Kind::Text),
    ("Schema", "$schema", Kind::Text),
    ("Ref", "$ref", Kind::Any),
    ("Description", "description", Kind::Text),
    ("Type", "type", Kind::Text),
    ("Nullable", "nullable", Kind::Flag),
    ("Format", "format", Kind::Text),
    ("Title", "title", Kind::Text),
    ("Default", "default", Kind::Any),
    ("Maximum", "maximum", Kind::Any),
    ("ExclusiveMaximum", "exclusiveMaximum", Kind::Flag),
    ("Minimum", "minimum", Kind::Any),
    ("ExclusiveMinimum", "exclusiveMinimum", Kind::Flag),
    ("MaxLength", "maxLength", Kind::Any),
    ("MinLength", "minLength", Kind::Any),
    ("Pattern", "pattern", Kind::Text),
    ("MaxItems", "maxItems", Kind::Any),
    ("MinItems", "minItems", Kind::Any),
    ("UniqueItems", "uniqueItems", Kind::Flag),
    ("MultipleOf", "multipleOf", Kind::Any),
    ("Enum", "enum", Kind::Items),
    ("MaxProperties", "maxProperties", Kind::Any),
    ("MinProperties", "minProperties", Kind::Any),
    ("Required", "required", Kind::Items),
    ("Items", "items", Kind::SchemaOrList),
    ("AllOf", "allOf", Kind::Schemas),
    ("OneOf", "oneOf", Kind::Schemas),
    ("AnyOf", "anyOf", Kind::Schemas),
    ("Not", "not", Kind::Schema),
    ("Properties", "properties", Kind::Named),
    ("AdditionalProperties", "additionalProperties", Kind::SchemaOrBool),
    ("PatternProperties", "patternProperties", Kind::Named),
    ("Dependencies", "dependencies", Kind::Any),
    ("AdditionalItems", "additionalItems", Kind::SchemaOrBool),
    ("Definitions", "definitions", Kind::Named),
    ("ExternalDocs", "externalDocs", Kind::Any),
    ("Example", "example", Kind::Any),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", Kind::Any),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", Kind::Flag),
    ("XIntOrString", "x-kubernetes-int-or-string", Kind::Flag),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Kind::Items),
    ("XListType", "x-kubernetes-list-type", Kind::Any),
    ("XMapType", "x-kubernetes-map-type", Kind::Any),
    ("XValidations", "x-kubernetes-validations", Kind::Rules),
];

fn props(schema: &Value) -> String {
    if schema.is_null() {
        return "null".to_owned();
    }
    let of_keyword = |kind: &Kind, value: &Value| match kind {
        Kind::Text => text(value),
        Kind::Flag => flag(value),
        Kind::Any => json_text(value),
        Kind::Items => items(list(value), json_text),
        Kind::Schema => props(value),
        Kind::Schemas => items(list(value), props),
        Kind::Rules => items(list(value), rule),
        Kind::Named => match value.as_object().filter(|members| !members.is_empty()) {
            None => "null".to_owned(),
            Some(members) => {
                let mut shown: Vec<String> =
                    members.iter().map(|(name, child)| format!("{}:{}", json!(name), props(child))).collect();
                shown.sort();
                format!("{{{}}}", shown.join(","))
            }
        },
        Kind::SchemaOrBool => match value {
            Value::Null => "null".to_owned(),
            Value::Bool(allows) => Shown::object([("Allows", allows.to_string()), ("Schema", "null".to_owned())]).0,
            schema => Shown::object([("Allows", "true".to_owned()), ("Schema", props(schema))]).0,
        },
        Kind::SchemaOrList => match value {
            Value::Null => "null".to_owned(),
            Value::Array(schemas) => {
                Shown::object([("Schema", "null".to_owned()), ("JSONSchemas", items(schemas, props))]).0
            }
            schema => Shown::object([("Schema", props(schema)), ("JSONSchemas", "null".to_owned())]).0,
        },
    };
    Shown::object(KEYWORDS.iter().map(|(name, keyword, kind)| (*name, of_keyword(kind, &schema[*keyword])))).0
}

const ALLOWED_AT_ROOT: [&str; 22] = [
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];

/// With a status subresource, the status is judged alone, so that the root may not say what concerns the whole.
pub(super) fn not_allowed_at_root(schema: &Value, path: &str) -> Option<FieldError> {
    for (name, keyword, _) in &KEYWORDS {
        let is_said = match &schema[*keyword] {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(members) => !members.is_empty(),
            _ => true,
        };
        if *name == "Type" && is_said && schema["type"] != "object" {
            let why =
                "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
            return Some(FieldError::invalid(format!("{path}.type"), schema["type"].clone(), why));
        }
        if is_said && !ALLOWED_AT_ROOT.contains(name) {
            let why = format!(
                "{}: only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                props(schema),
                ALLOWED_AT_ROOT.join(" ")
            );
            return Some(FieldError::new(FieldErrorKind::InvalidUnshown, path, Value::Null, why));
        }
    }
    None
}
