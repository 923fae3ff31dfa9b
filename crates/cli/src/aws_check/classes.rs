//! Node classes, resolved by the provider itself: its conditions are what the operator would write on the status.

use super::read_only::ReadOnly;
use super::report::{Finding, Verdict};
use kerf_cloud::CloudProvider;
use kerf_cloud::clock::Clock;
use kerf_cloud_aws::cloud::AwsCloud;
use kerf_cloud_aws::settings::Settings;
use kerf_cloud_aws::wire::Aws;
use serde_json::{Value, json};
use std::sync::Arc;

/// The conditions that a launch waits for, and what stands in the status when they hold.
const CONDITIONS: [(&str, &str); 4] = [
    ("SubnetsReady", "subnets"),
    ("SecurityGroupsReady", "securityGroups"),
    ("AMIsReady", "amis"),
    ("InstanceProfileReady", "instanceProfile"),
];

/// The class of the getting-started pages: everything by the discovery tag, and the node role's usual name.
pub(super) fn by_discovery(cluster: &str) -> Value {
    let by_tag = json!([{"tags": {"karpenter.sh/discovery": cluster}}]);
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": {"name": "default", "uid": "kerf-aws-check", "generation": 1},
        "spec": {
            "role": format!("KarpenterNodeRole-{cluster}"),
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": by_tag, "securityGroupSelectorTerms": by_tag,
        },
    })
}

pub(super) async fn resolve(
    wire: Arc<dyn Aws>,
    settings: &Settings,
    classes: Vec<Value>,
    clock: Arc<dyn Clock>,
) -> Vec<Finding> {
    if settings.kubernetes_version.is_empty() {
        let message = "not looked at: the Kubernetes version is not known. Give --kubernetes-version";
        return vec![Finding::new(Verdict::Unknown, "EC2NodeClasses", message)];
    }
    let reading: Arc<dyn Aws> = Arc::new(ReadOnly::new(Arc::clone(&wire)));
    // A dry run needs a launch template, which would have to be made.
    let settings = Settings { is_dry_run_disabled: true, ..settings.clone() };
    let cloud = AwsCloud::new(reading, settings.clone(), clock);
    let mut findings = Vec::new();
    if let Err(error) = cloud.start().await {
        findings.push(Finding::new(Verdict::Missing, "start", format!("{:#}", anyhow::Error::new(error))));
    }
    for class in classes {
        let role = class["spec"]["role"].as_str().map(str::to_owned);
        let subject = format!("EC2NodeClass {}", class["metadata"]["name"].as_str().unwrap_or("without a name"));
        match cloud.resolve_class(Arc::new(class)).await {
            Ok(found) => findings.extend(read(&subject, &found.status)),
            Err(error) => findings.push(Finding::new(Verdict::Missing, subject.clone(), error.to_string())),
        }
        if let Some(role) = role.filter(|_| !settings.is_isolated_vpc) {
            findings.push(node_role(&*wire, &subject, &role).await);
        }
    }
    findings
}

/// One finding for each condition, with what was found or why nothing was.
fn read(subject: &str, status: &Value) -> Vec<Finding> {
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut findings = Vec::new();
    for (kind, field) in CONDITIONS {
        let Some(condition) = conditions.iter().find(|condition| condition["type"] == kind) else {
            continue;
        };
        let said = condition["message"].as_str().unwrap_or_default();
        let subject = format!("{subject}: {field}");
        findings.push(match condition["status"].as_str() {
            Some("True") if said.is_empty() => Finding::new(Verdict::Ok, subject, summary(&status[field])),
            // Ready, with a remark.
            Some("True") => Finding::new(Verdict::Odd, subject, said),
            _ => Finding::new(Verdict::Missing, subject, said),
        });
    }
    let failed = conditions.iter().filter(|condition| {
        condition["status"] == "False"
            && condition["type"] != "Ready"
            && !CONDITIONS.iter().any(|(kind, _)| condition["type"] == *kind)
    });
    findings.extend(failed.map(|condition| {
        let kind = condition["type"].as_str().unwrap_or_default();
        let said = condition["message"].as_str().unwrap_or_default();
        Finding::new(Verdict::Missing, format!("{subject}: {kind}"), said)
    }));
    findings
}

/// `subnet-1 (us-west-2a), subnet-2 (us-west-2b)`.
fn summary(found: &Value) -> String {
    match found {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let one = |item: &Value| {
                let id = item["id"].as_str().unwrap_or_default();
                match item["zone"].as_str().or_else(|| item["name"].as_str()) {
                    Some(more) => format!("{id} ({more})"),
                    None => id.to_owned(),
                }
            };
            items.iter().map(one).collect::<Vec<_>>().join(", ")
        }
        _ => "ready".to_owned(),
    }
}

/// The operator never reads the role, only passes it on; who checks may have the right to.
async fn node_role(wire: &dyn Aws, subject: &str, role: &str) -> Finding {
    let subject = format!("{subject}: role {role}");
    match wire.get_role(role.rsplit('/').next().unwrap_or(role).to_owned()).await {
        Ok(arn) => Finding::new(Verdict::Ok, subject, arn),
        Err(failure) if failure.is_not_found() => Finding::new(
            Verdict::Missing,
            subject,
            "IAM knows no such role: make it with the policies that nodes need (AmazonEKSWorkerNodePolicy, \
             AmazonEKS_CNI_Policy, AmazonEC2ContainerRegistryPullOnly, AmazonSSMManagedInstanceCore), or correct spec.role",
        ),
        Err(failure) => Finding::new(Verdict::Unknown, subject, format!("not found out: {failure}")),
    }
}
