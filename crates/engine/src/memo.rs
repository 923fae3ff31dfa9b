//! Remembered answers. Only looked up by key, never walked, so the order inside cannot reach a plan.

use std::hash::Hash;

#[derive(Debug, Clone)]
#[expect(clippy::disallowed_types, reason = "looked up by key only: nothing here can be iterated")]
pub(crate) struct Memo<K, V>(std::collections::HashMap<K, V, rustc_hash::FxBuildHasher>);

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self(Default::default())
    }
}

impl<K: Hash + Eq, V> Memo<K, V> {
    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.0.get(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.0.insert(key, value);
    }
}
