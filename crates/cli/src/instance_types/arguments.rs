//! What can be said to `kerf instance-types`.

use clap::{Args, ValueEnum};
use kerf_cloud::aws::AmiFamily;
use kerf_model::{CapacityType, Money, Quantity};
use std::path::PathBuf;

const HELP: &str = "\
Examples:
  kerf instance-types --requirement 'instance-category In c,m' --cpu 4..8 --capacity-type spot
  kerf instance-types -f nodepool.yaml --region eu-west-1 -o wide
  kerf instance-types --requirement 'instance-gpu-manufacturer In nvidia' --max-price 2 --ami-family Bottlerocket
  kerf instance-types -f pool-and-class.yaml -o json | jq -r '.instanceTypes[].name'

Types and prices are those of the built-in catalogue; `~` marks an estimated price. Prices are dollars per hour.";

/// Select EC2 instance types by requirements like a NodePool's, and print them with price, capacity and allocatable.
///
/// No account is asked. The cheapest come first.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct InstanceTypesArguments {
    /// A NodePool to take requirements from, in YAML or JSON, perhaps with its EC2NodeClass; "-" is standard input. May be repeated.
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-")]
    pub(crate) files: Vec<PathBuf>,

    /// A requirement, as a NodePool has it: key, operator, values with commas. The prefix karpenter.k8s.aws/ may be left out. May be
    /// repeated; all must hold.
    #[arg(short = 'r', long = "requirement", value_name = "'KEY OPERATOR [VALUE,…]'")]
    pub(crate) requirements: Vec<String>,

    /// vCPUs: a number, or a range such as 4..16, 4.. or ..16.
    #[arg(long, value_name = "RANGE", value_parser = parse_range)]
    pub(crate) cpu: Option<Range>,

    /// Memory as AWS advertises it: an amount, or a range such as 8Gi..64Gi.
    #[arg(long, value_name = "RANGE", value_parser = parse_range)]
    pub(crate) memory: Option<Range>,

    /// The region whose types and prices count. Without it, that of the class's subnets or of the zones, else us-east-1.
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Option<String>,

    /// Only what is sold in one of these zones.
    #[arg(long = "zone", value_name = "ZONE", value_delimiter = ',')]
    pub(crate) zones: Vec<String>,

    /// Only what can be bought in one of these ways.
    #[arg(long = "capacity-type", value_name = "TYPE", value_delimiter = ',', value_parser = parse_capacity_type)]
    pub(crate) capacity_types: Vec<CapacityType>,

    /// The images whose overhead counts; `all` for all of them. Without it, that of the class, else AL2023.
    #[arg(long = "ami-family", value_name = "FAMILY", value_delimiter = ',', value_parser = parse_families)]
    pub(crate) families: Vec<Families>,

    /// Only what costs at most so many dollars per hour.
    #[arg(long, value_name = "DOLLARS", value_parser = parse_dollars, allow_hyphen_values = true)]
    pub(crate) max_price: Option<Money>,

    /// How to print them.
    #[arg(short = 'o', long = "output", value_enum, default_value_t = Shape::Table)]
    pub(crate) output: Shape,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    Table,
    /// With more columns.
    Wide,
    Json,
}

/// From one amount to another, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) at_least: Option<Quantity>,
    pub(crate) at_most: Option<Quantity>,
}

impl Range {
    pub(crate) fn has(self, amount: Quantity) -> bool {
        self.at_least.is_none_or(|bound| amount >= bound) && self.at_most.is_none_or(|bound| amount <= bound)
    }
}

/// One family, or all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Families(pub(crate) Vec<AmiFamily>);

fn parse_range(text: &str) -> Result<Range, String> {
    let amount = |text: &str| Quantity::parse(text).map_err(|error| error.to_string());
    let bound = |text: &str| if text.is_empty() { Ok(None) } else { amount(text).map(Some) };
    match text.split_once("..") {
        Some(("", "")) => Err("a range needs a bound: 4..16, 4.. or ..16".to_owned()),
        Some((low, high)) => {
            let range = Range { at_least: bound(low)?, at_most: bound(high)? };
            match (range.at_least, range.at_most) {
                (Some(low), Some(high)) if low > high => Err(format!("nothing is between {low} and {high}")),
                _ => Ok(range),
            }
        }
        None => amount(text).map(|exactly| Range { at_least: Some(exactly), at_most: Some(exactly) }),
    }
}

fn parse_capacity_type(text: &str) -> Result<CapacityType, String> {
    match CapacityType::parse(text) {
        Some(CapacityType::Reserved) => {
            Err("reservations are an account's own; the catalogue has on-demand and spot".to_owned())
        }
        Some(known) => Ok(known),
        None => Err("use on-demand or spot".to_owned()),
    }
}

fn parse_families(text: &str) -> Result<Families, String> {
    if text.eq_ignore_ascii_case("all") {
        return Ok(Families(AmiFamily::ALL.to_vec()));
    }
    let known = AmiFamily::ALL.into_iter().find(|family| family.as_str().eq_ignore_ascii_case(text));
    known.map(|family| Families(vec![family])).ok_or_else(|| {
        let names: Vec<&str> = AmiFamily::ALL.iter().map(|family| family.as_str()).collect();
        format!("use all or {}", names.join(", "))
    })
}

fn parse_dollars(text: &str) -> Result<Money, String> {
    let dollars: f64 =
        text.trim_start_matches('$').parse().map_err(|_| "use dollars per hour, such as 0.25".to_owned())?;
    if dollars.is_finite() && dollars >= 0.0 {
        Ok(Money::from_dollars(dollars))
    } else {
        Err("a price is a positive number".to_owned())
    }
}
