//! The brake: when very many nodes look empty, gone, expired or unclaimed at once, it is more likely that we see badly than that it is so.
//!
//! ```text
//! who takes nodes away ─▶ note: these look so ─▶ more than the limit within two minutes? ─▶ pulled: six ways to remove nodes stand still
//!                                                                                              │ Check asks anew
//!                             released, those are agreed upon ◀── the fresh answer agrees ─────┤
//!                             pulled on, with the objection   ◀── it does not ─────────────────┘
//! ```
//!
//! A memory only, and no judge of its own: who looks, says what looks how; [`super::Check`] asks. A restart forgets it, and then everything
//! looks so anew.

use crate::limits::{BRAKE_AGREED, BRAKE_CATCH_UP, BRAKE_NODES, BRAKE_PERCENT, BRAKE_WINDOW};
use crate::moment::after;
use kerf_model::{Text, UnixMillis};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// As what nodes are taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Looks {
    Empty,
    Gone,
    Expired,
    /// Machines of which no claim is known.
    Unclaimed,
}

impl Looks {
    pub const ALL: [Self; 4] = [Self::Empty, Self::Gone, Self::Expired, Self::Unclaimed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Gone => "gone",
            Self::Expired => "expired",
            Self::Unclaimed => "unclaimed",
        }
    }

    /// Who must agree.
    fn judge(self) -> &'static str {
        match self {
            Self::Empty => "a fresh list of pods",
            Self::Gone => "a fresh list of instances",
            Self::Expired => "the API server's own clock",
            Self::Unclaimed => "a fresh list of instances and NodeClaims",
        }
    }
}

/// What is known of nodes that look some way, by claim; of machines without one, by their provider's id.
#[derive(Debug, Default)]
pub struct Brake {
    looks: BTreeMap<Looks, Suspicion>,
}

#[derive(Debug, Default)]
struct Suspicion {
    /// Since when each looks so, as far as nobody has agreed.
    suspects: BTreeMap<Text, UnixMillis>,
    /// Those about which the fresh answer agreed, and when.
    agreed: BTreeMap<Text, UnixMillis>,
    pulled: Option<Pulled>,
}

/// Why the brake is pulled.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pulled {
    pub looks: Looks,
    /// How many looked so when it was pulled, of how many, and how many may.
    pub n_suspects: usize,
    pub n_nodes: usize,
    pub limit: usize,
    /// Why the fresh answer does not agree; None before there is one.
    pub objection: Option<String>,
}

impl fmt::Display for Pulled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { looks, n_suspects, n_nodes, limit, objection } = self;
        let minutes = BRAKE_WINDOW.as_secs() / 60;
        write!(
            f,
            "{n_suspects} of {n_nodes} nodes look {} within {minutes} minutes, more than {limit}: ",
            looks.as_str()
        )?;
        match objection {
            None => write!(f, "{} is asked for", looks.judge()),
            Some(objection) => write!(f, "{} does not agree: {objection}", looks.judge()),
        }
    }
}

/// How many of so many nodes may look some way before anybody is asked.
pub fn limit(n_nodes: usize, at_least: usize) -> usize {
    (n_nodes.saturating_mul(BRAKE_PERCENT) / 100).max(BRAKE_NODES).max(at_least)
}

impl Brake {
    /// These look so. Answers whether that pulled the brake.
    pub fn note<'a>(
        &mut self,
        looks: Looks,
        claims: impl IntoIterator<Item = &'a Text>,
        (n_nodes, limit): (usize, usize),
        now: UnixMillis,
    ) -> bool {
        let it = self.looks.entry(looks).or_default();
        it.forget_old(now);
        for claim in claims {
            if !it.agreed.contains_key(claim) {
                it.suspects.entry(claim.clone()).or_insert(now);
            }
        }
        if it.pulled.is_some() || it.suspects.len() <= limit {
            return false;
        }
        let n_suspects = it.suspects.len();
        it.pulled = Some(Pulled { looks, n_suspects, n_nodes: n_nodes.max(n_suspects), limit, objection: None });
        true
    }

    /// It does not look so any more.
    pub fn clear(&mut self, looks: Looks, claim: &str) {
        if let Some(it) = self.looks.get_mut(&looks) {
            it.suspects.remove(claim);
            it.agreed.remove(claim);
        }
    }

    /// Those that look so and about which nobody has agreed.
    pub fn suspects(&self, looks: Looks) -> impl Iterator<Item = (&Text, UnixMillis)> {
        self.looks.get(&looks).into_iter().flat_map(|it| it.suspects.iter().map(|(claim, since)| (claim, *since)))
    }

    pub fn is_suspect(&self, looks: Looks, claim: &str) -> bool {
        self.looks.get(&looks).is_some_and(|it| it.suspects.contains_key(claim))
    }

    /// Whether a fresh answer agreed just now that it looks so.
    pub fn has_just_agreed(&self, looks: Looks, claim: &str, now: UnixMillis) -> bool {
        let at = self.looks.get(&looks).and_then(|it| it.agreed.get(claim));
        at.is_some_and(|at| now <= after(*at, BRAKE_CATCH_UP))
    }

    /// Why it is pulled; the first reason of several.
    pub fn pulled(&self) -> Option<&Pulled> {
        Looks::ALL.into_iter().find_map(|looks| self.pulled_by(looks))
    }

    pub fn pulled_by(&self, looks: Looks) -> Option<&Pulled> {
        self.looks.get(&looks)?.pulled.as_ref()
    }

    /// It is pulled, and somebody is being asked: the answer is a matter of seconds.
    pub fn is_being_checked(&self) -> bool {
        self.pulled().is_some_and(|_| self.looks.values().flat_map(|it| &it.pulled).all(|it| it.objection.is_none()))
    }

    /// The answer to what was asked at a time agrees: whatever looked so by then does.
    pub fn agree(&mut self, looks: Looks, asked: UnixMillis, now: UnixMillis) {
        let it = self.looks.entry(looks).or_default();
        let (agreed, suspects) = std::mem::take(&mut it.suspects).into_iter().partition(|(_, since)| *since <= asked);
        let agreed: BTreeMap<Text, UnixMillis> = agreed;
        it.suspects = suspects;
        it.agreed.extend(agreed.into_keys().map(|claim| (claim, now)));
        it.pulled = None;
    }

    /// It does not agree, or there is none.
    pub fn object(&mut self, looks: Looks, objection: String) {
        if let Some(pulled) = self.looks.get_mut(&looks).and_then(|it| it.pulled.as_mut()) {
            pulled.objection = Some(objection);
        }
    }
}

impl Suspicion {
    fn forget_old(&mut self, now: UnixMillis) {
        let is_young = |at: &UnixMillis, within: Duration| now <= after(*at, within);
        self.agreed.retain(|_, at| is_young(at, BRAKE_AGREED));
        if self.pulled.is_none() {
            self.suspects.retain(|_, since| is_young(since, BRAKE_WINDOW));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(from: usize, to: usize) -> Vec<Text> {
        (from..to).map(|n| format!("c{n:03}").into()).collect()
    }

    fn at(seconds: i64) -> UnixMillis {
        UnixMillis(seconds * 1_000)
    }

    #[test]
    fn twenty_nodes_or_three_in_ten_or_what_is_set_may_go_unasked() {
        for (n_nodes, at_least, expected) in
            [(5, 0, 20), (66, 0, 20), (67, 0, 20), (70, 0, 21), (500, 0, 150), (500, 200, 200), (500, 100, 150)]
        {
            assert_eq!(limit(n_nodes, at_least), expected, "{n_nodes} {at_least}");
        }
    }

    #[test]
    fn one_more_than_the_limit_within_two_minutes_pulls_it_and_the_same_over_a_longer_time_does_not() {
        let size = (100, 30);
        let mut brake = Brake::default();
        assert!(!brake.note(Looks::Empty, &claims(0, 30), size, at(0)));
        assert!(!brake.note(Looks::Empty, &claims(0, 30), size, at(60)), "the same ones count once");
        assert!(!brake.note(Looks::Gone, &claims(30, 60), size, at(60)), "each look counts by itself");
        assert!(!brake.note(Looks::Empty, &claims(30, 60), size, at(121)), "the first are old");
        assert!(brake.note(Looks::Empty, &claims(60, 61), size, at(122)));
        assert!(!brake.note(Looks::Empty, &claims(61, 62), size, at(123)), "it is pulled already");
        let pulled = brake.pulled().unwrap();
        let words = "31 of 100 nodes look empty within 2 minutes, more than 30: a fresh list of pods is asked for";
        assert_eq!(pulled.to_string(), words);
        assert!(brake.is_being_checked());
    }

    #[test]
    fn only_what_looked_so_when_it_was_asked_is_agreed_upon() {
        let size = (100, 30);
        let mut brake = Brake::default();
        assert!(brake.note(Looks::Expired, &claims(0, 31), size, at(0)));
        brake.note(Looks::Expired, &claims(31, 35), size, at(5));
        brake.agree(Looks::Expired, at(1), at(6));
        assert!(brake.pulled().is_none());
        assert_eq!(brake.suspects(Looks::Expired).count(), 4);
        assert!(!brake.note(Looks::Expired, &claims(0, 60), size, at(60)), "29 new ones");
        assert!(brake.note(Looks::Expired, &claims(60, 62), size, at(61)));
    }

    #[test]
    fn an_objection_is_told_and_keeps_it_pulled_however_long_until_somebody_agrees() {
        let size = (100, 30);
        let mut brake = Brake::default();
        assert!(brake.note(Looks::Empty, &claims(0, 31), size, at(0)));
        brake.object(Looks::Empty, "node n runs pod p".to_owned());
        brake.note(Looks::Empty, &claims(0, 1), size, at(3_600));
        assert!(!brake.is_being_checked());
        assert!(
            brake.pulled().unwrap().to_string().ends_with("a fresh list of pods does not agree: node n runs pod p")
        );
        for claim in claims(0, 31) {
            brake.clear(Looks::Empty, &claim);
        }
        assert!(brake.pulled().is_some(), "nobody has agreed");
        brake.agree(Looks::Empty, at(3_600), at(3_601));
        assert!(brake.pulled().is_none());
    }
}
