//! Filling in what the user left out, as an API server does when it reads an object.

use serde_json::Value;

use super::{Schema, Shape};

/// Puts the schema's defaults into `value`, outermost first, so that a default may itself be completed by deeper ones.
///
/// A `null` where the schema has a default counts as left out.
pub(crate) fn fill_defaults(schema: &Schema, value: &mut Value) {
    match (&schema.shape, value) {
        (Shape::Object { properties, .. }, Value::Object(fields)) => {
            for (name, property) in properties {
                if let Some(default) = &property.default {
                    let entry = fields.entry(*name).or_insert(Value::Null);
                    if entry.is_null() {
                        *entry = default.clone();
                    }
                }
                if let Some(field) = fields.get_mut(*name) {
                    fill_defaults(property, field);
                }
            }
        }
        (Shape::Map(values), Value::Object(entries)) => {
            entries.values_mut().for_each(|entry| fill_defaults(values, entry))
        }
        (Shape::List(item), Value::Array(items)) => items.iter_mut().for_each(|entry| fill_defaults(item, entry)),
        _ => {}
    }
}
