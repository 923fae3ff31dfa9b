//! Addresses and node ports of services: given out once, by a place that follows from the service's name.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::Look;
use crate::builtin::tree::{at, fill, fill_text, has, int, items, items_mut, open, text};
use crate::builtin::{needs_address, needs_node_ports};
use crate::error::{ApiError, FieldError};

/// 10.96.0.0/16. The first address is nobody's, the second is the `kubernetes` service's.
const NETWORK: u32 = u32::from_be_bytes([10, 96, 0, 0]);
const N_ADDRESSES: u32 = 1 << 16;
/// The low ones are left to those who ask for one by number.
const FIRST_FREE: u32 = 256;
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

pub(super) fn allocate(look: &dyn Look, service: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
    if !needs_address(service) {
        return Ok(());
    }
    families(service);
    address(look, service, old)?;
    node_ports(look, service, old)
}

fn families(service: &mut Value) {
    let is_bare = text(service, "spec.clusterIP") == "None"
        && at(service, "spec.selector").as_object().is_none_or(serde_json::Map::is_empty);
    let spec = open(service, "spec");
    if is_bare {
        fill_text(spec, "ipFamilyPolicy", "RequireDualStack");
        fill(spec, "ipFamilies", json!(["IPv4", "IPv6"]));
    } else {
        fill_text(spec, "ipFamilyPolicy", "SingleStack");
        fill(spec, "ipFamilies", json!(["IPv4"]));
    }
}

fn refuse(service: &Value, error: FieldError) -> ApiError {
    ApiError::invalid("", "Service", text(service, "metadata.name"), &[error])
}

fn address(look: &dyn Look, service: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
    let given = text(service, "spec.clusterIP").to_owned();
    let listed = at(service, "spec.clusterIPs").get(0).and_then(Value::as_str).unwrap_or_default().to_owned();
    let wanted = if given.is_empty() { listed } else { given };
    let is_kept = old.is_some_and(|old| !wanted.is_empty() && text(old, "spec.clusterIP") == wanted);
    let chosen = if wanted == "None" || is_kept {
        wanted
    } else {
        let taken = taken_addresses(look);
        if wanted.is_empty() {
            free_address(service, &taken)
        } else {
            judge_address(service, &wanted, &taken)?;
            wanted
        }
    };
    let spec = open(service, "spec");
    spec.insert("clusterIP".to_owned(), Value::from(chosen.as_str()));
    spec.insert("clusterIPs".to_owned(), json!([chosen]));
    Ok(())
}

fn taken_addresses(look: &dyn Look) -> BTreeSet<String> {
    let services = look.list("", "services", "");
    services
        .iter()
        .map(|stored| match stored.field("spec.clusterIP") {
            Some(address) => address.to_owned(),
            None => text(&stored.value(), "spec.clusterIP").to_owned(),
        })
        .collect()
}

/// Only what is an address of ours can be taken; what is none is told by validation.
fn judge_address(service: &Value, wanted: &str, taken: &BTreeSet<String>) -> Result<(), ApiError> {
    let Ok(parsed) = wanted.parse::<Ipv4Addr>() else { return Ok(()) };
    let tell = |why: &str| {
        let detail = format!("failed to allocate IP {wanted}: {why}");
        Err(refuse(service, FieldError::invalid("spec.clusterIPs", json!([wanted]), detail)))
    };
    let offset = u32::from(parsed).wrapping_sub(NETWORK);
    if offset == 0 || offset >= N_ADDRESSES - 1 {
        return tell("the provided network does not match the current range");
    }
    if taken.contains(wanted) {
        return tell("provided IP is already allocated");
    }
    Ok(())
}

fn free_address(service: &Value, taken: &BTreeSet<String>) -> String {
    let n_places = N_ADDRESSES - 1 - FIRST_FREE;
    let start = u32::try_from(place(service) % u64::from(n_places)).unwrap_or_default();
    (0..n_places)
        .map(|step| Ipv4Addr::from(NETWORK + FIRST_FREE + (start + step) % n_places).to_string())
        .find(|address| !taken.contains(address))
        .unwrap_or_default()
}

/// A number that follows from where the service is.
fn place(service: &Value) -> u64 {
    let words = [text(service, "metadata.namespace"), "/", text(service, "metadata.name")];
    words
        .iter()
        .flat_map(|word| word.bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn node_ports(look: &dyn Look, service: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
    if !needs_node_ports(service) {
        return Ok(());
    }
    let own: Vec<i64> = old.map(ports_of).unwrap_or_default();
    let mut taken: Option<BTreeSet<i64>> = None;
    let start = i64::try_from(place(service) % 2048).unwrap_or_default();
    let n_ports = items(service, "spec.ports").len();
    for index in 0..n_ports {
        let port = items(service, "spec.ports").get(index).cloned().unwrap_or_default();
        let asked = int(&port, "nodePort").unwrap_or_default();
        if asked != 0 && own.contains(&asked) {
            continue;
        }
        let taken = taken.get_or_insert_with(|| {
            look.list("", "services", "").iter().flat_map(|stored| ports_of(&stored.value())).collect()
        });
        if asked != 0 {
            let field = format!("spec.ports[{index}].nodePort");
            if !NODE_PORTS.contains(&asked) {
                let detail = "provided port is not in the valid range. The range of valid ports is 30000-32767";
                return Err(refuse(service, FieldError::invalid(field, asked, detail)));
            }
            if taken.contains(&asked) {
                let detail = "provided port is already allocated";
                return Err(refuse(service, FieldError::invalid(field, asked, detail)));
            }
            taken.insert(asked);
            continue;
        }
        let n_places = NODE_PORTS.end() - NODE_PORTS.start() + 1;
        let free = (0..n_places)
            .map(|step| NODE_PORTS.start() + (start + step) % n_places)
            .find(|port| !taken.contains(port) && !own.contains(port));
        if let (Some(free), Some(port)) = (free, items_mut(service, "spec.ports").get_mut(index)) {
            taken.insert(free);
            open(port, "").insert("nodePort".to_owned(), Value::from(free));
        }
    }
    Ok(())
}

fn ports_of(service: &Value) -> Vec<i64> {
    let ports = items(service, "spec.ports").iter();
    ports.filter(|port| has(port, "nodePort")).filter_map(|port| int(port, "nodePort")).collect()
}
