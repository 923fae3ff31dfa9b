//! Why a launch failed, in one word and a sentence.

use kerf_model::Text;

/// Errors that mean: not here, not now. Another offering may do.
pub const UNFULFILLABLE: [&str; 8] = [
    "InsufficientInstanceCapacity",
    "MaxSpotInstanceCountExceeded",
    "VcpuLimitExceeded",
    "UnfulfillableCapacity",
    "Unsupported",
    "InsufficientFreeAddressesInSubnet",
    "MaxFleetCountExceeded",
    "ReservationCapacityExceeded",
];

const SPOT_ROLE: &str = "ServiceLinkedRoleCreationNotPermitted";

pub fn is_unfulfillable(code: &str) -> bool {
    UNFULFILLABLE.contains(&code)
}

/// Spot needs a role that AWS keeps for itself, and nobody has made it.
pub fn is_spot_role_missing(code: &str) -> bool {
    code.contains(SPOT_ROLE)
}

/// The reason for the claim's `Launched` condition, and a message with the fix. The first row that matches wins, so the order
/// matters: a missing service-linked role, say, is an authorization failure too.
pub fn launch_failure(code: &str, message: &str) -> (Text, Text) {
    let said = match code.is_empty() {
        true => message.to_owned(),
        false => format!("{code}: {message}"),
    };
    let row = ROWS.iter().find(|row| row.needles.iter().all(|needle| said.contains(needle)));
    match row {
        Some(row) => (row.reason.into(), format!("{}: {said}", row.says).into()),
        None => ("LaunchFailed".into(), said.into()),
    }
}

struct Row {
    /// All of them stand in `code: message`.
    needles: &'static [&'static str],
    reason: &'static str,
    says: &'static str,
}

const fn row(needles: &'static [&'static str], reason: &'static str, says: &'static str) -> Row {
    Row { needles, reason, says }
}

const IMAGE_NOT_OURS: &str = "the account may not launch this image; share the image with the account, or select another in \
    spec.amiSelectorTerms";
const BOUNDARY: &str = "a permissions boundary of the operator's role does not allow the call; widen the boundary";
const SCP: &str =
    "a service control policy of the organization denies the call; ask who keeps the organization's policies";
const NOT_ALLOWED: &str = "the operator's role may not make this call; allow it in the role's policy";

const ROWS: &[Row] = &[
    row(
        &[SPOT_ROLE],
        "SpotSLRCreationFailed",
        "spot needs its service-linked role; run: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
    ),
    row(&["UnauthorizedOperation", "Not authorized for images"], "AMIAuthorizationFailure", IMAGE_NOT_OURS),
    row(&["AccessDenied", "Not authorized for images"], "AMIAuthorizationFailure", IMAGE_NOT_OURS),
    row(&["AuthFailure", "Not authorized for images"], "AMIAuthorizationFailure", IMAGE_NOT_OURS),
    row(&["UnauthorizedOperation", "permissions boundary"], "Unauthorized", BOUNDARY),
    row(&["AccessDenied", "permissions boundary"], "Unauthorized", BOUNDARY),
    row(&["AuthFailure", "permissions boundary"], "Unauthorized", BOUNDARY),
    row(&["UnauthorizedOperation", "service control policy"], "Unauthorized", SCP),
    row(&["AccessDenied", "service control policy"], "Unauthorized", SCP),
    row(&["AuthFailure", "service control policy"], "Unauthorized", SCP),
    row(&["UnauthorizedOperation"], "Unauthorized", NOT_ALLOWED),
    row(&["AccessDenied"], "Unauthorized", NOT_ALLOWED),
    row(&["AuthFailure"], "Unauthorized", NOT_ALLOWED),
    row(
        &["InvalidParameter", "belong to different networks"],
        "SecurityGroupSubnetVPCMismatch",
        "security groups and subnets are of different VPCs; narrow spec.securityGroupSelectorTerms or spec.subnetSelectorTerms",
    ),
    row(
        &["iamInstanceProfile.name is invalid"],
        "InstanceProfileNameInvalid",
        "there is no such instance profile; set spec.instanceProfile to one that exists, or spec.role to let one be made",
    ),
    row(
        &["InvalidLaunchTemplateId.NotFound"],
        "LaunchTemplateNotFound",
        "a launch template was deleted by somebody else; it is made again with the next try",
    ),
    row(
        &["User data is limited to"],
        "UserDataSizeLimitExceeded",
        "the rendered user data is larger than 16 KiB; shorten spec.userData",
    ),
    row(
        &["InvalidAMIID.Malformed"],
        "InvalidAMIID",
        "the id of an image is malformed; correct spec.amiSelectorTerms[].id or the value of the SSM parameter",
    ),
    row(
        &["InvalidAMIID.NotFound"],
        "AMINotFound",
        "the image is gone; correct spec.amiSelectorTerms, or wait until it is resolved again",
    ),
    row(&["RequestLimitExceeded"], "RequestLimitExceeded", "EC2 asks to slow down; it is tried again later"),
    row(&["InternalError"], "InternalError", "EC2 has a problem of its own; it is tried again later"),
    row(
        &["not eligible for Free Tier"],
        "FreeTierIneligible",
        "the account is on the free plan, which has few types; require one of those in the NodePool, or upgrade the plan",
    ),
    row(
        &["MaxFleetCountExceeded"],
        "FleetQuotaExceeded",
        "the account's quota of fleets is used up; ask AWS for a higher one",
    ),
    row(
        &["PendingVerification"],
        "AccountPendingVerification",
        "AWS is still verifying the account for this region; that may take hours",
    ),
    row(
        &["MaxSpotInstanceCountExceeded"],
        "SpotQuotaExceeded",
        "the account's quota of spot vCPUs is used up; ask AWS for a higher one, or allow on-demand",
    ),
    row(
        &["VcpuLimitExceeded"],
        "VCPULimitExceeded",
        "the account's quota of on-demand vCPUs for this family is used up; ask AWS for a higher one, or allow other families",
    ),
    row(
        &["InsufficientFreeAddressesInSubnet"],
        "InsufficientFreeAddressesInSubnet",
        "the subnet has too few free addresses; select a larger one in spec.subnetSelectorTerms, or add a CIDR",
    ),
    row(
        &["InsufficientInstanceCapacity"],
        "LaunchFailed",
        "EC2 has none of these types left in these zones; other offerings are tried, and allowing more types and zones helps",
    ),
    row(&["Unsupported"], "LaunchFailed", "the type is not sold in this zone in this form; other offerings are tried"),
    row(
        &["InvalidBlockDeviceMapping"],
        "LaunchFailed",
        "spec.blockDeviceMappings does not fit the image; name the image's own root device",
    ),
    row(
        &["InvalidSubnetID.NotFound"],
        "LaunchFailed",
        "a subnet is gone; correct spec.subnetSelectorTerms, or wait until they are resolved again",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_of_the_contract_is_found_in_its_order() {
        let cases = [
            ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "no", "SpotSLRCreationFailed"),
            ("UnauthorizedOperation", "You are not authorized", "Unauthorized"),
            ("AccessDenied", "no", "Unauthorized"),
            ("AuthFailure", "Not authorized for images: [ami-1]", "AMIAuthorizationFailure"),
            ("InvalidParameter", "sg and subnet belong to different networks.", "SecurityGroupSubnetVPCMismatch"),
            (
                "InvalidParameterValue",
                "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
                "InstanceProfileNameInvalid",
            ),
            ("InvalidLaunchTemplateId.NotFound", "gone", "LaunchTemplateNotFound"),
            ("InvalidUserData.Malformed", "User data is limited to 16384 bytes", "UserDataSizeLimitExceeded"),
            ("InvalidAMIID.Malformed", "ami-", "InvalidAMIID"),
            ("InvalidAMIID.NotFound", "ami-1", "AMINotFound"),
            ("RequestLimitExceeded", "slow", "RequestLimitExceeded"),
            ("InternalError", "oops", "InternalError"),
            ("InvalidParameterCombination", "The type is not eligible for Free Tier.", "FreeTierIneligible"),
            ("MaxFleetCountExceeded", "no", "FleetQuotaExceeded"),
            ("PendingVerification", "wait", "AccountPendingVerification"),
            ("MaxSpotInstanceCountExceeded", "no", "SpotQuotaExceeded"),
            ("VcpuLimitExceeded", "no", "VCPULimitExceeded"),
            ("InsufficientFreeAddressesInSubnet", "no", "InsufficientFreeAddressesInSubnet"),
            ("SomethingNew", "no", "LaunchFailed"),
        ];
        for (code, message, reason) in cases {
            assert_eq!(&*launch_failure(code, message).0, reason, "{code}: {message}");
        }
    }

    #[test]
    fn a_message_keeps_what_aws_said_and_adds_the_fix() {
        let (_, message) = launch_failure("VcpuLimitExceeded", "You have requested more vCPU capacity");
        assert!(message.starts_with("the account's quota of on-demand vCPUs"), "{message}");
        assert!(message.ends_with("VcpuLimitExceeded: You have requested more vCPU capacity"), "{message}");
        let (_, message) = launch_failure("UnauthorizedOperation", "with an explicit deny in a service control policy");
        assert!(message.contains("organization"), "{message}");
        let (_, message) = launch_failure("UnauthorizedOperation", "because no permissions boundary allows it");
        assert!(message.contains("widen the boundary"), "{message}");
    }

    #[test]
    fn only_errors_of_stock_and_quota_are_unfulfillable() {
        assert!(UNFULFILLABLE.iter().all(|code| is_unfulfillable(code)));
        assert!(!is_unfulfillable("UnauthorizedOperation"));
        assert!(is_spot_role_missing("AuthFailure.ServiceLinkedRoleCreationNotPermitted"));
    }
}
