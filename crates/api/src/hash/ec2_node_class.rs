//! The hash of an EC2NodeClass.

use serde_json::Value;

use super::{OfStruct, of_bool, of_i32, of_i64, of_list, of_map, of_text};
use crate::objects::{
    BlockDevice, BlockDeviceMapping, ConnectionTracking, CpuOptions, Ec2NodeClass, Ec2NodeClassSpec, Kubelet,
    MetadataOptions, NetworkInterface, PlacementGroupSelector,
};

/// Bumped whenever the algorithm or the hashed fields change.
pub const VERSION: &str = "v6";

impl Ec2NodeClass {
    /// What `karpenter.k8s.aws/ec2nodeclass-hash` should say: a decimal number over everything that only a new instance
    /// can take up.
    ///
    /// `ca_bundle` is the cluster's certificate bundle in base64, which goes into the bootstrap data. What selectors
    /// find is compared apart. Defaults must be filled in before.
    pub fn hash(&self, ca_bundle: Option<&str>) -> String {
        let family = self.resolved_ami_family();
        let hash = of_spec(&self.spec)
            ^ of_text(family.as_str())
            ^ of_text(ca_bundle.unwrap_or_default())
            ^ of_text(&kubelet_json(self.spec.kubelet.as_ref()));
        hash.to_string()
    }
}

fn of_spec(spec: &Ec2NodeClassSpec) -> u64 {
    OfStruct::named("EC2NodeClassSpec")
        .field("PlacementGroupSelector", spec.placement_group_selector.as_ref().map(of_placement_group))
        .field("AssociatePublicIPAddress", spec.associate_public_ip_address.map(of_bool))
        .text("UserData", spec.user_data.as_ref())
        .plain_text("Role", spec.role.as_deref().unwrap_or_default())
        .text("InstanceProfile", spec.instance_profile.as_ref())
        .field("Tags", spec.tags.as_ref().map(of_map))
        .field(
            "BlockDeviceMappings",
            spec.block_device_mappings.as_ref().map(|list| of_list(list.iter().map(of_block_device_mapping))),
        )
        .text("InstanceStorePolicy", spec.instance_store_policy.as_ref())
        .field(
            "NetworkInterfaces",
            spec.network_interfaces.as_ref().map(|list| of_list(list.iter().map(of_network_interface))),
        )
        .field("DetailedMonitoring", spec.detailed_monitoring.map(of_bool))
        .field("MetadataOptions", spec.metadata_options.as_ref().map(of_metadata_options))
        .field("ConnectionTracking", spec.connection_tracking.as_ref().map(of_connection_tracking))
        .text("Context", spec.context.as_ref())
        .field("CPUOptions", spec.cpu_options.as_ref().map(of_cpu_options))
        .0
}

fn of_placement_group(group: &PlacementGroupSelector) -> u64 {
    OfStruct::named("PlacementGroupSelector").text("Name", group.name.as_ref()).text("ID", group.id.as_ref()).0
}

fn of_metadata_options(options: &MetadataOptions) -> u64 {
    OfStruct::named("MetadataOptions")
        .text("HTTPEndpoint", options.http_endpoint.as_ref())
        .text("HTTPProtocolIPv6", options.http_protocol_ipv6.as_ref())
        .field("HTTPPutResponseHopLimit", options.http_put_response_hop_limit.map(of_i64))
        .text("HTTPTokens", options.http_tokens.as_ref())
        .0
}

fn of_block_device_mapping(mapping: &BlockDeviceMapping) -> u64 {
    OfStruct::named("BlockDeviceMapping")
        .text("DeviceName", mapping.device_name.as_ref())
        .field("EBS", mapping.ebs.as_ref().map(of_block_device))
        .field("RootVolume", mapping.root_volume.filter(|root| *root).map(of_bool))
        .0
}

fn of_block_device(ebs: &BlockDevice) -> u64 {
    OfStruct::named("BlockDevice")
        .field("DeleteOnTermination", ebs.delete_on_termination.map(of_bool))
        .field("Encrypted", ebs.encrypted.map(of_bool))
        .field("IOPS", ebs.iops.map(of_i64))
        .text("KMSKeyID", ebs.kms_key_id.as_ref())
        .text("SnapshotID", ebs.snapshot_id.as_ref())
        .field("Throughput", ebs.throughput.map(of_i64))
        .field("VolumeInitializationRate", ebs.volume_initialization_rate.map(of_i32))
        .field("VolumeSize", ebs.volume_size.as_ref().map(|size| of_text(&canonical_size(&size.0))))
        .text("VolumeType", ebs.volume_type.as_ref())
        .0
}

/// The indices are plain numbers, so card 0 and device 0 leave no trace.
fn of_network_interface(interface: &NetworkInterface) -> u64 {
    let of_index = |index: i32| (index != 0).then(|| of_i32(index));
    OfStruct::named("NetworkInterface")
        .field("NetworkCardIndex", of_index(interface.network_card_index))
        .field("DeviceIndex", of_index(interface.device_index))
        .plain_text("InterfaceType", &interface.interface_type)
        .0
}

fn of_connection_tracking(tracking: &ConnectionTracking) -> u64 {
    OfStruct::named("ConnectionTracking")
        .field("TCPEstablishedTimeout", tracking.tcp_established_timeout.map(of_i32))
        .field("UDPStreamTimeout", tracking.udp_stream_timeout.map(of_i32))
        .field("UDPTimeout", tracking.udp_timeout.map(of_i32))
        .0
}

fn of_cpu_options(options: &CpuOptions) -> u64 {
    OfStruct::named("CPUOptions").text("NestedVirtualization", options.nested_virtualization.as_ref()).0
}

/// The shortest way to write a volume size with the suffixes of its family: `1024Gi` is `1Ti`, `2000G` is `2T`.
///
/// Only whole sizes in G, Gi, T and Ti get past the schema; anything else is taken as written.
fn canonical_size(text: &str) -> String {
    let suffix_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(suffix_at);
    let (base, suffixes): (u64, &[&str]) = if suffix.ends_with('i') {
        (1024, &["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
    } else {
        (1000, &["", "k", "M", "G", "T", "P", "E"])
    };
    let (Ok(mut number), Some(mut step)) = (number.parse::<u64>(), suffixes.iter().position(|s| *s == suffix)) else {
        return text.to_owned();
    };
    while number != 0 && number.is_multiple_of(base) && step + 1 < suffixes.len() {
        number /= base;
        step += 1;
    }
    format!("{number}{}", suffixes[step])
}

/// The kubelet settings as Go writes JSON: compact, keys sorted, `<`, `>` and `&` escaped; `null` for none.
fn kubelet_json(kubelet: Option<&Kubelet>) -> String {
    let Some(kubelet) = kubelet.filter(|kubelet| !kubelet.is_empty()) else { return "null".to_owned() };
    let mut json = String::new();
    write_object(kubelet.iter(), &mut json);
    json
}

/// `serde_json` may be built to keep the order it read; an API server hands out sorted objects, so we sort at every
/// depth.
fn write_json(value: &Value, json: &mut String) {
    match value {
        Value::Object(fields) => {
            let sorted: std::collections::BTreeMap<_, _> = fields.iter().collect();
            write_object(sorted.into_iter(), json);
        }
        Value::Array(items) => {
            json.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    json.push(',');
                }
                write_json(item, json);
            }
            json.push(']');
        }
        scalar => json.push_str(&escape_for_html(&scalar.to_string())),
    }
}

fn write_object<'a>(fields: impl Iterator<Item = (&'a String, &'a Value)>, json: &mut String) {
    json.push('{');
    for (i, (key, value)) in fields.enumerate() {
        if i > 0 {
            json.push(',');
        }
        json.push_str(&escape_for_html(&Value::String(key.clone()).to_string()));
        json.push(':');
        write_json(value, json);
    }
    json.push('}');
}

fn escape_for_html(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn base() -> Value {
        json!({
            "role": "role-1",
            "tags": {"keyTag-1": "valueTag-1", "keyTag-2": "valueTag-2"},
            "context": "fake-context",
            "detailedMonitoring": false,
            "associatePublicIPAddress": false,
            "metadataOptions": {"httpEndpoint": "disabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1, "httpTokens": "optional"},
            "blockDeviceMappings": [
                {"deviceName": "map-device-1", "ebs": {
                    "deleteOnTermination": false, "encrypted": false, "iops": 0, "kmsKeyID": "fakeKMSKeyID", "snapshotID": "fakeSnapshot",
                    "throughput": 0, "volumeSize": "2G", "volumeType": "standard"}},
                {"deviceName": "map-device-2"},
            ],
            "userData": "userdata-test-1",
        })
    }

    fn hash(spec: Value) -> String {
        let class: Ec2NodeClass = serde_json::from_value(json!({ "spec": spec })).unwrap();
        class.hash(Some("test-ca-bundle"))
    }

    #[test]
    fn the_published_vectors_come_out() {
        let cases: Vec<(&str, Value, &str)> = vec![
            ("", Value::Null, "11148166120438674859"),
            ("/userData", json!("userdata-test-2"), "11774429238106843388"),
            ("/tags/keyTag-test-3", json!("valueTag-test-3"), "9327338697296909506"),
            ("/context", json!("context-2"), "2279761750428738028"),
            ("/detailedMonitoring", json!(true), "1936848126751988570"),
            ("/instanceStorePolicy", json!("RAID0"), "16697988646989909967"),
            ("/connectionTracking", json!({"tcpEstablishedTimeout": 300}), "1619669030802245540"),
            ("/cpuOptions", json!({"nestedVirtualization": "enabled"}), "6157846767212910604"),
            ("/blockDeviceMappings/0/ebs/volumeSize", json!("10G"), "10372902467896351912"),
        ];
        for (pointer, value, expected) in cases {
            let mut spec = base();
            if let Some((parent, name)) = pointer.rsplit_once('/') {
                spec.pointer_mut(parent).unwrap()[name] = value;
            }
            assert_eq!(hash(spec), expected, "{pointer}");
        }
        let mut spec = base();
        spec.as_object_mut().unwrap().remove("role");
        spec["instanceProfile"] = json!("test-instance-profile");
        assert_eq!(hash(spec), "10323991363677716244");
    }

    #[test]
    fn what_selectors_find_is_not_hashed() {
        let mut spec = base();
        spec["subnetSelectorTerms"] = json!([{"id": "subnet-1"}]);
        spec["securityGroupSelectorTerms"] = json!([{"id": "sg-1"}]);
        spec["amiSelectorTerms"] = json!([{"id": "ami-1"}]);
        spec["capacityReservationSelectorTerms"] = json!([{"id": "cr-1"}]);
        spec["ipPrefixCount"] = json!(3);
        assert_eq!(hash(spec), hash(base()));
    }

    #[test]
    fn the_family_counts_however_it_was_said() {
        let mut by_alias = base();
        by_alias["amiSelectorTerms"] = json!([{"alias": "al2023@latest"}]);
        let mut by_name = base();
        by_name["amiFamily"] = json!("AL2023");
        assert_eq!(hash(by_alias.clone()), hash(by_name));
        assert_ne!(hash(by_alias), hash(base()));
    }

    #[test]
    fn sizes_are_hashed_in_their_shortest_form() {
        for (text, expected) in [
            ("20Gi", "20Gi"),
            ("1024Gi", "1Ti"),
            ("1536Gi", "1536Gi"),
            ("2048Gi", "2Ti"),
            ("2000G", "2T"),
            ("2048G", "2048G"),
            ("9Ti", "9Ti"),
            ("Ti", "Ti"),
        ] {
            assert_eq!(canonical_size(text), expected, "{text}");
        }
    }

    #[test]
    fn kubelet_settings_are_written_as_go_writes_them() {
        let kubelet: Kubelet = serde_json::from_value(json!({
            "maxPods": "vcpus < 4 ? 10 : 20", "clusterDNS": ["10.0.0.1"], "evictionHard": {"memory.available": "5%", "a": "1"}, "cpuCFSQuota": true,
        }))
        .unwrap();
        assert_eq!(
            kubelet_json(Some(&kubelet)),
            r#"{"clusterDNS":["10.0.0.1"],"cpuCFSQuota":true,"evictionHard":{"a":"1","memory.available":"5%"},"maxPods":"vcpus \u003c 4 ? 10 : 20"}"#
        );
        assert_eq!(kubelet_json(Some(&Kubelet::new())), "null");
        assert_eq!(kubelet_json(None), "null");
    }
}
