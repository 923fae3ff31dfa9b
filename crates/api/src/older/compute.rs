//! The schema of `compute.k8s.aws/v1beta1` EC2NodeClass: a group that some guides write and that no release ever served. What they mean is
//! the kind of `karpenter.k8s.aws/v1beta1`.

use super::v1beta1;
use crate::kind::Kind;
use crate::schema::{Schema, object};

pub(super) fn node_class() -> Schema {
    let meant = v1beta1::schema(Kind::Ec2NodeClass).cloned();
    meant.unwrap_or_else(|| object([])).about(
        "An EC2NodeClass under a group that guides mention by mistake. It becomes the EC2NodeClass of karpenter.k8s.aws with the same name.",
    )
}
