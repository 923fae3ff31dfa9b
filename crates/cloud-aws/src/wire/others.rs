//! Requests and answers of the services beside EC2.

use super::Tags;
use kerf_model::Money;

/// One of the two passes over the price list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriceQuery {
    /// Tenancy Shared, "Compute Instance".
    Shared,
    /// Tenancy Dedicated, "Compute Instance (bare metal)".
    BareMetal,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPrice {
    pub instance_type: String,
    pub price: Money,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueMessage {
    pub id: String,
    pub receipt: String,
    pub body: String,
    pub sent_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstanceProfile {
    pub name: String,
    pub path: String,
    pub roles: Vec<String>,
    pub tags: Tags,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProfileOrder {
    pub name: String,
    pub path: String,
    pub tags: Tags,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EksCluster {
    pub arn: String,
    pub endpoint: String,
    pub version: String,
    /// Base64.
    pub ca: String,
    pub service_ipv4_cidr: Option<String>,
    pub service_ipv6_cidr: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallerIdentity {
    pub account: String,
    pub arn: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ZonalShift {
    pub zone_id: String,
    /// `APPLIED`, `NOT_APPLIED`.
    pub status: String,
    pub expires_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LifecycleAction {
    pub group: String,
    pub hook: String,
    pub token: String,
    pub instance_id: String,
}
