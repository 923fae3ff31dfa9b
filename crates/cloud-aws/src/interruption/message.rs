//! One message of the queue: what it says, by the shape of its JSON.
//!
//! ```text
//! SNS envelope? ─▶ its Message ─▶ EventBridge envelope ─▶ (version, source, detail-type) ─▶ kind, instances
//!                              └▶ lifecycle hook, sent by Auto Scaling itself ─▶ its action, to be completed
//! ```
//!
//! Nothing here fails: a message that cannot be read is a notice of nothing, with what is wrong in words. Otherwise it would come
//! again until the queue forgets it.

use crate::wire::{LifecycleAction, QueueMessage};
use kerf_cloud::{Notice, NoticeKind};
use serde_json::Value;

/// EC2 gives a spot instance this long, and an instance of an interruptible reservation too.
const WARNING_MS: i64 = 120_000;

/// What a lifecycle hook says it is about.
const TERMINATING: &str = "autoscaling:EC2_INSTANCE_TERMINATING";
const LAUNCHING: &str = "autoscaling:EC2_INSTANCE_LAUNCHING";
const TEST: &str = "autoscaling:TEST_NOTIFICATION";

/// A message that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    pub notice: Notice,
    /// To be completed when the notice has been dealt with.
    pub action: Option<LifecycleAction>,
    /// It was none that we know how to read.
    pub is_malformed: bool,
}

pub fn parse(message: &QueueMessage) -> Parsed {
    let mut parsed = Parsed {
        notice: Notice {
            receipt: message.receipt.as_str().into(),
            id: message.id.as_str().into(),
            kind: NoticeKind::NoOp,
            instances: Vec::new(),
            happened_ms: message.sent_ms,
            until_ms: None,
            detail: "".into(),
        },
        action: None,
        is_malformed: false,
    };
    if let Err(wrong) = read(&message.body, &mut parsed) {
        parsed.notice.kind = NoticeKind::NoOp;
        parsed.notice.instances.clear();
        parsed.action = None;
        parsed.is_malformed = true;
        parsed.notice.detail = wrong.into();
    }
    parsed
}

fn read(body: &str, parsed: &mut Parsed) -> Result<(), String> {
    let value = object(body, "the message")?;
    // A topic between the rule and the queue wraps what it passes on.
    let value = match (value["Type"].as_str(), value["Message"].as_str()) {
        (Some("Notification"), Some(inner)) => object(inner, "Message of the SNS notification")?,
        _ => value,
    };
    if value.get("detail-type").is_some() {
        return read_event(&value, parsed);
    }
    if value.get("LifecycleTransition").is_some() || value["Event"] == TEST {
        take_id_and_time(&value, "RequestId", "Time", parsed);
        return read_lifecycle(&value, parsed);
    }
    Err("the message is neither an EventBridge event (no detail-type) nor that of a lifecycle hook (no LifecycleTransition)"
        .to_owned())
}

fn object(text: &str, what: &str) -> Result<Value, String> {
    match serde_json::from_str::<Value>(text) {
        Ok(value) if value.is_object() => Ok(value),
        Ok(_) => Err(format!("{what} is JSON, but no object: {}", beginning(text))),
        Err(error) => Err(format!("{what} is no JSON ({error}): {}", beginning(text))),
    }
}

/// Enough to recognise a message in a log.
fn beginning(text: &str) -> String {
    const SHOWN: usize = 80;
    let shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() { format!("{shown:?}…") } else { format!("{shown:?}") }
}

fn take_id_and_time(value: &Value, id: &str, time: &str, parsed: &mut Parsed) {
    if let Some(id) = value[id].as_str().filter(|id| !id.is_empty()) {
        parsed.notice.id = id.into();
    }
    if let Some(at) = value[time].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok()) {
        parsed.notice.happened_ms = at.as_millisecond();
    }
}

fn read_event(event: &Value, parsed: &mut Parsed) -> Result<(), String> {
    take_id_and_time(event, "id", "time", parsed);
    let word = |field: &str| event[field].as_str().unwrap_or_default();
    let (version, source, detail_type) = (word("version"), word("source"), word("detail-type"));
    let detail = &event["detail"];
    match (version, source, detail_type) {
        ("0", "aws.ec2", "EC2 Spot Instance Interruption Warning") => {
            read_warning(NoticeKind::SpotInterrupted, detail, parsed)
        }
        ("0", "aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning") => {
            read_warning(NoticeKind::CapacityReservationInterrupted, detail, parsed)
        }
        ("0", "aws.ec2", "EC2 Instance Rebalance Recommendation") => {
            let id = text(detail, "detail.", "instance-id")?;
            take(parsed, NoticeKind::RebalanceRecommendation, &[id], "at elevated risk of interruption");
            Ok(())
        }
        ("0", "aws.ec2", "EC2 Instance State-change Notification") => read_state(detail, parsed),
        ("0", "aws.health", "AWS Health Event") => read_health(detail, parsed),
        (
            "0",
            "aws.autoscaling",
            "EC2 Instance-terminate Lifecycle Action" | "EC2 Instance-launch Lifecycle Action",
        ) => read_lifecycle(detail, parsed),
        _ => {
            parsed.notice.detail =
                format!("nothing to do for version {version:?}, source {source:?}, detail-type {detail_type:?}").into();
            Ok(())
        }
    }
}

/// The cloud takes an instance back in two minutes.
fn read_warning(kind: NoticeKind, detail: &Value, parsed: &mut Parsed) -> Result<(), String> {
    let id = text(detail, "detail.", "instance-id")?;
    let action = detail["instance-action"].as_str().unwrap_or("terminate");
    take(parsed, kind, &[id], &format!("the instance will {action}"));
    parsed.notice.until_ms = Some(parsed.notice.happened_ms.saturating_add(WARNING_MS));
    Ok(())
}

fn read_state(detail: &Value, parsed: &mut Parsed) -> Result<(), String> {
    let id = text(detail, "detail.", "instance-id")?;
    let state = text(detail, "detail.", "state")?;
    let kind = match state {
        "stopping" | "stopped" => NoticeKind::InstanceStopped,
        "shutting-down" | "terminated" => NoticeKind::InstanceTerminated,
        // Of a machine that begins, its Node tells.
        _ => {
            parsed.notice.detail = format!("nothing to do for an instance that is {state}").into();
            return Ok(());
        }
    };
    take(parsed, kind, &[id], &format!("the instance is {state}"));
    Ok(())
}

fn read_health(detail: &Value, parsed: &mut Parsed) -> Result<(), String> {
    let service = text(detail, "detail.", "service")?;
    let category = text(detail, "detail.", "eventTypeCategory")?;
    if (service, category) != ("EC2", "scheduledChange") {
        parsed.notice.detail = format!("nothing to do for {category} of {service}").into();
        return Ok(());
    }
    let entities = detail["affectedEntities"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ids: Vec<&str> = entities.iter().filter_map(|entity| entity["entityValue"].as_str()).collect();
    let code = detail["eventTypeCode"].as_str().unwrap_or("scheduled change");
    take(parsed, NoticeKind::ScheduledChange, &ids, code);
    Ok(())
}

/// A lifecycle hook's words, which are the same inside an event and sent by Auto Scaling itself.
fn read_lifecycle(detail: &Value, parsed: &mut Parsed) -> Result<(), String> {
    let transition = detail["LifecycleTransition"].as_str().unwrap_or_default();
    if detail["Event"] == TEST || transition == TEST {
        let group = detail["AutoScalingGroupName"].as_str().unwrap_or_default();
        parsed.notice.detail = format!("a test by Auto Scaling group {group}").into();
        return Ok(());
    }
    let kind = match transition {
        TERMINATING => NoticeKind::LifecycleAction,
        LAUNCHING => NoticeKind::LaunchLifecycleAction,
        _ => {
            parsed.notice.detail = format!("nothing to do for lifecycle transition {transition:?}").into();
            return Ok(());
        }
    };
    let field = |name: &str| text(detail, "", name).map(str::to_owned);
    let action = LifecycleAction {
        group: field("AutoScalingGroupName")?,
        hook: field("LifecycleHookName")?,
        token: field("LifecycleActionToken")?,
        instance_id: field("EC2InstanceId")?,
    };
    let words = format!("hook {} of Auto Scaling group {} waits", action.hook, action.group);
    take(parsed, kind, &[action.instance_id.as_str()], &words);
    parsed.action = Some(action);
    Ok(())
}

fn take(parsed: &mut Parsed, kind: NoticeKind, instances: &[&str], words: &str) {
    parsed.notice.kind = kind;
    parsed.notice.instances = instances.iter().map(|id| (*id).into()).collect();
    parsed.notice.detail = words.into();
}

fn text<'a>(value: &'a Value, prefix: &str, field: &str) -> Result<&'a str, String> {
    match &value[field] {
        Value::String(text) if !text.is_empty() => Ok(text),
        Value::Null => Err(format!("the message has no {prefix}{field}")),
        found => Err(format!("{prefix}{field} is {found}, which is no text that names something")),
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
