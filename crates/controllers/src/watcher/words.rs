//! What is wrong with a kind, and what to do about it.

use crate::dispatch::Trouble;
use crate::resource::Resource;

/// What to do about a kind that is not served.
pub const MISSING: &str =
    "its CustomResourceDefinition is not installed; run `kerf crds | kubectl apply --server-side -f -`";

pub(super) fn words(verb: &str, resource: &Resource, trouble: &Trouble) -> String {
    let Resource { group, plural, .. } = resource;
    let name = if group.is_empty() { (*plural).to_owned() } else { format!("{plural}.{group}") };
    match trouble {
        Trouble::Missing => format!("the API server does not serve {name}: {MISSING}"),
        Trouble::Forbidden { message } => format!(
            "may not {verb} {name} ({message}); add to the ClusterRole: \
             {{apiGroups: [{group:?}], resources: [{plural:?}], verbs: [\"list\", \"watch\"]}}"
        ),
        Trouble::Unauthorized { message } => {
            format!(
                "the API server does not accept our credentials to {verb} {name} ({message}); renew the token or certificate"
            )
        }
        Trouble::Expired => format!("what was seen of {name} is too old to go on from"),
        Trouble::Unreachable { message } => format!("cannot {verb} {name}: {message}; trying again"),
        Trouble::Other { status, message } => {
            format!("cannot {verb} {name}: {message} (status {status}); trying again")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{NODE_POOLS, SERVICES};

    #[test]
    fn a_missing_right_is_named_with_the_rule_that_gives_it() {
        let trouble = Trouble::Forbidden { message: "services is forbidden".to_owned() };
        assert_eq!(
            words("list", &SERVICES, &trouble),
            "may not list services (services is forbidden); add to the ClusterRole: \
             {apiGroups: [\"\"], resources: [\"services\"], verbs: [\"list\", \"watch\"]}"
        );
    }

    #[test]
    fn a_missing_kind_is_named_with_the_command_that_brings_it() {
        let words = words("list", &NODE_POOLS, &Trouble::Missing);
        assert!(words.starts_with("the API server does not serve nodepools.karpenter.sh: "), "{words}");
        assert!(words.contains("kerf crds | kubectl apply"), "{words}");
    }
}
