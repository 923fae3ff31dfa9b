//! The desk: the question at hand, and answers that need not be found twice.

use crate::domains::Pins;
use crate::market::Market;
use crate::memo::Memo;
use crate::problem::{NodeMemo, Problem};
use crate::scope::{ScopeId, Scopes, SigId};
use kerf_model::Requirement;
use std::sync::Arc;

/// What the search needs beside the draft: the question, and remembered answers.
#[derive(Clone)]
pub(crate) struct Desk<'p, 'a> {
    pub(crate) problem: &'p Problem<'a>,
    pub(crate) scopes: Scopes,
    node_memo: NodeMemo,
    nodes_in: Memo<(usize, usize), Arc<[usize]>>,
    scope_domains: Memo<(ScopeId, usize), Arc<[usize]>>,
    sig_domains: Memo<(SigId, usize), Arc<[usize]>>,
    all_nodes: Arc<[usize]>,
}

impl<'p, 'a> Desk<'p, 'a> {
    pub(crate) fn new(problem: &'p Problem<'a>, scopes: Scopes) -> Self {
        Self {
            problem,
            scopes,
            node_memo: NodeMemo::default(),
            nodes_in: Memo::default(),
            scope_domains: Memo::default(),
            sig_domains: Memo::default(),
            all_nodes: (0..problem.nodes.len()).collect(),
        }
    }

    pub(crate) fn market(&self) -> &'p Market<'a> {
        &self.problem.market
    }

    pub(crate) fn join(&mut self, scope: ScopeId, sig: SigId) -> Option<ScopeId> {
        self.scopes.join(&self.problem.market, scope, sig)
    }

    /// Whether nodes of this kind take pods with this signature and these tolerations.
    pub(crate) fn accepts(&mut self, sig: SigId, tolerance: u32, kind: u32) -> bool {
        self.problem.node_accepts(&self.scopes, &mut self.node_memo, sig, tolerance, kind)
    }

    /// Nodes that the pins allow, judged by the first of them.
    pub(crate) fn nodes_with(&mut self, pins: &Pins) -> Arc<[usize]> {
        let Some(first) = pins.first() else { return Arc::clone(&self.all_nodes) };
        if let Some(known) = self.nodes_in.get(first) {
            return Arc::clone(known);
        }
        let of_node = &self.problem.groups.keys[first.0].of_node;
        let is_there = |node: &usize| of_node[*node] == Some(first.1 as u32);
        let nodes: Arc<[usize]> = (0..of_node.len()).filter(is_there).collect();
        self.nodes_in.insert(*first, Arc::clone(&nodes));
        nodes
    }

    /// Domains of a key that a signature allows.
    pub(crate) fn domains_of_sig(&mut self, sig: SigId, key: usize) -> Arc<[usize]> {
        if let Some(known) = self.sig_domains.get(&(sig, key)) {
            return Arc::clone(known);
        }
        let facts = &self.problem.groups.keys[key];
        let domains = allowed_domains(facts, self.scopes.sig(sig).requirements.get(&facts.key));
        self.sig_domains.insert((sig, key), Arc::clone(&domains));
        domains
    }

    /// Domains of a key in which a new node of this scope could come to be.
    pub(crate) fn domains_of_scope(&mut self, scope: ScopeId, key: usize) -> Arc<[usize]> {
        if let Some(known) = self.scope_domains.get(&(scope, key)) {
            return Arc::clone(known);
        }
        let facts = &self.problem.groups.keys[key];
        let domains = allowed_domains(facts, self.scopes.get(scope).requirements.get(&facts.key));
        self.scope_domains.insert((scope, key), Arc::clone(&domains));
        domains
    }
}

fn allowed_domains(key: &crate::topology::Key, asked: Option<&Requirement>) -> Arc<[usize]> {
    let allowed = |domain: &usize| asked.is_none_or(|asked| asked.has(&key.values[*domain]));
    (0..key.values.len()).filter(allowed).collect()
}
