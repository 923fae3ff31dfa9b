//! Chance from a seed: the same scenes on every machine.

pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64, stream: usize) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ ((stream as u64 + 1) << 32))
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From `low` up to and without `high`.
    pub(crate) fn range(&mut self, low: usize, high: usize) -> usize {
        low + usize::try_from(self.roll() % (high - low) as u64).unwrap()
    }

    pub(crate) fn percent(&mut self, chance: usize) -> bool {
        self.range(0, 100) < chance
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.range(0, from.len())]
    }
}
