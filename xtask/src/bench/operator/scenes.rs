//! The scenes, by name: the pool, the deployments, and what is timed.

use kerf_cloud::kwok;
use serde_json::{Value, json};

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    /// From the first pod created until all pods run.
    ScaleUp,
    /// From the deletion of the deployments, whose pods all have a node that is initialized, until no node is left.
    Emptying,
    /// From the start of the process, in a cluster that is full already, until its first decision.
    Start,
}

/// One row's cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    pub(crate) timed: Timed,
    pub(crate) deployments: &'static [Deployment],
    pub(crate) is_early_binding: bool,
    /// Whether only machines below 32 cores are to be had.
    pub(crate) is_below_32: bool,
    /// The gate is ours, so that the peer has nothing to show with it.
    pub(crate) has_peer: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Deployment {
    pub(crate) name: &'static str,
    pub(crate) replicas: usize,
    cpu: &'static str,
    memory: &'static str,
    over_hosts: OverHosts,
}

/// How the pods of one deployment share hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OverHosts {
    AsTheyFit,
    /// Spread with a skew of one at most.
    Evenly,
    /// One per host.
    Alone,
}

pub(crate) const MIXED: &str = "mixed-1000";
pub(crate) const MIXED_EARLY: &str = "mixed-1000-early-binding";
pub(crate) const SPREAD: &str = "hostname-spread-1000";
pub(crate) const EMPTIED: &str = "emptied-500";
pub(crate) const START: &str = "start-1000x10000";
/// Not a scene of its own: it is read off the two mixed ones.
pub(crate) const TO_RUNNING: &str = "time-to-running";

/// No real cluster: `kerf up` alone.
pub(crate) const EMBEDDED: &str = "embedded-5000x100000";

/// In the order of the table.
pub(crate) const ROWS: [&str; 7] = [MIXED, MIXED_EARLY, TO_RUNNING, SPREAD, EMPTIED, START, EMBEDDED];

/// A label on the pods that are timed, and on no others.
pub(crate) const TIMED_KEY: &str = "bench";
pub(crate) const TIMED_VALUE: &str = "timed";

const SMALL: Deployment =
    Deployment { name: "small", replicas: 500, cpu: "900m", memory: "3100Mi", over_hosts: OverHosts::AsTheyFit };
const LARGE: Deployment =
    Deployment { name: "large", replicas: 500, cpu: "3500m", memory: "28Gi", over_hosts: OverHosts::AsTheyFit };

const SCENES: [Scene; 5] = [
    Scene {
        name: MIXED,
        timed: Timed::ScaleUp,
        deployments: &[SMALL, LARGE],
        is_early_binding: false,
        is_below_32: false,
        has_peer: true,
    },
    Scene {
        name: MIXED_EARLY,
        timed: Timed::ScaleUp,
        deployments: &[SMALL, LARGE],
        is_early_binding: true,
        is_below_32: false,
        has_peer: false,
    },
    Scene {
        name: SPREAD,
        timed: Timed::ScaleUp,
        deployments: &[
            Deployment { over_hosts: OverHosts::Evenly, ..SMALL },
            Deployment { over_hosts: OverHosts::Evenly, ..LARGE },
        ],
        is_early_binding: false,
        is_below_32: true,
        has_peer: true,
    },
    Scene {
        name: EMPTIED,
        timed: Timed::Emptying,
        // Alone, so that either operator has exactly as many nodes to remove.
        deployments: &[Deployment {
            name: "alone",
            replicas: 500,
            cpu: "100m",
            memory: "64Mi",
            over_hosts: OverHosts::Alone,
        }],
        is_early_binding: false,
        is_below_32: true,
        has_peer: true,
    },
    Scene {
        name: START,
        timed: Timed::Start,
        // Larger than what is left on any node of the standing cluster.
        deployments: &[Deployment {
            name: "extra",
            replicas: 1,
            cpu: "2",
            memory: "1Gi",
            over_hosts: OverHosts::AsTheyFit,
        }],
        is_early_binding: false,
        is_below_32: true,
        has_peer: true,
    },
];

pub(crate) fn scene(name: &str) -> Option<&'static Scene> {
    SCENES.iter().find(|scene| scene.name == name)
}

impl Scene {
    pub(crate) fn n_pods(&self) -> usize {
        self.deployments.iter().map(|deployment| deployment.replicas).sum()
    }

    /// As the peer's own end-to-end fixture has it, but that consolidation waits for nothing. Where a start is timed it waits
    /// for ever: the standing cluster shall stay as it is.
    pub(crate) fn node_pool(&self) -> Value {
        let consolidate_after = if self.timed == Timed::Start { "Never" } else { "0s" };
        let mut requirements = vec![
            json!({"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}),
            json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]}),
            json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}),
        ];
        if self.is_below_32 {
            requirements.push(json!({"key": kwok::INSTANCE_SIZE, "operator": "Lt", "values": ["32"]}));
        }
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
            "spec": {
                "disruption": {
                    "consolidationPolicy": "WhenEmptyOrUnderutilized",
                    "consolidateAfter": consolidate_after,
                    "budgets": [{"nodes": "100%"}]
                },
                "template": {"spec": {
                    "expireAfter": "Never",
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "requirements": requirements
                }}
            }
        })
    }
}

pub(crate) fn node_class() -> Value {
    json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}, "spec": {}
    })
}

impl Deployment {
    pub(crate) fn object(&self) -> Value {
        let labels = json!({"app": self.name, TIMED_KEY: TIMED_VALUE});
        let selector = json!({"matchLabels": {"app": self.name}});
        let mut pod = json!({
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "pause", "image": "registry.k8s.io/pause:3.10",
                "resources": {"requests": {"cpu": self.cpu, "memory": self.memory}}
            }]
        });
        match self.over_hosts {
            OverHosts::AsTheyFit => {}
            OverHosts::Evenly => {
                pod["topologySpreadConstraints"] = json!([{
                    "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": selector
                }]);
            }
            OverHosts::Alone => {
                pod["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
                ]}});
            }
        }
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": self.name, "namespace": "default"},
            "spec": {
                "replicas": self.replicas,
                "selector": selector,
                "template": {"metadata": {"labels": labels}, "spec": pod}
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_but_the_derived_one_and_the_playground_has_a_scene() {
        let without: Vec<&str> = ROWS.into_iter().filter(|row| scene(row).is_none()).collect();
        assert_eq!(without, [TO_RUNNING, EMBEDDED]);
    }

    #[test]
    fn the_pool_and_its_class_are_what_our_own_types_read() {
        for scene in SCENES {
            let pool: kerf_api::NodePool = serde_json::from_value(scene.node_pool()).unwrap();
            assert_eq!(pool.spec.template.spec.requirements.len(), if scene.is_below_32 { 4 } else { 3 });
        }
    }
}
