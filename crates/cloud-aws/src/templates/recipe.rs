//! Everything that a template says, before it is said: one name for one content.

use super::groups::{Reservation, Shared};
use super::{NAME_PREFIX, TemplateWants, class_name};
use crate::bootstrap::{self, Bootstrap};
use crate::settings::Settings;
use crate::supply::ResolvedKubelet;
use crate::wire::{PlacementGroup, Tags};
use kerf_api::{BlockDeviceMapping, ConnectionTracking, Kubelet, MetadataOptions, NetworkInterface};
use kerf_api::{hash::fnv1, labels as keys};
use kerf_cloud::LaunchOrder;
use kerf_cloud::aws::AmiFamily;
use kerf_model::{CapacityType, Requirement, Taint};
use serde_json::json;
use std::collections::BTreeMap;

/// A pod that wants to run enclaves asks for this.
const ENCLAVE: &str = "eks.amazonaws.com/nitro-sandbox";

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Recipe {
    pub(super) class_name: String,
    pub(super) family: AmiFamily,
    pub(super) image_id: String,
    pub(super) instance_profile: Option<String>,
    pub(super) security_groups: Vec<String>,
    pub(super) tags: Tags,
    pub(super) tags_spot_requests: bool,
    pub(super) block_devices: Vec<BlockDeviceMapping>,
    pub(super) metadata: MetadataOptions,
    pub(super) detailed_monitoring: Option<bool>,
    pub(super) nested_virtualization: Option<String>,
    pub(super) interfaces: Vec<NetworkInterface>,
    pub(super) n_efa: i32,
    pub(super) public_address: Option<bool>,
    pub(super) ip_prefix_count: Option<i32>,
    pub(super) is_ipv6: bool,
    pub(super) connection_tracking: ConnectionTracking,
    pub(super) has_enclave: bool,
    pub(super) capacity_type: CapacityType,
    pub(super) reservation: Option<Reservation>,
    pub(super) tenancy: String,
    pub(super) placement_group_id: Option<String>,
    pub(super) partition: Option<i32>,
    // What user data is made of.
    endpoint: String,
    service_cidr: Option<String>,
    ca_bundle: String,
    dns: Option<String>,
    custom: Option<String>,
    kubelet: Kubelet,
    resolved: ResolvedKubelet,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
    instance_store_raid: bool,
    bottlerocket_version: Option<String>,
}

impl Recipe {
    pub(super) fn new(wants: &TemplateWants<'_>, group: &Shared, leaves_out_spot_tags: bool) -> Self {
        let (spec, order) = (&wants.class.spec, wants.order);
        let status = wants.class.status.clone().unwrap_or_default();
        let family = AmiFamily::parse(wants.class.resolved_ami_family().as_str());
        let is_bottlerocket = family == AmiFamily::Bottlerocket;
        Self {
            class_name: class_name(wants.class),
            family,
            image_id: group.image_id.clone(),
            instance_profile: status.instance_profile,
            security_groups: status.security_groups.into_iter().map(|group| group.id).collect(),
            tags: wants.tags.clone(),
            tags_spot_requests: wants.capacity_type == CapacityType::Spot && !leaves_out_spot_tags,
            block_devices: spec.block_device_mappings.clone().unwrap_or_default(),
            metadata: with_defaults(spec.metadata_options.clone().unwrap_or_default()),
            detailed_monitoring: spec.detailed_monitoring,
            nested_virtualization: spec.cpu_options.clone().and_then(|options| options.nested_virtualization),
            interfaces: spec.network_interfaces.clone().unwrap_or_default(),
            n_efa: group.n_efa,
            public_address: spec.associate_public_ip_address,
            ip_prefix_count: spec.ip_prefix_count,
            is_ipv6: wants.cluster.is_ipv6(),
            connection_tracking: spec.connection_tracking.clone().unwrap_or_default(),
            has_enclave: !order.requests.get(ENCLAVE).is_zero(),
            capacity_type: wants.capacity_type,
            reservation: group.reservation.clone(),
            tenancy: wants.tenancy.to_owned(),
            placement_group_id: wants.placement_group.map(|placement| placement.id.clone()),
            partition: partition(wants.order, wants.placement_group),
            endpoint: wants.cluster.endpoint.clone(),
            service_cidr: wants.cluster.service_cidr.clone(),
            ca_bundle: wants.cluster.ca_bundle.clone(),
            dns: wants.cluster.dns.map(|dns| dns.to_string()),
            custom: spec.user_data.clone(),
            kubelet: spec.kubelet.clone().unwrap_or_default(),
            resolved: group.kubelet.clone(),
            labels: bootstrap::node_labels(&order.labels, wants.capacity_type),
            taints: bootstrap::node_taints(&order.taints, &order.startup_taints),
            instance_store_raid: spec.instance_store_policy.as_deref() == Some("RAID0"),
            bottlerocket_version: bootstrap::bottlerocket_version_of(wants.class).filter(|_| is_bottlerocket),
        }
    }

    pub(super) fn bootstrap(&self, settings: &Settings, wants: &TemplateWants<'_>) -> Bootstrap {
        Bootstrap {
            family: self.family,
            cluster_name: settings.cluster_name.clone(),
            cluster: wants.cluster.clone(),
            custom: self.custom.clone(),
            kubelet: self.kubelet.clone(),
            resolved: self.resolved.clone(),
            labels: self.labels.clone(),
            taints: self.taints.clone(),
            instance_store_raid: self.instance_store_raid,
            bottlerocket_version: self.bottlerocket_version.clone(),
        }
    }

    /// The same for equal contents, whichever operator makes it. Instance types, zones and selector terms are no part of it:
    /// a template does not say them.
    pub(super) fn name(&self, settings: &Settings) -> String {
        let taints: Vec<String> = self.taints.iter().map(ToString::to_string).collect();
        let reservation =
            self.reservation.as_ref().map(|it| (it.id.to_string(), it.kind.to_string(), it.is_interruptible));
        let content = json!({
            "cluster": [settings.cluster_name, self.endpoint, self.service_cidr, self.ca_bundle, self.dns],
            "class": self.class_name,
            "family": format!("{:?}", self.family),
            "image": self.image_id,
            "profile": self.instance_profile,
            "securityGroups": self.security_groups,
            "tags": self.tags,
            "tagsSpotRequests": self.tags_spot_requests,
            "blockDevices": self.block_devices,
            "metadata": self.metadata,
            "monitoring": self.detailed_monitoring,
            "nestedVirtualization": self.nested_virtualization,
            "interfaces": self.interfaces,
            "efa": self.n_efa,
            "publicAddress": self.public_address,
            "prefixes": self.ip_prefix_count,
            "connectionTracking": self.connection_tracking,
            "enclave": self.has_enclave,
            "capacityType": self.capacity_type.as_str(),
            "reservation": reservation,
            "reservedCapacity": settings.has_reserved_capacity,
            "tenancy": self.tenancy,
            "placement": [json!(self.placement_group_id), json!(self.partition)],
            "userData": self.custom,
            "kubelet": self.kubelet,
            "maxPods": self.resolved.max_pods,
            "kubeReserved": self.resolved.kube_reserved,
            "systemReserved": self.resolved.system_reserved,
            "labels": self.labels,
            "taints": taints,
            "raid": self.instance_store_raid,
            "bottlerocket": self.bottlerocket_version,
        });
        format!("{NAME_PREFIX}{}", fnv1(content.to_string().as_bytes()))
    }
}

/// As the schema has it, for objects that were stored before.
fn with_defaults(options: MetadataOptions) -> MetadataOptions {
    MetadataOptions {
        http_endpoint: options.http_endpoint.or_else(|| Some("enabled".to_owned())),
        http_protocol_ipv6: options.http_protocol_ipv6.or_else(|| Some("disabled".to_owned())),
        http_put_response_hop_limit: options.http_put_response_hop_limit.or(Some(1)),
        http_tokens: options.http_tokens.or_else(|| Some("required".to_owned())),
    }
}

/// Of a group with partitions the first that the claim allows, in order of text; None leaves the choice to EC2.
pub(crate) fn partition(order: &LaunchOrder, group: Option<&PlacementGroup>) -> Option<i32> {
    let group = group.filter(|group| group.strategy == "partition")?;
    let allowed = order.requirements.get(keys::PLACEMENT_GROUP_PARTITION)?;
    let listed =
        |requirement: &Requirement| if requirement.complement { None } else { requirement.values.first().cloned() };
    let chosen = listed(allowed)?.parse().ok()?;
    (1..=i32::try_from(group.n_partitions).unwrap_or(i32::MAX)).contains(&chosen).then_some(chosen)
}
