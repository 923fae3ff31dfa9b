//! Which types can share a template: those for which it would say the same.

use super::{TemplateError, TemplateWants, TypeWanted, class_name};
use crate::bootstrap;
use crate::classes::images::Chooser;
use crate::supply::ResolvedKubelet;
use kerf_api::{Ami, Kubelet, labels as keys};
use kerf_model::{CapacityType, Requirement, Text, TypeName};

/// The resource that pods ask for when they want the fast network.
const EFA: &str = "vpc.amazonaws.com/efa";

/// Types of one template.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) shared: Shared,
    pub(super) types: Vec<TypeName>,
}

/// What they have in common.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shared {
    pub(super) image_id: String,
    pub(super) n_efa: i32,
    pub(super) kubelet: ResolvedKubelet,
    pub(super) reservation: Option<Reservation>,
}

/// A reservation that a template is bound to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reservation {
    pub(super) id: Text,
    /// `default` or `capacity-block`.
    pub(super) kind: Text,
    pub(super) is_interruptible: bool,
}

/// In the order in which their first types were wanted; groups of one type by reservation.
pub(super) fn groups(wants: &TemplateWants<'_>) -> Result<Vec<Group>, TemplateError> {
    let class = class_name(wants.class);
    let lacks = |why: &str| Err(TemplateError::Class { class: class.clone(), why: why.to_owned() });
    let status = wants.class.status.clone().unwrap_or_default();
    if status.amis.is_empty() {
        return lacks("status.amis is empty: no image was found for spec.amiSelectorTerms");
    }
    if status.security_groups.is_empty() {
        return lacks(
            "status.securityGroups is empty: no security group was found for spec.securityGroupSelectorTerms",
        );
    }
    let images = Chooser::new(&status.amis);
    let wants_efa = !wants.order.requests.get(EFA).is_zero();
    let mut groups: Vec<Group> = Vec::new();
    for wanted in &wants.types {
        let Some(image) = images.choose(wanted.instance_type) else { continue };
        let n_efa = if wants_efa { wanted.instance_type.capacity.get(EFA).units() } else { 0 };
        let kubelet = wants.supply.kubelet_for(wants.class, wanted.instance_type)?;
        let kubelet = as_told(kubelet, wants.class.spec.kubelet.as_ref());
        for reservation in reservations(wanted, wants.capacity_type) {
            let shared = Shared {
                image_id: image.id.clone(),
                n_efa: i32::try_from(n_efa).unwrap_or(i32::MAX),
                kubelet: kubelet.clone(),
                reservation,
            };
            let name = wanted.instance_type.name.clone();
            match groups.iter_mut().find(|group| group.shared == shared) {
                Some(group) => group.types.push(name),
                None => groups.push(Group { shared, types: vec![name] }),
            }
        }
    }
    if groups.is_empty() {
        return Err(TemplateError::NoImage { class, why: unfit(&status.amis, &wants.types) });
    }
    Ok(groups)
}

/// What the node will hear: only amounts that the class sets.
fn as_told(resolved: ResolvedKubelet, kubelet: Option<&Kubelet>) -> ResolvedKubelet {
    let empty = Kubelet::new();
    let kubelet = kubelet.unwrap_or(&empty);
    ResolvedKubelet {
        kube_reserved: bootstrap::reserved(kubelet, "kubeReserved", &resolved.kube_reserved),
        system_reserved: bootstrap::reserved(kubelet, "systemReserved", &resolved.system_reserved),
        ..resolved
    }
}

/// None, once, unless the capacity is reserved; then each reservation that is left for the type.
fn reservations(wanted: &TypeWanted<'_>, capacity_type: CapacityType) -> Vec<Option<Reservation>> {
    if capacity_type != CapacityType::Reserved {
        return vec![None];
    }
    let reserved = wanted.offerings.iter().filter(|offering| offering.capacity_type() == Some(CapacityType::Reserved));
    let mut found: Vec<Reservation> = reserved
        .filter_map(|offering| {
            let single = |key: &str| offering.requirements.get(key).and_then(Requirement::single);
            Some(Reservation {
                id: single(keys::CAPACITY_RESERVATION_ID)?.clone(),
                kind: single(keys::CAPACITY_RESERVATION_TYPE).cloned().unwrap_or_else(|| "default".into()),
                is_interruptible: single(keys::CAPACITY_RESERVATION_INTERRUPTIBLE).is_some_and(|v| &**v == "true"),
            })
        })
        .collect();
    found.sort();
    found.dedup();
    found.into_iter().map(Some).collect()
}

fn unfit(images: &[Ami], types: &[TypeWanted<'_>]) -> String {
    let names: Vec<&str> = types.iter().map(|wanted| &*wanted.instance_type.name.0).take(5).collect();
    let more =
        if types.len() > names.len() { format!(" and {} more", types.len() - names.len()) } else { String::new() };
    let need = |need: &kerf_api::Requirement| match need.values[..] {
        [] => format!("{} {}", need.key, need.operator),
        _ => format!("{} {} [{}]", need.key, need.operator, need.values.join(", ")),
    };
    let needs = |ami: &Ami| ami.requirements.iter().map(need).collect::<Vec<_>>().join(", ");
    let images: Vec<String> = images.iter().map(|ami| format!("{} ({})", ami.id, needs(ami))).collect();
    format!("none of its images runs on {}{more}: {}", names.join(", "), images.join("; "))
}
