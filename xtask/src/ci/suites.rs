//! The test programs of the workspace: built once by cargo, then started by ourselves, as cargo would start them.

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::FEATURES;
use super::jobs::{Job, Lane};
use crate::toolbox;

/// Rooms whose programs under `tests/` start clusters, emulators or our own binary, and wait for them. The longest first.
const WAITING: [&str; 3] = ["kerf-e2e", "kerf-cloud-aws", "kerf-cli"];

/// One test program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Suite {
    package: String,
    /// `lib`, `bin` or `test`.
    kind: String,
    target: String,
    folder: PathBuf,
    executable: PathBuf,
}

/// What cargo says of each thing that it made. Messages of other kinds lack most of it.
#[derive(Deserialize)]
struct Message {
    package_id: Option<String>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds everything that tests need, and says which programs there are.
pub(super) fn build() -> Result<Vec<Suite>> {
    let mut command = toolbox::cargo();
    command.args(["test", "--workspace", "--locked", "--no-run", "--quiet"]).args(FEATURES);
    let repeat = toolbox::typed(&command);
    let output = command
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("`{repeat}` does not start"))?;
    if !output.status.success() {
        bail!("to repeat it alone: {repeat}");
    }
    let suites = read(&String::from_utf8_lossy(&output.stdout))?;
    let unbuilt = unbuilt(&targets()?, &suites);
    if !unbuilt.is_empty() {
        bail!("cargo leaves out test programs, for want of a feature: {}", unbuilt.join(", "));
    }
    Ok(suites)
}

/// Test programs that there should be: package and target.
fn targets() -> Result<Vec<(String, String)>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    #[derive(Deserialize)]
    struct Package {
        name: String,
        targets: Vec<Target>,
    }
    let mut command = toolbox::cargo();
    command.args(["metadata", "--no-deps", "--locked", "--format-version", "1"]);
    let output = command.output().context("`cargo metadata` does not start")?;
    if !output.status.success() {
        bail!("`cargo metadata` fails: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("cargo's metadata have another shape than we know")?;
    let of_package = |package: Package| {
        let tests = package.targets.into_iter().filter(|target| target.kind == ["test"]);
        tests.map(|target| (package.name.clone(), target.name)).collect::<Vec<_>>()
    };
    Ok(metadata.packages.into_iter().flat_map(of_package).collect())
}

/// cargo says nothing of a target whose features are not on.
fn unbuilt(targets: &[(String, String)], suites: &[Suite]) -> Vec<String> {
    let is_built = |(package, target): &&(String, String)| {
        suites.iter().any(|suite| suite.kind == "test" && suite.package == *package && suite.target == *target)
    };
    targets.iter().filter(|target| !is_built(target)).map(|(package, target)| format!("{package} {target}")).collect()
}

fn read(messages: &str) -> Result<Vec<Suite>> {
    let mut suites = Vec::new();
    for line in messages.lines() {
        let message: Message =
            serde_json::from_str(line).context("cargo's messages have another shape than we know")?;
        let Message { package_id: Some(id), manifest_path: Some(manifest), target: Some(target), .. } = message else {
            continue;
        };
        let (true, Some(executable)) = (message.profile.is_some_and(|profile| profile.test), message.executable) else {
            continue;
        };
        suites.push(Suite {
            package: package(&id).to_owned(),
            kind: target.kind.first().cloned().unwrap_or_default(),
            target: target.name,
            folder: manifest.parent().map(Path::to_path_buf).unwrap_or_default(),
            executable,
        });
    }
    if suites.is_empty() {
        bail!("cargo built no test program");
    }
    suites.sort_by_key(|suite| {
        let place = WAITING.iter().position(|package| *package == suite.package);
        (place.unwrap_or(WAITING.len()), suite.package.clone(), suite.target.clone())
    });
    Ok(suites)
}

/// `path+file:///folder/api#kerf-api@0.1.0`, or `path+file:///folder/xtask#0.1.0` where folder and package share a name.
fn package(id: &str) -> &str {
    let (path, fragment) = id.rsplit_once('#').unwrap_or((id, id));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next().unwrap_or(path),
    }
}

impl Suite {
    /// The program as a job. It notes what it had to skip in the file `skipped`.
    pub(super) fn job(&self, skipped: &Path) -> Job {
        let is_waiting = self.kind == "test" && WAITING.contains(&self.package.as_str());
        let lane = if is_waiting { Lane::Waits } else { Lane::Cores };
        // The tests that start `kerf` as a process take the one that was built with them.
        let kerf = toolbox::target_folder().join("debug/kerf");
        let mut command = Command::new(&self.executable);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("CARGO_PKG_NAME", &self.package)
            .env("KERF_BINARY", &kerf)
            .env("KERF_AWS_BINARY", &kerf)
            .env(kerf_e2e::skipped::FILE, skipped);
        let target = if self.kind == "lib" { String::new() } else { format!(" {}", self.target) };
        let features = if self.package == "kerf-cli" { " --features aws" } else { "" };
        let features = if self.package == "kerf-cloud-aws" { " --features sdk" } else { features };
        Job {
            name: format!("{}{}", self.package, if target.is_empty() { " lib" } else { &target }),
            repeat: format!("cargo test --locked -p {}{features} --{}{target}", self.package, self.kind),
            command: polite(lane, command),
            lane,
        }
    }
}

/// What computes steps back behind what waits: an answer that comes late would look like a defect of the cluster.
pub(super) fn polite(lane: Lane, command: Command) -> Command {
    if lane == Lane::Waits {
        return command;
    }
    let mut polite = Command::new("nice");
    polite.args(["-n", "10"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => polite.env(name, value),
            None => polite.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        polite.current_dir(folder);
    }
    polite
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: &str = r##"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/engine#kerf-engine@0.1.0","manifest_path":"/w/crates/engine/Cargo.toml","target":{"kind":["lib"],"name":"kerf_engine"},"profile":{"test":true},"executable":"/t/kerf_engine-1"}
{"reason":"compiler-artifact","package_id":"path+file:///w/e2e#kerf-e2e@0.1.0","manifest_path":"/w/e2e/Cargo.toml","target":{"kind":["test"],"name":"operator"},"profile":{"test":true},"executable":"/t/operator-1"}
{"reason":"compiler-artifact","package_id":"path+file:///w/crates/cli#kerf-cli@0.1.0","manifest_path":"/w/crates/cli/Cargo.toml","target":{"kind":["bin"],"name":"kerf"},"profile":{"test":false},"executable":"/t/kerf"}
{"reason":"build-finished","success":true}"##;

    #[test]
    fn the_programs_that_wait_come_first_and_a_plain_binary_is_no_suite() {
        let suites = read(MESSAGES).unwrap();
        let jobs: Vec<Job> = suites.iter().map(|suite| suite.job(Path::new("/skipped"))).collect();
        let told: Vec<_> = jobs.iter().map(|job| (job.name.as_str(), job.repeat.as_str(), job.lane)).collect();
        assert_eq!(
            told,
            [
                ("kerf-e2e operator", "cargo test --locked -p kerf-e2e --test operator", Lane::Waits),
                ("kerf-engine lib", "cargo test --locked -p kerf-engine --lib", Lane::Cores),
            ]
        );
    }

    #[test]
    fn a_program_that_cargo_leaves_out_is_missed() {
        let suites = read(MESSAGES).unwrap();
        let target = |package: &str, target: &str| (package.to_owned(), target.to_owned());
        let targets = [target("kerf-e2e", "operator"), target("kerf-e2e", "aws")];
        assert_eq!(unbuilt(&targets, &suites), ["kerf-e2e aws"]);
        assert!(!super::targets().unwrap().is_empty());
    }

    #[test]
    fn a_package_is_named_by_its_id_or_by_its_folder() {
        assert_eq!(package("path+file:///w/crates/api#kerf-api@0.1.0"), "kerf-api");
        assert_eq!(package("path+file:///w/xtask#0.1.0"), "xtask");
    }
}
