//! What is on sale, at which price, and whether any is left.

use super::options::SimOptions;
use crate::chance::Chance;
use crate::kwok;
use kerf_cloud::OfferingKey;
use kerf_cloud::aws::{self, NodeClassFacts, UnknownRegion};
use kerf_model::{CapacityType, InstanceType, Money, Requirement, Text, TypeName, UnixMillis};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) type Types = Arc<[Arc<InstanceType>]>;

/// How many lists of types are kept: one per class and price list that is in use, with some room.
const LISTS_MAX: usize = 16;

/// A list that was not asked for during so many questions is for a class as it was before, and goes: each is some 40 MB.
const QUESTIONS_MAX: u64 = 256;

pub(crate) struct Market {
    options: Arc<SimOptions>,
    chance: Chance,
    kwok: Types,
    /// Labels that some node of this cloud may have. What is not said of a type is that it lacks them.
    well_known: Vec<&'static str>,
    /// Lists that were made, the last one used at the end.
    lists: Vec<List>,
    n_asked: u64,
    /// For a class without any wishes: what machines cost, whoever they belong to. By name, as far as somebody asked.
    plain: RefCell<BTreeMap<TypeName, Option<Arc<InstanceType>>>>,
    /// What is left of offerings that somebody asked for.
    shelves: BTreeMap<OfferingKey, u32>,
}

struct List {
    facts: NodeClassFacts,
    step: i64,
    types: Types,
    /// Which question it answered last.
    asked: u64,
}

impl Market {
    /// Fails when the catalogue has no such region.
    pub(crate) fn new(options: Arc<SimOptions>, well_known: &[&'static str]) -> Result<Self, UnknownRegion> {
        drop(aws::offers(&options.region)?);
        let kwok = options.kwok_types.iter().cloned().map(|it| Arc::new(complete(it, well_known))).collect();
        let chance = Chance::new(options.seed);
        Ok(Self {
            well_known: well_known.to_vec(),
            options,
            chance,
            kwok,
            lists: Vec::new(),
            n_asked: 0,
            plain: RefCell::default(),
            shelves: BTreeMap::new(),
        })
    }

    pub(crate) fn kwok_types(&self) -> Types {
        self.kwok.clone()
    }

    /// EC2's types as a class would have them, at the prices of the moment.
    pub(crate) fn ec2_types(&mut self, facts: &NodeClassFacts, now: UnixMillis) -> Types {
        let step = self.price_step(now);
        let place = self.lists.iter().position(|list| list.step == step && list.facts == *facts);
        self.n_asked += 1;
        let asked = self.n_asked;
        let list = match place {
            Some(place) => List { asked, ..self.lists.remove(place) },
            None => List { facts: facts.clone(), step, types: self.make_list(facts, step), asked },
        };
        let types = list.types.clone();
        // Yesterday's prices are of no use to anyone.
        self.lists.retain(|list| list.step == step && asked - list.asked < QUESTIONS_MAX);
        if self.lists.len() == LISTS_MAX {
            self.lists.remove(0);
        }
        self.lists.push(list);
        types
    }

    fn make_list(&self, facts: &NodeClassFacts, step: i64) -> Types {
        // The region was looked up when the market was made.
        let mut types = aws::instance_types(&self.options.region, facts).unwrap_or_default();
        if self.options.faults.spot_price_swing > 0.0 {
            for it in &mut types {
                self.price_spot(it, step);
            }
        }
        types.into_iter().map(|it| Arc::new(complete(it, &self.well_known))).collect()
    }

    /// Spot prices wander, but never above what the machine costs on demand.
    fn price_spot(&self, it: &mut InstanceType, step: i64) {
        let on_demand = it.offerings.iter().filter(|offering| offering.capacity_type() == Some(CapacityType::OnDemand));
        let ceiling = on_demand.map(|offering| offering.price).filter(|price| price.micros > 0).min();
        for offering in &mut it.offerings {
            if offering.capacity_type() != Some(CapacityType::Spot) || offering.price.micros <= 0 {
                continue;
            }
            let zone = offering.zone().map_or("", |zone| &**zone);
            let factor = 1.0 + self.options.faults.spot_price_swing * self.wander(&it.name, zone, step);
            let price = Money::from_micros(((offering.price.micros as f64 * factor).round() as i64).max(1));
            offering.price = ceiling.map_or(price, |ceiling| price.min(ceiling));
        }
    }

    /// What an offering costs at some time.
    pub(crate) fn price(
        &self,
        name: &TypeName,
        zone: Option<&Text>,
        capacity_type: CapacityType,
        at: UnixMillis,
    ) -> Option<Money> {
        if self.kwok.iter().any(|it| it.name == *name) {
            return kwok::price(&self.kwok, name, zone, capacity_type);
        }
        let mut it = (*self.plain(name)?).clone();
        if self.options.faults.spot_price_swing > 0.0 {
            self.price_spot(&mut it, self.price_step(at));
        }
        kwok::price(&[Arc::new(it)], name, zone, capacity_type)
    }

    fn plain(&self, name: &TypeName) -> Option<Arc<InstanceType>> {
        let make = || {
            let (facts, offers) = aws::offers(&self.options.region).ok()?.find(|(facts, _)| facts.name == name.0)?;
            Some(Arc::new(aws::assemble(facts, &self.options.region, &offers, &NodeClassFacts::default())))
        };
        self.plain.borrow_mut().entry(name.clone()).or_insert_with(make).clone()
    }

    /// From -1 to 1; neighbouring steps are alike, because slow draws weigh more than quick ones.
    fn wander(&self, name: &TypeName, zone: &str, step: i64) -> f64 {
        let subject = format!("{name} {zone}");
        let mut sum = 0.0;
        for octave in 0..4_u32 {
            let draw = self.chance.share(&format!("spot price {octave}"), &subject, (step >> octave) as u64);
            sum += (2.0 * draw - 1.0) * f64::from(1 << octave);
        }
        sum / 15.0
    }

    /// Which price list is in force.
    fn price_step(&self, now: UnixMillis) -> i64 {
        let faults = &self.options.faults;
        let step_ms = (faults.spot_price_step.as_millis() as i64).max(1);
        if faults.spot_price_swing > 0.0 { now.0.div_euclid(step_ms) } else { 0 }
    }

    /// When the prices change next.
    pub(crate) fn prices_hold_until(&self, now: UnixMillis) -> Option<UnixMillis> {
        let step_ms = (self.options.faults.spot_price_step.as_millis() as i64).max(1);
        (self.options.faults.spot_price_swing > 0.0).then(|| UnixMillis((now.0.div_euclid(step_ms) + 1) * step_ms))
    }

    /// Takes one machine of an offering. False when there is none.
    pub(crate) fn take(&mut self, key: &OfferingKey, now: UnixMillis) -> bool {
        if self.is_short(key, now) {
            return false;
        }
        match self.shelf(key) {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }

    /// A machine comes back.
    pub(crate) fn give_back(&mut self, key: &OfferingKey) {
        if let Some(left) = self.shelves.get_mut(key) {
            *left += 1;
        }
    }

    /// From now on so many are left.
    pub(crate) fn set_stock(&mut self, key: &OfferingKey, left: u32) {
        self.shelves.insert(key.clone(), left);
    }

    fn is_short(&self, key: &OfferingKey, now: UnixMillis) -> bool {
        let faults = &self.options.faults;
        let window = now.0.div_euclid((faults.sold_out_for.as_millis() as i64).max(1));
        faults.sold_out_share > 0.0
            && self.chance.share("sold out", &key.to_string(), window as u64) < faults.sold_out_share
    }

    fn shelf(&mut self, key: &OfferingKey) -> Option<&mut u32> {
        if let Some(mean) = self.options.faults.stock_per_offering
            && !self.shelves.contains_key(key)
        {
            let drawn = self.chance.bits("stock", &key.to_string(), 0) % (2 * u64::from(mean) + 1);
            self.shelves.insert(key.clone(), u32::try_from(drawn).unwrap_or(u32::MAX));
        }
        self.shelves.get_mut(key)
    }
}

/// Two providers in one: a pod that selects by a label of the other must not find that nobody objects.
fn complete(mut it: InstanceType, well_known: &[&'static str]) -> InstanceType {
    for key in well_known {
        if it.requirements.get(key).is_none() {
            it.requirements.add(key, Requirement::does_not_exist());
        }
    }
    it
}
