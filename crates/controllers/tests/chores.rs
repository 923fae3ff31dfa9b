//! What the provider does now and then, what it asks of the operator, and what it is told: on the embedded control plane.

#![allow(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

mod scripted;

use kerf_cloud::{Chore, ChoreAsk, ChoreReport, CloudError, Instance, Sample};
use kerf_controllers::chores::Chores;
use kerf_controllers::lifecycle::Lifecycle;
use kerf_controllers::metrics::Metrics;
use kerf_controllers::resource::WATCHED;
use kerf_controllers::standstill::Check;
use kerf_controllers::tagging::Tagging;
use kerf_controllers::{CloudCall, Duty, Errand, Operator, Wake};
use kerf_mirror::{Kind, ObjectKey};
use kerf_model::{ClaimName, PoolName, Text, UnixMillis};
use kerf_simulation::Setup;
use scripted::{CLAIMS, ScriptedCloud, counts, get_claim, join, make_ready, rehearse, rehearse_with};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn duties() -> Vec<Box<dyn Duty>> {
    vec![Box::new(Lifecycle::default()), Box::new(Tagging::default()), Box::new(Chores::default())]
}

fn chore(name: &'static str, seconds: u64, at_start: bool) -> Chore {
    Chore { name, every: Duration::from_secs(seconds), at_start, collects: false }
}

fn report(asks: Vec<ChoreAsk>) -> Result<ChoreReport, CloudError> {
    Ok(ChoreReport { asks, ..ChoreReport::default() })
}

fn end(claim: &str, by_force: bool) -> ChoreAsk {
    let (reason, message) = ("InstanceUnhealthy".into(), "a check has failed".into());
    ChoreAsk::EndClaim { claim: ClaimName(claim.into()), reason, message, by_force }
}

#[test]
fn chores_run_at_start_or_after_their_time_and_then_round_and_round() {
    let (mut scene, cloud) = rehearse(duties);
    cloud.script().chores = vec![chore("slow", 60, false), chore("now", 30, true)];
    scene.restart();
    scene.settle();
    let names = || cloud.script().runs.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    assert_eq!(names(), ["now"]);
    scene.run_for(61);
    assert_eq!(names(), ["now", "now", "now", "slow"]);
    cloud
        .script()
        .reports
        .push_back(Ok(ChoreReport { again_after: Some(Duration::from_secs(600)), ..ChoreReport::default() }));
    scene.run_for(300);
    let n_now = names().iter().filter(|name| **name == "now").count();
    assert_eq!(n_now, 4, "a report may ask for another span");
}

#[test]
fn a_chore_that_failed_is_tried_again_and_one_that_there_is_not_is_not() {
    let (mut scene, cloud) = rehearse(duties);
    cloud.script().chores = vec![chore("a", 3_600, true)];
    let other = || CloudError::Other { message: "oh".into() };
    cloud.script().reports.extend([Err(other()), Err(other()), Err(CloudError::Unsupported { what: "a".into() })]);
    scene.restart();
    scene.run_for(7_200);
    assert_eq!(cloud.script().runs.len(), 3);
}

#[test]
fn a_chore_sees_what_the_cluster_uses() {
    let (mut scene, cloud) = rehearse(duties);
    make_ready(&mut scene, "a", &json!({}));
    cloud.script().chores = vec![chore("look", 60, true)];
    scene.restart();
    scene.settle();
    let script = cloud.script();
    let (_, in_use) = &script.runs[0];
    assert_eq!(in_use.classes.len(), 1);
    let [claim] = in_use.claims.as_slice() else { panic!("{in_use:?}") };
    assert_eq!((&*claim.name.0, claim.is_deleting), ("a", false));
    assert!(claim.provider_id.as_deref().unwrap().starts_with("scripted://a-"));
    assert_eq!(&*claim.labels["topology.kubernetes.io/zone"], "zone-a");
}

#[test]
fn a_claim_ends_gracefully_or_by_force_and_once() {
    let (mut scene, cloud) = rehearse(duties);
    for name in ["gentle", "hard"] {
        make_ready(&mut scene, name, &json!({}));
    }
    cloud.script().chores = vec![chore("look", 60, true)];
    for _ in 0..2 {
        cloud.script().reports.push_back(report(vec![end("gentle", false), end("hard", true), end("nobody", true)]));
    }
    scene.restart();
    let began = scene.now();
    scene.run_for(90);
    let stamp = "karpenter.sh/nodeclaim-termination-timestamp";
    let (gentle, hard) = (get_claim(&scene, "gentle"), get_claim(&scene, "hard"));
    for claim in [&gentle, &hard] {
        assert!(claim["metadata"]["deletionTimestamp"].is_string(), "its Node holds it, and it goes");
    }
    assert_eq!(gentle["metadata"]["annotations"][stamp], json!(null));
    assert_eq!(hard["metadata"]["annotations"][stamp], began.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    assert!(counts(
        &scene,
        "karpenter_nodeclaims_disrupted_total{reason=\"instance_unhealthy\",nodepool=\"\",capacity_type=\"on-demand\",\
         consolidation_policy=\"\",termination_mode=\"graceful\"} 2"
    ));
    assert!(scene.events("InstanceUnhealthy").iter().all(|words| words == "a check has failed"));
}

#[test]
fn labels_that_are_no_longer_true_change_on_claim_and_node() {
    let (mut scene, cloud) = rehearse(duties);
    make_ready(&mut scene, "a", &json!({}));
    let labels: BTreeMap<Text, Option<Text>> = BTreeMap::from([
        ("karpenter.sh/capacity-type".into(), Some("reserved".into())),
        ("topology.kubernetes.io/zone".into(), None),
    ]);
    cloud.script().chores = vec![chore("look", 60, true)];
    cloud.script().reports.push_back(report(vec![ChoreAsk::Relabel { claim: ClaimName("a".into()), labels }]));
    scene.restart();
    scene.settle();
    for object in [get_claim(&scene, "a"), scene.get("/api/v1/nodes/node-of-a").unwrap()] {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["karpenter.sh/capacity-type"], "reserved", "{}", object["kind"]);
        assert!(labels.get("topology.kubernetes.io/zone").is_none(), "{}", object["kind"]);
    }
}

#[test]
fn pools_are_told_and_figures_are_on_the_page() {
    let (mut scene, cloud) = rehearse(duties);
    scene.create(
        "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: default}, spec: {template: {spec: {requirements: [], \
         nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}}}}",
    );
    cloud.script().chores = vec![chore("look", 60, true)];
    let tell = |zone: &str| ChoreAsk::TellPool {
        pool: PoolName("default".into()),
        is_warning: true,
        reason: "ZonalShiftActive".into(),
        message: format!("zone {zone}").into(),
    };
    cloud.script().reports.push_back(Ok(ChoreReport {
        asks: vec![tell("a"), tell("b"), tell("a")],
        samples: vec![Sample {
            family: "karpenter_cloudprovider_instance_type_cpu_cores",
            labels: vec!["m5.large".into()],
            value: 2.0,
        }],
        again_after: None,
    }));
    scene.restart();
    scene.settle();
    let mut told = scene.events("ZonalShiftActive");
    told.sort();
    assert_eq!(told, ["zone a", "zone b"]);
    assert!(counts(&scene, "karpenter_cloudprovider_instance_type_cpu_cores{instance_type=\"m5.large\"} 2"));
}

#[test]
fn an_instance_is_labelled_once_its_node_has_a_name_and_the_claim_says_so() {
    let (mut scene, cloud) = rehearse(duties);
    cloud.script().marks = BTreeMap::from([("karpenter.k8s.aws/tagged".into(), "true".into())]);
    scene.create_value(&scripted::claim("a", &json!({})));
    scene.run_for(10);
    assert!(cloud.script().labelled.is_empty(), "it has no node yet");
    cloud.script().failures.push_back(CloudError::Other { message: "later".into() });
    join(&mut scene, "a");
    scene.run_until("the mark", 60, |scene| {
        get_claim(scene, "a")["metadata"]["annotations"]["karpenter.k8s.aws/tagged"] == "true"
    });
    let labelled = cloud.script().labelled.clone();
    assert_eq!(labelled.len(), 2, "a failure was tried again");
    assert_eq!(labelled[0].node_name.as_deref(), Some("node-of-a"));
    scene.run_for(600);
    assert_eq!(cloud.script().labelled.len(), 2);
    scene.patch(&format!("{CLAIMS}/a"), &json!({"metadata": {"labels": {"x": "y"}}}));
    scene.run_for(60);
    assert_eq!(cloud.script().labelled.len(), 2, "once is enough");
}

#[test]
fn where_instances_are_not_labelled_nobody_asks_again() {
    let (mut scene, cloud) = rehearse(duties);
    make_ready(&mut scene, "a", &json!({}));
    make_ready(&mut scene, "b", &json!({}));
    scene.run_for(600);
    assert!(cloud.script().labelled.is_empty());
    assert_eq!(get_claim(&scene, "a")["metadata"]["annotations"]["karpenter.k8s.aws/tagged"], json!(null));
}

#[test]
fn the_provider_learns_what_a_registered_node_has() {
    let (mut scene, cloud) = rehearse(duties);
    make_ready(&mut scene, "a", &json!({}));
    scene.run_for(60);
    assert_eq!(cloud.script().seen, [("large".to_owned(), "image-1".to_owned(), 4)]);
}

fn end_machines(names: &[String]) -> Result<ChoreReport, CloudError> {
    let ask = |name: &String| ChoreAsk::EndMachine { provider_id: machine(name), is_ending: false };
    report(names.iter().map(ask).collect())
}

fn machine(name: &str) -> Text {
    format!("scripted://{name}").into()
}

#[test]
fn a_machine_that_no_claim_knows_ends_after_its_node_has_gone() {
    let (mut scene, cloud) = rehearse(duties);
    let names = ["lost".to_owned()];
    let instance = Instance { provider_id: machine("lost"), ..Instance::default() };
    cloud.script().instances.insert(machine("lost"), instance);
    scene.create_value(&json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "finalizers": ["example.com/drains"]},
        "spec": {"providerID": "scripted://lost"},
    }));
    cloud.script().chores = vec![Chore { collects: true, ..chore("collect", 60, true) }];
    cloud.script().reports.extend((0..20).map(|_| end_machines(&names)));
    scene.restart();
    scene.run_for(150);
    let node = scene.get("/api/v1/nodes/n").unwrap();
    assert!(node["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(cloud.script().n_terminations, 0, "who is on it still leaves");
    scene.patch("/api/v1/nodes/n", &json!({"metadata": {"finalizers": null}}));
    scene.run_for(61);
    assert!(cloud.script().instances.is_empty());
}

#[test]
fn a_machine_that_no_claim_knows_ends_although_its_node_never_drains() {
    let (mut scene, cloud) = rehearse(duties);
    let instance = Instance { provider_id: machine("lost"), ..Instance::default() };
    cloud.script().instances.insert(machine("lost"), instance);
    scene.create_value(&json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "finalizers": ["example.com/drains"]},
        "spec": {"providerID": "scripted://lost"},
    }));
    cloud.script().chores = vec![Chore { collects: true, ..chore("collect", 60, true) }];
    cloud.script().reports.extend((0..20).map(|_| end_machines(&["lost".to_owned()])));
    scene.restart();
    scene.run_for(880);
    assert_eq!(cloud.script().n_terminations, 0);
    scene.run_for(120);
    assert!(cloud.script().instances.is_empty());
}

#[test]
fn what_is_no_collection_keeps_its_pace_while_collections_stand_still() {
    let mut setup = Setup::default().with_duties(duties);
    setup.options.pauses_disruption = true;
    let (mut scene, cloud) = rehearse_with(setup);
    cloud.script().chores = vec![chore("prices", 3_600, true)];
    scene.restart();
    scene.run_for(600);
    assert_eq!(cloud.script().runs.len(), 1);
}

#[test]
fn of_very_many_machines_none_ends_before_it_is_sure_that_they_are_this_clusters() {
    fn checking() -> Vec<Box<dyn Duty>> {
        let mut duties = duties();
        duties.push(Box::new(Check::default()));
        duties
    }
    let (mut scene, cloud) = rehearse(checking);
    let names: Vec<String> = (0..21).map(|n| format!("m{n}")).collect();
    for name in &names {
        let instance = Instance { provider_id: machine(name), ..Instance::default() };
        cloud.script().instances.insert(machine(name), instance);
    }
    cloud.script().chores = vec![Chore { collects: true, ..chore("collect", 60, true) }];
    cloud.script().reports.extend((0..100).map(|_| end_machines(&names)));
    scene.restart();
    scene.run_for(600);
    assert_eq!(cloud.script().n_terminations, 0);
    let why = scene.operator().standstills().into_iter().map(|(_, why)| why).next().unwrap();
    assert!(why.contains("21 of 21 nodes look unclaimed within 2 minutes, more than 20"), "{why}");
    assert!(why.contains("only 0 of 21 machines have a NodeClaim or a Node here"), "{why}");
    // Under another cluster's name, too, machines are bought.
    make_ready(&mut scene, "a", &json!({}));
    scene.run_for(400);
    assert_eq!(cloud.script().n_terminations, 0);
    for name in &names {
        let spec = json!({"providerID": machine(name)});
        scene.create_value(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}));
    }
    scene.run_for(400);
    let left: Vec<Text> = cloud.script().instances.keys().cloned().collect();
    assert!(left.len() == 1 && left[0].starts_with("scripted://a-"), "{left:?}");
}

#[test]
fn nothing_is_collected_while_a_claim_cannot_be_read() {
    let cloud = ScriptedCloud::default();
    cloud.script().chores = vec![Chore { collects: true, ..chore("collect", 60, true) }, chore("look", 60, true)];
    let options = Setup::default().options;
    let mut operator = Operator::with_duties(options, Arc::new(cloud), Arc::new(Metrics::default()), duties());
    let key = ObjectKey { kind: Kind::NodeClaim, class_kind: None, namespace: "".into(), name: "odd".into() };
    operator.wake(Wake::Unreadable {
        key: Some(key.clone()),
        what: key.to_string(),
        field: "spec.expireAfter".to_owned(),
        message: "it is no text".to_owned(),
    });
    let kinds = WATCHED.iter().map(|(kind, _)| *kind).chain([Kind::NodeClass]);
    kinds.for_each(|kind| operator.wake(Wake::Synced(kind)));
    let runs = |operator: &mut Operator, ms: i64| -> Vec<&'static str> {
        let errands = operator.work(UnixMillis(ms)).errands.into_iter();
        let names = errands.filter_map(|(_, errand)| match errand {
            Errand::Cloud(CloudCall::RunChore { name, .. }) => Some(name),
            _ => None,
        });
        names.collect()
    };
    assert_eq!(runs(&mut operator, 0), ["look"], "its machine is no orphan");
    assert_eq!(runs(&mut operator, 30_000), [] as [&str; 0]);
    // Somebody has put it right, or away.
    operator.wake(Wake::Gone(key, None));
    assert_eq!(runs(&mut operator, 60_000), ["collect"]);
}
