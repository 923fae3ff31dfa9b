//! Security groups: all that match go onto every node.

use super::terms::{tags_seen, term_in_words};
use crate::wire::{Aws, Failure, Filter, SecurityGroup, Subnet};
use kerf_api::Ec2NodeClass;
use std::collections::{BTreeMap, BTreeSet};

/// What the terms select, in order of id. Inside a term an id goes before a name, and a name before tags.
pub(super) async fn find(wire: &dyn Aws, class: &Ec2NodeClass) -> Result<Vec<SecurityGroup>, Failure> {
    let terms = &class.spec.security_group_selector_terms;
    let ids: Vec<&String> = terms.iter().filter_map(|term| term.id.as_ref()).collect();
    let names: Vec<&String> =
        terms.iter().filter(|term| term.id.is_none()).filter_map(|term| term.name.as_ref()).collect();
    let by_tags =
        terms.iter().filter(|term| term.id.is_none() && term.name.is_none()).filter_map(|term| term.tags.as_ref());
    let mut queries: Vec<Vec<Filter>> = by_tags
        .filter(|tags| !tags.is_empty())
        .map(|tags| tags.iter().map(|(key, value)| Filter::tag(key, value)).collect())
        .collect();
    if !ids.is_empty() {
        queries.push(vec![Filter::new("group-id", ids)]);
    }
    if !names.is_empty() {
        queries.push(vec![Filter::new("group-name", names)]);
    }
    let mut found: BTreeMap<String, SecurityGroup> = BTreeMap::new();
    for filters in queries {
        let groups = wire.describe_security_groups(filters).await?;
        found.extend(groups.into_iter().map(|group| (group.id.clone(), group)));
    }
    Ok(found.into_values().collect())
}

/// As the class's status lists them.
pub(super) fn status(found: &[SecurityGroup]) -> Vec<kerf_api::SecurityGroup> {
    let one = |group: &SecurityGroup| kerf_api::SecurityGroup {
        id: group.id.clone(),
        name: Some(group.name.clone()).filter(|name| !name.is_empty()),
    };
    found.iter().map(one).collect()
}

/// Why nothing was found, from a look at everything there is.
pub(super) async fn why_none(wire: &dyn Aws, class: &Ec2NodeClass) -> String {
    let terms = &class.spec.security_group_selector_terms;
    let words: Vec<String> = terms
        .iter()
        .map(|term| term_in_words(term.tags.as_ref(), &[("id", term.id.as_ref()), ("name", term.name.as_ref())]))
        .collect();
    let instead = match wire.describe_security_groups(Vec::new()).await {
        Ok(all) if all.is_empty() => "this account has no security group in this region".to_owned(),
        Ok(all) => {
            let tags: Vec<_> = all.iter().map(|group| &group.tags).collect();
            let seen = tags_seen(terms.iter().filter_map(|term| term.tags.as_ref()), &tags);
            let seen = if seen.is_empty() { seen } else { format!(": {seen}") };
            format!("this account has {} security groups in this region{seen}", all.len())
        }
        Err(failure) => format!("what there is could not be listed ({})", failure.code),
    };
    format!(
        "SecurityGroupSelector did not match any SecurityGroups: spec.securityGroupSelectorTerms [{}] select none by \
         ec2:DescribeSecurityGroups; {instead}; tag the groups, or write terms that select them",
        words.join("; ")
    )
}

/// Of the groups on a node only one may be the cluster's own: load balancer controllers stumble over a second.
pub fn owned_twice(found: &[SecurityGroup], cluster: &str) -> Option<String> {
    let key = format!("kubernetes.io/cluster/{cluster}");
    let owned: Vec<&str> = found
        .iter()
        .filter(|group| group.tags.get(&key).is_some_and(|value| value == "owned"))
        .map(|group| group.id.as_str())
        .collect();
    (owned.len() > 1).then(|| {
        format!(
            "warning: {} of the selected security groups carry the tag {key}: owned ({}); load balancer controllers want one: \
             remove the tag from the others, or select fewer groups",
            owned.len(),
            owned.join(", ")
        )
    })
}

/// Why no node could have these groups in these subnets, where that is so. A group serves only the VPC that it is in.
pub(super) fn in_different_networks(groups: &[SecurityGroup], subnets: &[Subnet]) -> Option<String> {
    let of_groups: BTreeSet<&str> =
        groups.iter().map(|group| group.vpc_id.as_str()).filter(|id| !id.is_empty()).collect();
    let of_subnets: BTreeSet<&str> =
        subnets.iter().map(|subnet| subnet.vpc_id.as_str()).filter(|id| !id.is_empty()).collect();
    if of_groups.is_empty() || of_subnets.is_empty() {
        return None;
    }
    let list = |ids: &BTreeSet<&str>| ids.iter().copied().collect::<Vec<_>>().join(", ");
    let by_network = |id: &str| {
        let ids: Vec<&str> = groups.iter().filter(|group| group.vpc_id == id).map(|group| group.id.as_str()).collect();
        format!("{id}: {}", ids.join(", "))
    };
    if of_groups.len() > 1 {
        let words: Vec<String> = of_groups.iter().map(|id| by_network(id)).collect();
        return Some(format!(
            "spec.securityGroupSelectorTerms select groups of several VPCs ({}), which no instance can have together; write \
             terms that select groups of one",
            words.join("; ")
        ));
    }
    of_groups.is_disjoint(&of_subnets).then(|| {
        format!(
            "spec.securityGroupSelectorTerms select groups of {}, spec.subnetSelectorTerms subnets of {}: select both in one VPC",
            list(&of_groups),
            list(&of_subnets)
        )
    })
}

/// Subnets in which no node can be launched with these groups, while others can.
pub(super) fn strays(groups: &[SecurityGroup], subnets: &[Subnet]) -> Option<String> {
    if in_different_networks(groups, subnets).is_some() || groups.is_empty() {
        return None;
    }
    let is_home = |subnet: &&Subnet| {
        subnet.vpc_id.is_empty() || groups.iter().all(|group| group.vpc_id.is_empty() || group.vpc_id == subnet.vpc_id)
    };
    let strays: Vec<&str> = subnets.iter().filter(|subnet| !is_home(subnet)).map(|subnet| subnet.id.as_str()).collect();
    (!strays.is_empty()).then(|| {
        format!(
            "warning: {} are in another VPC than the selected security groups: launches there fail; narrow spec.subnetSelectorTerms",
            strays.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Tags;

    fn group(id: &str, vpc: &str, tags: &[(&str, &str)]) -> SecurityGroup {
        let tags: Tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        SecurityGroup { id: id.to_owned(), name: String::new(), vpc_id: vpc.to_owned(), tags }
    }

    fn subnet(id: &str, vpc: &str) -> Subnet {
        Subnet { id: id.to_owned(), vpc_id: vpc.to_owned(), ..Subnet::default() }
    }

    #[test]
    fn d1_32_two_groups_owned_by_the_cluster_are_worth_a_warning_and_one_is_right() {
        let owned = [("kubernetes.io/cluster/demo", "owned")];
        let shared = [("kubernetes.io/cluster/demo", "shared")];
        let one = [group("sg-1", "vpc-1", &owned), group("sg-2", "vpc-1", &shared), group("sg-3", "vpc-1", &[])];
        assert_eq!(owned_twice(&one, "demo"), None);
        let two = [group("sg-1", "vpc-1", &owned), group("sg-2", "vpc-1", &owned)];
        let warning = owned_twice(&two, "demo").unwrap();
        assert!(warning.contains("sg-1, sg-2") && warning.contains("kubernetes.io/cluster/demo"), "{warning}");
        assert_eq!(owned_twice(&two, "other"), None, "of another cluster");
    }

    #[test]
    fn groups_and_subnets_must_meet_in_one_network() {
        let here = group("sg-1", "vpc-1", &[]);
        let there = group("sg-2", "vpc-2", &[]);
        for (groups, subnets, clashes, strays_named) in [
            (vec![here.clone()], vec![subnet("subnet-1", "vpc-1")], None, None),
            (vec![here.clone()], vec![subnet("subnet-1", "")], None, None),
            (vec![here.clone()], vec![subnet("subnet-2", "vpc-2")], Some("groups of vpc-1"), None),
            (vec![here.clone(), there], vec![subnet("subnet-1", "vpc-1")], Some("vpc-2: sg-2"), None),
            (vec![here], vec![subnet("subnet-1", "vpc-1"), subnet("subnet-2", "vpc-2")], None, Some("subnet-2 are")),
        ] {
            let contains = |said: &Option<String>, part: Option<&str>| match (said, part) {
                (Some(said), Some(part)) => said.contains(part),
                (None, None) => true,
                _ => false,
            };
            let said = (in_different_networks(&groups, &subnets), strays(&groups, &subnets));
            assert!(contains(&said.0, clashes) && contains(&said.1, strays_named), "{said:?}");
        }
    }
}
