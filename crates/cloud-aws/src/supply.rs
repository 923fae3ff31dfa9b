//! What can be bought now: types, prices, offerings.
//!
//! ```text
//! ec2:DescribeInstanceTypes, …Offerings ─▶ discovered ─┐                   ┌ unavailable   no stock a moment ago
//! EC2NodeClass ─▶ view ── kubelet (expressions) ───────┼─▶ bases ─▶ stock ◀┼ reservations  how many are left
//! pricing:GetProducts, spot history ─▶ prices ─────────┼───────────────────┤
//! nodes that registered ─▶ learned ────────────────────┘                   └ shifted zones
//! ```
//!
//! Questions are answered at once from what is known; the refreshes are for whoever owns the time. A base (labels, capacity, overhead)
//! is made once per class; its offerings are made again when something moved that they depend on, and only for the types that it
//! moved for. An unchanged list is the same list.

mod cost;
mod discovered;
mod expressions;
mod kubelet;
mod learned;
mod offerings;
mod prices;
mod reservations;
mod unavailable;
mod view;

pub use kubelet::ResolvedKubelet;
pub use reservations::ReservationCounts;
pub use unavailable::Unavailable;

use crate::memory::Memory;
use crate::settings::Settings;
use crate::templates::Kubelets;
use crate::wire::{Aws, Failure, PlacementGroup};
use discovered::Discovered;
use expressions::Expressions;
use kerf_api::{Ec2NodeClass, PlacementGroupSelector};
use kerf_cloud::aws::{TypeFacts, describe, is_compatible};
use kerf_cloud::clock::Clock;
use kerf_cloud::overlay::Overlay;
use kerf_cloud::{CloudError, NodeSeen};
use kerf_model::resources::MEMORY;
use kerf_model::{CapacityType, InstanceType, Money, Quantity, UnixMillis};
use learned::Learned;
use offerings::{Shop, open_zones};
use prices::Prices;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use view::View;

pub type Types = Arc<[Arc<InstanceType>]>;

/// A class that nobody asks about for so long is no longer in use.
const LIST_LIVES: Duration = Duration::from_secs(300);

/// A group that EC2 could not be asked about is still the group.
const GROUP_LIVES: Duration = Duration::from_secs(24 * 3600);

pub struct Supply {
    settings: Arc<Settings>,
    clock: Arc<dyn Clock>,
    /// None until EC2 answered once.
    discovered: Mutex<Option<Arc<Discovered>>>,
    prices: Mutex<Arc<Prices>>,
    unavailable: Unavailable,
    reservations: ReservationCounts,
    /// Zone ids.
    shifted_zones: Mutex<BTreeSet<String>>,
    learned: Learned,
    groups: Memory<(Option<String>, Option<String>), PlacementGroup>,
    expressions: Expressions,
    /// Moves when something changes that every offering depends on.
    changes: AtomicU64,
    lists: Mutex<BTreeMap<String, List>>,
}

/// The types of a class, as they were made last: what follows from the class alone is made once and stays in them.
struct List {
    view: View,
    discovered: Arc<Discovered>,
    bases: Vec<Base>,
    /// What the offerings below were made of.
    made_of: Stamp,
    numbers: Vec<(u64, u64)>,
    types: Types,
    used: UnixMillis,
}

struct Base {
    facts: Arc<TypeFacts>,
    /// As computed, whatever nodes have said since.
    memory: Quantity,
    is_compatible: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    changes: u64,
    unavailable_to_all: u64,
}

/// Why the expressions of a class cannot be vouched for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpressionsVerdict {
    /// Ask again when the types are known.
    NoTypesYet,
    /// Field, type and reason.
    Failed(String),
}

impl Supply {
    pub fn new(settings: Arc<Settings>, clock: Arc<dyn Clock>) -> Self {
        Self {
            discovered: Mutex::default(),
            prices: Mutex::new(Arc::new(Prices::built_in(&settings.region))),
            unavailable: Unavailable::new(clock.clone()),
            reservations: ReservationCounts::new(clock.clone()),
            shifted_zones: Mutex::default(),
            learned: Learned::new(),
            groups: Memory::new(GROUP_LIVES),
            expressions: Expressions::new(),
            changes: AtomicU64::new(0),
            lists: Mutex::default(),
            settings,
            clock,
        }
    }

    /// Asks EC2 which types there are and where. On a failure what was known stays.
    pub async fn refresh_types(&self, wire: &dyn Aws) -> Result<(), Failure> {
        let found = Discovered::ask(wire, &self.settings.region).await?;
        let mut known = lock(&self.discovered);
        if known.as_deref() != Some(&found) {
            tracing::debug!(n_types = found.types.len(), n_zones = found.zones.len(), "discovered instance types");
            *known = Some(Arc::new(found));
            drop(known);
            lock(&self.lists).clear();
        }
        Ok(())
    }

    /// Asks for the price list, where there is one to ask.
    pub async fn refresh_on_demand(&self, wire: &dyn Aws) -> Result<(), Failure> {
        let asked = prices::ask_on_demand(wire, &self.settings.region, self.settings.is_isolated_vpc).await?;
        if let Some(listed) = asked {
            self.change_prices(|prices| prices.merge_on_demand(listed));
        }
        Ok(())
    }

    pub async fn refresh_spot(&self, wire: &dyn Aws) -> Result<(), Failure> {
        let history = prices::ask_spot(wire).await?;
        self.change_prices(|prices| prices.merge_spot(history));
        Ok(())
    }

    /// Every type of the region in order of name, as the class would have it. Those it cannot use have no available offering.
    ///
    /// Caveats: fails as a whole when one type cannot be made out: half a list would look like a shortage.
    pub fn instance_types(&self, class: &Ec2NodeClass) -> Result<Types, CloudError> {
        let now = self.clock.now();
        let discovered = self.known()?;
        if class.status.as_ref().is_none_or(|status| status.subnets.is_empty()) {
            let message =
                format!("EC2NodeClass {}: status.subnets is empty: no subnet was found yet", view::name(class));
            return Err(CloudError::Other { message: message.into() });
        }
        let group = self.placement_group(class);
        let key = View::key(class, group.as_ref());
        let mut lists = lock(&self.lists);
        lists.retain(|_, list| now.0 - list.used.0 < LIST_LIVES.as_millis() as i64);
        let list = match lists.entry(key) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(self.list(View::new(class, group, &self.settings)?, discovered, now)?)
            }
        };
        list.used = now;
        self.restock(list, now);
        Ok(list.types.clone())
    }

    /// What EC2 says about a type.
    pub fn facts(&self, name: &str) -> Option<Arc<TypeFacts>> {
        lock(&self.discovered).as_ref()?.types.get(name).cloned()
    }

    /// The kubelet's settings on a machine of the type.
    pub fn kubelet_of(&self, class: &Ec2NodeClass, facts: &TypeFacts) -> Result<ResolvedKubelet, CloudError> {
        let view = View::new(class, self.placement_group(class), &self.settings)?;
        let resolved = kubelet::resolve(
            class.spec.kubelet.as_ref(),
            &view.facts,
            facts,
            self.gated_expressions(),
            self.clock.now(),
        );
        resolved.map_err(|error| unusable_max_pods(&view.name, &facts.name, &error))
    }

    /// Whether the expressions of a class make sense, whatever the machine: the first that does not, with its field.
    pub fn compile_expressions(&self, class: &Ec2NodeClass) -> Result<(), String> {
        let view = View::new(class, None, &self.settings).map_err(|error| error.to_string())?;
        for (path, text) in view.facts.kubelet.expressions.iter() {
            let compiled = self.expressions.compile(text, self.clock.now());
            compiled.map_err(|error| format!("spec.{path}: {text:?}: {error}"))?;
        }
        Ok(())
    }

    /// Whether they have a usable result for every type there is.
    pub fn evaluate_expressions(&self, class: &Ec2NodeClass) -> Result<(), ExpressionsVerdict> {
        let view =
            View::new(class, None, &self.settings).map_err(|error| ExpressionsVerdict::Failed(error.to_string()))?;
        if view.facts.kubelet.expressions.is_empty() {
            return Ok(());
        }
        let discovered = lock(&self.discovered).clone().ok_or(ExpressionsVerdict::NoTypesYet)?;
        let now = self.clock.now();
        for facts in discovered.types.values() {
            kubelet::check(&view.facts, facts, &self.expressions, now).map_err(ExpressionsVerdict::Failed)?;
        }
        Ok(())
    }

    /// An hour of a type; without a zone, where it is cheapest.
    pub fn price(&self, instance_type: &str, zone: Option<&str>, capacity_type: CapacityType) -> Option<Money> {
        let prices = lock(&self.prices).clone();
        let price = match (capacity_type, zone) {
            (CapacityType::OnDemand, _) => prices.on_demand(instance_type),
            (CapacityType::Spot, Some(zone)) => prices.spot(instance_type, zone),
            (CapacityType::Spot, None) => prices.cheapest_spot(instance_type),
            (CapacityType::Reserved, _) => Some(prices.reserved(instance_type)),
        };
        price.map(|price| price.money)
    }

    pub fn unavailable(&self) -> &Unavailable {
        &self.unavailable
    }

    pub fn reservations(&self) -> &ReservationCounts {
        &self.reservations
    }

    /// Types that no price list has cost what an overlay states, if it names them and nothing else.
    pub fn set_stated_prices(&self, in_force: &[Overlay]) {
        let stated = if self.settings.has_node_overlay { prices::stated(in_force) } else { BTreeMap::new() };
        self.change_prices(|prices| prices.set_stated(stated));
    }

    /// The ids of zones that traffic was moved away from.
    pub fn set_shifted_zones(&self, ids: BTreeSet<String>) {
        let mut known = lock(&self.shifted_zones);
        if *known != ids {
            *known = ids;
            self.changed();
        }
    }

    /// What a selector means, as EC2 said last; None when there is no such group.
    pub fn set_placement_group(&self, selector: &PlacementGroupSelector, group: Option<PlacementGroup>) {
        let key = (selector.name.clone(), selector.id.clone());
        match group {
            Some(group) => self.groups.put(key, group, self.clock.now()),
            None => drop(self.groups.remove(&key)),
        }
    }

    pub fn placement_group(&self, class: &Ec2NodeClass) -> Option<PlacementGroup> {
        let selector = class.spec.placement_group_selector.as_ref()?;
        self.groups.get(&(selector.name.clone(), selector.id.clone()), self.clock.now())
    }

    /// A node registered: from now on its type has as much memory as it says.
    pub fn learn(&self, node: &NodeSeen<'_>) {
        let Ok(class) = serde_json::from_value::<Ec2NodeClass>(node.class_object.clone()) else {
            return;
        };
        // Without its types there is nothing that could be known better.
        let Ok(types) = self.instance_types(&class) else {
            return;
        };
        let Some(it) = types.iter().find(|it| it.name.as_str() == node.instance_type) else {
            return;
        };
        if self.learned.learn(&class, it, node.image_id, node.capacity.get(MEMORY), self.clock.now()) {
            self.changed();
        }
    }

    fn known(&self) -> Result<Arc<Discovered>, CloudError> {
        lock(&self.discovered).clone().ok_or_else(|| {
            let message = "instance types are not known yet: ec2:DescribeInstanceTypes has not been answered";
            CloudError::Other { message: message.into() }
        })
    }

    fn gated_expressions(&self) -> Option<&Expressions> {
        self.settings.has_node_class_cel.then_some(&self.expressions)
    }

    fn list(&self, view: View, discovered: Arc<Discovered>, now: UnixMillis) -> Result<List, CloudError> {
        let mut bases = Vec::with_capacity(discovered.types.len());
        let mut types = Vec::with_capacity(discovered.types.len());
        for facts in discovered.types.values() {
            let class = kubelet::settle(&view.facts, facts, self.gated_expressions(), now)
                .map_err(|error| unusable_max_pods(&view.name, &facts.name, &error))?;
            let it = describe(facts, &self.settings.region, &class);
            let is_compatible = is_compatible(facts, &class);
            bases.push(Base { facts: facts.clone(), memory: it.capacity.get(MEMORY), is_compatible });
            types.push(Arc::new(it));
        }
        // No stamp is like the first one, so that everything is made.
        let made_of = Stamp { changes: u64::MAX, unavailable_to_all: u64::MAX };
        Ok(List { view, discovered, bases, made_of, numbers: Vec::new(), types: types.into(), used: now })
    }

    /// Makes the offerings again of the types that something moved for.
    fn restock(&self, list: &mut List, now: UnixMillis) {
        let changes = self.changes.load(Ordering::Acquire);
        let names = list.bases.iter().map(|base| base.facts.name.clone());
        let (unavailable_to_all, of_types) = self.unavailable.sequences(names);
        let made_of = Stamp { changes, unavailable_to_all };
        let of_reservations = self.reservations.changes();
        let numbers: Vec<(u64, u64)> = std::iter::zip(&list.bases, of_types)
            .map(|(base, number)| {
                let is_reserved = list.view.reservations.contains_key(&base.facts.name);
                (number, if is_reserved { of_reservations } else { 0 })
            })
            .collect();
        if list.made_of == made_of && list.numbers == numbers {
            return;
        }
        let shop = Shop {
            view: &list.view,
            zones: &list.discovered.zones,
            prices: &lock(&self.prices).clone(),
            unavailable: &self.unavailable,
            reservations: &self.reservations,
            open_zones: open_zones(&list.view, &self.unavailable, &lock(&self.shifted_zones)),
        };
        let nowhere = BTreeSet::new();
        let make = |(position, base): (usize, &Base)| {
            if list.made_of == made_of && list.numbers.get(position) == numbers.get(position) {
                return list.types[position].clone();
            }
            let mut it = without_offerings(&list.types[position]);
            let learned = self.learned.memory(&base.facts.name, &list.view.images, now);
            it.capacity.set(MEMORY, learned.unwrap_or(base.memory));
            let sold_in = list.discovered.zones_by_type.get(&base.facts.name).unwrap_or(&nowhere);
            shop.stock(&mut it, &base.facts, sold_in, base.is_compatible);
            Arc::new(it)
        };
        let types: Types = list.bases.iter().enumerate().map(make).collect();
        (list.types, list.made_of, list.numbers) = (types, made_of, numbers);
    }

    fn change_prices(&self, change: impl FnOnce(&mut Prices)) {
        let mut known = lock(&self.prices);
        let mut prices = Prices::clone(&known);
        change(&mut prices);
        if prices != **known {
            *known = Arc::new(prices);
            self.changed();
        }
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }
}

impl Kubelets for Supply {
    fn kubelet_for(&self, class: &Ec2NodeClass, instance_type: &InstanceType) -> Result<ResolvedKubelet, CloudError> {
        let name = instance_type.name.as_str();
        let facts =
            self.facts(name).ok_or_else(|| CloudError::NotFound { what: format!("instance type {name}").into() })?;
        self.kubelet_of(class, &facts)
    }
}

fn without_offerings(it: &InstanceType) -> InstanceType {
    InstanceType {
        name: it.name.clone(),
        requirements: it.requirements.clone(),
        offerings: Vec::new(),
        capacity: it.capacity.clone(),
        overhead: it.overhead.clone(),
        attach_limits: it.attach_limits.clone(),
    }
}

fn unusable_max_pods(class: &str, instance_type: &str, error: &str) -> CloudError {
    let message = format!("EC2NodeClass {class}: spec.kubelet.maxPods for {instance_type}: {error}");
    CloudError::Refused { message: message.into() }
}

/// A panic elsewhere leaves what is kept here whole: every change replaces a value.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
