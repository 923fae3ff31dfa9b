//! Feature gates as text: `NodeRepair=true,StaticCapacity=false`.

use kerf_controllers::Gates;

/// Unknown gates are ignored, so that a flag survives an upgrade and a downgrade. A gate without a value is a mistake.
pub(crate) fn parse(text: &str) -> Result<Gates, String> {
    let mut gates = Gates::default();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is not of the form Gate=true"))?;
        let (name, value) = (name.trim(), value.trim());
        let value = parse_bool(value).ok_or_else(|| format!("gate {name} is {value:?}, neither true nor false"))?;
        if let Some(gate) = gate(&mut gates, name) {
            *gate = value;
        }
    }
    Ok(gates)
}

/// What Go's `strconv.ParseBool` takes.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn gate<'a>(gates: &'a mut Gates, name: &str) -> Option<&'a mut bool> {
    Some(match name {
        "NodeRepair" => &mut gates.node_repair,
        "ReservedCapacity" => &mut gates.reserved_capacity,
        "SpotToSpotConsolidation" => &mut gates.spot_to_spot_consolidation,
        "NodeOverlay" => &mut gates.node_overlay,
        "StaticCapacity" => &mut gates.static_capacity,
        "CapacityBuffer" => &mut gates.capacity_buffer,
        "TerminateFirstDrift" => &mut gates.terminate_first_drift,
        "TerminateFirstRepair" => &mut gates.terminate_first_repair,
        "PodDeletionCostManagement" => &mut gates.pod_deletion_cost_management,
        "EarlyBinding" => &mut gates.early_binding,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_word_the_defaults_count() {
        let gates = parse("").unwrap();
        assert_eq!(gates, Gates::default());
        assert!(gates.reserved_capacity && !gates.node_repair && !gates.early_binding);
    }

    #[test]
    fn every_gate_can_be_turned_both_ways() {
        for name in [
            "NodeRepair",
            "ReservedCapacity",
            "SpotToSpotConsolidation",
            "NodeOverlay",
            "StaticCapacity",
            "CapacityBuffer",
            "TerminateFirstDrift",
            "TerminateFirstRepair",
            "PodDeletionCostManagement",
            "EarlyBinding",
        ] {
            let on = *gate(&mut parse(&format!("{name}=true")).unwrap(), name).unwrap();
            let off = *gate(&mut parse(&format!(" {name} = false ,")).unwrap(), name).unwrap();
            assert!(on && !off, "{name}");
        }
    }

    #[test]
    fn unknown_gates_are_ignored_and_halves_are_mistakes() {
        assert_eq!(parse("Drift=true,Nonsense=false").unwrap(), Gates::default());
        assert!(parse("StaticCapacity=").unwrap_err().contains("StaticCapacity"));
        assert!(parse("StaticCapacity").is_err());
        assert!(parse("StaticCapacity=yes").is_err());
    }
}
