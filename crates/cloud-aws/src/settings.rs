//! What the operator was told about its AWS: settings that do not change while it runs, and what was found out about the
//! cluster that nodes join.

use std::net::IpAddr;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub cluster_name: String,
    /// None: EKS is asked.
    pub cluster_endpoint: Option<String>,
    /// Base64, as nodes get it.
    pub cluster_ca_bundle: String,
    pub region: String,
    /// No calls to pricing and IAM.
    pub is_isolated_vpc: bool,
    /// The Kubernetes version comes from EKS rather than from the API server.
    pub is_eks_control_plane: bool,
    pub vm_memory_overhead_share: f64,
    pub interruption_queue: Option<String>,
    pub reserved_enis: u32,
    pub is_dry_run_disabled: bool,
    pub has_zonal_shift: bool,
    pub ami_refresh: Duration,
    pub subnet_refresh: Duration,
    /// Gate ReservedCapacity.
    pub has_reserved_capacity: bool,
    /// Gate NodeClassCEL.
    pub has_node_class_cel: bool,
    /// Gate NodeOverlay: prices of types that no price list has may come from overlays.
    pub has_node_overlay: bool,
    /// MIN_VALUES_POLICY: a claim whose minValues the cheapest sixty types do not meet is given up rather than launched.
    pub has_strict_min_values: bool,
    /// The minor version of the API server, such as `1.35`, where EKS is not asked.
    pub kubernetes_version: String,
    /// The address of `kube-system/kube-dns`; None when there is no such service.
    pub cluster_dns: Option<IpAddr>,
}

/// What a node needs to know of the cluster it joins. Found out once, and the version again now and then.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterFacts {
    pub endpoint: String,
    /// Base64.
    pub ca_bundle: String,
    /// The range of service addresses; None while nobody has asked, or when EKS does not say.
    pub service_cidr: Option<String>,
    /// Such as `1.35`.
    pub version: String,
    /// The address of the cluster's name server.
    pub dns: Option<IpAddr>,
}

impl ClusterFacts {
    /// Whether pods and services have IPv6 addresses: the name server has one.
    pub fn is_ipv6(&self) -> bool {
        self.dns.is_some_and(|dns| dns.is_ipv6())
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cluster_name: String::new(),
            cluster_endpoint: None,
            cluster_ca_bundle: String::new(),
            region: String::new(),
            is_isolated_vpc: false,
            is_eks_control_plane: false,
            vm_memory_overhead_share: 0.075,
            interruption_queue: None,
            reserved_enis: 0,
            is_dry_run_disabled: false,
            has_zonal_shift: false,
            ami_refresh: Duration::from_secs(60),
            subnet_refresh: Duration::from_secs(60),
            has_reserved_capacity: true,
            has_node_class_cel: false,
            has_node_overlay: false,
            has_strict_min_values: true,
            kubernetes_version: String::new(),
            cluster_dns: None,
        }
    }
}
