//! Asks AWS, or an emulator that serves its calls (`AWS_ENDPOINT_URL`), for what the catalogue holds of a region.

use super::renewed::Answers;
use anyhow::{Context, Result};
use kerf_cloud::clock::{Clock, Wait};
use kerf_cloud_aws::sdk::{Connection, Sdk};
use kerf_cloud_aws::wire::{Aws, PriceQuery};
use kerf_model::UnixMillis;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The account that the environment names.
pub(super) fn ask(region: Option<String>) -> Result<Answers> {
    ask_through(Connection { region, version: env!("CARGO_PKG_VERSION").to_owned(), ..Connection::default() })
}

/// Prices are worth having and not worth failing for: without them the committed ones stay.
fn ask_through(connection: Connection) -> Result<Answers> {
    let runtime = tokio::runtime::Runtime::new().context("starting a runtime")?;
    runtime.block_on(async {
        let aws = Sdk::connect(connection, Arc::new(Wall)).await.context("connecting to AWS")?;
        let types = aws.describe_instance_types(false).await.context("asking for the types")?;
        let sold = aws.describe_instance_type_offerings().await.context("asking where they are sold")?;
        let mut on_demand = BTreeMap::new();
        for query in [PriceQuery::Shared, PriceQuery::BareMetal] {
            let listed = aws.get_products(query).await.unwrap_or_else(|failure| {
                report(&failure);
                Vec::new()
            });
            let priced = listed.into_iter().filter(|price| price.price.micros > 0);
            on_demand.extend(priced.map(|price| (price.instance_type, price.price.micros)));
        }
        let mut spot: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        let history = aws.describe_spot_price_history().await.unwrap_or_else(|failure| {
            report(&failure);
            Vec::new()
        });
        for price in history {
            spot.entry(price.instance_type).or_default().push(price.price.micros);
        }
        Ok(Answers {
            region: aws.region().to_owned(),
            date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
            types,
            sold: sold.into_iter().map(|sold| (sold.instance_type, sold.zone)).collect(),
            on_demand,
            spot,
        })
    })
}

#[expect(clippy::print_stderr, reason = "a person runs this and should know")]
fn report(failure: &kerf_cloud_aws::wire::Failure) {
    eprintln!("prices stay as they are: {failure}");
}

struct Wall;

impl Clock for Wall {
    fn now(&self) -> UnixMillis {
        UnixMillis(jiff::Timestamp::now().as_millisecond())
    }

    fn sleep(&self, span: Duration) -> Wait {
        Box::pin(tokio::time::sleep(span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::renewed::renew;
    use kerf_e2e::aws::{self, Started};
    use kerf_e2e::control_plane::build;
    use kerf_e2e::skipped;

    #[test]
    fn the_committed_catalogue_is_renewed_by_what_an_account_answers_and_says_when() {
        let account = match aws::start(&build::to_stderr).expect("an emulator, or the reason why there is none") {
            Started::Ready(account) => account,
            Started::Skipped(reason) => {
                return skipped::tell(1, "the catalogue from an account", &reason);
            }
        };
        let before = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
        let answers = ask_through(Connection {
            region: Some("eu-west-1".to_owned()),
            version: "1.2.3".to_owned(),
            endpoint: Some(account.endpoint().to_owned()),
            credentials: Some(("AKIAOPERATOR".to_owned(), "secret".to_owned())),
            http_client: None,
        })
        .expect("answers");
        let committed = include_str!("../../../crates/cloud/data/aws.txt");
        let (text, summary) = renew(committed, &answers).expect("a catalogue");
        assert!(answers.date >= before, "{} is not of today", answers.date);
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
        assert_eq!(line("date "), format!("date {}", answers.date));
        let source = format!("source aws eu-west-1 {} types, zones and prices of eu-west-1", answers.date);
        assert_eq!(line("source aws "), source);
        // The emulator sells what the catalogue lists, at its prices: of a type that is listed nothing changes but spot, a little.
        let of_region = |text: &str, name: &str| {
            let region = text.split("region eu-west-1 ").nth(1).and_then(|rest| rest.split("region ").next());
            let line = region.and_then(|lines| lines.lines().find(|line| line.starts_with(name)).map(str::to_owned));
            line.map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(of_region(&text, "m5.large "), Some("m5.large abc 107000".to_owned()));
        assert_eq!(of_region(&text, "m5.large "), of_region(committed, "m5.large "));
        let types =
            |text: &str| text.lines().filter(|line| line.starts_with("type ")).map(str::to_owned).collect::<Vec<_>>();
        let n_changed = std::iter::zip(types(committed), types(&text)).filter(|(old, new)| old != new).count();
        assert_eq!(
            (types(&text).len(), n_changed),
            (types(committed).len(), 0),
            "facts read from EC2 are the same facts"
        );
        build::to_stderr(summary.trim_end());
    }
}
