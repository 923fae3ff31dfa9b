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

/// Prices are worth having and not worth failing for: without them the committed ones stay.
pub(super) fn ask(region: Option<String>) -> Result<Answers> {
    let runtime = tokio::runtime::Runtime::new().context("starting a runtime")?;
    runtime.block_on(async {
        let connection = Connection { region, version: env!("CARGO_PKG_VERSION").to_owned(), ..Connection::default() };
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
