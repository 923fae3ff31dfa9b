//! A simulated EC2: seeded, priced, able to run dry, to throttle, to fail, and to take spot machines back.
//!
//! ```text
//! launch ─▶ order   which offerings suit (class, types, prices) ── market ─▶ one that is left
//!        ─▶ fleet   the machine, its meter, what becomes of it ── Yard ─▶ it boots and joins
//! tick   ─▶ fleet   notices, losses, ends, prices that change
//! resolve_class ─▶ account   subnets, groups, images ─▶ class_status
//! ```
//!
//! It serves EC2NodeClasses, with the built-in catalogue, and KWOKNodeClasses, with kwok's types. Nothing is drawn twice and
//! nothing depends on the order of unrelated questions: a seed is a whole world.

mod account;
mod bill;
mod class_status;
mod fleet;
mod market;
mod notice;
mod options;
mod order;
mod tokens;
mod yard;

pub use bill::{Bill, BillLine};
pub use notice::{Notice, NoticeKind};
pub use options::{Faults, SimOptions, Span};
pub use yard::{NewMachine, Yard};

use crate::chance::Chance;
use crate::{ec2_class, kwok};
use account::Account;
use fleet::{Due, EndingPace, Fleet, Loss, Machine};
use kerf_api::{Ec2NodeClass, labels as api_labels};
use kerf_cloud::aws::UnknownRegion;
use kerf_cloud::clock::Clock;
use kerf_cloud::{
    Answer, ClassStatus, CloudError, CloudProvider, Instance, InstanceRef, LaunchOrder, NodeClassKind, OfferingKey,
    RepairAction, RepairPolicy, TypesAsk,
};
use kerf_model::{CapacityType, InstanceType, Money, Text, TypeName, UnixMillis};
use market::Market;
use order::{Host, OrderClass, Purchase};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokens::{FleetAnswer, Known, Tokens};

pub const EC2_NODE_CLASS: NodeClassKind =
    NodeClassKind::plain(api_labels::AWS_GROUP, "v1", "EC2NodeClass", "ec2nodeclasses");

/// What a spot machine gets between the notice and its end.
const SPOT_WARNING_MS: i64 = 120_000;

/// Within so long reads show a machine, however much they lag: EC2 promises nothing, and needs seconds.
const READS_SETTLE_MS: i64 = 15_000;

/// Claims whose requests in vain a provider counts.
const ASKING_MAX: usize = 10_000;

const LONG_POLL_MS: i64 = 20_000;
/// How soon a notice is heard by whoever listens already.
const LISTEN_EVERY: Duration = Duration::from_secs(1);

/// The provider. Clones are the same one.
#[derive(Clone)]
pub struct SimCloud(Arc<Inner>);

struct Inner {
    options: Arc<SimOptions>,
    chance: Chance,
    clock: Arc<dyn Clock>,
    yard: Arc<dyn Yard>,
    account: Account,
    well_known: Vec<&'static str>,
    /// What outlives a provider.
    world: Arc<Mutex<World>>,
    /// What does not: fleets that were asked for, by the claim's uid.
    asking: Mutex<BTreeMap<Text, Asking>>,
}

/// What a provider knows of its own requests for a claim.
#[derive(Debug, Clone, Copy, Default)]
struct Asking {
    /// Tokens that are used up.
    n_before: u32,
    /// Since when it is known that somebody else used the next one for something else.
    mismatched: Option<UnixMillis>,
}

struct World {
    market: Market,
    fleet: Fleet,
    tokens: Tokens,
    /// How often chance was asked, by purpose.
    n_draws: BTreeMap<&'static str, u64>,
    prices_hold_until: Option<UnixMillis>,
}

impl SimCloud {
    /// Fails when the catalogue has no such region.
    pub fn new(options: SimOptions, clock: Arc<dyn Clock>, yard: Arc<dyn Yard>) -> Result<Self, UnknownRegion> {
        let options = Arc::new(options);
        let mut well_known: BTreeSet<&'static str> = api_labels::AWS_WELL_KNOWN.iter().copied().collect();
        well_known.extend(kwok::well_known(&options.kwok_types));
        let well_known: Vec<&'static str> = well_known.into_iter().collect();
        let market = Market::new(options.clone(), &well_known)?;
        let prices_hold_until = market.prices_hold_until(clock.now());
        Ok(Self(Arc::new(Inner {
            chance: Chance::new(options.seed),
            account: Account::new(options.clone()),
            well_known,
            world: Arc::new(Mutex::new(World {
                market,
                fleet: Fleet::default(),
                tokens: Tokens::default(),
                n_draws: BTreeMap::new(),
                prices_hold_until,
            })),
            asking: Mutex::default(),
            options,
            clock,
            yard,
        })))
    }

    /// A provider that has just begun, over the same account: what the one before it knew is forgotten.
    #[must_use]
    pub fn successor(&self) -> Self {
        let before = &self.0;
        Self(Arc::new(Inner {
            options: before.options.clone(),
            chance: before.chance,
            clock: before.clock.clone(),
            yard: before.yard.clone(),
            account: Account::new(before.options.clone()),
            well_known: before.well_known.clone(),
            world: before.world.clone(),
            asking: Mutex::default(),
        }))
    }

    /// Lets happen what is due by now. Every question does that first; this is for when nobody asks.
    pub fn tick(&self) {
        self.with_world(|_, _| ());
    }

    /// When something happens by itself next: call [`SimCloud::tick`] then.
    pub fn next_due(&self) -> Option<UnixMillis> {
        self.world().fleet.next_due()
    }

    /// What the cloud has to tell and nobody has acknowledged, in order. It is not told again.
    pub fn take_notices(&self) -> Vec<Notice> {
        self.with_world(|world, _| world.fleet.inbox.take())
    }

    /// Waits for something to tell, as long as a long poll of the cloud's queue does.
    async fn listen(self) -> Vec<kerf_cloud::Notice> {
        let until = self.0.clock.now().0 + LONG_POLL_MS;
        loop {
            let told = self.with_world(|world, now| world.fleet.inbox.tell(now));
            if !told.is_empty() || self.0.clock.now().0 >= until {
                return told;
            }
            self.0.clock.sleep(LISTEN_EVERY).await;
        }
    }

    /// What was spent so far.
    pub fn bill(&self) -> Bill {
        self.with_world(|world, now| world.fleet.bill(now))
    }

    /// Machines that run, as the bill has them.
    pub fn running(&self) -> Vec<BillLine> {
        self.bill().lines.into_iter().filter(|line| line.until.is_none()).collect()
    }

    /// From now on so many are left of an offering.
    pub fn set_stock(&self, offering: &OfferingKey, left: u32) {
        self.with_world(|world, _| world.market.set_stock(offering, left));
    }

    /// Takes a machine back: notice now, the end two minutes later. False when there is no such machine running.
    pub fn interrupt(&self, provider_id: &str) -> bool {
        let is_running = self.with_world(|world, now| world.fleet.interrupt(provider_id, now, SPOT_WARNING_MS));
        self.tick();
        is_running
    }

    /// Brings the world up to date, asks it something, and then presses the buttons that follow from it.
    fn with_world<T>(&self, ask: impl FnOnce(&mut World, UnixMillis) -> T) -> T {
        let now = self.0.clock.now();
        let mut world = self.world();
        let due = self.0.advance(&mut world, now);
        let answer = ask(&mut world, now);
        // Whoever is woken by a button may ask the cloud at once.
        drop(world);
        self.press(due);
        answer
    }

    fn press(&self, due: Vec<Due>) {
        for due in due {
            if let Due::Stop { node } = due {
                self.0.yard.terminate(&node);
            }
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the cloud has time for a call.
    fn throttle(&self, world: &mut World, call: &'static str) -> Result<(), CloudError> {
        let faults = &self.0.options.faults;
        if faults.throttled_share > 0.0 && self.0.draw(world, call) < faults.throttled_share {
            let message = format!("RequestLimitExceeded: {call}");
            return Err(CloudError::Throttled { message: message.into(), retry_after: faults.throttled_for });
        }
        Ok(())
    }

    async fn launch_machine(self, order: Arc<LaunchOrder>) -> Result<Instance, CloudError> {
        let instance = self.buy(&order)?;
        let answer_ms = self.0.options.faults.launch_answer.drawn(self.0.chance.bits("launch answer", &order.uid, 0));
        if answer_ms > 0 {
            self.0.clock.sleep(Duration::from_millis(answer_ms)).await;
        }
        Ok(instance)
    }

    fn buy(&self, order: &LaunchOrder) -> Result<Instance, CloudError> {
        let bought = self.with_world(|world, now| {
            self.throttle(world, "CreateFleet")?;
            if kwok::NODE_CLASS.is(&order.node_class) {
                // What names its machine after the claim needs no token.
                if let Some(machine) = world.fleet.of_claim(&order.uid, now) {
                    return Ok((machine.truth(), None));
                }
                let purchase = self.0.choose(world, order, &order::kwok_class(order)?, now)?;
                let machine = self.0.deliver(world, order, &purchase, now);
                return Ok((purchase.instance, machine));
            }
            self.ask_fleet(world, order, now)
        });
        let (instance, machine) = bought?;
        if let Some(machine) = machine {
            self.0.yard.boot(machine);
        }
        Ok(instance)
    }

    /// One machine from a fleet. A claim has tokens of its own, one for each time that it was asked for in vain, so that a request whose
    /// answer nobody heard is not made again. Whoever follows a provider that died does not know how often that one asked, nor with what:
    /// a token that was used otherwise says that there may be a machine, and reads will show it before long.
    fn ask_fleet(
        &self,
        world: &mut World,
        order: &LaunchOrder,
        now: UnixMillis,
    ) -> Result<(Instance, Option<NewMachine>), CloudError> {
        let class = order::ec2_class(order)?;
        let parameters = self.0.parameters(world, order, &class, now)?;
        loop {
            let asking = self.asking().get(&order.uid).copied().unwrap_or_default();
            let token: Text = format!("{}/{}", order.uid, asking.n_before).into();
            #[cfg(feature = "planted")]
            let token = if self.0.options.shares_tokens { format!("{parameters}").into() } else { token };
            let used_up = Asking { n_before: asking.n_before + 1, mismatched: None };
            match world.tokens.look(&token, parameters, now) {
                Known::New => {
                    let chosen = self.0.choose(world, order, &class, now);
                    let answer = match &chosen {
                        Ok(purchase) => FleetAnswer::Launched { provider_id: purchase.instance.provider_id.clone() },
                        Err(CloudError::NoCapacity { sold_out, .. }) => FleetAnswer::SoldOut(sold_out.clone()),
                        Err(_) => return chosen.map(|purchase| (purchase.instance, None)),
                    };
                    world.tokens.remember(token, parameters, answer, now);
                    if chosen.is_err() {
                        self.note(order, used_up);
                    }
                    let purchase = chosen?;
                    let machine = self.0.deliver(world, order, &purchase, now);
                    return Ok((purchase.instance, machine));
                }
                Known::Answered(FleetAnswer::Launched { provider_id }) => {
                    let machine = world.fleet.machine(&provider_id).filter(|machine| !machine.is_gone(now));
                    if let Some(machine) = machine {
                        return Ok((machine.truth(), None));
                    }
                    self.note(order, used_up);
                }
                Known::Answered(FleetAnswer::SoldOut(sold_out)) => {
                    self.note(order, used_up);
                    return Err(order::no_capacity(order, sold_out));
                }
                Known::Mismatch => {
                    let of_claim = world.fleet.visible(now).find(|it| *it.claim == *order.claim.0 && !it.is_ending);
                    if let Some(instance) = of_claim {
                        return Ok((instance, None));
                    }
                    let since = asking.mismatched.unwrap_or(now);
                    if now.0 - since.0 >= READS_SETTLE_MS {
                        self.note(order, used_up);
                        continue;
                    }
                    let mismatched = Some(since);
                    self.note(order, Asking { mismatched, ..asking });
                    let message = format!(
                        "NodeClaim {}: IdempotentParameterMismatch: it was asked for before, and otherwise; waiting for what came of it",
                        order.claim
                    );
                    return Err(CloudError::LaunchFailed {
                        reason: "IdempotentParameterMismatch".into(),
                        message: message.into(),
                    });
                }
            }
        }
    }

    fn note(&self, order: &LaunchOrder, asking: Asking) {
        let mut all = self.asking();
        if all.len() >= ASKING_MAX {
            // Whoever asks again learns it again.
            all.clear();
        }
        all.insert(order.uid.clone(), asking);
    }

    fn asking(&self) -> MutexGuard<'_, BTreeMap<Text, Asking>> {
        self.0.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, instance: &InstanceRef) -> Result<(), CloudError> {
        let due = self.with_world(|world, now| {
            self.throttle(world, "TerminateInstances")?;
            // Reads may not know of it yet, but who launched it must be able to end it.
            let pace = self.0.pace(&instance.provider_id);
            world.fleet.end(&instance.provider_id, now, pace).ok_or_else(|| not_found(&instance.provider_id))
        })?;
        self.press(due);
        Ok(())
    }

    fn restart(&self, instance: &InstanceRef, operation: Text) -> Result<(), CloudError> {
        let node = self.with_world(|world, _| {
            self.throttle(world, "RebootInstances")?;
            let machine = world.fleet.machine_mut(&instance.provider_id).filter(|machine| machine.ending.is_none());
            let machine = machine.ok_or_else(|| not_found(&instance.provider_id))?;
            Ok(machine.operations.insert(operation).then(|| machine.node.clone()))
        })?;
        if let Some(node) = node {
            self.0.yard.reboot(&node);
        }
        Ok(())
    }

    fn resolve(&self, object: &Value) -> Result<ClassStatus, CloudError> {
        if object["kind"] != EC2_NODE_CLASS.kind {
            return Ok(ClassStatus::default());
        }
        self.with_world(|world, _| self.throttle(world, "DescribeSubnets"))?;
        let class = read_class(object)?;
        Ok(class_status::resolve(&self.0.account, &class, self.0.clock.now()))
    }

    fn drifted(&self, instance: &InstanceRef, object: &Value) -> Result<Option<Text>, CloudError> {
        if object["kind"] != EC2_NODE_CLASS.kind {
            return Ok(None);
        }
        let (class, facts) = (read_class(object)?, ec2_facts(Some(object))?);
        self.with_world(|world, now| {
            self.throttle(world, "DescribeInstances")?;
            let machine = world.fleet.machine(&instance.provider_id).filter(|machine| !machine.is_gone(now));
            let machine = machine.ok_or_else(|| not_found(&instance.provider_id))?;
            let types = world.market.ec2_types(&facts, now);
            let it = types.iter().find(|it| it.name == machine.key.instance_type);
            order::drift(&class, machine, it.map(|it| &**it))
        })
    }
}

impl Inner {
    /// Lets happen what is due, in order of time.
    fn advance(&self, world: &mut World, now: UnixMillis) -> Vec<Due> {
        let mut due = Vec::new();
        while let Some(changes_at) = world.prices_hold_until.filter(|at| *at <= now) {
            due.extend(world.fleet.advance(changes_at, |id| self.pace(id)));
            for machine in world.fleet.running_mut().filter(|machine| machine.key.capacity_type == CapacityType::Spot) {
                let key = &machine.key;
                let price = world.market.price(&key.instance_type, Some(&key.zone), key.capacity_type, changes_at);
                machine.meter.change_price(price.unwrap_or_else(|| machine.meter.price()), changes_at);
            }
            world.prices_hold_until = world.market.prices_hold_until(changes_at);
        }
        due.extend(world.fleet.advance(now, |id| self.pace(id)));
        for due in &due {
            if let Due::Returned { key } = due {
                world.market.give_back(key);
            }
        }
        due
    }

    fn pace(&self, provider_id: &str) -> EndingPace {
        let drawn = |purpose: &str, span: Span| span.drawn(self.chance.bits(purpose, provider_id, 0)) as i64;
        EndingPace {
            shutdown_ms: drawn("shutdown", self.options.shutdown),
            lag_ms: drawn("end lag", self.options.faults.read_lag),
        }
    }

    /// The next draw of a purpose, from 0 to 1.
    fn draw(&self, world: &mut World, purpose: &'static str) -> f64 {
        let n_draws = world.n_draws.entry(purpose).or_default();
        *n_draws += 1;
        self.chance.share(purpose, "", *n_draws)
    }

    /// Which offering the order gets.
    fn choose(
        &self,
        world: &mut World,
        order: &LaunchOrder,
        class: &OrderClass,
        now: UnixMillis,
    ) -> Result<Purchase, CloudError> {
        let types = types_for(world, order, class, now)?;
        let failed = &self.options.faults.failed_launch_share;
        if *failed > 0.0 && self.draw(world, "failed launch") < *failed {
            let message = format!("NodeClaim {}: InternalError: an internal error has occurred", order.claim);
            return Err(CloudError::LaunchFailed { reason: "InternalError".into(), message: message.into() });
        }
        let mut sold_out = Vec::new();
        let host = self.host(world, order);
        for candidate in order::acceptable(&types, order, class)? {
            if world.market.take(&candidate.key, now) {
                return Ok(order::purchase(self, order, class, &candidate, host, sold_out, now));
            }
            sold_out.push(candidate.key);
        }
        Err(order::no_capacity(order, sold_out))
    }

    /// What a request for a fleet says: what is acceptable, in order, at which prices, on which class.
    fn parameters(
        &self,
        world: &mut World,
        order: &LaunchOrder,
        class: &OrderClass,
        now: UnixMillis,
    ) -> Result<u64, CloudError> {
        let types = types_for(world, order, class, now)?;
        let acceptable = order::acceptable(&types, order, class)?;
        let said = acceptable.iter().map(|it| format!("{:?} {:?};", it.key, it.offering.price));
        let class = class.ec2.as_ref().map(|class| class.hash(None)).unwrap_or_default();
        Ok(said.chain([class]).fold(0, |sum, part| self.chance.bits("parameters", &part, sum)))
    }

    /// Puts a machine into the fleet. Answers with what to power on; None when it will never join.
    fn deliver(
        &self,
        world: &mut World,
        order: &LaunchOrder,
        purchase: &Purchase,
        now: UnixMillis,
    ) -> Option<NewMachine> {
        let faults = &self.options.faults;
        let id = &purchase.instance.provider_id;
        let lag_ms = faults.read_lag.drawn(self.chance.bits("launch lag", id, 0)) as i64;
        world.fleet.add(Machine {
            instance: Instance { sold_out: Vec::new(), ..purchase.instance.clone() },
            uid: order.uid.clone(),
            node: purchase.machine.name.clone(),
            key: purchase.key.clone(),
            launched_ms: now.0,
            visible_ms: now.0 + lag_ms,
            loss: self.loss(purchase, now),
            ending: None,
            meter: bill::Meter::start(purchase.price, now),
            operations: BTreeSet::new(),
            placing: purchase.placing.clone().into(),
        });
        let joins =
            faults.never_joins_share <= 0.0 || self.chance.share("never joins", id, 0) >= faults.never_joins_share;
        joins.then(|| purchase.machine.clone())
    }

    /// When a spot machine will be taken back.
    fn loss(&self, purchase: &Purchase, now: UnixMillis) -> Option<Loss> {
        let per_hour = self.options.faults.spot_losses_per_hour;
        if per_hour <= 0.0 || purchase.key.capacity_type != CapacityType::Spot {
            return None;
        }
        // Losses that come at a constant rate leave lives of exponential length.
        let share = self.chance.share("spot loss", &purchase.instance.provider_id, 0);
        let hours = -(1.0 - share).ln() / per_hour;
        let notice_ms = now.0.saturating_add((hours * 3_600_000.0) as i64);
        Some(Loss { notice_ms, end_ms: notice_ms.saturating_add(SPOT_WARNING_MS), is_told: false })
    }

    /// `ip-10-…`, as EC2 names hosts after their addresses. One that is taken is passed over.
    fn host(&self, world: &World, order: &LaunchOrder) -> Host {
        let suffix = match self.options.region.as_str() {
            "us-east-1" => "ec2.internal".to_owned(),
            region => format!("{region}.compute.internal"),
        };
        let first = self.chance.bits("address", &order.uid, 0);
        let host = |step: u64| {
            let [.., b, c, d] = first.wrapping_add(step).to_be_bytes();
            Host { name: format!("ip-10-{b}-{c}-{d}.{suffix}").into(), address: format!("10.{b}.{c}.{d}").into() }
        };
        (0..1 << 24).map(host).find(|host| !world.fleet.has_node(&host.name)).unwrap_or_else(|| host(0))
    }
}

impl CloudProvider for SimCloud {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn node_classes(&self) -> Vec<NodeClassKind> {
        vec![EC2_NODE_CLASS, kwok::NODE_CLASS]
    }

    fn well_known_labels(&self) -> Vec<&'static str> {
        self.0.well_known.clone()
    }

    fn instance_types(&self, ask: &TypesAsk<'_>) -> Result<Arc<[Arc<InstanceType>]>, CloudError> {
        if kwok::NODE_CLASS.is(ask.node_class) {
            return Ok(self.world().market.kwok_types());
        }
        let facts = ec2_facts(ask.class_object)?;
        Ok(self.world().market.ec2_types(&facts, self.0.clock.now()))
    }

    fn price(&self, instance_type: &TypeName, zone: Option<&Text>, capacity_type: CapacityType) -> Option<Money> {
        self.world().market.price(instance_type, zone, capacity_type, self.0.clock.now())
    }

    fn launch(&self, order: Arc<LaunchOrder>) -> Answer<Instance> {
        Box::pin(self.clone().launch_machine(order))
    }

    fn terminate(&self, instance: InstanceRef) -> Answer<()> {
        let this = self.clone();
        Box::pin(async move { this.end(&instance) })
    }

    fn get(&self, provider_id: Text) -> Answer<Instance> {
        let this = self.clone();
        Box::pin(async move {
            this.with_world(|world, now| {
                this.throttle(world, "DescribeInstances")?;
                let machine = world.fleet.machine(&provider_id);
                machine.and_then(|machine| machine.read(now)).ok_or_else(|| not_found(&provider_id))
            })
        })
    }

    fn list(&self) -> Answer<Vec<Instance>> {
        let this = self.clone();
        Box::pin(async move {
            this.with_world(|world, now| {
                this.throttle(world, "DescribeInstances")?;
                Ok(world.fleet.visible(now).collect())
            })
        })
    }

    fn reboot(&self, instance: InstanceRef, operation: Text) -> Answer<()> {
        let this = self.clone();
        Box::pin(async move { this.restart(&instance, operation) })
    }

    fn resolve_class(&self, class: Arc<Value>) -> Answer<ClassStatus> {
        let this = self.clone();
        Box::pin(async move { this.resolve(&class) })
    }

    fn drift(&self, instance: InstanceRef, class: Arc<Value>) -> Answer<Option<Text>> {
        let this = self.clone();
        Box::pin(async move { this.drifted(&instance, &class) })
    }

    fn notices(&self) -> Answer<Vec<kerf_cloud::Notice>> {
        let this = self.clone();
        Box::pin(async move { Ok(this.listen().await) })
    }

    fn acknowledge(&self, receipts: Vec<Text>) -> Answer<()> {
        let this = self.clone();
        Box::pin(async move {
            this.with_world(|world, _| world.fleet.inbox.acknowledge(&receipts));
            Ok(())
        })
    }

    /// EC2's conditions, and kwok's two simulated ones.
    fn repair_policies(&self) -> Vec<RepairPolicy> {
        let minutes = |n: u64| Duration::from_secs(n * 60);
        let ec2 = [
            ("Ready", "False", "", 30),
            ("Ready", "Unknown", ".*", 30),
            ("AcceleratedHardwareReady", "False", ".*", 10),
            ("StorageReady", "False", ".*", 30),
            ("NetworkingReady", "False", ".*", 30),
            ("KernelReady", "False", ".*", 30),
            ("ContainerRuntimeReady", "False", ".*", 30),
        ]
        .into_iter()
        .map(|(condition, status, reason, tolerate_minutes)| RepairPolicy {
            condition: condition.into(),
            status: status.into(),
            reason: reason.into(),
            tolerate_for: minutes(tolerate_minutes),
            drain_within: Some(Duration::ZERO),
            priority: 0,
            action: RepairAction::ReplaceNode,
        });
        ec2.chain(kwok::repair_policies().into_iter().filter(|policy| policy.condition.starts_with("KWOK"))).collect()
    }
}

fn types_for(
    world: &mut World,
    order: &LaunchOrder,
    class: &OrderClass,
    now: UnixMillis,
) -> Result<Arc<[Arc<InstanceType>]>, CloudError> {
    if class.ec2.is_none() {
        return Ok(world.market.kwok_types());
    }
    let facts = ec2_facts(order.class_object.as_deref())?;
    Ok(world.market.ec2_types(&facts, now))
}

fn not_found(provider_id: &str) -> CloudError {
    CloudError::NotFound { what: format!("instance {provider_id}").into() }
}

fn ec2_facts(object: Option<&Value>) -> Result<kerf_cloud::aws::NodeClassFacts, CloudError> {
    ec2_class::read(object).map(|class| class.facts).map_err(|message| CloudError::Refused { message })
}

fn read_class(object: &Value) -> Result<Ec2NodeClass, CloudError> {
    serde_json::from_value(object.clone()).map_err(|error| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        CloudError::Refused { message: format!("EC2NodeClass {name} cannot be read: {error}").into() }
    })
}

#[cfg(test)]
mod tests;
