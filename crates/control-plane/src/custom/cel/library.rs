//! The functions of the Kubernetes libraries: quantities, addresses, URLs, versions, formats. They are kube-cel's.

use std::rc::Rc;
use std::sync::Arc;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::common::ast::{CallExpr, Expr};
use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Context, ExecutionError, IdedExpr, Value};

use super::super::go;
use super::eval::{EvalError, EvalResult};
use super::functions::duration_text;
use super::value::{Key, V};

/// The functions of the namespace `format`.
pub(super) fn is_format(name: &str) -> bool {
    matches!(
        name,
        "named"
            | "dns1123Label"
            | "dns1123Subdomain"
            | "dns1035Label"
            | "dns1123LabelPrefix"
            | "dns1123SubdomainPrefix"
            | "dns1035LabelPrefix"
            | "qualifiedName"
            | "labelValue"
            | "uri"
            | "uuid"
            | "byte"
            | "date"
            | "datetime"
    )
}

/// Calls a function of a library. Values go over to its kind and come back.
pub(super) fn call<'a>(name: &str, is_member: bool, values: Vec<V<'a>>) -> EvalResult<'a> {
    thread_local! {
        static LIBRARY: Context<'static> = Context::default().with_all();
    }
    // The library has `sign` on a quantity; servers have it of one.
    let is_member = is_member || name == "sign";
    let types: Vec<&str> = values.iter().map(V::type_name).collect();
    let ident = |name: String| IdedExpr { id: 0, expr: Expr::Ident(name) };
    LIBRARY.with(|library| {
        let mut scope = library.new_inner_scope();
        let mut args = Vec::with_capacity(values.len());
        for (idx, value) in values.iter().enumerate() {
            let variable = format!("argument{idx}");
            scope.add_variable_from_value(variable.clone(), to_library(value)?);
            args.push(ident(variable));
        }
        let (target, func_name) = match name.split_once('.') {
            Some((space, name)) => (Some(Box::new(ident(space.to_owned()))), name.to_owned()),
            None if is_member && !args.is_empty() => (Some(Box::new(args.remove(0))), name.to_owned()),
            None => (None, name.to_owned()),
        };
        let expr = IdedExpr { id: 0, expr: Expr::Call(CallExpr { func_name, target, args }) };
        match Value::resolve(&expr, &scope) {
            // A format by its name may not be there; the library yields it plain.
            Ok(value) if name == "format.named" => Ok(match from_library(&value)? {
                V::Optional(inner) => V::Optional(inner),
                V::Null => V::Optional(None),
                value => V::some(value),
            }),
            Err(_) if name == "format.named" => Ok(V::Optional(None)),
            Ok(value) => from_library(&value),
            Err(ExecutionError::FunctionError { .. }) if name == "quantity" => Err(EvalError::said(
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            )),
            Err(ExecutionError::FunctionError { message, .. }) => Err(EvalError::said(message)),
            Err(_) => Err(EvalError::no_overload(&format!("{name}({})", types.join(", ")))),
        }
    })
}

fn to_library(value: &V<'_>) -> Result<Value, EvalError> {
    Ok(match value {
        V::Null => Value::Null,
        V::Bool(value) => Value::Bool(*value),
        V::Int(value) => Value::Int(*value),
        V::Uint(value) => Value::UInt(*value),
        V::Double(value) => Value::Float(*value),
        V::Text(text) => Value::String(Arc::new(text.to_string())),
        V::Bytes(bytes) => Value::Bytes(Arc::new(bytes.to_vec())),
        V::Duration(nanos) => Value::String(Arc::new(duration_text(*nanos))),
        V::Timestamp(at) => Value::String(Arc::new(at.to_string())),
        V::Type(name) => Value::String(Arc::new(name.to_string())),
        V::Library(value) => (**value).clone(),
        V::Optional(inner) => {
            let inner = inner.as_ref().map(|inner| to_library(inner)).transpose()?;
            Value::Opaque(Arc::new(inner.map_or_else(OptionalValue::none, OptionalValue::of)))
        }
        V::Failed(error) => return Err((**error).clone()),
        V::List(_) | V::Map(_) | V::Json(..) => match (value.items(), value.keys()) {
            (Some(items), _) => Value::List(Arc::new(items?.iter().map(to_library).collect::<Result<Vec<_>, _>>()?)),
            (None, keys) => {
                let mut entries = std::collections::HashMap::new();
                for key in keys.unwrap_or_default() {
                    let Some(entry) = value.entry(&key) else { continue };
                    let name = match Key::of(&key) {
                        Some(Key::Text(text)) => text.to_string(),
                        Some(Key::Int(value)) => value.to_string(),
                        Some(Key::Uint(value)) => value.to_string(),
                        Some(Key::Bool(value)) => value.to_string(),
                        None => continue,
                    };
                    entries.insert(name, to_library(&entry?)?);
                }
                entries.into()
            }
        },
    })
}

fn from_library<'a>(value: &Value) -> EvalResult<'a> {
    Ok(match value {
        Value::Null => V::Null,
        Value::Bool(value) => V::Bool(*value),
        Value::Int(value) => V::Int(*value),
        Value::UInt(value) => V::Uint(*value),
        Value::Float(value) => V::Double(*value),
        Value::String(text) => V::text(text.as_str()),
        Value::Bytes(bytes) => V::Bytes(Rc::from(bytes.as_slice())),
        Value::List(items) => V::list(items.iter().map(from_library).collect::<Result<Vec<_>, _>>()?),
        Value::Map(map) => {
            let mut entries = std::collections::BTreeMap::new();
            for (key, value) in map.map.iter() {
                entries.insert(Key::Text(Rc::from(key.to_string())), from_library(value)?);
            }
            V::Map(Rc::new(entries))
        }
        Value::Opaque(opaque) => match opaque.downcast_ref::<OptionalValue>() {
            Some(optional) => match optional.value() {
                Some(inner) => V::some(from_library(inner)?),
                None => V::Optional(None),
            },
            None => V::Library(Rc::new(value.clone())),
        },
        other => V::text(go::quote(&format!("{other:?}"))),
    })
}
