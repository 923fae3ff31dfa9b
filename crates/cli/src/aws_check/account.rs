//! The account beside the rights: who we are, the cluster, the queue, and the role that spot needs.

use super::report::{Finding, Verdict};
use anyhow::bail;
use kerf_cloud_aws::advice::{Optional, Scope};
use kerf_cloud_aws::settings::Settings;
use kerf_cloud_aws::wire::{Aws, CallerIdentity};

const SPOT_ROLE: &str = "AWSServiceRoleForEC2Spot";

/// Everybody may ask who they are: who gets no answer has no credentials, or no way to AWS.
pub(super) async fn identity(wire: &dyn Aws) -> anyhow::Result<CallerIdentity> {
    match wire.get_caller_identity().await {
        Ok(identity) => Ok(identity),
        Err(failure) if failure.status == 0 => bail!(
            "AWS cannot be reached ({failure}): is there a way out of this network, does DNS answer, and are there credentials?"
        ),
        Err(failure) => {
            bail!("AWS does not know us ({failure}): check AWS_PROFILE, the keys in the environment, or the pod's role")
        }
    }
}

/// A session that is named after an instance belongs to a node, not to a service account.
pub(super) fn who(identity: &CallerIdentity, settings: &Settings) -> Finding {
    let session = identity.arn.rsplit('/').next().unwrap_or_default();
    let is_node = identity.arn.contains(":assumed-role/") && session.starts_with("i-");
    if is_node {
        let message = format!(
            "this is the role of a node: the role of the service account is not in effect. Annotate it with \
             eks.amazonaws.com/role-arn, or make a Pod Identity association for cluster {}",
            settings.cluster_name
        );
        return Finding::new(Verdict::Odd, identity.arn.clone(), message);
    }
    Finding::new(Verdict::Ok, identity.arn.clone(), format!("account {}", identity.account))
}

/// EKS is needed for what the flags do not say. Fills in the version.
pub(super) async fn cluster(wire: &dyn Aws, settings: &mut Settings, scope: &Scope) -> Finding {
    let subject = format!("EKS cluster {}", settings.cluster_name);
    let is_needed = settings.cluster_endpoint.is_none();
    let statement = Optional::DescribeCluster.statement(scope);
    match wire.describe_cluster(settings.cluster_name.clone()).await {
        Ok(cluster) => {
            if settings.kubernetes_version.is_empty() {
                settings.kubernetes_version = cluster.version.clone();
            }
            Finding::new(Verdict::Ok, subject, format!("Kubernetes {} at {}", cluster.version, cluster.endpoint))
        }
        Err(failure) if failure.is_denied() && is_needed => {
            let message =
                "eks:DescribeCluster is denied, and --cluster-endpoint (CLUSTER_ENDPOINT) does not say what it would";
            Finding::new(Verdict::Missing, subject, message).with_statement(statement)
        }
        Err(failure) if failure.is_denied() => {
            let message = format!("eks:DescribeCluster is denied: {}", Optional::DescribeCluster.what_is_off());
            Finding::new(Verdict::Off, subject, message).with_statement(statement)
        }
        Err(failure) if is_needed => {
            let message =
                format!("not found ({failure}): is --cluster-name right, and this its region ({})?", settings.region);
            Finding::new(Verdict::Missing, subject, message)
        }
        Err(failure) => Finding::new(Verdict::Unknown, subject, format!("EKS does not tell ({failure})")),
    }
}

pub(super) async fn interruption_queue(wire: &dyn Aws, settings: &Settings, scope: &Scope) -> Finding {
    let Some(name) = &settings.interruption_queue else {
        let message = "none is named (--interruption-queue): spot nodes end without a notice";
        return Finding::new(Verdict::Off, "interruption queue", message);
    };
    let subject = format!("interruption queue {name}");
    match wire.get_queue_url(name.clone()).await {
        Ok(url) => Finding::new(Verdict::Ok, subject, url),
        Err(failure) if failure.is_denied() => {
            let message = format!("sqs:GetQueueUrl is denied: {}", Optional::ReadQueue.what_is_off());
            Finding::new(Verdict::Missing, subject, message).with_statement(Optional::ReadQueue.statement(scope))
        }
        Err(failure) if failure.is_not_found() => {
            let message =
                "there is no such queue: make it with its rules, or correct the name (it is a name, not an ARN)";
            Finding::new(Verdict::Missing, subject, message)
        }
        Err(failure) => Finding::new(Verdict::Unknown, subject, format!("SQS does not tell ({failure})")),
    }
}

pub(super) async fn spot_role(wire: &dyn Aws) -> Finding {
    let subject = "service-linked role of spot";
    match wire.get_role(SPOT_ROLE.to_owned()).await {
        Ok(arn) => Finding::new(Verdict::Ok, subject, arn),
        Err(failure) if failure.is_not_found() => Finding::new(
            Verdict::Off,
            subject,
            "it does not exist, so the first spot launch must make it or fails: aws iam create-service-linked-role \
             --aws-service-name spot.amazonaws.com",
        ),
        // The operator itself need not read roles.
        Err(failure) => Finding::new(Verdict::Unknown, subject, format!("not found out: {failure}")),
    }
}
