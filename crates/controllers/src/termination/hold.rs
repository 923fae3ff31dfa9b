//! Pods that ask not to be disrupted, and what they are told.

use crate::desk::Desk;
use crate::events::{About, Event, timestamp};
use kerf_mirror::{Hold, PodState};

/// Tells a pod what its annotation means just now, where that is worth telling. For whoever wants to move it.
pub fn tell_hold(pod: &PodState, desk: &mut Desk<'_>) {
    if let Some(event) = event(pod, &pod.hold(desk.now)) {
        desk.event(event);
    }
}

fn event(pod: &PodState, hold: &Hold) -> Option<Event> {
    let about = About::pod(&pod.id, &pod.uid);
    match hold {
        Hold::None | Hold::ForEver | Hold::NotStarted => None,
        Hold::Until(until) => {
            let until = timestamp(*until);
            let message = format!("Pod must not be disrupted until {until}");
            let same = [pod.uid.clone(), until.into()];
            Some(Event::normal(about, "DoNotDisruptUntil", message).same_by(same))
        }
        Hold::Over => {
            let message = "The time in which the pod must not be disrupted is over";
            Some(Event::normal(about, "DoNotDisruptGracePeriodElapsed", message))
        }
        Hold::Invalid(found) => {
            let message = format!(
                "Ignoring annotation karpenter.sh/do-not-disrupt (or the older karpenter.sh/do-not-evict): found {found:?}; \
                 wants \"true\" or a positive duration such as \"30m\""
            );
            let same = [pod.uid.clone(), message.as_str().into()];
            Some(Event::warning(about, "InvalidDoNotDisruptAnnotation", message).same_by(same))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::drain::tests::pod;
    use super::*;
    use kerf_model::UnixMillis;

    fn told(text: &str, at_seconds: i64) -> Option<(String, bool, String)> {
        let pod = pod(text);
        let event = event(&pod, &pod.hold(UnixMillis(at_seconds * 1_000)));
        event.map(|event| (event.reason.to_string(), event.is_warning, event.message))
    }

    #[test]
    fn a_pod_is_told_what_its_annotation_means() {
        assert_eq!(told("a hold=true", 0), None);
        assert_eq!(told("a hold=5m", 0), None, "it has not started");
        let (reason, is_warning, message) = told("a hold=5m started=60", 70).unwrap();
        assert_eq!((reason.as_str(), is_warning), ("DoNotDisruptUntil", false));
        assert!(message.ends_with("1970-01-01T00:06:00Z"), "{message}");
        assert_eq!(told("a hold=5m started=60", 360).unwrap().0, "DoNotDisruptGracePeriodElapsed");
        for wrong in ["yes", "-5m", "0s"] {
            let (reason, is_warning, message) = told(&format!("a hold={wrong} started=60"), 70).unwrap();
            assert_eq!((reason.as_str(), is_warning), ("InvalidDoNotDisruptAnnotation", true));
            assert!(message.contains(&format!("{wrong:?}")), "{message}");
        }
    }
}
