//! The rows of the bench, by name.

mod aws;
mod backlog;
mod generic;
mod large;
mod peers_own;

use super::scene::Scene;
use anyhow::{Result, bail};
use kerf_model::{NodeClassRef, Pool, Readiness, Requirements, Resources};

/// In the order of the table.
pub(crate) const ROWS: [&str; 11] = [
    "diverse-100",
    "diverse-1000",
    "diverse-10000",
    "diverse-20000",
    "preferences-respect-4000",
    "preferences-ignore-4000",
    "mixed-1000",
    KUBE_SCHEDULER,
    "hostname-spread-1000",
    "backlog-3152",
    "large-100k",
];

/// The row that is judged after kube-scheduler's model placed the pods.
pub(crate) const KUBE_SCHEDULER: &str = "mixed-1000-kube-scheduler";

/// Twice the pods, for `--scaling`: (row, row with twice the pods).
pub(crate) const DOUBLED: [(&str, &str); 2] = [("diverse-10000", "diverse-20000"), ("large-100k", "large-200k")];

pub(crate) fn build(row: &str) -> Result<Scene> {
    Ok(match row {
        "diverse-100" => peers_own::diverse(row, 100),
        "diverse-1000" => peers_own::diverse(row, 1000),
        "diverse-10000" => peers_own::diverse(row, 10_000),
        "diverse-20000" => peers_own::diverse(row, 20_000),
        "preferences-respect-4000" => peers_own::preferences(row, kerf_model::PreferencePolicy::Respect),
        "preferences-ignore-4000" => peers_own::preferences(row, kerf_model::PreferencePolicy::Ignore),
        "mixed-1000" => generic::mixed(row, kerf_model::Binder::Kerf)?,
        KUBE_SCHEDULER => generic::mixed(row, kerf_model::Binder::KubeScheduler)?,
        "hostname-spread-1000" => generic::hostname_spread(row)?,
        "backlog-3152" => backlog::scene(row)?,
        "large-100k" => large::scene(row, 100_000)?,
        "large-200k" => large::scene(row, 200_000)?,
        other => bail!("no row is named {other:?}; there are {}", ROWS.join(", ")),
    })
}

/// A pool without limits, taints or requirements.
fn pool(scene: &Scene, name: &str) -> Pool {
    Pool {
        name: name.into(),
        weight: 0,
        labels: kerf_model::Labels::new(),
        requirements: Requirements::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        limits: Resources::new(),
        in_use: Resources::new(),
        node_class: NodeClassRef {
            group: "karpenter.kwok.sh".into(),
            kind: "KWOKNodeClass".into(),
            name: "default".into(),
        },
        types: scene.types.clone(),
        is_static: false,
        readiness: Readiness::Ready,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_scene_with_as_many_pods_as_it_says() {
        for (row, n_pods) in [
            ("diverse-100", 100),
            ("diverse-1000", 1000),
            ("preferences-respect-4000", 4000),
            ("preferences-ignore-4000", 4000),
            ("mixed-1000", 1000),
            (KUBE_SCHEDULER, 1000),
            ("hostname-spread-1000", 1000),
            ("backlog-3152", 2170),
            ("large-100k", 100_000),
        ] {
            let scene = build(row).expect(row);
            assert_eq!(scene.n_pods(), n_pods, "{row}");
            assert_eq!(scene.snapshot().pods.len(), n_pods, "{row}");
        }
        assert!(build("mixed").is_err());
    }

    #[test]
    fn the_large_scene_has_two_thousand_shapes_fifty_pools_and_five_thousand_nodes() {
        let snapshot = build("large-100k").expect("large").snapshot();
        assert_eq!((snapshot.demands.len(), snapshot.pools.len(), snapshot.nodes.len()), (2000, 50, 5000));
    }

    #[test]
    fn no_node_of_a_scene_is_overfull_before_the_plan() {
        for row in ["backlog-3152", "large-100k"] {
            for node in &build(row).expect(row).snapshot().nodes {
                assert!(
                    node.used.fits(&node.allocatable),
                    "{row}: {} uses {} of {}",
                    node.name,
                    node.used,
                    node.allocatable
                );
            }
        }
    }

    #[test]
    fn the_backlog_is_the_one_of_the_report() {
        let scene = build("backlog-3152").expect("backlog");
        assert_eq!((scene.nodes.len(), scene.pools.len()), (1060, 20));
        assert_eq!(scene.unsatisfiable().len(), 300);
    }
}
