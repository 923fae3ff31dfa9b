//! The pieces that clusters are built from.

use kerf_model::resources::{CPU, MEMORY, PODS};
use kerf_model::{
    CapacityType, InstanceType, LabelSelector, Money, Namespaces, NodeClassRef, NodePolicy, Offering, PodTerm,
    Quantity, Requirement, Requirements, Resources, Spread, Taint, Text, Toleration, TolerationOperator,
    WhenUnsatisfiable, labels,
};
use std::collections::BTreeMap;

pub const ZONES: [&str; 3] = ["za", "zb", "zc"];
pub const APPS: [&str; 3] = ["red", "green", "blue"];
pub const GPU: &str = "example.com/gpu";
/// A label of instance types that holds a number.
pub const CPUS: &str = "example.com/cpus";
/// A label that only pools know.
pub const TIER: &str = "tier";
pub const DRIVER: &str = "disk.example.com";

pub fn amount(cpu_milli: i64, memory_mebi: i64, pods: i64) -> Resources {
    Resources::new()
        .with(CPU, Quantity::from_milli(cpu_milli))
        .with(MEMORY, Quantity::from_mebibytes(memory_mebi))
        .with(PODS, Quantity::from_units(pods))
}

pub fn node_class() -> NodeClassRef {
    NodeClassRef { group: "example.com".into(), kind: "Class".into(), name: "default".into() }
}

/// How a type is drawn.
#[derive(Debug, Clone)]
pub struct TypeRecipe {
    pub cpus: i64,
    pub gib_per_cpu: i64,
    pub pods: i64,
    pub gpus: i64,
    pub is_arm: bool,
    /// Bits, by zone.
    pub zones: u8,
    /// Percent of the on-demand price; none is sold at zero.
    pub spot_percent: i64,
    pub reserved: Option<u32>,
    /// Bits, by offering: sold out.
    pub sold_out: u16,
    pub surcharge: i64,
    /// Thousandths of a core taken by the system.
    pub overhead: i64,
}

impl TypeRecipe {
    pub fn build(&self, idx: usize) -> InstanceType {
        let name = format!("t{idx}");
        let price = self.cpus * 40_000 + self.gib_per_cpu * self.cpus * 5_000 + self.gpus * 500_000 + self.surcharge;
        let zones: Vec<&str> = (0..3).filter(|zone| self.zones & (1 << zone) != 0).map(|zone| ZONES[zone]).collect();
        let mut offerings = Vec::new();
        for zone in &zones {
            offerings.push(Offering::new(zone, CapacityType::OnDemand, Money::from_micros(price)));
            if self.spot_percent > 0 {
                let spot = Money::from_micros(price * self.spot_percent / 100);
                offerings.push(Offering::new(zone, CapacityType::Spot, spot));
            }
        }
        let reservation = format!("r-{idx}");
        if let (Some(capacity), Some(zone)) = (self.reserved, zones.first()) {
            for offering in &mut offerings {
                offering.require(labels::AWS_RESERVATION_ID, Requirement::does_not_exist());
            }
            let mut reserved = Offering::new(zone, CapacityType::Reserved, Money::from_micros(1));
            reserved.reservation_capacity = Some(capacity);
            reserved.require(labels::AWS_RESERVATION_ID, Requirement::is_in([&*reservation]));
            offerings.push(reserved);
        }
        for (position, offering) in offerings.iter_mut().enumerate() {
            offering.available = self.sold_out & (1 << position) == 0;
        }
        let kinds: Vec<&str> = offerings.iter().filter_map(Offering::capacity_type).map(CapacityType::as_str).collect();
        let mut requirements = Requirements::new()
            .with(labels::INSTANCE_TYPE, Requirement::is_in([&*name]))
            .with(labels::ARCH, Requirement::is_in([if self.is_arm { "arm64" } else { "amd64" }]))
            .with(labels::OS, Requirement::is_in(["linux"]))
            .with(labels::REGION, Requirement::is_in(["r"]))
            .with(labels::WINDOWS_BUILD, Requirement::does_not_exist())
            .with(labels::ZONE, Requirement::is_in(zones.iter().copied()))
            .with(labels::CAPACITY_TYPE, Requirement::is_in(kinds))
            .with(CPUS, Requirement::is_in([&*self.cpus.to_string()]));
        if self.reserved.is_some() {
            requirements.add(labels::AWS_RESERVATION_ID, Requirement::is_in([&*reservation]));
        }
        let mut capacity = amount(self.cpus * 1000, self.cpus * self.gib_per_cpu * 1024, self.pods);
        if self.gpus > 0 {
            capacity.set(GPU, Quantity::from_units(self.gpus));
        }
        InstanceType {
            name: name.as_str().into(),
            requirements,
            offerings,
            capacity,
            overhead: amount(self.overhead, self.overhead, 0),
            attach_limits: BTreeMap::from([(Text::from(DRIVER), 2)]),
        }
    }
}

pub fn tolerate(key: &str) -> Toleration {
    Toleration { key: key.into(), operator: TolerationOperator::Exists, value: "".into(), effect: None }
}

pub fn tolerate_exactly(taint: &Taint) -> Toleration {
    Toleration {
        key: taint.key.clone(),
        operator: TolerationOperator::Equal,
        value: taint.value.clone(),
        effect: Some(taint.effect),
    }
}

pub fn apps(app: &str) -> Option<LabelSelector> {
    Some(LabelSelector::from_labels([("app", app)]))
}

pub fn term(key: &str, app: &str) -> PodTerm {
    PodTerm { topology_key: key.into(), namespaces: Namespaces::These(["default".into()].into()), selector: apps(app) }
}

pub fn spread(key: &str, app: &str, max_skew: u32, is_hard: bool) -> Spread {
    Spread {
        topology_key: key.into(),
        max_skew,
        min_domains: None,
        when: if is_hard { WhenUnsatisfiable::DoNotSchedule } else { WhenUnsatisfiable::ScheduleAnyway },
        selector: apps(app),
        node_affinity_policy: NodePolicy::Honor,
        node_taints_policy: NodePolicy::Ignore,
    }
}
