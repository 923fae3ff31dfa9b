//! A snapshot and a plan in a few lines, for people who look at a counterexample.

use kerf_model::{Demand, Offering, Plan, Report, Requirements, Resources, Snapshot, Step};
use std::fmt::Write;

pub fn describe(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    write_all(&mut out, snapshot).expect("a string takes any text");
    out
}

fn write_all(out: &mut String, snapshot: &Snapshot) -> std::fmt::Result {
    let settings = &snapshot.settings;
    writeln!(
        out,
        "settings {:?} {:?} {:?} {:?}",
        settings.preferences, settings.min_values, settings.reserved, settings.placed_by
    )?;
    let mut seen = Vec::new();
    for kind in snapshot.pools.iter().flat_map(|pool| pool.types.iter()) {
        if seen.contains(&&kind.name) {
            continue;
        }
        seen.push(&kind.name);
        writeln!(out, "type {} has {} less {}", kind.name, kind.capacity, kind.overhead)?;
        writeln!(out, "  {}", kind.requirements)?;
        for offering in &kind.offerings {
            writeln!(out, "  {}", offering_words(offering))?;
        }
    }
    for pool in &snapshot.pools {
        let types: Vec<&str> = pool.types.iter().map(|kind| kind.name.as_str()).collect();
        writeln!(
            out,
            "pool {} weight {} [{}] taints {} limits {} in use {} types {types:?}{}{}",
            pool.name,
            pool.weight,
            with_min_values(&pool.requirements),
            list(&pool.taints),
            pool.limits,
            pool.in_use,
            if pool.is_static { " static" } else { "" },
            if pool.readiness == kerf_model::Readiness::Ready { "" } else { " not ready" },
        )?;
    }
    for (idx, node) in snapshot.nodes.iter().enumerate() {
        let mut free = node.allocatable.clone();
        free.subtract(&node.used);
        writeln!(
            out,
            "node {} {:?} pool {:?} free {free} daemons use {} taints {} ports {} attached {:?}",
            node.name,
            node.stage,
            node.pool.as_ref().map(|pool| pool.as_str()),
            node.used_by_daemons,
            list(&node.taints),
            node.host_ports.len(),
            node.attached,
        )?;
        writeln!(out, "  {:?}", node.labels)?;
        for group in snapshot.bound.iter().filter(|group| group.node.0 as usize == idx) {
            writeln!(out, "  {} × {:?} avoids {:?}", group.n_pods, group.shape.labels, group.shape.anti_affinity)?;
        }
    }
    for daemon in &snapshot.daemons {
        writeln!(out, "daemon {}", demand_words(&daemon.demand))?;
    }
    for (idx, demand) in snapshot.demands.iter().enumerate() {
        let pods: Vec<String> = snapshot
            .pods
            .iter()
            .filter(|pod| pod.demand.0 as usize == idx)
            .map(|pod| format!("{}!{}", pod.id.name, pod.priority))
            .collect();
        writeln!(out, "demand {} for {}", demand_words(demand), pods.join(" "))?;
    }
    Ok(())
}

fn list<T: std::fmt::Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn with_min_values(requirements: &Requirements) -> String {
    let words = requirements.iter().map(|(key, requirement)| match requirement.min_values {
        Some(least) => format!("{key} {requirement} (at least {least})"),
        None => format!("{key} {requirement}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn offering_words(offering: &Offering) -> String {
    format!(
        "{} {:?} {}{}{}",
        offering.zone().map_or("-", |zone| zone),
        offering.capacity_type(),
        offering.price,
        if offering.available { "" } else { " sold out" },
        offering.reservation_capacity.map_or(String::new(), |n| format!(" holds {n}")),
    )
}

/// Only what is there: an empty field says nothing.
fn demand_words(demand: &Demand) -> String {
    let mut words = format!("{:?} {}", demand.labels.values().next(), requests(&demand.requests));
    let mut say = |name: &str, text: String, is_there: bool| {
        if is_there {
            words.push_str(&format!("\n    {name} {text}"));
        }
    };
    let d = demand;
    say("selects", d.node_selector.to_string(), !d.node_selector.is_empty());
    say("one of", list(&d.required_terms), !d.required_terms.is_empty());
    say("prefers", format!("{:?}", d.preferred_terms), !d.preferred_terms.is_empty());
    say("tolerates", format!("{:?}", d.tolerations), !d.tolerations.is_empty());
    say("near", format!("{:?}", d.affinity), !d.affinity.is_empty());
    say("avoids", format!("{:?}", d.anti_affinity), !d.anti_affinity.is_empty());
    say("prefers near", format!("{:?}", d.preferred_affinity), !d.preferred_affinity.is_empty());
    say("prefers far", format!("{:?}", d.preferred_anti_affinity), !d.preferred_anti_affinity.is_empty());
    say("spreads", format!("{:?}", d.spreads), !d.spreads.is_empty());
    say("ports", format!("{:?}", d.host_ports), !d.host_ports.is_empty());
    say("volumes", format!("{:?}", d.volumes), !d.volumes.alternatives.is_empty());
    words
}

fn requests(resources: &Resources) -> String {
    resources.to_string()
}

/// A plan in a few lines.
pub fn outline(plan: &Plan, report: &Report) -> String {
    let mut out = String::new();
    for step in &plan.steps {
        match step {
            Step::Place(placement) => {
                let pods: Vec<&str> = placement.pods.iter().map(|pod| &*pod.name).collect();
                out.push_str(&format!("place {pods:?} on {}\n", placement.node));
            }
            Step::Launch(launch) => {
                let pods: Vec<&str> = launch.for_pods.iter().map(|pod| &*pod.name).collect();
                let options: Vec<String> = launch
                    .any_of
                    .iter()
                    .map(|option| {
                        format!(
                            "{} {:?} {:?} {}",
                            option.instance_type, option.zone, option.capacity_type, option.price
                        )
                    })
                    .collect();
                out.push_str(&format!(
                    "launch {} of {} [{}] {options:?} for {pods:?} holds {:?}\n",
                    launch.claim, launch.pool, launch.requirements, launch.reservations
                ));
            }
        }
    }
    for (pod, refusal) in &report.refused {
        out.push_str(&format!("refuse {}: {refusal}\n", pod.name));
    }
    out.push_str(&format!("{:?} {:?} {:?}\n", report.cost, report.spent, report.candidates));
    out
}
