//! Objects drawn from a schema: every field may be there or not, every value has the shape that is described. Rules are
//! not looked at, so many are objects that an API server would refuse; conversion must be true of them, too.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use regex_lite::Regex;
use serde_json::{Map, Value, json};

use crate::schema::{Schema, Shape};

/// A whole object of a kind.
pub(super) fn object(schema: &'static Schema, api_version: &'static str, kind: &'static str) -> BoxedStrategy<Value> {
    let Shape::Object { properties, .. } = &schema.shape else { panic!("a kind is an object") };
    let (spec, status) = (value(&properties["spec"]), value(&properties["status"]));
    let parts = (metadata(), proptest::option::weighted(0.95, spec), proptest::option::of(status));
    parts
        .prop_map(move |(metadata, spec, status)| {
            let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
            for (name, part) in [("spec", spec), ("status", status)] {
                if let Some(part) = part {
                    object[name] = part;
                }
            }
            object
        })
        .boxed()
}

/// Annotations that conversion reads are among them, with and without sense.
fn metadata() -> impl Strategy<Value = Value> {
    const ANNOTATIONS: &[(&str, &str)] = &[
        ("team", "blue"),
        ("with~tilde", "a"),
        ("karpenter.sh/nodepool-hash", "123"),
        (super::super::EXPIRY_REPLACES_FIRST, "true"),
        (super::super::EXPIRY_REPLACES_FIRST, "false"),
        (super::super::EXPIRY_OF_POOL, "true"),
        (super::super::EXPIRY_OF_POOL, "perhaps"),
        (super::super::UBUNTU, "amiFamily,blockDeviceMappings,incompatible"),
        (super::super::UBUNTU, ""),
        (super::super::ALIAS_VERSION, "v20240807"),
        (super::super::ALIAS_VERSION, ""),
        (crate::labels::KUBELET_CONVERSION, r#"{"maxPods": 20}"#),
        (crate::labels::KUBELET_CONVERSION, r#"{"clusterDNS":["10.0.0.1"],"maxPods":110,"newer":true}"#),
        (crate::labels::KUBELET_CONVERSION, "no JSON"),
        (
            crate::labels::NODE_CLASS_REFERENCE,
            r#"{"kind":"EC2NodeClass","name":"a","apiVersion":"karpenter.k8s.aws/v1beta1"}"#,
        ),
        (crate::labels::NODE_CLASS_REFERENCE, r#"{"name":"a"}"#),
        (crate::labels::NODE_CLASS_REFERENCE, "[1]"),
    ];
    let annotations = vec(select(ANNOTATIONS), 0..3);
    (annotations, any::<bool>(), any::<bool>()).prop_map(|(annotations, has_labels, is_stored)| {
        let mut metadata = json!({"name": "drawn"});
        for (key, text) in annotations {
            metadata["annotations"][key] = text.into();
        }
        if has_labels {
            metadata["labels"] = json!({"a": "b"});
        }
        if is_stored {
            metadata["uid"] = "u-1".into();
            metadata["creationTimestamp"] = "2024-05-01T00:00:00Z".into();
            metadata["managedFields"] = json!([{"manager": "kubectl", "apiVersion": "karpenter.sh/v1beta1"}]);
        }
        metadata
    })
}

pub(super) fn value(schema: &Schema) -> BoxedStrategy<Value> {
    match &schema.shape {
        Shape::Object { properties, required } => {
            let described = properties.iter().map(|(name, property)| {
                let chance = if required.contains(name) { 0.97 } else { 0.5 };
                let name = (*name).to_owned();
                proptest::option::weighted(chance, value(property))
                    .prop_map(move |value| Some((name.clone(), value?)))
                    .boxed()
            });
            let described = described.collect::<Vec<_>>().prop_map(|fields| fields.into_iter().flatten().collect());
            let unknown = if schema.keeps_unknown { 0..2 } else { 0..1 };
            let unknown = btree_map(select(&["example.com/gpu", "ephemeral-storage"][..]), quantity(), unknown);
            (described, unknown)
                .prop_map(|(described, unknown): (Vec<(String, Value)>, _)| {
                    let mut fields = Map::from_iter(described);
                    fields.extend(unknown.into_iter().map(|(name, amount)| (name.to_owned(), amount)));
                    Value::Object(fields)
                })
                .boxed()
        }
        Shape::Map(values) => {
            const KEYS: &[&str] = &["cpu", "memory", "example.com/a", "team", "with~tilde", "memory.available"];
            btree_map(select(KEYS), value(values), 0..3)
                .prop_map(|entries| entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
                .boxed()
        }
        Shape::List(item) => vec(value(item), 0..3).prop_map(Value::Array).boxed(),
        Shape::Text if !schema.words.is_empty() => select(schema.words).prop_map(Value::from).boxed(),
        Shape::Text if schema.format == Some("date-time") => {
            select(&["2024-01-01T00:00:00Z", "2025-06-30T12:34:56Z"][..]).prop_map(Value::from).boxed()
        }
        Shape::Text => text(schema.pattern.as_ref()),
        Shape::Integer => {
            let (low, high) = (schema.minimum.unwrap_or(-5), schema.maximum.unwrap_or(100_000));
            (low..=high).prop_map(Value::from).boxed()
        }
        Shape::Boolean => any::<bool>().prop_map(Value::from).boxed(),
        Shape::IntOrText => quantity().boxed(),
        Shape::Open => btree_map("[a-z]{1,8}", anything(), 0..3)
            .prop_map(|fields| Value::Object(fields.into_iter().collect()))
            .boxed(),
    }
}

fn quantity() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0..1000u32).prop_map(Value::from),
        select(&["500m", "4", "16Gi", "1e3", "-2", ".5"][..]).prop_map(Value::from)
    ]
}

/// Something for every pattern of the schemas.
const WORDS: &[&str] = &[
    "",
    "a",
    "example.com/a",
    "karpenter.sh/capacity-type",
    "Ready",
    "Empty",
    "Terminating",
    "InstanceTerminating",
    "A.b_c-1",
    "30s",
    "1h30m",
    "0s",
    "720h",
    "Never",
    "0",
    "5",
    "10%",
    "100%",
    "@daily",
    "0 9 * * mon-fri",
    "8h",
    "1h30m0s",
    "NodeClassNotFound",
    "20Gi",
    "100Gi",
    "1T",
    "subnet-1",
    "subnet-0abc",
    "sg-1",
    "ami-1",
    "ami-placeholder",
    "cr-1",
    "pg-1",
    "012345678901",
    "karpenter.k8s.aws",
    "karpenter.kwok.sh",
    "karpenter.k8s.aws/v1beta1",
    "karpenter.kwok.sh/v1alpha1",
    "EC2NodeClass",
    "KWOKNodeClass",
    "al2@latest",
    "al2023@v20240807",
    "bottlerocket@v1.20.0",
    "a/b/c",
    "True",
    "5%",
    "100Mi",
    "99.95%",
    "500m",
    "-2",
    ".5",
];

fn text(pattern: Option<&Regex>) -> BoxedStrategy<Value> {
    let Some(pattern) = pattern else {
        return prop_oneof![1 => "[ -~äß\\n]{0,16}", 3 => select(WORDS).prop_map(str::to_owned)]
            .prop_map(Value::from)
            .boxed();
    };
    let fitting: Vec<&str> = WORDS.iter().copied().filter(|word| pattern.is_match(word)).collect();
    assert!(!fitting.is_empty(), "no word is known for the pattern {}", pattern.as_str());
    select(fitting).prop_map(Value::from).boxed()
}

/// Any JSON, not too deep.
pub(super) fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-10i32..10).prop_map(|half| Value::from(f64::from(half) / 2.0)),
        "[ -~]{0,8}".prop_map(Value::from),
        select(&["karpenter.sh/v1", "karpenter.k8s.aws/v1beta1", "NodePool", "EC2NodeClass"][..]).prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let names = prop_oneof![
            select(
                &[
                    "apiVersion",
                    "kind",
                    "metadata",
                    "annotations",
                    "spec",
                    "template",
                    "disruption",
                    "limits",
                    "resources",
                    "path",
                    "was",
                    "is",
                    "items"
                ][..]
            )
            .prop_map(str::to_owned),
            "[a-z/~]{0,6}",
        ];
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            btree_map(names, inner, 0..4).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// An object some of whose places have been overwritten or emptied.
pub(super) fn damaged(object: BoxedStrategy<Value>) -> impl Strategy<Value = Value> {
    (object, vec((any::<prop::sample::Index>(), proptest::option::of(anything())), 1..5)).prop_map(
        |(mut object, blows)| {
            for (place, value) in blows {
                let mut places = Vec::new();
                list_places(&object, String::new(), &mut places);
                let pointer = place.get(&places).clone();
                match (object.pointer_mut(&pointer), value) {
                    (Some(place), Some(value)) => *place = value,
                    (Some(place), None) => *place = Value::Null,
                    (None, _) => {}
                }
            }
            object
        },
    )
}

fn list_places(value: &Value, path: String, places: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                list_places(field, format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")), places);
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                list_places(item, format!("{path}/{i}"), places);
            }
        }
        _ => {}
    }
    places.push(path);
}
