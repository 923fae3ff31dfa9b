//! The picture: all facts at one revision, in an order that does not depend on how they came.

use crate::guards;
use crate::pods::{Place, PodFact};
use crate::pools::PoolFact;
use crate::read::{Fault, Reader};
use crate::resolve::{Resolver, ill};
use crate::settings::View;
use crate::shape::Shape;
use crate::supply::{Inquiry, Supply};
use crate::wants::{self, Want, switched_off};
use crate::{Mirror, nodes};
use kerf_model::{
    BoundGroup, BoundShape, Daemon, InstanceType, Money, Node, NodeIdx, NodeStage, Note, PendingPod, PodId, Pool,
    PoolName, Quantity, Readiness, Resources, Revision, Snapshot, Text, UnixMillis, Why, labels, resources,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub(crate) fn freeze(mirror: &Mirror, now: UnixMillis, supply: &dyn Supply) -> Snapshot {
    let mut readers: Vec<Reader> = Vec::new();
    let mut pools = freeze_pools(mirror, supply, &mut readers);
    let mut nodes = freeze_nodes(mirror, &pools, supply);
    let claims: Vec<_> = mirror.node_claims.values().collect();
    let mut bought = nodes::bought(mirror.nodes.values(), &claims);
    for pool in &mut pools {
        let nothing = || Resources::new().with(resources::NODES, Quantity::ZERO);
        pool.in_use = bought.remove(&pool.name).unwrap_or_else(nothing);
    }

    let mut wants = Vec::new();
    let running = place_running(mirror, &mut nodes, &mut wants, now, &mut readers);
    let waiting: FxHashSet<*const Shape> =
        mirror.pods.values().filter(|pod| pod.place == Place::Waiting).map(|pod| Arc::as_ptr(&pod.shape)).collect();
    for (id, pod) in &mirror.pods {
        let waits = match pod.place {
            Place::Waiting => true,
            Place::Fresh => waiting.contains(&Arc::as_ptr(&pod.shape)),
            Place::Aside | Place::On(_) => false,
        };
        if waits {
            wants.push(Want::of_pod(mirror, id, pod, None));
        }
    }
    if mirror.settings.view == View::Files {
        wants::promised_pods(mirror, &mut wants, &mut readers);
    }
    wants::buffer_pods(mirror, &mut wants, &mut readers);
    wants.sort_by(|a, b| a.id.cmp(&b.id));

    let daemon_shapes = wants::daemon_shapes(mirror, &mut readers);
    let shapes = wants
        .iter()
        .map(|want| &*want.shape)
        .chain(running.iter().map(|(_, pod)| &*pod.shape))
        .chain(daemon_shapes.iter().map(|(_, shape)| shape));
    let mut resolver = Resolver::new(mirror, shapes);
    let bound = freeze_bound(&running, &mut resolver);
    let daemons = daemon_shapes
        .iter()
        .map(|(name, shape)| Daemon { name: name.clone(), demand: Arc::new(resolver.daemon(shape)) })
        .collect();

    let mut ill_pods: BTreeMap<PodId, Why> = mirror.unreadable_pods.clone();
    let mut pods = Vec::new();
    for want in wants {
        let demand = match want.fault {
            Some(fault) => Err(Box::new(ill(fault))),
            // A pod that brings a defect of ours to light is left out like one that cannot be read, and the others go on.
            None => catch_unwind(AssertUnwindSafe(|| {
                resolver.demand(&want.shape, &want.id.name, want.owner.as_ref(), &want.promised)
            }))
            .unwrap_or_else(|_| Err(Box::new(ill(defect())))),
        };
        match demand {
            Ok(demand) => pods.push(PendingPod {
                id: want.id,
                demand,
                created: want.created,
                priority: want.priority,
                leaving: want.leaving,
                is_virtual: want.is_virtual,
            }),
            Err(why) => {
                if let (Why::Ill { field, message }, false) = (&*why, want.is_noted) {
                    let mut reader = Reader::new(&want.source, format!("Pod {}", want.id));
                    reader.note(field.clone(), message);
                    readers.push(reader);
                }
                ill_pods.insert(want.id, *why);
            }
        }
    }

    Snapshot {
        revision: Revision(mirror.n_observed),
        now,
        settings: mirror.settings.scheduling.clone(),
        pools,
        nodes,
        bound,
        demands: resolver.demands,
        pods,
        daemons,
        ill: ill_pods.into_iter().collect(),
        notes: all_notes(mirror, readers),
    }
}

fn defect() -> Fault {
    let message = "what it needs cannot be worked out, which is a defect of Kerf: it is left out of planning";
    Fault { field: "spec".into(), message: message.into() }
}

fn freeze_pools(mirror: &Mirror, supply: &dyn Supply, readers: &mut Vec<Reader>) -> Vec<Pool> {
    let mut served = Vec::new();
    for fact in mirror.pools.values() {
        if supply.serves(&fact.node_class) {
            served.push(fact);
        } else {
            let mut reader = Reader::new(&source_of_pool(mirror, &fact.name), format!("NodePool {}", fact.name));
            reader.note(
                "spec.template.spec.nodeClassRef",
                format!(
                    "nobody here serves {} of {:?}; the pool is left out",
                    fact.node_class.kind, &*fact.node_class.group
                ),
            );
            readers.push(reader);
        }
    }
    let overlays = overlays(mirror, readers);
    let stock = supply.types(&inquiries(mirror, &served), &overlays);
    for (name, reason) in stock.rejected_overlays {
        let source = mirror.overlays.get(&name).map_or_else(|| "".into(), |(source, _)| source.clone());
        let mut reader = Reader::new(&source, format!("NodeOverlay {name}"));
        reader.note("spec", reason);
        readers.push(reader);
    }
    let nothing: Result<_, Text> = Err("the provider gave no answer".into());
    served
        .iter()
        .zip(stock.types.into_iter().chain(std::iter::repeat(nothing)))
        .map(|(fact, types)| {
            let class_obstacle = mirror.classes.get(&fact.node_class).and_then(|class| class.obstacle.clone());
            let no_types = types.as_ref().err().cloned();
            let obstacle = fact.obstacle.clone().or(class_obstacle).or(no_types);
            Pool {
                name: fact.name.clone(),
                weight: fact.weight,
                labels: fact.labels.clone(),
                requirements: fact.requirements.clone(),
                taints: fact.taints.clone(),
                startup_taints: fact.startup_taints.clone(),
                limits: fact.limits.clone(),
                in_use: Resources::new(),
                node_class: fact.node_class.clone(),
                types: types.unwrap_or_else(|_| Arc::from([])),
                is_static: fact.is_static,
                readiness: obstacle.map_or(Readiness::Ready, Readiness::NotReady),
            }
        })
        .collect()
}

fn inquiries<'a>(mirror: &'a Mirror, served: &[&'a PoolFact]) -> Vec<Inquiry<'a>> {
    served
        .iter()
        .map(|fact| Inquiry {
            pool: &fact.name,
            labels: &fact.labels,
            requirements: &fact.requirements,
            node_class: &fact.node_class,
            class_object: mirror.classes.get(&fact.node_class).map(|class| &*class.value),
        })
        .collect()
}

/// Overlays that the supply does not accept beside the others.
pub(crate) fn rejected_overlays(mirror: &Mirror, supply: &dyn Supply) -> Vec<(Text, Text)> {
    let served: Vec<&PoolFact> = mirror.pools.values().filter(|fact| supply.serves(&fact.node_class)).collect();
    let overlays = overlays(mirror, &mut Vec::new());
    supply.types(&inquiries(mirror, &served), &overlays).rejected_overlays
}

fn source_of_pool(mirror: &Mirror, pool: &PoolName) -> Text {
    let key =
        crate::ObjectKey { kind: crate::Kind::NodePool, class_kind: None, namespace: "".into(), name: pool.0.clone() };
    mirror.sources.get(&key).cloned().unwrap_or_else(|| "".into())
}

fn overlays(mirror: &Mirror, readers: &mut Vec<Reader>) -> Vec<Arc<kerf_api::NodeOverlay>> {
    if mirror.settings.gates.node_overlay {
        let is_sound = |(name, (source, overlay)): &(&Text, &(Text, Arc<kerf_api::NodeOverlay>))| {
            let mut reader = Reader::new(source, format!("NodeOverlay {name}"));
            for problem in overlay.validate(&mirror.settings.labels) {
                reader.fault(problem.path, format!("found {}; {}", problem.found, problem.wants));
            }
            let is_sound = reader.fault.is_none();
            readers.push(reader);
            is_sound
        };
        return mirror.overlays.iter().filter(is_sound).map(|(_, (_, overlay))| overlay.clone()).collect();
    }
    if let Some((name, (source, _))) = mirror.overlays.first_key_value() {
        let mut reader = Reader::new(source, format!("NodeOverlay {name}"));
        reader.note("", switched_off(mirror.overlays.len(), "NodeOverlay"));
        readers.push(reader);
    }
    Vec::new()
}

fn freeze_nodes(mirror: &Mirror, pools: &[Pool], supply: &dyn Supply) -> Vec<Node> {
    let startup_taints =
        |pool: &str| mirror.pools.get(pool).map(|fact| fact.startup_taints.clone()).unwrap_or_default();
    let claims: Vec<_> = mirror.node_claims.values().collect();
    let mut nodes = nodes::merge(mirror.nodes.values(), &claims, startup_taints);
    let mut types: FxHashMap<(&PoolName, &str), &InstanceType> = FxHashMap::default();
    for pool in pools {
        for instance_type in pool.types.iter() {
            types.insert((&pool.name, instance_type.name.as_str()), instance_type);
        }
    }
    for node in &mut nodes {
        let of_pool = node.pool.as_ref().zip(node.instance_type.as_ref());
        let own_type = of_pool.and_then(|(pool, name)| types.get(&(pool, name.as_str())).copied());
        node.price = price(node, own_type, supply);
        if let Some(own_type) = own_type {
            node.attach_limits = own_type.attach_limits.clone();
        }
        for (driver, limit) in mirror.storage.csi_nodes.get(&node.name.0).into_iter().flatten() {
            match limit {
                Some(limit) => drop(node.attach_limits.insert(driver.clone(), *limit)),
                None => drop(node.attach_limits.remove(driver)),
            }
        }
    }
    nodes
}

fn price(node: &Node, own_type: Option<&InstanceType>, supply: &dyn Supply) -> Option<Money> {
    let capacity_type = nodes::capacity_type(&node.labels);
    let zone =
        [labels::ZONE, "failure-domain.beta.kubernetes.io/zone"].into_iter().find_map(|key| node.labels.get(key));
    let of_pool = own_type.and_then(|own_type| {
        own_type
            .offerings
            .iter()
            .filter(|offering| offering.capacity_type() == Some(capacity_type))
            .filter(|offering| zone.is_none() || offering.zone() == zone)
            .map(|offering| offering.price)
            .min()
    });
    of_pool.or_else(|| supply.price(node.instance_type.as_ref()?, zone, capacity_type))
}

/// Puts running pods onto their nodes. Those that must leave with their node join the ones that want a place; the
/// others come back, by node, as far as topology can see them.
fn place_running<'a>(
    mirror: &'a Mirror,
    nodes: &mut [Node],
    wants: &mut Vec<Want>,
    now: UnixMillis,
    readers: &mut Vec<Reader>,
) -> Vec<(usize, &'a PodFact)> {
    let by_name: FxHashMap<Text, usize> =
        nodes.iter().enumerate().map(|(idx, node)| (node.name.0.clone(), idx)).collect();
    let mut running = Vec::new();
    let mut homeless: Option<(&PodId, &PodFact, &Text)> = None;
    let mut n_homeless = 0;
    for (id, pod) in &mirror.pods {
        let Place::On(node_name) = &pod.place else {
            continue;
        };
        let Some(&idx) = by_name.get(node_name) else {
            n_homeless += 1;
            homeless.get_or_insert((id, pod, node_name));
            continue;
        };
        let node = &mut nodes[idx];
        node.used.add(&pod.shape.requests);
        if pod.is_daemon() {
            node.used_by_daemons.add(&pod.shape.requests);
        }
        node.host_ports.extend(pod.shape.host_ports.iter().cloned());
        for (driver, volume) in mirror.storage.attachments(&id.namespace, &id.name, &pod.shape.claims) {
            node.attached.entry(driver).or_default().insert(volume);
        }
        if node.stage == NodeStage::Leaving && must_move(mirror, id, pod, now) {
            wants.push(Want::of_pod(mirror, id, pod, Some(&node.name)));
        } else if !pod.is_terminating {
            running.push((idx, &**pod));
        }
    }
    if let Some((id, pod, node)) = homeless {
        let mut reader = Reader::new(&pod.source, format!("Pod {id}"));
        let and_more =
            if n_homeless > 1 { format!(", and {} more pods likewise", n_homeless - 1) } else { String::new() };
        reader.note(
            "spec.nodeName",
            format!("it runs on {node}, which is not shown here{and_more} (add the output of kubectl get nodes)"),
        );
        readers.push(reader);
    }
    for node in nodes {
        node.host_ports.sort();
        node.host_ports.dedup();
    }
    running
}

fn must_move(mirror: &Mirror, id: &PodId, pod: &PodFact, now: UnixMillis) -> bool {
    let from = (id.namespace.clone(), Text::from(""));
    let of_namespace = mirror
        .guards
        .range(from..)
        .take_while(|((namespace, _), _)| *namespace == id.namespace)
        .map(|(_, guard)| guard);
    pod.will_move(now) && !(pod.is_evictable() && guards::is_blocked(of_namespace, &pod.shape.labels))
}

fn freeze_bound(running: &[(usize, &PodFact)], resolver: &mut Resolver<'_>) -> Vec<BoundGroup> {
    let mut counts: FxHashMap<(usize, *const BoundShape), (Arc<BoundShape>, u32)> = FxHashMap::default();
    for (idx, pod) in running {
        let shape = resolver.bound(&pod.shape);
        counts.entry((*idx, Arc::as_ptr(&shape))).or_insert((shape, 0)).1 += 1;
    }
    let mut groups: Vec<BoundGroup> = counts
        .into_iter()
        .map(|((idx, _), (shape, n_pods))| BoundGroup {
            node: NodeIdx(u32::try_from(idx).expect("fewer nodes than 2^32")),
            shape,
            n_pods,
        })
        .collect();
    groups.sort_by(|a, b| (a.node, &a.shape).cmp(&(b.node, &b.shape)));
    groups
}

fn all_notes(mirror: &Mirror, readers: Vec<Reader>) -> Vec<Note> {
    let mut notes: Vec<Note> = mirror.notes.values().flatten().chain(&mirror.loose_notes).cloned().collect();
    notes.extend(readers.into_iter().flat_map(|reader| reader.notes));
    for (note, count) in mirror.strangers.values() {
        let mut note = note.clone();
        if *count > 1 {
            note.message = format!("{}, nor are {} more of the kind", note.message, count - 1).into();
        }
        notes.push(note);
    }
    notes.sort();
    notes.dedup();
    notes
}
