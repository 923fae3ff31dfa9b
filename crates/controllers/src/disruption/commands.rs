//! Commands that are being carried out: which nodes are held, why, and how far along.
//!
//! A memory only. What a command leaves on objects (a taint, a condition) is found and taken back by the first round after a
//! restart.

use super::Method;
use kerf_model::{Text, UnixMillis};
use std::collections::BTreeMap;

/// The shortest and longest time that a command may take, and what each node in the queue adds.
const TIMEOUT_MS: (i64, i64, i64) = (600_000, 3_600_000, 80);

#[derive(Debug, Default)]
pub struct Commands {
    held: BTreeMap<Text, Held>,
    /// Claims to look at, because something about their command is new.
    news: Vec<Text>,
}

/// A node in the hands of a command, by its claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub node: Text,
    pub stage: Stage,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// To be marked, and then deleted.
    Taking {
        method: Method,
        command: Text,
        until: UnixMillis,
        /// The API server itself lists nobody on it whom our watch has not shown; nothing is marked before.
        is_confirmed: bool,
    },
    /// The API server has taken the deletion.
    Deleted,
    /// Marks are to be removed: the command failed, or nobody remembers it.
    GivingBack,
    /// Another duty marks and deletes it by itself; nobody else touches it meanwhile.
    Lent,
}

impl Commands {
    pub fn contains(&self, claim: &str) -> bool {
        self.held.contains_key(claim)
    }

    pub fn get(&self, claim: &str) -> Option<&Held> {
        self.held.get(claim)
    }

    pub fn n_held(&self) -> usize {
        self.held.len()
    }

    /// Takes nodes: claim and node of each.
    pub fn take(&mut self, method: Method, command: &Text, nodes: &[(Text, Text)], now: UnixMillis) {
        let (least, most, each) = TIMEOUT_MS;
        let n_queued = i64::try_from(self.held.len() + nodes.len()).unwrap_or(i64::MAX);
        let until = UnixMillis(now.0.saturating_add(each.saturating_mul(n_queued).clamp(least, most)));
        for (claim, node) in nodes {
            let stage = Stage::Taking { method, command: command.clone(), until, is_confirmed: false };
            self.put(claim, node, stage);
        }
    }

    /// Lets a node return to normal.
    pub fn give_back(&mut self, claim: &Text, node: &Text) {
        #[cfg(feature = "planted")]
        if crate::planted::has(crate::planted::Bug::ForgottenRollback) {
            return self.release(claim);
        }
        self.put(claim, node, Stage::GivingBack);
    }

    /// Leaves a node to another duty, which releases it or lets it be given back.
    pub fn lend(&mut self, claim: &Text, node: &Text) {
        self.put(claim, node, Stage::Lent);
    }

    pub fn confirm(&mut self, claim: &str) {
        if let Some(Held { stage: Stage::Taking { is_confirmed, .. }, .. }) = self.held.get_mut(claim) {
            *is_confirmed = true;
        }
    }

    pub fn deleted(&mut self, claim: &str) {
        if let Some(held) = self.held.get_mut(claim) {
            held.stage = Stage::Deleted;
        }
    }

    pub fn release(&mut self, claim: &str) {
        self.held.remove(claim);
    }

    pub fn take_news(&mut self) -> Vec<Text> {
        std::mem::take(&mut self.news)
    }

    fn put(&mut self, claim: &Text, node: &Text, stage: Stage) {
        self.held.insert(claim.clone(), Held { node: node.clone(), stage });
        self.news.push(claim.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(n_nodes: usize) -> i64 {
        let mut commands = Commands::default();
        let nodes: Vec<(Text, Text)> = (0..n_nodes).map(|n| (n.to_string().into(), n.to_string().into())).collect();
        commands.take(Method::Emptiness, &"c".into(), &nodes, UnixMillis(0));
        match &commands.get("0").unwrap().stage {
            Stage::Taking { until, .. } => until.0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_command_has_ten_minutes_to_an_hour_by_what_is_queued() {
        assert_eq!(until(1), 600_000);
        assert_eq!(until(10_000), 800_000);
        assert_eq!(until(100_000), 3_600_000);
    }
}
