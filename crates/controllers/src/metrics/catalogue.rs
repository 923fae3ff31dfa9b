//! Every family in one list, for the documentation and for whoever compares it with upstream's.

use super::families::{self, NODES_ALLOCATABLE, NODES_CURRENT_LIFETIME_SECONDS};
use super::page::describe;
use super::{Family, Shape};
use crate::gauges::nodes::extra_labels;
use crate::status::families_of_kinds;
use kerf_cloud::NodeClassKind;
use kerf_model::Text;
use std::fmt::Write as _;

/// A family as it is on the page.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub name: String,
    pub shape: Shape,
    pub labels: Vec<String>,
    pub help: &'static str,
}

/// All families of an operator whose provider declares these labels well known and serves these node classes.
pub fn rows(well_known: &[Text], class_kinds: &[NodeClassKind]) -> Vec<Row> {
    let of_nodes = extra_labels(well_known.iter());
    let fixed = families::ALL.iter().map(|family| {
        let mut labels: Vec<String> = family.labels.iter().map(|label| (*label).to_owned()).collect();
        if has_labels_of_nodes(family) {
            labels.extend(of_nodes.iter().map(|(label, _)| label.clone()));
        }
        Row { name: family.name.to_owned(), shape: family.shape, labels, help: family.help }
    });
    let of_kinds = families_of_kinds(class_kinds).into_iter().map(|family| Row {
        name: family.name,
        shape: family.shape,
        labels: family.labels,
        help: family.help,
    });
    fixed.chain(of_kinds).collect()
}

fn has_labels_of_nodes(family: &Family) -> bool {
    *family == NODES_CURRENT_LIFETIME_SECONDS || family.labels == NODES_ALLOCATABLE.labels
}

/// The body of `docs/metrics.md`.
pub fn document() -> String {
    let mut text = String::from(HEAD);
    let line = |text: &mut String, name: &str, shape: Shape, labels: &str, help: &str| {
        let shape = match shape {
            Shape::Histogram(bounds) if bounds == families::DURATIONS => "histogram D".to_owned(),
            other => describe(other),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{name}` | {shape} | {labels} | {help} |");
    };
    for family in families::ALL {
        let more = if has_labels_of_nodes(family) { ", N" } else { "" };
        line(&mut text, family.name, family.shape, &format!("{}{more}", family.labels.join(", ")), family.help);
    }
    text.push_str(OF_KINDS);
    for family in families_of_kinds(&[]).into_iter().filter(|family| family.name.starts_with("operator_nodepool_")) {
        let name = family.name.replacen("nodepool", "K", 1);
        line(&mut text, &name, family.shape, &family.labels.join(", "), family.help);
    }
    text.push_str(TAIL);
    text
}

const HEAD: &str = "# Metrics

The page is `/metrics` on the metrics port, in Prometheus' text format 0.0.4. Names, labels, types, buckets and quantiles are those of
Karpenter v1.15.0; a family whose feature is off, or yet to come, is on the page without series. This file is made from the code:
`KERF_WRITE_DOCS=1 cargo test -p kerf-controllers --test metrics`.

D: the default buckets for durations, .005 to 600 s. N: one more label for each well-known label of the provider's nodes, named by the end of
its key (`topology.kubernetes.io/zone` is `zone`). A summary tells its quantiles over the latest 1,000 observations.

| name | type | labels | what |
|---|---|---|---|
";

const OF_KINDS: &str = "
## Status conditions

K is `nodeclaim`, `nodepool`, `node`, `capacitybuffer`, or the provider's node class in lower case (`ec2nodeclass`, `kwoknodeclass`). Series of
NodeClaims and Nodes carry the labels `karpenter_sh_nodepool` and one for the name of the node class (`karpenter_k8s_aws_ec2nodeclass`); those of
Nodes also `karpenter_sh_initialized`.

| name | type | labels | what |
|---|---|---|---|
";

const TAIL: &str = "
The older families of the same names without `K_` (`operator_status_condition_count` and so on) have NodeClaims, NodePools and CapacityBuffers
together, with the labels `group` and `kind`.

## What differs

- `go_gc_heap_live_bytes` is resident anonymous memory: there is no garbage collector to ask.
- `goversion` of `karpenter_build_info` names the Rust release.
- `controller_runtime_*` counts errands (requests, cloud calls, plans) instead of reconciles. There are no work queues of upstream's kind, so there
  is no `workqueue_*`; Go's own collectors have nothing to say.
- `karpenter_cloudprovider_*` is there with every provider, kwok included.
";
