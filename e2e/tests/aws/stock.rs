//! Offerings that run dry.

use std::collections::BTreeSet;

use kerf_e2e::aws::Heard;

use crate::Test;
use crate::manifests::{deployment, node_class, node_pool};
use crate::stage::{CLUSTER, NODE_POOLS, Needs, Stage, is_true, text};

pub(crate) const TESTS: &[Test] = &[Test {
    name: "when_the_first_twenty_offerings_run_dry_others_are_taken_and_on_demand_when_spot_is_dry",
    needs: Needs::Embedded,
    body: dry,
}];

const N_NODES: usize = 12;
/// Claims for each node that came.
const CLAIMS_PER_NODE_MAX: f64 = 1.2;

fn dry(stage: &mut Stage) {
    stage.start_operator();
    stage.apply(&[node_class(CLUSTER), node_pool("default", &["spot", "on-demand"])]);
    stage.wait_for("the pool to be ready", || is_true(&stage.read(&format!("{NODE_POOLS}/default")), "Ready"));

    // What is asked for first while everything is there.
    stage.apply(&[deployment("first", "default", 1, true)]);
    stage.wait_until_running("first", 1);
    let first = offerings(stage.calls("CreateFleet").last().unwrap());
    assert!(first.len() > 20, "{} offerings", first.len());
    let gone: Vec<_> =
        first.iter().take(20).map(|(name, zone)| ("spot", name.as_str(), zone.as_str(), Some(0))).collect();
    stage.emulator.stock(&gone).unwrap();
    launched(stage, "second", |stage| {
        let dry: BTreeSet<(String, String)> = first.iter().take(20).cloned().collect();
        let of = |machine: &kerf_e2e::aws::account::Machine| (machine.instance_type.clone(), machine.zone.clone());
        let fresh =
            stage.machines().into_iter().filter(|machine| machine.is_spot && dry.contains(&of(machine))).count();
        assert!(fresh <= 1, "only the very first may be of an offering that ran dry later: {fresh}");
    });

    stage.emulator.stock(&[("spot", "*", "*", Some(0))]).unwrap();
    launched(stage, "third", |stage| {
        let n_on_demand = stage.machines().iter().filter(|machine| !machine.is_spot).count();
        assert!(n_on_demand >= N_NODES, "{n_on_demand} machines on demand");
    });
    stage.leave_nothing();
}

/// Brings a wave of pods, each with a node of its own, and counts the claims that they took.
fn launched(stage: &Stage, wave: &str, check: impl Fn(&Stage)) {
    let created = "karpenter_nodeclaims_created_total";
    let (before, n_machines) = (stage.operator().metric(created, &[]), stage.machines().len());
    stage.apply(&[deployment(wave, "default", N_NODES, true)]);
    stage.wait_until_running(wave, N_NODES);
    let n_claims = stage.operator().metric(created, &[]) - before;
    let n_nodes = stage.machines().len() - n_machines;
    assert!(n_claims >= n_nodes as f64, "{n_claims} claims for {n_nodes} nodes: the counter does not count");
    let ratio = n_claims / n_nodes as f64;
    assert!(ratio < CLAIMS_PER_NODE_MAX, "{n_claims} claims for {n_nodes} nodes: {ratio}");
    check(stage);
}

/// Types and zones of a fleet, the cheapest first, as its overrides list them.
fn offerings(fleet: &Heard) -> Vec<(String, String)> {
    let parameters = fleet.parameters.as_object().unwrap();
    let mut found: Vec<(f64, String, String)> = parameters
        .iter()
        .filter_map(|(key, value)| {
            let over = key.strip_suffix(".InstanceType")?;
            let zone = parameters.get(&format!("{over}.AvailabilityZone"))?;
            let price = parameters.get(&format!("{over}.Priority"))?.as_str()?.parse().ok()?;
            Some((price, text(value), text(zone)))
        })
        .collect();
    found.sort_by(|one, other| one.0.total_cmp(&other.0).then_with(|| (&one.1, &one.2).cmp(&(&other.1, &other.2))));
    found.into_iter().map(|(_, name, zone)| (name, zone)).collect()
}
