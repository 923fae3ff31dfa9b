//! The schema of EC2NodeClass v1beta1.

use super::parts::conditions;
use crate::schema::ec2_node_class::{block_device_mappings, metadata_options, status as status_of_v1, tags};
use crate::schema::ec2_terms::{each_has, not_all_combine, security_groups, subnets, term_tags, terms};
use crate::schema::parts::{not_empty, switch};
use crate::schema::rule::Look as _;
use crate::schema::{Rule, Schema, object, one_of, patterns, text};

/// The family that v1 has no more.
pub const UBUNTU: &str = "Ubuntu";

/// Windows2025 is younger than v1beta1; it is here so that a class of v1 can be read and written back.
pub const AMI_FAMILIES: &[&str] =
    &["AL2", "AL2023", "Bottlerocket", UBUNTU, "Custom", "Windows2019", "Windows2022", "Windows2025"];

pub(super) fn schema() -> Schema {
    object([("spec", spec()), ("status", status())])
        .require(["spec"])
        .about("An EC2NodeClass says where, from which image and with which settings EC2 instances are launched.")
}

fn spec() -> Schema {
    object([
        ("subnetSelectorTerms", subnets()),
        ("securityGroupSelectorTerms", security_groups()),
        ("associatePublicIPAddress", switch("Whether instances get a public address. Unset leaves it to the subnet.")),
        ("amiSelectorTerms", amis()),
        (
            "amiFamily",
            one_of(AMI_FAMILIES)
                .about("Format of the bootstrap data, default volumes, and the images where no term says."),
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
        (
            "tags",
            tags().rule(Rule::new(
                "self.all(k, k != 'karpenter.sh/managed-by')",
                "the tag karpenter.sh/managed-by is written by the operator; leave it out",
                |tags| !tags.has("karpenter.sh/managed-by"),
            )),
        ),
        ("blockDeviceMappings", block_device_mappings()),
        (
            "instanceStorePolicy",
            one_of(&["RAID0"])
                .about("RAID0 joins local NVMe disks into the node's ephemeral storage. Unset ignores them."),
        ),
        ("detailedMonitoring", switch("Whether CloudWatch gets metrics every minute.")),
        ("metadataOptions", metadata_options(2)),
        ("context", text().about("Passed to EC2 as it is, in the Context of the fleet request.")),
    ])
    .require(["amiFamily", "securityGroupSelectorTerms", "subnetSelectorTerms"])
    .about("How instances are made.")
    .rule(Rule::new(
        "has(self.role) != has(self.instanceProfile)",
        "set exactly one of role and instanceProfile",
        |spec| spec.has("role") != spec.has("instanceProfile"),
    ))
    .rule(Rule::new(
        "self.amiFamily != 'Custom' || (has(self.amiSelectorTerms) && self.amiSelectorTerms.size() != 0)",
        "amiFamily Custom needs amiSelectorTerms",
        |spec| spec.at("amiFamily") != "Custom" || !spec.at("amiSelectorTerms").items().is_empty(),
    ))
}

fn amis() -> Schema {
    terms(object([
        ("tags", term_tags()),
        ("id", text().pattern(patterns::AMI_ID).about("ID of an image.")),
        ("name", text().about("Name of an image (not its Name tag); wildcards work.")),
        ("owner", text().about("Who owns the image: an account, `self`, `amazon` or `aws-marketplace`.")),
    ]))
    .about("Images to start from: those that any term selects. Unset takes the newest that AWS makes for the family.")
    .rule(each_has(
        "self.all(t, has(t.tags) || has(t.id) || has(t.name))",
        "every term needs tags, id or name",
        &["tags", "id", "name"],
    ))
    .rule(not_all_combine(
        "!self.all(t, has(t.id) && (has(t.tags) || has(t.name) || has(t.owner)))",
        "one of id, name or tags per term: an id stands alone (and an empty list is better left out)",
        "id",
        &["tags", "name", "owner"],
    ))
}

fn status() -> Schema {
    status_of_v1().without("capacityReservations").replacing("conditions", conditions())
}
