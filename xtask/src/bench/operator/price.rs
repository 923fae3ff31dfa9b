//! What the nodes of a cluster cost, by the label that the kwok provider puts on them.

use anyhow::{Context as _, Result, ensure};
use kerf_e2e::client::Client;
use serde_json::Value;

pub(crate) const LABEL: &str = "eks-node-viewer/instance-price";

/// How many nodes there are, and their dollars per hour.
pub(crate) fn of_nodes(client: &Client) -> Result<(usize, f64)> {
    let answer = client.get("/api/v1/nodes")?;
    ensure!(answer.is_success(), "nodes cannot be listed: {}", answer.message());
    let nodes = answer.body["items"].as_array().context("a list without items")?;
    let prices: Vec<f64> = nodes.iter().map(of_node).collect::<Result<_>>()?;
    // Not `sum`: that of nothing is minus zero, and is printed so.
    Ok((prices.len(), prices.iter().fold(0.0, |all, price| all + price)))
}

/// A node without a price would make the cluster look cheaper than it is: that is an error, not a zero.
fn of_node(node: &Value) -> Result<f64> {
    let name = node["metadata"]["name"].as_str().unwrap_or_default();
    let text =
        node["metadata"]["labels"][LABEL].as_str().with_context(|| format!("node {name} has no label {LABEL}"))?;
    text.parse().with_context(|| format!("node {name}: {LABEL} is {text:?}, not a number"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_price_is_read_and_its_absence_told() {
        let node = |labels| json!({"metadata": {"name": "n", "labels": labels}});
        assert_eq!(of_node(&node(json!({LABEL: "0.234360"}))).unwrap(), 0.23436);
        assert!(of_node(&node(json!({}))).unwrap_err().to_string().contains("n has no label"));
        assert!(of_node(&node(json!({LABEL: "dear"}))).unwrap_err().to_string().contains("dear"));
    }
}
