//! What people read about a notice, on the claim and on the node.

use crate::events::{About, Event, timestamp};
use kerf_cloud::{Notice, NoticeKind};
use kerf_model::UnixMillis;

/// The event of a notice; None where there is nothing to tell.
pub(super) fn event(notice: &Notice, about: About) -> Option<Event> {
    let by = || notice.until_ms.map_or_else(String::new, |at| format!(" by {}", timestamp(UnixMillis(at))));
    let (is_warning, reason, message) = match notice.kind {
        NoticeKind::SpotInterrupted => {
            (true, "SpotInterrupted", format!("The cloud takes this spot instance back{}", by()))
        }
        NoticeKind::CapacityReservationInterrupted => (
            true,
            "CapacityReservationInstanceInterrupted",
            format!("The capacity reservation takes this instance back{}", by()),
        ),
        NoticeKind::RebalanceRecommendation => (
            false,
            "SpotRebalanceRecommendation",
            "This spot instance is at elevated risk of being taken back".to_owned(),
        ),
        NoticeKind::ScheduledChange => {
            (true, "InstanceUnhealthy", format!("The cloud will work on this instance: {}", notice.detail))
        }
        NoticeKind::InstanceStopped => (true, "InstanceStopping", format!("Instance is stopping: {}", notice.detail)),
        NoticeKind::InstanceTerminated | NoticeKind::LifecycleAction => {
            (true, "InstanceTerminating", format!("Instance is terminating: {}", notice.detail))
        }
        NoticeKind::LaunchLifecycleAction | NoticeKind::NoOp => return None,
    };
    Some(if is_warning { Event::warning(about, reason, message) } else { Event::normal(about, reason, message) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_model::PodId;

    fn told(kind: NoticeKind) -> Option<(bool, String, String)> {
        let notice = Notice {
            receipt: "r".into(),
            id: "n".into(),
            kind,
            instances: Vec::new(),
            happened_ms: 0,
            until_ms: Some(120_000),
            detail: "AWS_EC2_MAINTENANCE".into(),
        };
        let event = event(&notice, About::pod(&PodId::new("a", "b"), &"uid".into()))?;
        Some((event.is_warning, event.reason.to_string(), event.message))
    }

    #[test]
    fn each_kind_has_the_reason_that_alerts_know() {
        for (kind, is_warning, reason) in [
            (NoticeKind::SpotInterrupted, true, "SpotInterrupted"),
            (NoticeKind::CapacityReservationInterrupted, true, "CapacityReservationInstanceInterrupted"),
            (NoticeKind::RebalanceRecommendation, false, "SpotRebalanceRecommendation"),
            (NoticeKind::ScheduledChange, true, "InstanceUnhealthy"),
            (NoticeKind::InstanceStopped, true, "InstanceStopping"),
            (NoticeKind::InstanceTerminated, true, "InstanceTerminating"),
            (NoticeKind::LifecycleAction, true, "InstanceTerminating"),
        ] {
            let (was_warning, told, _) = told(kind).unwrap();
            assert_eq!((was_warning, told.as_str()), (is_warning, reason), "{kind:?}");
        }
        assert_eq!(told(NoticeKind::NoOp), None);
        assert_eq!(told(NoticeKind::LaunchLifecycleAction), None, "nothing happens to the instance");
        assert!(told(NoticeKind::SpotInterrupted).unwrap().2.ends_with("by 1970-01-01T00:02:00Z"));
        assert!(told(NoticeKind::ScheduledChange).unwrap().2.contains("AWS_EC2_MAINTENANCE"));
    }
}
