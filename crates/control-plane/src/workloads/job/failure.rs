//! What a Job's pod failure policy says about a pod that failed.

use k8s_openapi::api::batch::v1::{PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

use super::super::facts::PodFacts;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Judgement {
    /// Counts towards the limit, as it would without a policy.
    Counts,
    Ignored,
    /// The whole Job fails, for this reason.
    FailsJob(String),
}

pub(crate) fn judge(policy: Option<&PodFailurePolicy>, pod: &PodFacts) -> Judgement {
    let Some(policy) = policy else { return Judgement::Counts };
    let status = pod.stored.read::<Pod>().and_then(|pod| pod.status).unwrap_or_default();
    let path = format!("{}/{}", pod.key.namespace, pod.key.name);
    for (idx, rule) in policy.rules.iter().enumerate() {
        let Some(what) = matched(rule, &status, &path) else { continue };
        return match rule.action.as_str() {
            "Ignore" => Judgement::Ignored,
            "FailJob" => Judgement::FailsJob(format!("{what} matching FailJob rule at index {idx}")),
            _ => Judgement::Counts,
        };
    }
    Judgement::Counts
}

/// What it was about the pod that the rule speaks of.
fn matched(rule: &PodFailurePolicyRule, status: &PodStatus, path: &str) -> Option<String> {
    if let Some(codes) = &rule.on_exit_codes {
        let of = |containers: &Option<Vec<ContainerStatus>>| {
            containers.iter().flatten().find_map(|container| {
                let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
                is_meant(codes, &container.name, code).then(|| (container.name.clone(), code))
            })
        };
        let (name, code) = of(&status.container_statuses).or_else(|| of(&status.init_container_statuses))?;
        return Some(format!("Container {name} for pod {path} failed with exit code {code}"));
    }
    let patterns = rule.on_pod_conditions.as_ref()?;
    let condition = status.conditions.iter().flatten().find(|condition| {
        patterns.iter().any(|pattern| {
            pattern.type_ == condition.type_ && pattern.status.as_deref().unwrap_or("True") == condition.status
        })
    })?;
    Some(format!("Pod {path} has condition {}", condition.type_))
}

fn is_meant(codes: &PodFailurePolicyOnExitCodesRequirement, container: &str, code: i32) -> bool {
    let is_named = codes.container_name.as_deref().is_none_or(|name| name == container);
    let is_listed = match codes.operator.as_str() {
        "In" => codes.values.contains(&code),
        "NotIn" => !codes.values.contains(&code),
        _ => false,
    };
    code != 0 && is_named && is_listed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::facts::testing::stored;
    use super::*;

    #[test]
    fn the_first_rule_that_matches_decides() {
        let policy: PodFailurePolicy = serde_json::from_value(json!({ "rules": [
            { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
            { "action": "FailJob", "onExitCodes": { "containerName": "main", "operator": "In", "values": [42] } },
            { "action": "Count", "onExitCodes": { "operator": "NotIn", "values": [1] } },
            { "action": "FailJob", "onPodConditions": [{ "type": "ConfigIssue" }] },
        ] }))
        .unwrap();
        let fails = |why: &str| Judgement::FailsJob(why.to_owned());
        for (container, code, condition, expected) in [
            (
                "main",
                42,
                "",
                fails("Container main for pod ns/p failed with exit code 42 matching FailJob rule at index 1"),
            ),
            ("side", 42, "ConfigIssue", Judgement::Counts),
            ("main", 42, "DisruptionTarget", Judgement::Ignored),
            ("main", 1, "ConfigIssue", fails("Pod ns/p has condition ConfigIssue matching FailJob rule at index 3")),
            ("main", 1, "", Judgement::Counts),
            ("main", 0, "", Judgement::Counts),
        ] {
            let pod = json!({ "metadata": { "name": "p", "namespace": "ns" }, "spec": { "containers": [] }, "status": {
                "phase": "Failed",
                "containerStatuses": [{ "name": container, "image": "", "imageID": "", "ready": false, "restartCount": 0,
                                        "state": { "terminated": { "exitCode": code } } }],
                "conditions": [{ "type": condition, "status": "True" }],
            } });
            let pod = PodFacts::read(&stored(&pod)).unwrap();
            assert_eq!(judge(Some(&policy), &pod), expected, "{container} {code} {condition}");
            assert_eq!(judge(None, &pod), Judgement::Counts);
        }
    }
}
