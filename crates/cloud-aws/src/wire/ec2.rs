//! Requests and answers of EC2, reduced to what we send and read.

use super::{Filter, Tags};
use kerf_model::Money;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeInZone {
    pub instance_type: String,
    pub zone: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpotPrice {
    pub instance_type: String,
    pub zone: String,
    pub price: Money,
    /// The newest of a type and zone counts.
    pub at_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subnet {
    pub id: String,
    pub zone: String,
    pub zone_id: Option<String>,
    pub vpc_id: String,
    pub n_free_addresses: i64,
    pub tags: Tags,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecurityGroup {
    pub id: String,
    pub name: String,
    pub vpc_id: String,
    pub tags: Tags,
}

/// `state=available` and deprecated ones included, always.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageQuery {
    pub filters: Vec<Filter>,
    /// Empty: anyone's.
    pub owners: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Image {
    pub id: String,
    pub name: String,
    /// `x86_64`, `arm64`, or another that we do not use; empty when AWS does not say.
    pub architecture: String,
    /// RFC 3339, as AWS writes it: it sorts as text.
    pub created: String,
    pub deprecated_at_ms: Option<i64>,
    pub owner: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReservationQuery {
    /// One reservation by its id; then the filters are empty.
    pub id: Option<String>,
    pub filters: Vec<Filter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reservation {
    pub id: String,
    pub instance_type: String,
    pub zone: String,
    pub owner_id: String,
    /// `open` or `targeted`.
    pub match_criteria: String,
    /// `default` or `capacity-block`.
    pub kind: String,
    pub is_interruptible: bool,
    /// `active`, `expired`, ….
    pub state: String,
    pub end_ms: Option<i64>,
    pub n_available: u32,
    pub tags: Tags,
}

/// EC2 has no filter for the id of a group: it is a parameter of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlacementQuery {
    pub id: Option<String>,
    pub filters: Vec<Filter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlacementGroup {
    pub id: String,
    pub name: String,
    /// `cluster`, `partition` or `spread`.
    pub strategy: String,
    pub n_partitions: u32,
    pub state: String,
}

/// A launch template to make.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TemplateOrder {
    pub name: String,
    /// Of the template itself.
    pub tags: Tags,
    pub data: TemplateData,
}

/// What a template says about instances. Fields that are None are not sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TemplateData {
    pub instance_profile: Option<String>,
    pub image_id: String,
    /// Base64.
    pub user_data: Option<String>,
    pub block_devices: Vec<TemplateDevice>,
    pub metadata: Option<TemplateMetadata>,
    pub interfaces: Vec<TemplateInterface>,
    pub detailed_monitoring: Option<bool>,
    /// `enabled` or `disabled`.
    pub nested_virtualization: Option<String>,
    pub tenancy: Option<String>,
    pub placement_group_id: Option<String>,
    pub partition: Option<i32>,
    pub enclave: Option<bool>,
    /// By resource type: `network-interface`, `spot-instances-request`.
    pub tag_specifications: Vec<(String, Tags)>,
    pub reservation: Option<TemplateReservation>,
    /// `capacity-block` or `interruptible-capacity-reservation`.
    pub market: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TemplateDevice {
    pub name: Option<String>,
    pub delete_on_termination: Option<bool>,
    pub encrypted: Option<bool>,
    pub iops: Option<i32>,
    pub kms_key_id: Option<String>,
    pub snapshot_id: Option<String>,
    pub throughput: Option<i32>,
    pub initialization_rate: Option<i32>,
    pub size_gib: Option<i32>,
    pub kind: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TemplateMetadata {
    pub http_endpoint: Option<String>,
    /// None in regions that do not know the option.
    pub http_protocol_ipv6: Option<String>,
    pub hop_limit: Option<i32>,
    pub http_tokens: Option<String>,
    /// Always `disabled`.
    pub instance_tags: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TemplateInterface {
    pub card: Option<i32>,
    pub device: i32,
    /// `interface`, `efa`, `efa-only`.
    pub kind: Option<String>,
    pub groups: Vec<String>,
    pub public_address: Option<bool>,
    pub ipv4_prefix_count: Option<i32>,
    pub ipv6_prefix_count: Option<i32>,
    pub ipv6_address_count: Option<i32>,
    pub primary_ipv6: Option<bool>,
    pub tcp_established_timeout: Option<i32>,
    pub udp_stream_timeout: Option<i32>,
    pub udp_timeout: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TemplateReservation {
    /// `capacity-reservations-only` or `none`.
    pub preference: String,
    pub target_id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TemplateQuery {
    pub names: Vec<String>,
    pub filters: Vec<Filter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    pub id: String,
    pub name: String,
    pub tags: Tags,
}

/// CreateFleet, always of type `instant`. Equal orders can share one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetOrder {
    pub context: Option<String>,
    pub configs: Vec<FleetConfig>,
    pub n_instances: i32,
    /// `on-demand`, `spot`, `capacity-block`, `reserved-capacity`.
    pub capacity_type: String,
    pub spot_strategy: Option<String>,
    pub on_demand_strategy: Option<String>,
    /// `interruptible-capacity-reservation`.
    pub reservation_types: Vec<String>,
    /// On instance, volume and fleet alike.
    pub tags: Tags,
    pub dry_run: bool,
    /// A request that EC2 has seen under this token is not carried out again: it gets the answer of the first one.
    pub client_token: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetConfig {
    /// Its version is `$Latest`.
    pub template_name: String,
    pub overrides: Vec<FleetOverride>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetOverride {
    pub instance_type: String,
    /// None when the template pins a zone.
    pub subnet_id: Option<String>,
    pub image_id: Option<String>,
    pub zone: String,
    /// The price, as EC2 wants its priorities: the smallest first.
    pub priority: Option<Money>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetReply {
    pub fleet_id: Option<String>,
    pub instances: Vec<FleetInstance>,
    /// May be there beside instances.
    pub errors: Vec<FleetError>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetInstance {
    pub ids: Vec<String>,
    pub instance_type: String,
    pub zone: Option<String>,
    pub subnet_id: Option<String>,
    pub image_id: Option<String>,
    pub template_name: Option<String>,
    pub is_spot: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetError {
    pub code: String,
    pub message: String,
    pub instance_type: Option<String>,
    pub zone: Option<String>,
    pub subnet_id: Option<String>,
}

/// RunInstances, as a question whether it would be allowed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunOrder {
    pub template_name: String,
    pub instance_type: String,
    pub image_id: Option<String>,
    pub subnet_id: Option<String>,
    pub is_spot: bool,
    /// On instance, volume and network interface.
    pub tags: Tags,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstanceQuery {
    pub ids: Vec<String>,
    pub filters: Vec<Filter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ec2Instance {
    pub id: String,
    pub instance_type: String,
    /// `pending`, `running`, `shutting-down`, `terminated`, `stopping`, `stopped`.
    pub state: String,
    pub zone: String,
    pub zone_id: Option<String>,
    pub subnet_id: Option<String>,
    pub image_id: String,
    pub security_group_ids: Vec<String>,
    pub launched_ms: i64,
    pub private_dns_name: Option<String>,
    pub tenancy: Option<String>,
    pub is_spot: bool,
    pub reservation_id: Option<String>,
    /// `capacity-reservations-only`, `none`, `open`.
    pub reservation_preference: Option<String>,
    pub n_efa_interfaces: u32,
    pub placement_group_id: Option<String>,
    pub partition: Option<i32>,
    pub tags: Tags,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstanceStateChange {
    pub id: String,
    pub state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstanceStatus {
    pub id: String,
    /// `ok`, `impaired`, ….
    pub instance_status: String,
    pub system_status: String,
    /// Since when a failed check has been impaired, by check.
    pub instance_impaired_since_ms: Option<i64>,
    pub system_impaired_since_ms: Option<i64>,
    pub events: Vec<ScheduledEvent>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScheduledEvent {
    /// `instance-reboot`, `system-maintenance`, ….
    pub code: String,
    pub description: String,
    pub not_before_ms: Option<i64>,
}
