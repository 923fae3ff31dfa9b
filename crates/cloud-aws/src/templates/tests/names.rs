//! Equal contents have equal names, and only they.

use super::*;
use kerf_api::{AmiSelectorTerm, SubnetSelectorTerm};

/// The name of the one template of a launch of one type.
fn name(launch: &Launch) -> String {
    let names = Launch { types: launch.types[..1].to_vec(), ..launch.clone() }.names();
    let [name] = &names[..] else { panic!("{names:?}") };
    name.clone()
}

#[test]
fn a_name_is_the_prefix_and_a_number() {
    let name = name(&Launch::new());
    let number = name.strip_prefix("karpenter.k8s.aws/").unwrap();
    assert!(number.parse::<u64>().is_ok(), "{name}");
}

#[test]
fn whatever_a_template_says_is_in_its_name() {
    let mut seen = BTreeMap::from([(name(&Launch::new()), "nothing".to_owned())]);
    let mut differs = |what: &str, launch: Launch| {
        if let Some(other) = seen.insert(name(&launch), what.to_owned()) {
            panic!("{what} and {other} share a name");
        }
    };
    let change = |change: &dyn Fn(&mut Launch)| {
        let mut launch = Launch::new();
        change(&mut launch);
        launch
    };
    for (what, spec) in [
        ("user data", json!({"userData": "x"})),
        ("family", json!({"amiFamily": "Custom"})),
        ("tags", json!({"tags": {"a": "b"}})),
        ("public address", json!({"associatePublicIPAddress": true})),
        ("prefixes", json!({"ipPrefixCount": 1})),
        ("kubelet", json!({"kubelet": {"cpuCFSQuota": true}})),
        ("reserved resources", json!({"kubelet": {"systemReserved": {"cpu": "per cpu"}}})),
        ("block devices", json!({"blockDeviceMappings": [{"deviceName": "a", "ebs": {"volumeSize": "1Gi"}}]})),
        ("instance store", json!({"instanceStorePolicy": "RAID0"})),
        (
            "interfaces",
            json!({"networkInterfaces": [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}]}),
        ),
        ("monitoring", json!({"detailedMonitoring": true})),
        ("metadata", json!({"metadataOptions": {"httpTokens": "optional"}})),
        ("connection tracking", json!({"connectionTracking": {"udpTimeout": 40}})),
        ("cpu options", json!({"cpuOptions": {"nestedVirtualization": "enabled"}})),
    ] {
        differs(what, Launch::of(spec));
    }
    let status = |class: &mut Ec2NodeClass| class.status.take().unwrap();
    for (what, launch) in [
        ("class name", change(&|it| it.class.metadata.name = Some("others".to_owned()))),
        (
            "profile",
            change(&|it| {
                let mut new = status(&mut it.class);
                new.instance_profile = Some("other".to_owned());
                it.class.status = Some(new);
            }),
        ),
        (
            "security groups",
            change(&|it| {
                let mut new = status(&mut it.class);
                new.security_groups.pop();
                it.class.status = Some(new);
            }),
        ),
        (
            "image",
            change(&|it| {
                let mut new = status(&mut it.class);
                new.amis[1].id = "ami-other".to_owned();
                it.class.status = Some(new);
            }),
        ),
        ("cluster name", change(&|it| it.settings.cluster_name = "other".to_owned())),
        ("endpoint", change(&|it| it.cluster.endpoint = "https://other".to_owned())),
        ("service range", change(&|it| it.cluster.service_cidr = Some("10.0.0.0/16".to_owned()))),
        ("certificate", change(&|it| it.cluster.ca_bundle = "b3RoZXI=".to_owned())),
        ("name server", change(&|it| it.cluster.dns = Some("10.0.0.10".parse().unwrap()))),
        ("pool", change(&|it| it.order.pool = Some(PoolName("other".into())))),
        ("labels", change(&|it| drop(it.order.labels.insert("a".into(), "b".into())))),
        (
            "taints",
            change(&|it| {
                it.order.taints.push(Taint { key: "a".into(), value: "".into(), effect: Effect::NoSchedule });
            }),
        ),
        (
            "startup taints",
            change(&|it| {
                it.order.startup_taints.push(Taint { key: "b".into(), value: "".into(), effect: Effect::NoSchedule });
            }),
        ),
        ("enclave", change(&|it| it.order.requests.set("eks.amazonaws.com/nitro-sandbox", Quantity::from_units(1)))),
        (
            "efa",
            change(&|it| {
                it.types.reverse();
                it.order.requests.set("vpc.amazonaws.com/efa", Quantity::from_units(1));
            }),
        ),
        ("pods", change(&|it| it.types[0].capacity.set("pods", Quantity::from_units(30)))),
        ("spot", change(&|it| it.capacity_type = CapacityType::Spot)),
        ("tenancy", change(&|it| it.tenancy = "dedicated")),
        (
            "placement group",
            change(&|it| {
                it.placement_group = Some(PlacementGroup { id: "pg-1".to_owned(), ..PlacementGroup::default() });
            }),
        ),
        ("gate", change(&|it| it.settings.has_reserved_capacity = false)),
    ] {
        differs(what, launch);
    }
    for (id, kind, is_interruptible) in [
        ("cr-1", "default", "false"),
        ("cr-2", "default", "false"),
        ("cr-1", "capacity-block", "false"),
        ("cr-1", "default", "true"),
    ] {
        let launch = change(&|it| {
            it.capacity_type = CapacityType::Reserved;
            it.types[0].offerings = vec![reserved_offering(id, kind, is_interruptible)];
        });
        differs(&format!("{id} {kind} {is_interruptible}"), launch);
    }
}

#[test]
fn what_a_template_does_not_say_is_not_in_its_name() {
    let expected = name(&Launch::new());
    let same = |what: &str, change: &dyn Fn(&mut Launch)| {
        let mut launch = Launch::new();
        change(&mut launch);
        assert_eq!(name(&launch), expected, "{what}");
    };
    same("instance types", &|it| it.types[0].name = TypeName("m5a.large".into()));
    same("the claim", &|it| it.order.claim = ClaimName("another".into()));
    same("the uid", &|it| it.order.uid = "another".into());
    same("zones", &|it| it.order.requirements.add("topology.kubernetes.io/zone", Requirement::is_in(["us-west-2b"])));
    same("labels of Kubernetes", &|it| {
        it.order.labels.insert("topology.kubernetes.io/zone".into(), "us-west-2b".into());
    });
    same("subnet terms", &|it| {
        it.class.spec.subnet_selector_terms =
            vec![SubnetSelectorTerm { id: Some("subnet-1".to_owned()), ..SubnetSelectorTerm::default() }];
    });
    same("image terms", &|it| {
        it.class.spec.ami_selector_terms =
            vec![AmiSelectorTerm { alias: Some("al2023@v20260101".to_owned()), ..AmiSelectorTerm::default() }];
    });
    same("the context of fleets", &|it| it.class.spec.context = Some("x".to_owned()));
    same("the version of Kubernetes", &|it| it.cluster.version = "1.36".to_owned());
}
