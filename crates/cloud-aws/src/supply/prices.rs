//! What an hour costs: from the built-in price list at first, then as AWS says.
//!
//! ```text
//! built-in list ─▶ on-demand ◀── merged over it ── pricing:GetProducts, two passes
//!                  spot = on-demand until the first ── ec2:DescribeSpotPriceHistory; then an unknown zone has no price
//! ```

use crate::wire::{Aws, Failure, ListPrice, PriceQuery, SpotPrice};
use kerf_cloud::aws::offers;
use kerf_cloud::overlay::{Overlay, PriceChange};
use kerf_model::labels::INSTANCE_TYPE;
use kerf_model::{Money, Operator, Text};
use std::collections::BTreeMap;

/// Where the built-in list of an unknown region comes from.
const HOME: &str = "us-east-1";

/// A reserved machine is paid for already. So that the cheaper of two is still taken first, it costs a trace of its price; whole
/// microdollars keep that trace for machines above five dollars an hour.
const RESERVED_SHARE: i64 = 10_000_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prices {
    on_demand: BTreeMap<Text, Price>,
    /// By type, then zone. None until AWS answered once.
    spot: Option<BTreeMap<Text, BTreeMap<Text, Money>>>,
    /// By type: what users state, for want of a price.
    stated: BTreeMap<Text, Money>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Price {
    pub(super) money: Money,
    /// Not from AWS itself.
    pub(super) is_estimate: bool,
}

impl Prices {
    /// The built-in list of the region, or of the home region where there is none.
    pub(super) fn built_in(region: &str) -> Self {
        let rows = offers(region).or_else(|_| offers(HOME)).into_iter().flatten();
        let priced = rows.filter_map(|(facts, offers)| {
            let money = offers.iter().find_map(|offer| offer.on_demand)?;
            Some((facts.name.clone(), Price { money, is_estimate: true }))
        });
        Self { on_demand: priced.collect(), spot: None, stated: BTreeMap::new() }
    }

    pub(super) fn on_demand(&self, instance_type: &str) -> Option<Price> {
        self.on_demand.get(instance_type).copied().or_else(|| self.stated(instance_type))
    }

    fn stated(&self, instance_type: &str) -> Option<Price> {
        self.stated.get(instance_type).map(|money| Price { money: *money, is_estimate: false })
    }

    pub(super) fn spot(&self, instance_type: &str, zone: &str) -> Option<Price> {
        match &self.spot {
            None => self.on_demand(instance_type).map(|price| Price { is_estimate: true, ..price }),
            Some(spot) => {
                let listed = spot.get(instance_type).and_then(|by_zone| by_zone.get(zone));
                let listed = listed.map(|money| Price { money: *money, is_estimate: false });
                listed.or_else(|| self.stated(instance_type))
            }
        }
    }

    pub(super) fn cheapest_spot(&self, instance_type: &str) -> Option<Price> {
        match &self.spot {
            None => self.spot(instance_type, ""),
            Some(spot) => {
                let least = spot.get(instance_type).and_then(|by_zone| by_zone.values().min());
                let least = least.map(|money| Price { money: *money, is_estimate: false });
                least.or_else(|| self.stated(instance_type))
            }
        }
    }

    /// Free where the price is not known.
    pub(super) fn reserved(&self, instance_type: &str) -> Price {
        let price = self.on_demand(instance_type).unwrap_or(Price { money: Money::ZERO, is_estimate: true });
        let micros = (price.money.micros + RESERVED_SHARE / 2) / RESERVED_SHARE;
        Price { money: Money::from_micros(micros), ..price }
    }

    /// What AWS lists replaces what was there; what it no longer lists stays.
    pub(super) fn merge_on_demand(&mut self, listed: Vec<ListPrice>) {
        for price in listed.into_iter().filter(|price| price.price > Money::ZERO) {
            self.on_demand.insert(price.instance_type.into(), Price { money: price.price, is_estimate: false });
        }
    }

    pub(super) fn set_stated(&mut self, stated: BTreeMap<Text, Money>) {
        self.stated = stated;
    }

    /// The newest of each type and zone.
    pub(super) fn merge_spot(&mut self, mut history: Vec<SpotPrice>) {
        history.sort_by_key(|price| price.at_ms);
        let spot = self.spot.get_or_insert_default();
        for price in history {
            spot.entry(price.instance_type.into()).or_default().insert(price.zone.into(), price.price);
        }
    }
}

/// What overlays state that name instance types and nothing else. The heaviest decides, and the last by name among equals.
pub(super) fn stated(overlays: &[Overlay]) -> BTreeMap<Text, Money> {
    let mut order: Vec<&Overlay> = overlays.iter().collect();
    order.sort_by_key(|overlay| (overlay.weight, &overlay.name));
    let mut out = BTreeMap::new();
    for overlay in order {
        let Some(PriceChange::Absolute(money)) = overlay.price else { continue };
        let mut requirements = overlay.requirements.iter();
        if let (Some((key, types)), None) = (requirements.next(), requirements.next())
            && **key == *INSTANCE_TYPE
            && types.operator() == Operator::In
        {
            out.extend(types.values.iter().map(|name| (name.clone(), money)));
        }
    }
    out
}

/// Both passes over the price list. None where the region or the network has none to ask.
pub(super) async fn ask_on_demand(
    wire: &dyn Aws,
    region: &str,
    is_isolated: bool,
) -> Result<Option<Vec<ListPrice>>, Failure> {
    if is_isolated || region.starts_with("us-gov") {
        return Ok(None);
    }
    let mut listed = Vec::new();
    for query in [PriceQuery::Shared, PriceQuery::BareMetal] {
        let answer = wire.get_products(query).await?;
        if answer.is_empty() {
            let what = format!("the price list of {region} has no {query:?} prices; the prices known so far stay");
            return Err(Failure::new("pricing:GetProducts", "", &what));
        }
        listed.extend(answer);
    }
    Ok(Some(listed))
}

pub(super) async fn ask_spot(wire: &dyn Aws) -> Result<Vec<SpotPrice>, Failure> {
    let history = wire.describe_spot_price_history().await?;
    if history.is_empty() {
        let what = "there are no spot prices; the prices known so far stay";
        return Err(Failure::new("ec2:DescribeSpotPriceHistory", "", what));
    }
    Ok(history)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(instance_type: &str, dollars: f64) -> ListPrice {
        ListPrice { instance_type: instance_type.to_owned(), price: Money::from_dollars(dollars) }
    }

    fn seen(instance_type: &str, zone: &str, dollars: f64, at_ms: i64) -> SpotPrice {
        let (instance_type, zone) = (instance_type.to_owned(), zone.to_owned());
        SpotPrice { instance_type, zone, price: Money::from_dollars(dollars), at_ms }
    }

    fn dollars(price: Option<Price>) -> Option<f64> {
        price.map(|price| price.money.dollars())
    }

    #[test]
    fn the_start_is_the_built_in_list_of_the_region_or_else_of_home() {
        assert_eq!(dollars(Prices::built_in("eu-west-1").on_demand("m5.large")), Some(0.107));
        assert_eq!(dollars(Prices::built_in("xx-unknown-1").on_demand("m5.large")), Some(0.096));
        assert!(Prices::built_in("us-east-1").on_demand("m5.large").unwrap().is_estimate);
    }

    #[test]
    fn listed_prices_are_laid_over_what_was_known_and_zeros_are_not_believed() {
        let mut prices = Prices::built_in("us-east-1");
        let before = prices.on_demand("c5.large");
        prices.merge_on_demand(vec![listed("m5.large", 0.1), listed("c5.large", 0.0), listed("x9.huge", 7.0)]);
        assert_eq!(dollars(prices.on_demand("m5.large")), Some(0.1));
        assert!(!prices.on_demand("m5.large").unwrap().is_estimate);
        assert_eq!(prices.on_demand("c5.large"), before);
        assert_eq!(dollars(prices.on_demand("x9.huge")), Some(7.0));
        assert_eq!(prices.on_demand("x9.tiny"), None);
    }

    #[test]
    fn spot_costs_as_much_as_on_demand_until_its_prices_are_known_and_then_only_where_they_are() {
        let mut prices = Prices::built_in("us-east-1");
        assert_eq!(dollars(prices.spot("m5.large", "us-east-1f")), Some(0.096));
        prices.merge_spot(vec![seen("m5.large", "us-east-1a", 0.03, 2), seen("m5.large", "us-east-1a", 0.09, 1)]);
        prices.merge_spot(vec![seen("m5.large", "us-east-1b", 0.02, 3)]);
        assert_eq!(dollars(prices.spot("m5.large", "us-east-1a")), Some(0.03));
        assert_eq!(prices.spot("m5.large", "us-east-1f"), None);
        assert_eq!(prices.spot("c5.large", "us-east-1a"), None);
        assert_eq!(dollars(prices.cheapest_spot("m5.large")), Some(0.02));
    }

    #[test]
    fn a_type_without_a_price_costs_what_an_overlay_states_that_names_nothing_but_types() {
        use kerf_model::{Requirement, Requirements, Resources};
        let overlay = |name: &str, weight: u32, keys: &[(&str, &str)], price: PriceChange| Overlay {
            name: name.into(),
            weight,
            requirements: keys.iter().fold(Requirements::new(), |all, (key, value)| {
                all.with(key, Requirement::is_in(value.split(' ').collect::<Vec<_>>()))
            }),
            price: Some(price),
            capacity: Resources::new(),
        };
        let dollars_of = |number: f64| PriceChange::Absolute(Money::from_dollars(number));
        let stated = stated(&[
            overlay("b", 1, &[(INSTANCE_TYPE, "x9.huge m5.large")], dollars_of(7.0)),
            overlay("a", 1, &[(INSTANCE_TYPE, "x9.huge")], dollars_of(6.0)),
            overlay("c", 0, &[(INSTANCE_TYPE, "x9.huge")], dollars_of(5.0)),
            overlay("d", 2, &[(INSTANCE_TYPE, "x9.huge"), ("topology.kubernetes.io/zone", "a")], dollars_of(4.0)),
            overlay("e", 3, &[(INSTANCE_TYPE, "x9.tiny")], PriceChange::Percent(10.0)),
        ]);
        let mut prices = Prices::built_in("us-east-1");
        prices.merge_spot(vec![seen("m5.large", "us-east-1a", 0.03, 2)]);
        prices.set_stated(stated);
        assert_eq!(dollars(prices.on_demand("x9.huge")), Some(7.0));
        assert_eq!(dollars(prices.spot("x9.huge", "us-east-1a")), Some(7.0));
        assert_eq!(dollars(prices.cheapest_spot("x9.huge")), Some(7.0));
        assert_eq!(prices.on_demand("x9.tiny"), None);
        assert_eq!(dollars(prices.on_demand("m5.large")), Some(0.096), "listed prices stay");
        assert_eq!(dollars(prices.spot("m5.large", "us-east-1a")), Some(0.03));
    }

    #[test]
    fn a_reserved_machine_costs_a_trace_of_its_price() {
        let mut prices = Prices::built_in("us-east-1");
        prices.merge_on_demand(vec![listed("p5.48xlarge", 98.32), listed("m5.large", 0.096)]);
        assert_eq!(prices.reserved("p5.48xlarge").money, Money::from_micros(10));
        assert_eq!(prices.reserved("m5.large").money, Money::ZERO);
        assert_eq!(prices.reserved("x9.huge").money, Money::ZERO);
    }
}
