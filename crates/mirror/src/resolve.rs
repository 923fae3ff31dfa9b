//! Shapes become demands: the cluster answers what a pod's description leaves open.

use crate::Mirror;
use crate::default_spreads;
use crate::pods::Owner;
use crate::read::Fault;
use crate::shape::{Shape, Term};
use crate::volumes::ClaimFact;
use kerf_model::{
    BoundShape, Demand, DemandIdx, LabelSelector, Labels, NamespaceName, Namespaces, PodTerm, Spread, Text,
    VolumeNeeds, Why,
};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Turns shapes into demands, each distinct one once.
pub(crate) struct Resolver<'a> {
    mirror: &'a Mirror,
    /// Label keys that some selector looks at. The others cannot matter, and leaving them out lets pods that differ
    /// only in a serial number share one demand.
    keys: BTreeSet<Text>,
    namespaces: BTreeMap<Text, Labels>,
    services: BTreeMap<Text, Vec<&'a Labels>>,
    pub(crate) demands: Vec<Arc<Demand>>,
    index: FxHashMap<Arc<Demand>, DemandIdx>,
    by_shape: FxHashMap<(*const Shape, Option<Owner>), DemandIdx>,
    bound: FxHashMap<*const Shape, Arc<BoundShape>>,
    bound_index: BTreeMap<Arc<BoundShape>, ()>,
}

impl<'a> Resolver<'a> {
    /// `shapes` are all that will be resolved: their selectors decide which labels matter.
    pub(crate) fn new<'s>(mirror: &'a Mirror, shapes: impl Iterator<Item = &'s Shape>) -> Self {
        let mut keys = BTreeSet::new();
        let mut namespaces = mirror.namespaces.clone();
        let mut seen: FxHashMap<*const Shape, ()> = FxHashMap::default();
        for shape in shapes {
            if seen.insert(shape, ()).is_none() {
                for selector in selectors(shape) {
                    keys.extend(selector.terms.iter().map(|term| term.key.clone()));
                }
                // Every namespace carries its name as a label, whether we were shown the object or not.
                namespaces
                    .entry(shape.namespace.clone())
                    .or_insert_with(|| Labels::from([("kubernetes.io/metadata.name".into(), shape.namespace.clone())]));
            }
        }
        let mut services: BTreeMap<Text, Vec<&Labels>> = BTreeMap::new();
        if !mirror.settings.default_spreads.is_empty() {
            for ((namespace, _), selector) in &mirror.services {
                keys.extend(selector.keys().cloned());
                services.entry(namespace.clone()).or_default().push(selector);
            }
            for workload in mirror.workloads.values() {
                let terms = workload.selector.iter().flat_map(|selector| &selector.terms);
                keys.extend(terms.map(|term| term.key.clone()));
            }
        }
        Self {
            mirror,
            keys,
            namespaces,
            services,
            demands: Vec::new(),
            index: FxHashMap::default(),
            by_shape: FxHashMap::default(),
            bound: FxHashMap::default(),
            bound_index: BTreeMap::new(),
        }
    }

    /// The demand of a pod, or why it cannot be considered.
    pub(crate) fn demand(
        &mut self,
        shape: &Arc<Shape>,
        pod_name: &str,
        owner: Option<&Owner>,
        promised: &BTreeMap<Text, ClaimFact>,
    ) -> Result<DemandIdx, Box<Why>> {
        #[cfg(test)]
        assert!(pod_name != "panics", "planted");
        if shape.uses_devices {
            return Err(Box::new(Why::DynamicResources));
        }
        let takes_defaults = shape.spreads.is_empty() && !self.mirror.settings.default_spreads.is_empty();
        let owner = if takes_defaults { owner } else { None };
        let key = (Arc::as_ptr(shape), owner.cloned());
        if let Some(known) = self.by_shape.get(&key) {
            return Ok(*known);
        }
        if shape.is_not_for_us() {
            return Err(Box::new(Why::NotForUs));
        }
        let volumes = self
            .mirror
            .storage
            .needs(&self.mirror.settings, &shape.namespace, pod_name, &shape.claims, promised)
            .map_err(|fault| Box::new(ill(fault)))?;
        let mut demand = self.without_volumes(shape);
        demand.volumes = volumes;
        if takes_defaults {
            demand.spreads = self.default_spreads(shape, owner);
        }
        let idx = self.intern(demand);
        // What a claim resolves to depends on the pod's name.
        if shape.claims.is_empty() {
            self.by_shape.insert(key, idx);
        }
        Ok(idx)
    }

    /// What a DaemonSet's pod asks of a node: where it can run and what it takes. It goes where it is sent, so that
    /// preferences, other pods and spreads say nothing.
    pub(crate) fn daemon(&self, shape: &Shape) -> Demand {
        Demand {
            preferred_terms: Vec::new(),
            affinity: Vec::new(),
            anti_affinity: Vec::new(),
            preferred_affinity: Vec::new(),
            preferred_anti_affinity: Vec::new(),
            spreads: Vec::new(),
            ..self.without_volumes(shape)
        }
    }

    /// What topology constraints see of a running pod.
    pub(crate) fn bound(&mut self, shape: &Arc<Shape>) -> Arc<BoundShape> {
        if let Some(known) = self.bound.get(&Arc::as_ptr(shape)) {
            return known.clone();
        }
        let seen = Arc::new(BoundShape {
            namespace: NamespaceName(shape.namespace.clone()),
            labels: self.labels(shape),
            anti_affinity: self.terms(&shape.anti_affinity),
        });
        let seen = match self.bound_index.get_key_value(&seen) {
            Some((known, ())) => known.clone(),
            None => {
                self.bound_index.insert(seen.clone(), ());
                seen
            }
        };
        self.bound.insert(Arc::as_ptr(shape), seen.clone());
        seen
    }

    fn intern(&mut self, demand: Demand) -> DemandIdx {
        let demand = Arc::new(demand);
        if let Some(known) = self.index.get(&demand) {
            return *known;
        }
        let idx = DemandIdx(u32::try_from(self.demands.len()).expect("fewer demands than pods, fewer pods than 2^32"));
        self.demands.push(demand.clone());
        self.index.insert(demand, idx);
        idx
    }

    fn without_volumes(&self, shape: &Shape) -> Demand {
        let weighted = |terms: &[(i32, Term)]| -> Vec<(i32, PodTerm)> {
            terms.iter().map(|(weight, term)| (*weight, self.term(term))).collect()
        };
        Demand {
            namespace: NamespaceName(shape.namespace.clone()),
            labels: self.labels(shape),
            requests: shape.requests.clone(),
            node_selector: shape.node_selector.clone(),
            required_terms: shape.required_terms.clone(),
            preferred_terms: shape.preferred_terms.clone(),
            tolerations: shape.tolerations.clone(),
            affinity: self.terms(&shape.affinity),
            anti_affinity: self.terms(&shape.anti_affinity),
            preferred_affinity: weighted(&shape.preferred_affinity),
            preferred_anti_affinity: weighted(&shape.preferred_anti_affinity),
            spreads: shape.spreads.clone(),
            host_ports: shape.host_ports.clone(),
            volumes: VolumeNeeds::default(),
        }
    }

    fn labels(&self, shape: &Shape) -> Labels {
        let mut labels = shape.labels.clone();
        labels.retain(|key, _| self.keys.contains(key));
        labels
    }

    fn terms(&self, terms: &[Term]) -> Vec<PodTerm> {
        terms.iter().map(|term| self.term(term)).collect()
    }

    fn term(&self, term: &Term) -> PodTerm {
        let namespaces = match &term.namespace_selector {
            Some(selector) if selector.terms.is_empty() => Namespaces::All,
            Some(selector) => {
                let selected = self.namespaces.iter().filter(|(_, labels)| selector.matches(labels));
                let selected = selected.map(|(name, _)| name.clone());
                Namespaces::These(term.namespaces.iter().cloned().chain(selected).collect())
            }
            None => Namespaces::These(term.namespaces.clone()),
        };
        PodTerm { topology_key: term.topology_key.clone(), namespaces, selector: term.selector.clone() }
    }

    fn default_spreads(&self, shape: &Shape, owner: Option<&Owner>) -> Vec<Spread> {
        let services = self.services.get(&shape.namespace).into_iter().flatten().copied();
        let workload = owner
            .and_then(|owner| self.mirror.workloads.get(&(shape.namespace.clone(), owner.kind, owner.name.clone())));
        let Some(selector) = default_spreads::deduce_selector(&shape.labels, services, owner, workload) else {
            return Vec::new();
        };
        let with_selector = |spread: &Spread| Spread { selector: Some(selector.clone()), ..spread.clone() };
        self.mirror.settings.default_spreads.iter().map(with_selector).collect()
    }
}

pub(crate) fn ill(fault: Fault) -> Why {
    Why::Ill { field: fault.field, message: fault.message }
}

fn selectors(shape: &Shape) -> impl Iterator<Item = &LabelSelector> {
    let required = shape.affinity.iter().chain(&shape.anti_affinity);
    let preferred = shape.preferred_affinity.iter().chain(&shape.preferred_anti_affinity);
    required
        .chain(preferred.map(|(_, term)| term))
        .filter_map(|term| term.selector.as_ref())
        .chain(shape.spreads.iter().filter_map(|spread| spread.selector.as_ref()))
}
