//! From our description to the one a CustomResourceDefinition carries.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};

use super::{Merge, Schema, Shape};

impl From<&Schema> for JSONSchemaProps {
    fn from(schema: &Schema) -> Self {
        let mut props = JSONSchemaProps {
            description: (!schema.about.is_empty()).then(|| schema.about.to_owned()),
            default: schema.default.clone().map(JSON),
            enum_: (!schema.words.is_empty()).then(|| schema.words.iter().map(|word| JSON((*word).into())).collect()),
            pattern: schema.pattern.as_ref().map(|pattern| pattern.as_str().to_owned()),
            format: schema.format.map(str::to_owned),
            minimum: schema.minimum.map(|minimum| minimum as f64),
            maximum: schema.maximum.map(|maximum| maximum as f64),
            min_length: schema.min_length.map(count),
            max_length: schema.max_length.map(count),
            min_items: schema.min_items.map(count),
            max_items: schema.max_items.map(count),
            max_properties: schema.max_properties.map(count),
            x_kubernetes_validations: (!schema.rules.is_empty())
                .then(|| schema.rules.iter().map(ValidationRule::from).collect()),
            ..Default::default()
        };
        match schema.merge {
            Merge::Unsaid => {}
            Merge::AtomicList => props.x_kubernetes_list_type = Some("atomic".to_owned()),
            Merge::AtomicMap => props.x_kubernetes_map_type = Some("atomic".to_owned()),
            Merge::GranularMap => props.x_kubernetes_map_type = Some("granular".to_owned()),
            Merge::Set => props.x_kubernetes_list_type = Some("set".to_owned()),
            Merge::MapBy(key) => {
                props.x_kubernetes_list_type = Some("map".to_owned());
                props.x_kubernetes_list_map_keys = Some(vec![key.to_owned()]);
            }
        }
        match &schema.shape {
            Shape::Object { properties, required } => {
                props.type_ = Some("object".to_owned());
                props.properties = (!properties.is_empty())
                    .then(|| properties.iter().map(|(name, schema)| ((*name).to_owned(), schema.into())).collect());
                let mut names: Vec<String> = required.iter().map(|name| (*name).to_owned()).collect();
                names.sort();
                props.required = (!names.is_empty()).then_some(names);
                props.x_kubernetes_preserve_unknown_fields = schema.keeps_unknown.then_some(true);
            }
            Shape::Map(values) => {
                props.type_ = Some("object".to_owned());
                props.additional_properties = Some(JSONSchemaPropsOrBool::Schema(Box::new(values.as_ref().into())));
            }
            Shape::List(item) => {
                props.type_ = Some("array".to_owned());
                props.items = Some(JSONSchemaPropsOrArray::Schema(Box::new(item.as_ref().into())));
            }
            Shape::Text => props.type_ = Some("string".to_owned()),
            Shape::Integer => props.type_ = Some("integer".to_owned()),
            Shape::Boolean => props.type_ = Some("boolean".to_owned()),
            Shape::IntOrText => {
                let of_type = |name: &str| JSONSchemaProps { type_: Some(name.to_owned()), ..Default::default() };
                props.any_of = Some(vec![of_type("integer"), of_type("string")]);
                props.x_kubernetes_int_or_string = Some(true);
            }
            Shape::Open => {
                props.type_ = Some("object".to_owned());
                props.x_kubernetes_preserve_unknown_fields = Some(true);
            }
        }
        props
    }
}

impl From<&super::Rule> for ValidationRule {
    fn from(rule: &super::Rule) -> Self {
        ValidationRule { rule: rule.cel.to_string(), message: Some(rule.message.to_string()), ..Default::default() }
    }
}

fn count(n: u64) -> i64 {
    i64::try_from(n).expect("limits in a schema are small constants")
}
