//! A scene: a cluster and its waiting pods as plain data, made once and told twice, to our engine as a `Snapshot` and to
//! the peer as Kubernetes objects.

use kerf_model::{
    BoundGroup, BoundShape, Demand, DemandIdx, InstanceType, Labels, Node, NodeIdx, NodeStage, Offering, PendingPod,
    PodId, Pool, Quantity, Resources, Revision, Settings, Snapshot, TypeName, UnixMillis, labels, resources,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) struct Scene {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    /// What every pool can buy from.
    pub(crate) types: Arc<[Arc<InstanceType>]>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) nodes: Vec<Standing>,
    pub(crate) pods: Vec<Batch>,
}

/// Waiting pods that are alike.
pub(crate) struct Batch {
    pub(crate) name: String,
    pub(crate) demand: Arc<Demand>,
    pub(crate) n_pods: u32,
    /// False where the scene was built so that nothing can hold them: then a plan must refuse them all.
    pub(crate) satisfiable: bool,
}

/// A node with what runs on it.
pub(crate) struct Standing {
    pub(crate) node: Node,
    pub(crate) running: Vec<Running>,
}

/// Pods of one workload on one node.
pub(crate) struct Running {
    pub(crate) shape: Arc<BoundShape>,
    /// Of one pod, `pods: 1` included.
    pub(crate) requests: Resources,
    pub(crate) n_pods: u32,
}

impl Scene {
    /// An empty one: pools and pods are added by the caller.
    pub(crate) fn new(name: &str, types: Vec<InstanceType>) -> Self {
        let mut settings = Settings::default();
        let keys: BTreeSet<_> =
            types.iter().flat_map(|kind| kind.requirements.iter()).map(|(key, _)| key.clone()).collect();
        settings.well_known.extend(keys);
        Self {
            name: name.to_owned(),
            settings,
            types: types.into_iter().map(Arc::new).collect(),
            pools: Vec::new(),
            nodes: Vec::new(),
            pods: Vec::new(),
        }
    }

    pub(crate) fn n_pods(&self) -> usize {
        self.pods.iter().map(|batch| batch.n_pods as usize).sum()
    }

    /// The pods of batches that nothing can hold.
    pub(crate) fn unsatisfiable(&self) -> BTreeSet<PodId> {
        self.pods.iter().filter(|batch| !batch.satisfiable).flat_map(Batch::ids).collect()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut demands: Vec<Arc<Demand>> = Vec::new();
        let mut known: BTreeMap<Arc<Demand>, DemandIdx> = BTreeMap::new();
        let mut pods = Vec::with_capacity(self.n_pods());
        for batch in &self.pods {
            let next = DemandIdx(u32::try_from(demands.len()).expect("fewer than 2^32 demands"));
            let demand = *known.entry(batch.demand.clone()).or_insert_with(|| {
                demands.push(batch.demand.clone());
                next
            });
            pods.extend(batch.ids().map(|id| PendingPod {
                id,
                demand,
                created: UnixMillis(0),
                priority: 0,
                leaving: None,
                is_virtual: false,
            }));
        }
        let mut bound = Vec::new();
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for (idx, standing) in self.nodes.iter().enumerate() {
            let idx = NodeIdx(u32::try_from(idx).expect("fewer than 2^32 nodes"));
            nodes.push(standing.fact());
            bound.extend(standing.running.iter().map(|running| BoundGroup {
                node: idx,
                shape: running.shape.clone(),
                n_pods: running.n_pods,
            }));
        }
        Snapshot {
            revision: Revision(1),
            settings: self.settings.clone(),
            pools: self.pools_in_use(),
            nodes,
            bound,
            demands,
            pods,
            ..Snapshot::default()
        }
    }

    /// The pools, with what their nodes already use of the limits.
    fn pools_in_use(&self) -> Vec<Pool> {
        let mut pools = self.pools.clone();
        for standing in &self.nodes {
            let Some(pool) = pools.iter_mut().find(|pool| Some(&pool.name) == standing.node.pool.as_ref()) else {
                continue;
            };
            pool.in_use.add(&standing.node.capacity);
            pool.in_use.add(&Resources::new().with(resources::NODES, Quantity::from_units(1)));
        }
        pools
    }
}

impl Batch {
    pub(crate) fn new(name: &str, n_pods: u32, demand: Demand) -> Self {
        Self { name: name.to_owned(), demand: Arc::new(demand), n_pods, satisfiable: true }
    }

    fn ids(&self) -> impl Iterator<Item = PodId> {
        (0..self.n_pods).map(|i| PodId::new(&self.demand.namespace.0, &format!("{}-{i}", self.name)))
    }
}

impl Standing {
    /// An initialized node of a pool.
    pub(crate) fn new(
        name: &str,
        pool: &Pool,
        kind: &InstanceType,
        offering: &Offering,
        running: Vec<Running>,
    ) -> Self {
        let singles = [&kind.requirements, &offering.requirements, &pool.requirements]
            .into_iter()
            .flat_map(|requirements| requirements.iter())
            .filter_map(|(key, requirement)| Some((key.clone(), requirement.single()?.clone())));
        let mut all: Labels = pool.labels.clone();
        all.extend(singles);
        for (key, value) in [
            (labels::NODEPOOL, pool.name.as_str()),
            (labels::REGISTERED, "true"),
            (labels::INITIALIZED, "true"),
            (labels::HOSTNAME, name),
        ] {
            all.insert(key.into(), value.into());
        }
        let node = Node {
            name: name.into(),
            pool: Some(pool.name.clone()),
            stage: NodeStage::Initialized,
            labels: all,
            hostname: name.into(),
            taints: pool.taints.clone(),
            allocatable: kind.allocatable_of(offering),
            capacity: kind.capacity.clone(),
            used: Resources::new(),
            used_by_daemons: Resources::new(),
            host_ports: Vec::new(),
            attached: Default::default(),
            attach_limits: Default::default(),
            instance_type: Some(TypeName(kind.name.0.clone())),
            price: Some(offering.price),
        };
        Self { node, running }
    }

    /// The node with what runs on it added up.
    pub(crate) fn fact(&self) -> Node {
        let mut node = self.node.clone();
        for running in &self.running {
            for _ in 0..running.n_pods {
                node.used.add(&running.requests);
            }
        }
        node
    }
}

/// Requests of a pod: millicores, mebibytes, and the pod itself.
pub(crate) fn requests(cpu_millis: i64, memory_mebibytes: i64) -> Resources {
    Resources::new()
        .with(resources::CPU, Quantity::from_milli(cpu_millis))
        .with(resources::MEMORY, Quantity::from_mebibytes(memory_mebibytes))
        .with(resources::PODS, Quantity::from_units(1))
}
