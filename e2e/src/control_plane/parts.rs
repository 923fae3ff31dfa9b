//! What can be built: the binaries, and the Go modules they come from.
//!
//! Different tools want different versions of the same libraries, so each [`Set`] is resolved in a go.mod of its own. All
//! binaries of a set share one resolution, one folder and one version.

/// One Go module and how to build from it.
#[derive(Debug)]
pub struct Set {
    /// Names the cache folder, together with the version.
    pub name: &'static str,
    pub module: &'static str,
    pub version: &'static str,
    pub staging: Staging,
    /// `-X` values: a variable of a package, and what it shall say.
    pub stamps: &'static [(&'static str, &'static str)],
    /// Files of the module that its binaries are useless without: kept in the cache beside them, never in our repository.
    pub files: &'static [&'static str],
}

/// What to do about modules which the set's own go.mod replaces by folders of its repository. Such a replacement binds only
/// the main module, and the folders are not in the module's archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staging {
    /// The go.mod requires them in published versions beside the folders: nothing to do. Etcd does this.
    AsRequired,
    /// Each is published under its own name, as the v0 twin of the set's version: v1.36.3 becomes v0.36.3. Kubernetes does this;
    /// its go.mod requires v0.0.0, which exists nowhere.
    V0Twin,
}

/// One binary.
#[derive(Debug)]
pub struct Part {
    /// The binary's file name.
    pub name: &'static str,
    pub set: &'static Set,
    /// The main package below the module; empty for the module's root.
    pub package: &'static str,
}

/// Without the stamps the server calls itself v0.0.0-master, and clients that look at its version stumble.
pub static KUBERNETES: Set = Set {
    name: "kubernetes",
    module: "k8s.io/kubernetes",
    version: "v1.36.3",
    staging: Staging::V0Twin,
    stamps: &[
        ("k8s.io/component-base/version.gitVersion", "v1.36.3"),
        ("k8s.io/component-base/version.gitMajor", "1"),
        ("k8s.io/component-base/version.gitMinor", "36"),
    ],
    files: &[],
};

pub static ETCD: Set = Set {
    name: "etcd",
    module: "go.etcd.io/etcd/server/v3",
    version: "v3.7.3",
    staging: Staging::AsRequired,
    stamps: &[],
    files: &[],
};

/// Simulated kubelets for the real control plane. The files are the definition of its `Stage` and the stages themselves: what
/// happens to a node and to a pod, and how soon.
pub static KWOK: Set = Set {
    name: "kwok",
    module: "sigs.k8s.io/kwok",
    version: "v0.8.0",
    staging: Staging::AsRequired,
    stamps: &[],
    files: &[
        "kustomize/crd/bases/kwok.x-k8s.io_stages.yaml",
        "kustomize/stage/node/fast/node-initialize.yaml",
        "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
        "kustomize/stage/pod/fast/pod-ready.yaml",
        "kustomize/stage/pod/fast/pod-complete.yaml",
        "kustomize/stage/pod/fast/pod-delete.yaml",
    ],
};

/// The peer: Karpenter's own operator with its kwok provider, for measuring beside ours. It asks for a newer Go than the others.
pub static KARPENTER: Set = Set {
    name: "karpenter",
    module: "sigs.k8s.io/karpenter",
    version: "v1.15.0",
    staging: Staging::AsRequired,
    stamps: &[],
    files: &[],
};

/// Everything needed for an API server and for looking at it.
pub static API_SERVER: &[Part] = &[
    Part { name: "etcd", set: &ETCD, package: "" },
    Part { name: "kube-apiserver", set: &KUBERNETES, package: "cmd/kube-apiserver" },
    Part { name: "kubectl", set: &KUBERNETES, package: "cmd/kubectl" },
];

/// A whole cluster: the API server, the controllers that live beside it, and kubelets for nodes that are not there.
pub static CLUSTER: &[Part] = &[
    Part { name: "etcd", set: &ETCD, package: "" },
    Part { name: "kube-apiserver", set: &KUBERNETES, package: "cmd/kube-apiserver" },
    Part { name: "kube-controller-manager", set: &KUBERNETES, package: "cmd/kube-controller-manager" },
    Part { name: "kube-scheduler", set: &KUBERNETES, package: "cmd/kube-scheduler" },
    Part { name: "kubectl", set: &KUBERNETES, package: "cmd/kubectl" },
    Part { name: "kwok", set: &KWOK, package: "cmd/kwok" },
];

/// The peer's operator, for a cluster that stands already.
pub static PEER: &[Part] = &[Part { name: "karpenter-kwok", set: &KARPENTER, package: "kwok" }];

impl Set {
    /// The folder of this set's binaries in the cache.
    #[must_use]
    pub fn folder(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

impl Part {
    /// The import path of the main package.
    #[must_use]
    pub fn import_path(&self) -> String {
        if self.package.is_empty() {
            self.set.module.to_owned()
        } else {
            format!("{}/{}", self.set.module, self.package)
        }
    }

    /// Go calls a binary by the last word of its import path.
    pub(super) fn has_the_name_that_go_gives(&self) -> bool {
        self.import_path().rsplit('/').next() == Some(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubernetes_stamps_say_the_version_that_is_built() {
        let stamped: Vec<&str> = KUBERNETES.stamps.iter().map(|(_, value)| *value).collect();
        assert_eq!(stamped[0], KUBERNETES.version);
        assert!(KUBERNETES.version.starts_with(&format!("v{}.{}.", stamped[1], stamped[2])));
    }

    #[test]
    fn a_root_package_is_imported_by_the_modules_name() {
        assert_eq!(API_SERVER[0].import_path(), "go.etcd.io/etcd/server/v3");
        assert_eq!(API_SERVER[1].import_path(), "k8s.io/kubernetes/cmd/kube-apiserver");
    }
}
