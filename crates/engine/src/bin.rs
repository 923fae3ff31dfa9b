//! Bins: a node that is there or one to be bought, and what has been put into it.

use crate::market::Dim;
use crate::problem::Problem;
use crate::scope::ScopeId;
use kerf_model::HostPort;
use std::borrow::Cow;

/// Where the pods of a bin will run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// Index into `Problem::nodes`.
    Node(usize),
    New {
        scope: ScopeId,
        choice: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) class: u32,
    pub(crate) variant: u32,
    pub(crate) n: u32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct HostCount {
    pub(crate) group: u32,
    pub(crate) matched: u32,
    pub(crate) owners: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Bin {
    pub(crate) home: Home,
    /// For a node what is free, for a new bin what is in it.
    pub(crate) amounts: Vec<i64>,
    pub(crate) contents: Vec<Content>,
    pub(crate) host: Vec<HostCount>,
    pub(crate) ports: Vec<HostPort>,
    /// Reservations of which this bin holds a unit.
    pub(crate) held: Vec<usize>,
    /// Room that the machine must have whatever is in it, so that kube-scheduler finds what was planned. May be empty.
    pub(crate) at_least: Vec<i64>,
}

impl Bin {
    pub(crate) fn empty(scope: ScopeId, n_dims: usize) -> Self {
        Self {
            home: Home::New { scope, choice: 0 },
            amounts: vec![0; n_dims],
            contents: Vec::new(),
            host: Vec::new(),
            ports: Vec::new(),
            held: Vec::new(),
            at_least: Vec::new(),
        }
    }

    /// What the next pods of a class ask of this bin, and how many may be asked for at once: the first pod attaches the
    /// volumes that all of them share, unless the node has them already.
    pub(crate) fn requests_of<'p>(&self, problem: &'p Problem<'_>, class: usize, want: u32) -> (Cow<'p, [i64]>, u32) {
        let facts = &problem.classes[class];
        if facts.shared.is_empty() || self.contents.iter().any(|content| content.class == class as u32) {
            return (Cow::Borrowed(&facts.requests), want);
        }
        let mut requests = facts.requests.clone();
        let volumes = &problem.demand(class).volumes.attachments;
        for (dim, kind) in problem.market.dims.0.iter().enumerate() {
            let Dim::Attachments(driver) = kind else { continue };
            let there = match self.home {
                Home::Node(node) => problem.nodes[node].node.attached.get(driver),
                Home::New { .. } => None,
            };
            let is_there = |volume: &&kerf_model::Text| there.is_some_and(|there| there.contains(*volume));
            let n_there = volumes.get(driver).map_or(0, |wanted| wanted.iter().filter(is_there).count());
            requests[dim] += facts.shared[dim] - n_there as i64;
        }
        (Cow::Owned(requests), want.min(1))
    }

    /// How many more pods of a class the neighbours in this bin allow; `total` counts selected pods anywhere.
    pub(crate) fn host_room(&self, problem: &Problem<'_>, total: &[u32], class: usize, variant: usize) -> u32 {
        let room = self.dealt_room(problem, total, class, variant);
        if room == 0 { 0 } else { room.min(self.spread_room(problem, class, variant)) }
    }

    /// What hostname spreads allow while some node may still be empty: then the least count is zero.
    fn spread_room(&self, problem: &Problem<'_>, class: usize, variant: usize) -> u32 {
        let mut room = u32::MAX;
        let wish = &problem.classes[class].variants[variant];
        for term in wish.spreads.iter().filter(|term| problem.groups.is_host(term.group)) {
            let there = self.matched_on_host(term.group);
            if term.is_self {
                room = room.min(term.max_skew.saturating_sub(there));
            } else if there > term.max_skew {
                return 0;
            }
        }
        room
    }

    /// The same without hostname spreads, for dealing: there all nodes rise together.
    pub(crate) fn dealt_room(&self, problem: &Problem<'_>, total: &[u32], class: usize, variant: usize) -> u32 {
        let facts = &problem.classes[class];
        let wish = &facts.variants[variant];
        let groups = &problem.groups;
        let count = |group: u32| self.host.iter().find(|count| count.group == group);
        let matched = |group: u32| count(group).map_or(0, |count| count.matched);
        let mut room = u32::MAX;
        for term in wish.anti_affinity.iter().filter(|term| groups.is_host(term.group)) {
            if matched(term.group) > 0 {
                return 0;
            }
            if term.is_self {
                room = 1;
            }
        }
        if !self.host.is_empty()
            && facts.counted.iter().any(|group| count(*group).is_some_and(|count| count.owners > 0))
        {
            return 0;
        }
        for term in wish.affinity.iter().filter(|term| groups.is_host(term.group)) {
            if matched(term.group) == 0 {
                if !(term.is_self && total[term.group as usize] == 0) {
                    return 0;
                }
                room = room.min(1);
            }
        }
        let ports = &problem.demand(class).host_ports;
        if !ports.is_empty() {
            if ports.iter().any(|port| self.ports.iter().any(|taken| taken.conflicts(port))) {
                return 0;
            }
            room = room.min(1);
        }
        room
    }

    /// Notes pods as being here: for their neighbours, their ports and the list of contents.
    pub(crate) fn note(&mut self, problem: &Problem<'_>, class: usize, variant: usize, n: u32) {
        let facts = &problem.classes[class];
        for group in &facts.counted {
            self.count_on_host(problem, *group, n, 0);
        }
        for term in facts.variants[variant].spreads.iter().filter(|term| term.is_self) {
            self.count_on_host(problem, term.group, n, 0);
        }
        for group in &facts.owns {
            self.count_on_host(problem, *group, 0, n);
        }
        self.ports.extend(problem.demand(class).host_ports.iter().cloned());
        let (class, variant) = (class as u32, variant as u32);
        match self.contents.iter_mut().rfind(|content| (content.class, content.variant) == (class, variant)) {
            Some(content) => content.n += n,
            None => self.contents.push(Content { class, variant, n }),
        }
    }

    fn count_on_host(&mut self, problem: &Problem<'_>, group: u32, matched: u32, owners: u32) {
        if !problem.groups.is_host(group) {
            return;
        }
        match self.host.iter_mut().find(|count| count.group == group) {
            Some(count) => {
                count.matched += matched;
                count.owners += owners;
            }
            None => self.host.push(HostCount { group, matched, owners }),
        }
    }

    pub(crate) fn matched_on_host(&self, group: u32) -> u32 {
        self.host.iter().find(|count| count.group == group).map_or(0, |count| count.matched)
    }
}
