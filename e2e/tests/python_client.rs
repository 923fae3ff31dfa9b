//! Does a client that others wrote, in another language, get along with ours as with a real control plane?
//!
//! `python/visit.py` lists, watches, patches, makes custom objects and elects a leader with the Python client, and prints
//! what it learns. Both stages must teach it the same.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use std::path::Path;
use std::process::Command;
use std::thread;

use kerf_control_plane::{ControlPlane, Options};
use kerf_e2e::control_plane::{self, Started, build};
use kerf_e2e::packages::{Installed, Package};
use kerf_e2e::repeat::Repeats;
use kerf_e2e::skipped;

const CLIENT: Package = Package { name: "kubernetes", version: "37.0.2", is_library: true };

#[test]
fn the_python_client_learns_the_same_from_both_stages() {
    let skip = |reason: &str| skipped::tell(1, "a visit of the Python client", reason);
    let packages = match CLIENT.install(&build::to_stderr).unwrap() {
        Installed::Ready(folder) => folder,
        Installed::Skipped(reason) => return skip(&reason),
    };
    let attempt = || visit_both(&packages);
    let name = "the Python client";
    match Repeats::default().run(name, attempt, attempt).unwrap_or_else(|story| panic!("{story}")) {
        Err(reason) => skip(&reason),
        Ok(n_lines) => {
            build::to_stderr(&format!("{name} learned {n_lines} things from each of two stages, and the same"));
        }
    }
}

/// How many things were learned from two fresh clusters, or why there is no real one. The error is where they differ.
fn visit_both(packages: &Path) -> Result<Result<usize, String>, String> {
    let (real, embedded) = thread::scope(|scope| {
        let real = scope.spawn(|| match control_plane::start_cluster(&build::to_stderr).unwrap() {
            Started::Ready(plane) => Ok(visit(packages, plane.kubeconfig())),
            Started::Skipped(reason) => Err(reason),
        });
        let plane = ControlPlane::start(&Options::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        plane.write_kubeconfig(&kubeconfig).unwrap();
        let embedded = visit(packages, &kubeconfig);
        (real.join().unwrap(), embedded)
    });
    if embedded.lines().last() != Some("gone") {
        return Err(format!("the visit of the embedded stage ended early:\n{embedded}"));
    }
    match real {
        Ok(real) if real != embedded => {
            let differing: Vec<_> = real.lines().zip(embedded.lines()).filter(|(real, ours)| real != ours).collect();
            let (of_real, of_ours) = (real.lines().count(), embedded.lines().count());
            Err(format!("{of_real} lines of the real one, {of_ours} of ours; real and ours: {differing:#?}"))
        }
        Ok(real) => Ok(Ok(real.lines().count())),
        Err(reason) => Ok(Err(reason)),
    }
}

/// What the client learned, and the error it ended with, if it did.
fn visit(packages: &Path, kubeconfig: &Path) -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("python3")
        .env("PYTHONPATH", packages)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(here.join("python/visit.py"))
        .arg(kubeconfig)
        .arg(here.join("../deploy/crds/karpenter.sh_nodepools.yaml"))
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&said).into_owned()
}
