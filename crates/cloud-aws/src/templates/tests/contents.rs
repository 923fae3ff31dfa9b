//! What templates say.

use super::*;
use crate::wire::{TemplateDevice, TemplateInterface, TemplateMetadata, TemplateReservation};

#[test]
fn types_that_need_the_same_share_a_template() {
    let (ready, wire) = Launch::new().ensure().unwrap();
    let shape: Vec<(&str, Vec<&str>)> = ready.iter().map(|it| (it.image_id.as_str(), type_names(it))).collect();
    assert_eq!(
        shape,
        [
            ("ami-intel", vec!["m5.large", "c5.large"]),
            ("ami-arm", vec!["m6g.large"]),
            ("ami-intel", vec!["c5n.18xlarge"]),
        ]
    );
    assert_eq!(wire.count("ec2:CreateLaunchTemplate"), 3);
    assert!(ready.iter().all(|it| it.reservation_id.is_none()));
}

#[test]
fn types_whose_reserved_resources_differ_do_not_share_a_template() {
    let types = ["a.large amd64 2 29 0", "b.large amd64 4 29 0", "c.large amd64 2 29 0"].map(instance_type).to_vec();
    for setting in ["kubeReserved", "systemReserved"] {
        let launch = Launch { types: types.clone(), ..Launch::of(json!({"kubelet": {setting: {"cpu": "per cpu"}}})) };
        let (ready, _) = launch.ensure().unwrap();
        assert_eq!(ready.iter().map(type_names).collect::<Vec<_>>(), [vec!["a.large", "c.large"], vec!["b.large"]]);
    }
    let (ready, _) = Launch { types, ..Launch::new() }.ensure().unwrap();
    assert_eq!(ready.len(), 1, "what the class does not set is left to the image");
}

#[test]
fn a_class_without_images_or_groups_gets_no_template() {
    let mut launch = Launch::new();
    launch.class.status.as_mut().unwrap().security_groups.clear();
    let message = |launch: &Launch| match launch.ensure() {
        Err(CloudError::ClassNotReady { message }) => message.to_string(),
        other => panic!("{:?}", other.map(|(ready, _)| ready)),
    };
    assert!(message(&launch).starts_with("EC2NodeClass workers: status.securityGroups is empty"));
    launch.class.status.as_mut().unwrap().amis.clear();
    assert!(message(&launch).starts_with("EC2NodeClass workers: status.amis is empty"));
}

#[test]
fn types_without_an_image_are_left_out_and_none_at_all_is_an_error_with_the_reasons() {
    let mut launch = Launch::new();
    launch.class.status.as_mut().unwrap().amis.retain(|ami| ami.id == "ami-arm");
    let (ready, _) = launch.ensure().unwrap();
    assert_eq!(ready.iter().flat_map(type_names).collect::<Vec<_>>(), ["m6g.large"]);
    launch.types.retain(|it| &*it.name.0 != "m6g.large");
    let Err(CloudError::LaunchFailed { message, .. }) = launch.ensure() else { panic!("no image") };
    assert_eq!(
        &*message,
        "EC2NodeClass workers: none of its images runs on m5.large, c5.large, c5n.18xlarge: ami-arm \
         (kubernetes.io/arch In [arm64], karpenter.k8s.aws/instance-gpu-count DoesNotExist)"
    );
}

#[test]
fn a_template_says_what_the_class_says() {
    let launch = Launch {
        tenancy: "dedicated",
        ..Launch::of(json!({
            "detailedMonitoring": true,
            "associatePublicIPAddress": false,
            "ipPrefixCount": 2,
            "cpuOptions": {"nestedVirtualization": "enabled"},
            "connectionTracking": {"tcpEstablishedTimeout": 300, "udpTimeout": 40},
            "metadataOptions": {"httpEndpoint": "enabled", "httpProtocolIPv6": "enabled", "httpPutResponseHopLimit": 2, "httpTokens": "optional"},
            "tags": {"team": "blue", "karpenter.sh/nodepool": "not theirs"},
        }))
    };
    let data = launch.data();
    let tags = Tags::from(
        [
            ("eks:eks-cluster-name", "demo"),
            ("karpenter.k8s.aws/ec2nodeclass", "workers"),
            ("karpenter.sh/nodepool", "default"),
            ("kubernetes.io/cluster/demo", "owned"),
            ("team", "blue"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    assert_eq!(
        TemplateData { user_data: None, ..data.clone() },
        TemplateData {
            instance_profile: Some("demo_42".to_owned()),
            image_id: "ami-intel".to_owned(),
            user_data: None,
            block_devices: vec![TemplateDevice {
                name: Some("/dev/xvda".to_owned()),
                encrypted: Some(true),
                size_gib: Some(20),
                kind: Some("gp3".to_owned()),
                ..TemplateDevice::default()
            }],
            metadata: Some(TemplateMetadata {
                http_endpoint: Some("enabled".to_owned()),
                http_protocol_ipv6: Some("enabled".to_owned()),
                hop_limit: Some(2),
                http_tokens: Some("optional".to_owned()),
                instance_tags: "disabled".to_owned(),
            }),
            interfaces: vec![TemplateInterface {
                groups: vec!["sg-1".to_owned(), "sg-2".to_owned()],
                public_address: Some(false),
                ipv4_prefix_count: Some(2),
                tcp_established_timeout: Some(300),
                udp_timeout: Some(40),
                ..TemplateInterface::default()
            }],
            detailed_monitoring: Some(true),
            nested_virtualization: Some("enabled".to_owned()),
            tenancy: Some("dedicated".to_owned()),
            placement_group_id: None,
            partition: None,
            enclave: None,
            tag_specifications: vec![("network-interface".to_owned(), tags.clone())],
            reservation: Some(TemplateReservation { preference: "none".to_owned(), target_id: None }),
            market: None,
        }
    );
    let (_, wire) = launch.ensure().unwrap();
    assert_eq!(wire.account().templates[0].0.tags, tags);
}

#[test]
fn user_data_in_a_template_is_made_for_its_group() {
    let mut launch = Launch::of(json!({"userData": "echo hello"}));
    launch.order.taints = vec![Taint { key: "a".into(), value: "".into(), effect: Effect::NoSchedule }];
    let (_, wire) = launch.ensure().unwrap();
    let text = |at: usize| {
        let encoded = wire.account().templates[at].1.user_data.clone().unwrap();
        String::from_utf8(base64::engine::general_purpose::STANDARD.decode(encoded).unwrap()).unwrap()
    };
    assert!(text(0).contains("echo hello") && text(0).contains("maxPods: 29"), "{}", text(0));
    assert!(text(2).contains("maxPods: 737"));
    assert!(text(0).contains("karpenter.sh/capacity-type=on-demand,karpenter.sh/do-not-sync-taints=true"));
    assert!(text(0).contains("- effect: NoSchedule\n        key: a\n      - effect: NoExecute\n"), "{}", text(0));
}

#[test]
fn devices_default_by_family_and_sizes_round_up_to_gibibytes() {
    let devices = |spec: Value| -> Vec<(Option<String>, Option<i32>)> {
        let launch = Launch::of(spec);
        launch.data().block_devices.into_iter().map(|device| (device.name, device.size_gib)).collect()
    };
    let named = |name: &str, size: i32| (Some(name.to_owned()), Some(size));
    for (family, expected) in [
        ("AL2", vec![named("/dev/xvda", 20)]),
        ("AL2023", vec![named("/dev/xvda", 20)]),
        ("Bottlerocket", vec![named("/dev/xvda", 4), named("/dev/xvdb", 20)]),
        ("Windows2019", vec![named("/dev/sda1", 50)]),
        ("Windows2025", vec![named("/dev/sda1", 50)]),
        ("Custom", vec![]),
    ] {
        assert_eq!(devices(json!({"amiFamily": family})), expected, "{family}");
    }
    for (size, expected) in [("100Gi", 100), ("1G", 1), ("2G", 2), ("1Ti", 1024), ("1T", 932)] {
        let mapping = json!({"deviceName": "/dev/xvda", "ebs": {"volumeSize": size}});
        assert_eq!(devices(json!({"blockDeviceMappings": [mapping]})), [named("/dev/xvda", expected)], "{size}");
    }
    let launch = Launch::of(json!({"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "Ti"}}]}));
    let Err(CloudError::ClassNotReady { message }) = launch.ensure() else { panic!("no size") };
    assert!(message.starts_with("EC2NodeClass workers: spec.blockDeviceMappings[0].ebs.volumeSize: "), "{message}");
}

#[test]
fn every_setting_of_a_volume_is_passed_on_and_zero_figures_are_not() {
    let ebs = json!({
        "deleteOnTermination": true, "encrypted": true, "iops": 3000, "kmsKeyID": "key", "snapshotID": "snap-1", "throughput": 125,
        "volumeInitializationRate": 200, "volumeSize": "100Gi", "volumeType": "gp3",
    });
    let zero = json!({"iops": 0, "throughput": 0, "volumeSize": "1Gi"});
    let devices = Launch::of(json!({"blockDeviceMappings": [
        {"deviceName": "/dev/xvda", "ebs": ebs}, {"deviceName": "/dev/xvdb", "ebs": zero}, {"deviceName": "/dev/xvdc"},
    ]}));
    let devices = devices.data().block_devices;
    assert_eq!(
        devices[0],
        TemplateDevice {
            name: Some("/dev/xvda".to_owned()),
            delete_on_termination: Some(true),
            encrypted: Some(true),
            iops: Some(3000),
            kms_key_id: Some("key".to_owned()),
            snapshot_id: Some("snap-1".to_owned()),
            throughput: Some(125),
            initialization_rate: Some(200),
            size_gib: Some(100),
            kind: Some("gp3".to_owned()),
        }
    );
    assert_eq!((devices[1].iops, devices[1].throughput, devices[1].size_gib), (None, None, Some(1)));
    assert_eq!(devices[2], TemplateDevice { name: Some("/dev/xvdc".to_owned()), ..TemplateDevice::default() });
}

#[test]
fn metadata_options_are_those_of_the_schema_and_isolated_regions_do_not_hear_of_ipv6() {
    let of = |region: &str| {
        let mut launch = Launch::new();
        launch.settings.region = region.to_owned();
        launch.data().metadata.unwrap()
    };
    let metadata = of("us-west-2");
    assert_eq!((metadata.http_tokens.as_deref(), metadata.hop_limit), (Some("required"), Some(1)));
    assert_eq!(metadata.http_protocol_ipv6.as_deref(), Some("disabled"));
    for region in
        ["us-iso-east-1", "us-iso-west-1", "us-isob-east-1", "us-isob-west-1", "us-isof-south-1", "us-isof-east-1"]
    {
        assert_eq!(of(region).http_protocol_ipv6, None, "{region}");
        assert_eq!(of(region).http_endpoint.as_deref(), Some("enabled"), "{region}");
    }
}

#[test]
fn interfaces_of_the_class_come_first_and_those_for_efa_alone_have_no_addresses() {
    let launch = Launch::of(json!({
        "ipPrefixCount": 1, "associatePublicIPAddress": true, "connectionTracking": {"udpTimeout": 40},
        "networkInterfaces": [
            {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
            {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
        ],
    }));
    let groups = vec!["sg-1".to_owned(), "sg-2".to_owned()];
    assert_eq!(
        launch.data().interfaces,
        [
            TemplateInterface {
                card: Some(0),
                device: 0,
                kind: Some("interface".to_owned()),
                groups: groups.clone(),
                public_address: Some(true),
                ipv4_prefix_count: Some(1),
                udp_timeout: Some(40),
                ..TemplateInterface::default()
            },
            TemplateInterface {
                card: Some(1),
                device: 1,
                kind: Some("efa-only".to_owned()),
                groups,
                ..TemplateInterface::default()
            },
        ]
    );
}

#[test]
fn pods_that_ask_for_efa_get_an_interface_on_each_card() {
    let mut launch = Launch { types: vec![instance_type("p4d.24xlarge amd64 96 737 4")], ..Launch::new() };
    assert_eq!(launch.data().interfaces.len(), 1, "nobody asked");
    launch.order.requests.set("vpc.amazonaws.com/efa", Quantity::from_units(1));
    let shape: Vec<_> = launch.data().interfaces.into_iter().map(|it| (it.card, it.device, it.kind)).collect();
    let efa = || Some("efa".to_owned());
    assert_eq!(shape, [(Some(0), 0, efa()), (Some(1), 1, efa()), (Some(2), 1, efa()), (Some(3), 1, efa())]);
}

#[test]
fn nodes_of_an_ipv6_cluster_have_a_primary_ipv6_address() {
    let mut launch = Launch::of(json!({"ipPrefixCount": 1}));
    launch.cluster.dns = Some("fd00::a".parse().unwrap());
    let interface = launch.data().interfaces.remove(0);
    assert_eq!((interface.ipv4_prefix_count, interface.ipv6_prefix_count), (None, Some(1)));
    assert_eq!((interface.ipv6_address_count, interface.primary_ipv6), (Some(1), Some(true)));
    launch.cluster.dns = Some("10.100.0.10".parse().unwrap());
    let interface = launch.data().interfaces.remove(0);
    assert_eq!((interface.ipv4_prefix_count, interface.ipv6_prefix_count), (Some(1), None));
    assert_eq!((interface.ipv6_address_count, interface.primary_ipv6), (None, None));
}

#[test]
fn enclaves_are_on_when_pods_ask_for_them() {
    let mut launch = Launch::new();
    launch.order.requests.set("eks.amazonaws.com/nitro-sandbox", Quantity::from_units(1));
    assert_eq!(launch.data().enclave, Some(true));
}

#[test]
fn a_partition_is_named_when_the_claim_names_one() {
    let group = |strategy: &str| PlacementGroup {
        id: "pg-1".to_owned(),
        strategy: strategy.to_owned(),
        n_partitions: 3,
        ..PlacementGroup::default()
    };
    let mut launch = Launch { placement_group: Some(group("partition")), ..Launch::new() };
    assert_eq!((launch.data().placement_group_id.as_deref(), launch.data().partition), (Some("pg-1"), None));
    launch.order.requirements.add(keys::PLACEMENT_GROUP_PARTITION, Requirement::is_in(["3", "2"]));
    assert_eq!(launch.data().partition, Some(2));
    launch.placement_group = Some(group("spread"));
    assert_eq!(launch.data().partition, None);
}

#[test]
fn each_reservation_has_a_template_bound_to_it() {
    let mut launch = Launch { capacity_type: CapacityType::Reserved, ..Launch::new() };
    launch.types.truncate(2);
    launch.types[0].offerings =
        vec![reserved_offering("cr-2", "default", "false"), reserved_offering("cr-1", "default", "false")];
    launch.types[1].offerings = vec![
        reserved_offering("cr-3", "capacity-block", "false"),
        reserved_offering("cr-4", "default", "true"),
        Offering::new("us-west-2a", CapacityType::OnDemand, Money::default()),
    ];
    let (ready, wire) = launch.ensure().unwrap();
    let shape: Vec<_> = ready.iter().map(|it| (it.reservation_id.as_deref().unwrap(), type_names(it))).collect();
    assert_eq!(
        shape,
        [
            ("cr-1", vec!["m5.large"]),
            ("cr-2", vec!["m5.large"]),
            ("cr-3", vec!["c5.large"]),
            ("cr-4", vec!["c5.large"])
        ]
    );
    let account = wire.account();
    for ((ready, (_, data)), market) in ready.iter().zip(&account.templates).zip([
        None,
        None,
        Some("capacity-block"),
        Some("interruptible-capacity-reservation"),
    ]) {
        let expected = TemplateReservation {
            preference: "capacity-reservations-only".to_owned(),
            target_id: ready.reservation_id.clone(),
        };
        assert_eq!((data.reservation.as_ref(), data.market.as_deref()), (Some(&expected), market));
    }
}

#[test]
fn without_the_gate_nothing_is_said_about_reservations() {
    let mut launch = Launch::new();
    launch.settings.has_reserved_capacity = false;
    assert_eq!(launch.data().reservation, None);
}

#[test]
fn spot_requests_are_tagged_unless_a_policy_forbids_it() {
    let launch = Launch { capacity_type: CapacityType::Spot, ..Launch::new() };
    let kinds =
        |data: &TemplateData| -> Vec<String> { data.tag_specifications.iter().map(|(kind, _)| kind.clone()).collect() };
    assert_eq!(kinds(&launch.data()), ["network-interface", "spot-instances-request"]);
    let wire = Scripted::default();
    let templates = Templates::new(Arc::new(launch.settings.clone()), Arc::new(HandClock::default()));
    assert!(templates.leave_out_spot_tags() && !templates.leave_out_spot_tags());
    let ready = now(templates.ensure_all(&wire, &launch.wants())).unwrap();
    assert_eq!(kinds(&wire.account().templates[0].1), ["network-interface"]);
    assert_ne!(ready[0].name, launch.names()[0]);
}

#[test]
fn d0_3_a_pool_and_a_class_are_enough_for_a_template_to_be_made() {
    let wire = Scripted::default();
    let launch = Launch { capacity_type: CapacityType::Spot, ..Launch::new() };
    let templates = Templates::new(Arc::new(launch.settings.clone()), Arc::new(HandClock::default()));
    assert!(wire.account().templates.is_empty());
    let ready = now(templates.ensure_all(&wire, &launch.wants())).unwrap();
    let made: Vec<String> = wire.account().templates.iter().map(|(template, _)| template.name.clone()).collect();
    assert_eq!(ready.iter().map(|it| it.name.clone()).collect::<Vec<_>>(), made);
    let n_types: usize = ready.iter().map(|it| it.types.len()).sum();
    assert_eq!(n_types, launch.types.len(), "many types come from one pool");
}

#[test]
fn d3_10_all_security_groups_of_the_class_are_attached_to_the_first_interface() {
    // Where `describe-launch-template-versions … NetworkInterfaces[0].Groups` looks for them (D0.62).
    assert_eq!(Launch::new().data().interfaces[0].groups, ["sg-1", "sg-2"]);
}
