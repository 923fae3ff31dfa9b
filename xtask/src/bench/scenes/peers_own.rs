//! The pods of the peer's own scheduling benchmark, drawn from the same distributions by dice of our own: 400 made-up
//! types, one pool, no nodes, nothing that cannot be placed.

use super::pool;
use crate::bench::dice::Dice;
use crate::bench::scene::{Batch, Scene, requests};
use crate::bench::types;
use kerf_model::{
    Binder, Demand, LabelSelector, Labels, Namespaces, NodePolicy, PodTerm, PreferencePolicy, Quantity, Requirement,
    Requirements, Resources, Spread, WhenUnsatisfiable, labels, resources,
};
use std::collections::BTreeSet;

const CPU_MILLIS: [i64; 5] = [100, 250, 500, 1000, 1500];
const MEMORY_MEBIBYTES: [i64; 6] = [100, 256, 512, 1024, 2048, 4096];
const LABEL_VALUES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

type Draw = fn(&mut Dice) -> Demand;

/// A fifth each: plain, spread over zones, spread over hosts, together in a zone, apart on hosts; the rest plain.
pub(crate) fn diverse(name: &str, n_pods: usize) -> Scene {
    let mut scene = empty(name);
    let mut dice = Dice::new("diverse", "pods");
    let fifth = n_pods / 5;
    let kinds: [(&str, Draw); 5] = [
        ("plain", plain),
        ("zone-spread", |dice| spread(dice, labels::ZONE)),
        ("host-spread", |dice| spread(dice, labels::HOSTNAME)),
        ("zone-affinity", zone_affinity),
        ("host-apart", host_apart),
    ];
    for (kind, draw) in kinds {
        for i in 0..fifth {
            scene.pods.push(Batch::new(&format!("{kind}-{i}"), 1, draw(&mut dice)));
        }
    }
    for i in 5 * fifth..n_pods {
        scene.pods.push(Batch::new(&format!("rest-{i}"), 1, plain(&mut dice)));
    }
    scene
}

/// Pods of one size that prefer a zone, prefer a zone without their like (there are three zones for four thousand of
/// them), and prefer a host without their like.
pub(crate) fn preferences(name: &str, policy: PreferencePolicy) -> Scene {
    let mut scene = empty(name);
    scene.settings.preferences = policy;
    let app = [("app", "nginx")];
    let apart = |key: &str| term(key, LabelSelector::from_labels(app));
    let demand = Demand {
        labels: labelled(app),
        preferred_terms: vec![(1, Requirements::new().with(labels::ZONE, Requirement::is_in(["test-zone-1"])))],
        preferred_anti_affinity: vec![(10, apart(labels::ZONE)), (1, apart(labels::HOSTNAME))],
        requests: draw_requests(&mut Dice::new("preferences", "size")),
        ..Demand::default()
    };
    scene.pods.push(Batch::new("preferring", 4000, demand));
    scene
}

fn empty(name: &str) -> Scene {
    let mut scene = Scene::new(name, types::fakes());
    scene.settings.placed_by = Binder::Kerf;
    let mut only = pool(&scene, "default");
    only.limits = Resources::new()
        .with(resources::CPU, Quantity::from_units(10_000_000))
        .with(resources::MEMORY, Quantity::from_mebibytes(10_000_000 * 1024));
    scene.pools.push(only);
    scene
}

fn plain(dice: &mut Dice) -> Demand {
    Demand {
        labels: labelled([("my-label", dice.pick(&LABEL_VALUES))]),
        requests: draw_requests(dice),
        ..Demand::default()
    }
}

/// The pod's own label and the label it counts are drawn apart: most of these pods do not count themselves.
fn spread(dice: &mut Dice, topology_key: &str) -> Demand {
    let own = labelled([("my-label", dice.pick(&LABEL_VALUES))]);
    let counted = LabelSelector::from_labels([("my-label", dice.pick(&LABEL_VALUES))]);
    Demand {
        labels: own,
        spreads: vec![Spread {
            topology_key: topology_key.into(),
            max_skew: 1,
            min_domains: None,
            when: WhenUnsatisfiable::DoNotSchedule,
            selector: Some(counted),
            node_affinity_policy: NodePolicy::Honor,
            node_taints_policy: NodePolicy::Ignore,
        }],
        requests: draw_requests(dice),
        ..Demand::default()
    }
}

fn zone_affinity(dice: &mut Dice) -> Demand {
    let own = [("my-affininity", dice.pick(&LABEL_VALUES))];
    Demand {
        labels: labelled(own),
        affinity: vec![term(labels::ZONE, LabelSelector::from_labels(own))],
        requests: draw_requests(dice),
        ..Demand::default()
    }
}

fn host_apart(dice: &mut Dice) -> Demand {
    let own = [("app", "nginx")];
    Demand {
        labels: labelled(own),
        anti_affinity: vec![term(labels::HOSTNAME, LabelSelector::from_labels(own))],
        requests: draw_requests(dice),
        ..Demand::default()
    }
}

fn term(topology_key: &str, selector: LabelSelector) -> PodTerm {
    PodTerm {
        topology_key: topology_key.into(),
        namespaces: Namespaces::These(BTreeSet::from(["default".into()])),
        selector: Some(selector),
    }
}

fn labelled<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
    pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
}

fn draw_requests(dice: &mut Dice) -> Resources {
    let cpu = dice.pick(&CPU_MILLIS);
    requests(cpu, dice.pick(&MEMORY_MEBIBYTES))
}
