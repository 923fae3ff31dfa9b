//! Limit ranges: what containers get that ask for nothing, and what nobody may go below or above.

use serde_json::Value;

use super::{Look, forbidden};
use crate::builtin::quantity::Quantity;
use crate::builtin::tree::{at, entries, fill, items, items_mut, open, text};
use crate::builtin::{aggregate_limits, aggregate_requests};
use crate::error::ApiError;

/// The limits of a namespace, range by range in the order of their names.
pub(super) fn ranges(look: &dyn Look, namespace: &str) -> Vec<Vec<Value>> {
    let stored = look.list("", "limitranges", namespace);
    stored.iter().map(|range| items(&range.value(), "spec.limits").to_vec()).collect()
}

/// Puts default limits and requests where a container has none, and says so in an annotation.
fn fill_container(container: &mut Value, limits: &[Value], what: &str, said: &mut Vec<String>) {
    let name = text(container, "name").to_owned();
    for (list, field, word) in [("defaultRequest", "requests", "request"), ("default", "limits", "limit")] {
        let mut set: Vec<String> = Vec::new();
        for limit in limits.iter().filter(|limit| text(limit, "type") == "Container") {
            for (resource, amount) in entries(limit, list) {
                let path = format!("resources.{field}");
                if at(container, &path).get(resource).is_none() {
                    fill(open(container, &path), resource, amount.clone());
                    set.push(resource.clone());
                }
            }
        }
        if !set.is_empty() {
            set.sort();
            said.push(format!("{} {word} for {what} {name}", set.join(", ")));
        }
    }
}

pub(super) fn fill_pod(pod: &mut Value, ranges: &[Vec<Value>]) {
    for limits in ranges {
        let mut said = Vec::new();
        for (list, what) in [("spec.containers", "container"), ("spec.initContainers", "init container")] {
            for container in items_mut(pod, list) {
                fill_container(container, limits, what, &mut said);
            }
        }
        if !said.is_empty() {
            let note = format!("LimitRanger plugin set: {}", said.join("; "));
            open(pod, "metadata.annotations").insert("kubernetes.io/limit-ranger".to_owned(), Value::from(note));
        }
    }
}

type Amounts = Vec<(String, Quantity)>;

fn amount(list: &Amounts, resource: &str) -> Option<Quantity> {
    list.iter().find(|(name, _)| name == resource).map(|(_, amount)| *amount)
}

fn amounts(list: &Value) -> Amounts {
    let entries = list.as_object().into_iter().flatten();
    entries.filter_map(|(name, amount)| Some((name.clone(), Quantity::of(amount)?))).collect()
}

pub(super) fn judge_pod(pod: &Value, ranges: &[Vec<Value>], name: &str) -> Result<(), ApiError> {
    for limits in ranges {
        let mut wrong = Vec::new();
        for limit in limits {
            match text(limit, "type") {
                "Container" => {
                    for container in items(pod, "spec.containers").iter().chain(items(pod, "spec.initContainers")) {
                        let requests = amounts(at(container, "resources.requests"));
                        judge(&mut wrong, limit, "Container", &requests, &amounts(at(container, "resources.limits")));
                    }
                }
                "Pod" => {
                    judge(&mut wrong, limit, "Pod", &aggregate_requests(pod), &aggregate_limits(pod));
                }
                _ => {}
            }
        }
        refuse("pods", name, &wrong)?;
    }
    Ok(())
}

pub(super) fn judge_claim(claim: &Value, ranges: &[Vec<Value>], name: &str) -> Result<(), ApiError> {
    for limits in ranges {
        let mut wrong = Vec::new();
        let requests = amounts(at(claim, "spec.resources.requests"));
        for limit in limits.iter().filter(|limit| text(limit, "type") == "PersistentVolumeClaim") {
            for (resource, least) in amounts(at(limit, "min")) {
                below(&mut wrong, "PersistentVolumeClaim", &resource, least, &requests, &Vec::new());
            }
            for (resource, most) in amounts(at(limit, "max")) {
                let head = format!("maximum {resource} usage per PersistentVolumeClaim is {most}");
                match amount(&requests, &resource) {
                    None => wrong.push(format!("{head}.  No request is specified")),
                    Some(request) if request > most => wrong.push(format!("{head}, but request is {request}")),
                    Some(_) => {}
                }
            }
        }
        refuse("persistentvolumeclaims", name, &wrong)?;
    }
    Ok(())
}

fn refuse(plural: &str, name: &str, wrong: &[String]) -> Result<(), ApiError> {
    // The same words about two containers are said once.
    let mut said: Vec<&str> = Vec::new();
    for why in wrong {
        if !said.contains(&why.as_str()) {
            said.push(why);
        }
    }
    match said.as_slice() {
        [] => Ok(()),
        [one] => Err(forbidden(plural, name, one)),
        many => Err(forbidden(plural, name, &format!("[{}]", many.join(", ")))),
    }
}

fn judge(wrong: &mut Vec<String>, limit: &Value, kind: &str, requests: &Amounts, limits: &Amounts) {
    for (resource, least) in amounts(at(limit, "min")) {
        below(wrong, kind, &resource, least, requests, limits);
    }
    for (resource, most) in amounts(at(limit, "max")) {
        let head = format!("maximum {resource} usage per {kind} is {most}");
        match (amount(limits, &resource), amount(requests, &resource)) {
            (None, _) => wrong.push(format!("{head}.  No limit is specified")),
            (Some(limit), _) if limit > most => wrong.push(format!("{head}, but limit is {limit}")),
            (_, Some(request)) if request > most => wrong.push(format!("{head}, but request is {request}")),
            _ => {}
        }
    }
    for (resource, ratio) in amounts(at(limit, "maxLimitRequestRatio")) {
        let head = format!("{resource} max limit to request ratio per {kind} is {ratio}");
        let positive = |list: &Amounts| amount(list, &resource).filter(|amount| amount.is_positive());
        match (positive(requests), positive(limits)) {
            (None, _) => wrong.push(format!("{head}, but no request is specified or request is 0")),
            (_, None) => wrong.push(format!("{head}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) => {
                let observed = limit.ratio(request);
                if observed > ratio.ratio(Quantity::whole(1)) {
                    wrong.push(format!("{head}, but provided ratio is {observed:.6}"));
                }
            }
        }
    }
}

fn below(wrong: &mut Vec<String>, kind: &str, resource: &str, least: Quantity, requests: &Amounts, limits: &Amounts) {
    let head = format!("minimum {resource} usage per {kind} is {least}");
    match (amount(requests, resource), amount(limits, resource)) {
        (None, _) => wrong.push(format!("{head}.  No request is specified")),
        (Some(request), _) if request < least => wrong.push(format!("{head}, but request is {request}")),
        (_, Some(limit)) if limit < least => wrong.push(format!("{head}, but limit is {limit}")),
        _ => {}
    }
}
