//! The schema of `compute.k8s.aws/v1beta1` EC2NodeClass: a group that some guides write and that no release ever served.
//!
//! What it holds is an EC2NodeClass of `karpenter.k8s.aws/v1beta1`.

use super::v1alpha5::conditions;
use crate::schema::{Schema, object, open_object};

pub(super) fn node_class() -> Schema {
    object([
        ("spec", open_object().about("The spec of an EC2NodeClass of karpenter.k8s.aws/v1beta1.")),
        ("status", object([("conditions", conditions())]).about("What became of it.")),
    ])
    .about(
        "An EC2NodeClass under a group that guides mention by mistake. It becomes the EC2NodeClass of karpenter.k8s.aws with the same name.",
    )
}
