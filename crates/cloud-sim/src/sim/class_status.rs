//! What an EC2NodeClass's status should say.

use super::account::{Account, NoImages};
use jiff::Timestamp;
use kerf_api::{Ec2NodeClass, hash, labels};
use kerf_cloud::ClassStatus;
use kerf_model::{Text, UnixMillis};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Subnets come and go: look again soon.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// One condition before it is compared with what was there.
struct Finding {
    kind: &'static str,
    /// None: true. Else the reason and the message.
    trouble: Option<(&'static str, String)>,
}

/// Looks everything up. Conditions that stay as they were keep their time, so that a second look changes nothing.
pub(super) fn resolve(account: &Account, class: &Ec2NodeClass, now: UnixMillis) -> ClassStatus {
    let subnets = account.subnets(class);
    let groups = account.security_groups(class);
    let images = account.images(class);
    let mut findings = vec![
        Finding { kind: "AMIsReady", trouble: image_trouble(&images) },
        Finding { kind: "CapacityReservationsReady", trouble: None },
        Finding { kind: "InstanceProfileReady", trouble: None },
        Finding { kind: "PlacementGroupReady", trouble: placement_trouble(class) },
        Finding { kind: "SecurityGroupsReady", trouble: none_found(groups.is_empty(), "SecurityGroups") },
        Finding { kind: "SubnetsReady", trouble: none_found(subnets.is_empty(), "Subnets") },
    ];
    let is_blocked = findings.iter().any(|finding| {
        finding.trouble.is_some() && ["AMIsReady", "SecurityGroupsReady", "SubnetsReady"].contains(&finding.kind)
    });
    findings.push(Finding { kind: "ValidationSucceeded", trouble: validation_trouble(class, is_blocked) });
    let status = json!({
        "subnets": subnets,
        "securityGroups": groups,
        "amis": images.unwrap_or_default(),
        "capacityReservations": [],
        "instanceProfile": account.instance_profile(class),
        "conditions": conditions(class, &findings, now),
    });
    let annotations = BTreeMap::from([
        (Text::from(labels::EC2_NODE_CLASS_HASH), Text::from(class.hash(None))),
        (Text::from(labels::EC2_NODE_CLASS_HASH_VERSION), Text::from(hash::EC2_NODE_CLASS_HASH_VERSION)),
    ]);
    ClassStatus { status, annotations, again_after: Some(AGAIN_AFTER) }
}

fn image_trouble(images: &Result<Vec<kerf_api::Ami>, NoImages>) -> Option<(&'static str, String)> {
    match images {
        Ok(_) => None,
        Err(NoImages::NotFound) => Some(("AMINotFound", "AMISelector did not match any AMIs".to_owned())),
        Err(NoImages::UnsupportedAlias(why)) => Some(("UnsupportedAlias", why.clone())),
    }
}

fn none_found(is_empty: bool, what: &'static str) -> Option<(&'static str, String)> {
    let reason = if what == "Subnets" { "SubnetsNotFound" } else { "SecurityGroupsNotFound" };
    let singular = what.trim_end_matches('s');
    is_empty.then(|| (reason, format!("{singular}Selector did not match any {what}")))
}

fn placement_trouble(class: &Ec2NodeClass) -> Option<(&'static str, String)> {
    let selector = class.spec.placement_group_selector.as_ref()?;
    let wanted = selector.id.as_ref().or(selector.name.as_ref()).map_or("", String::as_str);
    Some(("PlacementGroupNotFound", format!("placement group {wanted:?}: the simulated account has none")))
}

fn validation_trouble(class: &Ec2NodeClass, is_blocked: bool) -> Option<(&'static str, String)> {
    let first =
        |reason, problems: Vec<kerf_api::Problem>| problems.first().map(|problem| (reason, problem.to_string()));
    let blocked =
        || ("DependenciesNotReady", "Awaiting AMI, Instance Profile, Security Group, and Subnet resolution".to_owned());
    first("InvalidKubeletConfiguration", class.validate_kubelet())
        .or_else(|| is_blocked.then(blocked))
        .or_else(|| first("TagValidationFailed", class.validate_tags()))
}

/// The conditions as they are stored: in order of their times, the root last.
fn conditions(class: &Ec2NodeClass, findings: &[Finding], now: UnixMillis) -> Vec<Value> {
    let mut dependents: Vec<Value> = findings
        .iter()
        .map(|finding| {
            let (status, reason, message) = match &finding.trouble {
                None => ("True", finding.kind, ""),
                Some((reason, message)) => ("False", *reason, message.as_str()),
            };
            condition(class, finding.kind, status, reason, message, now)
        })
        .collect();
    let time = |condition: &Value| condition["lastTransitionTime"].as_str().unwrap_or_default().to_owned();
    dependents.sort_by_key(time);
    let mut failing: Vec<&Value> = dependents.iter().filter(|condition| condition["status"] != "True").collect();
    failing.sort_by_key(|condition| std::cmp::Reverse(time(condition)));
    let message: Vec<String> = failing
        .iter()
        .map(|condition| {
            format!("{}={}", condition["type"].as_str().unwrap_or(""), condition["status"].as_str().unwrap_or(""))
        })
        .collect();
    let root = if failing.is_empty() {
        condition(class, "Ready", "True", "Ready", "", now)
    } else {
        condition(class, "Ready", "False", "UnhealthyDependents", &message.join(", "), now)
    };
    dependents.push(root);
    dependents
}

fn condition(class: &Ec2NodeClass, kind: &str, status: &str, reason: &str, message: &str, now: UnixMillis) -> Value {
    let before = class.status.iter().flat_map(|status| &status.conditions).find(|condition| condition.type_ == kind);
    let unchanged = before.filter(|condition| condition.status == status);
    let since = match unchanged {
        Some(condition) => json!(condition.last_transition_time),
        None => json!(rfc3339(now)),
    };
    json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
        "observedGeneration": class.metadata.generation.unwrap_or_default(),
    })
}

/// Whole seconds, as the API server keeps them.
fn rfc3339(at: UnixMillis) -> String {
    let seconds = at.0.div_euclid(1000);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}
