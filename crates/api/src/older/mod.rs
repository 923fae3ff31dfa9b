//! The generations of the API before v1, and the way from them to it.
//!
//! ```text
//!  Provisioner, AWSNodeTemplate (v1alpha5, v1alpha1) ──▶ translate ──▶ NodePool, EC2NodeClass (v1)
//!  marks   what we write on translated objects          translated   the CRDs of what is translated
//! ```
//!
//! Converted is what has the same name in v1; translated is what has not.

mod compute;
pub mod marks;
mod translate;
mod translated;
mod v1alpha1;
mod v1alpha5;

pub use translate::{
    Refusal, Translation, TranslationSettings, Warning, class_name_of_template, template_name, translate,
    translate_template,
};
pub use translated::{TranslatedKind, older_crds, older_crds_yaml};

/// On a NodePool: a node that reaches its age is replaced before it goes, as it was before v1.
pub const EXPIRY_REPLACES_FIRST: &str = "kerf.dev/expiry-replaces-first";
