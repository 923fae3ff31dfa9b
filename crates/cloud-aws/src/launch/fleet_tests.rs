use super::*;
use crate::launch::filters::{Dry, Wanted, choose};
use crate::launch::subnets::Subnets;
use crate::testing::{order, type_of};
use kerf_model::{InstanceType, Money};
use serde_json::json;

fn template(name: &str, types: &[&str], reservation_id: Option<&str>) -> ReadyTemplate {
    ReadyTemplate {
        name: name.to_owned(),
        image_id: "ami-1".to_owned(),
        types: types.iter().map(|name| (*name).into()).collect(),
        reservation_id: reservation_id.map(str::to_owned),
    }
}

/// The request for types in the zones `a` and `b`, which have a subnet each.
fn requested(lines: &[&str], templates: &[ReadyTemplate], change: impl FnOnce(&mut LaunchOrder)) -> Option<FleetOrder> {
    let types: Vec<Arc<InstanceType>> = lines.iter().map(|line| type_of(line)).collect();
    let mut order = order("c", Some(json!({"metadata": {"name": "default"}, "spec": {"context": "ctx"}})));
    change(&mut order);
    let class: Ec2NodeClass = serde_json::from_value((**order.class_object.as_ref().unwrap()).clone()).unwrap();
    let dry = Dry::default();
    let wanted = Wanted::new(&order, &dry, true);
    let choice = choose(&types, &wanted).unwrap();
    let in_flight = Subnets::new(Arc::new(crate::by_hand::HandClock::new()), Duration::from_secs(60));
    let of_class =
        ["a", "b"].map(|zone| kerf_api::Subnet { id: format!("subnet-{zone}"), zone: zone.to_owned(), zone_id: None });
    let subnets = in_flight.choose(&of_class, &BTreeMap::from([("a".into(), 1), ("b".into(), 1)]));
    let tags = Tags::from([("team".to_owned(), "x".to_owned())]);
    request(&Ingredients { order: &order, class: &class, choice: &choice, templates, subnets: &subnets, tags })
}

fn override_of(instance_type: &str, zone: &str, thousandths: i64) -> FleetOverride {
    FleetOverride {
        instance_type: instance_type.to_owned(),
        subnet_id: Some(format!("subnet-{zone}")),
        image_id: Some("ami-1".to_owned()),
        zone: zone.to_owned(),
        priority: Some(Money::from_micros(thousandths * 1_000)),
    }
}

#[test]
fn d0_85_spot_is_bought_by_price_and_capacity_over_every_type_and_zone() {
    let stock = ["m5.large a:spot:10 b:spot:12 c:spot:1", "c5.large b:spot:9", "r5.large a:on-demand:50"];
    let templates = [template("t1", &["c5.large", "m5.large", "r5.large"], None), template("t2", &["x1.large"], None)];
    let request = requested(&stock, &templates, |_| {}).unwrap();
    let expected = FleetOrder {
        context: Some("ctx".to_owned()),
        configs: vec![FleetConfig {
            template_name: "t1".to_owned(),
            // A zone without a subnet is left out, and so is a template without a type.
            overrides: vec![
                override_of("m5.large", "a", 10),
                override_of("m5.large", "b", 12),
                override_of("c5.large", "b", 9),
            ],
        }],
        n_instances: 1,
        capacity_type: "spot".to_owned(),
        spot_strategy: Some("price-capacity-optimized".to_owned()),
        on_demand_strategy: None,
        reservation_types: Vec::new(),
        tags: Tags::from([("team".to_owned(), "x".to_owned())]),
        dry_run: false,
        client_token: None,
    };
    assert_eq!(request, expected, "in order of the types' cheapest offerings");
}

#[test]
fn on_demand_is_bought_at_the_lowest_price_and_by_priority_where_an_overlay_changed_prices() {
    let stock = ["m5.large a:on-demand:10"];
    let templates = [template("t1", &["m5.large"], None)];
    let plain = requested(&stock, &templates, |_| {}).unwrap();
    assert_eq!(
        (plain.capacity_type.as_str(), plain.on_demand_strategy.as_deref()),
        ("on-demand", Some("lowest-price"))
    );
    assert_eq!(plain.spot_strategy, None);
    let overlaid = |order: &mut LaunchOrder| {
        order.annotations.insert(PRICE_OVERLAY_APPLIED.into(), "true".into());
        order.annotations.insert(MIN_VALUES_RELAXED.into(), "true".into());
    };
    let changed = requested(&stock, &templates, overlaid).unwrap();
    assert_eq!(changed.on_demand_strategy.as_deref(), Some("prioritized"));
    assert_eq!(changed.context, None, "a relaxed claim goes without its context");
    let spot = requested(&["m5.large a:spot:1"], &templates, overlaid).unwrap();
    assert_eq!(spot.spot_strategy.as_deref(), Some("capacity-optimized-prioritized"));
}

#[test]
fn each_kind_of_reservation_is_asked_for_in_its_own_words() {
    let ask = |mark: &str| {
        let line = format!("m5.large a:reserved:1:cr-1:3{mark} a:on-demand:10");
        let templates = [template("t1", &["m5.large"], Some("cr-1")), template("t2", &["m5.large"], None)];
        let request = requested(&[&line], &templates, |_| {}).unwrap();
        assert_eq!(request.configs.len(), 1, "only the reservation's own template");
        (request.capacity_type, request.on_demand_strategy.is_some(), request.reservation_types)
    };
    assert_eq!(ask(""), ("on-demand".to_owned(), true, vec![]));
    assert_eq!(ask(":block"), ("capacity-block".to_owned(), false, vec![]));
    let interruptible = vec!["interruptible-capacity-reservation".to_owned()];
    assert_eq!(ask(":interruptible"), ("reserved-capacity".to_owned(), false, interruptible));
}

#[test]
fn without_a_template_for_its_types_there_is_no_request() {
    assert_eq!(requested(&["m5.large a:spot:1"], &[template("t1", &["c5.large"], None)], |_| {}), None);
    assert_eq!(requested(&["m5.large c:spot:1"], &[template("t1", &["m5.large"], None)], |_| {}), None);
}

#[test]
fn an_answer_is_shared_out_one_instance_each_and_errors_for_the_rest() {
    let group = |ids: &[&str]| FleetInstance {
        ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        ..FleetInstance::default()
    };
    let error = FleetError { code: "InsufficientInstanceCapacity".to_owned(), ..FleetError::default() };
    let reply =
        FleetReply { fleet_id: None, instances: vec![group(&["i-3", "i-1"]), group(&["i-2"])], errors: vec![error] };
    let told = |answer: &FleetAnswer| match answer {
        FleetAnswer::Got { id, errors, .. } => format!("{id} {}", errors.len()),
        FleetAnswer::Nothing { errors } => format!("nothing {}", errors.len()),
        FleetAnswer::Failed { failure, .. } => failure.code.clone(),
    };
    let answers: Vec<String> = shares(Ok(reply), 4, false, false).iter().map(told).collect();
    assert_eq!(answers, ["i-1 1", "i-2 1", "i-3 1", "nothing 1"]);
    let failed = shares(Err(Failure::new("ec2:CreateFleet", "InternalError", "")), 2, false, false);
    assert_eq!(failed.iter().map(told).collect::<Vec<_>>(), ["InternalError", "InternalError"]);
}

#[test]
fn a_token_stands_for_its_askers_and_their_attempt_and_for_nothing_else() {
    let asker = |uid: &str, n_before| Asker { uid: uid.into(), n_before };
    let one = token(&[asker("a", 0), asker("b", 0)]);
    assert_eq!(one, token(&[asker("a", 0), asker("b", 0)]));
    assert_ne!(one, token(&[asker("a", 0)]));
    assert_ne!(one, token(&[asker("a", 1), asker("b", 0)]));
    assert!(one.len() <= 64);
}
