//! Which room may lean on which, and what the quiet rooms may not bring along.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The arrows of `docs/ARCHITECTURE.md`. A room may also use what the rooms in its list lean on: whoever may see the
/// controllers may name the model.
const DOORS: [(&str, &[&str]); 13] = [
    ("kerf-model", &[]),
    ("kerf-engine", &["kerf-model"]),
    ("kerf-api", &["kerf-model"]),
    ("kerf-cloud", &["kerf-model"]),
    ("kerf-mirror", &["kerf-model", "kerf-api"]),
    ("kerf-cloud-aws", &["kerf-model", "kerf-api", "kerf-cloud"]),
    ("kerf-cloud-sim", &["kerf-model", "kerf-api", "kerf-cloud"]),
    ("kerf-controllers", &["kerf-model", "kerf-api", "kerf-engine", "kerf-mirror", "kerf-cloud"]),
    ("kerf-control-plane", &["kerf-api"]),
    ("kerf-simulation", &["kerf-controllers", "kerf-cloud-sim", "kerf-control-plane"]),
    ("kerf-cli", &["kerf-controllers", "kerf-cloud-aws", "kerf-cloud-sim", "kerf-control-plane", "kerf-simulation"]),
    ("kerf-e2e", &[]),
    // The toolshed measures and generates everything.
    ("xtask", &["kerf-cli", "kerf-e2e"]),
];

/// Rooms without a runtime, a client, an SDK, a clock or dice in their tree.
pub(crate) const QUIET: [&str; 4] = ["kerf-model", "kerf-engine", "kerf-api", "kerf-mirror"];

/// Packages that would make a quiet room loud. A trailing star stands for any ending.
const LOUD: [&str; 28] = [
    "async-io",
    "async-std",
    "aws-config",
    "aws-sdk-*",
    "aws-smithy-*",
    "aws-types",
    "fastrand",
    "futures-executor",
    "getrandom",
    "h2",
    "hyper",
    "hyper-*",
    "isahc",
    "kube-client",
    "kube-runtime",
    "mio",
    "native-tls",
    "openssl*",
    "quinn",
    "rand",
    "rand_*",
    "reqwest",
    "rustls*",
    "smol",
    "socket2",
    "tokio*",
    "tonic",
    "ureq*",
];

/// Names that say nothing about what lives inside.
const NO_ROOM: [&str; 4] = ["utils", "util", "common", "helpers"];

/// The part of `cargo metadata` that we read.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
    #[serde(default)]
    pub(crate) targets: Vec<Target>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// None for a normal dependency, else `dev` or `build`.
    pub(crate) kind: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Target {
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: String,
}

/// Every arrow that turns around. Tests may bring what they ask about, so development dependencies are free.
pub(crate) fn check(metadata: &Metadata) -> Vec<String> {
    let ours: BTreeSet<&str> = metadata.packages.iter().map(|p| p.name.as_str()).collect();
    let doors = BTreeMap::from(DOORS);
    let mut breaches = Vec::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        let room = name.strip_prefix("kerf-").unwrap_or(name);
        if NO_ROOM.contains(&room) {
            breaches.push(format!("{name}: a room named `{room}` has no sentence of its own to say"));
        }
        let Some(direct) = doors.get(name) else {
            breaches.push(format!(
                "{name}: a new room needs a row in xtask/src/tidy/arrows.rs and in docs/ARCHITECTURE.md"
            ));
            continue;
        };
        let allowed = closure(direct, &doors);
        let mut leans_on: Vec<&str> = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind.as_deref() != Some("dev"))
            .map(|dependency| dependency.name.as_str())
            .filter(|dependency| ours.contains(dependency) && !allowed.contains(dependency))
            .collect();
        leans_on.sort_unstable();
        leans_on.dedup();
        breaches.extend(
            leans_on
                .into_iter()
                .map(|dependency| format!("{name} leans on {dependency}: it may lean on {}", listed(&allowed))),
        );
    }
    breaches
}

fn closure<'a>(direct: &[&'a str], doors: &BTreeMap<&'a str, &'a [&'a str]>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut waiting = direct.to_vec();
    while let Some(name) = waiting.pop() {
        if seen.insert(name) {
            waiting.extend(doors.get(name).copied().unwrap_or_default());
        }
    }
    seen
}

fn listed(names: &BTreeSet<&str>) -> String {
    if names.is_empty() {
        return "nothing of ours".to_owned();
    }
    names.iter().copied().collect::<Vec<_>>().join(", ")
}

/// What `cargo tree` lists for a quiet room and should not.
pub(crate) fn check_quiet(room: &str, tree: &str) -> Vec<String> {
    let found: BTreeSet<&str> =
        tree.lines().filter_map(|line| line.split_whitespace().next()).filter(|package| is_loud(package)).collect();
    found
        .into_iter()
        .map(|package| {
            format!(
                "{room} brings {package}: no runtime, client, SDK, clock or dice in this room \
                 (cargo tree -p {room} -e normal -i {package})"
            )
        })
        .collect()
}

fn is_loud(package: &str) -> bool {
    LOUD.iter().any(|loud| match loud.strip_suffix('*') {
        Some(start) => package.starts_with(start),
        None => package == *loud,
    })
}

pub(crate) fn has_package(metadata: &Metadata, name: &str) -> bool {
    metadata.packages.iter().any(|package| package.name == name)
}

/// The first file of each library and binary.
pub(crate) fn crate_roots(metadata: &Metadata) -> impl Iterator<Item = &str> {
    metadata
        .packages
        .iter()
        .flat_map(|package| &package.targets)
        .filter(|target| target.kind.iter().any(|kind| kind == "lib" || kind == "bin"))
        .map(|target| target.src_path.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(text: &str) -> Metadata {
        serde_json::from_str(text).expect("made-up metadata")
    }

    #[test]
    fn an_arrow_that_turns_around_is_named_with_what_is_allowed() {
        let breaches = check(&metadata(
            r#"{"packages": [
                {"name": "kerf-model", "dependencies": [{"name": "kerf-engine", "kind": null}]},
                {"name": "kerf-engine", "dependencies": [{"name": "kerf-model", "kind": null}, {"name": "serde", "kind": null}]}
            ]}"#,
        ));
        assert_eq!(breaches, ["kerf-model leans on kerf-engine: it may lean on nothing of ours"]);
    }

    #[test]
    fn a_build_script_is_no_way_around() {
        let breaches = check(&metadata(
            r#"{"packages": [
                {"name": "kerf-engine", "dependencies": [{"name": "kerf-cloud", "kind": "build"}]},
                {"name": "kerf-cloud", "dependencies": []}
            ]}"#,
        ));
        assert_eq!(breaches, ["kerf-engine leans on kerf-cloud: it may lean on kerf-model"]);
    }

    #[test]
    fn tests_may_bring_what_they_ask_about() {
        let breaches = check(&metadata(
            r#"{"packages": [
                {"name": "kerf-engine", "dependencies": [{"name": "kerf-mirror", "kind": "dev"}]},
                {"name": "kerf-mirror", "dependencies": [{"name": "kerf-api", "kind": null}]},
                {"name": "kerf-api", "dependencies": [{"name": "kerf-api", "kind": "dev"}]}
            ]}"#,
        ));
        assert_eq!(breaches, Vec::<String>::new());
    }

    #[test]
    fn whoever_may_see_the_controllers_may_name_the_model() {
        let breaches = check(&metadata(
            r#"{"packages": [
                {"name": "kerf-cli", "dependencies": [{"name": "kerf-model", "kind": null}, {"name": "kerf-engine", "kind": null}]},
                {"name": "kerf-model", "dependencies": []},
                {"name": "kerf-engine", "dependencies": []},
                {"name": "kerf-cloud-aws", "dependencies": [{"name": "kerf-engine", "kind": null}]}
            ]}"#,
        ));
        assert_eq!(breaches, ["kerf-cloud-aws leans on kerf-engine: it may lean on kerf-api, kerf-cloud, kerf-model"]);
    }

    #[test]
    fn a_new_room_is_asked_for_its_row_and_its_name() {
        let breaches = check(&metadata(r#"{"packages": [{"name": "kerf-utils", "dependencies": []}]}"#));
        assert_eq!(breaches.len(), 2, "{breaches:?}");
        assert!(breaches[0].contains("no sentence"), "{breaches:?}");
        assert!(breaches[1].contains("needs a row"), "{breaches:?}");
    }

    #[test]
    fn a_quiet_room_that_brings_a_runtime_is_told_how_to_find_it() {
        let tree = "kerf-mirror v0.1.0 (here)\nserde v1.0.0\ntokio v1.0.0\naws-sdk-ec2 v1.0.0\ntokio v1.0.0 (*)\nrandom-name v1.0.0\n";
        let breaches = check_quiet("kerf-mirror", tree);
        assert_eq!(breaches.len(), 2, "{breaches:?}");
        assert!(breaches[0].starts_with("kerf-mirror brings aws-sdk-ec2"));
        assert!(breaches[1].contains("cargo tree -p kerf-mirror -e normal -i tokio"));
    }

    #[test]
    fn only_libraries_and_binaries_are_asked_for_an_opening() {
        let metadata = metadata(
            r#"{"packages": [{"name": "kerf-model", "dependencies": [], "targets": [
                {"kind": ["lib"], "src_path": "a/lib.rs"},
                {"kind": ["test"], "src_path": "a/tests/b.rs"},
                {"kind": ["bin"], "src_path": "a/main.rs"}
            ]}]}"#,
        );
        assert_eq!(crate_roots(&metadata).collect::<Vec<_>>(), ["a/lib.rs", "a/main.rs"]);
    }
}
