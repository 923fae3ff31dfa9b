//! Drift as a statement on the claim, rehearsed on the embedded control plane under a virtual clock: who is asked, when, and what
//! becomes of the answer. What is done about it is rehearsed elsewhere.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

mod scripted;

use kerf_cloud::CloudError;
use kerf_controllers::Duty;
use kerf_controllers::disruption::Conditioning;
use kerf_simulation::Rehearsal;
use scripted::{CLAIMS, CLASS_HASH, CLASS_HASH_VERSION, ScriptedCloud, claim, condition, get_claim, rehearse};
use serde_json::json;

const POOL: &str = "/apis/karpenter.sh/v1/nodepools/default";
const CLASS: &str = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses/default";

fn duties() -> Vec<Box<dyn Duty>> {
    vec![Box::new(Conditioning::default())]
}

/// A pool, and a claim of it that has been launched.
fn stage() -> (Rehearsal, ScriptedCloud) {
    let (mut rehearsal, cloud) = rehearse(duties);
    rehearsal.create_value(&json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "default", "annotations": {"karpenter.sh/nodepool-hash": "1", "karpenter.sh/nodepool-hash-version": "v3"}},
        "spec": {
            "disruption": {"consolidateAfter": "Never"},
            "template": {"spec": {
                "requirements": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]}],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            }},
        },
    }));
    let mut claim = claim("c", &json!({}));
    claim["metadata"]["labels"] = json!({"karpenter.sh/nodepool": "default", "topology.kubernetes.io/zone": "zone-a"});
    claim["metadata"]["annotations"] =
        json!({"karpenter.sh/nodepool-hash": "1", "karpenter.sh/nodepool-hash-version": "v3"});
    rehearsal.create_value(&claim);
    (rehearsal, cloud)
}

fn launch(rehearsal: &mut Rehearsal) {
    let now = rehearsal.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let launched =
        json!({"type": "Launched", "status": "True", "reason": "Launched", "message": "", "lastTransitionTime": now});
    let status = json!({"status": {"providerID": "scripted://c", "conditions": [launched]}});
    rehearsal.patch(&format!("{CLAIMS}/c/status"), &status);
    rehearsal.settle();
}

fn drifted(rehearsal: &Rehearsal) -> String {
    condition(&get_claim(rehearsal, "c"), "Drifted")
}

#[test]
fn the_providers_reason_stands_on_the_claim_and_goes_when_it_no_longer_holds() {
    let (mut rehearsal, cloud) = stage();
    cloud.script().drifted = Some("AMIDrift".into());
    rehearsal.settle();
    assert_eq!((drifted(&rehearsal).as_str(), cloud.script().n_drift_questions), ("absent", 0), "nothing is launched");
    launch(&mut rehearsal);
    assert_eq!(drifted(&rehearsal), "True AMIDrift");
    let asked = cloud.script().n_drift_questions;
    rehearsal.run_for(60);
    assert_eq!(cloud.script().n_drift_questions, asked, "a word is good for a while");
    cloud.script().drifted = None;
    rehearsal.run_for(5 * 60);
    assert_eq!(drifted(&rehearsal), "absent");
}

#[test]
fn a_class_that_changes_is_asked_about_at_once() {
    let (mut rehearsal, cloud) = stage();
    launch(&mut rehearsal);
    assert_eq!(drifted(&rehearsal), "absent");
    cloud.script().drifted = Some("NodeClassDrift".into());
    rehearsal.patch(CLASS, &json!({"metadata": {"annotations": {"changed": "yes"}}}));
    rehearsal.settle();
    assert_eq!(drifted(&rehearsal), "True NodeClassDrift");
}

#[test]
fn a_class_that_hashes_otherwise_than_its_claim_has_drifted_it_without_a_question() {
    let (mut rehearsal, cloud) = stage();
    let says = |hash: &str, version: &str| json!({"metadata": {"annotations": {CLASS_HASH: hash, CLASS_HASH_VERSION: version}}});
    rehearsal.patch(CLASS, &says("1", "v6"));
    rehearsal.patch(&format!("{CLAIMS}/c"), &says("1", "v6"));
    cloud.script().drifted = Some("AMIDrift".into());
    launch(&mut rehearsal);
    assert_eq!(drifted(&rehearsal), "True AMIDrift");
    let asked = cloud.script().n_drift_questions;
    rehearsal.patch(CLASS, &says("2", "v6"));
    rehearsal.settle();
    assert_eq!((drifted(&rehearsal).as_str(), cloud.script().n_drift_questions), ("True NodeClassDrift", asked));
    rehearsal.patch(CLASS, &says("2", "v7"));
    rehearsal.settle();
    assert_eq!(drifted(&rehearsal), "True AMIDrift", "hashed in another way, nothing can be compared");
}

#[test]
fn what_the_objects_tell_comes_before_the_providers_word() {
    let (mut rehearsal, cloud) = stage();
    cloud.script().drifted = Some("AMIDrift".into());
    launch(&mut rehearsal);
    rehearsal.patch(POOL, &json!({"metadata": {"annotations": {"karpenter.sh/nodepool-hash": "2"}}}));
    rehearsal.settle();
    assert_eq!(drifted(&rehearsal), "True NodePoolDrifted");
    rehearsal.patch(POOL, &json!({"metadata": {"annotations": {"karpenter.sh/nodepool-hash": "1"}}}));
    rehearsal.settle();
    assert_eq!(drifted(&rehearsal), "True AMIDrift");
}

#[test]
fn a_provider_that_cannot_say_changes_nothing_and_is_asked_again() {
    let (mut rehearsal, cloud) = stage();
    cloud.script().drifted = Some("AMIDrift".into());
    launch(&mut rehearsal);
    cloud.script().drift_failure = Some(CloudError::Other { message: "no answer".into() });
    rehearsal.run_for(6 * 60);
    assert_eq!(drifted(&rehearsal), "True AMIDrift");
    let asked = cloud.script().n_drift_questions;
    assert!((3..100).contains(&asked), "{asked} questions");
    let mut script = cloud.script();
    (script.drift_failure, script.drifted) = (None, None);
    drop(script);
    rehearsal.run_for(60);
    assert_eq!(drifted(&rehearsal), "absent");
}

#[test]
fn a_machine_that_is_gone_has_not_drifted() {
    let (mut rehearsal, cloud) = stage();
    cloud.script().drift_failure = Some(CloudError::NotFound { what: "scripted://c".into() });
    launch(&mut rehearsal);
    assert_eq!(drifted(&rehearsal), "absent");
    rehearsal.run_for(60);
    assert_eq!(cloud.script().n_drift_questions, 1);
}
