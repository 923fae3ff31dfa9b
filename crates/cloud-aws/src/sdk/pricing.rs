//! The price list: what types cost on demand.

use super::failure::of;
use super::listed::Listed;
use crate::wire::{Failure, ListPrice, PriceQuery};
use aws_sdk_pricing::Client;
use aws_sdk_pricing::types::{Filter, FilterType};
use kerf_model::Money;
use serde::Deserialize;
use std::collections::BTreeMap;

const ACTION: &str = "pricing:GetProducts";

/// The list is served from a few regions only, each for its part of the world.
pub(super) fn endpoint_region(region: &str) -> &'static str {
    match region.split('-').next() {
        Some("ap") => "ap-south-1",
        Some("cn") => "cn-northwest-1",
        Some("eu") => "eu-central-1",
        _ => "us-east-1",
    }
}

pub(super) async fn products(client: &Client, region: &str, query: PriceQuery) -> Result<Vec<ListPrice>, Failure> {
    let (tenancy, family) = match query {
        PriceQuery::Shared => ("Shared", "Compute Instance"),
        PriceQuery::BareMetal => ("Dedicated", "Compute Instance (bare metal)"),
    };
    let terms = [
        ("regionCode", region),
        ("serviceCode", "AmazonEC2"),
        ("preInstalledSw", "NA"),
        ("operatingSystem", "Linux"),
        ("capacitystatus", "Used"),
        ("marketoption", "OnDemand"),
        ("tenancy", tenancy),
        ("productFamily", family),
    ];
    let mut call = client.get_products().service_code("AmazonEC2");
    for (field, value) in terms {
        let filter = Filter::builder().r#type(FilterType::TermMatch).field(field).value(value).build();
        call = call.filters(filter.map_err(|error| super::failure::incomplete(ACTION, &error.to_string()))?);
    }
    let mut pages = call.into_paginator().page_size(100).send();
    let currency = if region.starts_with("cn-") { "CNY" } else { "USD" };
    let mut found = Listed::new(ACTION);
    while let Some(page) = pages.next().await {
        let rows = page.map_err(of(ACTION))?.price_list.unwrap_or_default();
        found.add(rows.iter().filter_map(|text| price(text, currency)))?;
    }
    Ok(found.rows())
}

#[derive(Deserialize)]
struct Product {
    product: Described,
    terms: Terms,
}

#[derive(Deserialize)]
struct Described {
    attributes: Attributes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attributes {
    instance_type: Option<String>,
}

#[derive(Deserialize)]
struct Terms {
    #[serde(rename = "OnDemand", default)]
    on_demand: BTreeMap<String, Term>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Term {
    #[serde(default)]
    price_dimensions: BTreeMap<String, Dimension>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dimension {
    #[serde(default)]
    price_per_unit: BTreeMap<String, String>,
}

/// None for a row that is no instance type, has no price in the currency, or is free: a reservation's own row, say.
fn price(text: &str, currency: &str) -> Option<ListPrice> {
    let row: Product = serde_json::from_str(text).ok()?;
    let dimensions = row.terms.on_demand.values().flat_map(|term| term.price_dimensions.values());
    let mut dollars = dimensions.filter_map(|it| it.price_per_unit.get(currency)?.parse::<f64>().ok());
    let dollars = dollars.find(|dollars| *dollars > 0.0)?;
    Some(ListPrice { instance_type: row.product.attributes.instance_type?, price: Money::from_dollars(dollars) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_asked_where_its_part_of_the_world_is_served() {
        let asked = ["us-west-2", "ca-central-1", "ap-northeast-1", "cn-north-1", "eu-west-3", "sa-east-1"];
        let served = ["us-east-1", "us-east-1", "ap-south-1", "cn-northwest-1", "eu-central-1", "us-east-1"];
        assert_eq!(asked.map(endpoint_region), served);
    }

    #[test]
    fn a_row_without_a_price_in_the_currency_is_left_out() {
        let row = |unit: &str, amount: &str| {
            format!(
                r#"{{"product":{{"attributes":{{"instanceType":"m5.large"}}}},"terms":{{"OnDemand":{{"a":{{"priceDimensions":
                   {{"b":{{"pricePerUnit":{{"{unit}":"{amount}"}}}}}}}}}}}}}}"#
            )
        };
        let listed = price(&row("USD", "0.0960000000"), "USD").unwrap();
        assert_eq!((listed.instance_type.as_str(), listed.price), ("m5.large", Money::from_micros(96_000)));
        assert_eq!(price(&row("USD", "0.0000000000"), "USD"), None);
        assert_eq!(price(&row("USD", "0.096"), "CNY"), None);
        assert_eq!(price("not a row", "USD"), None);
    }
}
