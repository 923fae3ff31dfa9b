//! `interruption.instancestatus`: instances that EC2's own checks find impaired, or that it has plans for.
//!
//! A check must have failed for two minutes; a scheduled event counts at once. What an event announces is graceful work; a machine
//! whose checks fail may never answer again, so its claim ends by force.

use super::claims_by_instance;
use crate::wire::{Aws, Failure, Filter, InstanceStatus};
use kerf_cloud::{ChoreAsk, ChoreReport, InUse, Sample};
use kerf_model::{Text, UnixMillis};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// How long a check must have failed before it is believed.
const IMPAIRED_MS: i64 = 120_000;
const EVENTS: [&str; 5] =
    ["instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"];
const FAMILY: &str = "karpenter_interruption_instance_status_unhealthy_total";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Category {
    Instance,
    System,
    Event,
}

impl Category {
    fn as_str(self) -> &'static str {
        match self {
            Self::Instance => "InstanceStatus",
            Self::System => "SystemStatus",
            Self::Event => "EventStatus",
        }
    }
}

/// What has been counted, so that an instance counts once while it is unhealthy.
#[derive(Debug, Default)]
pub struct StatusChecks {
    counted: Mutex<BTreeSet<(String, Category)>>,
}

impl StatusChecks {
    pub async fn run(&self, wire: &dyn Aws, in_use: &InUse, now: UnixMillis) -> Result<ChoreReport, Failure> {
        let statuses = ask(wire).await?;
        Ok(self.judge(&statuses, in_use, now))
    }

    fn judge(&self, statuses: &BTreeMap<String, InstanceStatus>, in_use: &InUse, now: UnixMillis) -> ChoreReport {
        let claims = claims_by_instance(in_use);
        let mut report = ChoreReport::default();
        let mut unhealthy = BTreeSet::new();
        for (id, status) in statuses {
            let Some(claim) = claims.get(id.as_str()) else {
                continue;
            };
            for (category, words) in troubles(status, now) {
                unhealthy.insert((id.clone(), category));
                report.asks.push(ChoreAsk::EndClaim {
                    claim: claim.name.clone(),
                    reason: "InstanceUnhealthy".into(),
                    message: words,
                    by_force: category != Category::Event,
                });
            }
        }
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, category) in unhealthy.difference(&counted) {
            report.samples.push(Sample { family: FAMILY, labels: vec![category.as_str().into()], value: 1.0 });
        }
        *counted = unhealthy;
        report
    }
}

/// The three questions, their answers as one.
async fn ask(wire: &dyn Aws) -> Result<BTreeMap<String, InstanceStatus>, Failure> {
    let mut statuses = BTreeMap::new();
    for filter in [
        Filter::new("instance-status.status", ["impaired"]),
        Filter::new("system-status.status", ["impaired"]),
        Filter::new("event.code", EVENTS),
    ] {
        for status in wire.describe_instance_status(vec![filter]).await? {
            statuses.insert(status.id.clone(), status);
        }
    }
    Ok(statuses)
}

/// What is wrong with an instance, in words.
fn troubles(status: &InstanceStatus, now: UnixMillis) -> Vec<(Category, Text)> {
    let mut out = Vec::new();
    for (category, state, since) in [
        (Category::Instance, &status.instance_status, status.instance_impaired_since_ms),
        (Category::System, &status.system_status, status.system_impaired_since_ms),
    ] {
        let Some(since) = since.filter(|since| state == "impaired" && now.0 - since >= IMPAIRED_MS) else {
            continue;
        };
        let words = format!("EC2's {} check has failed for {} s", category.as_str(), (now.0 - since) / 1_000);
        out.push((category, words.into()));
    }
    // One that EC2 says is done or called off keeps its code and says so in words.
    let is_over = |words: &str| words.starts_with("[Completed]") || words.starts_with("[Canceled]");
    let mut events = status.events.iter().filter(|event| EVENTS.contains(&event.code.as_str()));
    if let Some(event) = events.find(|event| !is_over(&event.description)) {
        out.push((Category::Event, format!("EC2 has scheduled {}: {}", event.code, event.description).into()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::testing::{claim, in_use, now};
    use super::*;
    use crate::wire::ScheduledEvent;
    use crate::wire::scripted::Scripted;
    use serde_json::json;

    const NOW: UnixMillis = UnixMillis(10_000_000);

    fn impaired(n: usize, instance_since: Option<i64>, system_since: Option<i64>) -> InstanceStatus {
        let word = |since: Option<i64>| if since.is_some() { "impaired" } else { "ok" }.to_owned();
        InstanceStatus {
            id: format!("i-{n}"),
            instance_status: word(instance_since),
            system_status: word(system_since),
            instance_impaired_since_ms: instance_since,
            system_impaired_since_ms: system_since,
            events: Vec::new(),
        }
    }

    fn planned(n: usize, code: &str, words: &str) -> InstanceStatus {
        let event = ScheduledEvent { code: code.to_owned(), description: words.to_owned(), not_before_ms: None };
        InstanceStatus { events: vec![event], ..impaired(n, None, None) }
    }

    fn run(checks: &StatusChecks, aws: &Scripted) -> ChoreReport {
        let claims = (1..=9).map(|n| claim(n, &[])).collect();
        now(checks.run(aws, &in_use(claims, Vec::new(), json!({})), NOW)).unwrap()
    }

    /// `claim: graceful` or `claim: by force`.
    fn ended(report: &ChoreReport) -> Vec<String> {
        let words = |ask: &ChoreAsk| match ask {
            ChoreAsk::EndClaim { claim, by_force, .. } => {
                format!("{claim}: {}", if *by_force { "by force" } else { "graceful" })
            }
            other => panic!("{other:?}"),
        };
        report.asks.iter().map(words).collect()
    }

    #[test]
    fn checks_that_failed_for_two_minutes_end_by_force_and_plans_gracefully() {
        let aws = Scripted::default();
        aws.account().statuses = vec![
            impaired(1, Some(NOW.0 - 120_000), None),
            impaired(2, Some(NOW.0 - 119_999), None),
            impaired(3, None, Some(NOW.0 - 500_000)),
            planned(4, "instance-retirement", "failing hardware"),
            planned(5, "something-else", ""),
            planned(6, "system-reboot", "[Completed] it was done"),
            impaired(77, Some(0), None),
        ];
        let report = run(&StatusChecks::default(), &aws);
        assert_eq!(ended(&report), ["c-1: by force", "c-3: by force", "c-4: graceful"]);
        assert_eq!(aws.count("ec2:DescribeInstanceStatus"), 3);
        assert!(matches!(&report.asks[2], ChoreAsk::EndClaim { message, reason, .. }
            if message.contains("instance-retirement") && &**reason == "InstanceUnhealthy"));
    }

    #[test]
    fn an_instance_counts_once_while_it_is_unhealthy() {
        let (aws, checks) = (Scripted::default(), StatusChecks::default());
        aws.account().statuses = vec![impaired(1, Some(0), Some(0))];
        let categories =
            |report: ChoreReport| report.samples.iter().map(|sample| sample.labels[0].to_string()).collect::<Vec<_>>();
        assert_eq!(categories(run(&checks, &aws)), ["InstanceStatus", "SystemStatus"]);
        assert!(categories(run(&checks, &aws)).is_empty());
        let healed = std::mem::take(&mut aws.account().statuses);
        assert!(categories(run(&checks, &aws)).is_empty());
        aws.account().statuses = healed;
        assert_eq!(categories(run(&checks, &aws)).len(), 2, "and again when it falls ill again");
    }

    #[test]
    fn a_failure_is_told_to_who_asked() {
        let (aws, checks) = (Scripted::default(), StatusChecks::default());
        let nothing = in_use(Vec::new(), Vec::new(), json!({}));
        for code in ["UnauthorizedOperation", "InternalError"] {
            aws.fail_next(Failure::new("ec2:DescribeInstanceStatus", code, "no"));
            assert_eq!(
                now(checks.run(&aws, &nothing, NOW)).map_err(|failure| failure.code).err().as_deref(),
                Some(code)
            );
        }
        assert!(now(checks.run(&aws, &nothing, NOW)).is_ok());
    }
}
