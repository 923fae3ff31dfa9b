//! Which domain of a topology key each host is in, and who else is there.

use super::market::{Market, Reach};
use super::picture::{Claim, Picture, Site, node_label};
use kerf_model::{BoundShape, Text, labels};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub(super) struct Domains<'p, 'a> {
    picture: &'p Picture<'a>,
    keys: BTreeMap<Text, Rc<KeyView>>,
    /// Bound pods by what topology can see of them.
    pub(super) shapes: Vec<Bound<'a>>,
}

pub(super) struct Bound<'a> {
    pub(super) shape: &'a BoundShape,
    /// Node index and number of pods.
    pub(super) on: Vec<(usize, u32)>,
}

/// One topology key: its domains, and where each host is.
#[derive(Default)]
pub(super) struct KeyView {
    pub(super) names: Vec<Text>,
    pub(super) ids: BTreeMap<Text, u32>,
    pub(super) of_host: Vec<Whereabouts>,
}

/// The domains that a host may come to be in; none when it has no such label.
#[derive(Debug, Clone, Default)]
pub(super) struct Whereabouts {
    pub(super) ids: Vec<u32>,
    /// The label may have values that nobody can list.
    pub(super) is_open: bool,
}

impl Whereabouts {
    pub(super) fn pinned(&self) -> Option<u32> {
        match self.ids[..] {
            [only] if !self.is_open => Some(only),
            _ => None,
        }
    }
}

impl<'p, 'a> Domains<'p, 'a> {
    pub(super) fn new(picture: &'p Picture<'a>) -> Self {
        let mut shapes: BTreeMap<&BoundShape, Vec<(usize, u32)>> = BTreeMap::new();
        for group in &picture.snapshot.bound {
            // Pods of a leaving node are about to be somewhere else; who waits for a place is among the pending.
            if group.n_pods == 0 || !picture.stays(group.node.0 as usize) {
                continue;
            }
            shapes.entry(&group.shape).or_default().push((group.node.0 as usize, group.n_pods));
        }
        Self {
            picture,
            keys: BTreeMap::new(),
            shapes: shapes.into_iter().map(|(shape, on)| Bound { shape, on }).collect(),
        }
    }

    pub(super) fn key(&mut self, key: &Text, market: &mut Market<'a>) -> Rc<KeyView> {
        if let Some(view) = self.keys.get(key) {
            return Rc::clone(view);
        }
        let mut view = KeyView::default();
        for host in &self.picture.hosts {
            let whereabouts = match &host.site {
                Site::Node(node) => {
                    let ids = node_label(node, key).map(|value| view.id(value));
                    Whereabouts { ids: ids.into_iter().collect(), is_open: false }
                }
                Site::Claim(_) if &**key == labels::HOSTNAME => {
                    // No node can have a slash in its name.
                    let ids = vec![view.id(&format!("claim/{}", host.name).into())];
                    Whereabouts { ids, is_open: false }
                }
                Site::Claim(claim) => match claim_reach(claim, key, market) {
                    Reach::Anything => Whereabouts { ids: Vec::new(), is_open: true },
                    Reach::Values(values) => {
                        let ids = values.iter().map(|value| view.id(value)).collect();
                        Whereabouts { ids, is_open: false }
                    }
                },
            };
            view.of_host.push(whereabouts);
        }
        view.close();
        let view = Rc::new(view);
        self.keys.insert(key.clone(), Rc::clone(&view));
        view
    }
}

impl KeyView {
    fn id(&mut self, value: &Text) -> u32 {
        if let Some(id) = self.ids.get(value) {
            return *id;
        }
        let id = self.names.len() as u32;
        self.names.push(value.clone());
        self.ids.insert(value.clone(), id);
        id
    }

    /// What may be anywhere may be in every known domain, and in one more that nobody knows.
    fn close(&mut self) {
        if self.of_host.iter().any(|host| host.is_open) {
            self.id(&"(unknown)".into());
            let all: Vec<u32> = (0..self.names.len() as u32).collect();
            for host in self.of_host.iter_mut().filter(|host| host.is_open) {
                host.ids.clone_from(&all);
            }
        }
    }
}

fn claim_reach<'a>(claim: &Claim<'a>, key: &Text, market: &mut Market<'a>) -> Reach {
    let mut values = BTreeSet::new();
    for idx in &claim.options {
        match market.reach(claim.supply, *idx, key) {
            Reach::Values(more) => values.extend(more),
            Reach::Anything => return Reach::Anything,
        }
    }
    Reach::Values(values)
}
