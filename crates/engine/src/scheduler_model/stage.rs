//! The cluster while pods come: what each node has left, and what each class thinks of each node.

use super::load::Load;
use super::{Constraint, ModelClass, ModelNode, NO_ZONE, Rule, SplitMix64};
use std::collections::BTreeMap;

/// The cluster while pods come.
pub(super) struct Stage<'a> {
    classes: &'a [ModelClass],
    n_nodes: usize,
    n_dims: usize,
    n_zones: usize,
    kind: Vec<u32>,
    zone: Vec<u32>,
    /// Row by row.
    free: Vec<i64>,
    load: Vec<Load>,
    /// By group, then node.
    on_node: Vec<Vec<u32>>,
    in_all: Vec<u64>,
    lows: Vec<Low>,
    /// The rules of each class, ready for use.
    rules: Vec<Rules>,
    /// Lows that a group feeds.
    fed_by: Vec<Vec<usize>>,
    pub(super) opinions: Vec<Opinion>,
    /// Nodes that took a pod, in order.
    log: Vec<u32>,
    pub(super) steps: u64,
}

/// Counts of one group over the nodes that one set of kinds lets in, and the lowest of them.
struct Low {
    group: u32,
    kinds: Vec<bool>,
    by_zone: bool,
    /// By zone; unused by hostname.
    counts: Vec<u32>,
    /// Zones that have a node; by hostname the number of nodes says it.
    is_open: Vec<bool>,
    n_open: usize,
    least: u32,
    n_at_least: usize,
    /// Grows whenever `least` does, so that opinions know that they are old.
    version: u32,
}

#[derive(Default)]
struct Rules {
    host: Vec<ReadyRule>,
    zone: Vec<ReadyRule>,
}

struct ReadyRule {
    group: u32,
    counts_itself: bool,
    rule: Rule,
    low: usize,
}

/// What a class thinks of every node: 0 for "no", else its score plus one.
#[derive(Default)]
pub(super) struct Opinion {
    scores: Vec<u8>,
    read_to: usize,
    version: u64,
}

impl<'a> Stage<'a> {
    pub(super) fn new(nodes: &[ModelNode], classes: &'a [ModelClass]) -> Self {
        let n_dims = nodes.first().map_or(0, |node| node.free.len());
        let n_zones = length_for(nodes.iter().map(|node| node.zone).filter(|zone| *zone != NO_ZONE));
        let named = classes.iter().flat_map(|class| {
            let rules = class.per_host.iter().chain(&class.per_zone).map(|rule| rule.group);
            rules.chain(class.counts_in.iter().copied())
        });
        let counted = nodes.iter().flat_map(|node| node.counts.iter().map(|(group, _)| *group));
        let n_groups = length_for(counted.chain(named));
        let mut stage = Self {
            classes,
            n_nodes: nodes.len(),
            n_dims,
            n_zones,
            kind: nodes.iter().map(|node| node.kind).collect(),
            zone: nodes.iter().map(|node| node.zone).collect(),
            free: nodes.iter().flat_map(|node| node.free.iter().copied()).collect(),
            load: nodes.iter().map(Load::of).collect(),
            on_node: vec![Vec::new(); n_groups],
            in_all: vec![0; n_groups],
            lows: Vec::new(),
            rules: Vec::with_capacity(classes.len()),
            fed_by: vec![Vec::new(); n_groups],
            opinions: Vec::new(),
            log: Vec::new(),
            steps: 0,
        };
        stage.opinions.resize_with(classes.len(), Opinion::default);
        for (idx, node) in nodes.iter().enumerate() {
            for (group, count) in &node.counts {
                stage.in_all[*group as usize] += u64::from(*count);
                stage.on_node_mut(*group)[idx] += count;
            }
        }
        stage.set_rules();
        stage
    }

    fn on_node_mut(&mut self, group: u32) -> &mut Vec<u32> {
        let row = &mut self.on_node[group as usize];
        if row.is_empty() {
            row.resize(self.n_nodes, 0);
        }
        row
    }

    fn set_rules(&mut self) {
        let mut low_ids: BTreeMap<(u32, bool, &'a [bool]), usize> = BTreeMap::new();
        for class in self.classes {
            let mut rules = Rules::default();
            for (constraint, by_zone) in class
                .per_host
                .iter()
                .map(|constraint| (constraint, false))
                .chain(class.per_zone.iter().map(|constraint| (constraint, true)))
            {
                self.on_node_mut(constraint.group);
                let low = self.low(&mut low_ids, constraint, &class.kinds, by_zone);
                let list = if by_zone { &mut rules.zone } else { &mut rules.host };
                list.push(ReadyRule {
                    group: constraint.group,
                    counts_itself: class.counts_in.contains(&constraint.group),
                    rule: constraint.rule,
                    low,
                });
            }
            self.rules.push(rules);
        }
    }

    /// Skew looks only at nodes that the class may use; the other rules look at all.
    fn low(
        &mut self,
        ids: &mut BTreeMap<(u32, bool, &'a [bool]), usize>,
        constraint: &Constraint,
        kinds: &'a [bool],
        by_zone: bool,
    ) -> usize {
        let is_skew = matches!(constraint.rule, Rule::Skew { .. });
        let kinds = if is_skew { kinds } else { &[] };
        if let Some(id) = ids.get(&(constraint.group, by_zone, kinds)) {
            return *id;
        }
        let id = self.lows.len();
        ids.insert((constraint.group, by_zone, kinds), id);
        let mut low = Low {
            group: constraint.group,
            kinds: kinds.to_vec(),
            by_zone,
            counts: vec![0; if by_zone { self.n_zones } else { 0 }],
            is_open: vec![false; if by_zone { self.n_zones } else { 0 }],
            n_open: 0,
            least: 0,
            n_at_least: 0,
            version: 0,
        };
        for node in 0..self.n_nodes {
            let zone = self.zone[node];
            if low.sees(self.kind[node]) && by_zone && zone != NO_ZONE {
                low.counts[zone as usize] += self.on_node[constraint.group as usize][node];
                low.is_open[zone as usize] = true;
            }
        }
        low.recount(&self.on_node[constraint.group as usize], &self.kind);
        self.lows.push(low);
        self.fed_by[constraint.group as usize].push(id);
        id
    }

    pub(super) fn choose(&mut self, class: usize, draw: &mut SplitMix64) -> Option<usize> {
        self.refresh(class);
        let scores = &self.opinions[class].scores;
        if self.rules[class].zone.is_empty() {
            let best = scores.iter().copied().max().filter(|best| *best > 0)?;
            let n_best = scores.iter().filter(|score| **score == best).count();
            let pick = draw.below(n_best as u64) as usize;
            return scores.iter().enumerate().filter(|(_, score)| **score == best).nth(pick).map(|(node, _)| node);
        }
        let open: Vec<bool> = (0..self.n_zones).map(|zone| self.zone_lets_in(class, zone)).collect();
        let lets_in = |node: usize| open.get(self.zone[node] as usize).copied().unwrap_or(false);
        let mut best = 0;
        let mut n_best = 0;
        for (node, score) in scores.iter().enumerate() {
            if *score >= best && *score > 0 && lets_in(node) {
                n_best = if *score > best { 1 } else { n_best + 1 };
                best = *score;
            }
        }
        if n_best == 0 {
            return None;
        }
        let pick = draw.below(n_best) as usize;
        (0..self.n_nodes).filter(|node| scores[*node] == best && lets_in(*node)).nth(pick)
    }

    /// Brings a class's opinions up to date: of the nodes that changed, or of all.
    fn refresh(&mut self, class: usize) {
        let version: u64 = self.rules[class].host.iter().map(|rule| u64::from(self.lows[rule.low].version)).sum();
        let mut opinion = std::mem::take(&mut self.opinions[class]);
        let is_new = opinion.scores.is_empty();
        let behind = self.log.len() - opinion.read_to;
        if is_new || opinion.version != version || behind > self.n_nodes {
            opinion.scores.clear();
            opinion.scores.extend((0..self.n_nodes).map(|node| self.score(class, node)));
            self.steps += self.n_nodes as u64;
        } else {
            for node in &self.log[opinion.read_to..] {
                opinion.scores[*node as usize] = self.score(class, *node as usize);
            }
            self.steps += behind as u64 + 1;
        }
        opinion.read_to = self.log.len();
        opinion.version = version;
        self.opinions[class] = opinion;
    }

    fn score(&self, class_idx: usize, node: usize) -> u8 {
        let class = &self.classes[class_idx];
        let kind_fits = class.kinds.get(self.kind[node] as usize).copied().unwrap_or(false);
        let free = &self.free[node * self.n_dims..(node + 1) * self.n_dims];
        let fits = class.requests.iter().zip(free).all(|(needs, has)| *needs <= 0 || needs <= has);
        if !kind_fits || !fits {
            return 0;
        }
        for rule in &self.rules[class_idx].host {
            let count = self.on_node[rule.group as usize][node] + u32::from(rule.counts_itself);
            let lets_in = match rule.rule {
                Rule::AtMost(cap) => count <= cap,
                Rule::Skew { max_skew, min_domains } => {
                    count <= self.lows[rule.low].floor(min_domains).saturating_add(max_skew)
                }
                Rule::Near => {
                    self.on_node[rule.group as usize][node] > 0
                        || (self.in_all[rule.group as usize] == 0 && rule.counts_itself)
                }
            };
            if !lets_in {
                return 0;
            }
        }
        self.load[node].score(class.cpu, class.memory) + 1
    }

    fn zone_lets_in(&self, class: usize, zone: usize) -> bool {
        self.rules[class].zone.iter().all(|rule| {
            let low = &self.lows[rule.low];
            let present = low.counts[zone];
            let count = present + u32::from(rule.counts_itself);
            match rule.rule {
                Rule::AtMost(cap) => count <= cap,
                Rule::Skew { max_skew, min_domains } => count <= low.floor(min_domains).saturating_add(max_skew),
                Rule::Near => present > 0 || (self.in_all[rule.group as usize] == 0 && rule.counts_itself),
            }
        })
    }

    pub(super) fn bind(&mut self, class_idx: usize, node: usize) {
        let class = &self.classes[class_idx];
        let free = &mut self.free[node * self.n_dims..(node + 1) * self.n_dims];
        for (has, needs) in free.iter_mut().zip(&class.requests) {
            *has -= needs;
        }
        self.load[node].add(class.cpu, class.memory);
        for group in &class.counts_in {
            let row = &mut self.on_node[*group as usize];
            if row.is_empty() {
                continue; // Nobody asks about this group.
            }
            row[node] += 1;
            let now = row[node];
            let is_first = self.in_all[*group as usize] == 0;
            self.in_all[*group as usize] += 1;
            for low in &self.fed_by[*group as usize] {
                let low = &mut self.lows[*low];
                if is_first {
                    low.version += 1; // Whoever may be the first of a group now must be near it.
                }
                if low.sees(self.kind[node]) {
                    low.rise(now, self.zone[node], &self.on_node, &self.kind);
                }
            }
        }
        self.log.push(node as u32);
    }
}

impl Low {
    /// An empty list of kinds sees every node.
    fn sees(&self, kind: u32) -> bool {
        self.kinds.is_empty() || self.kinds.get(kind as usize).copied().unwrap_or(false)
    }

    fn floor(&self, min_domains: u32) -> u32 {
        if self.n_open < min_domains as usize { 0 } else { self.least }
    }

    /// One more pod of the group is on a node that this sees; `now` on that node.
    fn rise(&mut self, now: u32, zone: u32, on_node: &[Vec<u32>], kind: &[u32]) {
        let now = if !self.by_zone {
            now
        } else if zone == NO_ZONE {
            return;
        } else {
            self.counts[zone as usize] += 1;
            self.counts[zone as usize]
        };
        if now == self.least + 1 {
            self.n_at_least -= 1;
            if self.n_at_least == 0 {
                self.recount(&on_node[self.group as usize], kind);
                self.version += 1;
            }
        }
    }

    fn recount(&mut self, on_node: &[u32], kind: &[u32]) {
        let mut least = u32::MAX;
        let mut n_at_least = 0;
        let mut n_open = 0;
        let mut see = |count: u32| {
            n_open += 1;
            if count < least {
                (least, n_at_least) = (count, 1);
            } else if count == least {
                n_at_least += 1;
            }
        };
        if self.by_zone {
            for (count, is_open) in self.counts.iter().zip(&self.is_open) {
                if *is_open {
                    see(*count);
                }
            }
        } else {
            for (count, kind) in on_node.iter().zip(kind) {
                if self.sees(*kind) {
                    see(*count);
                }
            }
        }
        self.least = if n_open == 0 { 0 } else { least };
        self.n_at_least = n_at_least;
        self.n_open = n_open;
    }
}

/// How long a list must be to have all these indices.
fn length_for(indices: impl Iterator<Item = u32>) -> usize {
    indices.max().map_or(0, |last| last as usize + 1)
}
