//! What a plan can do wrong, with the numbers.

use kerf_model::{ClaimName, Money, PodId, PoolName, Quantity, Revision, Taint, Text, TopologyKind, TypeName};
use std::fmt;

/// One law that a plan breaks. `on` names a node of the snapshot, or a claim of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Breach {
    /// The plan was made from another picture.
    WrongRevision {
        plan: Revision,
        snapshot: Revision,
    },
    /// The pod is not among the pending ones.
    PodUnknown {
        pod: PodId,
    },
    PodPlacedTwice {
        pod: PodId,
    },
    NodeUnknown {
        node: Text,
    },
    NodeLeaving {
        node: Text,
    },
    ClaimNameTaken {
        claim: ClaimName,
    },
    LaunchForNobody {
        claim: ClaimName,
    },
    PoolUnknown {
        claim: ClaimName,
        pool: PoolName,
    },
    /// The pool is static, or not ready.
    PoolCannotGrow {
        claim: ClaimName,
        pool: PoolName,
    },
    /// Taints, labels, node class or requirements differ from what the pool's template says.
    NotOfItsPool {
        claim: ClaimName,
        what: Text,
    },
    NoOptions {
        claim: ClaimName,
    },
    TooManyOptions {
        claim: ClaimName,
        n_options: usize,
        max: usize,
    },
    OptionsNotByPrice {
        claim: ClaimName,
        before: Money,
        after: Money,
    },
    OptionTwice {
        claim: ClaimName,
        option: TypeName,
    },
    /// No such type in the pool, or the claim's requirements exclude it.
    OptionNotAllowed {
        claim: ClaimName,
        option: TypeName,
    },
    /// No launchable offering of the type fits the claim's requirements.
    OptionNotForSale {
        claim: ClaimName,
        option: TypeName,
    },
    /// The price, zone or capacity type is not that of its cheapest usable offering.
    OptionMispriced {
        claim: ClaimName,
        option: TypeName,
        said: Money,
        cheapest: Money,
    },
    /// `option` is None for a node of the snapshot.
    Overfull {
        on: Text,
        option: Option<TypeName>,
        resource: Text,
        needs: Quantity,
        has: Quantity,
    },
    /// The claim asks for less than its pods do.
    RequestsTooLow {
        claim: ClaimName,
        resource: Text,
        says: Quantity,
        needs: Quantity,
    },
    TaintNotTolerated {
        on: Text,
        pod: PodId,
        taint: Taint,
    },
    /// The pod's selector or required terms need not hold there.
    RequirementsNotMet {
        on: Text,
        option: Option<TypeName>,
        pod: PodId,
    },
    VolumeOutOfReach {
        on: Text,
        option: Option<TypeName>,
        pod: PodId,
    },
    HostPortTwice {
        on: Text,
        pod: PodId,
        port: u16,
    },
    VolumeLimit {
        on: Text,
        driver: Text,
        needs: usize,
        limit: usize,
    },
    LimitCrossed {
        pool: PoolName,
        resource: Text,
        limit: Quantity,
        total: Quantity,
    },
    MinValues {
        claim: ClaimName,
        key: Text,
        needs: u32,
        has: u32,
    },
    /// A reservation is held by more claims than it has room for.
    ReservationOversold {
        reservation: Text,
        holders: usize,
        capacity: u32,
    },
    /// The claim says that it holds a reservation that none of its options can use.
    ReservationNotItsOwn {
        claim: ClaimName,
        reservation: Text,
    },
    /// `pod` and a pod it must not meet can share the domain.
    AntiAffinity {
        pod: PodId,
        key: Text,
        domain: Text,
        kind: TopologyKind,
    },
    /// No pod that it must be near is sure to be in the domain.
    AffinityAlone {
        on: Text,
        pod: PodId,
        key: Text,
    },
    SpreadTooWide {
        pod: PodId,
        key: Text,
        domain: Text,
        count: u32,
        least: u32,
        max_skew: u32,
    },
    /// The place has no domain, or more than one, for a constraint that must know it.
    DomainUnknown {
        on: Text,
        pod: PodId,
        key: Text,
        kind: TopologyKind,
    },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let as_type = |option: &Option<TypeName>| match option {
            Some(name) => format!(" as {name}"),
            None => String::new(),
        };
        match self {
            Breach::WrongRevision { plan, snapshot } => {
                write!(f, "the plan is based on {plan}, the snapshot is {snapshot}")
            }
            Breach::PodUnknown { pod } => write!(f, "{pod} is not pending"),
            Breach::PodPlacedTwice { pod } => write!(f, "{pod} is placed twice"),
            Breach::NodeUnknown { node } => write!(f, "there is no node {node}"),
            Breach::NodeLeaving { node } => write!(f, "{node} is on its way out"),
            Breach::ClaimNameTaken { claim } => write!(f, "the name {claim} is used twice"),
            Breach::LaunchForNobody { claim } => write!(f, "{claim} is launched for no pod"),
            Breach::PoolUnknown { claim, pool } => {
                write!(f, "{claim}: there is no nodepool {pool}")
            }
            Breach::PoolCannotGrow { claim, pool } => {
                write!(f, "{claim}: nodepool {pool} is static or not ready")
            }
            Breach::NotOfItsPool { claim, what } => {
                write!(f, "{claim}: {what} is not what the pool says")
            }
            Breach::NoOptions { claim } => write!(f, "{claim} has no instance type to choose from"),
            Breach::TooManyOptions { claim, n_options, max } => {
                write!(f, "{claim} lists {n_options} instance types, more than {max}")
            }
            Breach::OptionsNotByPrice { claim, before, after } => {
                write!(f, "{claim} lists {before} before {after}")
            }
            Breach::OptionTwice { claim, option } => write!(f, "{claim} lists {option} twice"),
            Breach::OptionNotAllowed { claim, option } => {
                write!(f, "{claim}: {option} does not fit the claim's requirements")
            }
            Breach::OptionNotForSale { claim, option } => {
                write!(f, "{claim}: no launchable offering of {option} fits the claim's requirements")
            }
            Breach::OptionMispriced { claim, option, said, cheapest } => {
                write!(
                    f,
                    "{claim}: {option} is said to cost {said}; its cheapest offering costs {cheapest}, or lies elsewhere"
                )
            }
            Breach::Overfull { on, option, resource, needs, has } => {
                write!(f, "{on}{}: {resource} {needs} needed, {has} there", as_type(option))
            }
            Breach::RequestsTooLow { claim, resource, says, needs } => {
                write!(f, "{claim} requests {resource} {says}, its pods need {needs}")
            }
            Breach::TaintNotTolerated { on, pod, taint } => {
                write!(f, "{pod} does not tolerate {taint} of {on}")
            }
            Breach::RequirementsNotMet { on, option, pod } => {
                write!(f, "{pod} may not run on {on}{}", as_type(option))
            }
            Breach::VolumeOutOfReach { on, option, pod } => {
                write!(f, "a volume of {pod} may be out of reach of {on}{}", as_type(option))
            }
            Breach::HostPortTwice { on, pod, port } => {
                write!(f, "{pod} wants host port {port} of {on}, which is taken")
            }
            Breach::VolumeLimit { on, driver, needs, limit } => {
                write!(f, "{on}: {needs} volumes of {driver}, at most {limit} can be attached")
            }
            Breach::LimitCrossed { pool, resource, limit, total } => {
                write!(f, "nodepool {pool}: {resource} could reach {total}, the limit is {limit}")
            }
            Breach::MinValues { claim, key, needs, has } => {
                write!(f, "{claim}: {has} values of {key}, at least {needs} are asked for")
            }
            Breach::ReservationOversold { reservation, holders, capacity } => {
                write!(f, "reservation {reservation} is held by {holders} claims and has room for {capacity}")
            }
            Breach::ReservationNotItsOwn { claim, reservation } => {
                write!(f, "{claim} holds reservation {reservation}, which no option of it can use")
            }
            Breach::AntiAffinity { pod, key, domain, kind } => {
                write!(f, "{pod} meets a pod it must not, by {kind}, in {key}={domain}")
            }
            Breach::AffinityAlone { on, pod, key } => {
                write!(f, "{pod} on {on} is not sure to be near a pod it must be near, by {key}")
            }
            Breach::SpreadTooWide { pod, key, domain, count, least, max_skew } => {
                write!(
                    f,
                    "{key}={domain} would have {count} of the pods that {pod} counts, the least is {least}, the skew may be {max_skew}"
                )
            }
            Breach::DomainUnknown { on, pod, key, kind } => {
                write!(f, "{on} has no single {key}, which {kind} of {pod} must know")
            }
        }
    }
}
