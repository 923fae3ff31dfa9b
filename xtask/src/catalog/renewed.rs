//! The committed catalogue with one region as AWS told it: text in, text out.
#![cfg_attr(not(any(test, feature = "aws")), expect(dead_code, reason = "only what AWS answered is worked in"))]

use anyhow::{Result, bail};
use kerf_cloud::aws::{TypeFacts, line_of, type_facts};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What an account was told about its region. Prices are microdollars per hour.
pub(super) struct Answers {
    pub(super) region: String,
    /// The day of the asking, as `YYYY-MM-DD`.
    pub(super) date: String,
    pub(super) types: Vec<TypeFacts>,
    /// Type and zone.
    pub(super) sold: Vec<(String, String)>,
    pub(super) on_demand: BTreeMap<String, i64>,
    /// Of every zone that has one.
    pub(super) spot: BTreeMap<String, Vec<i64>>,
}

/// Lines of types, and regions with their lines.
struct File<'a> {
    head: Vec<&'a str>,
    types: BTreeMap<&'a str, String>,
    /// Zones and lines by region.
    regions: BTreeMap<&'a str, (String, Vec<String>)>,
}

/// Guarantees: everything that AWS did not speak about stays as it was. A type that AWS sells but nobody prices is left out of the
/// region, and counted in the summary.
pub(super) fn renew(committed: &str, answers: &Answers) -> Result<(String, String)> {
    if answers.types.is_empty() || answers.sold.is_empty() {
        bail!("AWS named no types or no zones of {}: nothing was written", answers.region);
    }
    let mut file = read(committed);
    let described: Vec<TypeFacts> = answers.types.iter().map(with_what_aws_leaves_out).collect();
    for facts in &described {
        file.types.insert(&facts.name, line_of(facts));
    }
    let before = file.regions.get(answers.region.as_str()).map(|(_, lines)| lines.clone()).unwrap_or_default();
    let (zones, lines, n_unpriced) = region(&before, answers);
    let n_lines = lines.len();
    file.regions.insert(&answers.region, (zones, lines));
    let summary = format!(
        "EC2 catalogue of {}: {} of {} types in {}, {n_unpriced} left out for want of a price\n",
        answers.date,
        n_lines,
        described.len(),
        answers.region
    );
    Ok((write(&file, answers), summary))
}

/// Branch interfaces are in no answer of AWS's.
fn with_what_aws_leaves_out(facts: &TypeFacts) -> TypeFacts {
    let listed = type_facts(&facts.name).and_then(|known| known.branch_interfaces);
    TypeFacts { branch_interfaces: facts.branch_interfaces.or(listed), ..facts.clone() }
}

fn read(committed: &str) -> File<'_> {
    let mut file = File { head: Vec::new(), types: BTreeMap::new(), regions: BTreeMap::new() };
    let mut region = None;
    for line in committed.lines() {
        match line.split_once(' ') {
            Some(("type", rest)) if region.is_none() => {
                let name = rest.split(' ').next().unwrap_or(rest);
                file.types.insert(name, rest.to_owned());
            }
            Some(("region", rest)) => {
                let (name, zones) = rest.split_once(' ').unwrap_or((rest, ""));
                file.regions.insert(name, (zones.to_owned(), Vec::new()));
                region = Some(name);
            }
            _ => match region.and_then(|name| file.regions.get_mut(name)) {
                Some((_, lines)) => lines.push(line.to_owned()),
                None => file.head.push(line),
            },
        }
    }
    file
}

fn write(file: &File<'_>, answers: &Answers) -> String {
    let mut text = String::new();
    let own = format!("source aws {} ", answers.region);
    // Writing to a String cannot fail.
    for line in &file.head {
        let _ = match line.split_once(' ') {
            Some(("date", known)) => writeln!(text, "date {}", known.max(&answers.date)),
            // The same region, asked earlier.
            _ if line.starts_with(&own) => Ok(()),
            _ => writeln!(text, "{line}"),
        };
    }
    let _ = writeln!(text, "{own}{} types, zones and prices of {}", answers.date, answers.region);
    for line in file.types.values() {
        let _ = writeln!(text, "type {line}");
    }
    for (region, (zones, lines)) in &file.regions {
        let _ = writeln!(text, "region {region} {zones}");
        for line in lines {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

/// Zones, lines, and how many types have no price.
fn region(before: &[String], answers: &Answers) -> (String, Vec<String>, usize) {
    let mut letters: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut zones: Vec<&str> = Vec::new();
    for (name, zone) in &answers.sold {
        // Local zones and wavelength zones have longer names; the file has no place for them.
        let Some(letter) = zone.strip_prefix(answers.region.as_str()).filter(|letter| letter.len() == 1) else {
            continue;
        };
        letters.entry(name).or_default().push(letter);
        zones.push(zone);
    }
    zones.sort_unstable();
    zones.dedup();
    let known: BTreeMap<&str, (&str, &str)> = before.iter().filter_map(|line| prices_of(line)).collect();
    let mut lines = Vec::new();
    let mut n_unpriced = 0;
    for facts in &answers.types {
        let name = &*facts.name;
        let Some(of_type) = letters.get_mut(name) else {
            continue;
        };
        of_type.sort_unstable();
        of_type.dedup();
        let listed = answers.on_demand.get(name).map(ToString::to_string);
        let on_demand = listed.or_else(|| known.get(name).map(|(on_demand, _)| (*on_demand).to_owned()));
        let Some(on_demand) = on_demand.filter(|price| price != "-") else {
            n_unpriced += 1;
            continue;
        };
        let seen = answers.spot.get(name).and_then(|prices| median(prices)).map(|price| price.to_string());
        let spot = seen.or_else(|| known.get(name).map(|(_, spot)| (*spot).to_owned())).unwrap_or("-".to_owned());
        lines.push((name, format!("{name} {} {on_demand} {spot}", of_type.concat())));
    }
    lines.sort_unstable();
    (zones.join(" "), lines.into_iter().map(|(_, line)| line).collect(), n_unpriced)
}

/// Of a line of a region: type, on-demand, spot.
fn prices_of(line: &str) -> Option<(&str, (&str, &str))> {
    match line.split(' ').collect::<Vec<_>>()[..] {
        [name, _, on_demand, spot] => Some((name, (on_demand, spot))),
        _ => None,
    }
}

fn median(prices: &[i64]) -> Option<i64> {
    let mut prices = prices.to_vec();
    prices.sort_unstable();
    prices.get(prices.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMITTED: &str = "\
# EC2
date 2026-10-27
prices 2025-05-28
source moto 5.2.5 2026-10-27 types
type c5.large amd64 intel 3400 2 4096 nitro 3 10 9 1 750 4750 27 - - - - 0 dscwE
type m5.large amd64 intel 3100 2 8192 nitro 3 10 9 1 750 4750 27 - - - - 0 dscwE
region eu-west-1 eu-west-1a
m5.large a 107000 40000
region us-west-2 us-west-2a us-west-2b
c5.large ab 85000 30000
m5.large ab 96000~ 36000
";

    fn answers() -> Answers {
        let m5 = type_facts("m5.large").expect("m5.large").clone();
        let sold = |name: &str, zone: &str| (name.to_owned(), zone.to_owned());
        Answers {
            region: "us-west-2".to_owned(),
            date: "2026-11-15".to_owned(),
            types: vec![
                TypeFacts { branch_interfaces: None, ..m5.clone() },
                TypeFacts { name: "z9.large".into(), branch_interfaces: None, ..m5.clone() },
                TypeFacts { name: "z9.huge".into(), branch_interfaces: None, ..m5 },
            ],
            sold: vec![
                sold("m5.large", "us-west-2c"),
                sold("m5.large", "us-west-2a"),
                sold("m5.large", "us-west-2-lax-1a"),
                sold("z9.large", "us-west-2a"),
                sold("z9.huge", "us-west-2a"),
            ],
            on_demand: BTreeMap::from([("m5.large".to_owned(), 97_000), ("z9.large".to_owned(), 200_000)]),
            spot: BTreeMap::from([("m5.large".to_owned(), vec![30_000, 35_000, 50_000])]),
        }
    }

    #[test]
    fn a_region_is_as_aws_told_it_and_the_rest_as_it_was() {
        let (text, summary) = renew(COMMITTED, &answers()).expect("answers");
        assert_eq!(
            text,
            "\
# EC2
date 2026-11-15
prices 2025-05-28
source moto 5.2.5 2026-10-27 types
source aws us-west-2 2026-11-15 types, zones and prices of us-west-2
type c5.large amd64 intel 3400 2 4096 nitro 3 10 9 1 750 4750 27 - - - - 0 dscwE
type m5.large amd64 intel 3100 2 8192 nitro 3 10 9 1 750 4750 27 - - - - 0 dscwE
type z9.huge amd64 intel 3100 2 8192 nitro 3 10 0 1 750 4750 27 - - - - 0 dscE
type z9.large amd64 intel 3100 2 8192 nitro 3 10 0 1 750 4750 27 - - - - 0 dscE
region eu-west-1 eu-west-1a
m5.large a 107000 40000
region us-west-2 us-west-2a us-west-2c
m5.large ac 97000 35000
z9.large a 200000 -
"
        );
        assert_eq!(summary, "EC2 catalogue of 2026-11-15: 2 of 3 types in us-west-2, 1 left out for want of a price\n");
    }

    #[test]
    fn asking_twice_changes_nothing_more() {
        let (once, _) = renew(COMMITTED, &answers()).expect("answers");
        assert_eq!(renew(&once, &answers()).expect("answers").0, once);
    }

    #[test]
    fn prices_that_nobody_renewed_stay() {
        let unpriced = Answers { on_demand: BTreeMap::new(), spot: BTreeMap::new(), ..answers() };
        let (text, _) = renew(COMMITTED, &unpriced).expect("answers");
        assert!(text.contains("\nm5.large ac 96000~ 36000\n"), "{text}");
    }

    #[test]
    fn an_empty_answer_is_refused() {
        assert!(renew(COMMITTED, &Answers { types: Vec::new(), ..answers() }).is_err());
    }
}
