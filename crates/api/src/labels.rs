//! Label and annotation keys, and who may use them.
//!
//! Two judges look at keys. The schema judges by plain text suffix and an allow-list ([`restricted_in_schema`] has its
//! words); the running operator judges by domain and by what the cloud provider declared well known ([`LabelRules`]).
//! They differ on purpose, as upstream's do.

use kerf_model::typo;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

pub const GROUP: &str = "karpenter.sh";
pub const AWS_GROUP: &str = "karpenter.k8s.aws";
pub const KWOK_GROUP: &str = "karpenter.kwok.sh";
pub const COMPATIBILITY_GROUP: &str = "compatibility.karpenter.sh";
pub const AWS_COMPATIBILITY_GROUP: &str = "compatibility.karpenter.k8s.aws";

/// Labels of Kubernetes itself.
pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const REGION: &str = "topology.kubernetes.io/region";
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
pub const ARCH: &str = "kubernetes.io/arch";
pub const OS: &str = "kubernetes.io/os";
pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";
/// Put on a node that starts to drain, so that load balancers look elsewhere.
pub const EXCLUDE_FROM_LOAD_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Labels of the core.
pub const NODE_POOL: &str = "karpenter.sh/nodepool";
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
pub const REGISTERED: &str = "karpenter.sh/registered";
pub const INITIALIZED: &str = "karpenter.sh/initialized";
pub const DO_NOT_SYNC_TAINTS: &str = "karpenter.sh/do-not-sync-taints";

pub const CAPACITY_TYPES: &[&str] = &[ON_DEMAND, SPOT, RESERVED];
pub const ON_DEMAND: &str = "on-demand";
pub const SPOT: &str = "spot";
pub const RESERVED: &str = "reserved";

/// Annotations of the core.
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
pub const DO_NOT_REPAIR: &str = "karpenter.sh/do-not-repair";
pub const DISRUPTION_COST: &str = "karpenter.sh/disruption-cost";
pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
pub const NODE_POOL_HASH: &str = "karpenter.sh/nodepool-hash";
pub const NODE_POOL_HASH_VERSION: &str = "karpenter.sh/nodepool-hash-version";
pub const REBOOT_PRE_BOOT_ID: &str = "karpenter.sh/reboot-pre-boot-id";
pub const REBOOT_TERMINATION_GRACE_PERIOD: &str = "karpenter.sh/reboot-termination-grace-period";
pub const TERMINATION_TIMESTAMP: &str = "karpenter.sh/nodeclaim-termination-timestamp";
pub const MIN_VALUES_RELAXED: &str = "karpenter.sh/nodeclaim-min-values-relaxed";
pub const REQUESTED_DRA_DRIVERS: &str = "karpenter.sh/requested-dra-drivers";
pub const PRICE_OVERLAY_APPLIED: &str = "karpenter.sh/price-overlay-applied";
pub const CAPACITY_OVERLAY_APPLIED: &str = "karpenter.sh/capacity-overlay-applied";
/// The three below mark pods that exist only in memory.
pub const BUFFER_FAKE_POD: &str = "karpenter.sh/capacity-buffer-fake-pod";
pub const BUFFER_NAME: &str = "karpenter.sh/capacity-buffer-name";
pub const BUFFER_NAMESPACE: &str = "karpenter.sh/capacity-buffer-namespace";
pub const STORED_VERSION_MIGRATED: &str = "karpenter.sh/stored-version-migrated";
/// Left by the conversion of v1beta1 objects.
pub const KUBELET_CONVERSION: &str = "compatibility.karpenter.sh/v1beta1-kubelet-conversion";
pub const NODE_CLASS_REFERENCE: &str = "compatibility.karpenter.sh/v1beta1-nodeclass-reference";

/// Drains and deletes the machine before a NodeClaim or Node may go.
pub const TERMINATION_FINALIZER: &str = "karpenter.sh/termination";
pub const EC2_NODE_CLASS_FINALIZER: &str = "karpenter.k8s.aws/termination";

/// Labels of the AWS provider.
pub const EC2_NODE_CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";
pub const INSTANCE_CATEGORY: &str = "karpenter.k8s.aws/instance-category";
pub const INSTANCE_GENERATION: &str = "karpenter.k8s.aws/instance-generation";
pub const INSTANCE_FAMILY: &str = "karpenter.k8s.aws/instance-family";
pub const INSTANCE_SIZE: &str = "karpenter.k8s.aws/instance-size";
pub const INSTANCE_CAPABILITY_FLEX: &str = "karpenter.k8s.aws/instance-capability-flex";
pub const INSTANCE_CPU: &str = "karpenter.k8s.aws/instance-cpu";
pub const INSTANCE_CPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-cpu-manufacturer";
pub const INSTANCE_CPU_CLOCK_SPEED: &str = "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz";
pub const INSTANCE_MEMORY: &str = "karpenter.k8s.aws/instance-memory";
pub const INSTANCE_EBS_BANDWIDTH: &str = "karpenter.k8s.aws/instance-ebs-bandwidth";
pub const INSTANCE_NETWORK_BANDWIDTH: &str = "karpenter.k8s.aws/instance-network-bandwidth";
pub const INSTANCE_LOCAL_NVME: &str = "karpenter.k8s.aws/instance-local-nvme";
pub const INSTANCE_GPU_NAME: &str = "karpenter.k8s.aws/instance-gpu-name";
pub const INSTANCE_GPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-gpu-manufacturer";
pub const INSTANCE_GPU_COUNT: &str = "karpenter.k8s.aws/instance-gpu-count";
pub const INSTANCE_GPU_MEMORY: &str = "karpenter.k8s.aws/instance-gpu-memory";
pub const INSTANCE_ACCELERATOR_NAME: &str = "karpenter.k8s.aws/instance-accelerator-name";
pub const INSTANCE_ACCELERATOR_MANUFACTURER: &str = "karpenter.k8s.aws/instance-accelerator-manufacturer";
pub const INSTANCE_ACCELERATOR_COUNT: &str = "karpenter.k8s.aws/instance-accelerator-count";
pub const INSTANCE_HYPERVISOR: &str = "karpenter.k8s.aws/instance-hypervisor";
pub const INSTANCE_ENCRYPTION_IN_TRANSIT: &str = "karpenter.k8s.aws/instance-encryption-in-transit-supported";
pub const NITRO_SANDBOX: &str = "karpenter.k8s.aws/nitro-sandbox";
pub const INSTANCE_TENANCY: &str = "karpenter.k8s.aws/instance-tenancy";
pub const CAPACITY_RESERVATION_ID: &str = "karpenter.k8s.aws/capacity-reservation-id";
pub const CAPACITY_RESERVATION_TYPE: &str = "karpenter.k8s.aws/capacity-reservation-type";
pub const CAPACITY_RESERVATION_INTERRUPTIBLE: &str = "karpenter.k8s.aws/capacity-reservation-interruptible";
pub const PLACEMENT_GROUP_ID: &str = "karpenter.k8s.aws/placement-group-id";
pub const PLACEMENT_GROUP_PARTITION: &str = "karpenter.k8s.aws/placement-group-partition";
pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";
/// What the EBS driver calls the zone.
pub const EBS_ZONE: &str = "topology.ebs.csi.aws.com/zone";

/// Annotations of the AWS provider.
pub const EC2_NODE_CLASS_HASH: &str = "karpenter.k8s.aws/ec2nodeclass-hash";
pub const EC2_NODE_CLASS_HASH_VERSION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";
pub const INSTANCE_PROFILE_NAME: &str = "karpenter.k8s.aws/instance-profile-name";
pub const TAGGED: &str = "karpenter.k8s.aws/tagged";
pub const CLUSTER_NAME_TAGGED: &str = "compatibility.karpenter.k8s.aws/cluster-name-tagged";

/// Labels of the kwok provider.
pub const KWOK_NODE_CLASS: &str = "karpenter.kwok.sh/kwoknodeclass";
pub const KWOK_INSTANCE_CPU: &str = "karpenter.kwok.sh/instance-cpu";
pub const KWOK_INSTANCE_MEMORY: &str = "karpenter.kwok.sh/instance-memory";
pub const KWOK_INSTANCE_FAMILY: &str = "karpenter.kwok.sh/instance-family";
pub const KWOK_INSTANCE_SIZE: &str = "karpenter.kwok.sh/instance-size";

/// Labels the core knows to be on every node it makes, or on none of a kind.
pub const WELL_KNOWN: &[&str] = &[NODE_POOL, ZONE, REGION, INSTANCE_TYPE, ARCH, OS, CAPACITY_TYPE, WINDOWS_BUILD];

/// What the AWS provider adds to [`WELL_KNOWN`].
pub const AWS_WELL_KNOWN: &[&str] = &[
    INSTANCE_CATEGORY,
    INSTANCE_GENERATION,
    INSTANCE_FAMILY,
    INSTANCE_SIZE,
    INSTANCE_CAPABILITY_FLEX,
    INSTANCE_CPU,
    INSTANCE_CPU_MANUFACTURER,
    INSTANCE_CPU_CLOCK_SPEED,
    INSTANCE_MEMORY,
    INSTANCE_EBS_BANDWIDTH,
    INSTANCE_NETWORK_BANDWIDTH,
    INSTANCE_LOCAL_NVME,
    INSTANCE_GPU_NAME,
    INSTANCE_GPU_MANUFACTURER,
    INSTANCE_GPU_COUNT,
    INSTANCE_GPU_MEMORY,
    INSTANCE_ACCELERATOR_NAME,
    INSTANCE_ACCELERATOR_MANUFACTURER,
    INSTANCE_ACCELERATOR_COUNT,
    INSTANCE_HYPERVISOR,
    INSTANCE_ENCRYPTION_IN_TRANSIT,
    NITRO_SANDBOX,
    INSTANCE_TENANCY,
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_TYPE,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    PLACEMENT_GROUP_ID,
    PLACEMENT_GROUP_PARTITION,
    ZONE_ID,
];

/// What the kwok provider adds to [`WELL_KNOWN`], beside every key of an offering's requirements.
pub const KWOK_WELL_KNOWN: &[&str] =
    &[KWOK_INSTANCE_CPU, KWOK_INSTANCE_MEMORY, KWOK_INSTANCE_FAMILY, KWOK_INSTANCE_SIZE];

/// Old names that mean a new one.
pub const ALIASES: &[(&str, &str)] = &[
    ("failure-domain.beta.kubernetes.io/zone", ZONE),
    ("failure-domain.beta.kubernetes.io/region", REGION),
    ("beta.kubernetes.io/arch", ARCH),
    ("beta.kubernetes.io/os", OS),
    ("beta.kubernetes.io/instance-type", INSTANCE_TYPE),
];

/// What the AWS provider adds to [`ALIASES`].
pub const AWS_ALIASES: &[(&str, &str)] = &[(EBS_ZONE, ZONE)];

/// Resources the AWS provider knows beside those of the core.
pub const AWS_WELL_KNOWN_RESOURCES: &[&str] = &[
    "vpc.amazonaws.com/pod-eni",
    "aws.amazon.com/neuron",
    "aws.amazon.com/neuroncore",
    "habana.ai/gaudi",
    "vpc.amazonaws.com/efa",
];

/// The label that names a NodeClass on its claims and nodes: `<group>/<kind in lower case>`.
pub fn node_class_label(group: &str, kind: &str) -> String {
    format!("{group}/{}", kind.to_lowercase())
}

/// What the schema says of label keys: a domain, the keys of it that are allowed after all.
pub mod restricted_in_schema {
    use super::*;

    pub const CORE: (&str, &[&str]) = (GROUP, &[CAPACITY_TYPE, NODE_POOL]);

    /// For NodePool labels and for requirements of NodePools and NodeClaims.
    pub const AWS: (&str, &[&str]) = (
        AWS_GROUP,
        &[
            INSTANCE_TENANCY,
            CAPACITY_RESERVATION_TYPE,
            CAPACITY_RESERVATION_ID,
            CAPACITY_RESERVATION_INTERRUPTIBLE,
            EC2_NODE_CLASS,
            INSTANCE_ENCRYPTION_IN_TRANSIT,
            NITRO_SANDBOX,
            INSTANCE_CATEGORY,
            INSTANCE_HYPERVISOR,
            INSTANCE_FAMILY,
            INSTANCE_GENERATION,
            INSTANCE_LOCAL_NVME,
            INSTANCE_SIZE,
            INSTANCE_CPU,
            INSTANCE_CPU_MANUFACTURER,
            INSTANCE_CPU_CLOCK_SPEED,
            INSTANCE_MEMORY,
            INSTANCE_EBS_BANDWIDTH,
            INSTANCE_NETWORK_BANDWIDTH,
            INSTANCE_GPU_NAME,
            INSTANCE_GPU_MANUFACTURER,
            INSTANCE_GPU_COUNT,
            INSTANCE_GPU_MEMORY,
            INSTANCE_ACCELERATOR_NAME,
            INSTANCE_ACCELERATOR_MANUFACTURER,
            INSTANCE_ACCELERATOR_COUNT,
            INSTANCE_CAPABILITY_FLEX,
            PLACEMENT_GROUP_ID,
            PLACEMENT_GROUP_PARTITION,
        ],
    );

    /// For NodeOverlays: without tenancy, reservations and placement groups, which an overlay cannot select.
    pub const AWS_OVERLAY: (&str, &[&str]) = (
        AWS_GROUP,
        &[
            EC2_NODE_CLASS,
            INSTANCE_ENCRYPTION_IN_TRANSIT,
            NITRO_SANDBOX,
            INSTANCE_CATEGORY,
            INSTANCE_HYPERVISOR,
            INSTANCE_FAMILY,
            INSTANCE_GENERATION,
            INSTANCE_LOCAL_NVME,
            INSTANCE_SIZE,
            INSTANCE_CPU,
            INSTANCE_CPU_MANUFACTURER,
            INSTANCE_CPU_CLOCK_SPEED,
            INSTANCE_MEMORY,
            INSTANCE_EBS_BANDWIDTH,
            INSTANCE_NETWORK_BANDWIDTH,
            INSTANCE_GPU_NAME,
            INSTANCE_GPU_MANUFACTURER,
            INSTANCE_GPU_COUNT,
            INSTANCE_GPU_MEMORY,
            INSTANCE_ACCELERATOR_NAME,
            INSTANCE_ACCELERATOR_MANUFACTURER,
            INSTANCE_ACCELERATOR_COUNT,
            INSTANCE_CAPABILITY_FLEX,
        ],
    );

    /// For requirements of NodePools and NodeClaims; template labels and overlays are free.
    pub const KWOK: (&str, &[&str]) = (
        KWOK_GROUP,
        &[KWOK_NODE_CLASS, KWOK_INSTANCE_CPU, KWOK_INSTANCE_MEMORY, KWOK_INSTANCE_FAMILY, KWOK_INSTANCE_SIZE],
    );
}

/// What the running operator knows of label keys: the core's share plus what the cloud provider registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRules {
    well_known: BTreeSet<Cow<'static, str>>,
    restricted_domains: BTreeSet<Cow<'static, str>>,
    known_values: BTreeMap<Cow<'static, str>, &'static [&'static str]>,
    aliases: BTreeMap<&'static str, &'static str>,
}

impl LabelRules {
    pub fn core() -> Self {
        Self {
            well_known: WELL_KNOWN.iter().map(|key| Cow::Borrowed(*key)).collect(),
            restricted_domains: BTreeSet::from([Cow::Borrowed(GROUP)]),
            known_values: BTreeMap::from([(Cow::Borrowed(CAPACITY_TYPE), CAPACITY_TYPES)]),
            aliases: ALIASES.iter().copied().collect(),
        }
    }

    pub fn aws() -> Self {
        let mut rules = Self::core().with_well_known(AWS_WELL_KNOWN.iter().copied()).with_restricted_domain(AWS_GROUP);
        rules.known_values.insert(Cow::Borrowed(INSTANCE_TENANCY), &["default", "dedicated"]);
        rules.aliases.extend(AWS_ALIASES.iter().copied());
        rules
    }

    pub fn kwok() -> Self {
        Self::core().with_well_known(KWOK_WELL_KNOWN.iter().copied()).with_restricted_domain(KWOK_GROUP)
    }

    /// Adds keys that the provider's offerings use.
    #[must_use]
    pub fn with_well_known<K: Into<Cow<'static, str>>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.well_known.extend(keys.into_iter().map(Into::into));
        self
    }

    #[must_use]
    pub fn with_restricted_domain(mut self, domain: impl Into<Cow<'static, str>>) -> Self {
        self.restricted_domains.insert(domain.into());
        self
    }

    pub fn is_well_known(&self, key: &str) -> bool {
        self.well_known.contains(key)
    }

    /// The name a key goes by today.
    pub fn normalized<'a>(&self, key: &'a str) -> &'a str {
        self.aliases.get(key).copied().unwrap_or(key)
    }

    /// Why a label key may not be used in pools, overlays and pod selectors; `None` when it may.
    pub fn restriction(&self, key: &str) -> Option<LabelRestriction> {
        if self.is_well_known(key) {
            return None;
        }
        if key == HOSTNAME {
            return Some(LabelRestriction::Hostname);
        }
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let restricted =
            self.restricted_domains.iter().find(|restricted| is_domain_or_subdomain(domain, restricted))?;
        Some(LabelRestriction::Domain { domain: restricted.to_string(), meant: self.meant(key) })
    }

    /// The well-known key that somebody probably had in mind who wrote one that is not known: a slip of the fingers.
    pub fn misspelt(&self, key: &str) -> Option<&str> {
        if self.is_well_known(self.normalized(key)) {
            return None;
        }
        typo::misspelt(key, self.well_known.iter().map(|known| &**known))
    }

    fn meant(&self, key: &str) -> Option<String> {
        let elsewhere = || typo::in_wrong_domain(key, self.well_known.iter().map(|known| &**known));
        self.misspelt(key).or_else(elsewhere).map(str::to_owned)
    }

    /// The only values that mean something for this key, where that is known.
    pub fn known_values(&self, key: &str) -> Option<&'static [&'static str]> {
        self.known_values.get(key).copied()
    }
}

fn is_domain_or_subdomain(domain: &str, parent: &str) -> bool {
    domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelRestriction {
    /// The name of a node cannot be known before there is one.
    Hostname,
    /// The domain belongs to us or to the provider, and the key is none that users may set.
    Domain {
        domain: String,
        /// A key that may be meant instead.
        meant: Option<String>,
    },
}

impl std::fmt::Display for LabelRestriction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Hostname => write!(f, "{HOSTNAME} cannot be asked for; another label would do"),
            Self::Domain { domain, meant } => {
                write!(f, "labels of {domain} are reserved; use a well-known one, or a domain of your own")?;
                match meant {
                    Some(meant) => write!(f, " (typo of {meant:?}?)"),
                    None => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restricted_domain_reserves_its_subdomains_but_not_its_lookalikes() {
        for (key, may) in [
            ("karpenter.sh/capacity-type", true),
            ("karpenter.sh/nodepool", true),
            ("karpenter.sh/anything", false),
            ("sub.karpenter.sh/anything", false),
            ("foo-karpenter.sh/anything", true),
            ("karpenter.sh", true),
            ("kubernetes.io/hostname", false),
            ("kubernetes.io/anything", true),
            ("node-restriction.kubernetes.io/team", true),
            ("karpenter.k8s.aws/instance-cpu", true),
            ("karpenter.k8s.aws/ec2nodeclass", false),
            ("karpenter.k8s.aws/anything", false),
            ("topology.k8s.aws/zone-id", true),
            ("karpenter.kwok.sh/anything", true),
            ("team", true),
        ] {
            assert_eq!(LabelRules::aws().restriction(key).is_none(), may, "{key}");
        }
        assert!(LabelRules::kwok().restriction("karpenter.kwok.sh/anything").is_some());
        assert!(LabelRules::kwok().restriction(KWOK_INSTANCE_CPU).is_none());
        let with_offering_key = LabelRules::kwok().with_well_known(["karpenter.kwok.sh/rack".to_owned()]);
        assert!(with_offering_key.restriction("karpenter.kwok.sh/rack").is_none());
    }

    #[test]
    fn a_reserved_key_is_told_which_one_is_meant() {
        let told = |key: &str| LabelRules::aws().restriction(key).map(|restriction| restriction.to_string());
        let told = |key: &str| told(key).unwrap_or_default();
        assert!(told("karpenter.k8s.aws/capacity-type").ends_with(r#"(typo of "karpenter.sh/capacity-type"?)"#));
        assert!(told("karpenter.k8s.aws/instance-familly").contains(INSTANCE_FAMILY));
        assert!(!told("karpenter.k8s.aws/colour").contains("typo"));
        assert_eq!(LabelRules::aws().misspelt("node.kubernetes.io/instnace-type"), Some(INSTANCE_TYPE));
        assert_eq!(LabelRules::aws().misspelt("beta.kubernetes.io/instance-type"), None);
        assert_eq!(LabelRules::aws().misspelt("team"), None);
    }

    #[test]
    fn old_names_are_read_as_new_ones() {
        assert_eq!(LabelRules::core().normalized("beta.kubernetes.io/arch"), ARCH);
        assert_eq!(LabelRules::core().normalized("failure-domain.beta.kubernetes.io/zone"), ZONE);
        assert_eq!(LabelRules::aws().normalized(EBS_ZONE), ZONE);
        assert_eq!(LabelRules::core().normalized(EBS_ZONE), EBS_ZONE);
    }

    #[test]
    fn a_node_class_label_is_its_group_and_lower_case_kind() {
        assert_eq!(node_class_label(AWS_GROUP, "EC2NodeClass"), EC2_NODE_CLASS);
        assert_eq!(node_class_label(KWOK_GROUP, "KWOKNodeClass"), KWOK_NODE_CLASS);
    }

    #[test]
    fn an_overlay_may_use_every_aws_key_but_tenancy_reservations_and_placement() {
        let all: BTreeSet<_> = restricted_in_schema::AWS.1.iter().collect();
        let overlay: BTreeSet<_> = restricted_in_schema::AWS_OVERLAY.1.iter().collect();
        let missing: Vec<_> =
            all.difference(&overlay).map(|key| key.trim_start_matches("karpenter.k8s.aws/")).collect();
        assert_eq!(
            missing,
            [
                "capacity-reservation-id",
                "capacity-reservation-interruptible",
                "capacity-reservation-type",
                "instance-tenancy",
                "placement-group-id",
                "placement-group-partition"
            ]
        );
        assert_eq!(all.len(), 29);
        // Every well-known AWS label in the provider's own domain is on the list, and the NodeClass label beside them.
        let well_known: BTreeSet<_> =
            AWS_WELL_KNOWN.iter().filter(|key| key.starts_with(AWS_GROUP)).chain([&EC2_NODE_CLASS]).collect();
        assert_eq!(all, well_known);
    }
}
