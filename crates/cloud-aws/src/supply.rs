//! What can be bought, and what nodes made of it are told.

use std::collections::BTreeMap;

/// The kubelet settings of a class that depend on the instance type, as amounts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResolvedKubelet {
    pub max_pods: u32,
    pub kube_reserved: BTreeMap<String, String>,
    pub system_reserved: BTreeMap<String, String>,
}
