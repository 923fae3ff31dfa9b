//! The verdict on a class: whether nodes could be launched from it, found out before anybody waits for one.
//!
//! First what can be told by reading, then what only AWS can tell: a launch template is really made for one type, and a fleet
//! and an instance are asked for as dry runs. What AWS said is remembered for half an hour, as long as nothing about the class
//! changes; touching its annotations asks again.

use super::conditions::{self, Finding, Status};
use super::images::Chooser;
use super::{Classes, Draft, groups, name_of, plain};
use crate::advice;
use crate::bootstrap::{self, BootstrapError};
use crate::memory::Memory;
use crate::supply::ExpressionsVerdict;
use crate::templates::{self, ReadyTemplate, TemplateError, TemplateWants, Templates, TypeWanted};
use crate::wire::{Aws, Failure, FleetConfig, FleetOrder, FleetOverride, RunOrder, Tags};
use kerf_api::validate::kubelet;
use kerf_api::{AmiFamily, Ec2NodeClass, Problem, hash, labels};
use kerf_cloud::aws::AmiFamily as Family;
use kerf_cloud::{CloudError, LaunchOrder};
use kerf_model::{CapacityType, InstanceType, NodeClassRef, Requirements, Resources, UnixMillis};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// What AWS allowed is believed for so long.
const PASSED_FOR: Duration = Duration::from_secs(30 * 60);
/// What it refused, for less: somebody may be busy with the policy.
const REFUSED_FOR: Duration = Duration::from_secs(5 * 60);
const AGAIN_AFTER: Duration = Duration::from_secs(10 * 60);
/// While something is missing that comes by itself.
const SOON: Duration = Duration::from_secs(10);

/// Types that every region has, one for each architecture.
const FALLBACK: [&str; 2] = ["m5.large", "m6g.large"];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed { reason: &'static str, message: String },
}

/// What stopped the trial.
enum Stop {
    /// A verdict that lasts.
    Failed { reason: &'static str, message: String },
    /// A verdict for now: it may turn by itself.
    ForNow { reason: &'static str, message: String },
    /// No verdict. Try again.
    Trouble(String),
}

#[derive(Debug)]
pub(super) struct Verdicts {
    /// By class: over what, and which.
    known: Memory<String, (u64, Verdict)>,
}

impl Default for Verdicts {
    fn default() -> Self {
        Self { known: Memory::new(PASSED_FOR) }
    }
}

impl Verdicts {
    pub(super) fn forget(&self, class: &str) {
        self.known.remove(&class.to_owned());
    }
}

impl Classes {
    pub(super) async fn judge(&self, wire: &dyn Aws, draft: &mut Draft, templates: &Templates, now: UnixMillis) {
        let kind = conditions::VALIDATION;
        let read = match self.judge_cluster(wire, draft, now).await {
            None => self.judge_by_reading(draft),
            found => found,
        };
        if let Some((finding, again_after)) = read {
            return draft.find(finding, again_after);
        }
        let name = name_of(&draft.class);
        let over = fingerprint(&draft.class);
        let known = self.verdicts.known.get(&name, now).filter(|(known, _)| *known == over);
        let outcome = match known {
            Some((_, Verdict::Passed)) => Ok(()),
            Some((_, Verdict::Failed { reason, message })) => Err(Stop::Failed { reason, message }),
            None if self.settings.is_dry_run_disabled => Ok(()),
            None => {
                let outcome = self.try_out(wire, &draft.class, templates, now).await;
                self.remember(name, over, &outcome, now);
                outcome
            }
        };
        match outcome {
            Ok(()) => draft.find(Finding::holds(kind, self.off_elsewhere_in_words()), AGAIN_AFTER),
            Err(Stop::Failed { reason, message }) => draft.find(Finding::fails(kind, reason, message), REFUSED_FOR),
            Err(Stop::ForNow { reason, message }) => draft.find(Finding::fails(kind, reason, message), SOON),
            Err(Stop::Trouble(message)) => {
                draft.has_trouble = true;
                let finding = Finding::not_seen(&draft.class, kind, message, false);
                draft.find(finding, SOON);
            }
        }
    }

    fn remember(&self, name: String, over: u64, outcome: &Result<(), Stop>, now: UnixMillis) {
        let known = &self.verdicts.known;
        match outcome {
            Ok(()) => known.put(name, (over, Verdict::Passed), now),
            Err(Stop::Failed { reason, message }) => {
                let failed = Verdict::Failed { reason, message: message.clone() };
                known.put_for(name, (over, failed), REFUSED_FOR, now);
            }
            Err(Stop::ForNow { .. } | Stop::Trouble(_)) => drop(known.remove(&name)),
        }
    }

    /// AL2023 nodes are told the range of service addresses.
    async fn judge_cluster(&self, wire: &dyn Aws, draft: &Draft, now: UnixMillis) -> Option<(Finding, Duration)> {
        if draft.class.resolved_ami_family() != AmiFamily::Al2023 {
            return None;
        }
        let message = match self.cluster.service_cidr(wire, &self.settings).await {
            Ok(Some(_)) => return None,
            Ok(None) => format!(
                "AL2023 nodes must know the range of service addresses, which eks:DescribeCluster does not tell for cluster {}",
                self.settings.cluster_name
            ),
            Err(failure) => {
                self.note(&failure, now);
                let why = "AL2023 nodes must know the range of service addresses";
                self.in_words(wire, &draft.class, why, &failure, now).await
            }
        };
        Some((Finding::fails(conditions::VALIDATION, "ClusterCIDRResolutionFailed", message), Duration::from_secs(60)))
    }

    /// What needs no permission to be told. The order is the contract's.
    fn judge_by_reading(&self, draft: &Draft) -> Option<(Finding, Duration)> {
        let class = &draft.class;
        let fails = |reason: &'static str, message: String| {
            Some((Finding::fails(conditions::VALIDATION, reason, message), AGAIN_AFTER))
        };
        let settings = class.spec.kubelet.clone().unwrap_or_default();
        let problems = kubelet::problems(&settings);
        if !problems.is_empty() {
            return fails("InvalidKubeletConfiguration", joined(&problems));
        }
        let expressions = kubelet::expressions(&settings);
        if let (false, Some(first)) = (self.settings.has_node_class_cel, expressions.first()) {
            let message = format!(
                "{}: found the expression {:?}; a plain amount would do, or feature gate NodeClassCEL switched on",
                first.path, first.text
            );
            return fails("KubeletExpressionsDisabled", message);
        }
        if !expressions.is_empty()
            && let Err(why) = self.supply.compile_expressions(class)
        {
            return fails("KubeletExpressionInvalid", why);
        }
        let problems = kubelet::unsupported(&settings, &class.resolved_ami_family());
        if !problems.is_empty() {
            return fails("UnsupportedKubeletConfiguration", joined(&problems));
        }
        if let Some(waiting) = dependencies(&draft.findings) {
            return Some((waiting, AGAIN_AFTER));
        }
        match self.supply.evaluate_expressions(class) {
            Ok(()) => {}
            Err(ExpressionsVerdict::Failed(why)) => return fails("KubeletExpressionEvaluationFailed", why),
            Err(ExpressionsVerdict::NoTypesYet) => {
                let message = "expressions are evaluated for every instance type, and none is known yet";
                let finding = Finding::not_seen(class, conditions::VALIDATION, message.to_owned(), false);
                return Some((finding, SOON));
            }
        }
        let problems = class.validate_tags();
        if !problems.is_empty() {
            return fails("TagValidationFailed", joined(&problems));
        }
        if let Some(why) = groups::in_different_networks(&draft.groups, &draft.subnets) {
            return fails("SecurityGroupSubnetVPCMismatch", why);
        }
        let family = Family::parse(class.resolved_ami_family().as_str());
        match class.spec.user_data.as_deref().map(|text| bootstrap::check(family, text)) {
            Some(Err(error)) => fails(reason_of(&error), error.to_string()),
            _ => None,
        }
    }

    /// Lets AWS say whether a node could be launched.
    async fn try_out(
        &self,
        wire: &dyn Aws,
        class: &Ec2NodeClass,
        templates: &Templates,
        now: UnixMillis,
    ) -> Result<(), Stop> {
        let trouble = |failure: Failure| Stop::Trouble(plain(&failure));
        let cluster = self.discover(wire).await.map_err(trouble)?;
        let (instance_type, tenancy) = self.pick(class).map_err(|error| Stop::Trouble(error.to_string()))?;
        let tags = templates::tags(class, None, &self.settings.cluster_name);
        let placement_group = self.supply.placement_group(class);
        let order = nobodys_order(class);
        let wants = TemplateWants {
            class,
            order: &order,
            types: vec![TypeWanted { instance_type: &instance_type, offerings: Vec::new() }],
            supply: &*self.supply,
            cluster: &cluster,
            capacity_type: CapacityType::OnDemand,
            tenancy,
            placement_group: placement_group.as_ref(),
            tags: tags.clone(),
        };
        let template = match templates.prepare(wire, &wants).await {
            Ok(ready) => ready.into_iter().next().ok_or_else(|| Stop::Trouble("no template came of it".to_owned()))?,
            Err(TemplateError::Aws(failure)) => {
                return Err(self.stop(wire, class, &failure, "CreateLaunchTemplateAuthCheckFailed", now).await);
            }
            Err(TemplateError::UserData { source, .. }) => {
                return Err(Stop::Failed { reason: reason_of(&source), message: source.to_string() });
            }
            Err(error) => return Err(Stop::Trouble(error.to_string())),
        };
        let fleet = fleet(class, &instance_type, &template, &tags);
        if let Err(failure) = passed(wire.create_fleet(fleet).await.map(drop)) {
            forget_missing(templates, &template, &failure);
            return Err(self.stop(wire, class, &failure, "CreateFleetAuthCheckFailed", now).await);
        }
        let mut first_failure = None;
        for subnet in class.status.iter().flat_map(|status| &status.subnets) {
            let run = RunOrder {
                template_name: template.name.clone(),
                instance_type: instance_type.name.0.to_string(),
                image_id: Some(template.image_id.clone()),
                subnet_id: Some(subnet.id.clone()),
                is_spot: false,
                tags: tags.clone(),
            };
            match passed(wire.run_instances_dry_run(run).await) {
                Ok(()) => return Ok(()),
                Err(failure) => first_failure = first_failure.or(Some(failure)),
            }
        }
        match first_failure {
            Some(failure) => Err(self.stop(wire, class, &failure, "RunInstancesAuthCheckFailed", now).await),
            None => Ok(()),
        }
    }

    /// What a failed call means for the verdict: only a refusal is one; everything else may pass.
    async fn stop(
        &self,
        wire: &dyn Aws,
        class: &Ec2NodeClass,
        failure: &Failure,
        reason: &'static str,
        now: UnixMillis,
    ) -> Stop {
        if failure.is_throttled() || failure.is_server_error() {
            return Stop::Trouble(plain(failure));
        }
        if failure.message.contains("User data is limited to") {
            return Stop::Failed {
                reason: "UserDataSizeLimitExceeded",
                message: format!("spec.userData: {}", plain(failure)),
            };
        }
        if failure.message.contains("Invalid IAM Instance Profile name") {
            let Some(profile) = &class.spec.instance_profile else {
                // One that we made a moment ago: EC2 hears of it in some seconds.
                return Stop::Trouble(plain(failure));
            };
            let field = format!("EC2NodeClass {}: spec.instanceProfile", name_of(class));
            let bare = Failure { request_id: None, ..failure.clone() };
            let iam = (!self.settings.is_isolated_vpc).then_some(wire);
            let message = advice::invalid_profile(iam, &bare, &field, profile).await;
            return Stop::ForNow { reason: "InstanceProfileNotFound", message };
        }
        match failure.is_denied() {
            true => {
                let field = format!("EC2NodeClass {}", name_of(class));
                Stop::Failed { reason, message: self.in_words(wire, class, &field, failure, now).await }
            }
            false => Stop::Trouble(plain(failure)),
        }
    }

    /// A type to try with, and its tenancy: one that a pool of the class would buy, without accelerators if possible; else one
    /// that every region has.
    fn pick(&self, class: &Ec2NodeClass) -> Result<(Arc<InstanceType>, &'static str), CloudError> {
        let types = self.supply.instance_types(class)?;
        let name = name_of(class);
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let linked: Vec<Requirements> = pools
            .iter()
            .filter(|pool| *pool.node_class.kind == *super::NODE_CLASS.kind && *pool.node_class.name == *name)
            .map(|pool| {
                let mut wants = pool.requirements.clone();
                wants.add_all(&Requirements::from_labels(&pool.labels));
                wants
            })
            .collect();
        drop(pools);
        let is_dedicated =
            |wants: &Requirements| wants.get(labels::INSTANCE_TENANCY).is_some_and(|tenancy| tenancy.has("dedicated"));
        let tenancy = if linked.iter().any(is_dedicated) { "dedicated" } else { "default" };
        let amis = class.status.as_ref().map(|status| status.amis.as_slice()).unwrap_or_default();
        let chooser = Chooser::new(amis);
        let has_image = |it: &&Arc<InstanceType>| chooser.choose(it).is_some();
        let is_wanted = |it: &&Arc<InstanceType>| {
            linked.iter().any(|wants| it.requirements.compatible(wants, |_| true).is_ok())
                && it.offerings.iter().any(|offering| offering.available)
        };
        let is_standard = |it: &&Arc<InstanceType>| {
            let lacks =
                |key| it.requirements.get(key).is_none_or(|it| it.operator() == kerf_model::Operator::DoesNotExist);
            lacks(labels::INSTANCE_GPU_COUNT) && lacks(labels::INSTANCE_ACCELERATOR_COUNT)
        };
        let is_windows = class.resolved_ami_family().as_str().starts_with("Windows");
        let of_pools = types.iter().filter(|it| !is_windows && has_image(it) && is_wanted(it));
        let fallback =
            || FALLBACK.iter().find_map(|name| types.iter().find(|it| &*it.name.0 == *name && has_image(it)));
        let picked = of_pools.clone().find(is_standard).or_else(|| of_pools.clone().next()).or_else(fallback);
        let picked = picked.or_else(|| types.iter().find(has_image));
        picked.map(|it| (it.clone(), tenancy)).ok_or_else(|| CloudError::Other {
            message: format!(
                "EC2NodeClass {name}: none of the images in status.amis fits any instance type of the region"
            )
            .into(),
        })
    }
}

/// Unknown while something is, false when something is: there is nothing to try then.
fn dependencies(findings: &[Finding]) -> Option<Finding> {
    let wanted = [conditions::AMIS, conditions::INSTANCE_PROFILE, conditions::SECURITY_GROUPS, conditions::SUBNETS];
    let of = |status: Status| findings.iter().any(|finding| wanted.contains(&finding.kind) && finding.status == status);
    let message = "Awaiting AMI, Instance Profile, Security Group, and Subnet resolution";
    let reason = "DependenciesNotReady";
    match (of(Status::False), of(Status::Unknown)) {
        (true, _) => Some(Finding::fails(conditions::VALIDATION, reason, message)),
        (false, true) => Some(Finding::unknown(conditions::VALIDATION, reason, message)),
        (false, false) => None,
    }
}

fn reason_of(error: &BootstrapError) -> &'static str {
    match error {
        BootstrapError::TooLarge { .. } => "UserDataSizeLimitExceeded",
        BootstrapError::NoServiceCidr => "ClusterCIDRResolutionFailed",
        _ => "InvalidUserData",
    }
}

/// A dry run that would have succeeded fails with that word.
fn passed(answer: Result<(), Failure>) -> Result<(), Failure> {
    match answer {
        Err(failure) if failure.is_dry_run_passed() => Ok(()),
        answer => answer,
    }
}

fn forget_missing(templates: &Templates, template: &ReadyTemplate, failure: &Failure) {
    if failure.is_not_found() {
        templates.forget([template.name.as_str()]);
    }
}

/// In every zone of the class, as a real launch would.
fn fleet(class: &Ec2NodeClass, instance_type: &InstanceType, template: &ReadyTemplate, tags: &Tags) -> FleetOrder {
    let mut by_zone: BTreeMap<&str, &str> = BTreeMap::new();
    for subnet in class.status.iter().flat_map(|status| &status.subnets) {
        by_zone.entry(&subnet.zone).or_insert(&subnet.id);
    }
    let one = |(zone, subnet): (&str, &str)| FleetOverride {
        instance_type: instance_type.name.0.to_string(),
        subnet_id: Some(subnet.to_owned()),
        image_id: Some(template.image_id.clone()),
        zone: zone.to_owned(),
        priority: None,
    };
    FleetOrder {
        context: class.spec.context.clone(),
        configs: vec![FleetConfig {
            template_name: template.name.clone(),
            overrides: by_zone.into_iter().map(one).collect(),
        }],
        n_instances: 1,
        capacity_type: labels::ON_DEMAND.to_owned(),
        on_demand_strategy: Some("lowest-price".to_owned()),
        tags: tags.clone(),
        dry_run: true,
        ..FleetOrder::default()
    }
}

/// An order that no claim gave.
fn nobodys_order(class: &Ec2NodeClass) -> LaunchOrder {
    LaunchOrder {
        claim: "".into(),
        uid: "".into(),
        pool: None,
        node_class: NodeClassRef {
            group: super::NODE_CLASS.group.into(),
            kind: super::NODE_CLASS.kind.into(),
            name: name_of(class).into(),
        },
        class_object: None,
        requirements: Requirements::new(),
        requests: Resources::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        avoid: Vec::new(),
    }
}

/// Everything that a verdict is about. Annotations are in it so that a person can ask for another look; our own are not.
fn fingerprint(class: &Ec2NodeClass) -> u64 {
    let ours = [labels::EC2_NODE_CLASS_HASH, labels::EC2_NODE_CLASS_HASH_VERSION];
    let annotations: BTreeMap<&String, &String> =
        class.metadata.annotations.iter().flatten().filter(|(key, _)| !ours.contains(&key.as_str())).collect();
    let status = class.status.clone().map(|status| kerf_api::Ec2NodeClassStatus { conditions: Vec::new(), ..status });
    hash::fnv1(json!([class.spec, status, annotations]).to_string().as_bytes())
}

fn joined(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
