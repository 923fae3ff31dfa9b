use super::testing::{StillClock, now_ready};
use super::*;
use crate::advice::Scope;
use crate::wire::scripted::Scripted;
use crate::wire::{EksCluster, Image, InstanceProfile, PlacementGroup, Reservation, Tags, TypeInZone};
use kerf_cloud::aws::type_facts;
use kerf_model::{NodeClassRef, Requirement, Requirements};

const DISCOVERY: &str = "karpenter.sh/discovery";

/// An account, and an operator who looks at it.
struct Scene {
    aws: Scripted,
    clock: Arc<StillClock>,
    classes: Classes,
    templates: Templates,
}

fn tags(pairs: &[(&str, &str)]) -> Tags {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn settings() -> Settings {
    Settings {
        cluster_name: "demo".to_owned(),
        cluster_endpoint: Some("https://demo".to_owned()),
        cluster_ca_bundle: "Q0E=".to_owned(),
        region: "eu-west-1".to_owned(),
        kubernetes_version: "1.34".to_owned(),
        ..Settings::default()
    }
}

fn subnet(id: &str, zone: &str, n_free_addresses: i64, named: &str) -> Subnet {
    Subnet {
        id: id.to_owned(),
        zone: zone.to_owned(),
        zone_id: Some(format!("id-of-{zone}")),
        vpc_id: "vpc-1".to_owned(),
        n_free_addresses,
        tags: tags(&[(DISCOVERY, "demo"), ("Name", named)]),
    }
}

fn group(id: &str, more: &[(&str, &str)]) -> SecurityGroup {
    let mut tags = tags(&[(DISCOVERY, "demo")]);
    tags.extend(more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    SecurityGroup { id: id.to_owned(), name: format!("name-of-{id}"), vpc_id: "vpc-1".to_owned(), tags }
}

fn scene_with(settings: Settings) -> Scene {
    let aws = Scripted::default();
    {
        let mut account = aws.account();
        account.subnets = vec![
            subnet("subnet-2", "eu-west-1b", 10, "demo/PrivateSubnet2"),
            subnet("subnet-1", "eu-west-1a", 10, "demo/PrivateSubnet1"),
            subnet("subnet-3", "eu-west-1a", 99, "demo/PublicSubnet1"),
        ];
        account.security_groups = vec![group("sg-2", &[]), group("sg-1", &[])];
        for (arch, id) in [("x86_64", "ami-amd"), ("arm64", "ami-arm")] {
            let path =
                format!("/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/{arch}/standard/recommended/image_id");
            account.parameters.insert(path, id.to_owned());
            let image = Image {
                id: id.to_owned(),
                name: format!("image {id}"),
                architecture: arch.to_owned(),
                created: "2026-01-01T00:00:00Z".to_owned(),
                owner: "amazon".to_owned(),
                ..Image::default()
            };
            account.images.push((image, Tags::new()));
        }
        account.cluster =
            Some(EksCluster { service_ipv4_cidr: Some("10.100.0.0/16".to_owned()), ..EksCluster::default() });
        for name in ["m5.large", "m6g.large", "c5.xlarge", "g5.xlarge"] {
            account.types.push(type_facts(name).unwrap().clone());
            for zone in ["eu-west-1a", "eu-west-1b"] {
                account.offerings.push(TypeInZone { instance_type: name.to_owned(), zone: zone.to_owned() });
            }
        }
    }
    let clock = Arc::new(StillClock::at(UnixMillis(1_800_000_000_000)));
    let settings = Arc::new(settings);
    let supply = Arc::new(Supply::new(settings.clone(), clock.clone()));
    now_ready(supply.refresh_types(&aws)).unwrap();
    let optional = Arc::new(OptionalCalls::new(Scope::new("eu-west-1", None, "demo", None)));
    let templates = Templates::new(settings.clone(), clock.clone());
    aws.account().calls.clear();
    Scene { aws, classes: Classes::new(settings, clock.clone(), supply, optional), clock, templates }
}

fn scene() -> Scene {
    scene_with(settings())
}

/// The class of the documents: everything by the discovery tag.
fn class() -> Value {
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": {"name": "default", "uid": "uid-1", "generation": 1},
        "spec": {
            "instanceProfile": "nodes",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"tags": {DISCOVERY: "demo"}}],
            "securityGroupSelectorTerms": [{"tags": {DISCOVERY: "demo"}}],
        },
    })
}

fn class_with(pointer: &str, value: Value) -> Value {
    let mut class = class();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    class.pointer_mut(parent).unwrap()[name] = value;
    class
}

impl Scene {
    fn resolve(&self, class: &Value) -> ClassStatus {
        now_ready(self.classes.resolve(&self.aws, class, &self.templates)).unwrap()
    }

    /// Looks, and writes what was found onto the class, as the operator does.
    fn settle(&self, class: &mut Value) -> ClassStatus {
        let found = self.resolve(class);
        for (key, value) in &found.annotations {
            class["metadata"]["annotations"][&**key] = json!(&**value);
        }
        if class["status"].is_null() {
            class["status"] = json!({});
        }
        for (key, value) in found.status.as_object().unwrap() {
            match value {
                Value::Null => drop(class["status"].as_object_mut().unwrap().remove(key)),
                value => class["status"][key] = value.clone(),
            }
        }
        found
    }

    fn calls(&self) -> Vec<&'static str> {
        self.aws.account().calls.iter().map(|(action, _)| *action).collect()
    }
}

/// A condition as `status reason message`.
fn says(found: &ClassStatus, kind: &str) -> String {
    let list = found.status["conditions"].as_array().unwrap();
    let condition = list.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null);
    let text = |key: &str| condition[key].as_str().unwrap_or("absent").to_owned();
    format!("{} {} {}", text("status"), text("reason"), text("message"))
}

fn ids(found: &ClassStatus, field: &str) -> Vec<String> {
    let list = found.status[field].as_array().cloned().unwrap_or_default();
    list.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

fn denied(action: &'static str) -> Failure {
    Failure::new(action, "UnauthorizedOperation", "You are not authorized to perform this operation.")
}

#[test]
fn d0_60_what_carries_the_discovery_tag_is_found_and_the_class_becomes_ready() {
    let scene = scene();
    let found = scene.resolve(&class());
    assert_eq!(ids(&found, "subnets"), ["subnet-3", "subnet-1", "subnet-2"], "the emptiest first, then by id");
    assert_eq!(
        found.status["subnets"][0],
        json!({"id": "subnet-3", "zone": "eu-west-1a", "zoneID": "id-of-eu-west-1a"})
    );
    assert_eq!(
        found.status["securityGroups"],
        json!([{"id": "sg-1", "name": "name-of-sg-1"}, {"id": "sg-2", "name": "name-of-sg-2"}])
    );
    assert_eq!(ids(&found, "amis"), ["ami-amd", "ami-arm"]);
    assert_eq!(found.status["instanceProfile"], "nodes");
    let kinds: Vec<&str> =
        found.status["conditions"].as_array().unwrap().iter().map(|it| it["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            conditions::AMIS,
            conditions::RESERVATIONS,
            conditions::PLACEMENT_GROUP,
            conditions::SUBNETS,
            conditions::SECURITY_GROUPS,
            conditions::INSTANCE_PROFILE,
            conditions::VALIDATION,
            conditions::READY,
        ]
    );
    for condition in found.status["conditions"].as_array().unwrap() {
        assert_eq!(
            (&condition["status"], &condition["observedGeneration"]),
            (&json!("True"), &json!(1)),
            "{condition}"
        );
        assert_eq!((&condition["reason"], &condition["message"]), (&condition["type"], &json!("")), "{condition}");
    }
    assert_eq!(found.again_after, Some(MINUTE));
    assert_eq!(&*found.annotations[labels::EC2_NODE_CLASS_HASH_VERSION], "v6");
    let expected = read(&class()).unwrap().hash(Some("Q0E="));
    assert_eq!(&*found.annotations[labels::EC2_NODE_CLASS_HASH], expected);
}

#[test]
fn a_second_look_at_an_unchanged_account_says_the_same_and_tries_nothing_out_again() {
    let scene = scene();
    let mut class = class();
    let first = scene.settle(&mut class);
    let tried = ["ec2:CreateLaunchTemplate", "ec2:CreateFleet", "ec2:RunInstances"];
    let counts = |scene: &Scene| tried.map(|action| scene.aws.count(action));
    assert_eq!(counts(&scene), [1, 1, 1]);
    scene.clock.advance(Duration::from_secs(60));
    let second = scene.settle(&mut class);
    assert_eq!((second.status, second.annotations), (first.status, first.annotations));
    scene.clock.advance(Duration::from_secs(29 * 60 - 1));
    scene.resolve(&class);
    assert_eq!(counts(&scene), [1, 1, 1], "the verdict holds for half an hour");
    class["metadata"]["annotations"]["look"] = json!("again");
    scene.resolve(&class);
    assert_eq!(counts(&scene)[1..], [2, 2], "an annotation asks for another look");
    scene.clock.advance(Duration::from_secs(30 * 60));
    scene.resolve(&class);
    assert_eq!(counts(&scene)[1..], [3, 3]);
}

#[test]
fn d3_9_a_wildcard_inside_a_tag_selects_private_subnets_only() {
    let found =
        scene().resolve(&class_with("/spec/subnetSelectorTerms", json!([{"tags": {"Name": "demo/PrivateSubnet*"}}])));
    assert_eq!(ids(&found, "subnets"), ["subnet-1", "subnet-2"]);
}

#[test]
fn d3_10_all_groups_that_match_go_onto_nodes_however_they_are_named() {
    let scene = scene();
    scene.aws.account().security_groups.push(SecurityGroup { tags: Tags::new(), ..group("sg-3", &[]) });
    for (terms, expected) in [
        (json!([{"tags": {DISCOVERY: "*"}}]), vec!["sg-1", "sg-2"]),
        (json!([{"tags": {DISCOVERY: "demo"}}, {"name": "name-of-sg-3"}]), vec!["sg-1", "sg-2", "sg-3"]),
        (json!([{"id": "sg-3"}, {"id": "sg-1"}]), vec!["sg-1", "sg-3"]),
        (json!([{"id": "sg-3", "tags": {DISCOVERY: "demo"}}, {"id": "sg-2"}]), vec!["sg-2", "sg-3"]),
    ] {
        scene.clock.advance(MINUTE);
        let found = scene.resolve(&class_with("/spec/securityGroupSelectorTerms", terms.clone()));
        assert_eq!(ids(&found, "securityGroups"), expected, "{terms}");
    }
    let account = scene.aws.account();
    let (_, data) = account.templates.first().unwrap();
    assert_eq!(data.interfaces[0].groups, ["sg-1", "sg-2"]);
}

#[test]
fn d3_11_profile_family_groups_subnets_and_tags_reach_the_launch() {
    let scene = scene();
    let mut class = class_with("/spec/tags", json!({"team": "lab"}));
    class["spec"]["amiSelectorTerms"] = json!([{"id": "ami-amd"}]);
    class["spec"]["amiFamily"] = json!("Bottlerocket");
    class["spec"]["subnetSelectorTerms"] = json!([{"id": "subnet-2"}]);
    scene.resolve(&class);
    let account = scene.aws.account();
    let (template, data) = account.templates.first().unwrap();
    assert_eq!(data.instance_profile.as_deref(), Some("nodes"));
    assert_eq!(data.image_id, "ami-amd");
    assert_eq!(data.interfaces[0].groups, ["sg-1", "sg-2"]);
    assert_eq!(template.tags["team"], "lab");
    assert_eq!(template.tags["karpenter.sh/nodepool"], "", "nobody's, as yet");
    let fleet = account.calls.iter().find(|(action, _)| *action == "ec2:CreateFleet").unwrap();
    assert!(
        fleet.1.contains("subnet-2") && fleet.1.contains("dry_run: true") && fleet.1.contains("m5.large"),
        "{}",
        fleet.1
    );
}

#[test]
fn d1_32_two_groups_of_the_cluster_are_warned_of_on_the_class_which_stays_ready() {
    let scene = scene();
    let owned = [("kubernetes.io/cluster/demo", "owned")];
    scene.aws.account().security_groups = vec![group("sg-1", &owned), group("sg-2", &owned)];
    let found = scene.resolve(&class());
    let said = says(&found, conditions::SECURITY_GROUPS);
    assert!(said.starts_with("True") && said.contains("sg-1, sg-2"), "{said}");
    assert!(says(&found, conditions::READY).starts_with("True"));
}

#[test]
fn what_is_not_found_is_said_with_the_terms_and_what_there_is_instead() {
    for (pointer, value, kind, expected, parts) in [
        (
            "/spec/subnetSelectorTerms",
            json!([{"tags": {DISCOVERY: "other"}}]),
            conditions::SUBNETS,
            "False SubnetsNotFound SubnetSelector did not match any Subnets",
            vec!["karpenter.sh/discovery=other", "ec2:DescribeSubnets", "3 have the tag karpenter.sh/discovery (demo)"],
        ),
        (
            "/spec/securityGroupSelectorTerms",
            json!([{"name": "nobody"}]),
            conditions::SECURITY_GROUPS,
            "False SecurityGroupsNotFound SecurityGroupSelector did not match any SecurityGroups",
            vec!["name nobody", "this account has 2 security groups"],
        ),
        (
            "/spec/amiSelectorTerms",
            json!([{"alias": "al2023@v20990101"}]),
            conditions::AMIS,
            "False AMINotFound AMISelector did not match any AMIs",
            vec!["al2023@v20990101", "ssm:GetParameter", "1.34"],
        ),
        (
            "/spec/amiSelectorTerms",
            json!([{"alias": "al2@latest"}]),
            conditions::AMIS,
            "False UnsupportedAlias",
            vec!["al2023", "1.34"],
        ),
    ] {
        let scene = scene();
        let found = scene.resolve(&class_with(pointer, value.clone()));
        let said = says(&found, kind);
        assert!(said.starts_with(expected), "{value}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{value}: {said}");
        assert!(says(&found, conditions::VALIDATION).starts_with("False DependenciesNotReady Awaiting AMI"));
        assert!(
            says(&found, conditions::READY).starts_with("False UnhealthyDependents"),
            "{}",
            says(&found, conditions::READY)
        );
        assert_eq!(scene.aws.count("ec2:CreateLaunchTemplate"), 0, "nothing is tried out");
    }
}

#[test]
fn subnets_that_were_found_and_are_gone_are_cleared() {
    let scene = scene();
    let mut class = class();
    scene.settle(&mut class);
    scene.aws.account().subnets.clear();
    scene.clock.advance(MINUTE);
    let found = scene.settle(&mut class);
    assert_eq!((&found.status["subnets"], class["status"].get("subnets")), (&Value::Null, None));
    assert!(says(&found, conditions::SUBNETS).starts_with("False SubnetsNotFound"));
}

#[test]
fn d3_33_a_call_that_is_denied_is_named_on_the_class_with_what_would_allow_it() {
    for (action, kind) in [
        ("ec2:DescribeSubnets", conditions::SUBNETS),
        ("ec2:DescribeSecurityGroups", conditions::SECURITY_GROUPS),
        ("ssm:GetParameter", conditions::AMIS),
    ] {
        let scene = scene();
        scene.aws.fail_always(denied(action));
        let mut class = class();
        let said = says(&scene.resolve(&class), kind);
        assert!(
            said.starts_with("False AccessDenied spec.") && said.contains(action) && said.contains("\"Allow\""),
            "{said}"
        );
        // One that was found before stays in use.
        scene.aws.account().always.clear();
        scene.settle(&mut class);
        scene.aws.fail_always(denied(action));
        scene.clock.advance(Duration::from_secs(25 * 3_600));
        let found = scene.settle(&mut class);
        let said = says(&found, kind);
        assert!(said.starts_with("True") && said.contains(action), "{said}");
        assert_eq!(ids(&found, "subnets").len(), 3, "what was found stays");
    }
}

#[test]
fn trouble_that_may_pass_is_tried_again_with_growing_patience() {
    let scene = scene();
    scene.aws.fail_always(Failure::new("ec2:DescribeSubnets", "RequestLimitExceeded", "slow down"));
    let class = class();
    let waits: Vec<u64> = (0..8).map(|_| scene.resolve(&class).again_after.unwrap().as_secs()).collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    let found = scene.resolve(&class);
    assert!(says(&found, conditions::SUBNETS).starts_with("Unknown ReconciliationFailed spec.subnetSelectorTerms"));
    assert!(says(&found, conditions::VALIDATION).starts_with("Unknown DependenciesNotReady"));
    assert!(says(&found, conditions::READY).starts_with("Unknown"));
    assert_eq!(ids(&found, "securityGroups"), ["sg-1", "sg-2"], "the others are looked up all the same");
    scene.aws.account().always.clear();
    assert_eq!(scene.resolve(&class).again_after, Some(MINUTE));
}

#[test]
fn what_can_be_told_by_reading_is_told_with_its_path_and_nothing_is_tried() {
    let gate = || Settings { has_node_class_cel: true, ..settings() };
    for (settings, pointer, value, reason, part) in [
        (
            settings(),
            "/spec/kubelet",
            json!({"imageGCHighThresholdPercent": 300}),
            "InvalidKubeletConfiguration",
            "spec.kubelet.imageGCHighThresholdPercent",
        ),
        (
            settings(),
            "/spec/kubelet",
            json!({"maxPods": "vcpus * 10"}),
            "KubeletExpressionsDisabled",
            "spec.kubelet.maxPods",
        ),
        (gate(), "/spec/kubelet", json!({"maxPods": "vcpus *"}), "KubeletExpressionInvalid", "maxPods"),
        (gate(), "/spec/kubelet", json!({"maxPods": "-1"}), "KubeletExpressionEvaluationFailed", "maxPods"),
        (
            settings(),
            "/spec/tags",
            json!({"karpenter.sh/nodepool": "mine"}),
            "TagValidationFailed",
            "spec.tags[karpenter.sh/nodepool]",
        ),
        (settings(), "/spec/userData", json!("MIME-Version: 1.0\nno header"), "InvalidUserData", "spec.userData"),
    ] {
        let scene = scene_with(settings);
        let said = says(&scene.resolve(&class_with(pointer, value.clone())), conditions::VALIDATION);
        assert!(said.starts_with(&format!("False {reason} ")) && said.contains(part), "{value}: {said}");
        assert_eq!(scene.aws.count("ec2:CreateLaunchTemplate"), 0, "{value}");
    }
    let mut bottlerocket = class_with("/spec/kubelet", json!({"podsPerCore": 2}));
    bottlerocket["spec"]["amiSelectorTerms"] = json!([{"id": "ami-amd"}]);
    bottlerocket["spec"]["amiFamily"] = json!("Bottlerocket");
    let said = says(&scene().resolve(&bottlerocket), conditions::VALIDATION);
    assert!(said.starts_with("False UnsupportedKubeletConfiguration spec.kubelet.podsPerCore"), "{said}");
    bottlerocket["spec"]["kubelet"] = Value::Null;
    bottlerocket["spec"]["userData"] = json!("[settings\n");
    let said = says(&scene().resolve(&bottlerocket), conditions::VALIDATION);
    assert!(said.starts_with("False InvalidUserData spec.userData is not valid TOML: line 1"), "{said}");
}

#[test]
fn user_data_over_sixteen_kibibytes_is_refused_on_the_class() {
    let found = scene().resolve(&class_with("/spec/userData", json!("#".repeat(16_385))));
    let said = says(&found, conditions::VALIDATION);
    assert!(said.starts_with("False UserDataSizeLimitExceeded") && said.contains("16384"), "{said}");
}

#[test]
fn groups_and_subnets_of_different_networks_are_refused() {
    let scene = scene();
    for group in &mut scene.aws.account().security_groups {
        group.vpc_id = "vpc-2".to_owned();
    }
    let said = says(&scene.resolve(&class()), conditions::VALIDATION);
    assert!(
        said.starts_with("False SecurityGroupSubnetVPCMismatch") && said.contains("vpc-1") && said.contains("vpc-2"),
        "{said}"
    );
}

#[test]
fn an_al2023_class_needs_the_range_of_services_and_says_who_keeps_it_back() {
    let scene = scene();
    scene.aws.fail_always(Failure::new("eks:DescribeCluster", "AccessDeniedException", "User: me is not authorized"));
    let said = says(&scene.resolve(&class()), conditions::VALIDATION);
    assert!(said.starts_with("False ClusterCIDRResolutionFailed") && said.contains("eks:DescribeCluster"), "{said}");
    let mut other = class_with("/spec/amiSelectorTerms", json!([{"id": "ami-amd"}]));
    other["spec"]["amiFamily"] = json!("Bottlerocket");
    assert!(says(&scene.resolve(&other), conditions::READY).starts_with("True"), "other families do not");
}

#[test]
fn each_call_that_a_launch_needs_is_tried_and_a_refusal_is_named() {
    for (action, reason) in [
        ("ec2:CreateLaunchTemplate", "CreateLaunchTemplateAuthCheckFailed"),
        ("ec2:CreateFleet", "CreateFleetAuthCheckFailed"),
        ("ec2:RunInstances", "RunInstancesAuthCheckFailed"),
    ] {
        let scene = scene();
        scene.aws.fail_always(denied(action));
        let class = class();
        let found = scene.resolve(&class);
        let said = says(&found, conditions::VALIDATION);
        assert!(said.starts_with(&format!("False {reason} EC2NodeClass default: ")) && said.contains(action), "{said}");
        let n_tries = scene.aws.count(action);
        scene.clock.advance(Duration::from_secs(299));
        scene.resolve(&class);
        assert_eq!(scene.aws.count(action), n_tries, "the refusal is remembered for a while");
        scene.aws.account().always.clear();
        scene.clock.advance(Duration::from_secs(1));
        assert!(says(&scene.resolve(&class), conditions::READY).starts_with("True"), "{action}");
    }
}

#[test]
fn only_a_refusal_is_a_verdict() {
    let scene = scene();
    let mut class = class();
    scene.settle(&mut class);
    class["metadata"]["annotations"]["look"] = json!("again");
    for failure in [
        Failure::new("ec2:CreateFleet", "RequestLimitExceeded", "slow down"),
        Failure { status: 503, ..Failure::new("ec2:CreateFleet", "Unavailable", "later") },
        Failure::new("ec2:CreateFleet", "InvalidParameterValue", "whatever it is"),
    ] {
        scene.aws.fail_next(failure.clone());
        let found = scene.resolve(&class);
        let said = says(&found, conditions::VALIDATION);
        assert!(said.starts_with("True") && said.contains(&failure.message), "as it was before: {said}");
        assert!(found.again_after.unwrap() <= Duration::from_secs(4));
    }
    assert!(
        says(&scene.resolve(&class), conditions::VALIDATION).ends_with("ValidationSucceeded "),
        "it passed after all"
    );
}

#[test]
fn one_subnet_in_which_a_node_could_start_is_enough() {
    let scene = scene();
    scene.aws.fail_next(denied("ec2:RunInstances"));
    assert!(says(&scene.resolve(&class()), conditions::VALIDATION).starts_with("True"));
    assert_eq!(scene.aws.count("ec2:RunInstances"), 2);
}

#[test]
fn d3_34_a_profile_that_ec2_does_not_know_is_named_when_it_is_the_users_and_waited_for_when_it_is_ours() {
    let message = "Value (nodes) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name";
    let invalid = Failure::new("ec2:CreateFleet", "InvalidParameterValue", message);
    let with_profile = scene();
    with_profile.aws.fail_always(invalid.clone());
    let found = with_profile.resolve(&class());
    let said = says(&found, conditions::VALIDATION);
    assert!(said.starts_with("False InstanceProfileNotFound EC2NodeClass default: spec.instanceProfile"), "{said}");
    assert_eq!(found.again_after, Some(Duration::from_secs(10)));
    let with_role = scene();
    with_role.aws.fail_always(invalid);
    let mut class = class_with("/spec/role", json!("nodes"));
    class["spec"].as_object_mut().unwrap().remove("instanceProfile");
    assert!(says(&with_role.resolve(&class), conditions::VALIDATION).starts_with("Unknown"));
}

#[test]
fn nothing_is_tried_out_where_that_is_switched_off() {
    let scene = scene_with(Settings { is_dry_run_disabled: true, ..settings() });
    assert!(says(&scene.resolve(&class()), conditions::READY).starts_with("True"));
    assert_eq!(scene.aws.count("ec2:CreateLaunchTemplate") + scene.aws.count("ec2:CreateFleet"), 0);
}

#[test]
fn a_type_that_a_pool_would_buy_is_tried() {
    let scene = scene();
    let pool = |class: &str, wants: Requirements| PoolInUse {
        name: "pool".into(),
        node_class: NodeClassRef { group: "karpenter.k8s.aws".into(), kind: "EC2NodeClass".into(), name: class.into() },
        labels: BTreeMap::new(),
        requirements: wants,
    };
    let family = |name: &str| Requirements::new().with(labels::INSTANCE_FAMILY, Requirement::is_in([name]));
    let tried = |scene: &Scene| {
        let account = scene.aws.account();
        let run = account.calls.iter().rev().find(|(action, _)| *action == "ec2:RunInstances").unwrap();
        ["m5.large", "m6g.large", "c5.xlarge", "g5.xlarge"].into_iter().find(|name| run.1.contains(name)).unwrap()
    };
    let mut class = class();
    for (pools, expected) in [
        (vec![], "m5.large"),
        (vec![pool("default", family("c5"))], "c5.xlarge"),
        (vec![pool("another", family("c5"))], "m5.large"),
        (vec![pool("default", family("m6g"))], "m6g.large"),
        // No image here is for GPUs.
        (vec![pool("default", family("g5"))], "m5.large"),
    ] {
        scene.classes.know_pools(&pools);
        class["metadata"]["annotations"]["look"] = json!(format!("{pools:?}"));
        scene.resolve(&class);
        assert_eq!(tried(&scene), expected, "{pools:?}");
    }
    scene.classes.know_pools(&[pool(
        "default",
        Requirements::new().with(labels::INSTANCE_TENANCY, Requirement::is_in(["dedicated"])),
    )]);
    class["metadata"]["annotations"]["look"] = json!("dedicated");
    scene.resolve(&class);
    assert_eq!(scene.aws.account().templates.last().unwrap().1.tenancy.as_deref(), Some("dedicated"));
}

#[test]
fn d0_36_reservations_that_may_not_be_described_are_done_without() {
    let scene = scene();
    scene.aws.fail_always(denied("ec2:DescribeCapacityReservations"));
    assert!(says(&scene.resolve(&class()), conditions::RESERVATIONS).ends_with("CapacityReservationsReady "));
    assert_eq!(scene.aws.count("ec2:DescribeCapacityReservations"), 0, "nobody selects any");
    let selecting = class_with("/spec/capacityReservationSelectorTerms", json!([{"id": "cr-1"}]));
    let found = scene.resolve(&selecting);
    let said = says(&found, conditions::RESERVATIONS);
    assert!(
        said.starts_with("True")
            && said.contains("ec2:DescribeCapacityReservations is denied")
            && said.contains("Allow"),
        "{said}"
    );
    assert!(says(&found, conditions::READY).starts_with("True"));
}

#[test]
fn reservations_are_counted_for_those_who_sell_them() {
    let scene = scene();
    let reservation = Reservation {
        id: "cr-1".to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: "eu-west-1a".to_owned(),
        owner_id: "123456789012".to_owned(),
        match_criteria: "targeted".to_owned(),
        state: "active".to_owned(),
        n_available: 3,
        ..Reservation::default()
    };
    scene.aws.account().reservations = vec![reservation];
    let class = class_with("/spec/capacityReservationSelectorTerms", json!([{"id": "cr-1"}]));
    assert_eq!(ids(&scene.resolve(&class), "capacityReservations"), ["cr-1"]);
    assert_eq!(scene.classes.supply.reservations().available("cr-1"), 3);
    scene.classes.supply.reservations().launched("cr-1");
    scene.resolve(&class);
    assert_eq!(scene.classes.supply.reservations().available("cr-1"), 2, "our own count is newer than an old answer");
    let off = scene_with(Settings { has_reserved_capacity: false, ..settings() });
    assert_eq!(says(&off.resolve(&class), conditions::RESERVATIONS), "absent absent absent");
}

#[test]
fn a_placement_group_is_handed_on_and_its_absence_is_said() {
    let scene = scene();
    let class = class_with("/spec/placementGroupSelector", json!({"name": "rack"}));
    let typed = read(&class).unwrap();
    let said = says(&scene.resolve(&class), conditions::PLACEMENT_GROUP);
    assert!(
        said.starts_with("False PlacementGroupNotFound spec.placementGroupSelector") && said.contains("name rack"),
        "{said}"
    );
    let group = PlacementGroup {
        id: "pg-1".to_owned(),
        name: "rack".to_owned(),
        strategy: "spread".to_owned(),
        n_partitions: 0,
        state: "available".to_owned(),
    };
    scene.aws.account().placement_groups = vec![group];
    scene.clock.advance(MINUTE);
    assert!(says(&scene.resolve(&class), conditions::PLACEMENT_GROUP).starts_with("True"));
    assert_eq!(scene.classes.supply.placement_group(&typed).unwrap().id, "pg-1");
    scene.aws.fail_always(Failure::new("ec2:DescribePlacementGroups", "InternalError", "oops"));
    scene.clock.advance(MINUTE);
    assert!(
        says(&scene.resolve(&class), conditions::PLACEMENT_GROUP).starts_with("False PlacementGroupResolutionFailed")
    );
    assert_eq!(
        scene.classes.supply.placement_group(&typed).unwrap().id,
        "pg-1",
        "the group seen last is still the group"
    );
    assert_eq!(scene_calls_for_none(), 0);
}

fn scene_calls_for_none() -> usize {
    let scene = scene();
    scene.resolve(&class());
    scene.aws.count("ec2:DescribePlacementGroups")
}

#[test]
fn d0_58_a_role_that_does_not_exist_is_named_on_the_class() {
    let scene = scene();
    scene.aws.fail_always(Failure::new(
        "iam:AddRoleToInstanceProfile",
        "NoSuchEntity",
        "The role with name KarpenterNodeRole-demo cannot be found.",
    ));
    let mut class = class_with("/spec/role", json!("KarpenterNodeRole-demo"));
    class["spec"].as_object_mut().unwrap().remove("instanceProfile");
    let said = says(&scene.resolve(&class), conditions::INSTANCE_PROFILE);
    assert!(
        said.starts_with(
            "False RoleNotFound EC2NodeClass default: spec.role: there is no role \"KarpenterNodeRole-demo\""
        ),
        "{said}"
    );
}

#[test]
fn profiles_that_cannot_be_listed_are_not_cleaned_up_which_is_said_on_the_class() {
    let scene = scene();
    scene.aws.fail_always(Failure::new("iam:ListInstanceProfiles", "AccessDenied", "no"));
    let collect = || now_ready(scene.classes.collect_profiles(&scene.aws, &InUse::default()));
    assert_eq!(collect(), Ok(Vec::new()));
    assert_eq!(collect(), Ok(Vec::new()));
    assert_eq!(scene.aws.count("iam:ListInstanceProfiles"), 1, "it rests for some minutes");
    let mut class = class_with("/spec/role", json!("nodes"));
    class["spec"].as_object_mut().unwrap().remove("instanceProfile");
    let said = says(&scene.resolve(&class), conditions::INSTANCE_PROFILE);
    assert!(said.starts_with("True") && said.contains("iam:ListInstanceProfiles is denied"), "{said}");
    scene.aws.account().always.clear();
    let orphan = InstanceProfile {
        name: "orphan".to_owned(),
        path: "/karpenter/eu-west-1/demo/gone/".to_owned(),
        ..InstanceProfile::default()
    };
    scene.aws.account().profiles.insert("orphan".to_owned(), orphan);
    scene.clock.advance(FIVE_MINUTES);
    assert_eq!(collect(), Ok(vec!["orphan".to_owned()]));
    assert!(says(&scene.resolve(&class), conditions::INSTANCE_PROFILE).ends_with("InstanceProfileReady "));
}

#[test]
fn a_class_that_ends_leaves_no_profile_and_no_template_behind() {
    let scene = scene();
    let mut class = class_with("/spec/role", json!("nodes"));
    class["spec"].as_object_mut().unwrap().remove("instanceProfile");
    let left = || {
        let account = scene.aws.account();
        (account.profiles.len(), account.templates.len())
    };
    scene.settle(&mut class);
    assert_eq!(left(), (1, 1));
    scene.aws.fail_next(Failure::new("iam:ListInstanceProfiles", "ServiceFailure", "oops"));
    let error = now_ready(scene.classes.end(&scene.aws, &class, &scene.templates)).unwrap_err();
    assert!(error.to_string().contains("EC2NodeClass default cannot go yet"), "{error}");
    now_ready(scene.classes.end(&scene.aws, &class, &scene.templates)).unwrap();
    assert_eq!(left(), (0, 0));
}

#[test]
fn the_same_question_is_not_asked_twice_within_a_minute() {
    let scene = scene();
    let class = class();
    scene.resolve(&class);
    scene.aws.account().calls.clear();
    scene.resolve(&class);
    assert_eq!(scene.calls(), Vec::<&str>::new());
    let changed = class_with("/metadata/generation", json!(2));
    scene.resolve(&changed);
    assert!(scene.calls().contains(&"ec2:DescribeSubnets"), "a changed class is looked up anew");
}

#[test]
fn who_launches_hears_of_free_addresses_when_they_are_fresh() {
    let heard: Arc<Mutex<Vec<usize>>> = Arc::default();
    let mut scene = scene();
    let listener = heard.clone();
    scene.classes = scene.classes.telling_subnets(move |found| listener.lock().unwrap().push(found.len()));
    scene.resolve(&class());
    scene.resolve(&class());
    assert_eq!(*heard.lock().unwrap(), [3]);
}

#[test]
fn a_class_that_is_none_is_refused() {
    let scene = scene();
    let broken = class_with("/spec/tags", json!("a string"));
    let error = now_ready(scene.classes.resolve(&scene.aws, &broken, &scene.templates)).unwrap_err();
    assert!(
        matches!(&error, CloudError::Refused { message } if message.starts_with("EC2NodeClass default: ")),
        "{error}"
    );
}
