//! Objects of older generations: read, checked and converted or translated. Converted is what has the same name in v1, one object at a
//! time; translated is what has not.
//!
//! ```text
//!              v1beta1 ── to_v1 ──▶ v1          node_pool, node_claim, ec2_node_class: one function per direction,
//!                      ◀─ to_v1beta1            lossy, over plain JSON
//!                           │
//!                         lost                  what the way back would not give, kept in an annotation
//!
//!  v1alpha5, v1alpha1 ── translate ──▶ v1         Provisioner, AWSNodeTemplate; one way
//!                                                translated: their CRDs    marks: what is written on the result
//! ```
//!
//! **How nothing is lost.** [`convert`] takes the lossy step, takes it back at once, and compares with what it was given.
//! Each difference goes into an annotation as "where the way back says this, it was that". The way back applies an
//! entry only where it still says "this": whatever was edited in the meantime wins, and the annotation speaks only of
//! what its side cannot say. No field has to be thought of for that; the functions per kind only decide what is *meant*.
//!
//! What is not here: anything that needs a second object (settings of the kubelet into a NodeClass, a claim's expiry from
//! its pool), the webhook, the API server. Caveat: what an annotation restores has not met the schema of the version it
//! is restored to. Who may write the object may write that, too, and the operator checks what it uses.

mod annotations;
mod compute;
mod conditions;
mod ec2_node_class;
mod kubelet;
mod lost;
pub mod marks;
mod node_claim;
mod node_class_ref;
mod node_pool;
#[cfg(test)]
mod tests;
mod translate;
mod translated;
mod v1alpha1;
mod v1alpha5;
pub mod v1beta1;

use serde_json::Value;

use crate::kind::Kind;
use crate::labels::NODE_CLASS_REFERENCE;
use crate::problem::brief;
use crate::schema::{self, Schema};
use lost::{Lost, View};

pub use translate::{
    Refusal, Translation, TranslationSettings, Warning, class_name_of_template, fit_kubelet, template_name, translate,
    translate_alias, translate_template,
};
pub use translated::{TranslatedKind, older_crds, older_crds_yaml};

/// On an object of v1: what only v1beta1 can say, as JSON. Nothing but [`convert`] reads or writes it.
pub const LOST_OF_V1BETA1: &str = "compatibility.karpenter.sh/kerf-v1beta1";

/// On an object of v1beta1: what only v1 can say, as JSON. Nothing but [`convert`] reads or writes it.
pub const LOST_OF_V1: &str = "compatibility.karpenter.sh/kerf-v1";

/// `"true"` on a NodePool: a node that has expired gets its replacement before it is drained, as it was before v1.
/// Conversion from v1beta1 sets it, and so does the translation of a Provisioner; any user may.
pub const EXPIRY_REPLACES_FIRST: &str = "karpenter.sh/expiry-replaces-first";

/// `"true"` on a NodeClaim of v1 that came without an `expireAfter`, for v1beta1 has none: it says `Never` and waits to
/// be given that of its pool.
///
/// A claim's spec never changes through v1. Who gives it an expiry edits its v1 form (`expireAfter` set, this mark
/// taken off), converts that to v1beta1 and writes the result there.
pub const EXPIRY_OF_POOL: &str = "compatibility.karpenter.sh/kerf-expiry-of-pool";

/// On an EC2NodeClass of v1 that was of the family Ubuntu: what was put in place of it, separated by commas.
pub const UBUNTU: &str = "compatibility.karpenter.k8s.aws/v1beta1-ubuntu";

/// A word of [`UBUNTU`]: the class named no image, v1 knows none, and nothing can be launched before somebody does.
pub const UBUNTU_INCOMPATIBLE: &str = "incompatible";

/// On an EC2NodeClass of v1beta1: the version that the alias of its family is pinned to in v1.
pub const ALIAS_VERSION: &str = "compatibility.karpenter.k8s.aws/v1-alias-version";

/// The group under which documents write EC2NodeClass of v1beta1. It never shipped; it means `karpenter.k8s.aws`.
pub const UNSHIPPED_AWS_GROUP: &str = "compute.k8s.aws";

/// Why an object was not converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    #[error("found {found} where an object with apiVersion and kind would do")]
    NotAnObject { found: String },
    #[error("found kind {kind} of {api_version}; {} of karpenter.sh or karpenter.k8s.aws would do", known_kinds())]
    UnknownKind { api_version: String, kind: String },
    #[error("found version {version} of {}; {} would do", .kind.name(), served(*.kind))]
    UnknownVersion { kind: Kind, version: String },
    #[error("found {found} at {path}; an object would do")]
    Malformed { path: &'static str, found: String },
}

/// `object` as `to_api_version` has it.
///
/// Flow: drop and fill in what the API server of the object's own version would; take the step; restore what its
/// annotation keeps for the other side; keep in an annotation what the way back would lose.
///
/// Guarantees: any JSON yields an object or an error. An object that was defaulted and has no field that its schema lacks
/// comes back as it was when it is converted there and back; one that is asked for its own version comes back
/// untouched. Of `metadata` nothing but annotations of compatibility changes, and
/// [`EXPIRY_REPLACES_FIRST`]. Assumptions: none. Caveats: what is wrong with the object is still wrong with the result.
pub fn convert(object: &Value, to_api_version: &str) -> Result<Value, ConversionError> {
    let (kind, from) = version_of(object)?;
    let to = target(kind, to_api_version)?;
    if from == to {
        let mut same = object.clone();
        same["apiVersion"] = to_api_version.into();
        return Ok(same);
    }
    check_metadata(object)?;
    let mut source = object.clone();
    let kept = annotations::take(&mut source, to.lost());
    annotations::take(&mut source, from.lost());
    from.complete(kind, &mut source);

    let mut result = from.step(kind, &source, kept.is_some());
    if let Some(kept) = kept {
        let kept = Lost::read(&kept);
        View::of(&mut result).restore(&kept);
        if (kind, to) == (Kind::NodePool, Version::V1beta1) {
            node_pool::nest_limits(&mut result, kept.value_at(node_pool::LIMITS));
        }
        to.complete(kind, &mut result);
    }
    let mut echo = to.step(kind, &result, true);
    let lost = Lost::between(&View::of(&mut echo), &View::of(&mut source), from.units(kind));
    if let Some(text) = lost.text() {
        annotations::put(&mut result, from.lost(), text);
    }
    Ok(result)
}

/// The v1 form of an object of an older generation, and `None` for every other object.
pub fn to_current(object: &Value) -> Option<Result<Value, ConversionError>> {
    let (kind, Version::V1beta1) = version_of(object).ok()? else { return None };
    Some(convert(object, &kind.api_version()))
}

/// Takes off an object of v1 what serves only to read it in v1beta1 again, for who has left that behind.
pub fn forget_v1beta1(object: &mut Value) {
    annotations::take(object, LOST_OF_V1BETA1);
    annotations::take(object, NODE_CLASS_REFERENCE);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V1beta1,
}

impl Version {
    /// The annotation for what only this version can say, found on the objects of the other.
    fn lost(self) -> &'static str {
        match self {
            Self::V1 => LOST_OF_V1,
            Self::V1beta1 => LOST_OF_V1BETA1,
        }
    }

    fn schema(self, kind: Kind) -> &'static Schema {
        match self {
            Self::V1 => kind.schema(),
            Self::V1beta1 => v1beta1::schema(kind).expect("target and version_of name only versions that the kind has"),
        }
    }

    fn other(self) -> Self {
        match self {
            Self::V1 => Self::V1beta1,
            Self::V1beta1 => Self::V1,
        }
    }

    /// What the API server does to an object that it reads.
    fn complete(self, kind: Kind, object: &mut Value) {
        schema::prune(self.schema(kind), object);
        schema::fill_defaults(self.schema(kind), object);
    }

    /// The object in the other version, as far as that can say it. `has_lost` tells whether the object is one of ours
    /// and has been through here before.
    fn step(self, kind: Kind, object: &Value, has_lost: bool) -> Value {
        let mut object = object.clone();
        match (self, kind) {
            (Self::V1, Kind::NodePool) => node_pool::to_v1beta1(&mut object),
            (Self::V1beta1, Kind::NodePool) => node_pool::to_v1(&mut object),
            (Self::V1, Kind::NodeClaim) => node_claim::to_v1beta1(&mut object),
            (Self::V1beta1, Kind::NodeClaim) => node_claim::to_v1(&mut object),
            (Self::V1, Kind::Ec2NodeClass) => ec2_node_class::to_v1beta1(&mut object),
            (Self::V1beta1, Kind::Ec2NodeClass) => ec2_node_class::to_v1(&mut object, has_lost),
            (_, Kind::NodeOverlay | Kind::CapacityBuffer | Kind::KwokNodeClass) => {}
        }
        let version = match self.other() {
            Self::V1 => kind.version(),
            Self::V1beta1 => v1beta1::VERSION,
        };
        object["apiVersion"] = format!("{}/{version}", kind.group()).into();
        self.other().complete(kind, &mut object);
        object
    }

    /// Fields of this version that are restored together or not at all, for one would be wrong without the other.
    fn units(self, kind: Kind) -> &'static [&'static [&'static str]] {
        match (self, kind) {
            (Self::V1, Kind::NodePool) => &[&["/spec/template/spec/nodeClassRef"]],
            (Self::V1beta1, Kind::NodePool) => &[&["/spec/template/spec/nodeClassRef"], &[node_pool::LIMITS]],
            (_, Kind::NodeClaim) => &[&["/spec/nodeClassRef"]],
            (_, Kind::Ec2NodeClass) => &[&["/spec/amiFamily", "/spec/amiSelectorTerms"]],
            (_, Kind::NodeOverlay | Kind::CapacityBuffer | Kind::KwokNodeClass) => &[],
        }
    }
}

fn version_of(object: &Value) -> Result<(Kind, Version), ConversionError> {
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    let (Some(api_version), Some(name)) = (text("apiVersion"), text("kind")) else {
        return Err(ConversionError::NotAnObject { found: brief(object) });
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if (group, version, name) == (UNSHIPPED_AWS_GROUP, v1beta1::VERSION, Kind::Ec2NodeClass.name()) {
        return Ok((Kind::Ec2NodeClass, Version::V1beta1));
    }
    let kind = Kind::ALL.iter().copied().find(|kind| kind.group() == group && kind.name() == name);
    let kind = kind
        .ok_or_else(|| ConversionError::UnknownKind { api_version: api_version.to_owned(), kind: name.to_owned() })?;
    Ok((kind, version_named(kind, version, api_version)?))
}

fn target(kind: Kind, api_version: &str) -> Result<Version, ConversionError> {
    match api_version.split_once('/') {
        Some((group, version)) if group == kind.group() => version_named(kind, version, api_version),
        _ => Err(ConversionError::UnknownVersion { kind, version: api_version.to_owned() }),
    }
}

fn version_named(kind: Kind, version: &str, api_version: &str) -> Result<Version, ConversionError> {
    if version == kind.version() {
        Ok(Version::V1)
    } else if kind.versions().contains(&version) {
        Ok(Version::V1beta1)
    } else {
        Err(ConversionError::UnknownVersion { kind, version: api_version.to_owned() })
    }
}

/// Without a place for annotations nothing can be kept, and an API server would refuse such an object anyway.
fn check_metadata(object: &Value) -> Result<(), ConversionError> {
    for path in ["/metadata", "/metadata/annotations"] {
        if let Some(found) = object.pointer(path).filter(|found| !found.is_object() && !found.is_null()) {
            return Err(ConversionError::Malformed { path, found: brief(found) });
        }
    }
    Ok(())
}

fn known_kinds() -> String {
    v1beta1::KINDS.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
}

fn served(kind: Kind) -> String {
    let versions = kind.versions().iter().map(|version| format!("{}/{version}", kind.group()));
    versions.collect::<Vec<_>>().join(" or ")
}
