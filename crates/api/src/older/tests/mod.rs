//! Tables for each rule of each kind, and laws over objects drawn from the schemas.

mod claims;
mod classes;
mod edits;
mod generate;
mod laws;
mod pools;
mod published;
mod words;

use serde_json::{Value, json};

use super::{LOST_OF_V1, LOST_OF_V1BETA1, convert, v1beta1};
use crate::kind::Kind;

const POOL_V1BETA1: &str = "karpenter.sh/v1beta1";
const POOL_V1: &str = "karpenter.sh/v1";
const CLASS_V1BETA1: &str = "karpenter.k8s.aws/v1beta1";
const CLASS_V1: &str = "karpenter.k8s.aws/v1";

/// A pool of v1beta1 with what it must have.
fn pool() -> Value {
    json!({
        "apiVersion": POOL_V1BETA1, "kind": "NodePool", "metadata": {"name": "workers"},
        "spec": {"template": {"spec": {
            "requirements": [],
            "nodeClassRef": {"apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "name": "workers"},
        }}},
    })
}

fn pool_with(pointer: &str, value: Value) -> Value {
    with(pool(), pointer, value)
}

fn pool_v1() -> Value {
    let mut pool = json!({
        "apiVersion": POOL_V1, "kind": "NodePool", "metadata": {"name": "workers"},
        "spec": {"template": {"spec": {
            "requirements": [],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "workers"},
        }}},
    });
    Kind::NodePool.apply_defaults(&mut pool);
    pool
}

fn claim() -> Value {
    json!({
        "apiVersion": POOL_V1BETA1, "kind": "NodeClaim",
        "metadata": {"name": "workers-1", "creationTimestamp": "2024-05-01T00:00:00Z"},
        "spec": {"requirements": [], "nodeClassRef": {"name": "workers"}},
    })
}

fn class() -> Value {
    json!({
        "apiVersion": CLASS_V1BETA1, "kind": "EC2NodeClass", "metadata": {"name": "workers"},
        "spec": {
            "amiFamily": "AL2", "role": "nodes",
            "subnetSelectorTerms": [{"id": "subnet-1"}], "securityGroupSelectorTerms": [{"id": "sg-1"}],
        },
    })
}

fn class_with(pointer: &str, value: Value) -> Value {
    with(class(), pointer, value)
}

fn class_v1(terms: Value) -> Value {
    let mut class = with(class(), "/spec/amiSelectorTerms", terms);
    class["apiVersion"] = CLASS_V1.into();
    class["spec"].as_object_mut().unwrap().remove("amiFamily");
    Kind::Ec2NodeClass.apply_defaults(&mut class);
    class
}

/// The object with one field set; `null` takes it away.
fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let mut place = &mut object;
    for step in parent.split('/').skip(1) {
        place = &mut place[step.replace("~1", "/").as_str()];
    }
    let name = name.replace("~1", "/");
    if value.is_null() {
        place.as_object_mut().unwrap().remove(&name);
    } else {
        place[name.as_str()] = value;
    }
    object
}

fn to_v1(object: &Value) -> Value {
    let group = object["apiVersion"].as_str().unwrap().split('/').next().unwrap();
    convert(object, &format!("{group}/v1")).unwrap()
}

fn to_v1beta1(object: &Value) -> Value {
    let group = object["apiVersion"].as_str().unwrap().split('/').next().unwrap();
    convert(object, &format!("{group}/v1beta1")).unwrap()
}

fn defaulted(mut object: Value) -> Value {
    match (v1beta1::kind_of(&object), Kind::of(&object)) {
        (Some(kind), _) => v1beta1::apply_defaults(kind, &mut object),
        (None, kind) => kind.unwrap().apply_defaults(&mut object),
    }
    object
}

fn annotation<'a>(object: &'a Value, key: &str) -> &'a Value {
    &object["metadata"]["annotations"][key]
}

/// There and back gives the same, and the annotations that made it so are gone.
#[track_caller]
fn comes_back(object: Value) -> Value {
    let object = defaulted(object);
    let (there, back) = if object["apiVersion"].as_str().unwrap().ends_with("/v1") {
        let there = to_v1beta1(&object);
        let back = to_v1(&there);
        (there, back)
    } else {
        let there = to_v1(&object);
        let back = to_v1beta1(&there);
        (there, back)
    };
    assert_eq!(back, object);
    there
}

/// Without what conversion keeps for itself.
fn plain(mut object: Value) -> Value {
    for key in [LOST_OF_V1, LOST_OF_V1BETA1] {
        super::annotations::take(&mut object, key);
    }
    object
}
