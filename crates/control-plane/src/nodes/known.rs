//! A node as the controllers know it. Kubelets, the scheduler, daemons and the keeper of volumes all look at every change of every node:
//! it is read once for all of them, and its labels, the largest part that they keep, are theirs together.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use serde::Deserialize;

use crate::store::Stored;

#[derive(Debug, Deserialize)]
#[serde(from = "Node")]
pub(crate) struct KnownNode {
    /// Not in the node's metadata.
    pub(crate) labels: Arc<BTreeMap<String, String>>,
    node: Node,
}

impl KnownNode {
    /// None when the object does not have the shape of a node.
    pub(crate) fn read(stored: &Stored) -> Option<Arc<Self>> {
        stored.shared()
    }
}

impl From<Node> for KnownNode {
    fn from(mut node: Node) -> Self {
        node.metadata.managed_fields = None;
        // Filled one by one, a tree is half empty; these are kept for long.
        let labels = node.metadata.labels.take().unwrap_or_default().into_iter().collect();
        Self { labels: Arc::new(labels), node }
    }
}

impl Deref for KnownNode {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}
