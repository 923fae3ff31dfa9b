//! Calls that we can do without.
//!
//! Older installations have policies that allow fewer calls than today's. Each such call that AWS denies switches its own feature off,
//! and only that; it is named once, with the statement that would allow it, and stays on a list that the class's status and
//! `kerf aws check` show. It is asked again now and then: who adds the statement need not restart anything.

use crate::wire::Failure;
use kerf_model::UnixMillis;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a denied call rests. A fixed policy takes effect in seconds; people look again in minutes.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(300);

/// A right without which nodes still launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Optional {
    DescribeInstanceStatus,
    DescribeSpotPriceHistory,
    DescribeCapacityReservations,
    DescribePlacementGroups,
    DescribeImages,
    UseCapacityReservations,
    UsePlacementGroups,
    TagSpotRequests,
    RebootInstances,
    GetProducts,
    GetParameter,
    ListInstanceProfiles,
    GetInstanceProfile,
    ManageInstanceProfiles,
    DescribeCluster,
    ReadQueue,
    ReadZonalShifts,
    CompleteLifecycleAction,
    DecodeAuthorizationMessage,
}

impl Optional {
    pub const ALL: [Self; 19] = [
        Self::DescribeInstanceStatus,
        Self::DescribeSpotPriceHistory,
        Self::DescribeCapacityReservations,
        Self::DescribePlacementGroups,
        Self::DescribeImages,
        Self::UseCapacityReservations,
        Self::UsePlacementGroups,
        Self::TagSpotRequests,
        Self::RebootInstances,
        Self::GetProducts,
        Self::GetParameter,
        Self::ListInstanceProfiles,
        Self::GetInstanceProfile,
        Self::ManageInstanceProfiles,
        Self::DescribeCluster,
        Self::ReadQueue,
        Self::ReadZonalShifts,
        Self::CompleteLifecycleAction,
        Self::DecodeAuthorizationMessage,
    ];

    /// The right that a denied call was about; None for one that nodes cannot do without.
    pub fn of(action: &str) -> Option<Self> {
        Some(match action {
            "ec2:DescribeInstanceStatus" => Self::DescribeInstanceStatus,
            "ec2:DescribeSpotPriceHistory" => Self::DescribeSpotPriceHistory,
            "ec2:DescribeCapacityReservations" => Self::DescribeCapacityReservations,
            "ec2:DescribePlacementGroups" => Self::DescribePlacementGroups,
            "ec2:DescribeImages" => Self::DescribeImages,
            "ec2:RebootInstances" => Self::RebootInstances,
            "pricing:GetProducts" => Self::GetProducts,
            "ssm:GetParameter" => Self::GetParameter,
            "iam:ListInstanceProfiles" => Self::ListInstanceProfiles,
            "iam:GetInstanceProfile" => Self::GetInstanceProfile,
            "iam:CreateInstanceProfile"
            | "iam:DeleteInstanceProfile"
            | "iam:AddRoleToInstanceProfile"
            | "iam:RemoveRoleFromInstanceProfile"
            | "iam:TagInstanceProfile" => Self::ManageInstanceProfiles,
            "eks:DescribeCluster" => Self::DescribeCluster,
            "sqs:GetQueueUrl" | "sqs:ReceiveMessage" | "sqs:DeleteMessage" => Self::ReadQueue,
            "arc-zonal-shift:GetManagedResource" => Self::ReadZonalShifts,
            "autoscaling:CompleteLifecycleAction" => Self::CompleteLifecycleAction,
            "sts:DecodeAuthorizationMessage" => Self::DecodeAuthorizationMessage,
            _ => return None,
        })
    }

    /// The actions, as policies name them.
    pub fn actions(self) -> &'static [&'static str] {
        match self {
            Self::DescribeInstanceStatus => &["ec2:DescribeInstanceStatus"],
            Self::DescribeSpotPriceHistory => &["ec2:DescribeSpotPriceHistory"],
            Self::DescribeCapacityReservations => &["ec2:DescribeCapacityReservations"],
            Self::DescribePlacementGroups => &["ec2:DescribePlacementGroups"],
            Self::DescribeImages => &["ec2:DescribeImages"],
            Self::UseCapacityReservations | Self::UsePlacementGroups => &["ec2:RunInstances", "ec2:CreateFleet"],
            Self::TagSpotRequests => &["ec2:CreateTags"],
            Self::RebootInstances => &["ec2:RebootInstances"],
            Self::GetProducts => &["pricing:GetProducts"],
            Self::GetParameter => &["ssm:GetParameter"],
            Self::ListInstanceProfiles => &["iam:ListInstanceProfiles"],
            Self::GetInstanceProfile => &["iam:GetInstanceProfile"],
            Self::ManageInstanceProfiles => &[
                "iam:CreateInstanceProfile",
                "iam:TagInstanceProfile",
                "iam:AddRoleToInstanceProfile",
                "iam:RemoveRoleFromInstanceProfile",
                "iam:DeleteInstanceProfile",
            ],
            Self::DescribeCluster => &["eks:DescribeCluster"],
            Self::ReadQueue => &["sqs:GetQueueUrl", "sqs:ReceiveMessage", "sqs:DeleteMessage"],
            Self::ReadZonalShifts => &["arc-zonal-shift:GetManagedResource"],
            Self::CompleteLifecycleAction => &["autoscaling:CompleteLifecycleAction"],
            Self::DecodeAuthorizationMessage => &["sts:DecodeAuthorizationMessage"],
        }
    }

    /// What does not work meanwhile.
    pub fn what_is_off(self) -> &'static str {
        match self {
            Self::DescribeInstanceStatus => {
                "instances that fail their status checks or have scheduled events are not replaced by that"
            }
            Self::DescribeSpotPriceHistory => "spot prices are those of the built-in table",
            Self::DescribeCapacityReservations => "spec.capacityReservationSelectorTerms selects nothing",
            Self::DescribePlacementGroups => "spec.placementGroupSelector selects nothing",
            Self::DescribeImages => {
                "images are known by their SSM parameters alone: spec.amiSelectorTerms by id, name and tags select nothing"
            }
            Self::UseCapacityReservations => "nothing is launched into capacity reservations",
            Self::UsePlacementGroups => "nothing is launched into placement groups",
            Self::TagSpotRequests => "spot requests carry no tags; the instances do",
            Self::RebootInstances => "broken nodes are replaced where a reboot might have done",
            Self::GetProducts => "on-demand prices are those of the built-in table",
            Self::GetParameter => "spec.amiSelectorTerms by alias and ssmParameter select nothing",
            Self::ListInstanceProfiles => "instance profiles of classes that are gone are not cleaned up",
            Self::GetInstanceProfile | Self::ManageInstanceProfiles => {
                "spec.role has no effect: name a profile in spec.instanceProfile"
            }
            Self::DescribeCluster => {
                "the endpoint, the version and the service CIDR of the cluster are not asked of EKS: set CLUSTER_ENDPOINT"
            }
            Self::ReadQueue => "interruptions are not heard of",
            Self::ReadZonalShifts => "zonal shifts are not followed",
            Self::CompleteLifecycleAction => "Auto Scaling groups wait for their hooks to time out",
            Self::DecodeAuthorizationMessage => "refusals are explained without their encoded part",
        }
    }

    /// The statement that would allow it, as narrow as the policy that we ship.
    pub fn statement(self, scope: &Scope) -> Value {
        let mut statement = json!({"Effect": "Allow", "Action": one_or_many(self.actions())});
        statement["Resource"] = one_or_many(&self.resources(scope));
        if let Some(condition) = self.condition(scope) {
            statement["Condition"] = condition;
        }
        statement
    }

    fn resources(self, scope: &Scope) -> Vec<String> {
        let Scope { partition, region, account, cluster, queue, .. } = scope;
        match self {
            Self::UseCapacityReservations => vec![format!("arn:{partition}:ec2:{region}:*:capacity-reservation/*")],
            Self::UsePlacementGroups => vec![format!("arn:{partition}:ec2:{region}:*:placement-group/*")],
            Self::TagSpotRequests => vec![format!("arn:{partition}:ec2:{region}:*:spot-instances-request/*")],
            Self::RebootInstances => vec![format!("arn:{partition}:ec2:{region}:*:instance/*")],
            Self::GetParameter => vec![format!("arn:{partition}:ssm:{region}::parameter/aws/service/*")],
            Self::GetInstanceProfile | Self::ManageInstanceProfiles => {
                vec![format!("arn:{partition}:iam::{account}:instance-profile/*")]
            }
            Self::DescribeCluster => vec![format!("arn:{partition}:eks:{region}:{account}:cluster/{cluster}")],
            Self::ReadQueue => vec![format!("arn:{partition}:sqs:{region}:{account}:{queue}")],
            _ => vec!["*".to_owned()],
        }
    }

    fn condition(self, scope: &Scope) -> Option<Value> {
        let Scope { region, cluster, .. } = scope;
        let owned = |kind: &str| format!("aws:{kind}/kubernetes.io/cluster/{cluster}");
        match self {
            Self::DescribeInstanceStatus
            | Self::DescribeSpotPriceHistory
            | Self::DescribeCapacityReservations
            | Self::DescribePlacementGroups
            | Self::DescribeImages => Some(json!({"StringEquals": {"aws:RequestedRegion": region}})),
            Self::TagSpotRequests => Some(json!({
                "StringEquals": {
                    owned("RequestTag"): "owned",
                    "ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"],
                },
                "StringLike": {"aws:RequestTag/karpenter.sh/nodepool": "*"},
            })),
            Self::RebootInstances => Some(json!({
                "StringEquals": {owned("ResourceTag"): "owned"},
                "StringLike": {"aws:ResourceTag/karpenter.sh/nodepool": "*"},
            })),
            _ => None,
        }
    }
}

/// Whose names go into statements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    pub partition: &'static str,
    pub region: String,
    /// `*` when it is not known.
    pub account: String,
    pub cluster: String,
    pub queue: String,
}

impl Scope {
    pub fn new(region: &str, account: Option<&str>, cluster: &str, queue: Option<&str>) -> Self {
        Self {
            partition: partition(region),
            region: region.to_owned(),
            account: account.unwrap_or("*").to_owned(),
            cluster: cluster.to_owned(),
            queue: queue.unwrap_or(cluster).to_owned(),
        }
    }
}

fn partition(region: &str) -> &'static str {
    const BY_PREFIX: [(&str, &str); 6] = [
        ("cn-", "aws-cn"),
        ("us-gov-", "aws-us-gov"),
        ("us-isob-", "aws-iso-b"),
        ("us-isof-", "aws-iso-f"),
        ("eu-isoe-", "aws-iso-e"),
        ("us-iso-", "aws-iso"),
    ];
    BY_PREFIX.iter().find(|(prefix, _)| region.starts_with(prefix)).map_or("aws", |(_, partition)| partition)
}

fn one_or_many<T: AsRef<str>>(items: &[T]) -> Value {
    match items {
        [one] => json!(one.as_ref()),
        many => many.iter().map(|item| item.as_ref()).collect(),
    }
}

/// A feature that is off, for people to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchedOff {
    pub call: Optional,
    /// What is off, which call was denied, and the statement that is missing.
    pub message: String,
    pub statement: Value,
    pub since: UnixMillis,
}

/// What is switched off now. Shared by all who call AWS.
#[derive(Debug)]
pub struct OptionalCalls {
    scope: Scope,
    denied: Mutex<BTreeMap<Optional, Refused>>,
}

#[derive(Debug, Clone)]
struct Refused {
    since: UnixMillis,
    last: UnixMillis,
    action: &'static str,
}

impl OptionalCalls {
    pub fn new(scope: Scope) -> Self {
        Self { scope, denied: Mutex::new(BTreeMap::new()) }
    }

    /// Whether it is worth asking: it has not been denied, or some time ago.
    pub fn is_worth_asking(&self, call: Optional, now: UnixMillis) -> bool {
        let rests = |refused: &Refused| now.0.saturating_sub(refused.last.0) < ASK_AGAIN_AFTER.as_millis() as i64;
        !self.denied().get(&call).is_some_and(rests)
    }

    pub fn is_off(&self, call: Optional) -> bool {
        self.denied().contains_key(&call)
    }

    /// Notes a failure. True when it was a refusal: the feature is off, and the caller goes on without. The words are there the
    /// first time only.
    pub fn note(&self, call: Optional, failure: &Failure, now: UnixMillis) -> (bool, Option<String>) {
        if !failure.is_denied() {
            return (false, None);
        }
        let mut denied = self.denied();
        let is_new = !denied.contains_key(&call);
        let refused = denied.entry(call).or_insert(Refused { since: now, last: now, action: failure.action });
        refused.last = now;
        let words = is_new.then(|| self.words(call, refused.action));
        (true, words)
    }

    /// It was allowed after all: the feature is on again.
    pub fn passed(&self, call: Optional) {
        self.denied().remove(&call);
    }

    /// Everything that is off, in a fixed order.
    pub fn list(&self) -> Vec<SwitchedOff> {
        let one = |(call, refused): (&Optional, &Refused)| SwitchedOff {
            call: *call,
            message: self.words(*call, refused.action),
            statement: call.statement(&self.scope),
            since: refused.since,
        };
        self.denied().iter().map(one).collect()
    }

    fn words(&self, call: Optional, action: &str) -> String {
        let statement = call.statement(&self.scope);
        format!(
            "{action} is denied: {}; to switch it on, add to the operator's policy: {statement}",
            call.what_is_off()
        )
    }

    fn denied(&self) -> MutexGuard<'_, BTreeMap<Optional, Refused>> {
        self.denied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls() -> OptionalCalls {
        OptionalCalls::new(Scope::new("eu-west-1", Some("111122223333"), "demo", None))
    }

    fn refusal() -> Failure {
        Failure::new("ec2:DescribeInstanceStatus", "UnauthorizedOperation", "You are not authorized")
    }

    #[test]
    fn a_denied_call_switches_its_own_feature_off_and_is_named_once() {
        let calls = calls();
        let (is_off, words) = calls.note(Optional::DescribeInstanceStatus, &refusal(), UnixMillis(0));
        assert!(is_off);
        assert_eq!(
            words.unwrap(),
            "ec2:DescribeInstanceStatus is denied: instances that fail their status checks or have scheduled events are not \
             replaced by that; to switch it on, add to the operator's policy: {\"Action\":\"ec2:DescribeInstanceStatus\",\
             \"Condition\":{\"StringEquals\":{\"aws:RequestedRegion\":\"eu-west-1\"}},\"Effect\":\"Allow\",\"Resource\":\"*\"}"
        );
        assert_eq!(calls.note(Optional::DescribeInstanceStatus, &refusal(), UnixMillis(1)), (true, None));
        assert_eq!(calls.list().len(), 1);
        assert!(!calls.is_off(Optional::GetProducts));
    }

    #[test]
    fn another_failure_switches_nothing_off() {
        let calls = calls();
        let busy = Failure::new("ec2:DescribeInstanceStatus", "RequestLimitExceeded", "slow down");
        assert_eq!(calls.note(Optional::DescribeInstanceStatus, &busy, UnixMillis(0)), (false, None));
        assert!(calls.list().is_empty());
    }

    #[test]
    fn d3_35_a_denied_call_is_asked_again_after_some_minutes_and_is_on_again_when_it_passes() {
        let calls = calls();
        calls.note(Optional::DescribeInstanceStatus, &refusal(), UnixMillis(0));
        assert!(!calls.is_worth_asking(Optional::DescribeInstanceStatus, UnixMillis(299_999)));
        assert!(calls.is_worth_asking(Optional::DescribeInstanceStatus, UnixMillis(300_000)));
        calls.passed(Optional::DescribeInstanceStatus);
        assert!(calls.is_worth_asking(Optional::DescribeInstanceStatus, UnixMillis(300_001)));
        assert!(calls.list().is_empty());
    }

    #[test]
    fn every_statement_is_as_narrow_as_the_policy_that_we_ship() {
        let scope = Scope::new("cn-north-1", Some("111122223333"), "demo", Some("events"));
        let queue = Optional::ReadQueue.statement(&scope);
        assert_eq!(queue["Resource"], "arn:aws-cn:sqs:cn-north-1:111122223333:events");
        assert_eq!(queue["Action"].as_array().unwrap().len(), 3);
        let cluster = Optional::DescribeCluster.statement(&scope);
        assert_eq!(cluster["Resource"], "arn:aws-cn:eks:cn-north-1:111122223333:cluster/demo");
        let tags = Optional::TagSpotRequests.statement(&scope);
        assert_eq!(tags["Condition"]["StringEquals"]["aws:RequestTag/kubernetes.io/cluster/demo"], "owned");
        for call in Optional::ALL {
            assert_eq!(call.statement(&scope)["Effect"], "Allow", "{call:?}");
            assert!(!call.what_is_off().is_empty(), "{call:?}");
        }
    }

    #[test]
    fn every_action_leads_to_the_right_that_lists_it() {
        let shared = [Optional::UseCapacityReservations, Optional::UsePlacementGroups, Optional::TagSpotRequests];
        for call in Optional::ALL.into_iter().filter(|call| !shared.contains(call)) {
            for action in call.actions() {
                assert_eq!(Optional::of(action), Some(call), "{action}");
            }
        }
        assert_eq!(Optional::of("ec2:CreateFleet"), None);
    }
}
