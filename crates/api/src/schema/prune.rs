//! Dropping what the schema does not describe, as an API server does when it reads an object.

use serde_json::Value;

use super::{Schema, Shape};

/// Removes the fields of `value`, an object of a kind, that nothing of the schema describes, and those that are `null`:
/// that means left out. What has a wrong type stays as it is: that is for [`super::check`] to say.
pub(crate) fn prune(schema: &Schema, value: &mut Value) {
    let (Shape::Object { properties, .. }, Value::Object(fields)) = (&schema.shape, value) else { return };
    fields.retain(|name, field| match properties.get(name.as_str()) {
        Some(property) => keep(property, field),
        None => ["apiVersion", "kind", "metadata"].contains(&name.as_str()),
    });
}

/// Prunes what is in the field, and says whether the field itself stays.
fn keep(schema: &Schema, field: &mut Value) -> bool {
    match (&schema.shape, &mut *field) {
        (Shape::Object { properties, .. }, Value::Object(fields)) => {
            fields.retain(|name, field| match properties.get(name.as_str()) {
                Some(property) => keep(property, field),
                None => schema.keeps_unknown,
            });
        }
        (Shape::Map(values), Value::Object(entries)) => entries.retain(|_, entry| keep(values, entry)),
        (Shape::List(item), Value::Array(items)) => items.iter_mut().for_each(|entry| {
            keep(item, entry);
        }),
        _ => {}
    }
    !field.is_null()
}
