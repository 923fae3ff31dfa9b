//! Why a pod stays pending, with the numbers, and the smallest change that would place it.

use crate::ids::{PoolName, Text, TypeName};
use crate::quantity::Quantity;
use crate::requirement::Requirement;
use crate::taint::Taint;

/// The whole answer for one pod: what each pool said, and what would help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// In the order in which the pools were tried.
    pub verdicts: Vec<Verdict>,
    /// Checked: with exactly this changed, the pod alone can be placed.
    pub remedy: Option<Remedy>,
}

/// One pool's answer; no pool for reasons that concern the pod itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub pool: Option<PoolName>,
    pub why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    NoPools,
    PoolNotReady {
        reason: Text,
    },
    /// The pool's own requirements leave no instance type.
    PoolMatchesNoType {
        key: Option<Text>,
    },
    TaintNotTolerated {
        taint: Taint,
    },
    /// The pod asks for a label that neither the pool nor the provider defines.
    LabelUnknown {
        key: Text,
        wanted: Requirement,
        typo_of: Option<Text>,
    },
    /// The pod and the pool want different values. Boxed, or this variant alone would decide the size of all.
    RequirementsClash {
        key: Text,
        wanted: Box<Requirement>,
        offered: Box<Requirement>,
    },
    /// No instance type has what the pod and the pool ask for together.
    NoTypeMatches {
        key: Option<Text>,
    },
    /// The largest amount that any suitable type has left after its daemons is not enough.
    TooLarge {
        resource: Text,
        needs: Quantity,
        largest: Quantity,
        on: Option<TypeName>,
        n_types: usize,
    },
    /// Each resource alone would fit somewhere, all together nowhere.
    NoTypeHasAll {
        n_types: usize,
    },
    /// Types fit, but none of them can be had in the zones and capacity types asked for.
    NoOffering {
        n_types: usize,
    },
    LimitReached {
        resource: Text,
        limit: Quantity,
        in_use: Quantity,
        needs: Quantity,
    },
    MinValues {
        key: Text,
        needs: u32,
        has: u32,
    },
    Topology {
        kind: TopologyKind,
        key: Text,
        detail: Text,
    },
    VolumeElsewhere {
        key: Text,
        wanted: Requirement,
    },
    VolumeLimit {
        driver: Text,
        needs: u32,
        limit: u32,
    },
    HostPortTaken {
        port: u16,
    },
    /// A reservation could serve it, but all of it is spoken for in this pass.
    ReservationAwaited {
        reservation: Text,
    },
    /// The pod's own description cannot be used.
    Ill {
        field: Text,
        message: Text,
    },
    /// Uses dynamic resource allocation, which is not considered.
    DynamicResources,
    /// The pod says that it does not want a node of ours.
    NotForUs,
    /// The search was stopped before this pod's turn.
    EffortSpent {
        max: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopologyKind {
    Spread,
    Affinity,
    AntiAffinity,
    /// Another pod's anti-affinity bars this one.
    InverseAntiAffinity,
}

/// One change that would place the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    Tolerate { pool: PoolName, taint: Taint },
    DropRequirement { key: Text },
    DeclareLabel { pool: PoolName, key: Text },
    ReduceRequest { resource: Text, to: Quantity },
    RaiseLimit { pool: PoolName, resource: Text, to: Quantity },
    LowerMinValues { pool: PoolName, key: Text, to: u32 },
    DropTopology { kind: TopologyKind, key: Text },
    FreeHostPort { port: u16 },
    MakeReady { pool: PoolName },
    AddPool,
}
