//! A small region in a scripted account, asked what it sells.

use super::*;
use crate::by_hand::{HandClock, finish};
use crate::wire::scripted::Scripted;
use crate::wire::{ListPrice, SpotPrice, TypeInZone};
use kerf_cloud::aws::{PLACEMENT_GROUP_ID, PLACEMENT_GROUP_PARTITION, type_facts};
use kerf_model::{Offering, Quantity, Resources, labels};
use serde_json::{Value, json};

const ZONES: [&str; 3] = ["us-west-2a", "us-west-2b", "us-west-2c"];
const TYPES: [&str; 6] = ["a1.large", "c5.large", "m5.large", "m5.metal", "p5.48xlarge", "t3.micro"];

/// The answer of a scripted account, which waits for nothing.
fn now<T>(work: impl Future<Output = T>) -> T {
    finish(&HandClock::new(), Duration::ZERO, work)
}

struct World {
    wire: Scripted,
    clock: Arc<HandClock>,
    supply: Supply,
}

impl World {
    /// Types and offerings are known, prices are not yet; zone c does not sell the m5.large.
    fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let wire = Scripted::default();
        {
            let mut account = wire.account();
            account.types = TYPES.iter().map(|name| type_facts(name).unwrap().clone()).collect();
            let pairs = TYPES.iter().flat_map(|name| ZONES.iter().map(move |zone| (*name, *zone)));
            let sold = pairs.filter(|pair| *pair != ("m5.large", "us-west-2c"));
            account.offerings =
                sold.map(|(name, zone)| TypeInZone { instance_type: name.to_owned(), zone: zone.to_owned() }).collect();
        }
        let mut settings = Settings { region: "us-west-2".to_owned(), ..Settings::default() };
        change(&mut settings);
        let clock = Arc::new(HandClock::new());
        let supply = Supply::new(Arc::new(settings), clock.clone());
        now(supply.refresh_types(&wire)).unwrap();
        Self { wire, clock, supply }
    }

    fn types(&self, class: &Ec2NodeClass) -> Types {
        self.supply.instance_types(class).unwrap()
    }

    fn find(&self, class: &Ec2NodeClass, name: &str) -> Arc<InstanceType> {
        self.types(class).iter().find(|it| it.name.as_str() == name).unwrap().clone()
    }

    /// The available offerings of a type, as `a spot`.
    fn available(&self, class: &Ec2NodeClass, name: &str) -> Vec<String> {
        let it = self.find(class, name);
        it.offerings.iter().filter(|offering| offering.available).map(in_short).collect()
    }
}

fn in_short(offering: &Offering) -> String {
    let zone = offering.zone().unwrap();
    format!("{} {}", zone.trim_start_matches("us-west-2"), offering.capacity_type().unwrap().as_str())
}

/// With subnets in zones a and b.
fn class(spec: Value) -> Ec2NodeClass {
    let mut class = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
    "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}]},
    "status": {
        "subnets": [
            {"id": "subnet-a1", "zone": "us-west-2a", "zoneID": "usw2-az2"},
            {"id": "subnet-a2", "zone": "us-west-2a", "zoneID": "usw2-az2"},
            {"id": "subnet-b", "zone": "us-west-2b", "zoneID": "usw2-az1"}],
        "amis": [
            {"id": "ami-arm", "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]},
            {"id": "ami-amd", "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]}],
    }});
    for (key, value) in spec.as_object().unwrap() {
        class["spec"][key] = value.clone();
    }
    serde_json::from_value(class).unwrap()
}

fn plain() -> Ec2NodeClass {
    class(json!({}))
}

#[test]
fn nothing_is_sold_before_ec2_has_said_what_there_is() {
    let supply = Supply::new(Arc::new(Settings::default()), Arc::new(HandClock::new()));
    let error = supply.instance_types(&plain()).unwrap_err();
    assert!(error.to_string().contains("ec2:DescribeInstanceTypes"), "{error}");
}

#[test]
fn a_class_without_subnets_has_no_types() {
    let world = World::new(|_| {});
    let mut class = plain();
    class.status = None;
    let error = world.supply.instance_types(&class).unwrap_err();
    assert!(error.to_string().contains("EC2NodeClass default: status.subnets"), "{error}");
}

#[test]
fn an_empty_answer_is_refused_and_what_was_known_stays() {
    let world = World::new(|_| {});
    world.wire.account().types.clear();
    let failure = now(world.supply.refresh_types(&world.wire)).unwrap_err();
    assert_eq!(failure.action, "ec2:DescribeInstanceTypes");
    world.wire.account().types = vec![type_facts("m5.large").unwrap().clone()];
    world.wire.account().offerings.clear();
    let failure = now(world.supply.refresh_types(&world.wire)).unwrap_err();
    assert_eq!(failure.action, "ec2:DescribeInstanceTypeOfferings");
    assert_eq!(world.types(&plain()).len(), TYPES.len());
}

#[test]
fn every_zone_of_the_region_has_an_offering_of_each_kind_and_only_the_usable_ones_are_available() {
    let world = World::new(|_| {});
    let it = world.find(&plain(), "m5.large");
    let all: Vec<String> = it.offerings.iter().map(in_short).collect();
    assert_eq!(all, ["a spot", "a on-demand", "b spot", "b on-demand", "c spot", "c on-demand"]);
    assert_eq!(world.available(&plain(), "m5.large"), ["a spot", "a on-demand", "b spot", "b on-demand"]);
    let label = |key: &str| it.requirements.get(key).unwrap().to_string();
    assert_eq!(label(labels::ZONE), "In [us-west-2a, us-west-2b]");
    assert_eq!(label("topology.k8s.aws/zone-id"), "In [usw2-az1, usw2-az2]");
    assert_eq!(label(labels::CAPACITY_TYPE), "In [on-demand, spot]");
    assert_eq!(label(labels::AWS_RESERVATION_ID), "DoesNotExist");
    let zone_id = it.offerings[0].requirements.get("topology.k8s.aws/zone-id").unwrap();
    assert_eq!(zone_id.to_string(), "In [usw2-az2]");
    assert!(it.offerings[4].requirements.get("topology.k8s.aws/zone-id").is_none());
}

#[test]
fn a_type_that_the_class_cannot_use_is_listed_without_available_offerings() {
    let world = World::new(|_| {});
    assert!(world.available(&plain(), "a1.large").is_empty());
    let tracking = class(json!({"connectionTracking": {"udpTimeout": 30}}));
    assert!(world.available(&tracking, "m5.metal").is_empty());
    assert!(!world.available(&tracking, "m5.large").is_empty());
    let second_device =
        class(json!({"networkInterfaces": [{"networkCardIndex": 0, "deviceIndex": 2, "interfaceType": "interface"}]}));
    assert!(world.available(&second_device, "t3.micro").is_empty(), "it has two interfaces");
    assert!(!world.available(&second_device, "m5.large").is_empty());
}

#[test]
fn an_unchanged_list_is_the_same_list_and_a_mark_renews_one_type() {
    let world = World::new(|_| {});
    let before = world.types(&plain());
    assert!(Arc::ptr_eq(&before, &world.types(&plain())));
    world.supply.unavailable().mark(CapacityType::Spot, "m5.large", "us-west-2a", None);
    let after = world.types(&plain());
    for (old, new) in std::iter::zip(before.iter(), after.iter()) {
        assert_eq!(Arc::ptr_eq(old, new), old.name.as_str() != "m5.large", "{}", old.name);
    }
    assert_eq!(world.available(&plain(), "m5.large"), ["a on-demand", "b spot", "b on-demand"]);
    world.clock.advance(Duration::from_secs(180));
    assert_eq!(world.available(&plain(), "m5.large"), ["a spot", "a on-demand", "b spot", "b on-demand"]);
}

#[test]
fn a_zone_closes_when_all_its_subnets_are_out_of_addresses_or_traffic_was_moved_away() {
    let world = World::new(|_| {});
    world.supply.unavailable().mark_subnet("subnet-a1");
    assert_eq!(world.available(&plain(), "m5.large").len(), 4);
    world.supply.unavailable().mark_subnet("subnet-a2");
    assert_eq!(world.available(&plain(), "m5.large"), ["b spot", "b on-demand"]);
    world.supply.set_shifted_zones(BTreeSet::from(["usw2-az1".to_owned()]));
    assert!(world.available(&plain(), "m5.large").is_empty());
    world.supply.set_shifted_zones(BTreeSet::new());
    world.clock.advance(Duration::from_secs(180));
    assert_eq!(world.available(&plain(), "m5.large").len(), 4);
    world.supply.unavailable().mark_capacity_type(CapacityType::Spot);
    assert_eq!(world.available(&plain(), "m5.large"), ["a on-demand", "b on-demand"]);
}

#[test]
fn prices_come_from_aws_once_it_answered_and_a_zone_without_one_is_not_bought_from() {
    let world = World::new(|_| {});
    let price = |zone: &str, way| world.supply.price("m5.large", Some(zone), way).map(Money::dollars);
    assert_eq!(price("us-west-2a", CapacityType::Spot), Some(0.096));
    {
        let mut account = world.wire.account();
        let list =
            |name: &str, dollars| ListPrice { instance_type: name.to_owned(), price: Money::from_dollars(dollars) };
        account.list_prices = vec![list("m5.large", 0.1), list("m5.metal", 5.0)];
        account.spot_prices = vec![SpotPrice {
            instance_type: "m5.large".to_owned(),
            zone: "us-west-2b".to_owned(),
            price: Money::from_dollars(0.04),
            at_ms: 0,
        }];
    }
    now(world.supply.refresh_on_demand(&world.wire)).unwrap();
    now(world.supply.refresh_spot(&world.wire)).unwrap();
    assert_eq!(price("us-west-2a", CapacityType::OnDemand), Some(0.1));
    assert_eq!(price("us-west-2b", CapacityType::Spot), Some(0.04));
    assert_eq!(world.available(&plain(), "m5.large"), ["a on-demand", "b spot", "b on-demand"]);
    assert_eq!(world.available(&plain(), "c5.large"), ["a on-demand", "b on-demand"]);
    let it = world.find(&plain(), "m5.large");
    assert!(it.offerings.iter().filter(|offering| offering.available).all(|offering| !offering.price_is_estimate));
}

#[test]
fn a_half_answer_of_the_price_list_is_refused_and_some_places_are_never_asked() {
    let world = World::new(|_| {});
    world.wire.account().list_prices =
        vec![ListPrice { instance_type: "m5.large".to_owned(), price: Money::from_dollars(9.0) }];
    let failure = now(world.supply.refresh_on_demand(&world.wire)).unwrap_err();
    assert!(failure.to_string().contains("BareMetal"), "{failure}");
    assert_eq!(world.supply.price("m5.large", None, CapacityType::OnDemand), Some(Money::from_dollars(0.096)));
    assert!(now(world.supply.refresh_spot(&world.wire)).is_err());

    for change in [
        |settings: &mut Settings| settings.is_isolated_vpc = true,
        |settings: &mut Settings| {
            settings.region = "us-gov-west-1".to_owned();
        },
    ] {
        let world = World::new(change);
        now(world.supply.refresh_on_demand(&world.wire)).unwrap();
        assert_eq!(world.wire.count("pricing:GetProducts"), 0);
    }
}

fn with_reservation(state: &str) -> Ec2NodeClass {
    let mut class = plain();
    class.status.as_mut().unwrap().capacity_reservations = vec![
        serde_json::from_value(
            json!({"availabilityZone": "us-west-2a", "id": "cr-1", "instanceMatchCriteria": "targeted",
            "instanceType": "m5.large", "ownerID": "123456789012", "reservationType": "default", "state": state}),
        )
        .unwrap(),
    ];
    class
}

#[test]
fn a_reservation_is_offered_while_instances_are_left_in_it() {
    let world = World::new(|_| {});
    let class = with_reservation("active");
    let reserved = |class: &Ec2NodeClass| {
        let it = world.find(class, "m5.large");
        it.offerings.iter().find(|offering| offering.capacity_type() == Some(CapacityType::Reserved)).cloned().unwrap()
    };
    assert!(!reserved(&class).available);
    world.supply.reservations().set("cr-1", 1);
    let offering = reserved(&class);
    assert!(offering.available);
    assert_eq!((offering.reservation_capacity, offering.price), (Some(1), Money::ZERO));
    let it = world.find(&class, "m5.large");
    assert_eq!(it.requirements.get(labels::AWS_RESERVATION_ID).unwrap().to_string(), "In [cr-1]");
    assert_eq!(it.requirements.get(labels::CAPACITY_TYPE).unwrap().to_string(), "In [on-demand, reserved, spot]");
    let others = world.types(&class);
    world.supply.reservations().launched("cr-1");
    assert!(!reserved(&class).available);
    // Only the reserved type was made again.
    let same = std::iter::zip(others.iter(), world.types(&class).iter()).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
    assert_eq!(same, TYPES.len() - 1);
    world.supply.reservations().set("cr-1", 1);
    assert!(!reserved(&with_reservation("expiring")).available);
}

#[test]
fn reservations_are_not_offered_while_their_gate_is_off() {
    let world = World::new(|settings| settings.has_reserved_capacity = false);
    world.supply.reservations().set("cr-1", 1);
    assert_eq!(world.find(&with_reservation("active"), "m5.large").offerings.len(), 6);
}

fn group(strategy: &str, n_partitions: u32) -> PlacementGroup {
    PlacementGroup { id: "pg-1".to_owned(), strategy: strategy.to_owned(), n_partitions, ..PlacementGroup::default() }
}

#[test]
fn each_partition_of_a_placement_group_is_an_offering_of_its_own() {
    let world = World::new(|_| {});
    let class = class(json!({"placementGroupSelector": {"name": "spread-out"}}));
    let selector = class.spec.placement_group_selector.clone().unwrap();
    assert_eq!(world.find(&class, "m5.large").offerings.len(), 6);
    world.supply.set_placement_group(&selector, Some(group("partition", 3)));
    let it = world.find(&class, "m5.large");
    assert_eq!(it.offerings.len(), 18);
    assert_eq!(it.requirements.get(PLACEMENT_GROUP_ID).unwrap().to_string(), "In [pg-1]");
    assert_eq!(it.requirements.get(PLACEMENT_GROUP_PARTITION).unwrap().to_string(), "In [1, 2, 3]");
    assert_eq!(it.offerings[2].requirements.get(PLACEMENT_GROUP_PARTITION).unwrap().to_string(), "In [3]");

    world.supply.unavailable().mark(CapacityType::Spot, "m5.large", "us-west-2a", Some("pg-1"));
    assert!(!world.find(&class, "m5.large").offerings[0].available);
    assert!(world.available(&plain(), "m5.large").contains(&"a spot".to_owned()));
}

#[test]
fn a_cluster_placement_group_takes_only_types_that_can_be_packed() {
    let world = World::new(|_| {});
    let class = class(json!({"placementGroupSelector": {"id": "pg-1"}}));
    let selector = class.spec.placement_group_selector.clone().unwrap();
    world.supply.set_placement_group(&selector, Some(group("cluster", 0)));
    assert!(world.available(&class, "t3.micro").is_empty());
    assert!(!world.available(&class, "c5.large").is_empty());
    assert!(world.find(&class, "c5.large").requirements.get(PLACEMENT_GROUP_PARTITION).unwrap().values.is_empty());
    world.supply.set_placement_group(&selector, None);
    assert!(!world.available(&class, "t3.micro").is_empty());
}

#[test]
fn the_least_memory_that_a_node_of_todays_image_had_replaces_the_computed_one() {
    let world = World::new(|_| {});
    let class = plain();
    let object = serde_json::to_value(&class).unwrap();
    let see = |image_id: &str, mebibytes: i64| {
        let capacity = Resources::new().with(MEMORY, Quantity::from_mebibytes(mebibytes));
        world.supply.learn(&NodeSeen {
            instance_type: "m5.large",
            image_id,
            class_object: &object,
            capacity: &capacity,
        });
        let it = world.find(&class, "m5.large");
        (it.capacity.get(MEMORY).to_string(), it.allocatable().get(MEMORY).to_string())
    };
    let told = |capacity: &str, allocatable: &str| (capacity.to_owned(), allocatable.to_owned());
    assert_eq!(see("ami-old", 7000), told("7577Mi", "6903Mi"));
    assert_eq!(see("ami-arm", 7000), told("7577Mi", "6903Mi"));
    assert_eq!(see("ami-amd", 7700), told("7700Mi", "7026Mi"));
    assert_eq!(see("ami-amd", 7650), told("7650Mi", "6976Mi"));
    assert_eq!(see("ami-amd", 7690), told("7650Mi", "6976Mi"));
    world.clock.advance(Duration::from_secs(60 * 24 * 3600));
    world.supply.set_shifted_zones(BTreeSet::from(["usw2-az9".to_owned()]));
    assert_eq!(world.find(&class, "m5.large").capacity.get(MEMORY).to_string(), "7577Mi");
}

fn with_expressions() -> Ec2NodeClass {
    class(json!({"kubelet": {
        "maxPods": "min(max_pods, vcpus * 10)",
        "kubeReserved": {"cpu": "max_pods * 3 + 1", "memory": "memory_mib / 50", "ephemeral-storage": "2Gi"},
        "systemReserved": {"memory": "vcpus - 100", "pid": "vcpus * 100"},
    }}))
}

#[test]
fn expressions_are_evaluated_for_each_type_when_their_gate_is_on() {
    let world = World::new(|settings| settings.has_node_class_cel = true);
    let class = with_expressions();
    let it = world.find(&class, "m5.large");
    assert_eq!(it.capacity.get("pods").units(), 20);
    // 61 rounds up to 70 millicores; 163 to 176 MiB, and 100 MiB for eviction.
    assert_eq!(it.overhead.get("cpu").to_string(), "70m");
    assert_eq!(it.overhead.get(MEMORY).to_string(), "276Mi");
    let facts = world.supply.facts("m5.large").unwrap();
    let kubelet = world.supply.kubelet_of(&class, &facts).unwrap();
    assert_eq!(kubelet.max_pods, 20);
    let text =
        |map: &BTreeMap<String, String>| map.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ");
    assert_eq!(text(&kubelet.kube_reserved), "cpu=70m ephemeral-storage=2Gi memory=176Mi");
    // A negative amount is left out here, and named when the class is validated.
    assert_eq!(text(&kubelet.system_reserved), "pid=200");
    let verdict = world.supply.evaluate_expressions(&class).unwrap_err();
    let expected = "spec.kubelet.systemReserved.memory for a1.large: its result -98 is negative";
    assert_eq!(verdict, ExpressionsVerdict::Failed(expected.to_owned()));
}

#[test]
fn expressions_count_for_nothing_while_their_gate_is_off() {
    let world = World::new(|_| {});
    let class = with_expressions();
    assert_eq!(world.find(&class, "m5.large").capacity.get("pods").units(), 29);
    let kubelet = world.supply.kubelet_of(&class, &world.supply.facts("m5.large").unwrap()).unwrap();
    assert_eq!(kubelet.max_pods, 29);
    assert_eq!(kubelet.kube_reserved, BTreeMap::from([("ephemeral-storage".to_owned(), "2Gi".to_owned())]));
    assert!(kubelet.system_reserved.is_empty());
}

#[test]
fn one_type_without_a_usable_number_of_pods_fails_the_whole_list() {
    let world = World::new(|settings| settings.has_node_class_cel = true);
    let class = class(json!({"kubelet": {"maxPods": "instance_type == 'm5.large' ? -1 : 10"}}));
    assert_eq!(world.supply.compile_expressions(&class), Ok(()));
    let error = world.supply.instance_types(&class).unwrap_err().to_string();
    let expected =
        "EC2NodeClass default: spec.kubelet.maxPods for m5.large: its result -1 is not between 0 and 2147483647";
    assert_eq!(error, expected);
}

#[test]
fn expressions_are_checked_before_any_type_is_known() {
    let supply = Supply::new(Arc::new(Settings::default()), Arc::new(HandClock::new()));
    let class_with = |text: &str| class(json!({"kubelet": {"systemReserved": {"cpu": text}}}));
    assert_eq!(supply.compile_expressions(&class_with("vcpus * 10")), Ok(()));
    assert_eq!(supply.evaluate_expressions(&class_with("vcpus * 10")), Err(ExpressionsVerdict::NoTypesYet));
    assert_eq!(supply.evaluate_expressions(&class_with("100m")), Ok(()));
    let error = supply.compile_expressions(&class_with("lots")).unwrap_err();
    assert!(error.starts_with("spec.kubelet.systemReserved.cpu: \"lots\": "), "{error}");
}

#[test]
fn types_that_aws_describes_are_completed_from_the_table() {
    let world = World::new(|_| {});
    world.wire.account().types =
        vec![TypeFacts { branch_interfaces: None, network_mbps: None, ..type_facts("m5.large").unwrap().clone() }];
    now(world.supply.refresh_types(&world.wire)).unwrap();
    let facts = world.supply.facts("m5.large").unwrap();
    assert_eq!((facts.branch_interfaces, facts.network_mbps), (Some(9), Some(750)));
    assert_eq!(world.types(&plain()).len(), 1);
}

/// D0.14: bin packing assumes the density of the VPC CNI; `kubelet.maxPods` is the way out.
#[test]
fn d0_14_pods_per_node_follow_the_interfaces_unless_max_pods_says_otherwise() {
    let world = World::new(|_| {});
    let n_pods = |class: &Ec2NodeClass, name: &str| world.find(class, name).capacity.get("pods").units();
    assert_eq!((n_pods(&plain(), "m5.large"), n_pods(&plain(), "t3.micro")), (29, 4));
    let other_cni = class(json!({"kubelet": {"maxPods": 110}}));
    assert_eq!((n_pods(&other_cni, "m5.large"), n_pods(&other_cni, "t3.micro")), (110, 110));
    let facts = world.supply.facts("t3.micro").unwrap();
    assert_eq!(world.supply.kubelet_of(&other_cni, &facts).unwrap().max_pods, 110);
}

/// D0.21: agents on the host are provided for by `kubelet.systemReserved`, so that pods do not suffer.
#[test]
fn d0_21_what_is_reserved_for_agents_on_the_host_is_not_planned_with() {
    let world = World::new(|_| {});
    let agents = class(json!({"kubelet": {"systemReserved": {"cpu": "200m", "memory": "300Mi"}}}));
    let left = |class: &Ec2NodeClass| {
        let left = world.find(class, "m5.large").allocatable();
        (left.get("cpu").to_string(), left.get(MEMORY).to_string())
    };
    assert_eq!(left(&plain()), ("1930m".to_owned(), "6903Mi".to_owned()));
    assert_eq!(left(&agents), ("1730m".to_owned(), "6603Mi".to_owned()));
    let kubelet = world.supply.kubelet_of(&agents, &world.supply.facts("m5.large").unwrap()).unwrap();
    assert_eq!(kubelet.system_reserved["memory"], "300Mi");
}
