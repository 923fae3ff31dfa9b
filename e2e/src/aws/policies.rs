//! The IAM policies of the documents, and today's, for one cluster: what the emulator judges calls by.
//!
//! Each is what its reader ends up with, shell variables filled in. None is ours to change: they are what older installations have.

use serde_json::{Value, json};

const ACCOUNT: &str = "123456789012";

/// Which cluster a policy is for.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    pub name: &'a str,
    pub region: &'a str,
}

/// Every policy by the document line that it is from; `v1.14` is today's six in one.
#[must_use]
pub fn all(cluster: Cluster<'_>) -> Vec<(&'static str, Value)> {
    vec![
        ("D0.36", d0_36(cluster)),
        ("D1.10", d1_10(cluster)),
        ("D2.6", d2_6()),
        ("D3.3", d3_3(cluster)),
        ("v1.14", v1_14(cluster)),
    ]
}

impl Cluster<'_> {
    fn ec2(self, kinds: &[&str]) -> Vec<String> {
        kinds.iter().map(|kind| format!("arn:aws:ec2:{}:*:{kind}/*", self.region)).collect()
    }

    fn owned(self, side: &str) -> String {
        format!("aws:{side}/kubernetes.io/cluster/{}", self.name)
    }

    fn role(self) -> String {
        format!("arn:aws:iam::{ACCOUNT}:role/KarpenterNodeRole-{}", self.name)
    }

    fn queue(self) -> String {
        format!("arn:aws:sqs:{}:{ACCOUNT}:{}", self.region, self.name)
    }

    fn eks(self) -> String {
        format!("arn:aws:eks:{}:{ACCOUNT}:cluster/{}", self.region, self.name)
    }
}

const POOL: &str = "karpenter.sh/nodepool";
const CREATED_BY: [&str; 3] = ["RunInstances", "CreateFleet", "CreateLaunchTemplate"];

fn policy(statements: Vec<Value>) -> Value {
    json!({"Version": "2012-10-17", "Statement": statements})
}

fn allow(sid: &str, actions: &[&str], resources: Vec<String>) -> Value {
    json!({"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources})
}

fn when(mut statement: Value, condition: Value) -> Value {
    statement["Condition"] = condition;
    statement
}

fn anywhere() -> Vec<String> {
    vec!["*".to_owned()]
}

/// The inline policy of the v1beta1 guide.
#[must_use]
pub fn d0_36(cluster: Cluster<'_>) -> Value {
    let region = cluster.region;
    let made = cluster.ec2(&["fleet", "instance", "volume", "network-interface", "launch-template"]);
    let mut sources = vec![format!("arn:aws:ec2:{region}::image/*"), format!("arn:aws:ec2:{region}::snapshot/*")];
    sources.extend(cluster.ec2(&["spot-instances-request", "security-group", "subnet", "launch-template"]));
    let (request, resource) = (cluster.owned("RequestTag"), cluster.owned("ResourceTag"));
    let request_pool = json!({format!("aws:RequestTag/{POOL}"): "*"});
    let resource_pool = json!({format!("aws:ResourceTag/{POOL}"): "*"});
    let launch = ["ec2:RunInstances", "ec2:CreateFleet"];
    let mut statements = vec![
        allow("AllowScopedEC2InstanceActions", &launch, sources),
        when(
            allow(
                "AllowScopedEC2InstanceActionsWithTags",
                &["ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"],
                made.clone(),
            ),
            json!({"StringEquals": {request.as_str(): "owned"}, "StringLike": request_pool}),
        ),
        when(
            allow("AllowScopedResourceCreationTagging", &["ec2:CreateTags"], made),
            json!({"StringEquals": {request.as_str(): "owned", "ec2:CreateAction": CREATED_BY}, "StringLike": request_pool}),
        ),
        when(
            allow("AllowScopedResourceTagging", &["ec2:CreateTags"], cluster.ec2(&["instance"])),
            json!({
                "StringEquals": {resource.as_str(): "owned"},
                "StringLike": resource_pool,
                "ForAllValues:StringEquals": {"aws:TagKeys": ["karpenter.sh/nodeclaim", "Name"]},
            }),
        ),
        when(
            allow(
                "AllowScopedDeletion",
                &["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
                cluster.ec2(&["instance", "launch-template"]),
            ),
            json!({"StringEquals": {resource.as_str(): "owned"}, "StringLike": resource_pool}),
        ),
        when(
            allow("AllowRegionalReadActions", &READS, anywhere()),
            json!({"StringEquals": {"aws:RequestedRegion": region}}),
        ),
    ];
    statements.extend(beside_ec2(cluster, false, anywhere()));
    policy(statements)
}

/// What the older policies may read of EC2.
const READS: [&str; 9] = [
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeImages",
    "ec2:DescribeInstances",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplates",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSpotPriceHistory",
    "ec2:DescribeSubnets",
];

/// SSM, pricing, the queue, the node role, instance profiles and EKS. Newer ones tag profiles with the cluster's EKS name too.
fn beside_ec2(cluster: Cluster<'_>, is_eks_tagged: bool, profiles: Vec<String>) -> Vec<Value> {
    let tags = |side: &str| {
        let mut equals =
            json!({cluster.owned(side): "owned", format!("aws:{side}/topology.kubernetes.io/region"): cluster.region});
        if is_eks_tagged && side == "RequestTag" {
            equals["aws:RequestTag/eks:eks-cluster-name"] = json!(cluster.name);
        }
        json!({"StringEquals": equals, "StringLike": {format!("aws:{side}/karpenter.k8s.aws/ec2nodeclass"): "*"}})
    };
    let parameters = format!("arn:aws:ssm:{}::parameter/aws/service/*", cluster.region);
    let queue = ["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:ReceiveMessage"];
    let change = ["iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile"];
    vec![
        allow("AllowSSMReadActions", &["ssm:GetParameter"], vec![parameters]),
        allow("AllowPricingReadActions", &["pricing:GetProducts"], anywhere()),
        allow("AllowInterruptionQueueActions", &queue, vec![cluster.queue()]),
        when(
            allow("AllowPassingInstanceRole", &["iam:PassRole"], vec![cluster.role()]),
            json!({"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}),
        ),
        when(
            allow("AllowScopedInstanceProfileCreationActions", &["iam:CreateInstanceProfile"], profiles.clone()),
            tags("RequestTag"),
        ),
        when(allow("AllowScopedInstanceProfileActions", &change, profiles.clone()), tags("ResourceTag")),
        allow("AllowInstanceProfileReadActions", &["iam:GetInstanceProfile"], profiles),
        allow("AllowAPIServerEndpointDiscovery", &["eks:DescribeCluster"], vec![cluster.eks()]),
    ]
}

/// Today's statements in one policy, before reservations, placement groups, instance status and the listing of profiles.
#[must_use]
pub fn d1_10(cluster: Cluster<'_>) -> Value {
    let mut statements = launches(cluster, &["security-group", "subnet"]);
    statements.push(when(
        allow("AllowRegionalReadActions", &READS, anywhere()),
        json!({"StringEquals": {"aws:RequestedRegion": cluster.region}}),
    ));
    statements.extend(beside_ec2(cluster, true, profiles()));
    policy(statements)
}

/// The six policies of today in one.
#[must_use]
pub fn v1_14(cluster: Cluster<'_>) -> Value {
    let mut statements = launches(cluster, &["security-group", "subnet", "capacity-reservation", "placement-group"]);
    let mut reads = READS.to_vec();
    reads.extend(["ec2:DescribeCapacityReservations", "ec2:DescribeInstanceStatus", "ec2:DescribePlacementGroups"]);
    reads.retain(|action| *action != "ec2:DescribeAvailabilityZones");
    statements.push(when(
        allow("AllowRegionalReadActions", &reads, anywhere()),
        json!({"StringEquals": {"aws:RequestedRegion": cluster.region}}),
    ));
    statements.extend(beside_ec2(cluster, true, profiles()));
    statements.push(allow("AllowUnscopedInstanceProfileListAction", &["iam:ListInstanceProfiles"], anywhere()));
    statements.push(when(
        allow("AllowZonalShiftStatusReadOnly", &["arc-zonal-shift:GetManagedResource"], anywhere()),
        json!({"StringEquals": {"arc-zonal-shift:ResourceIdentifier": cluster.eks()}}),
    ));
    policy(statements)
}

fn profiles() -> Vec<String> {
    vec![format!("arn:aws:iam::{ACCOUNT}:instance-profile/*")]
}

/// The statements of §4.2 about launches, tags and ends.
fn launches(cluster: Cluster<'_>, used: &[&str]) -> Vec<Value> {
    let region = cluster.region;
    let kinds = ["fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request"];
    let made = cluster.ec2(&kinds);
    let mut sources = vec![format!("arn:aws:ec2:{region}::image/*"), format!("arn:aws:ec2:{region}::snapshot/*")];
    sources.extend(cluster.ec2(used));
    let (request, resource) = (cluster.owned("RequestTag"), cluster.owned("ResourceTag"));
    let eks = "aws:RequestTag/eks:eks-cluster-name";
    let request_pool = json!({format!("aws:RequestTag/{POOL}"): "*"});
    let resource_pool = json!({format!("aws:ResourceTag/{POOL}"): "*"});
    let launch = ["ec2:RunInstances", "ec2:CreateFleet"];
    let of_ours = json!({"StringEquals": {resource.as_str(): "owned"}, "StringLike": resource_pool});
    vec![
        allow("AllowScopedEC2InstanceAccessActions", &launch, sources),
        when(
            allow("AllowScopedEC2LaunchTemplateAccessActions", &launch, cluster.ec2(&["launch-template"])),
            of_ours.clone(),
        ),
        when(
            allow(
                "AllowScopedEC2InstanceActionsWithTags",
                &["ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"],
                made.clone(),
            ),
            json!({"StringEquals": {request.as_str(): "owned", eks: cluster.name}, "StringLike": request_pool}),
        ),
        when(
            allow("AllowScopedResourceCreationTagging", &["ec2:CreateTags"], made),
            json!({
                "StringEquals": {request.as_str(): "owned", eks: cluster.name, "ec2:CreateAction": CREATED_BY},
                "StringLike": request_pool,
            }),
        ),
        when(
            allow("AllowScopedResourceTagging", &["ec2:CreateTags"], cluster.ec2(&["instance"])),
            json!({
                "StringEquals": {resource.as_str(): "owned"},
                "StringLike": resource_pool,
                "StringEqualsIfExists": {eks: cluster.name},
                "ForAllValues:StringEquals": {"aws:TagKeys": ["eks:eks-cluster-name", "karpenter.sh/nodeclaim", "Name"]},
            }),
        ),
        when(
            allow(
                "AllowScopedDeletion",
                &["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
                cluster.ec2(&["instance", "launch-template"]),
            ),
            of_ours,
        ),
    ]
}

const FIRST: [&str; 15] = [
    "ec2:CreateLaunchTemplate",
    "ec2:CreateFleet",
    "ec2:RunInstances",
    "ec2:CreateTags",
    "ec2:TerminateInstances",
    "ec2:DeleteLaunchTemplate",
    "ec2:DescribeLaunchTemplates",
    "ec2:DescribeInstances",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeAvailabilityZones",
    "iam:PassRole",
    "ssm:GetParameter",
];

/// The policy of 0.6.5: a few actions, on everything.
#[must_use]
pub fn d2_6() -> Value {
    policy(vec![allow("KarpenterController", &FIRST, anywhere())])
}

/// The same list, in one region only.
#[must_use]
pub fn d3_3(cluster: Cluster<'_>) -> Value {
    let in_region = json!({"StringEquals": {"aws:RequestedRegion": cluster.region}});
    policy(vec![when(allow("KarpenterController", &FIRST, anywhere()), in_region)])
}
