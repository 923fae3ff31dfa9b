//! Rules about what is on offer: types, prices, classes, repair policies.

use super::{BETWEEN_QUESTIONS, Bench, Check, PATIENCE, insist, launched};
use crate::provider::{LaunchOrder, RepairAction, TypesAsk};
use kerf_model::resources::{CPU, MEMORY};
use kerf_model::{CapacityType, InstanceType, PoolName, Quantity, labels};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) fn checks<B: Bench>() -> Vec<Check<B>> {
    vec![
        ("a_provider_has_a_name_and_node_classes", a_provider_has_a_name_and_node_classes),
        (
            "types_have_unique_names_and_the_same_list_comes_twice",
            types_have_unique_names_and_the_same_list_comes_twice,
        ),
        ("every_type_defines_every_well_known_label", every_type_defines_every_well_known_label),
        ("every_type_has_room_for_pods", every_type_has_room_for_pods),
        ("every_offering_has_a_zone_and_a_capacity_type", every_offering_has_a_zone_and_a_capacity_type),
        ("what_can_be_had_has_a_positive_price", what_can_be_had_has_a_positive_price),
        ("repair_policies_are_a_valid_set", repair_policies_are_a_valid_set),
        ("a_resolved_class_stays_as_it_is", a_resolved_class_stays_as_it_is),
        ("a_new_instance_has_not_drifted", a_new_instance_has_not_drifted),
    ]
}

fn types_of<B: Bench>(bench: &B, order: &LaunchOrder) -> Arc<[Arc<InstanceType>]> {
    let pool = order.pool.clone().unwrap_or_else(|| PoolName::from("any"));
    let ask = TypesAsk {
        pool: &pool,
        labels: &order.labels,
        requirements: &order.requirements,
        node_class: &order.node_class,
        class_object: order.class_object.as_deref(),
    };
    // Types are known from the start, or soon after.
    for _ in 0..PATIENCE {
        if let Ok(types) = bench.cloud().instance_types(&ask) {
            return types;
        }
        bench.pause(BETWEEN_QUESTIONS);
    }
    panic!("the instance types never became known")
}

fn each_type<B: Bench>(bench: &B, judge: impl Fn(&InstanceType)) {
    let types = types_of(bench, &bench.order("types"));
    assert!(!types.is_empty(), "no instance types at all");
    types.iter().for_each(|it| judge(it));
}

fn a_provider_has_a_name_and_node_classes<B: Bench>(bench: &B) {
    assert!(!bench.cloud().name().is_empty());
    let classes = bench.cloud().node_classes();
    assert!(!classes.is_empty());
    let kinds: BTreeSet<_> = classes.iter().map(|class| (class.group, class.kind)).collect();
    assert_eq!(kinds.len(), classes.len(), "a kind is named twice");
    let order = bench.order("class");
    assert!(
        classes.iter().any(|class| class.is(&order.node_class)),
        "the bench orders from a class of another provider"
    );
}

fn types_have_unique_names_and_the_same_list_comes_twice<B: Bench>(bench: &B) {
    let order = bench.order("types");
    let names = || types_of(bench, &order).iter().map(|it| it.name.clone()).collect::<Vec<_>>();
    let first = names();
    assert_eq!(first, names());
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), first.len(), "two types have one name");
}

/// A pod may select by any of these; a type that is silent about one would be taken for a match.
fn every_type_defines_every_well_known_label<B: Bench>(bench: &B) {
    let common = [labels::INSTANCE_TYPE, labels::ARCH, labels::OS, labels::ZONE, labels::CAPACITY_TYPE];
    let keys: BTreeSet<&str> = common.into_iter().chain(bench.cloud().well_known_labels()).collect();
    each_type(bench, |it| {
        for key in &keys {
            assert!(it.requirements.get(key).is_some(), "{} says nothing about {key}", it.name);
        }
        let name = it.requirements.get(labels::INSTANCE_TYPE).and_then(|requirement| requirement.single());
        assert_eq!(name, Some(&it.name.0));
    });
}

fn every_type_has_room_for_pods<B: Bench>(bench: &B) {
    each_type(bench, |it| {
        let allocatable = it.allocatable();
        for resource in [CPU, MEMORY] {
            assert!(allocatable.get(resource) > Quantity::ZERO, "{} has no {resource}", it.name);
        }
        for (resource, amount) in it.capacity.iter() {
            assert!(amount >= Quantity::ZERO, "{} has {amount} of {resource}", it.name);
        }
    });
}

fn every_offering_has_a_zone_and_a_capacity_type<B: Bench>(bench: &B) {
    each_type(bench, |it| {
        let mut seen = BTreeSet::new();
        for offering in &it.offerings {
            let zone = offering.zone().unwrap_or_else(|| panic!("{}: an offering without a zone", it.name));
            let capacity_type = offering.capacity_type();
            let capacity_type =
                capacity_type.unwrap_or_else(|| panic!("{}: an offering without a capacity type", it.name));
            // There may be several reservations in one zone.
            if capacity_type != CapacityType::Reserved {
                assert!(seen.insert((zone.clone(), capacity_type)), "{}: {zone} {capacity_type:?} twice", it.name);
            }
            let zones = it.requirements.get(labels::ZONE);
            let is_known = zones.is_some_and(|requirement| requirement.has(zone));
            assert!(
                !offering.available || is_known,
                "{}: an offering in {zone}, which the type does not name",
                it.name
            );
        }
    });
}

fn what_can_be_had_has_a_positive_price<B: Bench>(bench: &B) {
    let mut n_priced = 0;
    for it in types_of(bench, &bench.order("types")).iter() {
        for offering in it.offerings.iter().filter(|offering| offering.launchable()) {
            assert!(offering.price.micros > 0, "{} in {:?} costs {}", it.name, offering.zone(), offering.price);
            if let Some(capacity_type) = offering.capacity_type().filter(|kind| *kind != CapacityType::Reserved) {
                let price = bench.cloud().price(&it.name, offering.zone(), capacity_type);
                assert_eq!(price, Some(offering.price), "{} in {:?}", it.name, offering.zone());
                n_priced += 1;
            }
        }
    }
    assert!(n_priced > 0, "nothing can be had");
    assert_eq!(bench.cloud().price(&"no.such.type".into(), None, CapacityType::OnDemand), None);
}

fn repair_policies_are_a_valid_set<B: Bench>(bench: &B) {
    let policies = bench.cloud().repair_policies();
    if policies.is_empty() {
        return;
    }
    let fallbacks: Vec<_> = policies.iter().filter(|policy| policy.reason.is_empty()).collect();
    assert_eq!(fallbacks.len(), 1, "exactly one policy has an empty reason, and is the fallback");
    assert_eq!(fallbacks[0].action, RepairAction::ReplaceNode);
    for policy in &policies {
        assert!(!policy.condition.is_empty());
        assert!(
            ["True", "False", "Unknown"].contains(&&*policy.status),
            "{}: status {:?}",
            policy.condition,
            policy.status
        );
        assert!(policy.priority <= 100, "{}: priority {}", policy.condition, policy.priority);
        let reason = regex_lite::Regex::new(&policy.reason);
        assert!(reason.is_ok(), "{}: reason {:?} is no regular expression", policy.condition, policy.reason);
    }
}

/// Otherwise every look at the class would be a write.
fn a_resolved_class_stays_as_it_is<B: Bench>(bench: &B) {
    let Some(class) = bench.order("class").class_object else { panic!("the bench has no class") };
    let resolve = |class: &Value| {
        let class = Arc::new(class.clone());
        let answer = insist(bench, |cloud| cloud.resolve_class(class.clone()));
        answer.unwrap_or_else(|error| panic!("resolving the class: {error}"))
    };
    let first = resolve(&class);
    let mut resolved = (*class).clone();
    if let (Some(patch), Some(object)) = (first.status.as_object(), resolved.as_object_mut()) {
        let status = object.entry("status").or_insert_with(|| Value::Object(serde_json::Map::new()));
        for (field, value) in patch {
            status[field] = value.clone();
        }
    }
    bench.settle();
    let second = resolve(&resolved);
    assert_eq!(first.status, second.status);
    assert_eq!(first.annotations, second.annotations);
}

fn a_new_instance_has_not_drifted<B: Bench>(bench: &B) {
    let order = bench.order("fresh");
    let instance = launched(bench, &order);
    bench.settle();
    let Some(class) = order.class_object else { panic!("the bench has no class") };
    let drift = insist(bench, |cloud| cloud.drift(super::reference(bench, &instance), class.clone()));
    let drift = drift.unwrap_or_else(|error| panic!("asking for drift: {error}"));
    assert_eq!(drift, None);
}
