//! What is done of our own will, whether it may begin now, and why not.
//!
//! ```text
//! emptiness, expiration, collection, … (Voluntary) ─▶ Desk::may_begin ─▶ yes, or Standstill
//!                                                              ▲
//!   stale kinds, unreadable objects (World), a setting, brake ─┘
//! ```
//!
//! Everything that takes a node away though nobody asked for it asks here before it starts. What a person asked for (a deleted claim or
//! node, its drain) and what the cloud takes back ask nobody. A standstill begins and ends by itself, with what it stands for; its end is
//! always a wake, so that nobody needs to ask in between.

pub mod brake;
mod check;
mod told;

pub use brake::{Brake, Looks};
pub use check::Check;
pub use told::Tell;
pub(crate) use told::about;

use crate::options::Options;
use crate::world::World;
use kerf_mirror::Kind;
use std::collections::BTreeMap;
use std::fmt;

macro_rules! voluntary {
    ($($(#[doc = $doc:literal])? $variant:ident, $words:literal, $is_braked:literal, [$($kind:ident),*];)*) => {
        /// What takes nodes away of our own will.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Voluntary {
            $($(#[doc = $doc])? $variant,)*
        }

        impl Voluntary {
            pub const ALL: [Self; [$(Self::$variant),*].len()] = [$(Self::$variant),*];

            fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $words,)* }
            }

            /// Kinds of which one object that cannot be read holds this back: what is not seen could make a node look empty, gone or late.
            fn must_read(self) -> &'static [Kind] {
                match self { $(Self::$variant => &[$(Kind::$kind),*],)* }
            }

            /// Whether the brake holds it: not what follows from a number that somebody set, and repairs have a limit of their own.
            fn is_braked(self) -> bool {
                match self { $(Self::$variant => $is_braked,)* }
            }
        }
    };
}

// Each: how it is called, whether the brake holds it, and what it must be able to read.
voluntary! {
    Emptiness, "emptiness", true, [Pod];
    Drift, "drift", true, [Pod];
    Consolidation, "consolidation", true, [Pod];
    Expiration, "expiration", true, [];
    /// Claims without a machine, machines without a claim, and what else nobody seems to use.
    Collection, "garbage collection", true, [NodeClaim, Node, NodePool, NodeClass];
    /// Claims whose machine did not come, or did not join.
    Liveness, "liveness", true, [Node];
    StaticDeprovisioning, "static deprovisioning", false, [Pod];
    Repair, "repair", false, [Pod, Node];
}

impl fmt::Display for Voluntary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why nothing voluntary begins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standstill {
    /// The operator's setting.
    Paused,
    /// Nothing was heard of these kinds for too long.
    Stale { kinds: Vec<Kind> },
    /// Objects that cannot be read: how many, and the first of them.
    Unreadable { n_objects: usize, first: String, why: String },
    /// Too many nodes look empty, gone, expired or unclaimed.
    Brake(brake::Pulled),
}

impl Standstill {
    /// The `reason` label of metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Stale { .. } => "stale",
            Self::Unreadable { .. } => "unreadable",
            Self::Brake(_) => "brake",
        }
    }
}

impl fmt::Display for Standstill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused => f.write_str("the operator was started with --pause-disruption"),
            Self::Stale { kinds } => {
                let kinds: Vec<String> = kinds.iter().map(ToString::to_string).collect();
                write!(f, "the API server has said nothing of {} for too long", kinds.join(", "))
            }
            Self::Unreadable { n_objects: 1, first, why } => write!(f, "{first} cannot be read: {why}"),
            Self::Unreadable { n_objects, first, why } => {
                write!(f, "{n_objects} objects cannot be read, of them {first}: {why}")
            }
            Self::Brake(pulled) => pulled.fmt(f),
        }
    }
}

/// Whether something voluntary may begin now.
pub(crate) fn may_begin(what: Voluntary, world: &World, options: &Options, brake: &Brake) -> Result<(), Standstill> {
    may_look(what, world, options)?;
    match brake.pulled().filter(|_| what.is_braked()) {
        Some(pulled) => Err(Standstill::Brake(pulled.clone())),
        None => Ok(()),
    }
}

/// Whether what is seen may be gone by at all.
pub(crate) fn may_look(what: Voluntary, world: &World, options: &Options) -> Result<(), Standstill> {
    if options.pauses_disruption {
        return Err(Standstill::Paused);
    }
    if !world.stale().is_empty() {
        return Err(Standstill::Stale { kinds: world.stale().iter().copied().collect() });
    }
    let mut unreadable = world.unreadable().iter().filter(|(key, _)| what.must_read().contains(&key.kind));
    match unreadable.next() {
        None => Ok(()),
        Some((first, why)) => Err(Standstill::Unreadable {
            n_objects: 1 + unreadable.count(),
            first: first.to_string(),
            why: why.clone(),
        }),
    }
}

/// What stands still now, and why.
pub(crate) fn all(world: &World, options: &Options, brake: &Brake) -> BTreeMap<Voluntary, Standstill> {
    let why = |what| may_begin(what, world, options, brake).err();
    Voluntary::ALL.into_iter().filter_map(|what| why(what).map(|why| (what, why))).collect()
}

/// What stands still for each reason, in words.
pub(crate) fn by_reason(all: &BTreeMap<Voluntary, Standstill>) -> BTreeMap<Standstill, String> {
    let mut by_reason: BTreeMap<Standstill, Vec<String>> = BTreeMap::new();
    for (what, why) in all {
        by_reason.entry(why.clone()).or_default().push(what.to_string());
    }
    by_reason.into_iter().map(|(why, what)| (why, what.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_mirror::{Mirror, MirrorSettings, ObjectKey, View};

    fn world() -> World {
        World::new(Mirror::new(MirrorSettings::new(View::Live)), [])
    }

    fn key(kind: Kind, name: &str) -> ObjectKey {
        ObjectKey { kind, class_kind: None, namespace: "".into(), name: name.into() }
    }

    fn held(world: &World, options: &Options) -> Vec<Voluntary> {
        all(world, options, &Brake::default()).into_keys().collect()
    }

    #[test]
    fn a_stale_kind_or_the_pause_holds_all_of_it_until_it_is_heard_of_again() {
        let mut options = Options::new(MirrorSettings::new(View::Live));
        let mut world = world();
        assert!(held(&world, &options).is_empty());
        assert!(world.set_stale(Kind::Pod, true) && !world.set_stale(Kind::Pod, true), "told once");
        assert_eq!(held(&world, &options), Voluntary::ALL);
        let why = may_begin(Voluntary::Emptiness, &world, &options, &Brake::default()).unwrap_err();
        assert_eq!(why.to_string(), "the API server has said nothing of Pod for too long");
        world.set_stale(Kind::Pod, false);
        assert!(held(&world, &options).is_empty());
        options.pauses_disruption = true;
        assert_eq!(held(&world, &options), Voluntary::ALL);
    }

    #[test]
    fn what_cannot_be_read_holds_back_what_depends_on_it() {
        use Voluntary::{Collection, Consolidation, Drift, Emptiness, Liveness, Repair, StaticDeprovisioning};
        let options = Options::new(MirrorSettings::new(View::Live));
        for (kind, expected) in [
            (Kind::NodeClaim, vec![Collection]),
            (Kind::NodePool, vec![Collection]),
            (Kind::NodeClass, vec![Collection]),
            (Kind::Node, vec![Collection, Liveness, Repair]),
            (Kind::Pod, vec![Emptiness, Drift, Consolidation, StaticDeprovisioning, Repair]),
            (Kind::StorageClass, vec![]),
        ] {
            let mut world = world();
            world.cannot_read(key(kind, "a"), "spec: odd".to_owned());
            assert_eq!(held(&world, &options), expected, "{kind}");
            world.forget(&key(kind, "a"), None);
            assert!(held(&world, &options).is_empty(), "{kind}: it is gone");
        }
        let mut brake = Brake::default();
        let claims: Vec<kerf_model::Text> = (0..21).map(|n| n.to_string().into()).collect();
        assert!(brake.note(Looks::Gone, &claims, (21, 20), kerf_model::UnixMillis(0)));
        let held: Vec<Voluntary> = all(&world(), &options, &brake).into_keys().collect();
        assert_eq!(held, [Emptiness, Drift, Consolidation, Voluntary::Expiration, Collection, Liveness]);
        let mut world = world();
        world.cannot_read(key(Kind::NodeClaim, "b"), "spec: odd".to_owned());
        world.cannot_read(key(Kind::NodeClaim, "a"), "status: odd".to_owned());
        let why = may_begin(Collection, &world, &options, &Brake::default()).unwrap_err();
        assert_eq!(why.to_string(), "2 objects cannot be read, of them NodeClaim a: status: odd");
    }
}
