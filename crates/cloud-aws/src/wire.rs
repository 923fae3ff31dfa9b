//! The wire: every AWS call that we make, as plain data in and out.
//!
//! The SDK's own types stay behind [`Aws`]: who decides what to launch need not know how a request is built, and a test can
//! answer from a table. Paging, retries and signing are the implementation's business. A call answers with everything that
//! matches, however many pages that takes.

pub mod ec2;
pub mod failure;
pub mod others;
#[cfg(any(test, feature = "testing"))]
pub mod scripted;

pub use ec2::*;
pub use failure::Failure;
pub use others::*;

use kerf_cloud::aws::TypeFacts;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

pub type Reply<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

pub type Tags = BTreeMap<String, String>;

/// As EC2 filters: any of the values, and all of the filters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Filter {
    pub name: String,
    pub values: Vec<String>,
}

impl Filter {
    pub fn new<V: Into<String>>(name: impl Into<String>, values: impl IntoIterator<Item = V>) -> Self {
        Self { name: name.into(), values: values.into_iter().map(Into::into).collect() }
    }

    /// Selects by a tag; the value `*` asks only for the key, and other wildcards are EC2's to read.
    pub fn tag(key: &str, value: &str) -> Self {
        match value {
            "*" => Self::new("tag-key", [key]),
            _ => Self::new(format!("tag:{key}"), [value]),
        }
    }
}

/// The calls, named as AWS names them.
pub trait Aws: Send + Sync {
    // EC2: what there is.
    /// The two filters of the contract (hvm; x86_64 and arm64) are applied. `dry_run` only asks whether it would be allowed.
    fn describe_instance_types(&self, dry_run: bool) -> Reply<Vec<TypeFacts>>;
    fn describe_instance_type_offerings(&self) -> Reply<Vec<TypeInZone>>;
    /// Prices from now on, of both Linux products.
    fn describe_spot_price_history(&self) -> Reply<Vec<SpotPrice>>;
    fn describe_subnets(&self, filters: Vec<Filter>) -> Reply<Vec<Subnet>>;
    fn describe_security_groups(&self, filters: Vec<Filter>) -> Reply<Vec<SecurityGroup>>;
    fn describe_images(&self, query: ImageQuery) -> Reply<Vec<Image>>;
    fn describe_capacity_reservations(&self, query: ReservationQuery) -> Reply<Vec<Reservation>>;
    /// One that EC2 does not know by its id is a failure.
    fn describe_placement_groups(&self, query: PlacementQuery) -> Reply<Vec<PlacementGroup>>;

    // EC2: launch templates.
    fn create_launch_template(&self, order: TemplateOrder) -> Reply<Template>;
    fn describe_launch_templates(&self, query: TemplateQuery) -> Reply<Vec<Template>>;
    fn delete_launch_template(&self, id: String) -> Reply<()>;

    // EC2: instances.
    fn create_fleet(&self, order: FleetOrder) -> Reply<FleetReply>;
    /// Only ever as a dry run.
    fn run_instances_dry_run(&self, order: RunOrder) -> Reply<()>;
    fn describe_instances(&self, query: InstanceQuery) -> Reply<Vec<Ec2Instance>>;
    fn terminate_instances(&self, ids: Vec<String>) -> Reply<Vec<InstanceStateChange>>;
    fn reboot_instances(&self, ids: Vec<String>) -> Reply<()>;
    fn create_tags(&self, ids: Vec<String>, tags: Tags) -> Reply<()>;
    fn describe_instance_status(&self, filters: Vec<Filter>) -> Reply<Vec<InstanceStatus>>;

    // The other services.
    fn get_parameter(&self, name: String) -> Reply<String>;
    fn get_products(&self, query: PriceQuery) -> Reply<Vec<ListPrice>>;
    fn get_queue_url(&self, name: String) -> Reply<String>;
    fn receive_messages(&self, queue_url: String) -> Reply<Vec<QueueMessage>>;
    fn delete_messages(&self, queue_url: String, receipts: Vec<String>) -> Reply<()>;
    fn get_instance_profile(&self, name: String) -> Reply<InstanceProfile>;
    fn create_instance_profile(&self, order: ProfileOrder) -> Reply<()>;
    fn delete_instance_profile(&self, name: String) -> Reply<()>;
    fn add_role_to_instance_profile(&self, name: String, role: String) -> Reply<()>;
    fn remove_role_from_instance_profile(&self, name: String, role: String) -> Reply<()>;
    fn list_instance_profiles(&self, path_prefix: String) -> Reply<Vec<InstanceProfile>>;
    /// The ARN of a role. The operator never asks: it only passes roles on. For `kerf aws check`.
    fn get_role(&self, name: String) -> Reply<String>;
    fn describe_cluster(&self, name: String) -> Reply<EksCluster>;
    fn get_caller_identity(&self) -> Reply<CallerIdentity>;
    fn decode_authorization_message(&self, encoded: String) -> Reply<String>;
    fn get_managed_resource(&self, arn: String) -> Reply<Vec<ZonalShift>>;
    /// Tells an Auto Scaling group that an instance of it may end.
    fn complete_lifecycle_action(&self, action: LifecycleAction) -> Reply<()>;
}
