//! Rules about instances: buying them, finding them, restarting and ending them.

use super::{BETWEEN_QUESTIONS, Bench, Check, bought, end, get, insist, launch, launched, list, reference};
use crate::provider::{CloudError, Instance, InstanceRef, LaunchOrder, OfferingKey};
use kerf_model::{Requirement, labels};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) fn checks<B: Bench>() -> Vec<Check<B>> {
    vec![
        ("a_launch_gives_what_was_asked_for", a_launch_gives_what_was_asked_for),
        ("a_claim_that_is_launched_twice_is_one_instance", a_claim_that_is_launched_twice_is_one_instance),
        (
            "a_claim_that_is_launched_by_two_at_once_is_one_instance",
            a_claim_that_is_launched_by_two_at_once_is_one_instance,
        ),
        (
            "a_claim_that_is_launched_again_after_a_crash_is_one_instance",
            a_claim_that_is_launched_again_after_a_crash_is_one_instance,
        ),
        ("two_claims_are_two_instances", two_claims_are_two_instances),
        ("reads_catch_up_with_launches", reads_catch_up_with_launches),
        ("what_is_to_be_avoided_is_not_bought", what_is_to_be_avoided_is_not_bought),
        ("an_offering_that_ran_dry_is_named_and_another_bought", an_offering_that_ran_dry_is_named_and_another_bought),
        ("a_claim_that_only_dry_offerings_suit_has_no_capacity", a_claim_that_only_dry_offerings_suit_has_no_capacity),
        ("what_ran_dry_is_still_listed", what_ran_dry_is_still_listed),
        ("a_claim_that_nothing_suits_has_no_capacity", a_claim_that_nothing_suits_has_no_capacity),
        ("a_claim_without_a_ready_class_is_given_up", a_claim_without_a_ready_class_is_given_up),
        ("termination_ends_with_not_found_and_may_be_repeated", termination_ends_with_not_found_and_may_be_repeated),
        ("an_instance_that_is_ending_says_so", an_instance_that_is_ending_says_so),
        (
            "an_instance_that_is_ended_at_once_leaves_nothing_behind",
            an_instance_that_is_ended_at_once_leaves_nothing_behind,
        ),
        ("what_never_was_is_not_found", what_never_was_is_not_found),
        ("one_operation_restarts_once", one_operation_restarts_once),
    ]
}

fn of_claim(instances: &[Instance], order: &LaunchOrder) -> Vec<Instance> {
    instances.iter().filter(|instance| *instance.claim == *order.claim.0).cloned().collect()
}

fn a_launch_gives_what_was_asked_for<B: Bench>(bench: &B) {
    let order = bench.order("asked-for");
    let instance = launched(bench, &order);
    assert!(!instance.provider_id.is_empty());
    assert_eq!(instance.claim, order.claim.0);
    assert!(!instance.is_ending);
    bought(&instance);
    for key in [labels::ARCH, labels::OS] {
        assert!(instance.labels.contains_key(key), "no label {key}");
    }
    for (key, requirement) in order.requirements.iter() {
        if let Some(value) = instance.labels.get(key) {
            assert!(requirement.has(value), "{key} is {value}, asked for was {requirement}");
        }
    }
    assert!(order.requests.fits(&instance.allocatable), "{} do not fit into {}", order.requests, instance.allocatable);
}

fn a_claim_that_is_launched_twice_is_one_instance<B: Bench>(bench: &B) {
    let order = bench.order("twice");
    let first = launched(bench, &order);
    assert_eq!(launched(bench, &order).provider_id, first.provider_id);
    bench.settle();
    let late = launched(bench, &order);
    assert_eq!(late.provider_id, first.provider_id);
    assert_eq!(bought(&late), bought(&first));
    assert_eq!(of_claim(&list(bench), &order).len(), 1);
}

fn a_claim_that_is_launched_by_two_at_once_is_one_instance<B: Bench>(bench: &B) {
    let order = Arc::new(bench.order("at-once"));
    let (one, other) = (bench.cloud().launch(order.clone()), bench.cloud().launch(order.clone()));
    let answers = [bench.wait(one), bench.wait(other)];
    let ids: Vec<_> = answers.into_iter().flatten().map(|instance| instance.provider_id).collect();
    let last = launched(bench, &order).provider_id;
    assert!(ids.iter().all(|id| *id == last), "{ids:?} and {last}");
    bench.settle();
    assert_eq!(of_claim(&list(bench), &order).len(), 1);
}

fn a_claim_that_is_launched_again_after_a_crash_is_one_instance<B: Bench>(bench: &B) {
    let order = Arc::new(bench.order("crash"));
    let first = launched(bench, &order);
    let Some(successor) = bench.successor() else { return };
    let again = insist(bench, |_| successor.launch(order.clone()));
    assert_eq!(again.map(|instance| instance.provider_id).ok(), Some(first.provider_id));
    bench.settle();
    assert_eq!(of_claim(&list(bench), &order).len(), 1);
}

fn two_claims_are_two_instances<B: Bench>(bench: &B) {
    let ids = ["one", "other"].map(|name| launched(bench, &bench.order(name)).provider_id);
    assert_ne!(ids[0], ids[1]);
}

fn reads_catch_up_with_launches<B: Bench>(bench: &B) {
    let order = bench.order("reads");
    let instance = launched(bench, &order);
    // Right after the launch nobody may know of it yet, but nobody may say anything else.
    match get(bench, &instance.provider_id) {
        Ok(found) => assert_eq!(found.provider_id, instance.provider_id),
        Err(error) => assert!(error.is_not_found(), "{error:?}"),
    }
    bench.settle();
    let found = get(bench, &instance.provider_id).unwrap_or_else(|error| panic!("getting it: {error}"));
    let [listed] = &of_claim(&list(bench), &order)[..] else { panic!("it is not listed exactly once") };
    for read in [&found, listed] {
        assert_eq!((&read.provider_id, &read.claim), (&instance.provider_id, &instance.claim));
        assert_eq!(bought(read), bought(&instance));
        assert_eq!((&read.capacity, &read.allocatable), (&instance.capacity, &instance.allocatable));
        assert!(!read.is_ending);
        assert!(read.created_ms > 0);
    }
}

fn what_is_to_be_avoided_is_not_bought<B: Bench>(bench: &B) {
    let mut avoid = Vec::new();
    for name in ["first", "second", "third"] {
        let order = LaunchOrder { avoid: avoid.clone(), ..bench.order(name) };
        let key = bought(&launched(bench, &order));
        assert!(!avoid.contains(&key), "{key} was to be avoided");
        avoid.push(key);
    }
}

/// Sells out what an order would get. None when this cloud has no end of stock.
fn run_dry<B: Bench>(bench: &B) -> Option<OfferingKey> {
    let probe = launched(bench, &bench.order("probe"));
    let key = bought(&probe);
    bench.sell_out(&key).then_some(key)
}

fn an_offering_that_ran_dry_is_named_and_another_bought<B: Bench>(bench: &B) {
    let Some(dry) = run_dry(bench) else { return };
    let instance = launched(bench, &bench.order("after"));
    assert_ne!(bought(&instance), dry);
    assert!(instance.sold_out.contains(&dry), "{dry} was tried in vain, and is not named: {:?}", instance.sold_out);
    assert!(!instance.sold_out.contains(&bought(&instance)));
}

fn a_claim_that_only_dry_offerings_suit_has_no_capacity<B: Bench>(bench: &B) {
    let Some(dry) = run_dry(bench) else { return };
    let mut order = bench.order("pinned");
    for (key, value) in [
        (labels::INSTANCE_TYPE, dry.instance_type.as_str()),
        (labels::ZONE, &*dry.zone),
        (labels::CAPACITY_TYPE, dry.capacity_type.as_str()),
    ] {
        order.requirements.add(key, Requirement::is_in([value]));
    }
    match launch(bench, &order) {
        Err(CloudError::NoCapacity { sold_out, message }) => {
            assert_eq!(sold_out, [dry], "{message}");
            assert!(message.contains(order.claim.as_str()), "the message does not say whose launch it was: {message}");
        }
        other => panic!("not told that there is no capacity: {other:?}"),
    }
    bench.settle();
    assert_eq!(of_claim(&list(bench), &order).len(), 0, "an instance was bought all the same");
}

fn what_ran_dry_is_still_listed<B: Bench>(bench: &B) {
    let Some(dry) = run_dry(bench) else { return };
    launched(bench, &bench.order("after"));
    let order = bench.order("types");
    let ask = crate::provider::TypesAsk {
        pool: &"any".into(),
        labels: &order.labels,
        requirements: &order.requirements,
        node_class: &order.node_class,
        class_object: order.class_object.as_deref(),
    };
    let types = bench.cloud().instance_types(&ask).unwrap_or_else(|error| panic!("asking for types: {error}"));
    let it = types.iter().find(|it| it.name == dry.instance_type);
    let it = it.unwrap_or_else(|| panic!("{} is not listed any more", dry.instance_type));
    assert!(it.offerings.iter().any(|offering| offering.zone() == Some(&dry.zone)), "{dry} is not listed any more");
}

fn a_claim_that_nothing_suits_has_no_capacity<B: Bench>(bench: &B) {
    let mut order = bench.order("nowhere");
    order.requirements.add(labels::ZONE, Requirement::is_in(["no-such-zone"]));
    match launch(bench, &order) {
        Err(CloudError::NoCapacity { sold_out, .. }) => assert_eq!(sold_out, [], "nothing of it was tried"),
        other => panic!("not told that there is no capacity: {other:?}"),
    }
}

fn a_claim_without_a_ready_class_is_given_up<B: Bench>(bench: &B) {
    let missing = launch(bench, &LaunchOrder { class_object: None, ..bench.order("classless") });
    assert!(matches!(missing, Err(CloudError::NoCapacity { .. })), "{missing:?}");
    let mut order = bench.order("unready");
    let mut class: Value = order.class_object.as_deref().cloned().unwrap_or_default();
    class["status"]["conditions"] = json!([{
        "type": "Ready", "status": "False", "reason": "Broken", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    order.class_object = Some(Arc::new(class));
    let unready = launch(bench, &order);
    assert!(matches!(unready, Err(CloudError::ClassNotReady { .. })), "{unready:?}");
    bench.settle();
    assert_eq!(of_claim(&list(bench), &order).len(), 0);
}

fn termination_ends_with_not_found_and_may_be_repeated<B: Bench>(bench: &B) {
    let order = bench.order("short");
    let instance = launched(bench, &order);
    bench.settle();
    end(bench, &instance);
    end(bench, &instance);
    bench.settle();
    let found = get(bench, &instance.provider_id);
    assert!(found.is_err_and(|error| error.is_not_found()));
    assert_eq!(of_claim(&list(bench), &order).len(), 0);
}

fn an_instance_that_is_ending_says_so<B: Bench>(bench: &B) {
    let order = bench.order("ending");
    let instance = launched(bench, &order);
    bench.settle();
    // Reads may lag; sooner or later it says so or is gone, and then stays that way.
    let mut said_so = false;
    for _ in 0..super::PATIENCE {
        let answer = insist(bench, |cloud| cloud.terminate(reference(bench, &instance)));
        assert!(matches!(answer, Ok(()) | Err(CloudError::NotFound { .. })), "{answer:?}");
        match &of_claim(&list(bench), &order)[..] {
            [] => return,
            [listed] => {
                assert!(listed.is_ending || !said_so, "{} was ending, and is not any more", listed.provider_id);
                said_so |= listed.is_ending;
            }
            _ => panic!("listed twice"),
        }
        bench.pause(BETWEEN_QUESTIONS);
    }
    panic!("{} neither ends nor is gone", instance.provider_id);
}

fn an_instance_that_is_ended_at_once_leaves_nothing_behind<B: Bench>(bench: &B) {
    let order = bench.order("at-once");
    let instance = launched(bench, &order);
    end(bench, &instance);
    bench.settle();
    let left: Vec<_> = of_claim(&list(bench), &order).into_iter().filter(|instance| !instance.is_ending).collect();
    assert_eq!(left.len(), 0, "NotFound was said of an instance that was there");
}

fn what_never_was_is_not_found<B: Bench>(bench: &B) {
    let model = launched(bench, &bench.order("model"));
    let stranger = InstanceRef {
        provider_id: format!("{}0", model.provider_id).into(),
        claim: "stranger".into(),
        node_name: Some("stranger".into()),
    };
    assert!(get(bench, &stranger.provider_id).is_err_and(|error| error.is_not_found()));
    let ended = insist(bench, |cloud| cloud.terminate(stranger.clone()));
    assert!(ended.is_err_and(|error| error.is_not_found()));
    let rebooted = insist(bench, |cloud| cloud.reboot(stranger.clone(), "operation".into()));
    assert!(rebooted.is_err());
}

fn one_operation_restarts_once<B: Bench>(bench: &B) {
    let order = bench.order("restart");
    let instance = launched(bench, &order);
    bench.settle();
    let reboot = |operation: &str| {
        let answer = insist(bench, |cloud| cloud.reboot(reference(bench, &instance), operation.into()));
        bench.settle();
        answer.map(|()| bench.boot_mark(&instance))
    };
    let before = bench.boot_mark(&instance);
    let first = match reboot("one") {
        Err(CloudError::Unsupported { .. }) => return,
        answer => answer.unwrap_or_else(|error| panic!("restarting: {error}")),
    };
    assert_eq!(reboot("one").ok(), Some(first.clone()), "asked twice under one name, it restarted twice");
    if before.is_some() {
        assert_ne!(first, before, "nothing restarted");
        let second = reboot("another").ok().flatten();
        assert_ne!(second, first, "another operation is another restart");
    }
    assert_eq!(of_claim(&list(bench), &order).len(), 1);
}
