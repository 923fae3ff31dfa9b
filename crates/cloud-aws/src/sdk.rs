//! The wire through the official SDK (cargo feature `sdk`).
//!
//! ```text
//! Sdk ── one client per service ── clients.rs     credentials, region, endpoint, timeouts, user agent
//!  ├ ec2_types, ec2_read, ec2_templates, ec2_fleet, ec2_instances
//!  ├ ssm, sqs, iam, eks, pricing, sts, arc, autoscaling
//!  ├ proxies      how calls leave the network
//!  ├ listed       a list, as far as it may go
//!  ├ failure      an SDK error as a `Failure`
//!  └ calls        how often each action was asked, and how it was answered
//! ```
//!
//! Each file knows one service: how a request of ours is written, and what of the answer we keep. Signing, retries, endpoints and
//! the credential chain (environment, profile, web identity, pod identity, instance) are the SDK's business.
//!
//! Defensive where services and their stand-ins differ: a spot instance is known by its lifecycle too, lists that a server may not
//! filter are filtered again here, a zone id may be absent, and one page is as good as many.

mod arc;
mod autoscaling;
pub mod calls;
mod clients;
mod ec2_fleet;
mod ec2_instances;
mod ec2_read;
mod ec2_templates;
mod ec2_types;
mod eks;
mod failure;
mod iam;
mod listed;
mod pricing;
mod proxies;
mod sqs;
mod ssm;
mod sts;

pub use clients::{Connection, Patience};
pub use proxies::Proxies;

use crate::wire::*;
use calls::Calls;
use kerf_cloud::aws::TypeFacts;
use kerf_cloud::clock::Clock;
use std::sync::Arc;

/// AWS, as one account and region see it.
#[derive(Clone)]
pub struct Sdk {
    region: String,
    calls: Arc<Calls>,
    clock: Arc<dyn Clock>,
    ec2: aws_sdk_ec2::Client,
    ssm: aws_sdk_ssm::Client,
    sqs: aws_sdk_sqs::Client,
    iam: aws_sdk_iam::Client,
    eks: aws_sdk_eks::Client,
    pricing: aws_sdk_pricing::Client,
    sts: aws_sdk_sts::Client,
    arc: aws_sdk_arczonalshift::Client,
    autoscaling: aws_sdk_autoscaling::Client,
}

impl Sdk {
    /// The region that was configured or found.
    pub fn region(&self) -> &str {
        &self.region
    }

    /// What has been asked so far.
    pub fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }
}

impl Aws for Sdk {
    fn describe_instance_types(&self, dry_run: bool) -> Reply<Vec<TypeFacts>> {
        let client = self.ec2.clone();
        Box::pin(async move {
            match dry_run {
                true => ec2_types::probe(&client).await,
                false => ec2_types::describe(&client).await,
            }
        })
    }

    fn describe_instance_type_offerings(&self) -> Reply<Vec<TypeInZone>> {
        let client = self.ec2.clone();
        Box::pin(async move { ec2_types::offerings(&client).await })
    }

    fn describe_spot_price_history(&self) -> Reply<Vec<SpotPrice>> {
        let (client, now) = (self.ec2.clone(), self.clock.now());
        Box::pin(async move { ec2_types::spot_prices(&client, now).await })
    }

    fn describe_subnets(&self, filters: Vec<Filter>) -> Reply<Vec<Subnet>> {
        let client = self.ec2.clone();
        Box::pin(async move { ec2_read::subnets(&client, filters).await })
    }

    fn describe_security_groups(&self, filters: Vec<Filter>) -> Reply<Vec<SecurityGroup>> {
        let client = self.ec2.clone();
        Box::pin(async move { ec2_read::security_groups(&client, filters).await })
    }

    fn describe_images(&self, query: ImageQuery) -> Reply<Vec<Image>> {
        let client = self.ec2.clone();
        Box::pin(async move { ec2_read::images(&client, query).await })
    }

    fn describe_capacity_reservations(&self, query: ReservationQuery) -> Reply<Vec<Reservation>> {
        let client = self.ec2.clone();
        Box::pin(async move { ec2_read::reservations(&client, query).await })
    }

    fn describe_placement_groups(&self, query: PlacementQuery) -> Reply<Vec<PlacementGroup>> {
        let client = self.ec2.clone();
        Box::pin(async move { ec2_read::placement_groups(&client, query).await })
    }

    fn create_launch_template(&self, order: TemplateOrder) -> Reply<Template> {
        let client = self.ec2.clone();
        Box::pin(async move { ec2_templates::create(&client, order).await })
    }

    fn describe_launch_templates(&self, query: TemplateQuery) -> Reply<Vec<Template>> {
        let client = self.ec2.clone();
        Box::pin(async move { ec2_templates::describe(&client, query).await })
    }

    fn delete_launch_template(&self, id: String) -> Reply<()> {
        let client = self.ec2.clone();
        Box::pin(async move { ec2_templates::delete(&client, id).await })
    }

    fn create_fleet(&self, order: FleetOrder) -> Reply<FleetReply> {
        let client = self.ec2.clone();
        Box::pin(async move { ec2_fleet::create(&client, order).await })
    }

    fn run_instances_dry_run(&self, order: RunOrder) -> Reply<()> {
        let client = self.ec2.clone();
        Box::pin(async move { ec2_fleet::run_dry(&client, order).await })
    }

    fn describe_instances(&self, query: InstanceQuery) -> Reply<Vec<Ec2Instance>> {
        let client = self.ec2.clone();
        Box::pin(async move { ec2_instances::describe(&client, query).await })
    }

    fn terminate_instances(&self, ids: Vec<String>) -> Reply<Vec<InstanceStateChange>> {
        let client = self.ec2.clone();
        Box::pin(async move { ec2_instances::terminate(&client, ids).await })
    }

    fn reboot_instances(&self, ids: Vec<String>) -> Reply<()> {
        let client = self.ec2.clone();
        Box::pin(async move { ec2_instances::reboot(&client, ids).await })
    }

    fn create_tags(&self, ids: Vec<String>, tags: Tags) -> Reply<()> {
        let client = self.ec2.clone();
        Box::pin(async move { ec2_instances::tag(&client, ids, tags).await })
    }

    fn describe_instance_status(&self, filters: Vec<Filter>) -> Reply<Vec<InstanceStatus>> {
        let client = self.ec2.clone();
        Box::pin(async move { ec2_instances::statuses(&client, filters).await })
    }

    fn get_parameter(&self, name: String) -> Reply<String> {
        let client = self.ssm.clone();
        Box::pin(async move { ssm::parameter(&client, name).await })
    }

    fn get_products(&self, query: PriceQuery) -> Reply<Vec<ListPrice>> {
        let (client, region) = (self.pricing.clone(), self.region.clone());
        Box::pin(async move { pricing::products(&client, &region, query).await })
    }

    fn get_queue_url(&self, name: String) -> Reply<String> {
        let client = self.sqs.clone();
        Box::pin(async move { sqs::url(&client, name).await })
    }

    fn receive_messages(&self, queue_url: String) -> Reply<Vec<QueueMessage>> {
        let client = self.sqs.clone();
        Box::pin(async move { sqs::receive(&client, queue_url).await })
    }

    fn delete_messages(&self, queue_url: String, receipts: Vec<String>) -> Reply<()> {
        let client = self.sqs.clone();
        Box::pin(async move { sqs::delete(&client, queue_url, receipts).await })
    }

    fn get_instance_profile(&self, name: String) -> Reply<InstanceProfile> {
        let client = self.iam.clone();
        Box::pin(async move { iam::get(&client, name).await })
    }

    fn create_instance_profile(&self, order: ProfileOrder) -> Reply<()> {
        let client = self.iam.clone();
        Box::pin(async move { iam::create(&client, order).await })
    }

    fn delete_instance_profile(&self, name: String) -> Reply<()> {
        let client = self.iam.clone();
        Box::pin(async move { iam::delete(&client, name).await })
    }

    fn add_role_to_instance_profile(&self, name: String, role: String) -> Reply<()> {
        let client = self.iam.clone();
        Box::pin(async move { iam::add_role(&client, name, role).await })
    }

    fn remove_role_from_instance_profile(&self, name: String, role: String) -> Reply<()> {
        let client = self.iam.clone();
        Box::pin(async move { iam::remove_role(&client, name, role).await })
    }

    fn list_instance_profiles(&self, path_prefix: String) -> Reply<Vec<InstanceProfile>> {
        let client = self.iam.clone();
        Box::pin(async move { iam::list(&client, path_prefix).await })
    }

    fn get_role(&self, name: String) -> Reply<String> {
        let client = self.iam.clone();
        Box::pin(async move { iam::role(&client, name).await })
    }

    fn describe_cluster(&self, name: String) -> Reply<EksCluster> {
        let client = self.eks.clone();
        Box::pin(async move { eks::cluster(&client, name).await })
    }

    fn get_caller_identity(&self) -> Reply<CallerIdentity> {
        let client = self.sts.clone();
        Box::pin(async move { sts::identity(&client).await })
    }

    fn decode_authorization_message(&self, encoded: String) -> Reply<String> {
        let client = self.sts.clone();
        Box::pin(async move { sts::decode(&client, encoded).await })
    }

    fn get_managed_resource(&self, arn: String) -> Reply<Vec<ZonalShift>> {
        let client = self.arc.clone();
        Box::pin(async move { arc::shifts(&client, arn).await })
    }

    fn complete_lifecycle_action(&self, action: LifecycleAction) -> Reply<()> {
        let client = self.autoscaling.clone();
        Box::pin(async move { autoscaling::complete(&client, action).await })
    }
}
