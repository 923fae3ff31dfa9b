//! Laws about what is bought.

use super::*;

#[test]
fn only_pools_that_can_grow_are_asked() {
    let mut s = scene(vec![(demand("x", 100), 1)]);
    let plan = || vec![launch("c1", &["p0-0"])];
    good(&s, plan());
    s.pools[0].is_static = true;
    bad(&s, plan(), is!(Breach::PoolCannotGrow { .. }));
    s.pools[0].is_static = false;
    s.pools[0].readiness = Readiness::NotReady("why".into());
    bad(&s, plan(), is!(Breach::PoolCannotGrow { .. }));
    s.pools[0] = pool("other");
    bad(&s, plan(), is!(Breach::PoolUnknown { .. }));
}

#[test]
fn a_claim_is_what_its_pool_says() {
    let mut s = scene(vec![(demand("x", 100), 1)]);
    s.pools[0].labels.insert("team".into(), "red".into());
    let with = |value: &str| {
        let mut claim = claim("c1", &["p0-0"]);
        claim.labels.insert("team".into(), value.into());
        vec![Step::Launch(Box::new(claim))]
    };
    good(&s, with("red"));
    let stranger = |breach: &Breach| {
        // A claim that contradicts its pool can become nothing at all.
        matches!(breach, Breach::NotOfItsPool { .. } | Breach::OptionNotAllowed { .. })
    };
    bad(&s, with("blue"), stranger);
    s.pools[0].taints.push(Taint { key: "t".into(), value: "".into(), effect: Effect::PreferNoSchedule });
    bad(&s, with("red"), stranger);
}

#[test]
fn options_are_listed_once_and_by_price() {
    let s = scene(vec![(demand("x", 100), 1)]);
    let with = |any_of: Vec<LaunchOption>| {
        vec![Step::Launch(Box::new(Launch { any_of: any_of.into(), ..claim("c1", &["p0-0"]) }))]
    };
    let (small, large) = (option("small", ZONE_B, 100), option("large", ZONE_A, 400));
    good(&s, with(vec![small.clone(), large.clone()]));
    bad(&s, with(vec![]), is!(Breach::NoOptions { .. }));
    bad(&s, with(vec![large.clone(), small.clone()]), is!(Breach::OptionsNotByPrice { .. }));
    bad(&s, with(vec![small.clone(), small.clone()]), is!(Breach::OptionTwice { .. }));
    bad(&s, with(vec![option("huge", ZONE_A, 400)]), is!(Breach::OptionNotAllowed { .. }));
    bad(&s, with(vec![option("small", ZONE_A, 99)]), is!(Breach::OptionMispriced { .. }));
    bad(&s, with(vec![option("small", "z", 100)]), is!(Breach::OptionMispriced { .. }));
    let many = (0..601).map(|_| small.clone()).collect();
    bad(&s, with(many), is!(Breach::TooManyOptions { .. } | Breach::OptionTwice { .. }));
}

#[test]
fn an_option_can_be_had_within_the_claims_requirements() {
    let mut s = scene(vec![(demand("x", 100), 1)]);
    let plan = || vec![launch_in(ZONE_B, "c1", &["p0-0"])];
    good(&s, plan());
    let mut sold_out = machine("small", 2, 100);
    sold_out.offerings[1].available = false;
    s.pools[0].types = [sold_out, machine("large", 8, 400)].map(Arc::new).into();
    bad(&s, plan(), is!(Breach::OptionNotForSale { .. }));
    let mut narrow = claim("c1", &["p0-0"]);
    narrow.requirements = Requirements::new().with(labels::INSTANCE_TYPE, Requirement::is_in(["large"])).into();
    bad(&s, vec![Step::Launch(Box::new(narrow))], is!(Breach::OptionNotAllowed { .. }));
}

#[test]
fn limits_hold_for_the_largest_option_and_for_the_number_of_nodes() {
    let mut s = scene(vec![(demand("x", 100), 2)]);
    let plan = || vec![launch("c1", &["p0-0"]), launch("c2", &["p0-1"])];
    let crossed = is!(Breach::LimitCrossed { .. });
    s.pools[0].in_use = amount(4000, 0, 0).with(NODES, Quantity::from_units(1));
    s.pools[0].limits = Resources::new().with(CPU, Quantity::from_units(20));
    good(&s, plan());
    s.pools[0].limits = Resources::new().with(CPU, Quantity::from_units(19));
    bad(&s, plan(), crossed);
    s.pools[0].limits = Resources::new().with(NODES, Quantity::from_units(3));
    good(&s, plan());
    s.pools[0].limits = Resources::new().with(NODES, Quantity::from_units(2));
    bad(&s, plan(), crossed);
}

#[test]
fn min_values_hold_over_the_options() {
    let mut s = scene(vec![(demand("x", 100), 1)]);
    let plan = || vec![launch("c1", &["p0-0"])];
    let wanting = |key: &str, least| {
        let requirement = Requirement { min_values: Some(least), ..Requirement::exists() };
        Requirements::new().with(key, requirement)
    };
    s.pools[0].requirements = wanting(labels::INSTANCE_TYPE, 2);
    good(&s, plan());
    s.pools[0].requirements = wanting(labels::INSTANCE_TYPE, 3);
    bad(&s, plan(), is!(Breach::MinValues { needs: 3, has: 2, .. }));
    // A zone that the claim gave up does not help.
    s.pools[0].requirements = wanting(labels::ZONE, 2);
    good(&s, plan());
    bad(&s, vec![launch_in(ZONE_A, "c1", &["p0-0"])], is!(Breach::MinValues { needs: 2, has: 1, .. }));
    s.settings.min_values = kerf_model::MinValuesPolicy::BestEffort;
    let mut relaxed = launch_in(ZONE_A, "c1", &["p0-0"]);
    bad(&s, vec![relaxed.clone()], is!(Breach::MinValues { .. }));
    if let Step::Launch(claim) = &mut relaxed {
        claim.min_values_relaxed = true;
    }
    good(&s, vec![relaxed]);
}

#[test]
fn a_reservation_is_held_by_no_more_claims_than_it_has_room_for() {
    let mut s = scene(vec![(demand("x", 100), 2)]);
    let mut small = machine("small", 2, 100);
    let mut reserved = Offering::new(ZONE_A, CapacityType::Reserved, Money::from_micros(1));
    reserved.reservation_capacity = Some(1);
    reserved.require(labels::AWS_RESERVATION_ID, Requirement::is_in(["r-1"]));
    small.offerings.push(reserved);
    s.pools[0].types = [small, machine("large", 8, 400)].map(Arc::new).into();
    let holding = |name: &str, pod: &str, id: &str| {
        let mut claim = claim(name, &[pod]);
        claim.requirements = Arc::new(
            Requirements::new()
                .with(labels::CAPACITY_TYPE, Requirement::is_in(["reserved"]))
                .with(labels::AWS_RESERVATION_ID, Requirement::is_in([id])),
        );
        claim.reservations = vec![id.into()];
        claim.any_of =
            vec![LaunchOption { capacity_type: Some(CapacityType::Reserved), ..option("small", ZONE_A, 1) }].into();
        Step::Launch(Box::new(claim))
    };
    good(&s, vec![holding("c1", "p0-0", "r-1"), launch("c2", &["p0-1"])]);
    bad(
        &s,
        vec![holding("c1", "p0-0", "r-1"), holding("c2", "p0-1", "r-1")],
        is!(Breach::ReservationOversold { holders: 2, capacity: 1, .. }),
    );
    let unreal = judge(&s, vec![holding("c1", "p0-0", "r-2")]);
    assert!(unreal.iter().any(is!(Breach::ReservationNotItsOwn { .. })), "{unreal:?}");
}
