//! A wire that only reads. What would change something is answered as if it had been done.

use kerf_cloud::aws::TypeFacts;
use kerf_cloud_aws::wire::*;
use std::future::ready;
use std::sync::Arc;

pub(super) struct ReadOnly {
    inner: Arc<dyn Aws>,
}

impl ReadOnly {
    pub(super) fn new(inner: Arc<dyn Aws>) -> Self {
        Self { inner }
    }
}

/// Done, as far as anybody can tell.
fn done<T: Send + 'static>(answer: T) -> Reply<T> {
    Box::pin(ready(Ok(answer)))
}

/// What has no answer that could be made up.
fn refused<T: Send + 'static>(action: &'static str) -> Reply<T> {
    Box::pin(ready(Err(Failure::new(action, "ReadOnly", "nothing is changed here"))))
}

impl Aws for ReadOnly {
    fn describe_instance_types(&self, dry_run: bool) -> Reply<Vec<TypeFacts>> {
        self.inner.describe_instance_types(dry_run)
    }

    fn describe_instance_type_offerings(&self) -> Reply<Vec<TypeInZone>> {
        self.inner.describe_instance_type_offerings()
    }

    fn describe_spot_price_history(&self) -> Reply<Vec<SpotPrice>> {
        self.inner.describe_spot_price_history()
    }

    fn describe_subnets(&self, filters: Vec<Filter>) -> Reply<Vec<Subnet>> {
        self.inner.describe_subnets(filters)
    }

    fn describe_security_groups(&self, filters: Vec<Filter>) -> Reply<Vec<SecurityGroup>> {
        self.inner.describe_security_groups(filters)
    }

    fn describe_images(&self, query: ImageQuery) -> Reply<Vec<Image>> {
        self.inner.describe_images(query)
    }

    fn describe_capacity_reservations(&self, query: ReservationQuery) -> Reply<Vec<Reservation>> {
        self.inner.describe_capacity_reservations(query)
    }

    fn describe_placement_groups(&self, query: PlacementQuery) -> Reply<Vec<PlacementGroup>> {
        self.inner.describe_placement_groups(query)
    }

    fn create_launch_template(&self, order: TemplateOrder) -> Reply<Template> {
        done(Template { id: "lt-read-only".to_owned(), name: order.name, tags: order.tags })
    }

    fn describe_launch_templates(&self, query: TemplateQuery) -> Reply<Vec<Template>> {
        self.inner.describe_launch_templates(query)
    }

    fn delete_launch_template(&self, _: String) -> Reply<()> {
        done(())
    }

    fn create_fleet(&self, order: FleetOrder) -> Reply<FleetReply> {
        match order.dry_run {
            true => self.inner.create_fleet(order),
            false => refused("ec2:CreateFleet"),
        }
    }

    fn run_instances_dry_run(&self, order: RunOrder) -> Reply<()> {
        self.inner.run_instances_dry_run(order)
    }

    fn describe_instances(&self, query: InstanceQuery) -> Reply<Vec<Ec2Instance>> {
        self.inner.describe_instances(query)
    }

    fn terminate_instances(&self, _: Vec<String>) -> Reply<Vec<InstanceStateChange>> {
        refused("ec2:TerminateInstances")
    }

    fn reboot_instances(&self, _: Vec<String>) -> Reply<()> {
        refused("ec2:RebootInstances")
    }

    fn create_tags(&self, _: Vec<String>, _: Tags) -> Reply<()> {
        done(())
    }

    fn describe_instance_status(&self, filters: Vec<Filter>) -> Reply<Vec<InstanceStatus>> {
        self.inner.describe_instance_status(filters)
    }

    fn get_parameter(&self, name: String) -> Reply<String> {
        self.inner.get_parameter(name)
    }

    fn get_products(&self, query: PriceQuery) -> Reply<Vec<ListPrice>> {
        self.inner.get_products(query)
    }

    fn get_queue_url(&self, name: String) -> Reply<String> {
        self.inner.get_queue_url(name)
    }

    /// Who receives a message hides it from others for a while.
    fn receive_messages(&self, _: String) -> Reply<Vec<QueueMessage>> {
        done(Vec::new())
    }

    fn delete_messages(&self, _: String, _: Vec<String>) -> Reply<()> {
        done(())
    }

    fn get_instance_profile(&self, name: String) -> Reply<InstanceProfile> {
        self.inner.get_instance_profile(name)
    }

    fn create_instance_profile(&self, _: ProfileOrder) -> Reply<()> {
        done(())
    }

    fn delete_instance_profile(&self, _: String) -> Reply<()> {
        done(())
    }

    fn add_role_to_instance_profile(&self, _: String, _: String) -> Reply<()> {
        done(())
    }

    fn remove_role_from_instance_profile(&self, _: String, _: String) -> Reply<()> {
        done(())
    }

    fn list_instance_profiles(&self, path_prefix: String) -> Reply<Vec<InstanceProfile>> {
        self.inner.list_instance_profiles(path_prefix)
    }

    fn get_role(&self, name: String) -> Reply<String> {
        self.inner.get_role(name)
    }

    fn describe_cluster(&self, name: String) -> Reply<EksCluster> {
        self.inner.describe_cluster(name)
    }

    fn get_caller_identity(&self) -> Reply<CallerIdentity> {
        self.inner.get_caller_identity()
    }

    fn decode_authorization_message(&self, encoded: String) -> Reply<String> {
        self.inner.decode_authorization_message(encoded)
    }

    fn get_managed_resource(&self, arn: String) -> Reply<Vec<ZonalShift>> {
        self.inner.get_managed_resource(arn)
    }

    fn complete_lifecycle_action(&self, _: LifecycleAction) -> Reply<()> {
        refused("autoscaling:CompleteLifecycleAction")
    }
}
