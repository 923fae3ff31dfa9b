//! NodeOverlays on the embedded control plane: which are in force.

mod scene;

use kerf_controllers::overlays::Overlays;
use kerf_simulation::{Rehearsal, Setup};
use scene::{cluster, inflate, n_pods};
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
    let n_calls = rehearsal.n_calls();
    rehearsal.run_for(24 * 3_600);
    assert_eq!(rehearsal.n_calls(), n_calls, "what is said already is not written again");
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

#[test]
fn a_claim_says_which_of_price_and_capacity_an_overlay_decided() {
    let mut setup = Setup::default();
    setup.options.gates.node_overlay = true;
    setup.options.mirror.gates.node_overlay = true;
    let mut scene = cluster(setup, |_| {});
    scene.create_value(&inflate("plain", 1, |_| {}));
    scene.run_until("the pod runs", 60, |scene| n_pods(scene, "Running") == 1);
    let family = json!([{"key": "karpenter.kwok.sh/instance-family", "operator": "Exists"}]);
    let mut cheaper = overlay("cheaper", 1, &[]);
    cheaper["spec"] = json!({"priceAdjustment": "-10%", "requirements": family});
    scene.create_value(&cheaper);
    scene.run_until("it is in force", 60, |scene| said(scene, "cheaper").0 == "True");
    scene.create_value(&inflate("overlaid", 30, |_| {}));
    scene.run_until("all pods run", 120, |scene| n_pods(scene, "Running") == 31);
    let annotation = |claim: &Value, key: &str| claim["metadata"]["annotations"][key].clone();
    let mut said: Vec<(Value, Value)> = scene
        .claims()
        .iter()
        .map(|claim| {
            (
                annotation(claim, "karpenter.sh/price-overlay-applied"),
                annotation(claim, "karpenter.sh/capacity-overlay-applied"),
            )
        })
        .collect();
    said.sort_by_key(|it| it.0.to_string());
    said.dedup();
    assert_eq!(said, [(json!("true"), Value::Null), (Value::Null, Value::Null)], "before the overlay, and after");
}
