use super::*;
use serde_json::json;

const AT: &str = "2026-01-01T00:00:00Z";
const AT_MS: i64 = 1_767_225_600_000;

fn message(body: &str) -> QueueMessage {
    QueueMessage { id: "m-1".to_owned(), receipt: "r-1".to_owned(), body: body.to_owned(), sent_ms: 5_000 }
}

fn event(source: &str, detail_type: &str, detail: &Value) -> Value {
    json!({
        "version": "0", "id": "e-1", "account": "111122223333", "region": "eu-west-1", "time": AT, "resources": [],
        "source": source, "detail-type": detail_type, "detail": detail,
    })
}

/// Kind, instances joined by spaces, whether it was malformed.
fn read_as(body: &Value) -> (NoticeKind, String, bool) {
    let parsed = parse(&message(&body.to_string()));
    let instances = parsed.notice.instances.iter().map(|id| &**id).collect::<Vec<_>>().join(" ");
    (parsed.notice.kind, instances, parsed.is_malformed)
}

fn lifecycle() -> Value {
    json!({
        "LifecycleActionToken": "token", "AutoScalingGroupName": "group", "LifecycleHookName": "hook",
        "EC2InstanceId": "i-1", "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
        "NotificationMetadata": "anything",
    })
}

fn launching() -> Value {
    let mut hook = lifecycle();
    hook["LifecycleTransition"] = json!("autoscaling:EC2_INSTANCE_LAUNCHING");
    hook
}

#[test]
fn every_kind_is_known_by_its_shape() {
    let ec2 = |detail_type: &str, detail: Value| event("aws.ec2", detail_type, &detail);
    let state =
        |state: &str| ec2("EC2 Instance State-change Notification", json!({"instance-id": "i-1", "state": state}));
    let health = |service: &str, category: &str| {
        let detail = json!({
            "service": service, "eventTypeCategory": category, "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
            "affectedEntities": [{"entityValue": "i-1"}, {"entityValue": "i-2"}, {"tags": {}}],
        });
        event("aws.health", "AWS Health Event", &detail)
    };
    let warned = json!({"instance-id": "i-1", "instance-action": "terminate"});
    for (body, kind, instances) in [
        (ec2("EC2 Spot Instance Interruption Warning", warned.clone()), NoticeKind::SpotInterrupted, "i-1"),
        (
            ec2("EC2 Capacity Reservation Instance Interruption Warning", warned),
            NoticeKind::CapacityReservationInterrupted,
            "i-1",
        ),
        (
            ec2("EC2 Instance Rebalance Recommendation", json!({"instance-id": "i-1"})),
            NoticeKind::RebalanceRecommendation,
            "i-1",
        ),
        (state("stopping"), NoticeKind::InstanceStopped, "i-1"),
        (state("stopped"), NoticeKind::InstanceStopped, "i-1"),
        (state("shutting-down"), NoticeKind::InstanceTerminated, "i-1"),
        (state("terminated"), NoticeKind::InstanceTerminated, "i-1"),
        (state("pending"), NoticeKind::NoOp, ""),
        (state("running"), NoticeKind::NoOp, ""),
        (health("EC2", "scheduledChange"), NoticeKind::ScheduledChange, "i-1 i-2"),
        (health("EC2", "issue"), NoticeKind::NoOp, ""),
        (health("RDS", "scheduledChange"), NoticeKind::NoOp, ""),
        (
            event("aws.autoscaling", "EC2 Instance-terminate Lifecycle Action", &lifecycle()),
            NoticeKind::LifecycleAction,
            "i-1",
        ),
        (lifecycle(), NoticeKind::LifecycleAction, "i-1"),
        (
            event("aws.autoscaling", "EC2 Instance-launch Lifecycle Action", &launching()),
            NoticeKind::LaunchLifecycleAction,
            "i-1",
        ),
        (launching(), NoticeKind::LaunchLifecycleAction, "i-1"),
        (event("aws.ec2", "EC2 Fleet State Change", &json!({})), NoticeKind::NoOp, ""),
        (event("aws.s3", "EC2 Spot Instance Interruption Warning", &json!({})), NoticeKind::NoOp, ""),
    ] {
        assert_eq!(read_as(&body), (kind, instances.to_owned(), false), "{body}");
    }
    let mut newer = event("aws.ec2", "EC2 Instance Rebalance Recommendation", &json!({"instance-id": "i-1"}));
    newer["version"] = json!("1");
    assert_eq!(read_as(&newer), (NoticeKind::NoOp, String::new(), false), "another version may mean something else");
}

#[test]
fn a_warning_says_until_when_and_copies_have_one_id() {
    let body = event("aws.ec2", "EC2 Spot Instance Interruption Warning", &json!({"instance-id": "i-1"})).to_string();
    let notice = parse(&message(&body)).notice;
    assert_eq!((&*notice.id, notice.happened_ms, notice.until_ms), ("e-1", AT_MS, Some(AT_MS + 120_000)));
    let copy = parse(&QueueMessage { id: "m-2".to_owned(), receipt: "r-2".to_owned(), ..message(&body) }).notice;
    assert_eq!((&*copy.id, &*copy.receipt), ("e-1", "r-2"));
    let mut timeless: Value = serde_json::from_str(&body).unwrap();
    timeless["time"] = json!("soon");
    timeless["id"] = json!(null);
    let notice = parse(&message(&timeless.to_string())).notice;
    assert_eq!((&*notice.id, notice.happened_ms), ("m-1", 5_000), "the queue knows when it came, and a name for it");
}

#[test]
fn a_lifecycle_action_keeps_what_completing_it_needs() {
    let wrapped = event("aws.autoscaling", "EC2 Instance-terminate Lifecycle Action", &lifecycle());
    for body in [wrapped, lifecycle(), launching()] {
        let action = parse(&message(&body.to_string())).action.unwrap();
        let expected = LifecycleAction {
            group: "group".to_owned(),
            hook: "hook".to_owned(),
            token: "token".to_owned(),
            instance_id: "i-1".to_owned(),
        };
        assert_eq!(action, expected);
    }
}

#[test]
fn the_test_notification_of_a_new_hook_is_nothing_to_do() {
    let raw = json!({
        "AccountId": "111122223333", "RequestId": "q", "AutoScalingGroupARN": "arn", "AutoScalingGroupName": "group",
        "Service": "AWS Auto Scaling", "Event": "autoscaling:TEST_NOTIFICATION", "Time": AT,
    });
    let newer = json!({"LifecycleTransition": "autoscaling:TEST_NOTIFICATION", "AutoScalingGroupName": "group"});
    let in_event = event("aws.autoscaling", "EC2 Instance-terminate Lifecycle Action", &newer);
    for body in [raw, newer, in_event] {
        let parsed = parse(&message(&body.to_string()));
        assert_eq!((parsed.notice.kind, parsed.is_malformed, &parsed.action), (NoticeKind::NoOp, false, &None));
        assert!(parsed.notice.detail.contains("a test by Auto Scaling group group"), "{}", parsed.notice.detail);
    }
}

#[test]
fn what_a_topic_passed_on_is_unwrapped() {
    let inner = event("aws.ec2", "EC2 Instance Rebalance Recommendation", &json!({"instance-id": "i-1"}));
    let wrapped = json!({"Type": "Notification", "MessageId": "s-1", "TopicArn": "arn", "Message": inner.to_string()});
    assert_eq!(read_as(&wrapped), (NoticeKind::RebalanceRecommendation, "i-1".to_owned(), false));
    let raw = json!({"Type": "Notification", "Message": lifecycle().to_string()});
    assert_eq!(read_as(&raw), (NoticeKind::LifecycleAction, "i-1".to_owned(), false));
    let twice = json!({"Type": "Notification", "Message": wrapped.to_string()});
    assert_eq!(read_as(&twice), (NoticeKind::NoOp, String::new(), true));
}

#[test]
fn what_cannot_be_read_is_nothing_to_do_and_says_what_is_wrong() {
    let ec2 = |detail_type: &str, detail: Value| event("aws.ec2", detail_type, &detail).to_string();
    let mut tokenless = lifecycle();
    tokenless["LifecycleActionToken"] = json!("");
    for (body, words) in [
        (String::new(), "is no JSON"),
        ("not json".to_owned(), "is no JSON"),
        ("[1]".to_owned(), "no object"),
        ("{}".to_owned(), "neither an EventBridge event"),
        (r#"{"version":"0","source":"aws.ec2"}"#.to_owned(), "no detail-type"),
        (ec2("EC2 Spot Instance Interruption Warning", json!({})), "no detail.instance-id"),
        (ec2("EC2 Spot Instance Interruption Warning", json!(null)), "no detail.instance-id"),
        (ec2("EC2 Spot Instance Interruption Warning", json!({"instance-id": 7})), "detail.instance-id is 7"),
        (ec2("EC2 Spot Instance Interruption Warning", json!({"instance-id": ""})), "detail.instance-id is \"\""),
        (ec2("EC2 Instance State-change Notification", json!({"instance-id": "i-1"})), "no detail.state"),
        (
            event("aws.health", "AWS Health Event", &json!({"service": "EC2"})).to_string(),
            "no detail.eventTypeCategory",
        ),
        (tokenless.to_string(), "LifecycleActionToken"),
        (json!({"Type": "Notification", "Message": "hello"}).to_string(), "Message of the SNS notification is no JSON"),
        ("x".repeat(10_000), "…"),
    ] {
        let parsed = parse(&message(&body));
        assert_eq!((parsed.notice.kind, parsed.is_malformed), (NoticeKind::NoOp, true), "{body}");
        assert!(parsed.notice.detail.contains(words), "{words}: {}", parsed.notice.detail);
        assert!(parsed.notice.detail.len() < 400);
        assert_eq!(&*parsed.notice.receipt, "r-1", "it can be acknowledged");
    }
}

#[test]
fn a_message_without_instances_and_one_of_another_account_are_read_like_any_other() {
    let nobody = json!({"service": "EC2", "eventTypeCategory": "scheduledChange"});
    let body = event("aws.health", "AWS Health Event", &nobody);
    assert_eq!(read_as(&body), (NoticeKind::ScheduledChange, String::new(), false));
    let mut foreign = event("aws.ec2", "EC2 Instance Rebalance Recommendation", &json!({"instance-id": "i-9"}));
    foreign["account"] = json!("999999999999");
    foreign["region"] = json!("xx-nowhere-1");
    foreign["unknown"] = json!({"field": []});
    assert_eq!(read_as(&foreign), (NoticeKind::RebalanceRecommendation, "i-9".to_owned(), false));
}
