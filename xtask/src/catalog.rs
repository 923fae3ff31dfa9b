//! `cargo xtask catalog`: makes `crates/cloud/data/aws.txt`, the built-in catalogue of EC2 instance types.
//!
//! ```text
//! PyPI moto ──────────────── types, zones ───┐
//! Go ec2-instances-info ──── prices ─────────┼─▶ join ─▶ aws.txt
//! Go vpc-resource-controller  branch ENIs ───┤
//! aws-notes.txt (by hand) ── newer prices ───┘
//! ```
//!
//! `--from-aws` renews the committed file from an account instead: its region's types, zones and prices as AWS, or an emulator
//! that serves its calls, tells them that day. What AWS does not say (branch interfaces, other regions) stays as it is.
//!
//! Otherwise only package registries are asked, by their ordinary clients (`pip`, `go`), and only at the versions pinned below,
//! so the output is the same on every day and machine. To refresh the catalogue, raise the pins and their dates.
//! Facts are taken from these packages, no code.

#[cfg(feature = "aws")]
mod asked;
mod prices;
mod renewed;
mod sources;

use anyhow::{Context, Result, bail};
use prices::Priced;
use sources::TypeFacts;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A package that facts are taken from.
pub(crate) struct Source {
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    /// When its facts were gathered: the day of release.
    pub(crate) date: &'static str,
    pub(crate) gives: &'static str,
}

pub(crate) const MOTO: Source = Source {
    package: "moto",
    version: "5.2.5",
    date: "2026-10-27",
    gives: "instance types and the zones that offer them",
};
pub(crate) const VPC_LIMITS: Source = Source {
    package: "github.com/aws/amazon-vpc-resource-controller-k8s",
    version: "v1.8.2",
    date: "2026-09-02",
    gives: "branch network interfaces",
};
pub(crate) const PRICES: Source = Source {
    package: "github.com/cristim/ec2-instances-info",
    version: "v0.0.0-20250528091325-32acf84f42eb",
    date: "2025-05-28",
    gives: "on-demand prices, and average spot prices as estimates",
};

const OUTPUT: &str = "crates/cloud/data/aws.txt";
const NOTES: &str = "crates/cloud/data/aws-notes.txt";

/// Flow: download, extract, join, estimate what no source prices, write.
/// Arguments: `--check` compares with the committed file instead of writing; `--cache <folder>` keeps downloads there; `--from-aws`
/// with `--region <region>` asks AWS.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = options(args)?;
    if options.is_from_aws {
        return from_aws(&options);
    }
    let types = sources::types(&options.cache)?;
    let offered = sources::zones_by_region(&options.cache)?;
    let listed = sources::listed_prices(&options.cache)?;
    let notes = prices::Notes::parse(&read(&options.root.join(NOTES))?)?;
    let book = prices::PriceBook::new(&types, listed, notes);
    let (text, summary) = render(&types, &offered, &book);
    let output = options.root.join(OUTPUT);
    if options.check {
        if read(&output)? != text {
            bail!("{OUTPUT} is not what `cargo xtask catalog` makes; run it and commit the result");
        }
    } else {
        std::fs::write(&output, &text).with_context(|| format!("writing {}", output.display()))?;
    }
    std::io::stdout().write_all(summary.as_bytes()).context("printing the summary")
}

#[cfg(feature = "aws")]
fn from_aws(options: &Options) -> Result<()> {
    let answers = asked::ask(options.region.clone())?;
    let output = options.root.join(OUTPUT);
    let (text, summary) = renewed::renew(&read(&output)?, &answers)?;
    std::fs::write(&output, &text).with_context(|| format!("writing {}", output.display()))?;
    std::io::stdout().write_all(summary.as_bytes()).context("printing the summary")
}

/// The SDK compiles for minutes, so the toolshed does without it unless asked.
#[cfg(not(feature = "aws"))]
fn from_aws(_: &Options) -> Result<()> {
    bail!("--from-aws needs the AWS SDK: cargo run -p xtask --features aws -- catalog --from-aws")
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

struct Options {
    root: PathBuf,
    check: bool,
    cache: PathBuf,
    is_from_aws: bool,
    /// Of the account; None: as the environment says.
    region: Option<String>,
}

fn options(args: &[String]) -> Result<Options> {
    // The workspace, wherever in it the command was given.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent folder")?;
    let mut options = Options {
        root: root.to_owned(),
        check: false,
        cache: root.join("target/catalog"),
        is_from_aws: false,
        region: None,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--check" => options.check = true,
            "--cache" => options.cache = args.next().context("--cache needs a folder")?.into(),
            "--from-aws" => options.is_from_aws = true,
            "--region" => options.region = Some(args.next().context("--region needs a region")?.clone()),
            other => bail!(
                "unknown argument {other}; cargo xtask catalog takes --check, --cache <folder>, and --from-aws [--region <region>]"
            ),
        }
    }
    if options.is_from_aws && options.check {
        bail!("--check compares with what the packages say; it does not go with --from-aws");
    }
    if options.region.is_some() && !options.is_from_aws {
        bail!("--region goes with --from-aws: the packages give every region");
    }
    Ok(options)
}

const HEADER: &str = "\
# EC2 instance types, where they are offered, and what they cost. Made by `cargo xtask catalog`; do not edit.
# Prices are microdollars per hour, Linux, shared tenancy. `~` marks an on-demand price that was estimated rather than
# listed (how: see aws-notes.txt and xtask/src/catalog/prices.rs). Every spot price is an estimate.
#
# type <name> <architectures> <maker> <MHz> <vCPU> <MiB> <hypervisor> <interfaces> <addresses each> <branch interfaces>
#      <network cards> <network Mbps> <EBS Mbps> <EBS volumes> <disk GB> <GPU count:maker:name:MiB>
#      <accelerator count:maker:name> <Neuron count:cores:name> <EFA> <flags>
#   flags: d on-demand, s spot, b bare metal, e encryption in transit, n enclaves, v nested virtualization,
#          c cluster placement, N NVMe disks, w listed in the VPC limits, E ENA
# region <name> <zone>…, then lines of <type> <zone letters> <on-demand> <spot>
";

fn render(types: &BTreeMap<String, TypeFacts>, offered: &sources::Zones, book: &prices::PriceBook) -> (String, String) {
    let sources = [MOTO, VPC_LIMITS, PRICES];
    let date = sources.iter().map(|source| source.date).max().unwrap_or_default();
    let mut text = String::from(HEADER);
    let mut summary = format!("EC2 catalogue of {date}: {} types\n", types.len());
    // Writing to a String cannot fail.
    let _ = writeln!(text, "date {date}\nprices {}", PRICES.date);
    for source in &sources {
        let _ = writeln!(text, "source {} {} {} {}", source.package, source.version, source.date, source.gives);
    }
    for (name, facts) in types {
        let _ = writeln!(text, "type {name} {}", facts.line());
    }
    for (region, by_type) in offered {
        let mut zones: Vec<&str> = by_type.values().flatten().map(String::as_str).collect();
        zones.sort_unstable();
        zones.dedup();
        let _ = writeln!(text, "region {region} {}", zones.join(" "));
        let (mut n_types, mut n_listed, mut n_estimated) = (0, 0, 0);
        for (name, zones) in by_type {
            let Some(facts) = types.get(name) else {
                continue;
            };
            let priced = book.price(name, facts, region);
            n_types += 1;
            match priced.on_demand {
                Some(price) if price.is_estimate => n_estimated += 1,
                Some(_) => n_listed += 1,
                None => {}
            }
            let letters: String = zones.iter().filter_map(|zone| zone.strip_prefix(region.as_str())).collect();
            let _ = writeln!(text, "{name} {letters} {}", columns(&priced));
        }
        let n_unpriced = n_types - n_listed - n_estimated;
        let _ = writeln!(
            summary,
            "{region}: {n_types} types, {n_listed} listed, {n_estimated} estimated, {n_unpriced} without price"
        );
    }
    let _ = writeln!(summary, "{} bytes", text.len());
    (text, summary)
}

fn columns(priced: &Priced) -> String {
    let on_demand = match priced.on_demand {
        Some(price) => format!("{}{}", micros(price.dollars), if price.is_estimate { "~" } else { "" }),
        None => "-".to_owned(),
    };
    let spot = priced.spot.map_or("-".to_owned(), |dollars| micros(dollars).to_string());
    format!("{on_demand} {spot}")
}

fn micros(dollars: f64) -> i64 {
    (dollars * 1e6).round() as i64
}
