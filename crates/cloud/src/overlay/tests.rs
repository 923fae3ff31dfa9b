//! Overlays over two pools of built-in kwok types.

use super::*;
use crate::kwok::embedded;

fn overlay(
    name: &str,
    weight: u32,
    requirements: &[(&str, &str)],
    price: Option<&str>,
    capacity: &[(&str, i64)],
) -> Overlay {
    let read = |text: &str| {
        if text.starts_with(['+', '-']) { PriceChange::parse_adjustment(text) } else { PriceChange::parse_price(text) }
            .expect(text)
    };
    let mut asked = Requirements::new();
    for (key, value) in requirements {
        asked.add(key, Requirement::is_in([*value]));
    }
    Overlay {
        name: name.into(),
        weight,
        requirements: asked,
        price: price.map(read),
        capacity: capacity.iter().map(|(name, count)| (*name, Quantity::from_units(*count))).collect(),
    }
}

fn pools() -> Vec<PoolTypes> {
    let types: Vec<InstanceType> =
        embedded().into_iter().filter(|it| it.name.as_str().ends_with("1x-amd64-linux")).collect();
    let pool = |name: &str, team: &str| PoolTypes {
        pool: name.into(),
        labels: Labels::from([("team".into(), team.into())]),
        types: types.clone(),
    };
    vec![pool("one", "red"), pool("two", "blue")]
}

fn price(result: &Overlaid, pool: &str, type_name: &str, zone: &str, capacity_type: &str) -> i64 {
    let it =
        result.pools[&PoolName::from(pool)].types.iter().find(|it| it.name.as_str() == type_name).expect(type_name);
    let wanted = |offering: &&Offering| {
        offering.zone().is_some_and(|z| &**z == zone)
            && offering.capacity_type().is_some_and(|kind| kind.as_str() == capacity_type)
    };
    it.offerings.iter().find(wanted).expect(zone).price.micros
}

const TYPE: &str = "node.kubernetes.io/instance-type";
const C: &str = "c-1x-amd64-linux";

#[test]
fn prices_are_replaced_shifted_or_scaled_and_never_fall_below_zero() {
    for (change, expected) in
        [("0.5", 500_000), ("+0.01", 37_147), ("-1", 0), ("+100%", 54_294), ("-10%", 24_432), ("-100%", 0)]
    {
        let result = apply(&[overlay("a", 1, &[(TYPE, C)], Some(change), &[])], pools());
        assert_eq!(price(&result, "one", C, "test-zone-a", "on-demand"), expected, "{change}");
    }
}

#[test]
fn only_what_matches_is_touched() {
    let asked = [
        (TYPE, C),
        ("topology.kubernetes.io/zone", "test-zone-b"),
        ("karpenter.sh/capacity-type", "spot"),
        ("team", "red"),
    ];
    let result = apply(&[overlay("a", 1, &asked, Some("1"), &[])], pools());
    assert_eq!(price(&result, "one", C, "test-zone-b", "spot"), 1_000_000);
    assert_eq!(price(&result, "one", C, "test-zone-a", "spot"), 19_003);
    assert_eq!(price(&result, "one", C, "test-zone-b", "on-demand"), 27_147);
    assert_eq!(price(&result, "two", C, "test-zone-b", "spot"), 19_003);
    let changed: Vec<&str> = result.pools[&PoolName::from("one")].changed.keys().map(TypeName::as_str).collect();
    assert_eq!(changed, [C]);
    assert!(result.pools[&PoolName::from("two")].changed.is_empty());
}

#[test]
fn a_label_that_no_node_has_matches_nothing() {
    let result = apply(&[overlay("a", 1, &[("unheard-of", "x")], Some("1"), &[])], pools());
    assert!(result.pools.values().all(|pool| pool.changed.is_empty()));
}

#[test]
fn the_heavier_overlay_decides_whatever_the_order_given() {
    let light = overlay("light", 1, &[(TYPE, C)], Some("1"), &[("example.com/x", 1)]);
    let heavy = overlay("heavy", 2, &[(TYPE, C)], Some("2"), &[("example.com/x", 2)]);
    for overlays in [[light.clone(), heavy.clone()], [heavy, light]] {
        let result = apply(&overlays, pools());
        assert_eq!(result.conflicts, []);
        assert_eq!(price(&result, "one", C, "test-zone-a", "spot"), 2_000_000);
        let it = &result.pools[&PoolName::from("one")].types[0];
        assert_eq!(it.capacity.get("example.com/x"), Quantity::from_units(2));
    }
}

#[test]
fn of_two_equals_the_last_by_name_stays_and_the_other_is_refused_in_every_pool() {
    let broad = overlay("a", 5, &[(TYPE, C)], Some("1"), &[("example.com/x", 1)]);
    let narrow = overlay("b", 5, &[(TYPE, C), ("team", "red")], Some("1"), &[]);
    let result = apply(&[broad, narrow], pools());
    assert_eq!(price(&result, "one", C, "test-zone-a", "spot"), 1_000_000);
    assert_eq!(price(&result, "two", C, "test-zone-a", "spot"), 19_003);
    let told: Vec<String> = result.conflicts.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["overlay a conflicts with b: both of weight 5 change the price of c-1x-amd64-linux in pool one"]);
}

#[test]
fn equals_conflict_even_where_a_heavier_one_decides() {
    let overlays = [
        overlay("h", 9, &[(TYPE, C)], Some("3"), &[]),
        overlay("a", 5, &[], Some("1"), &[]),
        overlay("b", 5, &[], Some("2"), &[]),
    ];
    let result = apply(&overlays, pools());
    assert_eq!(result.conflicts.len(), 1);
    assert_eq!(price(&result, "one", C, "test-zone-a", "spot"), 3_000_000);
    assert_eq!(price(&result, "one", "s-1x-amd64-linux", "test-zone-a", "spot"), 2_000_000);
}

#[test]
fn capacity_covers_the_whole_type_once_any_offering_matches() {
    let asked = [(TYPE, C), ("topology.kubernetes.io/zone", "test-zone-a")];
    let result = apply(&[overlay("a", 1, &asked, None, &[("example.com/gpu", 4), ("cpu", 99)])], pools());
    let pool = &result.pools[&PoolName::from("one")];
    assert_eq!(pool.changed[&TypeName::from(C)], Changed { price: false, capacity: true });
    let it = pool.types.iter().find(|it| it.name.as_str() == C).expect(C);
    assert_eq!(it.allocatable().get("example.com/gpu"), Quantity::from_units(4));
    assert_eq!(it.capacity.get("cpu"), Quantity::from_units(1));
}

#[test]
fn a_changed_price_drops_the_overrides_of_its_offering() {
    let mut pools = pools();
    for offering in &mut pools[0].types[0].offerings {
        offering.overrides = Some(Box::default());
        offering.price_is_estimate = true;
    }
    let result = apply(&[overlay("a", 1, &[("topology.kubernetes.io/zone", "test-zone-a")], Some("1"), &[])], pools);
    for offering in &result.pools[&PoolName::from("one")].types[0].offerings {
        let untouched = offering.zone().is_some_and(|zone| &**zone != "test-zone-a");
        assert_eq!((offering.overrides.is_some(), offering.price_is_estimate), (untouched, untouched));
    }
}

#[test]
fn what_is_no_price_is_refused() {
    for text in ["", "1.", ".5", "-1", "1e3", "abc"] {
        assert!(PriceChange::parse_price(text).is_err(), "{text}");
    }
    for text in ["", "1", "10%", "+", "-101%", "+1%%", "+-1"] {
        assert!(PriceChange::parse_adjustment(text).is_err(), "{text}");
    }
}
