use super::*;
use crate::by_hand::{HandClock, Hands, finish};
use crate::wire::scripted::Scripted;
use kerf_cloud::Instance;
use kerf_model::{CapacityType, labels};

const STEP: Duration = Duration::from_millis(10);

struct Stage {
    aws: Scripted,
    clock: HandClock,
    instances: Arc<Instances>,
}

fn stage() -> Stage {
    let (aws, clock) = (Scripted::default(), HandClock::new());
    let settings = Arc::new(Settings { cluster_name: "prod".to_owned(), ..Settings::default() });
    let instances = Instances::new(Arc::new(aws.clone()), settings, Arc::new(clock.clone()), Arc::default());
    Stage { aws, clock, instances: Arc::new(instances) }
}

fn tags(cluster: &str) -> Tags {
    let ours = [
        (api_labels::NODE_POOL, "default"),
        (api_labels::EC2_NODE_CLASS, "default"),
        (CLUSTER_TAG, cluster),
        (&format!("kubernetes.io/cluster/{cluster}"), "owned"),
    ];
    ours.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

impl Stage {
    fn add(&self, id: &str, change: impl FnOnce(&mut Ec2Instance)) {
        let mut instance = Ec2Instance {
            id: id.to_owned(),
            instance_type: "m5.large".to_owned(),
            state: "running".to_owned(),
            zone: "us-west-2a".to_owned(),
            tags: tags("prod"),
            ..Ec2Instance::default()
        };
        change(&mut instance);
        self.aws.account().instances.push(instance);
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        finish(&self.clock, STEP, future)
    }

    fn listed(&self) -> Vec<String> {
        self.wait(self.instances.list()).unwrap().into_iter().map(|instance| instance.id).collect()
    }

    fn state(&self, id: &str) -> String {
        let account = self.aws.account();
        account.instances.iter().find(|instance| instance.id == id).unwrap().state.clone()
    }
}

fn provider_id(id: &str) -> String {
    format!("aws:///us-west-2a/{id}")
}

fn reference(id: &str) -> InstanceRef {
    InstanceRef { provider_id: provider_id(id).into(), claim: "claim-1".into(), node_name: Some("node-1".into()) }
}

#[test]
fn a_provider_id_names_zone_and_instance() {
    let parsed = ProviderId::parse("aws:///us-west-2a/i-1").unwrap();
    assert_eq!((parsed.zone.as_str(), parsed.id.as_str()), ("us-west-2a", "i-1"));
    assert_eq!(&*ProviderId::format(&parsed.zone, &parsed.id), "aws:///us-west-2a/i-1");
    for wrong in ["", "i-1", "aws:///us-west-2a", "aws:///us-west-2a/", "kwok://x"] {
        assert_eq!(ProviderId::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn d1_31_instances_of_another_cluster_are_neither_listed_nor_ended() {
    let stage = stage();
    stage.add("i-ours", |_| {});
    stage.add("i-theirs", |instance| instance.tags = tags("other"));
    assert_eq!(stage.listed(), ["i-ours"]);
    let request = stage.aws.account().calls.last().unwrap().1.clone();
    assert!(request.contains("tag:eks:eks-cluster-name") && request.contains("prod"), "{request}");
    let answer = stage.wait(stage.instances.end(&provider_id("i-theirs")));
    assert!(answer.is_err_and(|error| error.is_not_found()));
    assert_eq!(stage.state("i-theirs"), "running");
}

#[test]
fn d1_29_instances_are_found_by_the_key_of_the_pool_tag_whatever_its_value() {
    let stage = stage();
    stage.add("i-1", |instance| drop(instance.tags.insert(api_labels::NODE_POOL.to_owned(), String::new())));
    stage.add("i-2", |instance| drop(instance.tags.remove(api_labels::EC2_NODE_CLASS)));
    assert_eq!(stage.listed(), ["i-1"]);
}

#[test]
fn d0_20_an_instance_whose_pool_tag_a_person_removed_is_released_and_not_ended() {
    let stage = stage();
    stage.add("i-1", |_| {});
    assert_eq!(stage.listed(), ["i-1"]);
    stage.aws.account().instances[0].tags.remove(api_labels::NODE_POOL);
    assert!(stage.listed().is_empty());
    let found = stage.wait(stage.instances.find(&provider_id("i-1"))).unwrap();
    assert!(is_released(&found));
    let answer = stage.wait(stage.instances.end(&provider_id("i-1"))).unwrap_err();
    assert!(answer.is_not_found(), "its claim can go: {answer:?}");
    assert_eq!(stage.state("i-1"), "running");
    assert_eq!(stage.aws.count("ec2:TerminateInstances"), 0);
}

#[test]
fn terminated_instances_are_not_there() {
    let stage = stage();
    stage.add("i-1", |instance| instance.state = "terminated".to_owned());
    assert!(stage.listed().is_empty());
    let found = stage.wait(stage.instances.find(&provider_id("i-1")));
    assert!(found.is_err_and(|error| error.is_not_found()));
}

#[test]
fn many_questions_are_one_call_and_what_it_leaves_out_is_asked_alone() {
    let stage = stage();
    for n in 0..20 {
        stage.add(&format!("i-{n}"), |_| {});
    }
    let mut hands = Hands::default();
    for n in 0..20 {
        let instances = stage.instances.clone();
        hands.take(async move { instances.find(&provider_id(&format!("i-{n}"))).await.is_ok() });
    }
    hands.poll();
    stage.clock.advance(Duration::from_millis(100));
    hands.poll();
    assert_eq!(hands.answers(), vec![Some(true); 20]);
    assert_eq!(stage.aws.count("ec2:DescribeInstances"), 1);
    let mut hands = Hands::default();
    for id in ["i-1", "i-gone"] {
        let instances = stage.instances.clone();
        hands.take(async move { instances.find(&provider_id(id)).await.map_err(|error| error.is_not_found()).is_ok() });
    }
    hands.poll();
    stage.clock.advance(Duration::from_millis(100));
    hands.poll();
    assert_eq!(hands.answers(), [Some(true), Some(false)]);
    assert_eq!(stage.aws.count("ec2:DescribeInstances"), 4, "the one together, and each alone");
}

#[test]
fn d1_12_instances_are_ended_in_one_call_and_one_that_fails_does_not_hold_up_the_others() {
    let stage = stage();
    for n in 0..5 {
        stage.add(&format!("i-{n}"), |_| {});
    }
    let mut hands = Hands::default();
    for n in 0..5 {
        let instances = stage.instances.clone();
        hands.take(async move { instances.end(&provider_id(&format!("i-{n}"))).await.is_ok() });
    }
    for _ in 0..4 {
        hands.poll();
        stage.clock.advance(Duration::from_millis(100));
    }
    assert_eq!(hands.answers(), vec![Some(true); 5]);
    assert_eq!(stage.aws.count("ec2:TerminateInstances"), 1);
    assert!((0..5).all(|n| stage.state(&format!("i-{n}")) == "terminated"));

    stage.add("i-a", |_| {});
    stage.add("i-b", |_| {});
    stage.aws.fail_next(Failure::new("ec2:TerminateInstances", "OperationNotPermitted", "i-b is protected"));
    let mut hands = Hands::default();
    for id in ["i-a", "i-b"] {
        let instances = stage.instances.clone();
        hands.take(async move { instances.end(&provider_id(id)).await.is_ok() });
    }
    for _ in 0..4 {
        hands.poll();
        stage.clock.advance(Duration::from_millis(100));
    }
    assert_eq!(hands.answers(), [Some(true), Some(true)], "each was asked for again alone");
    assert_eq!(stage.aws.count("ec2:TerminateInstances"), 4);
}

#[test]
fn an_instance_that_is_ending_is_not_ended_again() {
    let stage = stage();
    stage.add("i-1", |instance| instance.state = "shutting-down".to_owned());
    assert!(stage.wait(stage.instances.end(&provider_id("i-1"))).is_ok());
    assert_eq!(stage.aws.count("ec2:TerminateInstances"), 0);
}

#[test]
fn what_was_launched_a_moment_ago_can_be_ended_before_reads_know_of_it() {
    let stage = stage();
    stage.instances.bought("i-1", &"claim-1".into());
    let unknown = stage.wait(stage.instances.end(&provider_id("i-1"))).unwrap_err();
    assert!(matches!(unknown, CloudError::Other { .. }), "to be tried again: {unknown:?}");
    assert_eq!(stage.aws.count("ec2:TerminateInstances"), 2);
    stage.clock.advance(Duration::from_secs(60));
    let gone = stage.wait(stage.instances.end(&provider_id("i-1"))).unwrap_err();
    assert!(gone.is_not_found());
}

#[test]
fn tags_are_written_where_there_are_none_and_a_name_of_the_users_stays() {
    let stage = stage();
    stage.add("i-1", |instance| drop(instance.tags.insert("Name".to_owned(), "mine".to_owned())));
    let marks = stage.wait(stage.instances.tag(&reference("i-1"))).unwrap();
    assert_eq!(
        marks.keys().map(|key| &**key).collect::<Vec<_>>(),
        [api_labels::CLUSTER_NAME_TAGGED, api_labels::TAGGED]
    );
    let written = stage.aws.account().instances[0].tags.clone();
    assert_eq!((written["Name"].as_str(), written[CLAIM_TAG].as_str()), ("mine", "claim-1"));
    stage.wait(stage.instances.tag(&reference("i-1"))).unwrap();
    assert_eq!(stage.aws.count("ec2:CreateTags"), 1, "nothing was missing the second time");
}

#[test]
fn one_operation_is_one_restart() {
    let stage = stage();
    stage.add("i-1", |_| {});
    for operation in ["a", "a", "b"] {
        stage.wait(stage.instances.restart(&provider_id("i-1"), operation.into())).unwrap();
    }
    assert_eq!(stage.aws.count("ec2:RebootInstances"), 2);
}

#[test]
fn instances_in_a_shifted_zone_are_left_alone_and_remembered() {
    let stage = stage();
    stage.add("i-1", |_| {});
    assert_eq!(stage.listed(), ["i-1"]);
    stage.instances.set_shifted_zones(BTreeSet::from(["us-west-2a".to_owned()]));
    stage.aws.account().instances.clear();
    assert_eq!(stage.listed(), ["i-1"], "silence of a shifted zone proves nothing");
    assert!(stage.wait(stage.instances.find(&provider_id("i-1"))).is_ok());
    for error in [
        stage.wait(stage.instances.end(&provider_id("i-1"))).unwrap_err(),
        stage.wait(stage.instances.tag(&reference("i-1"))).unwrap_err(),
    ] {
        assert!(error.to_string().contains("zonal shift"), "{error}");
    }
    assert_eq!(stage.aws.count("ec2:TerminateInstances") + stage.aws.count("ec2:CreateTags"), 0);
    stage.instances.set_shifted_zones(BTreeSet::new());
    assert!(stage.listed().is_empty());
}

#[test]
fn failures_say_what_to_do_next() {
    let cases = [
        ("RequestLimitExceeded", "Throttled"),
        ("InvalidInstanceID.NotFound", "NotFound"),
        ("InvalidInstanceID.Malformed", "NotFound"),
        ("UnauthorizedOperation", "Other"),
    ];
    for (code, expected) in cases {
        let error = trouble(&Failure::new("ec2:DescribeInstances", code, "…"), "aws:///a/i-1");
        assert!(format!("{error:?}").starts_with(expected), "{code}: {error:?}");
    }
}

fn mapped(change: impl FnOnce(&mut Ec2Instance), settings: &Settings) -> Instance {
    let mut ec2 = Ec2Instance {
        id: "i-1".to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: "a".to_owned(),
        zone_id: Some("az1".to_owned()),
        image_id: "ami-1".to_owned(),
        state: "running".to_owned(),
        ..Ec2Instance::default()
    };
    change(&mut ec2);
    let it = crate::testing::type_of("m5.large a:spot:10 a:on-demand:20 a:reserved:1:cr-1:3");
    as_instance(&ec2, Some(&it), "claim-1".into(), settings)
}

#[test]
fn the_capacity_type_is_told_by_request_and_preference() {
    let kind = |change: fn(&mut Ec2Instance), gate: bool| {
        let settings = Settings { has_reserved_capacity: gate, ..Settings::default() };
        mapped(change, &settings).labels[labels::CAPACITY_TYPE].to_string()
    };
    let reserved = |instance: &mut Ec2Instance| {
        instance.reservation_id = Some("cr-1".to_owned());
        instance.reservation_preference = Some("capacity-reservations-only".to_owned());
    };
    assert_eq!(kind(|_| {}, true), CapacityType::OnDemand.as_str());
    assert_eq!(kind(|instance| instance.is_spot = true, true), CapacityType::Spot.as_str());
    assert_eq!(kind(reserved, true), CapacityType::Reserved.as_str());
    assert_eq!(kind(reserved, false), CapacityType::OnDemand.as_str());
    let open = |instance: &mut Ec2Instance| instance.reservation_id = Some("cr-1".to_owned());
    assert_eq!(kind(open, true), CapacityType::OnDemand.as_str());
}

#[test]
fn an_instance_has_the_labels_of_its_type_its_place_and_its_reservation() {
    let settings = Settings::default();
    let plain = mapped(|_| {}, &settings);
    assert_eq!(&*plain.provider_id, "aws:///a/i-1");
    for (key, value) in [
        (labels::INSTANCE_TYPE, "m5.large"),
        (labels::ZONE, "a"),
        (api_labels::ZONE_ID, "az1"),
        (api_labels::INSTANCE_FAMILY, "m5"),
        (api_labels::INSTANCE_TENANCY, "default"),
    ] {
        assert_eq!(plain.labels.get(key).map(|value| &**value), Some(value), "{key}");
    }
    assert!(!plain.labels.contains_key(api_labels::CAPACITY_RESERVATION_ID));
    let reserved = mapped(
        |instance| {
            instance.reservation_id = Some("cr-1".to_owned());
            instance.reservation_preference = Some("capacity-reservations-only".to_owned());
            instance.tenancy = Some("dedicated".to_owned());
        },
        &settings,
    );
    assert_eq!(&*reserved.labels[api_labels::CAPACITY_RESERVATION_ID], "cr-1");
    assert_eq!(&*reserved.labels[api_labels::CAPACITY_RESERVATION_TYPE], "default");
    assert_eq!(&*reserved.labels[api_labels::INSTANCE_TENANCY], "dedicated");
    assert!(mapped(|instance| instance.state = "shutting-down".to_owned(), &settings).is_ending);
}
