//! The six kinds, as a value and as a trait.

use std::sync::LazyLock;

use k8s_openapi::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::objects::{CapacityBuffer, Ec2NodeClass, KwokNodeClass, NodeClaim, NodeOverlay, NodePool};
use crate::older::v1beta1;
use crate::problem::Problem;
use crate::schema::{self, Schema};

/// A kind of object that we define.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    NodePool,
    NodeClaim,
    NodeOverlay,
    CapacityBuffer,
    Ec2NodeClass,
    KwokNodeClass,
}

struct Names {
    group: &'static str,
    version: &'static str,
    name: &'static str,
    plural: &'static str,
}

impl Kind {
    pub const ALL: &'static [Kind] = &[
        Self::NodePool,
        Self::NodeClaim,
        Self::NodeOverlay,
        Self::CapacityBuffer,
        Self::Ec2NodeClass,
        Self::KwokNodeClass,
    ];

    pub fn group(self) -> &'static str {
        self.names().group
    }

    /// The current version, in which objects are stored.
    pub fn version(self) -> &'static str {
        self.names().version
    }

    /// Every version that is served, the current one first; the others are those of [`crate::older`].
    pub fn versions(self) -> &'static [&'static str] {
        match self {
            Self::NodePool | Self::NodeClaim | Self::Ec2NodeClass => &["v1", v1beta1::VERSION],
            Self::NodeOverlay | Self::KwokNodeClass => &["v1alpha1"],
            // A beta of its own group, and its current version.
            Self::CapacityBuffer => &["v1beta1"],
        }
    }

    /// `NodePool`, as written in `kind:`.
    pub fn name(self) -> &'static str {
        self.names().name
    }

    pub fn plural(self) -> &'static str {
        self.names().plural
    }

    /// `karpenter.sh/v1`, as written in `apiVersion:`.
    pub fn api_version(self) -> String {
        format!("{}/{}", self.group(), self.version())
    }

    pub fn is_namespaced(self) -> bool {
        self == Self::CapacityBuffer
    }

    pub fn short_names(self) -> &'static [&'static str] {
        match self {
            Self::NodePool | Self::NodeClaim => &[],
            Self::NodeOverlay => &["overlays"],
            Self::CapacityBuffer => &["cb"],
            Self::Ec2NodeClass => &["ec2nc", "ec2ncs"],
            Self::KwokNodeClass => &["kwoknc", "kwokncs"],
        }
    }

    pub fn category(self) -> &'static str {
        if self == Self::CapacityBuffer { "autoscaling" } else { "karpenter" }
    }

    /// The kind that a user's word names: kind, singular, plural or short name, in any case.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = word.to_lowercase();
        let named = |kind: &&Self| {
            word == kind.name().to_lowercase()
                || word == kind.plural()
                || word == format!("{}.{}", kind.plural(), kind.group())
                || kind.short_names().contains(&word.as_str())
        };
        Self::ALL.iter().find(named).copied()
    }

    /// The kind of an object by its `apiVersion` and `kind`; `None` for everything that is not ours or not of the
    /// current version. [`crate::older::to_current`] makes the current one out of an older one.
    pub fn of(object: &Value) -> Option<Self> {
        let (api_version, name) = (object.get("apiVersion")?.as_str()?, object.get("kind")?.as_str()?);
        Self::ALL.iter().copied().find(|kind| kind.name() == name && kind.api_version() == api_version)
    }

    /// Fills in what the API server would have filled in.
    pub fn apply_defaults(self, object: &mut Value) {
        schema::fill_defaults(self.schema(), object);
    }

    /// Everything an API server would refuse `object` for, defaults being filled in. `old` is the object before an
    /// update.
    pub fn check(self, object: &Value, old: Option<&Value>) -> Vec<Problem> {
        schema::check(self.schema(), object, old)
    }

    /// Fields that the schema does not have; an API server drops them.
    pub fn unknown_fields(self, object: &Value) -> Vec<String> {
        schema::unknown_fields(self.schema(), object)
    }

    pub(crate) fn schema(self) -> &'static Schema {
        static SCHEMAS: LazyLock<[Schema; 6]> = LazyLock::new(|| {
            [
                schema::node_pool::schema(),
                schema::node_claim::schema(),
                schema::node_overlay::schema(),
                schema::capacity_buffer::schema(),
                schema::ec2_node_class::schema(),
                schema::kwok_node_class::schema(),
            ]
        });
        &SCHEMAS[self as usize]
    }

    fn names(self) -> Names {
        fn of<K: Resource>() -> Names {
            Names { group: K::GROUP, version: K::VERSION, name: K::KIND, plural: K::URL_PATH_SEGMENT }
        }
        match self {
            Self::NodePool => of::<NodePool>(),
            Self::NodeClaim => of::<NodeClaim>(),
            Self::NodeOverlay => of::<NodeOverlay>(),
            Self::CapacityBuffer => of::<CapacityBuffer>(),
            Self::Ec2NodeClass => of::<Ec2NodeClass>(),
            Self::KwokNodeClass => of::<KwokNodeClass>(),
        }
    }
}

/// An object of one of our kinds.
pub trait CustomObject: Resource + Serialize + DeserializeOwned {
    const OBJECT_KIND: Kind;

    /// Fills in what the API server would have filled in, for objects that never met one.
    fn apply_defaults(&mut self) {
        let mut value = to_value(self);
        Self::OBJECT_KIND.apply_defaults(&mut value);
        *self = serde_json::from_value(value).expect("defaults have the types of their fields");
    }

    /// Everything an API server would refuse this object for.
    fn check(&self) -> Vec<Problem> {
        Self::OBJECT_KIND.check(&to_value(self), None)
    }

    /// Everything an API server would refuse the change from `old` for.
    fn check_change(&self, old: &Self) -> Vec<Problem> {
        Self::OBJECT_KIND.check(&to_value(self), Some(&to_value(old)))
    }
}

fn to_value<T: Serialize>(object: &T) -> Value {
    serde_json::to_value(object).expect("our objects have string keys and finite numbers")
}

macro_rules! custom_objects {
    ($($Type:ident),+) => { $( impl CustomObject for $Type { const OBJECT_KIND: Kind = Kind::$Type; } )+ };
}

custom_objects!(NodePool, NodeClaim, NodeOverlay, CapacityBuffer, Ec2NodeClass, KwokNodeClass);
