//! Seeded dice: the same scene on every machine and every day.

/// SplitMix64. One stream per purpose, so that a new draw here does not shift the draws there.
pub(crate) struct Dice {
    state: u64,
}

impl Dice {
    pub(crate) fn new(scene: &str, purpose: &str) -> Self {
        // FNV-1a, so that a stream follows from its name.
        let state = scene
            .bytes()
            .chain([b'/'])
            .chain(purpose.bytes())
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Self { state }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `n`, which must not be zero. The bias of the remainder is below one in 2^50 for what we draw.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// True `percent` times out of a hundred.
    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_follows_from_its_name_alone() {
        let draw = |purpose| {
            let mut dice = Dice::new("scene", purpose);
            [dice.below(1000), dice.below(1000), dice.below(1000)]
        };
        assert_eq!(draw("pods"), draw("pods"));
        assert_ne!(draw("pods"), draw("nodes"));
    }
}
