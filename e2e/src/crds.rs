//! Custom resource definitions on a real API server: read from a folder, applied, and waited for until they are served.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::client::Client;

/// A definition is established within a second; the server compiles its rules before it answers.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
const POLL_EVERY: Duration = Duration::from_millis(20);
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// One definition as its file has it.
#[derive(Clone, Debug)]
pub struct Crd {
    pub file: PathBuf,
    pub name: String,
    pub kind: String,
    /// `group/version` of the only version that is served.
    pub api_version: String,
    pub plural: String,
    pub is_namespaced: bool,
    pub has_status: bool,
    /// The `openAPIV3Schema` of that version.
    pub schema: Value,
    text: String,
}

impl Crd {
    /// Where its objects are listed and created; those in namespaces, in `default`.
    #[must_use]
    pub fn collection(&self) -> String {
        let namespace = if self.is_namespaced { "namespaces/default/" } else { "" };
        format!("/apis/{}/{namespace}{}", self.api_version, self.plural)
    }

    /// Where one object lives.
    #[must_use]
    pub fn object(&self, name: &str) -> String {
        format!("{}/{name}", self.collection())
    }
}

/// The folder that `cargo xtask crds` writes.
///
/// `KERF_CRDS` names another one: the same questions, asked of somebody else's definitions.
#[must_use]
pub fn folder() -> PathBuf {
    match std::env::var_os("KERF_CRDS") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds"),
    }
}

/// Reads every YAML file of a folder as one definition, in the order of their names.
pub fn read(folder: &Path) -> Result<Vec<Crd>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files.iter().map(|file| parse(file).with_context(|| format!("{}", file.display()))).collect()
}

/// Applies the definitions and waits until each is served.
///
/// Guarantees: on return every definition is `Established` with its names accepted and a structural schema, and its objects can be
/// listed and created.
pub fn install(client: &Client, crds: &[Crd]) -> Result<()> {
    for crd in crds {
        let applied = client.apply(&format!("{DEFINITIONS}/{}", crd.name), "kerf-e2e", &crd.text)?;
        ensure!(applied.is_success(), "{} is refused: {}", crd.name, applied.message());
    }
    for crd in crds {
        wait_until_served(client, crd)?;
    }
    Ok(())
}

fn parse(file: &Path) -> Result<Crd> {
    let text = fs::read_to_string(file)?;
    let definition: Value = serde_norway::from_str(&text).context("not YAML")?;
    ensure!(definition["kind"] == "CustomResourceDefinition", "not a CustomResourceDefinition");
    let word = |pointer: &str| -> Result<String> {
        let value = definition.pointer(pointer).and_then(Value::as_str);
        Ok(value.with_context(|| format!("no {pointer}"))?.to_owned())
    };
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).context("no versions")?;
    // Older versions are converted to it.
    let mut stored = versions.iter().filter(|version| version["storage"] == true && version["served"] == true);
    let (Some(version), None) = (stored.next(), stored.next()) else {
        bail!("we expect exactly one version that is stored, and it served");
    };
    Ok(Crd {
        file: file.to_owned(),
        name: word("/metadata/name")?,
        kind: word("/spec/names/kind")?,
        api_version: format!(
            "{}/{}",
            word("/spec/group")?,
            version["name"].as_str().context("a version without a name")?
        ),
        plural: word("/spec/names/plural")?,
        is_namespaced: word("/spec/scope")? == "Namespaced",
        has_status: version.pointer("/subresources/status").is_some(),
        schema: version.pointer("/schema/openAPIV3Schema").context("no schema")?.clone(),
        text,
    })
}

fn wait_until_served(client: &Client, crd: &Crd) -> Result<()> {
    let deadline = Instant::now() + SERVED_WITHIN;
    loop {
        let definition = client.get(&format!("{DEFINITIONS}/{}", crd.name))?;
        let is_true =
            |kind: &str| condition(&definition.body, kind).is_some_and(|condition| condition["status"] == "True");
        // A schema that is not structural is established all the same, and then nothing is pruned or defaulted.
        if let Some(found) = condition(&definition.body, "NonStructuralSchema") {
            bail!("{}: the schema is not structural: {}", crd.name, found["message"]);
        }
        if is_true("Established") && is_true("NamesAccepted") && client.get(&crd.collection())?.is_success() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("{} is not served after {} s: {}", crd.name, SERVED_WITHIN.as_secs(), definition.body["status"]);
        }
        thread::sleep(POLL_EVERY);
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object.pointer("/status/conditions")?.as_array()?.iter().find(|condition| condition["type"] == kind)
}
