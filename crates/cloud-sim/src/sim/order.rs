//! From an order to a machine: what its class says, which offerings it accepts, and what it gets.

use super::fleet::{Machine, Placing};
use super::yard::NewMachine;
use super::{Inner, Span};
use crate::choice::{Candidate, candidates, names_types};
use crate::kwok::{self, node::draft};
use kerf_api::{Ami, Ec2NodeClass, hash, labels as api_labels, taints};
use kerf_cloud::{CloudError, Instance, LaunchOrder, OfferingKey};
use kerf_model::{
    Effect, InstanceType, Labels, Money, Operator, Requirement, Requirements, Resources, Taint, Text, UnixMillis,
    labels,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// As many types as one fleet request names.
const TYPES_MAX: usize = 60;
const EFA: &str = "vpc.amazonaws.com/efa";

/// What an order's class means for it.
pub(super) struct OrderClass {
    /// None: a KWOKNodeClass.
    pub(super) ec2: Option<Box<Ec2NodeClass>>,
    /// Said by the class; None: as long as machines take.
    boot_delay: Option<Duration>,
}

/// A place in the simulated network.
pub(super) struct Host {
    pub(super) name: Text,
    pub(super) address: Text,
}

/// One machine, bought.
pub(super) struct Purchase {
    pub(super) instance: Instance,
    pub(super) machine: NewMachine,
    pub(super) key: OfferingKey,
    pub(super) price: Money,
    pub(super) placing: Placing,
}

pub(super) fn kwok_class(order: &LaunchOrder) -> Result<OrderClass, CloudError> {
    Ok(OrderClass { ec2: None, boot_delay: Some(kwok::registration_delay(order)?) })
}

/// The class, if machines may be launched from it now.
pub(super) fn ec2_class(order: &LaunchOrder) -> Result<OrderClass, CloudError> {
    let named = format!("EC2NodeClass {}", order.node_class.name);
    let given_up = |why: &str| {
        let message = format!("NodeClaim {}: {named} {why}", order.claim);
        CloudError::NoCapacity { message: message.into(), sold_out: Vec::new() }
    };
    let object = order.class_object.as_deref().ok_or_else(|| given_up("does not exist"))?;
    let class = super::read_class(object)?;
    if class.metadata.deletion_timestamp.is_some() {
        return Err(given_up("is being deleted"));
    }
    let not_ready = |why: String| CloudError::ClassNotReady { message: format!("{named} {why}").into() };
    let conditions = class.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    match ready {
        Some(ready) if ready.status == "False" => {
            return Err(not_ready(format!("is not ready: {} {}", ready.reason, ready.message)));
        }
        Some(ready) if ready.status == "True" => {
            let (seen, current) = (ready.observed_generation, class.metadata.generation);
            if current.is_some() && seen != current {
                return Err(not_ready("has changed, and was not looked at again yet".to_owned()));
            }
        }
        _ => {
            let message = format!("NodeClaim {}: whether {named} is ready is not known yet", order.claim);
            return Err(CloudError::LaunchFailed {
                reason: "NodeClassReadinessUnknown".into(),
                message: message.into(),
            });
        }
    }
    Ok(OrderClass { ec2: Some(Box::new(class)), boot_delay: None })
}

/// What the order accepts, the cheapest first: types that have an image and room for its requests, as many as one request can name.
pub(super) fn acceptable<'a>(
    types: &'a [Arc<InstanceType>],
    order: &LaunchOrder,
    class: &OrderClass,
) -> Result<Vec<Candidate<'a>>, CloudError> {
    let suiting = candidates(types, order);
    let n_suiting = suiting.len();
    // An overlay may have given the types that are named what only the operator knows of.
    let takes_any = class.ec2.is_none() && names_types(order) && !suiting.iter().any(|candidate| candidate.fits(order));
    let mut names = BTreeSet::new();
    let mut accepted = Vec::new();
    for candidate in suiting {
        let has_place = names.len() < TYPES_MAX || names.contains(&candidate.it.name);
        let has_image = || class.ec2.as_ref().is_none_or(|class| image_of(class, candidate.it).is_some());
        if has_place && (takes_any || candidate.fits(order)) && has_image() {
            names.insert(candidate.it.name.clone());
            accepted.push(candidate);
        }
    }
    if accepted.is_empty() {
        let why = match n_suiting {
            0 => "no offering meets its requirements".to_owned(),
            n => format!(
                "none of the {n} offerings that meet its requirements has an image and room for {}",
                order.requests
            ),
        };
        let message = format!("NodeClaim {}: {why}", order.claim);
        return Err(CloudError::NoCapacity { message: message.into(), sold_out: Vec::new() });
    }
    Ok(accepted)
}

/// None of what suits is to be had.
pub(super) fn no_capacity(order: &LaunchOrder, sold_out: Vec<OfferingKey>) -> CloudError {
    let n_suiting = sold_out.len();
    let message = format!("NodeClaim {}: {n_suiting} offerings suit it, and none of them has capacity", order.claim);
    CloudError::NoCapacity { message: message.into(), sold_out }
}

pub(super) fn purchase(
    inner: &Inner,
    order: &LaunchOrder,
    class: &OrderClass,
    chosen: &Candidate<'_>,
    host: Host,
    sold_out: Vec<OfferingKey>,
    now: UnixMillis,
) -> Purchase {
    let mut purchase = match &class.ec2 {
        None => kwok_purchase(order, chosen, now),
        Some(class) => ec2_purchase(inner, order, class, chosen, host, now),
    };
    purchase.instance.sold_out = sold_out;
    let drawn = |purpose: &str, span: Span| span.drawn(inner.chance.bits(purpose, &purchase.instance.provider_id, 0));
    let mut boot = class.boot_delay.unwrap_or_else(|| Duration::from_millis(drawn("boot", inner.options.boot)));
    let faults = &inner.options.faults;
    if inner.chance.share("slow boot", &purchase.instance.provider_id, 0) < faults.slow_boot_share {
        boot *= faults.slow_boot_factor;
    }
    purchase.machine.boot_delay = boot;
    purchase.machine.ready_delay = Duration::from_millis(drawn("ready", inner.options.ready));
    if inner.chance.share("short memory", chosen.it.name.as_str(), 0) < faults.short_memory_share {
        shorten_memory(&mut purchase.machine, faults.short_memory_percent);
    }
    purchase
}

fn kwok_purchase(order: &LaunchOrder, chosen: &Candidate<'_>, now: UnixMillis) -> Purchase {
    let draft = draft(order, chosen);
    Purchase {
        instance: draft.instance(order, now.0),
        machine: NewMachine {
            name: draft.name,
            provider_id: draft.provider_id,
            labels: draft.labels,
            annotations: draft.annotations,
            capacity: draft.capacity,
            allocatable: draft.allocatable,
            taints: vec![unregistered()],
            boot_delay: Duration::ZERO,
            ready_delay: Duration::ZERO,
            attach_limits: chosen.it.attach_limits.clone(),
            internal_ip: None,
        },
        key: chosen.key.clone(),
        price: chosen.offering.price,
        placing: Placing::default(),
    }
}

fn ec2_purchase(
    inner: &Inner,
    order: &LaunchOrder,
    class: &Ec2NodeClass,
    chosen: &Candidate<'_>,
    host: Host,
    now: UnixMillis,
) -> Purchase {
    // The launches of one claim differ by when they were: after an instance that is gone comes another.
    let id = format!("i-0{}", inner.chance.hex("instance", &format!("{} {}", order.uid, now.0), 16));
    let provider_id: Text = format!("aws:///{}/{id}", chosen.key.zone).into();
    let status = class.status.clone().unwrap_or_default();
    let keeps_efa = !order.requests.get(EFA).is_zero() || class.spec.network_interfaces.is_some();
    let present = |resources: Resources| {
        let there = resources.0.into_iter().filter(|(name, amount)| !amount.is_zero() && (keeps_efa || **name != *EFA));
        Resources(there.collect())
    };
    let (capacity, allocatable) =
        (present(chosen.it.capacity.clone()), present(chosen.it.allocatable_of(chosen.offering)));
    let labels = instance_labels(chosen);
    let class_hash: Text = class.hash(None).into();
    let mut annotations = BTreeMap::from([
        (Text::from(api_labels::EC2_NODE_CLASS_HASH), class_hash.clone()),
        (Text::from(api_labels::EC2_NODE_CLASS_HASH_VERSION), Text::from(hash::EC2_NODE_CLASS_HASH_VERSION)),
    ]);
    if let Some(profile) = &status.instance_profile {
        annotations.insert(api_labels::INSTANCE_PROFILE_NAME.into(), profile.as_str().into());
    }
    let mut all_taints = order.taints.clone();
    all_taints.extend(order.startup_taints.iter().cloned());
    all_taints.push(unregistered());
    Purchase {
        machine: NewMachine {
            labels: kubelet_labels(order, class, &labels, &host.name),
            name: host.name,
            provider_id: provider_id.clone(),
            annotations: BTreeMap::new(),
            capacity: capacity.clone(),
            allocatable: allocatable.clone(),
            taints: all_taints,
            boot_delay: Duration::ZERO,
            ready_delay: Duration::ZERO,
            attach_limits: chosen.it.attach_limits.clone(),
            internal_ip: Some(host.address),
        },
        instance: Instance {
            provider_id,
            image_id: image_of(class, chosen.it).map(|image| image.id.as_str().into()).unwrap_or_default(),
            claim: order.claim.0.clone(),
            labels: labels.into(),
            annotations,
            capacity: capacity.into(),
            allocatable: allocatable.into(),
            is_ending: false,
            sold_out: Vec::new(),
            created_ms: now.0,
        },
        key: chosen.key.clone(),
        price: chosen.offering.price,
        placing: Placing {
            class_hash: Some(class_hash),
            subnet: status
                .subnets
                .iter()
                .find(|subnet| *subnet.zone == *chosen.key.zone)
                .map(|subnet| subnet.id.as_str().into()),
            security_groups: status.security_groups.iter().map(|group| group.id.as_str().into()).collect(),
        },
    }
}

/// Every label that has one value for the type, and what the offering decides.
fn instance_labels(chosen: &Candidate<'_>) -> Labels {
    let reservation = [
        api_labels::CAPACITY_RESERVATION_ID,
        api_labels::CAPACITY_RESERVATION_TYPE,
        api_labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
    ];
    let mut out = Labels::new();
    for requirements in [&chosen.it.requirements, &chosen.offering.requirements] {
        let single =
            requirements.iter().filter_map(|(key, requirement)| Some((key.clone(), requirement.single()?.clone())));
        out.extend(single.filter(|(key, _)| !reservation.contains(&&**key)));
    }
    out.insert(api_labels::INSTANCE_TENANCY.into(), "default".into());
    out
}

/// What the machine's own kubelet and the cloud's controller put on its node; the operator adds the rest at registration.
fn kubelet_labels(order: &LaunchOrder, class: &Ec2NodeClass, instance: &Labels, node: &Text) -> Labels {
    // A kubelet may not set labels of these domains on itself.
    let is_free = |key: &str| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        !["kubernetes.io", "k8s.io"].iter().any(|taken| domain == *taken || domain.ends_with(&format!(".{taken}")))
    };
    let mut out: Labels =
        order.labels.iter().filter(|(key, _)| is_free(key)).map(|(k, v)| (k.clone(), v.clone())).collect();
    let known = [
        labels::CAPACITY_TYPE,
        labels::INSTANCE_TYPE,
        labels::ARCH,
        labels::OS,
        labels::ZONE,
        labels::REGION,
        api_labels::ZONE_ID,
        labels::WINDOWS_BUILD,
    ];
    out.extend(known.iter().filter_map(|key| Some((Text::from(*key), instance.get(*key)?.clone()))));
    out.insert(labels::HOSTNAME.into(), node.clone());
    if class.resolved_ami_family().as_str() != "Custom" {
        out.insert(api_labels::DO_NOT_SYNC_TAINTS.into(), "true".into());
    }
    out
}

/// The first image of the class that the type can run.
fn image_of<'a>(class: &'a Ec2NodeClass, it: &InstanceType) -> Option<&'a Ami> {
    let images = class.status.iter().flat_map(|status| &status.amis);
    images.into_iter().find(|image| it.requirements.compatible(&image_requirements(image), |_| false).is_ok())
}

fn image_requirements(image: &Ami) -> Requirements {
    let mut out = Requirements::new();
    for written in &image.requirements {
        let values: Vec<Text> = written.values.iter().map(|value| value.as_str().into()).collect();
        let operator = Operator::parse(written.operator.as_str());
        if let Some(requirement) = operator.and_then(|operator| Requirement::new(operator, &values)) {
            out.add(&written.key, requirement);
        }
    }
    out
}

/// Whether a machine is no longer what its class describes. What the class has not found yet is no reason.
pub(super) fn drift(
    class: &Ec2NodeClass,
    machine: &Machine,
    it: Option<&InstanceType>,
) -> Result<Option<Text>, CloudError> {
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let status = class.status.clone().unwrap_or_default();
    if status.amis.is_empty() || status.security_groups.is_empty() || status.subnets.is_empty() {
        let message = format!("EC2NodeClass {name} has no images, security groups or subnets: drift cannot be told");
        return Err(CloudError::Other { message: message.into() });
    }
    let placing = &machine.placing;
    let image = it.and_then(|it| image_of(class, it));
    let groups: BTreeSet<Text> = status.security_groups.iter().map(|group| group.id.as_str().into()).collect();
    let has_subnet = placing.subnet.as_ref().is_none_or(|id| status.subnets.iter().any(|subnet| *subnet.id == **id));
    let reasons = [
        ("NodeClassDrift", placing.class_hash.as_ref().is_some_and(|hash| **hash != *class.hash(None))),
        ("AMIDrift", image.is_none_or(|image| *image.id != *machine.instance.image_id)),
        ("SecurityGroupDrift", placing.security_groups != groups),
        ("SubnetDrift", !has_subnet),
    ];
    Ok(reasons.into_iter().find(|(_, holds)| *holds).map(|(reason, _)| reason.into()))
}

/// The machine has less memory than the catalogue says; nobody knows before it has joined.
fn shorten_memory(machine: &mut NewMachine, percent: u32) {
    use kerf_model::Quantity;
    use kerf_model::resources::MEMORY;
    let whole = machine.capacity.get(MEMORY).units();
    let missing = Quantity::from_units(whole / 100 * i64::from(percent));
    for resources in [&mut machine.capacity, &mut machine.allocatable] {
        let left = resources.get(MEMORY) - missing;
        resources.set(MEMORY, left.max(Quantity::ZERO));
    }
}

fn unregistered() -> Taint {
    Taint { key: taints::UNREGISTERED.into(), value: "".into(), effect: Effect::NoExecute }
}
