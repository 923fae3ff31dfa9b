//! What we may ask of AWS: one cheap question for each call that the operator makes.
//!
//! A question about something that does not exist tells as much as one about something that does: an answer that it is not there
//! is an answer, and only a refusal is a no. Calls that change something are tried as dry runs, or not at all.

use super::report::{Finding, Verdict};
use kerf_cloud_aws::advice::{Expected, Optional, Scope, explain};
use kerf_cloud_aws::settings::Settings;
use kerf_cloud_aws::wire::{
    Aws, CallerIdentity, Failure, Filter, FleetConfig, FleetOrder, FleetOverride, ImageQuery, InstanceQuery,
    PlacementQuery, PriceQuery, Reply, ReservationQuery, TemplateQuery,
};
use serde_json::json;

/// A name that nothing has.
const NOTHING: &str = "kerf-aws-check";

struct Question {
    action: &'static str,
    /// Whether nodes cannot be had without it. Others switch a feature off.
    is_needed: bool,
    answer: Reply<()>,
}

pub(super) async fn ask_all(
    wire: &dyn Aws,
    settings: &Settings,
    scope: &Scope,
    identity: &CallerIdentity,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for question in questions(wire, settings) {
        let Question { action, is_needed, answer } = question;
        findings.push(judge(action, is_needed, answer.await, scope, identity));
    }
    findings
}

fn judge(
    action: &'static str,
    is_needed: bool,
    answer: Result<(), Failure>,
    scope: &Scope,
    identity: &CallerIdentity,
) -> Finding {
    let failure = match answer {
        Ok(()) => return Finding::new(Verdict::Ok, action, "allowed"),
        Err(failure) => failure,
    };
    if failure.is_denied() {
        let optional = Optional::of(action).filter(|_| !is_needed);
        let denied = explain(&failure, None, Some(identity), &Expected::default());
        return match optional {
            Some(optional) => Finding::new(Verdict::Off, action, format!("denied: {}", optional.what_is_off()))
                .with_statement(optional.statement(scope)),
            None => {
                let statement = Optional::of(action).map_or_else(
                    || json!({"Effect": "Allow", "Action": denied.action, "Resource": denied.resource.as_deref().unwrap_or("*")}),
                    |known| known.statement(scope),
                );
                Finding::new(Verdict::Missing, action, denied.advice).with_statement(statement)
            }
        };
    }
    if is_answer(&failure) {
        return Finding::new(Verdict::Ok, action, "allowed");
    }
    Finding::new(Verdict::Unknown, action, format!("not found out: {failure}"))
}

/// A refusal of something else than the right: the question arrived.
fn is_answer(failure: &Failure) -> bool {
    const CODES: [&str; 4] = [
        "ResourceNotFoundException",
        "InvalidAuthorizationMessageException",
        "InvalidInstanceID.Malformed",
        "ValidationException",
    ];
    failure.is_dry_run_passed() || failure.is_not_found() || CODES.contains(&failure.code.as_str())
}

fn questions(wire: &dyn Aws, settings: &Settings) -> Vec<Question> {
    let cluster = &settings.cluster_name;
    let none = || vec![Filter::tag(NOTHING, "none")];
    let mut list = vec![
        needed("ec2:DescribeInstanceTypes", just(wire.describe_instance_types(true))),
        needed("ec2:DescribeInstanceTypeOfferings", just(wire.describe_instance_type_offerings())),
        needed("ec2:DescribeSubnets", just(wire.describe_subnets(none()))),
        needed("ec2:DescribeSecurityGroups", just(wire.describe_security_groups(none()))),
        needed(
            "ec2:DescribeLaunchTemplates",
            just(wire.describe_launch_templates(TemplateQuery { names: Vec::new(), filters: none() })),
        ),
        needed(
            "ec2:DescribeInstances",
            just(wire.describe_instances(InstanceQuery { ids: Vec::new(), filters: none() })),
        ),
        needed("ec2:CreateFleet", just(wire.create_fleet(dry_fleet(cluster)))),
        other(
            "ec2:DescribeImages",
            just(wire.describe_images(ImageQuery { filters: none(), owners: vec!["self".to_owned()] })),
        ),
        other("ec2:DescribeSpotPriceHistory", just(wire.describe_spot_price_history())),
        other(
            "ec2:DescribeInstanceStatus",
            just(wire.describe_instance_status(vec![Filter::new("instance-status.status", ["impaired"])])),
        ),
        other(
            "ec2:DescribeCapacityReservations",
            just(wire.describe_capacity_reservations(ReservationQuery { id: None, filters: none() })),
        ),
        other("ec2:DescribePlacementGroups", just(wire.describe_placement_groups(PlacementQuery::default()))),
        other("ssm:GetParameter", just(wire.get_parameter(format!("/aws/service/{NOTHING}")))),
        other("sts:DecodeAuthorizationMessage", just(wire.decode_authorization_message(NOTHING.to_owned()))),
    ];
    if !settings.is_isolated_vpc {
        // Of the two price lists the shorter.
        list.push(other("pricing:GetProducts", just(wire.get_products(PriceQuery::BareMetal))));
        list.push(other("iam:GetInstanceProfile", just(wire.get_instance_profile(NOTHING.to_owned()))));
        let ours = format!("/karpenter/{}/{cluster}/", settings.region);
        list.push(other("iam:ListInstanceProfiles", just(wire.list_instance_profiles(ours))));
    }
    list
}

fn needed(action: &'static str, answer: Reply<()>) -> Question {
    Question { action, is_needed: true, answer }
}

fn other(action: &'static str, answer: Reply<()>) -> Question {
    Question { action, is_needed: false, answer }
}

/// Only whether it was answered.
fn just<T: Send + 'static>(answer: Reply<T>) -> Reply<()> {
    Box::pin(async move { answer.await.map(drop) })
}

/// A launch that never happens, of a template that does not exist.
fn dry_fleet(cluster: &str) -> FleetOrder {
    let tags = [
        (format!("kubernetes.io/cluster/{cluster}"), "owned".to_owned()),
        ("eks:eks-cluster-name".to_owned(), cluster.to_owned()),
        ("karpenter.sh/nodepool".to_owned(), NOTHING.to_owned()),
        ("karpenter.k8s.aws/ec2nodeclass".to_owned(), NOTHING.to_owned()),
    ];
    FleetOrder {
        configs: vec![FleetConfig {
            template_name: format!("karpenter.k8s.aws/{NOTHING}"),
            overrides: vec![FleetOverride { instance_type: "m5.large".to_owned(), ..FleetOverride::default() }],
        }],
        n_instances: 1,
        capacity_type: "on-demand".to_owned(),
        on_demand_strategy: Some("lowest-price".to_owned()),
        tags: tags.into_iter().collect(),
        dry_run: true,
        ..FleetOrder::default()
    }
}
