//! Instance profiles and roles that are not there.
//!
//! A role and a profile are different things with, often, the same name; who makes a role in the console gets both, who makes it
//! otherwise does not. That is the mistake behind most of these failures.

use crate::wire::{Aws, Failure, InstanceProfile};

/// What to say when EC2 refuses the name of an instance profile.
///
/// - Flow: asks IAM, where it may be read, which profiles hold a role of that name.
/// - `field` is where the name came from: `EC2NodeClass default: spec.instanceProfile`.
/// - `iam` is whom to ask; None in an isolated VPC, which has no way to IAM.
pub async fn invalid_profile(iam: Option<&dyn Aws>, failure: &Failure, field: &str, name: &str) -> String {
    let asked = match iam {
        Some(wire) => wire.list_instance_profiles("/".to_owned()).await.ok(),
        None => None,
    };
    let holds = |profile: &InstanceProfile| profile.roles.iter().any(|role| role == name);
    let holders: Vec<String> = asked.into_iter().flatten().filter(holds).map(|profile| profile.name).collect();
    let instead = match holders.as_slice() {
        [] => String::new(),
        [one] => format!(" The role {name:?} is held by the instance profile {one:?}: name that one."),
        many => format!(" The role {name:?} is held by the instance profiles {}: name one of them.", many.join(", ")),
    };
    format!(
        "{field}: there is no instance profile {name:?} (it is not the name of a role).{instead} To make one of that name: aws iam \
         create-instance-profile --instance-profile-name {name} && aws iam add-role-to-instance-profile --instance-profile-name \
         {name} --role-name {name} ({failure})"
    )
}

/// A node role that IAM does not know, by its name; None for any other failure.
pub fn missing_role(failure: &Failure, field: &str, role: &str) -> Option<String> {
    let is_role = failure.code == "NoSuchEntity" && failure.message.to_lowercase().contains("role");
    is_role.then(|| {
        format!(
            "{field}: there is no role {role:?}; make it with the policies that nodes need (AmazonEKSWorkerNodePolicy, \
             AmazonEKS_CNI_Policy, AmazonEC2ContainerRegistryPullOnly, AmazonSSMManagedInstanceCore), or correct the name ({failure})"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::scripted::Scripted;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("a scripted answer is there at once"),
        }
    }

    fn refusal() -> Failure {
        let message =
            "Value (NodeRole) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name";
        Failure::new("ec2:CreateFleet", "InvalidParameterValue", message)
    }

    const FIELD: &str = "EC2NodeClass default: spec.instanceProfile";

    #[test]
    fn d3_34_an_invalid_profile_names_the_field_and_the_profile_that_holds_the_role_of_that_name() {
        let aws = Scripted::default();
        let profile = |name: &str, role: &str| InstanceProfile {
            name: name.to_owned(),
            path: "/".to_owned(),
            roles: vec![role.to_owned()],
            ..InstanceProfile::default()
        };
        aws.account().profiles.insert("eks-1a2b".to_owned(), profile("eks-1a2b", "NodeRole"));
        aws.account().profiles.insert("other".to_owned(), profile("other", "OtherRole"));
        let said = now(invalid_profile(Some(&aws), &refusal(), FIELD, "NodeRole"));
        assert!(
            said.starts_with("EC2NodeClass default: spec.instanceProfile: there is no instance profile \"NodeRole\""),
            "{said}"
        );
        assert!(said.contains("held by the instance profile \"eks-1a2b\""), "{said}");
        assert!(said.contains("create-instance-profile --instance-profile-name NodeRole"), "{said}");
        assert!(said.contains("ec2:CreateFleet"), "{said}");
    }

    #[test]
    fn d3_34_where_iam_may_not_be_read_the_commands_remain() {
        let aws = Scripted::default();
        aws.fail_always(Failure::new("iam:ListInstanceProfiles", "AccessDenied", "no"));
        let said = now(invalid_profile(Some(&aws), &refusal(), FIELD, "NodeRole"));
        assert!(!said.contains("held by"), "{said}");
        assert!(said.contains("add-role-to-instance-profile"), "{said}");
    }

    #[test]
    fn a_role_that_does_not_exist_is_named_whatever_its_case() {
        let gone = Failure::new("iam:AddRoleToInstanceProfile", "NoSuchEntity", "Role NodeRole not found");
        let said = missing_role(&gone, "EC2NodeClass default: spec.role", "NodeRole").unwrap();
        assert!(said.starts_with("EC2NodeClass default: spec.role: there is no role \"NodeRole\""), "{said}");
        let other = Failure::new("iam:AddRoleToInstanceProfile", "NoSuchEntity", "Instance Profile x cannot be found.");
        assert_eq!(missing_role(&other, "spec.role", "NodeRole"), None);
    }
}
