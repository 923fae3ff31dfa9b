//! Objects for tests of single decisions.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kerf_api::NodeClaim;

pub(crate) fn claim(name: &str) -> NodeClaim {
    NodeClaim { metadata: named(name), ..NodeClaim::default() }
}

pub(crate) fn node(name: &str) -> Node {
    Node { metadata: named(name), ..Node::default() }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), uid: Some(format!("uid-{name}")), ..ObjectMeta::default() }
}
