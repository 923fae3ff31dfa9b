//! What the description of a pod says about where it can run, before anything else of the cluster is asked.
//!
//! A *shape* is a demand with the cluster's answers still missing: which namespaces a selector means, where a claimed
//! volume is, which default spreads apply. Pods made from one template share one shape.

use crate::read::{self, Reader};
use crate::requests::{self, ContainerDefaults};
use crate::requirement::{self, Author, Written};
use k8s_openapi::api::core::v1::{self as core, PodSpec, PodStatus};
use kerf_api::LabelRules;
use kerf_model::{
    Effect, HostPort, LabelSelector, Labels, NodePolicy, Operator, Requirement, Requirements, Resources,
    SelectorOperator, SelectorTerm, Spread, Text, Toleration, TolerationOperator, WhenUnsatisfiable, labels,
    shared_text,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Shape {
    pub(crate) namespace: Text,
    pub(crate) labels: Labels,
    pub(crate) requests: Resources,
    /// Only told, never planned with.
    pub(crate) limits: Resources,
    pub(crate) node_selector: Requirements,
    pub(crate) required_terms: Vec<Requirements>,
    pub(crate) preferred_terms: Vec<(i32, Requirements)>,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) affinity: Vec<Term>,
    pub(crate) anti_affinity: Vec<Term>,
    pub(crate) preferred_affinity: Vec<(i32, Term)>,
    pub(crate) preferred_anti_affinity: Vec<(i32, Term)>,
    pub(crate) spreads: Vec<Spread>,
    pub(crate) host_ports: Vec<HostPort>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) uses_devices: bool,
}

/// A pod term whose namespaces may still be a selector.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Term {
    pub(crate) topology_key: Text,
    pub(crate) namespaces: BTreeSet<Text>,
    pub(crate) namespace_selector: Option<LabelSelector>,
    pub(crate) selector: Option<LabelSelector>,
}

/// A volume that is claimed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Claim {
    Named {
        volume: Text,
        claim: Text,
    },
    /// Its claim is made with the pod, and is named after both.
    Ephemeral {
        volume: Text,
        storage_class: Option<Text>,
    },
}

/// Where a pod's description stands, and what it is read against.
pub(crate) struct Context<'a> {
    pub(crate) namespace: &'a Text,
    pub(crate) labels: Option<&'a BTreeMap<String, String>>,
    /// Of the pod spec inside its object: `spec`, or `spec.template.spec`.
    pub(crate) field: &'a str,
    pub(crate) rules: &'a LabelRules,
    pub(crate) defaults: &'a ContainerDefaults,
}

impl Shape {
    pub(crate) fn read(reader: &mut Reader, context: &Context<'_>, spec: &PodSpec, status: Option<&PodStatus>) -> Self {
        let field = context.field;
        let mut shape = Shape {
            namespace: context.namespace.clone(),
            labels: read::labels(context.labels),
            requests: requests::of_pod(reader, field, spec, status, context.defaults),
            limits: requests::limits_of_pod(spec),
            tolerations: tolerations(reader, field, spec),
            host_ports: host_ports(spec),
            claims: claims(spec),
            uses_devices: uses_devices(spec),
            ..Shape::default()
        };
        shape.read_node_selector(reader, context, spec);
        if let Some(affinity) = &spec.affinity {
            if let Some(affinity) = &affinity.node_affinity {
                shape.read_node_affinity(reader, context, affinity);
            }
            shape.read_pod_affinity(reader, field, affinity);
        }
        shape.spreads = spreads(reader, field, spec, &shape.labels);
        shape
    }

    /// Whether the pod says that it does not want a node of ours. The heaviest preference counts here as if it were
    /// required, as it does upstream.
    pub(crate) fn is_not_for_us(&self) -> bool {
        let mut asked = self.node_selector.clone();
        let heaviest = self.preferred_terms.iter().rev().max_by_key(|(weight, _)| *weight);
        for term in heaviest.map(|(_, term)| term).into_iter().chain(self.required_terms.first()) {
            asked.add_all(term);
        }
        asked.get(labels::NODEPOOL).is_some_and(|requirement| requirement.operator() == Operator::DoesNotExist)
    }

    fn read_node_selector(&mut self, reader: &mut Reader, context: &Context<'_>, spec: &PodSpec) {
        for (key, value) in spec.node_selector.iter().flatten() {
            let field = format!("{}.nodeSelector[{key}]", context.field);
            if let Err(message) = requirement::check_key(context.rules, key) {
                reader.fault(field, message);
                continue;
            }
            if !kerf_api::validate::is_label_value(value) {
                reader.fault(field, format!("{value:?} cannot be the value of a label"));
            }
            self.node_selector.add(key, Requirement::is_in([value.as_str()]));
        }
    }

    fn read_node_affinity(&mut self, reader: &mut Reader, context: &Context<'_>, affinity: &core::NodeAffinity) {
        let base = format!("{}.affinity.nodeAffinity", context.field);
        let mut contradictions = Vec::new();
        if let Some(required) = &affinity.required_during_scheduling_ignored_during_execution {
            let field = format!("{base}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
            for (position, term) in required.node_selector_terms.iter().enumerate() {
                let field = format!("{field}[{position}]");
                if term.match_fields.as_ref().is_some_and(|fields| !fields.is_empty()) {
                    reader.fault(format!("{field}.matchFields"), "node fields cannot be required, only labels");
                }
                let (requirements, clash) = read_term(reader, context, &field, term, Author::Pod);
                let clash = clash.or_else(|| requirement::first_contradiction(&self.node_selector, &requirements));
                match clash {
                    Some(message) => contradictions.push((field, message)),
                    None => self.required_terms.push(requirements),
                }
            }
        }
        let none_left = self.required_terms.is_empty();
        for (field, message) in contradictions {
            if none_left {
                reader.fault(field, message);
            } else {
                reader.note(field, format!("{message}; the other terms are used"));
            }
        }
        for (position, preferred) in
            affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten().enumerate()
        {
            let field = format!("{base}.preferredDuringSchedulingIgnoredDuringExecution[{position}].preference");
            let mut requirements = Requirements::new();
            let mut clash = None;
            let stumbled = reader.leniently(|reader| {
                (requirements, clash) = read_term(reader, context, &field, &preferred.preference, Author::Unchecked);
            });
            match clash {
                Some(message) => reader.note(field, format!("{message}; the preference is left out")),
                None if stumbled => {}
                None => self.preferred_terms.push((preferred.weight, requirements)),
            }
        }
    }

    fn read_pod_affinity(&mut self, reader: &mut Reader, field: &str, affinity: &core::Affinity) {
        const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
        const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
        let (namespace, own_labels) = (self.namespace.clone(), self.labels.clone());
        let mut list = |field: String, terms: Option<&Vec<core::PodAffinityTerm>>| -> Vec<Term> {
            terms
                .into_iter()
                .flatten()
                .enumerate()
                .map(|(position, term)| {
                    pod_term(reader, &format!("{field}[{position}]"), term, &namespace, &own_labels)
                })
                .collect()
        };
        if let Some(affinity) = &affinity.pod_affinity {
            self.affinity = list(
                format!("{field}.affinity.podAffinity.{REQUIRED}"),
                affinity.required_during_scheduling_ignored_during_execution.as_ref(),
            );
        }
        if let Some(affinity) = &affinity.pod_anti_affinity {
            self.anti_affinity = list(
                format!("{field}.affinity.podAntiAffinity.{REQUIRED}"),
                affinity.required_during_scheduling_ignored_during_execution.as_ref(),
            );
        }
        let mut weighted = |field: String, terms: Option<&Vec<core::WeightedPodAffinityTerm>>| -> Vec<(i32, Term)> {
            let mut out = Vec::new();
            for (position, weighted) in terms.into_iter().flatten().enumerate() {
                let field = format!("{field}[{position}].podAffinityTerm");
                let mut term = None;
                let stumbled = reader.leniently(|reader| {
                    term = Some(pod_term(reader, &field, &weighted.pod_affinity_term, &namespace, &own_labels));
                });
                if !stumbled {
                    out.extend(term.map(|term| (weighted.weight, term)));
                }
            }
            out
        };
        if let Some(affinity) = &affinity.pod_affinity {
            self.preferred_affinity = weighted(
                format!("{field}.affinity.podAffinity.{PREFERRED}"),
                affinity.preferred_during_scheduling_ignored_during_execution.as_ref(),
            );
        }
        if let Some(affinity) = &affinity.pod_anti_affinity {
            self.preferred_anti_affinity = weighted(
                format!("{field}.affinity.podAntiAffinity.{PREFERRED}"),
                affinity.preferred_during_scheduling_ignored_during_execution.as_ref(),
            );
        }
    }
}

/// The requirements of one node-affinity term, and how they contradict each other, if they do.
fn read_term(
    reader: &mut Reader,
    context: &Context<'_>,
    field: &str,
    term: &core::NodeSelectorTerm,
    author: Author,
) -> (Requirements, Option<String>) {
    let mut requirements = Requirements::new();
    let mut clash = None;
    for (position, expression) in term.match_expressions.iter().flatten().enumerate() {
        let field = format!("{field}.matchExpressions[{position}]");
        let written = Written::of_term(expression);
        let found = requirement::add(reader, &field, &mut requirements, written, author, context.rules);
        clash = clash.or(found);
    }
    (requirements, clash)
}

fn pod_term(reader: &mut Reader, field: &str, term: &core::PodAffinityTerm, namespace: &Text, own: &Labels) -> Term {
    if term.topology_key.is_empty() {
        reader.fault(format!("{field}.topologyKey"), "it is empty");
    }
    let namespace_selector = reader.selector(&format!("{field}.namespaceSelector"), term.namespace_selector.as_ref());
    let mut namespaces: BTreeSet<Text> = term.namespaces.iter().flatten().map(|name| name.as_str().into()).collect();
    if namespaces.is_empty() && namespace_selector.is_none() {
        namespaces.insert(namespace.clone());
    }
    let mut selector = reader.selector(&format!("{field}.labelSelector"), term.label_selector.as_ref());
    for (keys, operator) in
        [(&term.match_label_keys, SelectorOperator::In), (&term.mismatch_label_keys, SelectorOperator::NotIn)]
    {
        selector = selector.map(|selector| with_own_labels(selector, keys.as_ref(), operator, own));
    }
    Term { topology_key: normalised(&term.topology_key), namespaces, namespace_selector, selector }
}

/// Adds the pod's own values of the given label keys; keys that the pod does not have add nothing.
fn with_own_labels(
    mut selector: LabelSelector,
    keys: Option<&Vec<String>>,
    operator: SelectorOperator,
    own: &Labels,
) -> LabelSelector {
    for key in keys.into_iter().flatten() {
        if let Some(value) = own.get(key.as_str()) {
            selector = selector.and(SelectorTerm {
                key: key.as_str().into(),
                operator,
                values: BTreeSet::from([value.clone()]),
            });
        }
    }
    selector
}

fn spreads(reader: &mut Reader, field: &str, spec: &PodSpec, own: &Labels) -> Vec<Spread> {
    let mut out = Vec::new();
    for (position, written) in spec.topology_spread_constraints.iter().flatten().enumerate() {
        let field = format!("{field}.topologySpreadConstraints[{position}]");
        if let Some(mut spread) = read_spread(reader, &field, written) {
            spread.selector = spread.selector.map(|selector| {
                with_own_labels(selector, written.match_label_keys.as_ref(), SelectorOperator::In, own)
            });
            out.push(spread);
        }
    }
    out
}

/// One spread constraint, without the pod's own labels.
pub(crate) fn read_spread(
    reader: &mut Reader,
    field: &str,
    written: &core::TopologySpreadConstraint,
) -> Option<Spread> {
    let policy = |reader: &mut Reader, name: &str, text: Option<&str>, default: NodePolicy| match text {
        None => default,
        Some("Honor") => NodePolicy::Honor,
        Some("Ignore") => NodePolicy::Ignore,
        Some(other) => {
            reader.fault(format!("{field}.{name}"), format!("unknown policy {other:?} (use Honor or Ignore)"));
            default
        }
    };
    let when = match written.when_unsatisfiable.as_str() {
        "DoNotSchedule" => WhenUnsatisfiable::DoNotSchedule,
        "ScheduleAnyway" => WhenUnsatisfiable::ScheduleAnyway,
        other => {
            reader.fault(
                format!("{field}.whenUnsatisfiable"),
                format!("{other:?} is neither DoNotSchedule nor ScheduleAnyway"),
            );
            return None;
        }
    };
    let Some(max_skew) = u32::try_from(written.max_skew).ok().filter(|skew| *skew > 0) else {
        reader.fault(format!("{field}.maxSkew"), format!("{} is not above zero", written.max_skew));
        return None;
    };
    if written.topology_key.is_empty() {
        reader.fault(format!("{field}.topologyKey"), "it is empty");
        return None;
    }
    Some(Spread {
        topology_key: normalised(&written.topology_key),
        max_skew,
        min_domains: written.min_domains.and_then(|count| u32::try_from(count).ok()).filter(|count| *count > 0),
        when,
        selector: reader.selector(&format!("{field}.labelSelector"), written.label_selector.as_ref()),
        node_affinity_policy: policy(
            reader,
            "nodeAffinityPolicy",
            written.node_affinity_policy.as_deref(),
            NodePolicy::Honor,
        ),
        node_taints_policy: policy(
            reader,
            "nodeTaintsPolicy",
            written.node_taints_policy.as_deref(),
            NodePolicy::Ignore,
        ),
    })
}

/// Sorted, because their order means nothing and equal demands should be equal.
fn tolerations(reader: &mut Reader, field: &str, spec: &PodSpec) -> Vec<Toleration> {
    let mut out = Vec::new();
    for (position, written) in spec.tolerations.iter().flatten().enumerate() {
        let field = |of: &str| format!("{field}.tolerations[{position}].{of}");
        let operator = match written.operator.as_deref() {
            None | Some("" | "Equal") => TolerationOperator::Equal,
            Some("Exists") => TolerationOperator::Exists,
            Some("Lt") => TolerationOperator::Lt,
            Some("Gt") => TolerationOperator::Gt,
            Some(other) => {
                reader.fault(field("operator"), format!("unknown operator {other:?} (use Exists, Equal, Lt or Gt)"));
                continue;
            }
        };
        let effect = match written.effect.as_deref() {
            None | Some("") => None,
            Some(text) => match Effect::parse(text) {
                Some(effect) => Some(effect),
                None => {
                    reader.fault(field("effect"), format!("unknown effect {text:?}"));
                    continue;
                }
            },
        };
        out.push(Toleration {
            key: shared_text(written.key.as_deref().unwrap_or_default()),
            operator,
            value: shared_text(written.value.as_deref().unwrap_or_default()),
            effect,
        });
    }
    out.sort();
    out.dedup();
    out
}

/// Ports that ordinary containers take on the node. A pod on the host's network takes all its container ports.
fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let on_host = spec.host_network == Some(true);
    let mut out = Vec::new();
    for port in spec.containers.iter().flat_map(|container| container.ports.iter().flatten()) {
        let number = match port.host_port {
            Some(number) if number > 0 => number,
            _ if on_host => port.container_port,
            _ => continue,
        };
        if let Ok(number) = u16::try_from(number) {
            out.push(HostPort {
                ip: port.host_ip.as_deref().unwrap_or_default().into(),
                port: number,
                protocol: port.protocol.as_deref().unwrap_or("TCP").into(),
            });
        }
    }
    out.sort();
    out.dedup();
    out
}

fn claims(spec: &PodSpec) -> Vec<Claim> {
    let mut out = Vec::new();
    for volume in spec.volumes.iter().flatten() {
        let name: Text = volume.name.as_str().into();
        if let Some(source) = &volume.persistent_volume_claim {
            out.push(Claim::Named { volume: name, claim: source.claim_name.as_str().into() });
        } else if let Some(source) = &volume.ephemeral {
            let storage_class = source
                .volume_claim_template
                .as_ref()
                .and_then(|template| template.spec.storage_class_name.as_deref().map(Into::into));
            out.push(Claim::Ephemeral { volume: name, storage_class });
        }
    }
    out
}

fn uses_devices(spec: &PodSpec) -> bool {
    let of_container = |container: &core::Container| {
        container
            .resources
            .as_ref()
            .and_then(|resources| resources.claims.as_ref())
            .is_some_and(|claims| !claims.is_empty())
    };
    spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty())
        || spec.containers.iter().chain(spec.init_containers.iter().flatten()).any(of_container)
}

fn normalised(key: &str) -> Text {
    labels::normalise(key).into()
}
