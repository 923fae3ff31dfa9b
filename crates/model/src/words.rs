//! The one place where reasons become prose: the event, the log line, the CLI and the status say the same words.

use crate::plan::Reason;
use crate::refusal::{Refusal, Remedy, TopologyKind, Verdict, Why};
use crate::report::Strategy;
use std::fmt;

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::PodsWaiting { n_pods } => write!(f, "pods waiting: {n_pods}"),
            Reason::BufferWanted { n_pods } => write!(f, "capacity buffers waiting: {n_pods}"),
            Reason::RoomOnNode { n_pods, in_flight: false } => write!(f, "room on the node for {n_pods}"),
            Reason::RoomOnNode { n_pods, in_flight: true } => write!(f, "room on a node on its way for {n_pods}"),
        }
    }
}

impl fmt::Display for TopologyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TopologyKind::Spread => "topology spread",
            TopologyKind::Affinity => "pod affinity",
            TopologyKind::AntiAffinity => "pod anti-affinity",
            TopologyKind::InverseAntiAffinity => "another pod's anti-affinity",
        })
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Strategy::ByValue => "by value",
            Strategy::Alike => "alike nodes",
            Strategy::FirstFit => "first fit",
        })
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::NoPools => write!(f, "there is no NodePool that grows for pods"),
            Why::PoolNotReady { reason } => write!(f, "the pool is not ready: {reason}"),
            Why::PoolMatchesNoType { key: Some(key) } => {
                write!(f, "the pool's requirement on {key} leaves no instance type")
            }
            Why::PoolMatchesNoType { key: None } => {
                write!(f, "the pool's requirements leave no instance type")
            }
            Why::TaintNotTolerated { taint } => write!(f, "did not tolerate taint (taint={taint})"),
            Why::LabelUnknown { key, wanted, typo_of } => {
                write!(f, "label {key:?} does not have known values (wanted {wanted})")?;
                match typo_of {
                    Some(known) => write!(f, " (typo of {known:?}?)"),
                    None => Ok(()),
                }
            }
            Why::RequirementsClash { key, wanted, offered } => {
                write!(f, "incompatible requirements, key {key}, {wanted} not in {offered}")
            }
            Why::NoTypeMatches { key: Some(key) } => {
                write!(f, "no instance type met all requirements (key {key})")
            }
            Why::NoTypeMatches { key: None } => write!(f, "no instance type met all requirements"),
            Why::TooLarge { resource, needs, largest, on, n_types } => {
                write!(f, "no instance type has enough resources: needs {resource} {needs} with the daemons")?;
                match on {
                    Some(name) => write!(f, ", the largest of {n_types} ({name}) has {largest}")?,
                    None => write!(f, ", and none of {n_types} has any")?,
                }
                if &**resource == "cpu" && needs.milli >= 1_000_000_000 {
                    write!(f, " (CPU request >= 1 Million, m vs M typo?)")?;
                }
                Ok(())
            }
            Why::NoTypeHasAll { n_types } => {
                write!(f, "no instance type has enough of every resource at once ({n_types} tried)")
            }
            Why::NoOffering { n_types } => write!(
                f,
                "no instance type has the required offering: {n_types} would fit, none can be had in the zones and capacity types asked for"
            ),
            Why::LimitReached { resource, limit, in_use, needs } => {
                write!(f, "limits: {resource} {in_use} of {limit} in use, the smallest suitable node needs {needs}")
            }
            Why::MinValues { key, needs, has } => {
                write!(f, "minValues requirement is not met for label(s) {key}: needs {needs}, has {has}")
            }
            Why::Topology { kind, key, detail } => {
                write!(f, "unsatisfiable topology constraint for {kind}, key={key} ({detail})")
            }
            Why::VolumeElsewhere { key, wanted } => {
                write!(f, "incompatible volume requirements, key {key}, {wanted}")
            }
            Why::VolumeLimit { driver, needs, limit } => {
                write!(
                    f,
                    "would exceed volume limit for all instance type options: {driver} needs {needs}, limit {limit}"
                )
            }
            Why::HostPortTaken { port } => write!(f, "host port {port} is taken"),
            Why::ReservationAwaited { reservation } => {
                write!(f, "waits for reservation {reservation}, which is spoken for in this pass")
            }
            Why::Ill { field, message } => write!(f, "{field}: {message}"),
            Why::DynamicResources => {
                write!(f, "pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter")
            }
            Why::NotForUs => write!(f, "the pod is configured to not run on a node of a NodePool"),
            Why::EffortSpent { max } => write!(f, "the search was stopped after {max} steps, before this pod's turn"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pool {
            Some(pool) => write!(f, "nodepool {pool}: {}", self.why),
            None => write!(f, "{}", self.why),
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remedy::Tolerate { pool, taint } => {
                write!(f, "tolerate {taint} to use nodepool {pool}")
            }
            Remedy::DropRequirement { key } => write!(f, "drop the pod's requirement on {key}"),
            Remedy::DeclareLabel { pool, key } => {
                write!(f, "declare label {key} on nodepool {pool}")
            }
            Remedy::ReduceRequest { resource, to } => {
                write!(f, "request at most {to} of {resource}")
            }
            Remedy::RaiseLimit { pool, resource, to } => {
                write!(f, "raise limit {resource} of nodepool {pool} to {to}")
            }
            Remedy::LowerMinValues { pool, key, to } => {
                write!(f, "lower minValues of {key} in nodepool {pool} to {to}")
            }
            Remedy::DropTopology { kind, key } => write!(f, "drop the {kind} on {key}"),
            Remedy::FreeHostPort { port } => write!(f, "drop host port {port}"),
            Remedy::MakeReady { pool } => write!(f, "make nodepool {pool} ready"),
            Remedy::AddPool => write!(f, "add a NodePool that suits the pod"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, verdict) in self.verdicts.iter().enumerate() {
            let semicolon = if position == 0 { "" } else { "; " };
            write!(f, "{semicolon}{verdict}")?;
        }
        match &self.remedy {
            Some(remedy) => write!(f, " (would help: {remedy})"),
            None => Ok(()),
        }
    }
}

impl Refusal {
    /// The same words in at most so many bytes: whole verdicts as long as there is room, how many there are more, and what would help.
    pub fn within(&self, bytes_max: usize) -> String {
        let whole = self.to_string();
        if whole.len() <= bytes_max {
            return whole;
        }
        let remedy = self.remedy.as_ref().map(|remedy| format!(" (would help: {remedy})")).unwrap_or_default();
        let mut words = String::new();
        for (n_kept, verdict) in self.verdicts.iter().enumerate() {
            let semicolon = if n_kept == 0 { "" } else { "; " };
            let verdict = format!("{semicolon}{verdict}");
            let rest = format!("; {} more{remedy}", self.verdicts.len() - n_kept);
            if words.len() + verdict.len() + rest.len() > bytes_max {
                // Not even the first has room: whoever asked cuts it.
                return if n_kept == 0 { whole } else { words + &rest };
            }
            words.push_str(&verdict);
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PoolName;

    #[test]
    fn a_refusal_by_many_pools_keeps_whole_verdicts_and_what_would_help() {
        let verdict = |n: usize| Verdict {
            pool: Some(PoolName(format!("pool-{n}").into())),
            why: Why::NoTypeHasAll { n_types: n },
        };
        let refusal = Refusal { verdicts: (0..40).map(verdict).collect(), remedy: Some(Remedy::AddPool) };
        assert_eq!(refusal.within(100_000), refusal.to_string());
        let words = refusal.within(1_000);
        assert!(words.len() <= 1_000 && words.len() > 900, "{}", words.len());
        let n_kept = words.matches("nodepool ").count();
        let tail = format!("tried); {} more (would help: add a NodePool that suits the pod)", 40 - n_kept);
        assert!(words.ends_with(&tail), "{words}");
        assert!(refusal.to_string().starts_with(words.trim_end_matches(&tail)));
    }
}
