use super::*;
use crate::testing::{order, type_of};
use kerf_model::Quantity;

fn types(lines: &str) -> Vec<Arc<InstanceType>> {
    lines.lines().map(str::trim).filter(|line| !line.is_empty()).map(type_of).collect()
}

/// What is left, as `type zone:price…`.
fn left(candidates: &[Candidate<'_>]) -> Vec<String> {
    let one = |candidate: &Candidate<'_>| {
        let offerings = candidate.offerings.iter().map(|offering| {
            let (zone, price) = (offering.zone().cloned().unwrap_or_default(), offering.price.micros / 1_000);
            let id = reservation_id(offering).map(|id| format!(":{id}")).unwrap_or_default();
            format!(" {zone}:{}:{price}{id}", offering.capacity_type().map_or("", CapacityType::as_str))
        });
        format!("{}{}", candidate.it.name, offerings.collect::<String>())
    };
    candidates.iter().map(one).collect()
}

fn with(
    lines: &str,
    change: impl FnOnce(&mut LaunchOrder),
    filter: fn(&[Arc<InstanceType>], &Wanted<'_>) -> Vec<String>,
) -> Vec<String> {
    let types = types(lines);
    let (mut order, dry) = (order("c", None), Dry::default());
    change(&mut order);
    filter(&types, &Wanted::new(&order, &dry, true))
}

fn only_kind(kinds: &[&str]) -> impl FnOnce(&mut LaunchOrder) {
    let requirement = Requirement::is_in(kinds.iter().copied());
    move |order| order.requirements.add(labels::CAPACITY_TYPE, requirement)
}

#[test]
fn only_offerings_that_suit_are_available_and_have_room_are_left() {
    let stock = "m5.large a:spot:10 !b:spot:11 c:on-demand:20
                 m5.metal a:spot:30";
    let suits = |change: fn(&mut LaunchOrder)| with(stock, change, |types, wanted| left(&suiting(types, wanted)));
    assert_eq!(suits(|_| {}), ["m5.large a:spot:10 c:on-demand:20", "m5.metal a:spot:30"]);
    assert_eq!(
        suits(|order| order.requirements.add(labels::ZONE, Requirement::is_in(["c"]))),
        ["m5.large c:on-demand:20"]
    );
    assert_eq!(suits(|order| order.requests.set("cpu", Quantity::from_units(3))), [""; 0]);
    let avoided = suits(|order| {
        order.avoid.push(OfferingKey {
            instance_type: "m5.large".into(),
            zone: "a".into(),
            capacity_type: CapacityType::Spot,
        });
    });
    assert_eq!(avoided, ["m5.large c:on-demand:20", "m5.metal a:spot:30"]);
    let launched_before = suits(|order| drop(order.labels.insert(labels::INSTANCE_TYPE.into(), "m5.metal".into())));
    assert_eq!(launched_before, ["m5.metal a:spot:30"]);
}

#[test]
fn what_only_an_overlay_knows_does_not_count_once_the_claim_says_so() {
    let ask = |order: &mut LaunchOrder| order.requests.set("example.com/device", Quantity::from_units(1));
    let suits = |change: fn(&mut LaunchOrder)| {
        let change = move |order: &mut LaunchOrder| {
            ask(order);
            change(order);
        };
        with("m5.large a:spot:10", change, |types, wanted| left(&suiting(types, wanted))).len()
    };
    assert_eq!(suits(|_| {}), 0);
    let overlaid = suits(|order| {
        order.annotations.insert(kerf_api::labels::CAPACITY_OVERLAY_APPLIED.into(), "true".into());
    });
    assert_eq!(overlaid, 1);
}

#[test]
fn one_kind_of_reservation_is_used_and_nothing_else_with_it() {
    let kinds = |lines: &str, allowed: &[&str]| {
        with(lines, only_kind(allowed), |types, wanted| left(&of_one_reservation_kind(suiting(types, wanted), wanted)))
    };
    let stock = "m5.large a:reserved:1:cr-1:3 a:on-demand:20
                 m5.xlarge a:reserved:1:cr-2:3:block b:on-demand:40";
    assert_eq!(kinds(stock, &["reserved", "on-demand"]), ["m5.large a:reserved:1:cr-1"], "at one price the plain one");
    assert_eq!(kinds(stock, &["on-demand"]), ["m5.large a:on-demand:20", "m5.xlarge b:on-demand:40"]);
    assert_eq!(kinds("m5.large a:on-demand:20", &["reserved", "on-demand"]), ["m5.large a:on-demand:20"]);
    let cheap_block = "m5.large a:reserved:2:cr-1:3
                       m5.xlarge a:reserved:1:cr-2:3:block a:reserved:1:cr-3:1:interruptible";
    assert_eq!(kinds(cheap_block, &["reserved"]), ["m5.xlarge a:reserved:1:cr-2"]);
}

#[test]
fn a_capacity_block_is_one_type_in_one_zone() {
    let block = |lines: &str| {
        with(lines, only_kind(&["reserved"]), |types, wanted| left(&one_capacity_block(suiting(types, wanted), wanted)))
    };
    let stock = "p5.48xlarge a:reserved:3:cr-1:3:block b:reserved:2:cr-2:3:block
                 p4.24xlarge a:reserved:2:cr-3:3:block";
    assert_eq!(block(stock), ["p4.24xlarge a:reserved:2:cr-3"]);
    let plain = "m5.large a:reserved:1:cr-1:3 b:reserved:2:cr-2:3";
    assert_eq!(block(plain), ["m5.large a:reserved:1:cr-1 b:reserved:2:cr-2"]);
}

#[test]
fn of_the_reservations_of_a_zone_the_roomiest_is_used() {
    let zones = |lines: &str| {
        with(lines, |_| {}, |types, wanted| left(&one_reservation_per_zone(suiting(types, wanted), wanted)))
    };
    let stock = "m5.large a:reserved:1:cr-1:3 a:reserved:1:cr-2:5 b:reserved:1:cr-3:1 b:spot:9
                 c5.large a:spot:5";
    assert_eq!(zones(stock), ["m5.large a:reserved:1:cr-2 b:reserved:1:cr-3"]);
    assert_eq!(zones("c5.large a:spot:5"), ["c5.large a:spot:5"], "unchanged where there are none");
}

#[test]
fn exotic_types_are_left_to_those_who_need_them() {
    let plain = |lines: &str, change: fn(&mut LaunchOrder)| {
        with(lines, change, |types, wanted| left(&not_exotic(suiting(types, wanted), wanted)))
    };
    let stock = "m5.metal a:spot:1
                 m5.large a:spot:2";
    assert_eq!(plain(stock, |_| {}), ["m5.large a:spot:2"]);
    assert_eq!(plain("m5.metal-24xl a:spot:1", |_| {}), ["m5.metal-24xl a:spot:1"], "unless nothing else is left");
    let varied = plain(stock, |order| {
        let requirement = Requirement { min_values: Some(1), ..Requirement::exists() };
        order.requirements.add(kerf_api::labels::INSTANCE_FAMILY, requirement);
    });
    assert_eq!(varied.len(), 2);
    let mut accelerated = (*type_of("g5.large a:spot:1")).clone();
    accelerated.capacity.set("nvidia.com/gpu", Quantity::from_units(1));
    let types = [Arc::new(accelerated), type_of("m5.large a:spot:2")];
    let (order, dry) = (order("c", None), Dry::default());
    let wanted = Wanted::new(&order, &dry, true);
    assert_eq!(left(&not_exotic(suiting(&types, &wanted), &wanted)), ["m5.large a:spot:2"]);
}

#[test]
fn spot_that_costs_more_than_the_cheapest_on_demand_is_not_bought() {
    let worth = |lines: &str, change: fn(&mut LaunchOrder)| {
        with(lines, change, |types, wanted| left(&spot_worth_it(suiting(types, wanted), wanted)))
    };
    let stock = "m5.large a:spot:20 b:spot:21 a:on-demand:20
                 m5.4xlarge a:spot:90 a:on-demand:160
                 m5.8xlarge a:spot:99";
    assert_eq!(worth(stock, |_| {}), ["m5.large a:spot:20 a:on-demand:20", "m5.4xlarge a:on-demand:160"]);
    assert_eq!(worth(stock, |order| only_kind(&["spot"])(order)).len(), 3);
    assert_eq!(worth("m5.large a:spot:20", |_| {}), ["m5.large a:spot:20"]);
}

#[test]
fn one_request_names_the_sixty_cheapest_types() {
    let lines: String = (0..70).map(|n| format!("m{n}.large a:on-demand:{}\n", 100 - n)).collect();
    let types = types(&lines);
    let (order, dry) = (order("c", None), Dry::default());
    let choice = choose(&types, &Wanted::new(&order, &dry, true)).unwrap();
    assert_eq!(choice.candidates.len(), 60);
    assert_eq!(choice.candidates[0].it.name.as_str(), "m69.large");
    assert_eq!(choice.candidates[59].it.name.as_str(), "m10.large");
}

#[test]
fn min_values_that_the_cheapest_sixty_do_not_meet_are_a_refusal_unless_relaxed() {
    let lines: String = (0..70).map(|n| format!("m{}.s{n} a:on-demand:{n}\n", n / 60)).collect();
    let types = types(&lines);
    let mut order = order("c", None);
    let requirement = Requirement { min_values: Some(2), ..Requirement::exists() };
    order.requirements.add(kerf_api::labels::INSTANCE_FAMILY, requirement);
    let dry = Dry::default();
    let refused = choose(&types, &Wanted::new(&order, &dry, true)).unwrap_err();
    assert_eq!(refused, Nothing::MinValues { key: kerf_api::labels::INSTANCE_FAMILY.into(), wanted: 2, left: 1 });
    assert!(choose(&types, &Wanted::new(&order, &dry, false)).is_ok(), "best effort");
    order.annotations.insert(kerf_api::labels::MIN_VALUES_RELAXED.into(), "true".into());
    assert!(choose(&types, &Wanted::new(&order, &dry, true)).is_ok(), "relaxed by the operator");
}

#[test]
fn reserved_comes_before_spot_and_spot_before_on_demand() {
    let chosen = |lines: &str, allowed: &[&str]| {
        let types = types(lines);
        let (mut order, dry) = (order("c", None), Dry::default());
        only_kind(allowed)(&mut order);
        let choice = choose(&types, &Wanted::new(&order, &dry, true));
        choice.map(|choice| (choice.capacity_type, choice.tenancy, left(&choice.candidates)))
    };
    let stock = "m5.large a:reserved:1:cr-1:3 a:spot:10 a:on-demand:20
                 c5.large a:spot:9";
    let one = |line: &str| vec![line.to_owned()];
    assert_eq!(
        chosen(stock, &["reserved", "spot", "on-demand"]),
        Ok((CapacityType::Reserved, "default", one("m5.large a:reserved:1:cr-1")))
    );
    assert_eq!(
        chosen(stock, &["spot", "on-demand"]),
        Ok((CapacityType::Spot, "default", vec!["c5.large a:spot:9".to_owned(), "m5.large a:spot:10".to_owned()]))
    );
    assert_eq!(
        chosen("m5.large !a:spot:1 a:on-demand:20", &["spot", "on-demand"]),
        Ok((CapacityType::OnDemand, "default", one("m5.large a:on-demand:20")))
    );
    assert_eq!(chosen("m5.large !a:spot:1", &["spot"]), Err(Nothing::Suits { n_types: 1 }));
}

#[test]
fn dedicated_tenancy_is_for_claims_that_do_not_allow_the_default() {
    let types = types("m5.large a:on-demand:1");
    let (mut order, dry) = (order("c", None), Dry::default());
    order.requirements.add(INSTANCE_TENANCY, Requirement::is_in(["dedicated"]));
    assert_eq!(choose(&types, &Wanted::new(&order, &dry, true)).unwrap().tenancy, "dedicated");
}

#[test]
fn a_full_reservation_leaves_the_others_of_its_zone_in() {
    let types = types("m5.large a:reserved:1:cr-1:3 a:reserved:1:cr-2:2 a:on-demand:20");
    let (order, mut dry) = (order("c", None), Dry::default());
    let chosen = |dry: &Dry| left(&choose(&types, &Wanted::new(&order, dry, true)).unwrap().candidates);
    dry.reservations.insert("cr-1".into());
    assert_eq!(chosen(&dry), ["m5.large a:reserved:1:cr-2"]);
    dry.reservations.insert("cr-2".into());
    assert_eq!(chosen(&dry), ["m5.large a:on-demand:20"]);
}
