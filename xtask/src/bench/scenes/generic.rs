//! Scenes with the kwok provider's generic types, as they were once measured with the peer's operator on a real control
//! plane.

use super::pool;
use crate::bench::scene::{Batch, Scene, requests};
use anyhow::Result;
use kerf_model::{
    Binder, Demand, LabelSelector, Labels, NodePolicy, Operator, Requirement, Spread, WhenUnsatisfiable, labels,
};

/// Per deployment: its name, millicores, mebibytes.
const SMALL: (&str, i64, i64) = ("small", 900, 3100);
const LARGE: (&str, i64, i64) = ("large", 3500, 28 * 1024);

/// 500 small pods and 500 large ones, and nothing else to think about.
pub(crate) fn mixed(name: &str, placed_by: Binder) -> Result<Scene> {
    let mut scene = empty(name, None)?;
    scene.settings.placed_by = placed_by;
    for deployment in [SMALL, LARGE] {
        scene.pods.push(batch(deployment, |_| Vec::new()));
    }
    Ok(scene)
}

/// The same pods, each deployment spread over hosts, and no machine of 32 cores or more to be had.
pub(crate) fn hostname_spread(name: &str) -> Result<Scene> {
    let below_32 = Requirement::new(Operator::Lt, &["32".into()]);
    let mut scene = empty(name, below_32)?;
    scene.settings.placed_by = Binder::Kerf;
    for deployment in [SMALL, LARGE] {
        scene.pods.push(batch(deployment, |app| {
            vec![Spread {
                topology_key: labels::HOSTNAME.into(),
                max_skew: 1,
                min_domains: None,
                when: WhenUnsatisfiable::DoNotSchedule,
                selector: Some(LabelSelector::from_labels([("app", app)])),
                node_affinity_policy: NodePolicy::Honor,
                node_taints_policy: NodePolicy::Ignore,
            }]
        }));
    }
    Ok(scene)
}

fn empty(name: &str, cpu: Option<Requirement>) -> Result<Scene> {
    let mut scene = Scene::new(name, kerf_cloud::kwok::embedded());
    let mut only = pool(&scene, "default");
    only.requirements.add(labels::CAPACITY_TYPE, Requirement::is_in(["on-demand"]));
    if let Some(cpu) = cpu {
        only.requirements.add("karpenter.kwok.sh/instance-cpu", cpu);
    }
    scene.pools.push(only);
    Ok(scene)
}

fn batch((app, cpu, memory): (&str, i64, i64), spreads: impl Fn(&str) -> Vec<Spread>) -> Batch {
    let demand = Demand {
        labels: Labels::from([("app".into(), app.into())]),
        requests: requests(cpu, memory),
        spreads: spreads(app),
        ..Demand::default()
    };
    Batch::new(app, 500, demand)
}
