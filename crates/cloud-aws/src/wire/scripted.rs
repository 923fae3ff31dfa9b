//! An AWS that answers from tables, for tests of everything above the wire.
//!
//! It is no model of EC2: it keeps what it is told, matches filters by equality, and fails where a test says so. What AWS really
//! does is asked of a server that others wrote.

use super::*;
use kerf_model::Money;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared by whoever clones it.
#[derive(Clone, Default)]
pub struct Scripted(Arc<Mutex<Account>>);

#[derive(Default)]
pub struct Account {
    pub types: Vec<TypeFacts>,
    pub offerings: Vec<TypeInZone>,
    pub spot_prices: Vec<SpotPrice>,
    pub list_prices: Vec<ListPrice>,
    pub subnets: Vec<Subnet>,
    pub security_groups: Vec<SecurityGroup>,
    pub images: Vec<(Image, Tags)>,
    pub reservations: Vec<Reservation>,
    pub placement_groups: Vec<PlacementGroup>,
    pub templates: Vec<(Template, TemplateData)>,
    pub instances: Vec<Ec2Instance>,
    pub statuses: Vec<InstanceStatus>,
    pub parameters: BTreeMap<String, String>,
    pub queues: BTreeMap<String, Vec<QueueMessage>>,
    pub profiles: BTreeMap<String, InstanceProfile>,
    /// ARNs by name.
    pub roles: BTreeMap<String, String>,
    pub cluster: Option<EksCluster>,
    pub identity: CallerIdentity,
    pub decoded: BTreeMap<String, String>,
    pub shifts: Vec<ZonalShift>,
    /// What each call is refused with, in order; without one it succeeds. A failure under `*` of an action stays.
    pub failures: BTreeMap<&'static str, VecDeque<Failure>>,
    pub always: BTreeMap<&'static str, Failure>,
    /// Offerings without stock: (capacity type, instance type, zone). CreateFleet answers with an error for each.
    pub sold_out: Vec<(String, String, String)>,
    /// Every call, in order: the action and its request.
    pub calls: Vec<(&'static str, String)>,
    /// What the next launches are answered with, whatever there is.
    pub fleet_replies: VecDeque<FleetReply>,
    /// Launches by their tokens: who repeats a request gets the same answer, who makes another under a token none.
    pub answered: BTreeMap<String, (FleetOrder, FleetReply)>,
    /// Actions whose next calls are carried out, as often as said, and not answered.
    pub lost: BTreeMap<&'static str, usize>,
    pub n_launched: usize,
    pub now_ms: i64,
}

impl Scripted {
    pub fn account(&self) -> MutexGuard<'_, Account> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn count(&self, action: &str) -> usize {
        self.account().calls.iter().filter(|(called, _)| *called == action).count()
    }

    pub fn fail_next(&self, failure: Failure) {
        self.account().failures.entry(failure.action).or_default().push_back(failure);
    }

    /// The next call is carried out, and its answer lost.
    pub fn lose_next(&self, action: &'static str) {
        *self.account().lost.entry(action).or_default() += 1;
    }

    pub fn fail_always(&self, failure: Failure) {
        self.account().always.insert(failure.action, failure);
    }

    fn answer<T: Send + 'static>(
        &self,
        action: &'static str,
        request: String,
        work: impl FnOnce(&mut Account) -> Result<T, Failure>,
    ) -> Reply<T> {
        let mut account = self.account();
        account.calls.push((action, request));
        let planned = account.failures.get_mut(action).and_then(VecDeque::pop_front);
        let planned = planned.or_else(|| account.always.get(action).cloned());
        let mut answer = match planned {
            Some(failure) => Err(failure),
            None => work(&mut account),
        };
        if let Some(left) = account.lost.get_mut(action).filter(|left| **left > 0) {
            *left -= 1;
            answer = Err(Failure { status: 0, ..Failure::new(action, "", "the connection broke off") });
        }
        Box::pin(std::future::ready(answer))
    }
}

fn missing(action: &'static str, code: &str, what: &str) -> Failure {
    Failure::new(action, code, &format!("{what} does not exist"))
}

/// Whether something with these attributes and tags passes the filters. `*` at the end of a value stands for anything.
fn passes(filters: &[Filter], tags: &Tags, attribute: impl Fn(&str) -> Option<String>) -> bool {
    let equals = |wanted: &str, found: &str| match wanted.split_once('*') {
        Some((before, after)) => {
            found.len() >= before.len() + after.len() && found.starts_with(before) && found.ends_with(after)
        }
        None => wanted == found,
    };
    filters.iter().all(|filter| {
        let any = |found: &str| filter.values.iter().any(|wanted| equals(wanted, found));
        match filter.name.strip_prefix("tag:") {
            Some(key) => tags.get(key).is_some_and(|value| any(value)),
            None if filter.name == "tag-key" => tags.keys().any(|key| any(key)),
            None => attribute(&filter.name).is_some_and(|value| any(&value)),
        }
    })
}

impl Aws for Scripted {
    fn describe_instance_types(&self, dry_run: bool) -> Reply<Vec<TypeFacts>> {
        self.answer("ec2:DescribeInstanceTypes", format!("dry_run={dry_run}"), |account| Ok(account.types.clone()))
    }

    fn describe_instance_type_offerings(&self) -> Reply<Vec<TypeInZone>> {
        self.answer("ec2:DescribeInstanceTypeOfferings", String::new(), |account| Ok(account.offerings.clone()))
    }

    fn describe_spot_price_history(&self) -> Reply<Vec<SpotPrice>> {
        self.answer("ec2:DescribeSpotPriceHistory", String::new(), |account| Ok(account.spot_prices.clone()))
    }

    fn describe_subnets(&self, filters: Vec<Filter>) -> Reply<Vec<Subnet>> {
        self.answer("ec2:DescribeSubnets", format!("{filters:?}"), |account| {
            let found = account.subnets.iter().filter(|subnet| {
                passes(&filters, &subnet.tags, |name| (name == "subnet-id").then(|| subnet.id.clone()))
            });
            Ok(found.cloned().collect())
        })
    }

    fn describe_security_groups(&self, filters: Vec<Filter>) -> Reply<Vec<SecurityGroup>> {
        self.answer("ec2:DescribeSecurityGroups", format!("{filters:?}"), |account| {
            let found = account.security_groups.iter().filter(|group| {
                passes(&filters, &group.tags, |name| match name {
                    "group-id" => Some(group.id.clone()),
                    "group-name" => Some(group.name.clone()),
                    _ => None,
                })
            });
            Ok(found.cloned().collect())
        })
    }

    fn describe_images(&self, query: ImageQuery) -> Reply<Vec<Image>> {
        self.answer("ec2:DescribeImages", format!("{query:?}"), |account| {
            let found = account.images.iter().filter(|(image, tags)| {
                let owned = query.owners.is_empty() || query.owners.contains(&image.owner);
                owned
                    && passes(&query.filters, tags, |name| match name {
                        "image-id" => Some(image.id.clone()),
                        "name" => Some(image.name.clone()),
                        "state" => Some("available".to_owned()),
                        _ => None,
                    })
            });
            Ok(found.map(|(image, _)| image.clone()).collect())
        })
    }

    fn describe_capacity_reservations(&self, query: ReservationQuery) -> Reply<Vec<Reservation>> {
        self.answer("ec2:DescribeCapacityReservations", format!("{query:?}"), |account| {
            let found: Vec<Reservation> = account
                .reservations
                .iter()
                .filter(|reservation| query.id.as_ref().is_none_or(|id| *id == reservation.id))
                .filter(|reservation| {
                    passes(&query.filters, &reservation.tags, |name| match name {
                        "state" => Some(reservation.state.clone()),
                        "owner-id" => Some(reservation.owner_id.clone()),
                        "instance-match-criteria" => Some(reservation.match_criteria.clone()),
                        _ => None,
                    })
                })
                .cloned()
                .collect();
            match (&query.id, found.is_empty()) {
                (Some(id), true) => {
                    Err(missing("ec2:DescribeCapacityReservations", "InvalidCapacityReservationId.NotFound", id))
                }
                _ => Ok(found),
            }
        })
    }

    fn describe_placement_groups(&self, query: PlacementQuery) -> Reply<Vec<PlacementGroup>> {
        self.answer("ec2:DescribePlacementGroups", format!("{query:?}"), |account| {
            const ACTION: &str = "ec2:DescribePlacementGroups";
            const FILTERS: [&str; 3] = ["group-name", "state", "strategy"];
            if let Some(filter) = query.filters.iter().find(|filter| !FILTERS.contains(&filter.name.as_str())) {
                let message = format!("The filter '{}' is invalid", filter.name);
                return Err(Failure::new(ACTION, "InvalidParameterValue", &message));
            }
            let of_id = |group: &&PlacementGroup| query.id.as_ref().is_none_or(|id| *id == group.id);
            let known: Vec<&PlacementGroup> = account.placement_groups.iter().filter(of_id).collect();
            if let (Some(id), true) = (&query.id, known.is_empty()) {
                return Err(missing(ACTION, "InvalidPlacementGroup.Unknown", id));
            }
            let found = known.into_iter().filter(|group| {
                passes(&query.filters, &Tags::new(), |name| match name {
                    "group-name" => Some(group.name.clone()),
                    "state" => Some(group.state.clone()),
                    _ => Some(group.strategy.clone()),
                })
            });
            Ok(found.cloned().collect())
        })
    }

    fn create_launch_template(&self, order: TemplateOrder) -> Reply<Template> {
        self.answer("ec2:CreateLaunchTemplate", format!("{order:?}"), |account| {
            let id = format!("lt-{:04}", account.templates.len());
            let template = Template { id, name: order.name, tags: order.tags };
            account.templates.push((template.clone(), order.data));
            Ok(template)
        })
    }

    fn describe_launch_templates(&self, query: TemplateQuery) -> Reply<Vec<Template>> {
        self.answer("ec2:DescribeLaunchTemplates", format!("{query:?}"), |account| {
            let found: Vec<Template> = account
                .templates
                .iter()
                .map(|(template, _)| template)
                .filter(|template| query.names.is_empty() || query.names.contains(&template.name))
                .filter(|template| passes(&query.filters, &template.tags, |_| None))
                .cloned()
                .collect();
            match query.names.iter().find(|name| !found.iter().any(|template| template.name == **name)) {
                Some(name) => {
                    Err(missing("ec2:DescribeLaunchTemplates", "InvalidLaunchTemplateName.NotFoundException", name))
                }
                None => Ok(found),
            }
        })
    }

    fn delete_launch_template(&self, id: String) -> Reply<()> {
        self.answer("ec2:DeleteLaunchTemplate", id.clone(), |account| {
            let before = account.templates.len();
            account.templates.retain(|(template, _)| template.id != id);
            match account.templates.len() == before {
                true => Err(missing("ec2:DeleteLaunchTemplate", "InvalidLaunchTemplateId.NotFound", &id)),
                false => Ok(()),
            }
        })
    }

    fn create_fleet(&self, order: FleetOrder) -> Reply<FleetReply> {
        self.answer("ec2:CreateFleet", format!("{order:?}"), |account| {
            if order.dry_run {
                return Err(Failure::new("ec2:CreateFleet", "DryRunOperation", "Request would have succeeded"));
            }
            if let Some((before, reply)) = order.client_token.as_ref().and_then(|token| account.answered.get(token)) {
                let message = "The request uses the same client token as a previous, but non-identical request";
                let other = Failure::new("ec2:CreateFleet", "IdempotentParameterMismatch", message);
                return if *before == order { Ok(reply.clone()) } else { Err(other) };
            }
            if let Some(reply) = account.fleet_replies.pop_front() {
                return Ok(reply);
            }
            for config in &order.configs {
                if !account.templates.iter().any(|(template, _)| template.name == config.template_name) {
                    let code = "InvalidLaunchTemplateName.NotFoundException";
                    return Err(missing("ec2:CreateFleet", code, &config.template_name));
                }
            }
            let ways: Vec<(&FleetConfig, &FleetOverride)> = order
                .configs
                .iter()
                .flat_map(|config| config.overrides.iter().map(move |over| (config, over)))
                .collect();
            let is_dry = |over: &FleetOverride| {
                let key = (order.capacity_type.clone(), over.instance_type.clone(), over.zone.clone());
                account.sold_out.contains(&key)
            };
            let errors = ways.iter().filter(|(_, over)| is_dry(over)).map(|(_, over)| FleetError {
                code: "InsufficientInstanceCapacity".to_owned(),
                message: format!("no {} capacity for {}", order.capacity_type, over.instance_type),
                instance_type: Some(over.instance_type.clone()),
                zone: Some(over.zone.clone()),
                subnet_id: over.subnet_id.clone(),
            });
            let mut reply = FleetReply { errors: errors.collect(), ..FleetReply::default() };
            let left = ways.iter().filter(|(_, over)| !is_dry(over));
            let best = left.min_by_key(|(_, over)| over.priority.unwrap_or(Money::default()));
            if let Some((config, over)) = best {
                let is_spot = order.capacity_type == "spot";
                let made_from = account.templates.iter().find(|(template, _)| template.name == config.template_name);
                let data = made_from.map(|(_, data)| data.clone()).unwrap_or_default();
                let subnet = account.subnets.iter().find(|subnet| Some(&subnet.id) == over.subnet_id.as_ref());
                let zone_id = subnet.and_then(|subnet| subnet.zone_id.clone());
                let n_efa =
                    data.interfaces.iter().filter(|it| it.kind.as_deref().is_some_and(|kind| kind.starts_with("efa")));
                let n_efa = u32::try_from(n_efa.count()).unwrap_or_default();
                let reservation = data.reservation.clone().unwrap_or_default();
                let mut ids = Vec::new();
                for _ in 0..order.n_instances {
                    account.n_launched += 1;
                    let id = format!("i-{:017x}", account.n_launched);
                    ids.push(id.clone());
                    account.instances.push(Ec2Instance {
                        id,
                        instance_type: over.instance_type.clone(),
                        state: "running".to_owned(),
                        zone: over.zone.clone(),
                        zone_id: zone_id.clone(),
                        subnet_id: over.subnet_id.clone(),
                        image_id: over.image_id.clone().unwrap_or_else(|| data.image_id.clone()),
                        security_group_ids: data.interfaces.first().map(|it| it.groups.clone()).unwrap_or_default(),
                        launched_ms: account.now_ms,
                        tenancy: data.tenancy.clone(),
                        is_spot,
                        reservation_id: reservation.target_id.clone(),
                        reservation_preference: data.reservation.as_ref().map(|it| it.preference.clone()),
                        n_efa_interfaces: n_efa,
                        placement_group_id: data.placement_group_id.clone(),
                        partition: data.partition,
                        tags: order.tags.clone(),
                        ..Ec2Instance::default()
                    });
                }
                reply.instances.push(FleetInstance {
                    ids,
                    instance_type: over.instance_type.clone(),
                    zone: Some(over.zone.clone()),
                    subnet_id: over.subnet_id.clone(),
                    image_id: over.image_id.clone(),
                    template_name: Some(config.template_name.clone()),
                    is_spot,
                });
            }
            if let Some(token) = &order.client_token {
                account.answered.insert(token.clone(), (order.clone(), reply.clone()));
            }
            Ok(reply)
        })
    }

    fn run_instances_dry_run(&self, order: RunOrder) -> Reply<()> {
        self.answer("ec2:RunInstances", format!("{order:?}"), |_| {
            Err(Failure::new("ec2:RunInstances", "DryRunOperation", "Request would have succeeded"))
        })
    }

    fn describe_instances(&self, query: InstanceQuery) -> Reply<Vec<Ec2Instance>> {
        self.answer("ec2:DescribeInstances", format!("{query:?}"), |account| {
            let unknown = query.ids.iter().find(|id| !account.instances.iter().any(|instance| instance.id == **id));
            if let Some(id) = unknown {
                return Err(missing("ec2:DescribeInstances", "InvalidInstanceID.NotFound", id));
            }
            let found = account
                .instances
                .iter()
                .filter(|instance| query.ids.is_empty() || query.ids.contains(&instance.id))
                .filter(|instance| {
                    passes(&query.filters, &instance.tags, |name| match name {
                        "instance-state-name" => Some(instance.state.clone()),
                        "instance-id" => Some(instance.id.clone()),
                        _ => None,
                    })
                });
            Ok(found.cloned().collect())
        })
    }

    fn terminate_instances(&self, ids: Vec<String>) -> Reply<Vec<InstanceStateChange>> {
        self.answer("ec2:TerminateInstances", format!("{ids:?}"), |account| {
            let unknown = ids.iter().find(|id| !account.instances.iter().any(|instance| instance.id == **id));
            if let Some(id) = unknown {
                return Err(missing("ec2:TerminateInstances", "InvalidInstanceID.NotFound", id));
            }
            let mut out = Vec::new();
            for instance in account.instances.iter_mut().filter(|instance| ids.contains(&instance.id)) {
                instance.state = "terminated".to_owned();
                out.push(InstanceStateChange { id: instance.id.clone(), state: "shutting-down".to_owned() });
            }
            Ok(out)
        })
    }

    fn reboot_instances(&self, ids: Vec<String>) -> Reply<()> {
        self.answer("ec2:RebootInstances", format!("{ids:?}"), |account| {
            match ids.iter().find(|id| !account.instances.iter().any(|instance| instance.id == **id)) {
                Some(id) => Err(missing("ec2:RebootInstances", "InvalidInstanceID.NotFound", id)),
                None => Ok(()),
            }
        })
    }

    fn create_tags(&self, ids: Vec<String>, tags: Tags) -> Reply<()> {
        self.answer("ec2:CreateTags", format!("{ids:?} {tags:?}"), |account| {
            for instance in account.instances.iter_mut().filter(|instance| ids.contains(&instance.id)) {
                instance.tags.extend(tags.clone());
            }
            Ok(())
        })
    }

    fn describe_instance_status(&self, filters: Vec<Filter>) -> Reply<Vec<InstanceStatus>> {
        self.answer("ec2:DescribeInstanceStatus", format!("{filters:?}"), |account| {
            let found = account.statuses.iter().filter(|status| {
                filters.iter().all(|filter| match filter.name.as_str() {
                    "instance-status.status" => filter.values.contains(&status.instance_status),
                    "system-status.status" => filter.values.contains(&status.system_status),
                    "event.code" => status.events.iter().any(|event| filter.values.contains(&event.code)),
                    _ => false,
                })
            });
            Ok(found.cloned().collect())
        })
    }

    fn get_parameter(&self, name: String) -> Reply<String> {
        self.answer("ssm:GetParameter", name.clone(), |account| {
            account
                .parameters
                .get(&name)
                .cloned()
                .ok_or_else(|| missing("ssm:GetParameter", "ParameterNotFound", &name))
        })
    }

    fn get_products(&self, query: PriceQuery) -> Reply<Vec<ListPrice>> {
        self.answer("pricing:GetProducts", format!("{query:?}"), |account| {
            let is_metal =
                |price: &&ListPrice| price.instance_type.contains("metal") == (query == PriceQuery::BareMetal);
            Ok(account.list_prices.iter().filter(is_metal).cloned().collect())
        })
    }

    fn get_queue_url(&self, name: String) -> Reply<String> {
        self.answer("sqs:GetQueueUrl", name.clone(), |account| match account.queues.contains_key(&name) {
            true => Ok(format!("https://sqs.test/{name}")),
            false => Err(missing("sqs:GetQueueUrl", "AWS.SimpleQueueService.NonExistentQueue", &name)),
        })
    }

    fn receive_messages(&self, queue_url: String) -> Reply<Vec<QueueMessage>> {
        self.answer("sqs:ReceiveMessage", queue_url.clone(), |account| {
            let name = queue_url.rsplit('/').next().unwrap_or_default();
            Ok(account.queues.get(name).map(|queue| queue.iter().take(10).cloned().collect()).unwrap_or_default())
        })
    }

    fn delete_messages(&self, queue_url: String, receipts: Vec<String>) -> Reply<()> {
        self.answer("sqs:DeleteMessage", format!("{queue_url} {receipts:?}"), |account| {
            for queue in account.queues.values_mut() {
                queue.retain(|message| !receipts.contains(&message.receipt));
            }
            Ok(())
        })
    }

    fn get_instance_profile(&self, name: String) -> Reply<InstanceProfile> {
        self.answer("iam:GetInstanceProfile", name.clone(), |account| {
            let found = account.profiles.get(&name).cloned();
            found.ok_or_else(|| missing("iam:GetInstanceProfile", "NoSuchEntity", &format!("Instance Profile {name}")))
        })
    }

    fn create_instance_profile(&self, order: ProfileOrder) -> Reply<()> {
        self.answer("iam:CreateInstanceProfile", format!("{order:?}"), |account| {
            let ProfileOrder { name, path, tags } = order;
            account.profiles.insert(name.clone(), InstanceProfile { name, path, roles: Vec::new(), tags });
            Ok(())
        })
    }

    fn delete_instance_profile(&self, name: String) -> Reply<()> {
        self.answer("iam:DeleteInstanceProfile", name.clone(), |account| {
            let gone = account.profiles.remove(&name);
            gone.map(drop).ok_or_else(|| missing("iam:DeleteInstanceProfile", "NoSuchEntity", &name))
        })
    }

    fn add_role_to_instance_profile(&self, name: String, role: String) -> Reply<()> {
        self.answer("iam:AddRoleToInstanceProfile", format!("{name} {role}"), |account| {
            match account.profiles.get_mut(&name) {
                Some(profile) => {
                    profile.roles.push(role);
                    Ok(())
                }
                None => Err(missing("iam:AddRoleToInstanceProfile", "NoSuchEntity", &name)),
            }
        })
    }

    fn remove_role_from_instance_profile(&self, name: String, role: String) -> Reply<()> {
        self.answer("iam:RemoveRoleFromInstanceProfile", format!("{name} {role}"), |account| {
            if let Some(profile) = account.profiles.get_mut(&name) {
                profile.roles.retain(|held| *held != role);
            }
            Ok(())
        })
    }

    fn list_instance_profiles(&self, path_prefix: String) -> Reply<Vec<InstanceProfile>> {
        self.answer("iam:ListInstanceProfiles", path_prefix.clone(), |account| {
            let found = account.profiles.values().filter(|profile| profile.path.starts_with(&path_prefix));
            Ok(found.cloned().collect())
        })
    }

    fn get_role(&self, name: String) -> Reply<String> {
        self.answer("iam:GetRole", name.clone(), |account| {
            let found = account.roles.get(&name).cloned();
            found.ok_or_else(|| missing("iam:GetRole", "NoSuchEntity", &format!("The role with name {name}")))
        })
    }

    fn describe_cluster(&self, name: String) -> Reply<EksCluster> {
        self.answer("eks:DescribeCluster", name.clone(), |account| {
            let found = account.cluster.clone();
            found.ok_or_else(|| missing("eks:DescribeCluster", "ResourceNotFoundException", &name))
        })
    }

    fn get_caller_identity(&self) -> Reply<CallerIdentity> {
        self.answer("sts:GetCallerIdentity", String::new(), |account| Ok(account.identity.clone()))
    }

    fn decode_authorization_message(&self, encoded: String) -> Reply<String> {
        self.answer("sts:DecodeAuthorizationMessage", encoded.clone(), |account| {
            let found = account.decoded.get(&encoded).cloned();
            found.ok_or_else(|| {
                Failure::new(
                    "sts:DecodeAuthorizationMessage",
                    "InvalidAuthorizationMessageException",
                    "cannot be decoded",
                )
            })
        })
    }

    fn get_managed_resource(&self, arn: String) -> Reply<Vec<ZonalShift>> {
        self.answer("arc-zonal-shift:GetManagedResource", arn, |account| Ok(account.shifts.clone()))
    }

    fn complete_lifecycle_action(&self, action: LifecycleAction) -> Reply<()> {
        self.answer("autoscaling:CompleteLifecycleAction", format!("{action:?}"), |_| Ok(()))
    }
}
