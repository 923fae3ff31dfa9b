//! Sets of small indices.

/// A set of indices below a fixed size, one bit each.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    pub(crate) fn none(size: usize) -> Self {
        Self(vec![0; size.div_ceil(64)])
    }

    pub(crate) fn insert(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    pub(crate) fn has(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    pub(crate) fn and(&mut self, other: &Bits) {
        for (word, theirs) in self.0.iter_mut().zip(&other.0) {
            *word &= theirs;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(position, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                Some(position * 64 + bit)
            })
        })
    }
}
