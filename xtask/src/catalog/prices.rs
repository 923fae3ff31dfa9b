//! A price for every type in every region that sells it: the listed one where there is one, else an estimate.
//!
//! An estimate starts from a price in us-east-1 (listed or noted; else that of a sibling size, by vCPU; else that of
//! the older family, by the noted ratio) and carries it to the region by the median ratio of prices listed in both,
//! within the family, its older family, its category, or everything, whichever first has any.

use super::sources::{Listed, TypeFacts};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;

/// Where every price is known first.
const HOME: &str = "us-east-1";

/// Fewer listed spot prices than this in a category say little; the whole region is asked instead.
const SPOT_SAMPLES_MIN: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Price {
    pub(super) dollars: f64,
    pub(super) is_estimate: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Priced {
    pub(super) on_demand: Option<Price>,
    pub(super) spot: Option<f64>,
}

/// What `aws-notes.txt` says.
#[derive(Debug, Default)]
pub(super) struct Notes {
    prices: BTreeMap<String, Price>,
    /// By family: the older family and the price ratio to it.
    after: BTreeMap<String, (String, f64)>,
}

impl Notes {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut notes = Self::default();
        for (position, line) in
            text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
        {
            notes.read(line).with_context(|| format!("line {} of the price notes", position + 1))?;
        }
        Ok(notes)
    }

    fn read(&mut self, line: &str) -> Result<()> {
        let basis = |word: &str| match word {
            "seen" => Ok(false),
            "assumed" => Ok(true),
            other => bail!("expected `seen` or `assumed`, found {other}"),
        };
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["price", name, dollars, word, ..] => {
                let price = Price { dollars: dollars.parse().context("the price")?, is_estimate: basis(word)? };
                self.prices.insert(name.to_owned(), price);
            }
            ["after", family, older, ratio, word, ..] => {
                basis(word)?;
                self.after.insert(family.to_owned(), (older.to_owned(), ratio.parse().context("the ratio")?));
            }
            _ => bail!("expected `price <type> <dollars> <basis>` or `after <family> <older> <ratio> <basis>`"),
        }
        Ok(())
    }
}

pub(super) struct PriceBook {
    listed: Listed,
    notes: Notes,
    vcpus: BTreeMap<String, u32>,
}

impl PriceBook {
    pub(super) fn new(types: &BTreeMap<String, TypeFacts>, listed: Listed, notes: Notes) -> Self {
        let vcpus = types.iter().map(|(name, facts)| (name.clone(), facts.vcpus())).collect();
        Self { listed, notes, vcpus }
    }

    pub(super) fn price(&self, name: &str, facts: &TypeFacts, region: &str) -> Priced {
        let on_demand = self.on_demand(name, region);
        let spot = on_demand.filter(|_| facts.sells_spot()).map(|price| self.spot(name, region, price.dollars));
        Priced { on_demand, spot }
    }

    fn on_demand(&self, name: &str, region: &str) -> Option<Price> {
        let listed = self.listed_at(name, region);
        match (self.notes.prices.get(name), listed) {
            (Some(noted), _) if region == HOME => Some(*noted),
            // The table is older than the note: assume that the price moved by the same ratio everywhere.
            (Some(noted), Some(then)) if self.listed_at(name, HOME).is_some() => {
                let home_then = self.listed_at(name, HOME)?;
                Some(Price { dollars: then * noted.dollars / home_then, is_estimate: true })
            }
            (None, Some(dollars)) => Some(Price { dollars, is_estimate: false }),
            _ => Some(Price { dollars: self.at_home(name)? * self.region_ratio(name, region)?, is_estimate: true }),
        }
    }

    /// The listed average, else the usual share of the on-demand price; never above the on-demand price.
    fn spot(&self, name: &str, region: &str, on_demand: f64) -> f64 {
        let listed = self.listed.get(name).and_then(|regions| regions.get(region)).and_then(|price| price.spot);
        listed.unwrap_or_else(|| on_demand * self.spot_share(name, region)).min(on_demand)
    }

    fn spot_share(&self, name: &str, region: &str) -> f64 {
        let shares = |wanted: &dyn Fn(&str) -> bool| -> Vec<f64> {
            let prices =
                self.listed.iter().filter(|(other, _)| wanted(other)).filter_map(|(_, regions)| regions.get(region));
            prices.filter_map(|price| Some(price.spot? / price.on_demand)).filter(|share| *share <= 1.0).collect()
        };
        let category = shares(&|other| category(other) == category(name));
        let shares = if category.len() >= SPOT_SAMPLES_MIN { category } else { shares(&|_| true) };
        // Without any listed spot price, AWS's long-standing rule of thumb: about a third of on-demand.
        median(shares).unwrap_or(0.35)
    }

    /// The price in us-east-1, listed, noted or derived.
    fn at_home(&self, name: &str) -> Option<f64> {
        self.known_at_home(name).or_else(|| self.listed_elsewhere(name)).or_else(|| self.by_sibling(name)).or_else(
            || {
                let (older, ratio) = self.notes.after.get(family(name))?;
                let size = name.split_once('.')?.1;
                let same_size = format!("{older}.{size}");
                let scaled = || self.scaled_from(older, *self.vcpus.get(name)?);
                let base = if self.vcpus.contains_key(&same_size) { self.at_home(&same_size) } else { scaled() };
                Some(base? * ratio)
            },
        )
    }

    fn known_at_home(&self, name: &str) -> Option<f64> {
        let noted = self.notes.prices.get(name).map(|price| price.dollars);
        noted.or_else(|| self.listed_at(name, HOME))
    }

    fn listed_elsewhere(&self, name: &str) -> Option<f64> {
        let (region, price) = self.listed.get(name)?.iter().next()?;
        // Its own family is of no use: it would ask for the price at home again.
        let ratio = self
            .median_ratio(region, |other| category(other) == category(name))
            .or_else(|| self.median_ratio(region, |_| true))?;
        Some(price.on_demand / ratio)
    }

    fn by_sibling(&self, name: &str) -> Option<f64> {
        let vcpus = *self.vcpus.get(name)?;
        let siblings = self.vcpus.iter().filter(|(other, _)| family(other) == family(name));
        let price = |other: &str| self.known_at_home(other).or_else(|| self.listed_elsewhere(other));
        let known = siblings.filter_map(|(other, count)| Some((other, *count, price(other)?)));
        // A size of the same vCPU count first (a metal size beside the largest), else the largest.
        let (_, count, dollars) = known.max_by_key(|(other, count, _)| (*count == vcpus, *count, *other))?;
        Some(dollars * f64::from(vcpus) / f64::from(count))
    }

    /// A price for so many vCPUs of a family that may not have that size.
    fn scaled_from(&self, older: &str, vcpus: u32) -> Option<f64> {
        let sizes = self.vcpus.iter().filter(|(other, _)| family(other) == older);
        let (name, count) = sizes.max_by_key(|(other, count)| (**count == vcpus, **count, *other))?;
        Some(self.at_home(name)? * f64::from(vcpus) / f64::from(*count))
    }

    /// What a region charges compared with us-east-1, for types like this one.
    fn region_ratio(&self, name: &str, region: &str) -> Option<f64> {
        if region == HOME {
            return Some(1.0);
        }
        let mut kin = family(name);
        loop {
            if let Some(ratio) = self.median_ratio(region, |other| family(other) == kin) {
                return Some(ratio);
            }
            match self.notes.after.get(kin) {
                Some((older, _)) => kin = older,
                None => break,
            }
        }
        let same_category = self.median_ratio(region, |other| category(other) == category(name));
        same_category.or_else(|| self.median_ratio(region, |_| true))
    }

    fn median_ratio(&self, region: &str, wanted: impl Fn(&str) -> bool) -> Option<f64> {
        let names = self.listed.keys().filter(|name| wanted(name));
        median(names.filter_map(|name| Some(self.listed_at(name, region)? / self.listed_at(name, HOME)?)).collect())
    }

    fn listed_at(&self, name: &str, region: &str) -> Option<f64> {
        Some(self.listed.get(name)?.get(region)?.on_demand)
    }
}

/// `m7i-flex` of `m7i-flex.large`.
fn family(name: &str) -> &str {
    name.split_once('.').map_or(name, |(family, _)| family)
}

/// `m` of `m7i-flex.large`.
fn category(name: &str) -> &str {
    let end = name.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(name.len());
    &name[..end]
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::super::sources::ListedPrice;
    use super::*;

    fn book(listed: &[(&str, &str, f64)], notes: &str, vcpus: &[(&str, u32)]) -> PriceBook {
        let mut table = Listed::new();
        for (name, region, on_demand) in listed {
            let price = ListedPrice { on_demand: *on_demand, spot: None };
            table.entry((*name).to_owned()).or_default().insert((*region).to_owned(), price);
        }
        let vcpus = vcpus.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        PriceBook { listed: table, notes: Notes::parse(notes).expect("notes"), vcpus }
    }

    fn dollars(book: &PriceBook, name: &str, region: &str) -> f64 {
        let price = book.on_demand(name, region).expect("a price");
        (price.dollars * 1e6).round() / 1e6
    }

    #[test]
    fn a_newer_family_costs_what_the_older_one_does_times_the_noted_ratio() {
        let listed = [("m7i.large", HOME, 0.1), ("m7i.large", "eu-west-1", 0.11)];
        let book =
            book(&listed, "after m8i m7i 1.05 assumed", &[("m7i.large", 2), ("m8i.large", 2), ("m8i.96xlarge", 384)]);
        assert_eq!(dollars(&book, "m8i.large", HOME), 0.105);
        assert_eq!(dollars(&book, "m8i.large", "eu-west-1"), 0.1155);
        assert_eq!(dollars(&book, "m8i.96xlarge", HOME), 20.16);
    }

    #[test]
    fn a_price_cut_seen_at_home_is_assumed_elsewhere() {
        let listed = [("p5.48xlarge", HOME, 100.0), ("p5.48xlarge", "eu-west-1", 120.0)];
        let book = book(&listed, "price p5.48xlarge 50 seen", &[("p5.48xlarge", 192)]);
        assert!(!book.on_demand("p5.48xlarge", HOME).expect("a price").is_estimate);
        assert_eq!(dollars(&book, "p5.48xlarge", "eu-west-1"), 60.0);
        assert!(book.on_demand("p5.48xlarge", "eu-west-1").expect("a price").is_estimate);
    }

    #[test]
    fn a_size_that_is_not_listed_costs_its_share_of_a_sibling() {
        let book = book(
            &[("i8g.48xlarge", HOME, 16.0)],
            "",
            &[("i8g.48xlarge", 192), ("i8g.metal-48xl", 192), ("i8g.large", 2)],
        );
        assert_eq!(dollars(&book, "i8g.metal-48xl", HOME), 16.0);
        assert_eq!(dollars(&book, "i8g.large", HOME), 0.166_667);
    }

    #[test]
    fn a_note_that_says_neither_seen_nor_assumed_is_refused() {
        assert!(Notes::parse("price m9g.large 0.1 rumoured").is_err());
    }
}
