//! What holds for every object, drawn from our own schemas.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{
    ALIAS_VERSION, EXPIRY_OF_POOL, EXPIRY_REPLACES_FIRST, LOST_OF_V1, LOST_OF_V1BETA1, UBUNTU, Version, convert,
    v1beta1,
};
use super::{annotation, generate, plain};
use crate::kind::Kind;
use crate::labels::{KUBELET_CONVERSION, NODE_CLASS_REFERENCE};
use crate::schema;

/// Enough to find what is rare, little enough for every day; `PROPTEST_CASES` says otherwise.
pub(super) fn config() -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 150;
    }
    config
}

fn of_v1beta1() -> BoxedStrategy<(Kind, Value)> {
    let kinds = [
        (Kind::NodePool, super::POOL_V1BETA1),
        (Kind::NodeClaim, super::POOL_V1BETA1),
        (Kind::Ec2NodeClass, super::CLASS_V1BETA1),
    ];
    drawn(kinds, |kind| v1beta1::schema(kind).unwrap())
}

fn of_v1() -> BoxedStrategy<(Kind, Value)> {
    let kinds =
        [(Kind::NodePool, super::POOL_V1), (Kind::NodeClaim, super::POOL_V1), (Kind::Ec2NodeClass, super::CLASS_V1)];
    drawn(kinds, Kind::schema)
}

fn drawn(
    kinds: [(Kind, &'static str); 3],
    schema: fn(Kind) -> &'static schema::Schema,
) -> BoxedStrategy<(Kind, Value)> {
    let of = |(kind, api_version): (Kind, &'static str)| {
        generate::object(schema(kind), api_version, kind.name()).prop_map(move |object| (kind, object)).boxed()
    };
    let [pools, claims, classes] = kinds.map(of);
    prop_oneof![pools, claims, classes].boxed()
}

/// As an API server has it that reads the object.
fn complete(kind: Kind, version: Version, object: &Value) -> Value {
    let mut object = object.clone();
    version.complete(kind, &mut object);
    object
}

fn api_version(kind: Kind, version: Version) -> String {
    match version {
        Version::V1 => kind.api_version(),
        Version::V1beta1 => format!("{}/{}", kind.group(), v1beta1::VERSION),
    }
}

pub(super) fn check_round_trip(kind: Kind, own: Version, object: &Value) -> Result<(), TestCaseError> {
    let (own_name, other_name) = (api_version(kind, own), api_version(kind, own.other()));
    let object = complete(kind, own, object);
    let there = convert(&object, &other_name).unwrap();
    prop_assert_eq!(&complete(kind, own.other(), &there), &there, "an API server would change what came out");
    prop_assert_eq!(&there["apiVersion"], &json!(other_name));
    let back = convert(&there, &own_name).unwrap();
    // A pinned version that upstream kept is kept our way as well from then on.
    let is_pinned =
        kind == Kind::Ec2NodeClass && own == Version::V1beta1 && !annotation(&object, ALIAS_VERSION).is_null();
    let sides = if is_pinned { [plain(back.clone()), plain(object)] } else { [back.clone(), object] };
    prop_assert_eq!(&sides[0], &sides[1], "by way of {}", there);

    // Once more, now that the object has been on the other side: what that keeps is stable as well.
    prop_assert_eq!(&convert(&back, &other_name).unwrap(), &there);
    Ok(())
}

fn check_metadata(before: &Value, after: &Value) -> Result<(), TestCaseError> {
    const OURS: &[&str] = &[
        LOST_OF_V1,
        LOST_OF_V1BETA1,
        EXPIRY_OF_POOL,
        EXPIRY_REPLACES_FIRST,
        UBUNTU,
        ALIAS_VERSION,
        KUBELET_CONVERSION,
        NODE_CLASS_REFERENCE,
    ];
    let without_ours = |object: &Value| {
        let mut metadata = object["metadata"].clone();
        let annotations = metadata.as_object_mut().unwrap().remove("annotations").unwrap_or_else(|| json!({}));
        let mut annotations = annotations.as_object().unwrap().clone();
        annotations.retain(|key, _| !OURS.contains(&key.as_str()));
        (metadata, annotations)
    };
    prop_assert_eq!(without_ours(before), without_ours(after));
    Ok(())
}

/// As every API server keeps it: a map of annotations is not empty and holds text.
fn has_sound_metadata(object: &Value) -> bool {
    let is_sound = |annotations: &Value| {
        annotations.as_object().is_some_and(|map| !map.is_empty() && map.values().all(Value::is_string))
    };
    object["metadata"].is_object() && object.pointer("/metadata/annotations").is_none_or(is_sound)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_is_written_in_v1beta1_is_what_is_read_in_v1beta1((kind, object) in of_v1beta1()) {
        check_round_trip(kind, Version::V1beta1, &object)?;
    }

    #[test]
    fn what_is_written_in_v1_is_what_is_read_in_v1((kind, object) in of_v1()) {
        check_round_trip(kind, Version::V1, &object)?;
    }

    /// Annotations that speak of the other side included: a pool that came from v1beta1, read there by someone and written
    /// back, is the stored one.
    #[test]
    fn an_object_that_came_from_the_other_version_makes_the_round_as_well((kind, object) in of_v1beta1(), (_, other) in of_v1()) {
        let stored = convert(&object, &api_version(kind, Version::V1)).unwrap();
        check_round_trip(kind, Version::V1, &stored)?;
        let kind = Kind::of(&other).unwrap();
        let read = convert(&other, &api_version(kind, Version::V1beta1)).unwrap();
        check_round_trip(kind, Version::V1beta1, &read)?;
    }

    #[test]
    fn of_metadata_nothing_changes_but_our_annotations((kind, object) in of_v1beta1(), (other_kind, other) in of_v1()) {
        check_metadata(&object, &convert(&object, &api_version(kind, Version::V1)).unwrap())?;
        check_metadata(&other, &convert(&other, &api_version(other_kind, Version::V1beta1)).unwrap())?;
    }

    #[test]
    fn what_v1beta1_accepts_v1_accepts((kind, object) in of_v1beta1()) {
        let object = complete(kind, Version::V1beta1, &object);
        if v1beta1::check(kind, &object, None).is_empty() {
            let current = convert(&object, &kind.api_version()).unwrap();
            let problems = kind.check(&current, None);
            // Conditions are text in v1beta1. Other amounts than the commonest are not described there.
            let is_ours = |path: &str| path.starts_with("spec") && !path.starts_with("spec.limits");
            prop_assert!(!problems.iter().any(|problem| is_ours(&problem.path)), "{problems:?} of {current}");
        }
    }

    /// Damage to the metadata aside, even broken objects come back as they were.
    #[test]
    fn damaged_objects_are_converted_or_refused_and_never_a_panic(
        object in generate::damaged(of_v1beta1().prop_map(|(_, object)| object).boxed()),
        other in generate::damaged(of_v1().prop_map(|(_, object)| object).boxed()),
    ) {
        for object in [object, other] {
            for api_version in [super::POOL_V1, super::POOL_V1BETA1, super::CLASS_V1, super::CLASS_V1BETA1, "", "v1"] {
                if let Ok(there) = convert(&object, api_version) {
                    convert(&there, object["apiVersion"].as_str().unwrap()).unwrap();
                }
            }
            let (kind, own) = match (v1beta1::kind_of(&object), Kind::of(&object)) {
                (Some(kind), _) => (kind, Version::V1beta1),
                (None, Some(kind)) => (kind, Version::V1),
                (None, None) => continue,
            };
            if has_sound_metadata(&object) {
                let there = convert(&object, &api_version(kind, own.other())).unwrap();
                let back = convert(&there, &api_version(kind, own)).unwrap();
                prop_assert_eq!(plain(back), plain(complete(kind, own, &object)), "by way of {}", there);
            }
        }
    }

    #[test]
    fn anything_at_all_is_converted_or_refused_and_never_a_panic(value in generate::anything(), lost in generate::anything()) {
        for api_version in [super::POOL_V1, super::CLASS_V1BETA1] {
            let _ = convert(&value, api_version);
        }
        for (mut object, key) in [(super::pool(), LOST_OF_V1), (super::pool_v1(), LOST_OF_V1BETA1)] {
            object["metadata"]["annotations"][key] = lost.to_string().into();
            let api_version = if key == LOST_OF_V1 { super::POOL_V1 } else { super::POOL_V1BETA1 };
            let converted = convert(&object, api_version).unwrap();
            prop_assert_eq!(annotation(&converted, key), &Value::Null);
        }
    }
}
