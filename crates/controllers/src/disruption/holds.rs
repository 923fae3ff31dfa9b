//! What is told of pods whose annotation asks that they be left alone.

use crate::events::{About, Event, timestamp};
use kerf_api::labels::DO_NOT_DISRUPT;
use kerf_mirror::{Hold, PodState};
use kerf_model::UnixMillis;

/// What there is to say: nothing about a plain `true`.
pub fn event(pod: &PodState, now: UnixMillis) -> Option<Event> {
    let about = About::pod(&pod.id, &pod.uid);
    match pod.hold(now) {
        Hold::None | Hold::ForEver | Hold::NotStarted => None,
        Hold::Invalid(found) => {
            let words = format!(
                "Invalid {DO_NOT_DISRUPT:?} annotation value {:?}; \"true\" or a positive duration such as \"5m\" would do",
                &*found
            );
            let same = [pod.uid.clone(), words.as_str().into()];
            Some(Event::warning(about, "InvalidDoNotDisruptAnnotation", words).same_by(same))
        }
        Hold::Until(then) => {
            let time = timestamp(then);
            let same = [pod.uid.clone(), time.as_str().into()];
            let words = format!("Pod is protected from disruption until {time}");
            Some(Event::normal(about, "DoNotDisruptUntil", words).same_by(same))
        }
        Hold::Over => {
            let words = format!("Pod's {DO_NOT_DISRUPT:?} grace period has elapsed, it is eligible for disruption");
            Some(Event::normal(about, "DoNotDisruptGracePeriodElapsed", words))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_and_nonsense_are_told_and_a_plain_true_is_not() {
        for (annotation, now, expected) in [
            ("true", 0, None),
            ("false", 0, None),
            ("1m", 59_000, Some(("DoNotDisruptUntil", "Pod is protected from disruption until 1970-01-01T00:01:00Z"))),
            ("1m", 60_000, Some(("DoNotDisruptGracePeriodElapsed", "Pod's"))),
            (
                "-1m",
                0,
                Some((
                    "InvalidDoNotDisruptAnnotation",
                    "Invalid \"karpenter.sh/do-not-disrupt\" annotation value \"-1m\"",
                )),
            ),
        ] {
            let pod = json!({
                "metadata": {"name": "p", "namespace": "n", "uid": "u", "annotations": {"karpenter.sh/do-not-disrupt": annotation}},
                "spec": {"nodeName": "a", "containers": []},
                "status": {"phase": "Running", "startTime": "1970-01-01T00:00:00Z"},
            });
            let event = event(&PodState::read(&serde_json::from_value(pod).unwrap()), UnixMillis(now));
            let found = event.as_ref().map(|event| (event.reason, event.message.as_str()));
            match (found, expected) {
                (Some((reason, message)), Some((wanted, start))) => {
                    assert!(reason == wanted && message.starts_with(start), "{annotation}: {reason} {message}");
                }
                (found, expected) => assert_eq!(found, expected, "{annotation}"),
            }
        }
    }
}
