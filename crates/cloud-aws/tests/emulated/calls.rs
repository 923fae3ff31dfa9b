//! Every call of the wire.
//!
//! Asserts what is there afterwards, not how it was asked: that is what `requests` is for.

use crate::{REGION, Stage};
use kerf_cloud::aws::TypeFacts;
use kerf_cloud_aws::advice::{self, Expected};
use kerf_cloud_aws::sdk::calls::Took;
use kerf_cloud_aws::wire::*;
use kerf_e2e::aws::policies::{self, Cluster};
use kerf_e2e::control_plane::build;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

const CLUSTER: Cluster<'static> = Cluster { name: "demo", region: REGION };
const STANDARD: &str = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard/recommended/image_id";

impl Stage {
    fn for_calls() -> Option<Self> {
        Self::start("the calls of the AWS wire")
    }

    fn tags(&self) -> Tags {
        let pairs = [
            ("kubernetes.io/cluster/demo", "owned"),
            ("eks:eks-cluster-name", "demo"),
            ("karpenter.sh/nodepool", "default"),
        ];
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    fn template(&self, name: &str, is_spot: bool) -> Template {
        let image_id = self.run(self.sdk.get_parameter(STANDARD.to_owned())).unwrap();
        let mut kinds = vec!["network-interface"];
        kinds.extend(is_spot.then_some("spot-instances-request"));
        let data = TemplateData {
            instance_profile: Some(self.made.profile.clone()),
            image_id,
            interfaces: vec![TemplateInterface {
                groups: self.made.security_groups.clone(),
                ..TemplateInterface::default()
            }],
            tag_specifications: kinds.into_iter().map(|kind| (kind.to_owned(), self.tags())).collect(),
            ..TemplateData::default()
        };
        let order = TemplateOrder { name: name.to_owned(), tags: self.tags(), data };
        self.run(self.sdk.create_launch_template(order)).unwrap()
    }

    fn order(&self, template: &str, capacity_type: &str, types: &[&str]) -> FleetOrder {
        let subnets = &self.made.subnets;
        let over = |name: &str| {
            let name = name.to_owned();
            subnets.iter().map(move |subnet| FleetOverride {
                instance_type: name.clone(),
                subnet_id: Some(subnet.id.clone()),
                zone: subnet.zone.clone(),
                ..FleetOverride::default()
            })
        };
        FleetOrder {
            configs: vec![FleetConfig {
                template_name: template.to_owned(),
                overrides: types.iter().flat_map(|name| over(name)).collect(),
            }],
            n_instances: 1,
            capacity_type: capacity_type.to_owned(),
            tags: self.tags(),
            ..FleetOrder::default()
        }
    }
}

#[test]
fn what_there_is_can_be_read() {
    let Some(stage) = Stage::for_calls() else { return };
    let sdk = &stage.sdk;
    stage.run(sdk.describe_instance_types(true)).unwrap();
    let types = stage.run(sdk.describe_instance_types(false)).unwrap();
    let mut n_compared = 0;
    for facts in &types {
        if let Some(listed) = kerf_cloud::aws::type_facts(&facts.name) {
            // The catalogue does not list the cards one by one, and orders strategies otherwise.
            let in_order = |facts: &TypeFacts| {
                let mut facts = TypeFacts { card_interfaces: Vec::new(), ..facts.clone() };
                facts.placement.sort_by_key(|strategy| format!("{strategy:?}"));
                facts
            };
            assert_eq!(in_order(facts), in_order(listed));
            n_compared += 1;
        }
    }
    assert!(n_compared > 1200, "only {n_compared} of {} types are in the catalogue", types.len());
    build::to_stderr(&format!("{n_compared} types read from EC2 are the same as in the catalogue"));
    let offered = stage.run(sdk.describe_instance_type_offerings()).unwrap();
    assert!(offered.iter().any(|it| it.instance_type == "m5.large" && it.zone == "us-west-2a"));
    let spot = stage.run(sdk.describe_spot_price_history()).unwrap();
    assert!(spot.iter().any(|it| it.instance_type == "m5.large" && it.price.micros > 10_000), "{}", spot.len());
    let listed = stage.run(sdk.get_products(PriceQuery::Shared)).unwrap();
    assert!(listed.iter().any(|it| it.instance_type == "m5.large" && it.price.micros == 96_000));
    let metal = stage.run(sdk.get_products(PriceQuery::BareMetal)).unwrap();
    assert!(metal.iter().all(|it| it.instance_type.contains("metal")) && !metal.is_empty());
}

#[test]
fn what_a_class_selects_is_found() {
    let Some(stage) = Stage::for_calls() else { return };
    let sdk = &stage.sdk;
    let discovery = || vec![Filter::tag("karpenter.sh/discovery", "demo")];
    let subnets = stage.run(sdk.describe_subnets(discovery())).unwrap();
    assert_eq!(subnets.len(), 3);
    assert!(subnets.iter().all(|subnet| subnet.zone_id.is_some() && subnet.n_free_addresses > 16_000), "{subnets:?}");
    let groups = stage.run(sdk.describe_security_groups(discovery())).unwrap();
    assert_eq!(groups.len(), 2);
    let image_id = stage.run(sdk.get_parameter(STANDARD.to_owned())).unwrap();
    let query = || ImageQuery { filters: vec![Filter::new("image-id", [image_id.clone()])], owners: Vec::new() };
    let image = stage.run(sdk.describe_images(query())).unwrap().pop().unwrap();
    assert_eq!(image.architecture, "x86_64");
    assert_eq!(
        (image.name.starts_with("amazon-eks-node-al2023-x86_64-standard-1.35-v"), image.deprecated_at_ms),
        (true, None)
    );
    stage.account.deprecate_image(REGION, &image_id, "2026-01-02T03:04:05.000Z").unwrap();
    let image = stage.run(sdk.describe_images(query())).unwrap().pop().unwrap();
    assert_eq!(image.deprecated_at_ms, Some(1_767_323_045_000));
    stage.account.set(json!({"image_generation": 2})).unwrap();
    assert_ne!(stage.run(sdk.get_parameter(STANDARD.to_owned())).unwrap(), image_id);
    let missing = stage.run(sdk.get_parameter("/aws/service/eks/optimized-ami/1.35/nothing".to_owned())).unwrap_err();
    assert!(missing.is_not_found(), "{missing}");
    let reservation = json!({
        "CapacityReservationId": "cr-1", "InstanceType": "m5.large", "AvailabilityZone": "us-west-2a", "OwnerId": "1",
        "State": "active", "InstanceMatchCriteria": "targeted", "AvailableInstanceCount": 4, "ReservationType": "default",
        "Tags": [{"Key": "team", "Value": "a"}],
    });
    let group = json!({"GroupId": "pg-1", "GroupName": "g", "State": "available", "Strategy": "partition", "PartitionCount": 3});
    stage.account.set(json!({"reservations": [reservation], "placement_groups": [group]})).unwrap();
    let query = ReservationQuery { id: None, filters: vec![Filter::tag("team", "a")] };
    let found = stage.run(sdk.describe_capacity_reservations(query)).unwrap();
    assert_eq!((found[0].id.as_str(), found[0].n_available), ("cr-1", 4));
    let query = ReservationQuery { id: Some("cr-9".to_owned()), filters: Vec::new() };
    assert!(stage.run(sdk.describe_capacity_reservations(query)).unwrap_err().is_not_found());
    let by_name = PlacementQuery { id: None, filters: vec![Filter::new("group-name", ["g"])] };
    let by_id = PlacementQuery { id: Some("pg-1".to_owned()), filters: vec![Filter::new("state", ["available"])] };
    for query in [by_name, by_id] {
        let found = stage.run(sdk.describe_placement_groups(query)).unwrap();
        assert_eq!((found[0].id.as_str(), found[0].n_partitions), ("pg-1", 3));
    }
    let unknown = PlacementQuery { id: Some("pg-9".to_owned()), filters: Vec::new() };
    assert_eq!(stage.run(sdk.describe_placement_groups(unknown)).unwrap_err().code, "InvalidPlacementGroup.Unknown");
    // What EC2's model does not list, EC2 does not take.
    let invented = PlacementQuery { id: None, filters: vec![Filter::new("group-id", ["pg-1"])] };
    let refused = stage.run(sdk.describe_placement_groups(invented)).unwrap_err();
    assert_eq!((refused.code.as_str(), refused.status), ("InvalidParameterValue", 400), "{refused}");
}

#[test]
fn an_instance_is_launched_seen_tagged_and_ended() {
    let Some(stage) = Stage::for_calls() else { return };
    let sdk = &stage.sdk;
    let template = stage.template("karpenter.k8s.aws/1", true);
    let again = TemplateQuery { names: vec![template.name.clone()], filters: Vec::new() };
    assert_eq!(stage.run(sdk.describe_launch_templates(again)).unwrap()[0].id, template.id);
    let order = stage.order(&template.name, "spot", &["m5.large", "c5.large"]);
    stage.run(sdk.create_fleet(FleetOrder { dry_run: true, ..order.clone() })).unwrap();
    let run = RunOrder {
        template_name: template.name.clone(),
        instance_type: "m5.large".to_owned(),
        subnet_id: Some(stage.made.subnets[0].id.clone()),
        tags: stage.tags(),
        ..RunOrder::default()
    };
    stage.run(sdk.run_instances_dry_run(run)).unwrap();
    let reply = stage.run(sdk.create_fleet(order)).unwrap();
    assert_eq!(reply.errors, []);
    let launched = &reply.instances[0];
    assert!(launched.is_spot && launched.zone.is_some(), "{launched:?}");
    let ids = launched.ids.clone();
    let query = || InstanceQuery { ids: ids.clone(), filters: Vec::new() };
    let instance = stage.run(sdk.describe_instances(query())).unwrap().pop().unwrap();
    assert!(instance.is_spot);
    assert_eq!(instance.state, "running");
    let sorted = |ids: &[String]| ids.iter().cloned().collect::<std::collections::BTreeSet<String>>();
    assert_eq!(sorted(&instance.security_group_ids), sorted(&stage.made.security_groups));
    assert!(instance.zone_id.is_some());
    assert_eq!(instance.tags.get("karpenter.sh/nodepool").map(String::as_str), Some("default"));
    stage.run(sdk.create_tags(ids.clone(), Tags::from([("Name".to_owned(), "node".to_owned())]))).unwrap();
    let by_tag = InstanceQuery { ids: Vec::new(), filters: vec![Filter::tag("Name", "node")] };
    assert_eq!(stage.run(sdk.describe_instances(by_tag)).unwrap().len(), 1);
    let impaired = json!({ids[0].clone(): {"instance_since": "2026-01-02T03:04:05Z"}});
    stage.account.set(json!({"impaired": impaired})).unwrap();
    let by_status = vec![Filter::new("instance-status.status", ["impaired"])];
    let statuses = stage.run(sdk.describe_instance_status(by_status)).unwrap();
    assert_eq!((statuses.len(), statuses[0].instance_impaired_since_ms), (1, Some(1_767_323_045_000)));
    stage.run(sdk.reboot_instances(ids.clone())).unwrap();
    let ended = stage.run(sdk.terminate_instances(ids.clone())).unwrap();
    assert_eq!(ended[0].state, "shutting-down");
    stage.run(sdk.delete_launch_template(template.id)).unwrap();
    let holdings = stage.account.holdings().unwrap();
    assert!(holdings.instances.is_empty() && holdings.templates.is_empty(), "{holdings:?}");
    let gone = InstanceQuery { ids: vec!["i-00000000000000000".to_owned()], filters: Vec::new() };
    assert!(stage.run(sdk.describe_instances(gone)).unwrap_err().is_not_found());
    assert_eq!(sdk.calls().n_requests("CreateFleet"), 2);
}

#[test]
fn offerings_run_dry_one_by_one_and_the_errors_say_which() {
    let Some(stage) = Stage::for_calls() else { return };
    let template = stage.template("karpenter.k8s.aws/1", false);
    stage
        .account
        .stock(&[("on-demand", "c5.large", "*", Some(0)), ("on-demand", "m5.large", "us-west-2a", Some(0))])
        .unwrap();
    let order = stage.order(&template.name, "on-demand", &["c5.large", "m5.large"]);
    let reply = stage.run(stage.sdk.create_fleet(order.clone())).unwrap();
    assert_eq!(
        (reply.instances[0].instance_type.as_str(), reply.instances[0].zone.as_deref()),
        ("m5.large", Some("us-west-2b"))
    );
    assert!(reply.errors.iter().all(|error| error.code == "InsufficientInstanceCapacity"), "{:?}", reply.errors);
    assert_eq!(reply.errors.len(), 4);
    stage.account.stock(&[("on-demand", "*", "*", Some(0)), ("on-demand", "m5.large", "us-west-2a", None)]).unwrap();
    let reply = stage.run(stage.sdk.create_fleet(order)).unwrap();
    assert_eq!((reply.instances.len(), reply.errors.len()), (0, 6));
}

#[test]
fn a_fleets_token_stands_for_one_request() {
    let Some(stage) = Stage::for_calls() else { return };
    let template = stage.template("karpenter.k8s.aws/1", false);
    let order = FleetOrder {
        client_token: Some("token-1".to_owned()),
        ..stage.order(&template.name, "on-demand", &["c5.large"])
    };
    let first = stage.run(stage.sdk.create_fleet(order.clone())).unwrap();
    assert_eq!(stage.run(stage.sdk.create_fleet(order.clone())), Ok(first));
    let other = stage.run(stage.sdk.create_fleet(FleetOrder { n_instances: 2, ..order })).unwrap_err();
    assert_eq!((other.code.as_str(), other.status), ("IdempotentParameterMismatch", 400));
    assert_eq!(stage.account.holdings().unwrap().instances.len(), 1);
}

#[test]
fn the_queue_the_profiles_the_cluster_and_the_shifts_answer() {
    let Some(stage) = Stage::for_calls() else { return };
    let sdk = &stage.sdk;
    let url = stage.run(sdk.get_queue_url("demo".to_owned())).unwrap();
    assert!(stage.run(sdk.get_queue_url("nothing".to_owned())).unwrap_err().is_not_found());
    stage.send(&url, "hello");
    let messages = stage.run(sdk.receive_messages(url.clone())).unwrap();
    assert_eq!((messages[0].body.as_str(), messages[0].sent_ms > 1_700_000_000_000), ("hello", true));
    stage.run(sdk.delete_messages(url, messages.into_iter().map(|message| message.receipt).collect())).unwrap();

    let path = "/karpenter/us-west-2/demo/uid/".to_owned();
    let order = ProfileOrder { name: "demo_1".to_owned(), path: path.clone(), tags: stage.tags() };
    stage.run(sdk.create_instance_profile(order)).unwrap();
    stage.run(sdk.add_role_to_instance_profile("demo_1".to_owned(), stage.made.role.clone())).unwrap();
    let profile = stage.run(sdk.get_instance_profile("demo_1".to_owned())).unwrap();
    assert_eq!(
        (profile.roles, profile.path.clone(), profile.tags),
        (vec![stage.made.role.clone()], path, stage.tags())
    );
    // The account has another profile, which the emulator lists whatever the prefix.
    let listed = stage.run(sdk.list_instance_profiles("/karpenter/us-west-2/demo/".to_owned())).unwrap();
    assert_eq!(listed.len(), 1);
    let missing = stage.run(sdk.add_role_to_instance_profile("demo_1".to_owned(), "nobody".to_owned())).unwrap_err();
    assert!(advice::missing_role(&missing, "EC2NodeClass default: spec.role", "nobody").is_some(), "{missing}");
    stage.run(sdk.remove_role_from_instance_profile("demo_1".to_owned(), stage.made.role.clone())).unwrap();
    stage.run(sdk.delete_instance_profile("demo_1".to_owned())).unwrap();
    assert!(stage.run(sdk.get_instance_profile("demo_1".to_owned())).unwrap_err().is_not_found());

    let role = stage.run(sdk.get_role(stage.made.role.clone())).unwrap();
    assert_eq!(role, format!("arn:aws:iam::{}:role/{}", stage.made.account, stage.made.role));
    assert!(stage.run(sdk.get_role("nobody".to_owned())).unwrap_err().is_not_found());

    let cluster = stage.run(sdk.describe_cluster("demo".to_owned())).unwrap();
    assert_eq!((cluster.arn.as_str(), cluster.version.as_str()), (stage.made.cluster_arn.as_str(), "1.35"));
    assert_eq!(cluster.service_ipv4_cidr.as_deref(), Some("172.20.0.0/16"));
    assert!(stage.run(sdk.get_managed_resource(cluster.arn.clone())).unwrap().is_empty());
    stage.account.set(json!({"shifts": [{"zone_id": "usw2-az1"}]})).unwrap();
    let shifts = stage.run(sdk.get_managed_resource(cluster.arn)).unwrap();
    assert_eq!((shifts[0].zone_id.as_str(), shifts[0].status.as_str()), ("usw2-az1", "APPLIED"));
    let identity = stage.run(sdk.get_caller_identity()).unwrap();
    assert_eq!(identity.account, stage.made.account);
}

impl Stage {
    fn send(&self, url: &str, body: &str) {
        self.account.control("send", json!({"region": REGION, "queue_url": url, "bodies": [body]})).unwrap();
    }
}

#[test]
fn an_older_policy_denies_what_it_does_not_know_in_the_words_of_each_service() {
    let Some(stage) = Stage::for_calls() else { return };
    let sdk = &stage.sdk;
    stage.account.set_policy(&policies::d2_6()).unwrap();
    let denied = stage.run(sdk.describe_instance_status(Vec::new())).unwrap_err();
    assert_eq!((denied.code.as_str(), denied.status), ("UnauthorizedOperation", 403));
    for denied in [
        stage.run(sdk.get_products(PriceQuery::Shared)).unwrap_err(),
        stage.run(sdk.list_instance_profiles("/".to_owned())).unwrap_err(),
        stage.run(sdk.describe_cluster("demo".to_owned())).unwrap_err(),
        stage.run(sdk.get_queue_url("demo".to_owned())).unwrap_err(),
    ] {
        assert!(denied.is_denied() && denied.status == 403, "{denied:?}");
        assert!(advice::Optional::of(denied.action).is_some(), "{denied:?}");
    }
    // This one allows everything that a launch needs but the tags on spot requests. Decoding is not in any of them.
    let mut policy = policies::d0_36(CLUSTER);
    let decode = json!({"Effect": "Allow", "Action": "sts:DecodeAuthorizationMessage", "Resource": "*"});
    policy["Statement"].as_array_mut().unwrap().push(decode);
    stage.account.set_policy(&policy).unwrap();
    let tagged = stage.template("karpenter.k8s.aws/tagged", true);
    let reply = stage.run(sdk.create_fleet(stage.order(&tagged.name, "spot", &["m5.large"]))).unwrap();
    assert!(reply.instances.is_empty());
    let error = &reply.errors[0];
    assert_eq!(error.code, "UnauthorizedOperation");
    let failure = Failure::new("ec2:CreateFleet", &error.code, &error.message);
    let told = stage.run(advice::denied(sdk, &failure, &Expected::default()));
    assert_eq!(told.action, "ec2:CreateTags");
    assert!(told.resource.as_deref().is_some_and(|it| it.contains(":spot-instances-request/")), "{told:?}");
}

#[test]
fn each_policy_of_the_documents_launches_and_ends_spot_and_on_demand_instances() {
    let Some(stage) = Stage::for_calls() else { return };
    let sdk = &stage.sdk;
    for (line, policy) in policies::all(CLUSTER) {
        stage.account.set_policy(&policy).unwrap();
        let template = stage.template(&format!("karpenter.k8s.aws/{line}"), line != "D0.36");
        for capacity_type in ["spot", "on-demand"] {
            let order = stage.order(&template.name, capacity_type, &["m5.large"]);
            let reply = stage.run(sdk.create_fleet(order)).unwrap();
            assert_eq!((reply.instances.len(), reply.errors.len()), (1, 0), "{line}: {:?}", reply.errors);
            let ids = reply.instances[0].ids.clone();
            stage.run(sdk.create_tags(ids.clone(), Tags::from([("Name".to_owned(), "node".to_owned())]))).unwrap();
            stage.run(sdk.terminate_instances(ids)).unwrap();
        }
        stage.run(sdk.delete_launch_template(template.id)).unwrap();
    }
    // What is not ours, the scoped ones do not let us end.
    stage.account.set_policy(&Value::Null).unwrap();
    let template = stage.template("karpenter.k8s.aws/foreign", false);
    let mut order = stage.order(&template.name, "on-demand", &["m5.large"]);
    order.tags = Tags::new();
    let foreign = stage.run(sdk.create_fleet(order)).unwrap().instances[0].ids.clone();
    for policy in [policies::d0_36(CLUSTER), policies::d1_10(CLUSTER), policies::v1_14(CLUSTER)] {
        stage.account.set_policy(&policy).unwrap();
        assert!(stage.run(sdk.terminate_instances(foreign.clone())).unwrap_err().is_denied());
    }
}

#[test]
fn d3_33_a_call_as_the_node_is_told_apart_through_sts() {
    let Some(stage) = Stage::for_calls() else { return };
    stage.account.set_policy(&json!({"Statement": [{"Effect": "Allow", "Action": "sts:*", "Resource": "*"}]})).unwrap();
    stage.account.set_principal("arn:aws:sts::123456789012:assumed-role/NodeRole/i-0a1b2c3d4e5f60718").unwrap();
    let order = TemplateOrder {
        name: "karpenter.k8s.aws/1".to_owned(),
        data: TemplateData { image_id: "ami-1".to_owned(), ..TemplateData::default() },
        tags: stage.tags(),
    };
    let failure = stage.run(stage.sdk.create_launch_template(order)).unwrap_err();
    let expected = Expected { service_account: "kube-system/karpenter".to_owned(), node_roles: Vec::new() };
    let told = stage.run(advice::denied(&stage.sdk, &failure, &expected));
    assert_eq!(told.action, "ec2:CreateLaunchTemplate");
    assert!(told.advice.contains("NodeRole is the role of a node"), "{}", told.advice);
    assert!(told.advice.contains("kube-system/karpenter"), "{}", told.advice);
}

#[test]
fn a_throttled_call_is_tried_again_and_counted() {
    let Some(stage) = Stage::for_calls() else { return };
    stage.account.fail("ec2:DescribeSubnets", "RequestLimitExceeded", "slow down", 503, Some(1)).unwrap();
    let told: Arc<Mutex<Vec<Took>>> = Arc::default();
    let heard = told.clone();
    stage.sdk.calls().listen(move |took| heard.lock().unwrap().push(took.clone()));
    let found = stage.run(stage.sdk.describe_subnets(vec![Filter::tag("karpenter.sh/discovery", "demo")])).unwrap();
    assert_eq!(found.len(), 3);
    let told = told.lock().unwrap().clone();
    let [
        Took::Attempt { call: busy, .. },
        Took::Attempt { call: served, .. },
        Took::Request { call, seconds, n_retries },
    ] = &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!((busy.status, served.status, call.status, *n_retries), (503, 200, 200, 1));
    assert!(*seconds > 0.0, "there was a wait before the second attempt");
    let attempts = stage.sdk.calls().attempts();
    let count = |status: u16| {
        let of = attempts.iter().filter(|(call, _)| call.operation == "DescribeSubnets" && call.status == status);
        of.map(|(_, count)| *count).sum::<u64>()
    };
    assert_eq!((count(503), count(200)), (1, 1));
    assert_eq!(stage.sdk.calls().n_requests("DescribeSubnets"), 1);
    let heard = stage.account.heard().unwrap();
    assert!(
        heard.iter().any(|it| it.operation == "DescribeSubnets" && it.agent.contains("karpenter.sh-1.2.3")),
        "{heard:?}"
    );
}
