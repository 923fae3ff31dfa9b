//! NodeOverlays on the embedded control plane: which are in force.

use kerf_controllers::overlays::Overlays;
use kerf_simulation::{Rehearsal, Setup};
use serde_json::{Value, json};

fn rehearsal() -> Rehearsal {
    let mut setup = Setup::default().with_duties(|| vec![Box::new(Overlays::default())]);
    setup.options.gates.node_overlay = true;
    setup.options.mirror.gates.node_overlay = true;
    let mut rehearsal = Rehearsal::new(setup);
    rehearsal.create("{apiVersion: karpenter.kwok.sh/v1alpha1, kind: KWOKNodeClass, metadata: {name: default}}");
    rehearsal.create_value(&json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {"template": {"spec": {
            "requirements": [],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        }}},
    }));
    rehearsal
}

fn overlay(name: &str, weight: i64, values: &[&str]) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": name},
        "spec": {
            "weight": weight, "price": "0.5",
            "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": values}],
        },
    })
}

/// The status of `Ready`, and the reason of the condition behind it.
fn said(rehearsal: &Rehearsal, name: &str) -> (Value, Value) {
    let overlay = rehearsal.get(&format!("/apis/karpenter.sh/v1alpha1/nodeoverlays/{name}")).unwrap_or_default();
    let conditions = overlay["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let find = |kind: &str| conditions.iter().find(|it| it["type"] == kind).cloned().unwrap_or_default();
    (find("Ready")["status"].clone(), find("ValidationSucceeded")["reason"].clone())
}

#[test]
fn overlays_that_touch_the_same_price_with_the_same_weight_conflict() {
    let mut rehearsal = rehearsal();
    rehearsal.create_value(&overlay("first", 5, &["c-1x-amd64-linux"]));
    rehearsal.create_value(&overlay("second", 5, &["c-1x-amd64-linux"]));
    rehearsal.create_value(&overlay("heavier", 6, &["c-1x-amd64-linux"]));
    rehearsal.create_value(&overlay("elsewhere", 5, &["c-2x-amd64-linux"]));
    let in_force = (json!("True"), json!("ValidationSucceeded"));
    rehearsal.run_until("the later one is refused", 60, |rehearsal| {
        said(rehearsal, "first") == (json!("False"), json!("Conflict"))
    });
    for name in ["second", "heavier", "elsewhere"] {
        rehearsal.run_until("the others are in force", 60, |rehearsal| said(rehearsal, name) == in_force);
    }
    let n_calls = rehearsal.n_calls;
    rehearsal.run_for(24 * 3_600);
    assert_eq!(rehearsal.n_calls, n_calls, "what is said already is not written again");
    rehearsal.delete("/apis/karpenter.sh/v1alpha1/nodeoverlays/second");
    rehearsal.run_until("nothing is in its way", 60, |rehearsal| said(rehearsal, "first") == in_force);
}

#[test]
fn an_overlay_that_makes_no_sense_says_why() {
    let mut rehearsal = rehearsal();
    rehearsal.create_value(&overlay("odd", 1, &["not a value!"]));
    rehearsal.run_until("it is refused", 60, |rehearsal| {
        said(rehearsal, "odd") == (json!("False"), json!("RuntimeValidation"))
    });
}
