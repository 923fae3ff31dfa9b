//! Which pods a drain waits for, whose turn it is, and when patience ends. Plain functions of pods and a time.

use kerf_mirror::PodState;
use kerf_model::UnixMillis;
use std::sync::Arc;

/// A pod that should have been gone for so long is not waited for any more: its kubelet is likely dead.
const STUCK_AFTER_MS: i64 = 60_000;

/// How far a drain is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    pub n_waiting: usize,
    /// To be evicted or deleted now: those whose time is up, then the tier whose turn it is.
    pub leaving: Vec<Arc<PodState>>,
    /// When it looks different even if no pod changes.
    pub again_at: Option<UnixMillis>,
}

/// Who leaves before whom. What a pod needs of its node (its logs, its network) goes after the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    Plain,
    Daemon,
    Critical,
    CriticalDaemon,
}

impl Tier {
    pub fn of(pod: &PodState) -> Self {
        match (pod.is_critical, pod.is_daemon()) {
            (false, false) => Self::Plain,
            (false, true) => Self::Daemon,
            (true, false) => Self::Critical,
            (true, true) => Self::CriticalDaemon,
        }
    }
}

impl Drain {
    /// Looks at the pods of a node that must be empty by `deadline`, if there is one.
    pub fn look<'a>(
        pods: impl IntoIterator<Item = &'a Arc<PodState>>,
        deadline: Option<UnixMillis>,
        now: UnixMillis,
    ) -> Self {
        let waiting: Vec<&Arc<PodState>> = pods.into_iter().filter(|pod| is_waited_for(pod, now)).collect();
        let is_forced =
            |pod: &PodState| deadline.is_some_and(|deadline| force_grace_seconds(pod, deadline, now).is_some());
        let (forced, patient): (Vec<_>, Vec<_>) = waiting.iter().copied().partition(|pod| is_forced(pod));
        let turn = patient.iter().map(|pod| Tier::of(pod)).min();
        // Those that are leaving already hold their tier's turn, and need no second push.
        let of_turn = patient.iter().copied().filter(|pod| Some(Tier::of(pod)) == turn && pod.is_active());
        let changes = waiting.iter().filter_map(|pod| match pod.deleting_since {
            Some(end) => Some(UnixMillis(end.0.saturating_add(STUCK_AFTER_MS + 1))),
            None => deadline.and_then(|deadline| force_from(pod, deadline)),
        });
        Self {
            n_waiting: waiting.len(),
            again_at: changes.filter(|at| *at > now).min(),
            leaving: forced.iter().copied().chain(of_turn).cloned().collect(),
        }
    }
}

/// Whether a drain has any business with a pod.
pub fn is_drainable(pod: &PodState, now: UnixMillis) -> bool {
    !pod.tolerates_disrupted && !pod.is_mirror && !is_stuck(pod, now)
}

/// Whether a drain waits for a pod to go.
pub fn is_waited_for(pod: &PodState, now: UnixMillis) -> bool {
    !pod.is_terminal() && is_drainable(pod, now)
}

fn is_stuck(pod: &PodState, now: UnixMillis) -> bool {
    pod.deleting_since.is_some_and(|end| now.0 > end.0.saturating_add(STUCK_AFTER_MS))
}

/// From when on a pod is deleted whatever holds it, so that its own grace period still fits before the deadline. A pod that
/// names no grace period is never deleted by force.
pub fn force_from(pod: &PodState, deadline: UnixMillis) -> Option<UnixMillis> {
    let grace_ms = pod.grace_seconds?.saturating_mul(1_000);
    Some(UnixMillis(deadline.0.saturating_sub(grace_ms).saturating_add(1)))
}

/// The grace period with which a pod must be deleted now. None: it may still go by itself, or it goes soon enough.
pub fn force_grace_seconds(pod: &PodState, deadline: UnixMillis, now: UnixMillis) -> Option<i64> {
    let from = force_from(pod, deadline)?;
    let left_seconds = (deadline.0 - now.0).div_euclid(1_000).max(1);
    let is_time = match pod.deleting_since {
        None => now >= from,
        // It would outlive its node. Asking again for what was asked already would change nothing.
        Some(end) => end > deadline && now.0 + left_seconds * 1_000 < end.0,
    };
    is_time.then_some(left_seconds)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use kerf_mirror::Object;
    use serde_json::json;

    pub(crate) const SECOND: i64 = 1_000;

    /// `name` with words: `daemon`, `critical`, `tolerates`, `mirror`, `ended`, `grace=30`, `leaves=70` (its deletion
    /// timestamp, in seconds), `hold=5m`, `started=10`, `claim=data`.
    pub(crate) fn pod(text: &str) -> Arc<PodState> {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap();
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "1"},
            "spec": {"nodeName": "node", "containers": []}, "status": {"phase": "Running"},
        });
        let time = |text: &str| {
            let at = jiff::Timestamp::from_second(text.parse().unwrap()).unwrap();
            json!(at.to_string())
        };
        for word in words {
            match word.split_once('=').unwrap_or((word, "")) {
                ("daemon", _) => {
                    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]);
                }
                ("critical", _) => pod["spec"]["priorityClassName"] = json!("system-node-critical"),
                ("tolerates", _) => pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]),
                ("mirror", _) => pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"}),
                ("ended", _) => pod["status"]["phase"] = json!("Succeeded"),
                ("grace", seconds) => {
                    pod["spec"]["terminationGracePeriodSeconds"] = json!(seconds.parse::<i64>().unwrap());
                }
                ("leaves", at) => pod["metadata"]["deletionTimestamp"] = time(at),
                ("started", at) => pod["status"]["startTime"] = time(at),
                ("hold", value) => pod["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": value}),
                ("claim", name) => {
                    pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": name}}]);
                }
                (other, _) => panic!("{other}?"),
            }
        }
        let Ok(Object::Pod(pod)) = Object::read(pod) else { panic!("{text} is no pod") };
        Arc::new(PodState::read(&pod))
    }

    /// Who leaves, and how many are waited for, at a second.
    fn look(pods: &[&str], deadline: Option<i64>, now: i64) -> (String, usize) {
        let pods: Vec<Arc<PodState>> = pods.iter().map(|text| pod(text)).collect();
        let at = |seconds: i64| UnixMillis(seconds * SECOND);
        let drain = Drain::look(&pods, deadline.map(at), at(now));
        let names: Vec<&str> = drain.leaving.iter().map(|pod| &*pod.id.name).collect();
        (names.join(" "), drain.n_waiting)
    }

    #[test]
    fn each_tier_leaves_when_the_one_before_is_gone() {
        let tiers = ["d critical daemon", "c critical", "b daemon", "a"];
        for n in (1..=4).rev() {
            let (leaving, n_waiting) = look(&tiers[..n], None, 0);
            assert_eq!(leaving, ["d", "c", "b", "a"][n - 1]);
            assert_eq!(n_waiting, n);
        }
        assert_eq!(look(&[], None, 0), (String::new(), 0));
    }

    #[test]
    fn a_pod_that_is_leaving_holds_its_tier_and_is_not_pushed_again() {
        assert_eq!(look(&["a leaves=30", "a2", "b daemon"], None, 10), ("a2".into(), 3));
        assert_eq!(look(&["a leaves=30", "b daemon"], None, 10), (String::new(), 2));
    }

    #[test]
    fn nobody_waits_for_pods_that_ended_or_tolerate_the_taint_or_belong_to_the_kubelet_or_are_stuck() {
        assert_eq!(look(&["a ended", "b tolerates", "c mirror", "d leaves=30"], None, 91), (String::new(), 0));
        assert_eq!(look(&["d leaves=30"], None, 90), (String::new(), 1), "a minute is not more than a minute");
    }

    #[test]
    fn a_held_pod_holds_its_tier() {
        assert_eq!(look(&["a hold=true", "b daemon"], None, 0), ("a".into(), 2));
    }

    #[test]
    fn a_pod_is_deleted_when_its_grace_period_just_fits_before_the_deadline() {
        for (text, now, expected) in [
            ("a grace=30", 30, None),
            ("a grace=30", 31, Some(29)),
            ("a grace=30", 60, Some(1)),
            ("a grace=30", 90, Some(1)),
            ("a grace=0", 60, None),
            ("a grace=0", 61, Some(1)),
            ("a grace=90", 0, Some(60)),
            ("a", 1_000, None),
            ("a grace=30 leaves=60", 31, None),
            ("a grace=90 leaves=61", 10, Some(50)),
            ("a grace=90 leaves=90", 70, Some(1)),
            ("a grace=90 leaves=71", 70, None),
        ] {
            let (deadline, now) = (UnixMillis(60 * SECOND), UnixMillis(now * SECOND));
            assert_eq!(force_grace_seconds(&pod(text), deadline, now), expected, "{text} at {now:?}");
        }
    }

    #[test]
    fn pods_whose_time_is_up_leave_from_every_tier_and_the_first_of_the_others_too() {
        let pods = ["late critical daemon grace=50", "a grace=5", "b daemon grace=5"];
        assert_eq!(look(&pods, Some(60), 20), ("late a".into(), 3));
    }

    #[test]
    fn it_looks_again_when_a_grace_period_no_longer_fits_or_a_pod_gets_stuck() {
        let at = |seconds: i64| UnixMillis(seconds * SECOND);
        let pods = [pod("a grace=30"), pod("b grace=10"), pod("c leaves=40")];
        let drain = Drain::look(&pods, Some(at(60)), at(0));
        assert_eq!(drain.again_at, Some(UnixMillis(30_001)));
        let drain = Drain::look(&pods, Some(at(60)), at(55));
        assert_eq!(drain.again_at, Some(UnixMillis(100_001)));
        assert_eq!(Drain::look(&pods[..2], None, at(0)).again_at, None);
    }
}
