//! Objects drawn from the CRDs that upstream published. Those are not ours to keep here: `KERF_PUBLISHED_CRDS` names the
//! folders that hold them, separated by colons, such as `pkg/apis/crds` of the Go modules `github.com/aws/karpenter`
//! v0.32.1 and `github.com/aws/karpenter-provider-aws` v1.0.8.

#![cfg_attr(not(feature = "published"), allow(dead_code, reason = "`cargo xtask test --long conversions` runs it"))]

use proptest::test_runner::TestRunner;
use regex_lite::Regex;
use serde_json::Value;

use super::super::{Version, v1beta1};
use super::{generate, laws};
use crate::kind::Kind;
use crate::schema::{Schema, Shape, int32, list_of, map_of, one_of, open_object, text};

#[cfg_attr(feature = "published", test)]
fn what_upstream_could_store_comes_back_and_no_field_of_it_is_dropped() {
    let folders =
        std::env::var("KERF_PUBLISHED_CRDS").expect("KERF_PUBLISHED_CRDS names the folders of upstream's CRDs");
    let mut n_schemas = 0;
    for folder in folders.split(':') {
        for entry in std::fs::read_dir(folder).unwrap() {
            let crd: Value = serde_norway::from_str(&std::fs::read_to_string(entry.unwrap().path()).unwrap()).unwrap();
            for version in crd["spec"]["versions"].as_array().unwrap() {
                n_schemas += usize::from(check_version(&crd, version));
            }
        }
    }
    assert!(n_schemas >= 3, "{n_schemas} versions of our kinds in {folders}");
}

/// Whether it is a version of ours.
fn check_version(crd: &Value, version: &Value) -> bool {
    let name = crd["spec"]["names"]["kind"].as_str().unwrap();
    let own = match version["name"].as_str().unwrap() {
        "v1" => Version::V1,
        v1beta1::VERSION => Version::V1beta1,
        _ => return false,
    };
    let Some(kind) = v1beta1::KINDS.iter().copied().find(|kind| kind.name() == name) else { return false };
    let schema: &'static Schema = Box::leak(Box::new(read(&version["schema"]["openAPIV3Schema"])));
    let api_version: &'static str = leak(&format!("{}/{}", kind.group(), version["name"].as_str().unwrap()));
    let checked = TestRunner::new(laws::config()).run(&generate::object(schema, api_version, kind.name()), |object| {
        let unknown = match own {
            Version::V1 => kind.unknown_fields(&object),
            Version::V1beta1 => v1beta1::unknown_fields(kind, &object),
        };
        proptest::prop_assert_eq!(unknown, Vec::<String>::new());
        laws::check_round_trip(kind, own, &object)
    });
    if let Err(broken) = checked {
        panic!("{api_version} {}: {broken}", Kind::name(kind));
    }
    true
}

/// As much of a published schema as it takes to draw from it.
fn read(json: &Value) -> Schema {
    let schema = match json["type"].as_str() {
        _ if json["x-kubernetes-int-or-string"] == true => crate::schema::int_or_text(),
        Some("object") if json["properties"].is_object() => {
            let properties = json["properties"].as_object().unwrap();
            let named = properties.iter().map(|(name, property)| (leak(name), read(property)));
            let required = json["required"].as_array().into_iter().flatten().map(|name| leak(name.as_str().unwrap()));
            let shape = Shape::Object { properties: named.collect(), required: required.collect() };
            Schema { shape, ..open_object() }
        }
        Some("object") if json["additionalProperties"].is_object() => map_of(read(&json["additionalProperties"])),
        Some("object") => open_object(),
        Some("array") => list_of(read(&json["items"])),
        Some("integer") => Schema { minimum: json["minimum"].as_i64(), maximum: json["maximum"].as_i64(), ..int32() },
        Some("boolean") => crate::schema::boolean(),
        Some("string") if json["enum"].is_array() => {
            let words = json["enum"].as_array().unwrap().iter().map(|word| leak(word.as_str().unwrap()));
            one_of(words.collect::<Vec<_>>().leak())
        }
        Some("string") => text(),
        other => panic!("a published schema has the type {other:?}"),
    };
    let pattern = json["pattern"].as_str().filter(|_| matches!(schema.shape, Shape::Text));
    Schema {
        pattern: pattern.map(|pattern| Regex::new(pattern).unwrap()),
        format: json["format"].as_str().filter(|format| *format == "date-time").map(leak),
        ..schema
    }
}

fn leak(text: &str) -> &'static str {
    text.to_owned().leak()
}
