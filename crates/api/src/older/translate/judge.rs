//! The last look: what an API server or the operator would refuse in the result is refused here, under the field's old name.

use serde_json::Value;

use super::Refusal;
use super::read::{Place, Told};
use super::requirements::Requirements;
use crate::kind::Kind;
use crate::labels::LabelRules;
use crate::objects::{Ec2NodeClass, NodePool};
use crate::problem::Problem;

pub(super) fn pool(made: &Value, root: &Place, requirements: &Requirements, told: &mut Told) {
    let mut made = made.clone();
    Kind::NodePool.apply_defaults(&mut made);
    let mut problems = Kind::NodePool.check(&made, None);
    match serde_json::from_value::<NodePool>(made) {
        Ok(pool) => problems.extend(pool.validate(&LabelRules::aws())),
        Err(error) => problems.push(unreadable(&error)),
    }
    for problem in problems {
        let place = old_place_in_pool(&problem.path, root, requirements);
        tell(problem, place, told);
    }
}

pub(super) fn class(made: &Value, fields: &Place, kubelet: &Place, told: &mut Told) {
    let mut made = made.clone();
    Kind::Ec2NodeClass.apply_defaults(&mut made);
    let mut problems = Kind::Ec2NodeClass.check(&made, None);
    match serde_json::from_value::<Ec2NodeClass>(made) {
        Ok(class) => {
            problems.extend(class.validate_tags());
            problems.extend(class.validate_kubelet());
        }
        Err(error) => problems.push(unreadable(&error)),
    }
    for problem in problems {
        let place = old_place_in_class(&problem.path, fields, kubelet);
        tell(problem, place, told);
    }
}

fn unreadable(error: &serde_json::Error) -> Problem {
    Problem::new("spec", "something that cannot be read", error.to_string())
}

/// Once for each field: what was said while it was translated knows more.
fn tell(problem: Problem, place: Place, told: &mut Told) {
    let is_told = |refusal: &Refusal| {
        !refusal.may_launch
            && refusal.object == place.object
            && (is_within(&place.path, &refusal.path) || is_within(&refusal.path, &place.path))
    };
    if !told.refusals.iter().any(is_told) {
        told.pass_on(place, problem);
    }
}

fn is_within(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn old_place_in_pool(path: &str, root: &Place, requirements: &Requirements) -> Place {
    if let Some((i, rest)) = path.strip_prefix("spec.template.spec.requirements[").and_then(|rest| rest.split_once(']'))
        && let Some(place) = i.parse().ok().and_then(|i: usize| requirements.places.get(i)?.as_ref())
    {
        return Place { path: format!("{}{rest}", place.path), ..place.clone() };
    }
    const MOVED: [(&str, &str); 6] = [
        ("spec.template.spec.nodeClassRef", "spec.providerRef"),
        ("spec.template.metadata", "spec"),
        ("spec.template.spec.expireAfter", "spec.ttlSecondsUntilExpired"),
        ("spec.template.spec", "spec"),
        ("spec.limits", "spec.limits.resources"),
        ("spec.disruption.consolidateAfter", "spec.ttlSecondsAfterEmpty"),
    ];
    let moved = MOVED.iter().find(|(new, _)| is_within(path, new));
    root.child(&moved.map_or(path.to_owned(), |(new, old)| format!("{old}{}", &path[new.len()..])))
}

fn old_place_in_class(path: &str, fields: &Place, kubelet: &Place) -> Place {
    if let Some(rest) = path.strip_prefix("spec.kubelet") {
        return Place { path: format!("{}{rest}", kubelet.path), ..kubelet.clone() };
    }
    const SELECTORS: [(&str, &str); 3] = [
        ("spec.subnetSelectorTerms", "subnetSelector"),
        ("spec.securityGroupSelectorTerms", "securityGroupSelector"),
        ("spec.amiSelectorTerms", "amiSelector"),
    ];
    if let Some((_, old)) = SELECTORS.iter().find(|(new, _)| is_within(path, new)) {
        return fields.child(old);
    }
    match path.strip_prefix("spec.") {
        Some(rest) => fields.child(rest),
        None => fields.clone(),
    }
}
