//! Values that come again and again, kept once: the names of labels and resources, the zones of ten thousand offerings.
//!
//! Sharing is by thread and for a while: when a thread has met too many different values, it starts anew. Equal values are equal either way.

use crate::ids::Text;
use crate::requirement::Requirements;
use rustc_hash::FxHashSet;
use std::borrow::Borrow;
use std::cell::RefCell;
use std::hash::Hash;
use std::sync::Arc;

/// Enough for the labels of many thousand nodes.
const REMEMBERED_MAX: usize = 16_384;

thread_local! {
    static TEXTS: RefCell<FxHashSet<Text>> = RefCell::default();
    static REQUIREMENTS: RefCell<FxHashSet<Arc<Requirements>>> = RefCell::default();
}

pub fn shared_text(text: &str) -> Text {
    TEXTS.with_borrow_mut(|known| share(known, text, |new| Text::from(new)))
}

pub fn shared_requirements(requirements: &Requirements) -> Arc<Requirements> {
    REQUIREMENTS.with_borrow_mut(|known| share(known, requirements, |new| Arc::new(new.clone())))
}

fn share<B: Hash + Eq + ?Sized, T: Borrow<B> + Hash + Eq + Clone>(
    known: &mut FxHashSet<T>,
    value: &B,
    make: impl FnOnce(&B) -> T,
) -> T {
    if let Some(known) = known.get(value) {
        return known.clone();
    }
    if known.len() >= REMEMBERED_MAX {
        known.clear();
    }
    let new = make(value);
    known.insert(new.clone());
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one_until_too_many_were_met() {
        let first = shared_text("topology.kubernetes.io/zone");
        assert!(Arc::ptr_eq(&first, &shared_text("topology.kubernetes.io/zone")));
        for number in 0..2 * REMEMBERED_MAX {
            shared_text(&number.to_string());
        }
        assert!(TEXTS.with_borrow(FxHashSet::len) <= REMEMBERED_MAX);
        assert_eq!(first, shared_text("topology.kubernetes.io/zone"));
    }
}
