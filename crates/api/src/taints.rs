//! Taints that mean something to us.

use k8s_openapi::api::core::v1::Taint;

pub const NO_SCHEDULE: &str = "NoSchedule";
pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
pub const NO_EXECUTE: &str = "NoExecute";
pub const EFFECTS: &[&str] = &[NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE];

/// Put by the bootstrap, taken off at registration.
pub const UNREGISTERED: &str = "karpenter.sh/unregistered";
/// On a node that is being disrupted or deleted; pods that tolerate it are not drained.
pub const DISRUPTED: &str = "karpenter.sh/disrupted";
/// From the decision to reboot until a new boot is seen.
pub const REBOOTING: &str = "karpenter.sh/rebooting";

/// Ours: on a node whose own pods are being bound, so that nobody else takes their room.
pub const EARLY_BINDING: &str = "kerf.dev/early-binding";
pub const NODE_NOT_READY: &str = "node.kubernetes.io/not-ready";
pub const NODE_UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub const CLOUD_UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Every key with this start is a readiness gate that goes by itself.
pub const READINESS_PREFIX: &str = "readiness.k8s.io/";

const EPHEMERAL: &[(&str, &str)] = &[
    (NODE_NOT_READY, NO_SCHEDULE),
    (NODE_NOT_READY, NO_EXECUTE),
    (NODE_UNREACHABLE, NO_SCHEDULE),
    (CLOUD_UNINITIALIZED, NO_SCHEDULE),
    (UNREGISTERED, NO_EXECUTE),
    (EARLY_BINDING, NO_SCHEDULE),
];

/// Whether a taint is one that every young node has and loses by itself. Scheduling looks past it until the node is
/// initialized, and initialization waits until it is gone. The value of the taint does not matter.
pub fn is_known_ephemeral(key: &str, effect: &str) -> bool {
    EPHEMERAL.contains(&(key, effect)) || key.starts_with(READINESS_PREFIX)
}

pub fn unregistered() -> Taint {
    taint(UNREGISTERED, NO_EXECUTE)
}

pub fn disrupted() -> Taint {
    taint(DISRUPTED, NO_SCHEDULE)
}

pub fn rebooting() -> Taint {
    taint(REBOOTING, NO_SCHEDULE)
}

fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), effect: effect.to_owned(), ..Taint::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ephemeral_taints_are_told_by_key_and_effect() {
        for (key, effect, expected) in [
            (NODE_NOT_READY, NO_SCHEDULE, true),
            (NODE_NOT_READY, NO_EXECUTE, true),
            (NODE_UNREACHABLE, NO_SCHEDULE, true),
            (NODE_UNREACHABLE, NO_EXECUTE, false),
            (CLOUD_UNINITIALIZED, NO_SCHEDULE, true),
            (UNREGISTERED, NO_EXECUTE, true),
            (UNREGISTERED, NO_SCHEDULE, false),
            ("readiness.k8s.io/network", NO_EXECUTE, true),
            ("readiness.k8s.io", NO_SCHEDULE, false),
            (DISRUPTED, NO_SCHEDULE, false),
            (REBOOTING, NO_SCHEDULE, false),
        ] {
            assert_eq!(is_known_ephemeral(key, effect), expected, "{key}:{effect}");
        }
    }
}
