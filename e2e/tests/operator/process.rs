//! Our operator as these tests start it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub(crate) use kerf_e2e::operator::{Operator, page};

/// Starts it, with further environment variables. `name` names its log in `folder`.
pub(crate) fn start(kubeconfig: &Path, folder: &Path, name: &str, environment: &[(&str, &str)]) -> Operator {
    let usual = [
        ("KUBECONFIG", kubeconfig.to_str().unwrap()),
        ("SYSTEM_NAMESPACE", "kube-system"),
        ("DISABLE_LEADER_ELECTION", "false"),
        ("FEATURE_GATES", "StaticCapacity=true,CapacityBuffer=true,NodeOverlay=true"),
        // Tests bring their pods at once; there is nothing to wait for.
        ("BATCH_IDLE_DURATION", "200ms"),
        ("BATCH_MAX_DURATION", "2s"),
        ("LOG_LEVEL", "debug"),
    ];
    Operator::start(binary(), "kwok", folder, name, usual.into_iter().chain(environment.iter().copied())).unwrap()
}

/// `KERF_BINARY` names one that is built already.
pub(crate) fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| kerf_e2e::operator::binary("KERF_BINARY", &[]).unwrap())
}
