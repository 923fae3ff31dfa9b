//! The schema of `karpenter.k8s.aws/v1alpha1` AWSNodeTemplate: types, and little else, as for the Provisioner.

use super::v1alpha5::conditions;
use crate::schema::parts::switch;
use crate::schema::{Schema, int_or_text, int64, list_of, map_of, object, patterns, text};

pub(super) fn aws_node_template() -> Schema {
    object([("spec", spec()), ("status", status())])
        .about("An AWSNodeTemplate (of before EC2NodeClasses) says how AWS makes the nodes of Provisioners.")
}

fn spec() -> Schema {
    object([
        // The inline form carries its own type; somebody may have copied it from there.
        ("apiVersion", text().about("Not used.")),
        ("kind", text().about("Not used.")),
        ("amiFamily", text().about("The images to start from, and the format of their bootstrap data.")),
        ("amiSelector", selector("Images to start from, by tag or by aws::ids, aws::name and aws::owners.")),
        ("subnetSelector", selector("Subnets to launch into, by tag or by aws-ids.")),
        ("securityGroupSelector", selector("Security groups to attach, by tag or by aws-ids.")),
        ("instanceProfile", text().about("The instance profile of the nodes. Unset takes the installation's default.")),
        ("userData", text().about("Given to the instance at boot, merged with what the family needs.")),
        ("context", text().about("Passed to EC2 as it is, in the Context of the fleet request.")),
        ("tags", map_of(text()).about("Tags for everything that is created.")),
        ("launchTemplate", text().about("A launch template of your own. It has no equivalent any more.")),
        ("metadataOptions", metadata_options()),
        ("blockDeviceMappings", block_device_mappings()),
        ("detailedMonitoring", switch("Whether CloudWatch gets metrics every minute.")),
    ])
    .about("How instances are made.")
}

fn selector(about: &'static str) -> Schema {
    map_of(text()).about(about)
}

fn metadata_options() -> Schema {
    object([
        ("httpEndpoint", text().about("Whether the metadata service can be reached.")),
        ("httpProtocolIPv6", text().about("Whether it can be reached over IPv6.")),
        ("httpPutResponseHopLimit", int64().about("How many hops an answer may travel.")),
        ("httpTokens", text().about("Whether requests must carry a session token.")),
    ])
    .about("Settings of the metadata service.")
}

fn block_device_mappings() -> Schema {
    let ebs = object([
        ("deleteOnTermination", switch("Whether the volume goes with the instance.")),
        ("encrypted", switch("Whether the volume is encrypted.")),
        ("iops", int64().about("I/O operations per second, for the types that let you choose.")),
        ("kmsKeyID", text().about("The KMS key to encrypt with.")),
        ("snapshotID", text().about("The snapshot to start from.")),
        ("throughput", int64().about("MiB per second, for gp3.")),
        ("volumeSize", int_or_text().pattern(patterns::QUANTITY).about("Size of the volume.")),
        ("volumeType", text().about("Type of the volume.")),
    ])
    .about("An EBS volume.");
    list_of(object([("deviceName", text().about("Name of the device, such as /dev/xvda.")), ("ebs", ebs)]))
        .about("Volumes of the instances. Unset takes those of the family.")
}

fn status() -> Schema {
    let requirement = object([
        ("key", text().about("The label key.")),
        ("operator", text().about("How the label's value relates to `values`.")),
        ("values", list_of(text()).about("What the label is compared with.")),
    ])
    .require(["key", "operator"]);
    object([
        (
            "subnets",
            list_of(
                object([("id", text().about("ID of the subnet.")), ("zone", text().about("Its zone."))])
                    .require(["id", "zone"]),
            )
            .about("The subnets found."),
        ),
        (
            "securityGroups",
            list_of(
                object([("id", text().about("ID of the group.")), ("name", text().about("Its name."))]).require(["id"]),
            )
            .about("The security groups found."),
        ),
        (
            "amis",
            list_of(
                object([
                    ("id", text().about("ID of the image.")),
                    ("name", text().about("Its name.")),
                    ("requirements", list_of(requirement).about("Which instances it fits.")),
                ])
                .require(["id", "requirements"]),
            )
            .about("The images found."),
        ),
        ("conditions", conditions()),
    ])
    .about("What was found in the account.")
}
