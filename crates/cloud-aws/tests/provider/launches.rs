//! Launches from end to end: what EC2 is asked, in how many calls, and what becomes of its answers.

use crate::stage::{CLUSTER, Stage, TYPES, ZONES, stage, stage_with};
use kerf_cloud::{
    ChoreAsk, ClaimInUse, CloudError, CloudProvider, InUse, Instance, InstanceRef, LaunchOrder, OfferingKey,
};
use kerf_cloud_aws::wire::Failure;
use kerf_model::{CapacityType, ClaimName, Labels, TypeName, labels};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const EITHER: [&str; 2] = ["spot", "on-demand"];

fn kind(instance: &Instance) -> &str {
    &instance.labels[labels::CAPACITY_TYPE]
}

fn all_ok(answers: Vec<Result<Instance, CloudError>>) -> Vec<Instance> {
    answers.into_iter().map(|answer| answer.unwrap_or_else(|error| panic!("{error}"))).collect()
}

fn reference(instance: &Instance) -> InstanceRef {
    InstanceRef {
        provider_id: instance.provider_id.clone(),
        claim: ClaimName(instance.claim.clone()),
        node_name: Some("node-1".into()),
    }
}

#[test]
fn d0_3_one_pool_covers_types_zones_and_purchase_options_and_makes_its_own_templates() {
    let stage = stage();
    let bought = stage.launch(stage.order("claim", &EITHER)).unwrap();
    assert_eq!(kind(&bought), "spot");
    let requests = stage.requests("ec2:CreateFleet");
    let [request] = &requests[..] else { panic!("{requests:?}") };
    for (name, _) in TYPES {
        assert!(request.contains(&format!("{name:?}")), "{name} is not among the overrides");
    }
    for (zone, _) in ZONES {
        assert!(request.contains(&format!("\"subnet-{zone}\"")), "{zone} is not among the overrides");
    }
    let template = stage.aws.account().templates.first().map(|(template, _)| template.name.clone()).unwrap();
    assert!(template.starts_with("karpenter.k8s.aws/"), "{template}");
    let called: BTreeSet<&str> = stage.aws.account().calls.iter().map(|(action, _)| *action).collect();
    assert!(!called.iter().any(|action| action.starts_with("autoscaling:")), "no groups: {called:?}");
}

#[test]
fn d1_12_capacity_is_bought_when_load_grows_and_ended_when_it_falls_and_no_scaling_group_is_asked() {
    let stage = stage();
    let bought = stage.launch(stage.order("claim", &EITHER)).unwrap();
    stage.wait(stage.cloud.terminate(reference(&bought))).unwrap();
    let gone = stage.wait(stage.cloud.terminate(reference(&bought))).unwrap_err();
    assert!(gone.is_not_found());
    assert_eq!(stage.aws.count("ec2:TerminateInstances"), 1);
    assert!(!stage.aws.account().calls.iter().any(|(action, _)| action.starts_with("autoscaling:")));
}

#[test]
fn d1_29_d1_30_every_instance_carries_the_tags_that_say_whose_it_is() {
    let stage = stage();
    stage.launch(stage.order("claim", &EITHER)).unwrap();
    let tags = stage.aws.account().instances[0].tags.clone();
    for (key, value) in [
        ("karpenter.sh/nodepool", "default"),
        ("karpenter.k8s.aws/ec2nodeclass", "default"),
        ("kubernetes.io/cluster/prod", "owned"),
        ("eks:eks-cluster-name", CLUSTER),
        ("team", "x"),
    ] {
        assert_eq!(tags.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert!(!tags.contains_key("karpenter.sh/nodeclaim"), "claims of one kind share a request");
}

#[test]
fn a_burst_of_equal_claims_is_one_call() {
    let stage = stage();
    let orders = (0..200).map(|n| stage.order(&format!("claim-{n}"), &EITHER)).collect();
    let bought = all_ok(stage.launch_all(orders));
    let ids: BTreeSet<_> = bought.iter().map(|instance| instance.provider_id.clone()).collect();
    assert_eq!(ids.len(), 200, "one instance each");
    assert_eq!(stage.aws.count("ec2:CreateFleet"), 1);
    assert!(stage.requests("ec2:CreateFleet")[0].contains("n_instances: 200"));
    assert_eq!(stage.aws.count("ec2:CreateLaunchTemplate"), 2, "one for each number of pods");
}

/// Claims that were made, for each node that came of them.
fn claims_per_node(stage: &Stage, n_nodes: usize, kinds: &[&str]) -> f64 {
    let (mut n_claims, mut n_obtained) = (0, 0);
    while n_obtained < n_nodes {
        let orders: Vec<_> =
            (n_obtained..n_nodes).map(|n| stage.order(&format!("claim-{n_claims}-{n}"), kinds)).collect();
        n_claims += orders.len();
        n_obtained += stage.launch_all(orders).into_iter().filter(Result::is_ok).count();
        assert!(n_claims < 10 * n_nodes, "nothing can be had");
    }
    n_claims as f64 / n_obtained as f64
}

#[test]
fn d3_36_a_stock_out_of_the_first_twenty_offerings_is_got_round_within_the_same_launch() {
    let stage = stage();
    let mut cheapest: Vec<(i64, &str, &str)> = TYPES
        .iter()
        .flat_map(|(name, price)| {
            (0..).zip(ZONES).map(move |(position, (zone, _))| (price * 300 + position, *name, zone))
        })
        .collect();
    cheapest.sort_unstable();
    for (_, name, zone) in &cheapest[..20] {
        let key = OfferingKey {
            instance_type: TypeName::from(*name),
            zone: (*zone).into(),
            capacity_type: CapacityType::Spot,
        };
        stage.sell_out(&key);
    }
    let before = stage.clock.clone();
    let began = kerf_cloud::clock::Clock::now(&before).0;
    assert!(claims_per_node(&stage, 50, &EITHER) < 1.2);
    let took_ms = kerf_cloud::clock::Clock::now(&stage.clock).0 - began;
    assert!(took_ms < 1_000, "the next try follows in milliseconds: {took_ms}");
    let spot = stage.aws.account().instances.iter().filter(|instance| instance.is_spot).count();
    assert_eq!(spot, 50, "four spot offerings were left");
}

#[test]
fn d3_36_on_demand_is_bought_within_the_same_launch_when_all_spot_is_dry() {
    let stage = stage();
    stage.sell_out_all(CapacityType::Spot);
    assert!(claims_per_node(&stage, 50, &EITHER) < 1.2);
    assert!(stage.aws.account().instances.iter().all(|instance| !instance.is_spot));
    assert_eq!(stage.aws.count("ec2:CreateFleet"), 2, "one for spot, one for on-demand, for all fifty");
    // What was found dry is known to the next claim, too.
    stage.launch(stage.order("next", &EITHER)).unwrap();
    assert_eq!(stage.aws.count("ec2:CreateFleet"), 3);
}

#[test]
fn what_ran_dry_is_named_when_nothing_else_suits() {
    let stage = stage();
    stage.sell_out_all(CapacityType::Spot);
    let error = stage.launch(stage.order("claim", &["spot"])).unwrap_err();
    let CloudError::NoCapacity { message, sold_out } = error else { panic!("{error:?}") };
    assert_eq!(sold_out.len(), TYPES.len() * ZONES.len());
    assert!(message.contains("claim") && message.contains("InsufficientInstanceCapacity"), "{message}");
    assert_eq!(stage.aws.count("ec2:CreateFleet"), 1);
}

#[test]
fn a_fleet_that_names_nothing_is_not_asked_for_again() {
    let stage = stage();
    stage.aws.fail_next(Failure::new("ec2:CreateFleet", "InternalError", "an internal error has occurred"));
    let error = stage.launch(stage.order("claim", &EITHER)).unwrap_err();
    let CloudError::LaunchFailed { reason, .. } = &error else { panic!("{error:?}") };
    assert_eq!(&**reason, "InternalError");
    assert!(stage.launch(stage.order("claim", &EITHER)).is_ok(), "the claim's next try is a new request");
    assert_eq!(stage.aws.count("ec2:CreateFleet"), 2);
}

#[test]
fn a_template_that_somebody_deleted_is_made_again_once() {
    let stage = stage();
    stage.launch(stage.order("first", &EITHER)).unwrap();
    stage.aws.account().templates.clear();
    stage.launch(stage.order("second", &EITHER)).unwrap();
    assert_eq!(stage.aws.count("ec2:CreateFleet"), 3);
    assert_eq!(stage.aws.count("ec2:CreateLaunchTemplate"), 4, "two of them, twice");
    let gone = Failure::new("ec2:CreateFleet", "InvalidLaunchTemplateName.NotFoundException", "gone");
    stage.aws.fail_next(gone.clone());
    stage.aws.fail_next(gone);
    let error = stage.launch(stage.order("third", &EITHER)).unwrap_err();
    assert!(matches!(error, CloudError::LaunchFailed { .. }), "{error:?}");
}

#[test]
fn a_denied_tag_on_spot_requests_is_left_out_and_the_launch_repeated() {
    for message in [
        "You are not authorized to perform: ec2:CreateTags on resource: arn:aws:ec2:us-west-2:1:spot-instances-request/*",
        "You are not authorized to perform this operation. Encoded authorization failure message: abc",
    ] {
        let stage = stage();
        stage.aws.fail_next(Failure::new("ec2:CreateFleet", "UnauthorizedOperation", message));
        let bought = stage.launch(stage.order("claim", &EITHER)).unwrap();
        assert_eq!(kind(&bought), "spot");
        let requests = stage.requests("ec2:CreateFleet");
        let tagged = |n: usize| {
            let account = stage.aws.account();
            let used = account.templates.iter().filter(|(template, _)| requests[n].contains(&template.name));
            let data: Vec<_> = used.map(|(_, data)| data).collect();
            assert!(!data.is_empty());
            data.iter()
                .all(|data| data.tag_specifications.iter().any(|(resource, _)| resource == "spot-instances-request"))
        };
        assert_eq!((tagged(0), tagged(1)), (true, false), "{message}");
        assert_eq!(stage.cloud.optional().list().len(), 1, "and it is named");
    }
}

#[test]
fn d3_35_after_a_fix_waiting_claims_are_served_without_a_restart() {
    let stage = stage();
    let denied =
        Failure::new("ec2:CreateFleet", "UnauthorizedOperation", "You are not authorized to perform this operation.");
    stage.aws.fail_always(denied);
    let error = stage.launch(stage.order("claim", &["on-demand"])).unwrap_err();
    let CloudError::LaunchFailed { reason, message } = &error else { panic!("{error:?}") };
    assert_eq!(&**reason, "Unauthorized");
    assert!(message.contains("ec2:CreateFleet"), "{message}");
    stage.aws.account().always.clear();
    assert!(stage.launch(stage.order("claim", &["on-demand"])).is_ok());

    let invalid = "Value (node) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name";
    stage.aws.fail_always(Failure::new("ec2:CreateFleet", "InvalidParameterValue", invalid));
    let error = stage.launch(stage.order("other", &["on-demand"])).unwrap_err();
    let CloudError::LaunchFailed { reason, message } = &error else { panic!("{error:?}") };
    assert_eq!(&**reason, "InstanceProfileNameInvalid");
    assert!(message.contains("spec.instanceProfile"), "{message}");
    stage.aws.account().always.clear();
    assert!(stage.launch(stage.order("other", &["on-demand"])).is_ok());
}

#[test]
fn a_missing_service_linked_role_is_got_round_with_on_demand() {
    use kerf_cloud_aws::wire::{FleetError, FleetReply};
    let stage = stage();
    let reply = FleetReply {
        errors: vec![FleetError {
            code: "AuthFailure.ServiceLinkedRoleCreationNotPermitted".to_owned(),
            message: "The provided credentials do not have permission to create the service-linked role".to_owned(),
            ..FleetError::default()
        }],
        ..FleetReply::default()
    };
    stage.aws.account().fleet_replies.push_back(reply);
    let bought = stage.launch(stage.order("claim", &EITHER)).unwrap();
    assert_eq!(kind(&bought), "on-demand");
    let next = stage.launch(stage.order("next", &EITHER)).unwrap();
    assert_eq!(kind(&next), "on-demand", "spot rests for a while");
    assert_eq!(stage.aws.count("ec2:CreateFleet"), 3);
}

#[test]
fn d1_31_instances_of_another_cluster_are_no_garbage() {
    let stage = stage();
    let bought = stage.launch(stage.order("claim", &EITHER)).unwrap();
    stage.aws.account().instances[0].tags.insert("eks:eks-cluster-name".to_owned(), "other".to_owned());
    stage.clock.advance(Duration::from_secs(600));
    let report = stage.wait(stage.cloud.run_chore("instance.garbagecollection", Arc::default())).unwrap();
    assert!(report.asks.is_empty(), "{:?}", report.asks);
    assert!(stage.wait(stage.cloud.list()).unwrap().is_empty());
    assert!(stage.wait(stage.cloud.terminate(reference(&bought))).unwrap_err().is_not_found());
    assert_eq!(stage.aws.account().instances[0].state, "running");
}

fn in_use(stage: &Stage, instances: &[&Instance]) -> Arc<InUse> {
    let claim = |instance: &&Instance| ClaimInUse {
        name: ClaimName(instance.claim.clone()),
        provider_id: Some(instance.provider_id.clone()),
        node_class: stage.order("x", &EITHER).node_class,
        labels: Labels::clone(&instance.labels),
        annotations: BTreeMap::new(),
        is_deleting: false,
    };
    Arc::new(InUse { claims: instances.iter().map(claim).collect(), ..InUse::default() })
}

#[test]
fn the_end_of_an_instance_that_no_claim_knows_is_asked_for_once_it_is_half_a_minute_old() {
    let stage = stage();
    let kept = stage.launch(stage.order("kept", &EITHER)).unwrap();
    let orphan = stage.launch(stage.order("orphan", &EITHER)).unwrap();
    let in_use = in_use(&stage, &[&kept]);
    let collect = || stage.wait(stage.cloud.run_chore("instance.garbagecollection", in_use.clone())).unwrap();
    let states = || stage.aws.account().instances.iter().map(|instance| instance.state.clone()).collect::<Vec<_>>();
    stage.clock.advance(Duration::from_secs(20));
    assert!(collect().asks.is_empty());
    assert_eq!(states(), ["running", "running"]);
    stage.clock.advance(Duration::from_secs(11));
    let report = collect();
    let asked = |is_ending| ChoreAsk::EndMachine { provider_id: orphan.provider_id.clone(), is_ending };
    assert_eq!(report.asks, [asked(false)]);
    assert_eq!(states(), ["running", "running"], "that is the operator's to do, who knows its Node");
    stage.wait(stage.cloud.terminate(reference(&orphan))).unwrap();
    stage.aws.account().instances[1].state = "shutting-down".to_owned();
    assert_eq!(collect().asks, [asked(true)], "for the sake of its Node");
    assert_eq!(report.again_after, Some(Duration::from_secs(10)));
    for _ in 0..18 {
        collect();
    }
    assert_eq!(collect().again_after, Some(Duration::from_secs(120)), "in order by now");
}

#[test]
fn an_instance_whose_claim_has_another_one_by_now_is_known_to_nobody() {
    let stage = stage();
    let first = stage.launch(stage.order("pool-1", &EITHER)).unwrap();
    let second = stage.launch(stage.order("other", &EITHER)).unwrap();
    stage.clock.advance(Duration::from_secs(120));
    let collect = |second: &Instance, provider_id: Option<kerf_model::Text>| {
        let mut in_use = InUse::clone(&in_use(&stage, &[second]));
        in_use.claims[0].name = ClaimName("pool-1".into());
        in_use.claims[0].provider_id = provider_id;
        stage.wait(stage.cloud.run_chore("instance.garbagecollection", Arc::new(in_use))).unwrap().asks
    };
    // A static claim's name is given again when somebody forces the first one away.
    let asks = collect(&second, Some(second.provider_id.clone()));
    assert_eq!(asks, [ChoreAsk::EndMachine { provider_id: first.provider_id.clone(), is_ending: false }]);
    let spared = collect(&second, None);
    assert!(
        !spared
            .iter()
            .any(|ask| matches!(ask, ChoreAsk::EndMachine { provider_id, .. } if provider_id == &first.provider_id))
    );
}

#[test]
fn d0_20_a_claim_whose_instance_lost_its_pool_tag_is_let_go_and_the_instance_kept() {
    let stage = stage();
    let bought = stage.launch(stage.order("claim", &EITHER)).unwrap();
    stage.clock.advance(Duration::from_secs(120));
    let in_use = in_use(&stage, &[&bought]);
    let collect = || stage.wait(stage.cloud.run_chore("instance.garbagecollection", in_use.clone())).unwrap().asks;
    let is_released = || stage.wait(stage.cloud.released(bought.provider_id.clone()).unwrap()).unwrap();
    assert!(collect().is_empty());
    assert!(!is_released());
    stage.aws.account().instances[0].tags.remove("karpenter.sh/nodepool");
    let asks = collect();
    let [ChoreAsk::EndClaim { claim, reason, by_force: false, .. }] = &asks[..] else { panic!("{asks:?}") };
    assert_eq!((claim.as_str(), &**reason), ("claim", "Released"));
    assert!(is_released());
    assert!(stage.wait(stage.cloud.terminate(reference(&bought))).unwrap_err().is_not_found());
    assert_eq!(stage.aws.account().instances[0].state, "running");
}

#[test]
fn a_zone_that_is_shifted_away_from_is_neither_bought_in_nor_touched() {
    use kerf_cloud_aws::wire::ZonalShift;
    let stage = stage_with(|_| {}, |settings| settings.has_zonal_shift = true);
    let (zone, zone_id) = ZONES[0];
    let expires_ms = i64::MAX;
    stage.aws.account().shifts =
        vec![ZonalShift { zone_id: zone_id.to_owned(), status: "APPLIED".to_owned(), expires_ms }];
    let before = stage.launch(stage.order("before", &EITHER)).unwrap();
    assert_eq!(&*before.labels[labels::ZONE], zone, "the cheapest zone");
    let in_use = InUse { classes: vec![Arc::new(stage.class.clone())], ..InUse::default() };
    stage.wait(stage.cloud.run_chore("zonalshift", Arc::new(in_use))).unwrap();
    let after = stage.launch(stage.order("after", &EITHER)).unwrap();
    assert_ne!(&*after.labels[labels::ZONE], zone);
    let error = stage.wait(stage.cloud.terminate(reference(&before))).unwrap_err();
    assert!(error.to_string().contains("zonal shift"), "{error}");
}

#[test]
fn a_spot_machine_that_was_taken_back_makes_its_offering_rest() {
    let stage = stage();
    let first = stage.launch(stage.order("first", &EITHER)).unwrap();
    stage.cloud.taken_back(&first.labels);
    let second = stage.launch(stage.order("second", &EITHER)).unwrap();
    let what =
        |instance: &Instance| (instance.labels[labels::INSTANCE_TYPE].clone(), instance.labels[labels::ZONE].clone());
    assert_ne!(what(&first), what(&second));
}

#[test]
fn an_instance_is_labelled_and_annotated_for_its_claim() {
    let stage = stage();
    let bought = stage.launch(stage.order("claim", &EITHER)).unwrap();
    let hash =
        stage.class["metadata"]["annotations"]["karpenter.k8s.aws/ec2nodeclass-hash"].as_str().map(str::to_owned);
    assert_eq!(bought.annotations.get("karpenter.k8s.aws/ec2nodeclass-hash").map(|hash| hash.to_string()), hash);
    assert_eq!(&*bought.annotations["karpenter.k8s.aws/instance-profile-name"], "profile-1");
    assert_eq!(&*bought.image_id, "ami-1");
    assert_eq!(&*bought.labels["topology.k8s.aws/zone-id"], "usw2-az1");
    assert_eq!(&*bought.labels["karpenter.k8s.aws/instance-category"], "c");
    assert!(!bought.capacity.0.contains_key("vpc.amazonaws.com/efa"), "{}", bought.capacity);
    let marks = stage.wait(stage.cloud.label_instance(reference(&bought))).unwrap();
    assert_eq!(marks.len(), stage.cloud.labelling_marks().len());
    let tags = stage.aws.account().instances[0].tags.clone();
    assert_eq!((tags["Name"].as_str(), tags["karpenter.sh/nodeclaim"].as_str()), ("node-1", "claim"));
}

/// r5 is the dearest by the price list, and the cheapest by the overlay: what the plan was made with is what the fleet is told.
#[test]
fn an_overlays_price_ranks_the_launch_and_is_the_priority_of_the_request() {
    use kerf_cloud::overlay::{Overlay, PriceChange};
    let stage = stage();
    let overlay = |name: &str, family: &str, price: PriceChange| Overlay {
        name: name.into(),
        weight: 1,
        requirements: kerf_model::Requirements::new()
            .with("karpenter.k8s.aws/instance-family", kerf_model::Requirement::is_in([family])),
        price: Some(price),
        capacity: kerf_model::Resources::new(),
    };
    let half_a_cent = PriceChange::Absolute(kerf_model::Money::from_micros(5_000));
    stage.cloud.set_overlays(vec![overlay("r", "r5", half_a_cent), overlay("m", "m5", PriceChange::Percent(-50.0))]);
    let mut order = stage.order("overlaid", &["on-demand"]);
    order.annotations.insert("karpenter.sh/price-overlay-applied".into(), "true".into());
    let bought = stage.launch(order).unwrap();
    assert_eq!(&*bought.labels[labels::INSTANCE_TYPE], "r5.large");
    let request = stage.requests("ec2:CreateFleet").pop().unwrap();
    assert!(request.contains("on_demand_strategy: Some(\"prioritized\")"), "{request}");
    let place = |name: &str| request.find(&format!("instance_type: {name:?}")).unwrap_or_else(|| panic!("{name}"));
    assert!(place("r5.large") < place("m5.large") && place("m5.large") < place("c5.large"), "{request}");
    for micros in ["5000", "48000", "85000"] {
        assert!(request.contains(&format!("micros: {micros}")), "{micros}: {request}");
    }
    // A claim that a person made has no pool, and so no overlays; and neither has anybody once they are gone.
    let plain = LaunchOrder { pool: None, ..stage.order("by-hand", &["on-demand"]) };
    assert_eq!(&*stage.launch(plain).unwrap().labels[labels::INSTANCE_TYPE], "c5.large");
    stage.cloud.set_overlays(Vec::new());
    let later = stage.launch(stage.order("later", &["on-demand"])).unwrap();
    assert_eq!(&*later.labels[labels::INSTANCE_TYPE], "c5.large");
}

#[test]
fn the_partition_of_a_placement_group_is_a_label_once_it_is_known() {
    use kerf_cloud_aws::wire::PlacementGroup;
    const PARTITION: &str = "karpenter.k8s.aws/placement-group-partition";
    let mut stage = stage();
    stage.aws.account().placement_groups = vec![PlacementGroup {
        id: "pg-1".to_owned(),
        name: "group".to_owned(),
        strategy: "partition".to_owned(),
        n_partitions: 3,
        state: "available".to_owned(),
    }];
    stage.class["spec"]["placementGroupSelector"] = serde_json::json!({"name": "group"});
    stage.resolve();
    assert_eq!(stage.cloud.late_labels(), [PARTITION]);
    // EC2 picks the partition: only the running instance tells which.
    let open = stage.launch(stage.order("open", &EITHER)).unwrap();
    assert_eq!((&*open.labels["karpenter.k8s.aws/placement-group-id"], &*open.labels[PARTITION]), ("pg-1", ""));
    let read = |instance: &Instance| stage.wait(stage.cloud.get(instance.provider_id.clone())).unwrap();
    assert_eq!(&*read(&open).labels[PARTITION], "");
    stage.aws.account().instances[0].partition = Some(3);
    assert_eq!(&*read(&open).labels[PARTITION], "3");
    // A claim that lost its answer asks again with the labels it has, of which the empty one is none to insist on.
    let mut again = stage.order("again", &EITHER);
    again.labels.extend(Labels::clone(&open.labels));
    assert!(stage.launch(again).is_ok());
    // Here the claim picks.
    let mut order = stage.order("picky", &EITHER);
    order.requirements.add(PARTITION, kerf_model::Requirement::is_in(["2"]));
    let picky = stage.launch(order).unwrap();
    assert_eq!((&*picky.labels[PARTITION], &*read(&picky).labels[PARTITION]), ("2", "2"));
}

#[test]
fn in_an_isolated_vpc_nobody_asks_iam_for_advice() {
    let mut stage = stage_with(|_| {}, |settings| settings.is_isolated_vpc = true);
    let words = "Value (profile-1) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name";
    let invalid = |action: &'static str| Failure::new(action, "InvalidParameterValue", words);
    stage.aws.fail_next(invalid("ec2:CreateFleet"));
    let error = stage.launch(stage.order("claim", &["on-demand"])).unwrap_err().to_string();
    assert!(error.contains("there is no instance profile \"profile-1\""), "{error}");
    stage.aws.fail_always(invalid("ec2:RunInstances"));
    stage.class["spec"]["tags"] = serde_json::json!({"team": "z"});
    stage.class["metadata"]["generation"] = 2.into();
    let found = stage.wait(stage.cloud.resolve_class(Arc::new(stage.class.clone()))).unwrap();
    let said = found.status["conditions"].to_string();
    assert!(said.contains("there is no instance profile"), "{said}");
    let called: Vec<&str> = stage.aws.account().calls.iter().map(|(action, _)| *action).collect();
    assert!(!called.iter().any(|action| action.starts_with("iam:")), "{called:?}");
}
