//! Dropping what the schema does not describe, as an API server does when it reads an object.

use serde_json::Value;

use super::{Schema, Shape};

/// Removes the fields of `value`, an object of a kind, that nothing of the schema describes. What has a wrong type
/// stays as it is: that is for [`super::check`] to say.
pub(crate) fn prune(schema: &Schema, value: &mut Value) {
    let (Shape::Object { properties, .. }, Value::Object(fields)) = (&schema.shape, value) else { return };
    fields.retain(|name, _| {
        ["apiVersion", "kind", "metadata"].contains(&name.as_str()) || properties.contains_key(&**name)
    });
    for (name, property) in properties {
        if let Some(field) = fields.get_mut(*name) {
            visit(property, field);
        }
    }
}

fn visit(schema: &Schema, value: &mut Value) {
    match (&schema.shape, value) {
        (Shape::Object { properties, .. }, Value::Object(fields)) => {
            fields.retain(|name, _| schema.keeps_unknown || properties.contains_key(&**name));
            for (name, property) in properties {
                if let Some(field) = fields.get_mut(*name) {
                    visit(property, field);
                }
            }
        }
        (Shape::Map(values), Value::Object(entries)) => entries.values_mut().for_each(|entry| visit(values, entry)),
        (Shape::List(item), Value::Array(items)) => items.iter_mut().for_each(|entry| visit(item, entry)),
        _ => {}
    }
}
