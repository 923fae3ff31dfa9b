//! What a duty has before it while it works.

use crate::disruption::Commands;
use crate::errand::{ApiCall, CloudCall, Errand, Thought, Ticket};
use crate::events::{Event, Events};
use crate::metrics::{Metrics, families};
use crate::nominations::Nominations;
use crate::options::Options;
use crate::record::Record;
use crate::standstill::{self, Brake, Looks, Standstill, Voluntary, brake};
use crate::stock::Stock;
use crate::termination::Evictions;
use crate::world::World;
use kerf_cloud::CloudProvider;
use kerf_model::{Text, UnixMillis};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub struct Desk<'a> {
    pub now: UnixMillis,
    pub world: &'a World,
    pub options: &'a Options,
    pub cloud: &'a Arc<dyn CloudProvider>,
    pub metrics: &'a Metrics,
    /// What was decided lately, for `kerf explain`.
    pub record: &'a mut Record,
    /// Offerings that ran dry, and when to ask again.
    pub stock: &'a mut Stock,
    /// Who was promised which place.
    pub nominations: &'a mut Nominations,
    /// Pods that must leave their nodes; the eviction queue takes them from here.
    pub evictions: &'a mut Evictions,
    /// Nodes in the hands of a disruption command.
    pub commands: &'a mut Commands,
    /// Whether too many nodes look as if they might go.
    pub brake: &'a mut Brake,
    pub(crate) duty: &'static str,
    pub(crate) busy: &'a mut BTreeSet<Ticket>,
    pub(crate) errands: &'a mut Vec<(Ticket, Errand)>,
    pub(crate) events: &'a mut Events,
}

impl Desk<'_> {
    /// Sends an errand off. Until it ends, `key` is busy; an errand for a busy key would be a mistake.
    pub fn order(&mut self, key: &Text, errand: Errand) {
        let ticket = Ticket { duty: self.duty, key: key.clone() };
        let is_new = self.busy.insert(ticket.clone());
        debug_assert!(is_new, "{} has an errand for {key} already", self.duty);
        self.errands.push((ticket, errand));
    }

    pub fn call(&mut self, key: &Text, call: ApiCall) {
        self.order(key, Errand::Api(call));
    }

    pub fn ask_cloud(&mut self, key: &Text, call: CloudCall) {
        self.order(key, Errand::Cloud(call));
    }

    pub fn think(&mut self, key: &Text, thought: Thought) {
        self.order(key, Errand::Think(thought));
    }

    pub fn is_busy(&self, key: &str) -> bool {
        self.busy.contains(&Ticket { duty: self.duty, key: key.into() })
    }

    /// Whether something that nobody asked for may begin now, and why not.
    pub fn may_begin(&self, what: Voluntary) -> Result<(), Standstill> {
        standstill::may_begin(what, self.world, self.options, self.brake)
    }

    /// Whether these claims may be taken now because they look so. Too many of them pull the brake.
    pub fn may_take<'b>(
        &mut self,
        what: Voluntary,
        looks: Looks,
        claims: impl IntoIterator<Item = &'b Text>,
    ) -> Result<(), Standstill> {
        // Who may not go by what is seen has no need of a second opinion.
        standstill::may_look(what, self.world, self.options)?;
        self.note_looks(looks, claims);
        self.may_begin(what)
    }

    /// These claims look so: if they are too many, the brake is pulled.
    pub fn note_looks<'b>(&mut self, looks: Looks, claims: impl IntoIterator<Item = &'b Text>) {
        let n_nodes = self.world.claims.len();
        let limit = brake::limit(n_nodes, self.options.brake_above_nodes);
        if self.brake.note(looks, claims, (n_nodes, limit), self.now) {
            self.metrics.add(&families::DISRUPTION_BRAKES_TOTAL, &[looks.as_str()], 1.0);
        }
    }

    /// What stands still now, and why.
    pub fn standstills(&self) -> BTreeMap<Voluntary, Standstill> {
        standstill::all(self.world, self.options, self.brake)
    }

    /// Tells something about an object, unless the same was told just now.
    pub fn event(&mut self, event: Event) {
        self.events.tell(self.now, event);
    }
}
