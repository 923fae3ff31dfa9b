//! Laws about one place and what is put there: resources, taints, requirements, host ports, volumes.

use super::breach::Breach;
use super::market::{Market, barring_taint};
use super::picture::{Claim, Content, Host, Picture, Site, node_has, node_suits};
use kerf_model::resources::PODS;
use kerf_model::{HostPort, Node, Quantity, Resources, Text};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check<'a>(picture: &Picture<'a>, market: &mut Market<'a>, breaches: &mut Vec<Breach>) {
    for host in picture.hosts.iter().filter(|host| !host.contents.is_empty()) {
        let needs = total(picture, &host.contents);
        match &host.site {
            Site::Node(node) => {
                check_node_room(picture, host, node, &needs, breaches);
                check_node_labels(picture, host, node, breaches);
                check_ports(picture, host, &node.host_ports, breaches);
                check_node_volumes(picture, host, node, breaches);
            }
            Site::Claim(claim) => {
                check_claim_room(host, claim, &needs, market, breaches);
                check_claim_labels(picture, host, claim, market, breaches);
                check_claim_ports(picture, host, claim, market, breaches);
                check_claim_volumes(picture, host, claim, breaches);
            }
        }
    }
}

fn total(picture: &Picture, contents: &[Content]) -> Resources {
    let mut sum = Resources::new();
    for content in contents {
        for (name, amount) in picture.demand(content.demand).requests.iter() {
            let milli = amount.milli.saturating_mul(i64::from(content.n_pods));
            *sum.0.entry(name.clone()).or_default() += Quantity::from_milli(milli);
        }
    }
    sum
}

/// A resource that nobody new asks for may well be overdrawn: that was so before.
fn check_node_room(picture: &Picture, host: &Host, node: &Node, needs: &Resources, breaches: &mut Vec<Breach>) {
    let mut daemons = Resources::new();
    for daemon in &picture.snapshot.daemons {
        let comes =
            barring_taint(&node.taints, &daemon.demand.tolerations).is_none() && node_suits(node, &daemon.demand);
        if comes {
            daemons.add(&daemon.demand.requests);
        }
    }
    daemons.subtract(&node.used_by_daemons);
    daemons.floor_at_zero();
    for (resource, needed) in needs.iter().filter(|(_, amount)| amount.milli > 0) {
        let has = node.allocatable.get(resource) - node.used.get(resource) - daemons.get(resource);
        if needed > has {
            breaches.push(Breach::Overfull {
                on: host.name.clone(),
                option: None,
                resource: resource.clone(),
                needs: needed,
                has,
            });
        }
    }
}

/// The cloud may choose any option, so each must be large enough, under each of its offerings.
fn check_claim_room<'a>(
    host: &Host<'a>,
    claim: &Claim<'a>,
    needs: &Resources,
    market: &mut Market<'a>,
    breaches: &mut Vec<Breach>,
) {
    for (resource, needed) in needs.iter() {
        let says = claim.launch.requests.get(resource);
        // The count of pods is no request that a user would write, and may be left out.
        if says < needed && &**resource != PODS {
            breaches.push(Breach::RequestsTooLow {
                claim: claim.launch.claim.clone(),
                resource: resource.clone(),
                says,
                needs: needed,
            });
        }
    }
    let row = market.row(needs);
    for idx in &claim.options {
        let fit = market.fit(claim.supply, *idx);
        let short = fit
            .rooms
            .iter()
            .flat_map(|room| room.iter().zip(&row).enumerate())
            .find(|(_, (has, needs))| **needs > 0 && needs > has);
        if let Some((dim, (has, needs))) = short {
            breaches.push(Breach::Overfull {
                on: host.name.clone(),
                option: Some(claim.pool.types[*idx].name.clone()),
                resource: market.dims[dim].clone(),
                needs: Quantity::from_milli(*needs),
                has: Quantity::from_milli(*has),
            });
        }
    }
}

fn check_node_labels(picture: &Picture, host: &Host, node: &Node, breaches: &mut Vec<Breach>) {
    for content in &host.contents {
        let demand = picture.demand(content.demand);
        let pod = || picture.pod(content.example);
        if let Some(taint) = barring_taint(&node.taints, &demand.tolerations) {
            breaches.push(Breach::TaintNotTolerated { on: host.name.clone(), pod: pod(), taint: taint.clone() });
        }
        if !node_suits(node, demand) {
            breaches.push(Breach::RequirementsNotMet { on: host.name.clone(), option: None, pod: pod() });
        }
        let alternatives = &demand.volumes.alternatives;
        if !alternatives.is_empty() && !alternatives.iter().any(|a| node_has(node, a)) {
            breaches.push(Breach::VolumeOutOfReach { on: host.name.clone(), option: None, pod: pod() });
        }
    }
}

fn check_claim_labels<'a>(
    picture: &Picture<'a>,
    host: &Host<'a>,
    claim: &Claim<'a>,
    market: &mut Market<'a>,
    breaches: &mut Vec<Breach>,
) {
    for content in &host.contents {
        let demand = picture.demand(content.demand);
        let pod = || picture.pod(content.example);
        if let Some(taint) = barring_taint(&claim.pool.taints, &demand.tolerations) {
            breaches.push(Breach::TaintNotTolerated { on: host.name.clone(), pod: pod(), taint: taint.clone() });
        }
        for idx in &claim.options {
            let answer = market.assured(claim.supply, *idx, content.demand);
            let option = || Some(claim.pool.types[*idx].name.clone());
            if !answer.pod {
                breaches.push(Breach::RequirementsNotMet { on: host.name.clone(), option: option(), pod: pod() });
            }
            if !answer.volumes {
                breaches.push(Breach::VolumeOutOfReach { on: host.name.clone(), option: option(), pod: pod() });
            }
        }
    }
}

fn check_ports(picture: &Picture, host: &Host, taken: &[HostPort], breaches: &mut Vec<Breach>) {
    let mut taken: Vec<&HostPort> = taken.iter().collect();
    for content in &host.contents {
        let ports = &picture.demand(content.demand).host_ports;
        let clash = ports.iter().find(|port| content.n_pods > 1 || taken.iter().any(|other| port.conflicts(other)));
        if let Some(port) = clash {
            breaches.push(Breach::HostPortTwice {
                on: host.name.clone(),
                pod: picture.pod(content.example),
                port: port.port,
            });
        }
        taken.extend(ports);
    }
}

fn check_claim_ports<'a>(
    picture: &Picture<'a>,
    host: &Host<'a>,
    claim: &Claim<'a>,
    market: &mut Market<'a>,
    breaches: &mut Vec<Breach>,
) {
    if host.contents.iter().all(|c| picture.demand(c.demand).host_ports.is_empty()) {
        return;
    }
    let mut daemon_ports = BTreeSet::new();
    for idx in &claim.options {
        daemon_ports.extend(market.fit(claim.supply, *idx).daemon_ports.iter().cloned());
    }
    let daemon_ports: Vec<HostPort> = daemon_ports.into_iter().collect();
    check_ports(picture, host, &daemon_ports, breaches);
}

/// Distinct volumes of the new pods, by driver.
fn new_volumes<'a>(picture: &Picture<'a>, host: &Host) -> BTreeMap<&'a Text, BTreeSet<&'a Text>> {
    let mut volumes: BTreeMap<&Text, BTreeSet<&Text>> = BTreeMap::new();
    for content in &host.contents {
        for (driver, names) in &picture.demand(content.demand).volumes.attachments {
            volumes.entry(driver).or_default().extend(names);
        }
    }
    volumes
}

fn check_node_volumes(picture: &Picture, host: &Host, node: &Node, breaches: &mut Vec<Breach>) {
    for (driver, mut volumes) in new_volumes(picture, host) {
        let attached = node.attached.get(driver);
        if volumes.iter().all(|volume| attached.is_some_and(|there| there.contains(*volume))) {
            continue; // Nothing new to attach.
        }
        volumes.extend(attached.into_iter().flatten());
        check_attached(host, driver, volumes.len(), node.attach_limits.get(driver), breaches);
    }
}

fn check_claim_volumes(picture: &Picture, host: &Host, claim: &Claim, breaches: &mut Vec<Breach>) {
    for (driver, volumes) in new_volumes(picture, host) {
        let least = claim.options.iter().filter_map(|i| claim.pool.types[*i].attach_limits.get(driver)).min();
        check_attached(host, driver, volumes.len(), least, breaches);
    }
}

fn check_attached(host: &Host, driver: &Text, needs: usize, limit: Option<&u32>, breaches: &mut Vec<Breach>) {
    if let Some(limit) = limit.map(|limit| *limit as usize).filter(|limit| needs > *limit) {
        breaches.push(Breach::VolumeLimit { on: host.name.clone(), driver: driver.clone(), needs, limit });
    }
}
