//! The schema of EC2NodeClass.

use serde_json::json;

use super::ec2_terms::{self, alias_family};
use super::parts::{conditions, not_empty, switch};
use super::rule::Look as _;
use super::{
    Merge, Rule, Schema, boolean, instant, int32, int64, list_of, map_of, object, one_of, open_object, patterns, text,
};
use crate::objects::AmiFamily;

const ON_OFF: &[&str] = &["enabled", "disabled"];

pub(crate) fn schema() -> Schema {
    object([("spec", spec()), ("status", status())])
        .require(["spec"])
        .about("An EC2NodeClass says where, from which image and with which settings EC2 instances are launched.")
}

fn spec() -> Schema {
    object([
        ("subnetSelectorTerms", ec2_terms::subnets()),
        ("securityGroupSelectorTerms", ec2_terms::security_groups()),
        ("capacityReservationSelectorTerms", ec2_terms::capacity_reservations()),
        ("placementGroupSelector", placement_group_selector()),
        ("associatePublicIPAddress", switch("Whether instances get a public address. Unset leaves it to the subnet.")),
        ("ipPrefixCount", int32().at_least(0).about("How many address prefixes each network interface gets.")),
        ("amiSelectorTerms", ec2_terms::amis()),
        (
            "amiFamily",
            one_of(AmiFamily::WORDS)
                .about("Format of the bootstrap data, and default volumes. Follows from the alias if there is one."),
        ),
        ("userData", text().about("Given to the instance at boot, merged with what the family needs.")),
        (
            "role",
            text()
                .rule(not_empty())
                .about("IAM role of the nodes; an instance profile is made and kept for it. Excludes instanceProfile."),
        ),
        (
            "instanceProfile",
            text().rule(not_empty()).about("An instance profile of your own, used as it is. Excludes role."),
        ),
        ("tags", tags()),
        (
            "kubelet",
            open_object().about(
                "Settings of the kubelet: any field of KubeletConfiguration \
                 (kubelet.config.k8s.io/v1beta1). Checked by the operator.",
            ),
        ),
        ("blockDeviceMappings", block_device_mappings()),
        (
            "instanceStorePolicy",
            one_of(&["RAID0"])
                .about("RAID0 joins local NVMe disks into the node's ephemeral storage. Unset ignores them."),
        ),
        ("networkInterfaces", network_interfaces()),
        ("detailedMonitoring", switch("Whether CloudWatch gets metrics every minute.")),
        ("metadataOptions", metadata_options(1)),
        ("connectionTracking", connection_tracking()),
        ("context", text().about("Passed to EC2 as it is, in the Context of the fleet request.")),
        (
            "cpuOptions",
            object([(
                "nestedVirtualization",
                one_of(ON_OFF).about("Whether virtual machines can run inside the instance."),
            )])
            .about("Settings of the processor."),
        ),
    ])
    .require(["amiSelectorTerms", "securityGroupSelectorTerms", "subnetSelectorTerms"])
    .about("How instances are made.")
    .rule(Rule::new(
        "has(self.role) != has(self.instanceProfile)",
        "set exactly one of role and instanceProfile",
        |spec| spec.has("role") != spec.has("instanceProfile"),
    ))
    .rules(AmiFamily::ALIASES.iter().map(|(alias, family)| family_fits_alias(alias, family)))
    .rule(Rule::new(
        "has(self.amiFamily) || self.amiSelectorTerms.exists(t, has(t.alias))",
        "without an alias among the AMI terms, amiFamily must be set",
        |spec| spec.has("amiFamily") || spec.at("amiSelectorTerms").items().iter().any(|term| term.has("alias")),
    ))
}

fn family_fits_alias(alias: &'static str, family: &'static str) -> Rule {
    Rule::new(
        format!(
            "has(self.amiFamily) \
             && self.amiSelectorTerms.exists(t, has(t.alias) && t.alias.find('^[^@]+') == '{alias}') \
             ? self.amiFamily in ['{family}', 'Custom'] : true"
        ),
        format!("with an alias of {alias}, amiFamily is {family}, Custom, or left out"),
        move |spec| {
            let uses_alias =
                |term: &serde_json::Value| term.has("alias") && alias_family(term.at("alias").text()) == alias;
            !spec.has("amiFamily")
                || !spec.at("amiSelectorTerms").items().iter().any(uses_alias)
                || [family, "Custom"].contains(&spec.at("amiFamily").text())
        },
    )
}

fn placement_group_selector() -> Schema {
    object([
        ("name", text().min_length(1).about("Name of the placement group.")),
        ("id", text().pattern(patterns::PLACEMENT_GROUP_ID).about("ID of the placement group.")),
    ])
    .about("The placement group that every instance joins.")
    .rule(Rule::new("has(self.name) || has(self.id)", "set name or id", |group| group.has("name") || group.has("id")))
    .rule(Rule::new("!(has(self.name) && has(self.id))", "set name or id, not both", |group| {
        !(group.has("name") && group.has("id"))
    }))
}

/// Tags that the operator writes itself, so users may not.
const RESERVED_TAGS: &[&str] =
    &["eks:eks-cluster-name", "karpenter.sh/nodepool", "karpenter.sh/nodeclaim", "karpenter.k8s.aws/ec2nodeclass"];

pub(crate) fn tags() -> Schema {
    let reserved = |key: &'static str| {
        Rule::new(
            format!("self.all(k, k != '{key}')"),
            format!("the tag {key} is written by the operator; leave it out"),
            move |tags: &serde_json::Value| tags.keys().all(|tag| tag != key),
        )
    };
    map_of(text())
        .about("Tags for everything that is created: instances, volumes, interfaces, launch templates.")
        .rule(Rule::new("self.all(k, k != '')", "a tag's key may not be empty", |tags| {
            tags.keys().all(|key| !key.is_empty())
        }))
        .rule(Rule::new(
            "self.all(k, !k.startsWith('kubernetes.io/cluster'))",
            "tags that start with kubernetes.io/cluster are written by the operator; leave them out",
            |tags| tags.keys().all(|key| !key.starts_with("kubernetes.io/cluster")),
        ))
        .rules(RESERVED_TAGS.iter().map(|key| reserved(key)))
}

pub(crate) fn block_device_mappings() -> Schema {
    list_of(object([
        ("deviceName", text().about("Name of the device, such as /dev/xvda.")),
        ("ebs", ebs()),
        ("rootVolume", boolean().about("Marks the volume that holds the kubelet's files; at most one.")),
    ]))
    .merge(Merge::AtomicList)
    .max_items(50)
    .about("Volumes of the instances. Unset takes those of the family.")
    .rule(Rule::new(
        "self.filter(m, has(m.rootVolume) && m.rootVolume).size() <= 1",
        "at most one volume can be the root volume",
        |list| list.items().iter().filter(|mapping| mapping.at("rootVolume") == true).count() <= 1,
    ))
}

fn ebs() -> Schema {
    object([
        ("deleteOnTermination", switch("Whether the volume goes with the instance.")),
        ("encrypted", switch("Whether the volume is encrypted.")),
        ("iops", int64().about("I/O operations per second, for the types that let you choose.")),
        ("kmsKeyID", text().about("The KMS key to encrypt with.")),
        ("snapshotID", text().about("The snapshot to start from.")),
        ("throughput", int64().about("MiB per second, for gp3.")),
        (
            "volumeInitializationRate",
            int32()
                .range(100, 300)
                .about("MiB per second at which the snapshot is loaded ahead of use. Goes with snapshotID."),
        ),
        ("volumeSize", text().pattern(patterns::VOLUME_SIZE).about("Size with a unit of G, Gi, T or Ti.")),
        ("volumeType", one_of(&["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"]).about("Type of the volume.")),
    ])
    .about("An EBS volume.")
    .rule(Rule::new("has(self.snapshotID) || has(self.volumeSize)", "set snapshotID or volumeSize", |ebs| {
        ebs.has("snapshotID") || ebs.has("volumeSize")
    }))
    .rule(Rule::new(
        "!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')",
        "volumeInitializationRate needs a snapshotID",
        |ebs| !ebs.has("volumeInitializationRate") || !ebs.at("snapshotID").text().is_empty(),
    ))
}

fn network_interfaces() -> Schema {
    list_of(
        object([
            ("networkCardIndex", int32().at_least(0).about("The network card.")),
            ("deviceIndex", int32().at_least(0).about("The place on the card.")),
            ("interfaceType", one_of(&["interface", "efa-only"]).about("An ordinary interface, or one for EFA alone.")),
        ])
        .require(["networkCardIndex", "deviceIndex", "interfaceType"]),
    )
    .merge(Merge::AtomicList)
    .max_items(150)
    .about("The network interfaces of the instances, where the default layout will not do.")
    .rule(Rule::new(
        "self.size() == 0 || self.exists(n, n.networkCardIndex == 0 && n.deviceIndex == 0 && n.interfaceType == \
         'interface')",
        "card 0, device 0 must be there, as type interface",
        |list| {
            let is_primary = |n: &serde_json::Value| {
                n.at("networkCardIndex") == 0 && n.at("deviceIndex") == 0 && n.at("interfaceType") == "interface"
            };
            list.items().is_empty() || list.items().iter().any(is_primary)
        },
    ))
    .rule(Rule::new(
        "self.all(n, self.exists_one(m, m.networkCardIndex == n.networkCardIndex && m.deviceIndex == n.deviceIndex))",
        "each pair of card and device may be used once",
        |list| {
            let place = |n: &serde_json::Value| (n.at("networkCardIndex").as_i64(), n.at("deviceIndex").as_i64());
            all_different(list.items().iter().map(place))
        },
    ))
    .rule(Rule::new(
        "self.all(n, n.interfaceType != 'efa-only' \
         || self.exists_one(m, m.interfaceType == 'efa-only' && m.networkCardIndex == n.networkCardIndex))",
        "each card can have one efa-only interface",
        |list| {
            let efa_only = list.items().iter().filter(|n| n.at("interfaceType") == "efa-only");
            all_different(efa_only.map(|n| n.at("networkCardIndex").as_i64()))
        },
    ))
}

fn all_different<T: Ord>(mut items: impl Iterator<Item = T>) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    items.all(|item| seen.insert(item))
}

/// `hop_limit` is what answers travel unless said otherwise, which differs between the generations.
pub(crate) fn metadata_options(hop_limit: u8) -> Schema {
    object([
        (
            "httpEndpoint",
            one_of(ON_OFF).default(json!("enabled")).about("Whether the metadata service can be reached."),
        ),
        ("httpProtocolIPv6", one_of(ON_OFF).default(json!("disabled")).about("Whether it can be reached over IPv6.")),
        (
            "httpPutResponseHopLimit",
            int64()
                .range(1, 64)
                .default(json!(hop_limit))
                .about("How many hops an answer may travel; 1 keeps it from pods without host network."),
        ),
        (
            "httpTokens",
            one_of(&["required", "optional"])
                .default(json!("required"))
                .about("Whether requests must carry a session token."),
        ),
    ])
    .default(json!({
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "disabled",
        "httpPutResponseHopLimit": hop_limit,
        "httpTokens": "required",
    }))
    .about("The instance metadata service.")
}

fn connection_tracking() -> Schema {
    object([
        ("tcpEstablishedTimeout", int32().range(60, 432_000).about("Seconds an idle TCP connection is remembered.")),
        ("udpStreamTimeout", int32().range(60, 180).about("Seconds an idle UDP stream is remembered.")),
        ("udpTimeout", int32().range(30, 60).about("Seconds a single UDP exchange is remembered.")),
    ])
    .about("How long security groups remember idle connections. Only Nitro instances can be told.")
    .rule(Rule::new(
        "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
        "set at least one of the three timeouts",
        |tracking| ["tcpEstablishedTimeout", "udpStreamTimeout", "udpTimeout"].iter().any(|name| tracking.has(name)),
    ))
}

pub(crate) fn status() -> Schema {
    object([
        (
            "subnets",
            list_of(
                object([
                    ("id", text().about("ID of the subnet.")),
                    ("zone", text().about("Its zone.")),
                    ("zoneID", text().about("The zone's ID, the same in every account.")),
                ])
                .require(["id", "zone"]),
            )
            .merge(Merge::AtomicList)
            .about("The subnets found, roomiest first."),
        ),
        (
            "securityGroups",
            list_of(
                object([("id", text().about("ID of the group.")), ("name", text().about("Its name."))]).require(["id"]),
            )
            .merge(Merge::AtomicList)
            .about("The security groups found."),
        ),
        ("amis", ami_status()),
        ("capacityReservations", reservation_status()),
        ("instanceProfile", text().about("The instance profile that launches use.")),
        ("conditions", conditions()),
    ])
    .about("What was found in the account.")
}

fn ami_status() -> Schema {
    list_of(
        object([
            ("id", text().about("ID of the image.")),
            ("name", text().about("Its name.")),
            ("deprecated", boolean().about("Whether its maker has given it up.")),
            (
                "requirements",
                list_of(
                    object([
                        ("key", text().about("The label key.")),
                        ("operator", text().about("How the label's value relates to `values`.")),
                        ("values", list_of(text()).merge(Merge::AtomicList).about("What the label is compared with.")),
                    ])
                    .require(["key", "operator"]),
                )
                .merge(Merge::AtomicList)
                .about("Which instances it fits."),
            ),
        ])
        .require(["id", "requirements"]),
    )
    .merge(Merge::AtomicList)
    .about("The images found, newest first.")
}

fn reservation_status() -> Schema {
    list_of(
        object([
            ("availabilityZone", text().about("Where it is.")),
            ("endTime", instant().about("When it ends, if it does.")),
            ("id", text().pattern(patterns::CAPACITY_RESERVATION_ID).about("ID of the reservation.")),
            (
                "instanceMatchCriteria",
                one_of(&["open", "targeted"]).about("Whether any fitting instance takes from it."),
            ),
            ("instanceType", text().about("What it holds.")),
            ("ownerID", text().pattern(patterns::ACCOUNT_ID).about("Whose it is.")),
            (
                "reservationType",
                one_of(&["default", "capacity-block"])
                    .default(json!("default"))
                    .about("An ordinary reservation, or a capacity block."),
            ),
            ("interruptible", boolean().about("Whether it can be called back.")),
            ("state", one_of(&["active", "expiring"]).default(json!("active")).about("Whether it is about to end.")),
        ])
        .require(["availabilityZone", "id", "instanceMatchCriteria", "instanceType", "ownerID"]),
    )
    .merge(Merge::AtomicList)
    .about("The capacity reservations found.")
}
