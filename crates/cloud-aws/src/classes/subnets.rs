//! Subnets: where nodes may be launched.

use super::terms::{tags_seen, term_in_words};
use crate::wire::{Aws, Failure, Filter, Subnet};
use kerf_api::Ec2NodeClass;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What the terms select: one question for each term of tags, one for all ids. The emptiest subnet comes first.
pub(super) async fn find(wire: &dyn Aws, class: &Ec2NodeClass) -> Result<Vec<Subnet>, Failure> {
    let terms = &class.spec.subnet_selector_terms;
    let mut found: BTreeMap<String, Subnet> = BTreeMap::new();
    let ids: Vec<&String> = terms.iter().filter_map(|term| term.id.as_ref()).collect();
    let by_tags = terms.iter().filter(|term| term.id.is_none()).filter_map(|term| term.tags.as_ref());
    let mut queries: Vec<Vec<Filter>> = by_tags
        .filter(|tags| !tags.is_empty())
        .map(|tags| tags.iter().map(|(key, value)| Filter::tag(key, value)).collect())
        .collect();
    if !ids.is_empty() {
        queries.push(vec![Filter::new("subnet-id", ids)]);
    }
    for filters in queries {
        found.extend(wire.describe_subnets(filters).await?.into_iter().map(|subnet| (subnet.id.clone(), subnet)));
    }
    let mut found: Vec<Subnet> = found.into_values().collect();
    found.sort_by(|a, b| (Reverse(a.n_free_addresses), &a.id).cmp(&(Reverse(b.n_free_addresses), &b.id)));
    Ok(found)
}

/// As the class's status lists them.
pub(super) fn status(found: &[Subnet]) -> Vec<kerf_api::Subnet> {
    let one = |subnet: &Subnet| kerf_api::Subnet {
        id: subnet.id.clone(),
        zone: subnet.zone.clone(),
        zone_id: subnet.zone_id.clone(),
    };
    found.iter().map(one).collect()
}

/// Why nothing was found, from a look at everything there is.
pub(super) async fn why_none(wire: &dyn Aws, class: &Ec2NodeClass) -> String {
    let terms = &class.spec.subnet_selector_terms;
    let words: Vec<String> =
        terms.iter().map(|term| term_in_words(term.tags.as_ref(), &[("id", term.id.as_ref())])).collect();
    let instead = match wire.describe_subnets(Vec::new()).await {
        Ok(all) if all.is_empty() => "this account has no subnet in this region".to_owned(),
        Ok(all) => {
            let tags: Vec<_> = all.iter().map(|subnet| &subnet.tags).collect();
            let seen = tags_seen(terms.iter().filter_map(|term| term.tags.as_ref()), &tags);
            let seen = if seen.is_empty() { seen } else { format!(": {seen}") };
            format!("this account has {} subnets in this region{seen}", all.len())
        }
        Err(failure) => format!("what there is could not be listed ({})", failure.code),
    };
    format!(
        "SubnetSelector did not match any Subnets: spec.subnetSelectorTerms [{}] select none by ec2:DescribeSubnets; {instead}; \
         tag the subnets, or write terms that select them",
        words.join("; ")
    )
}
