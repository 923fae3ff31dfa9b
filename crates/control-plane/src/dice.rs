//! Chance, from one seed: uids, name suffixes, and a stream for each controller.

/// A stream of numbers that follows from its seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

/// The letters of generated names: no vowels, so that no words appear, and nothing that looks like something else.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

impl Dice {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream of its own for each purpose, so that a draw here does not shift the draws there.
    #[must_use]
    pub fn for_purpose(seed: u64, purpose: &str) -> Self {
        let hash = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Self(seed ^ hash)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A version 4 UUID.
    pub fn uid(&mut self) -> String {
        let (high, low) = (self.roll(), self.roll());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | ((low >> 48) & 0x3fff),
            low & 0xffff_ffff_ffff,
        )
    }

    /// Five letters, as `generateName` appends.
    pub fn suffix(&mut self) -> String {
        let mut drawn = self.roll();
        (0..5)
            .map(|_| {
                let letter = LETTERS[(drawn % LETTERS.len() as u64) as usize];
                drawn /= LETTERS.len() as u64;
                char::from(letter)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_uids_and_another_purpose_gives_others() {
        let uids = |mut dice: Dice| [dice.uid(), dice.uid()];
        assert_eq!(uids(Dice::for_purpose(1, "a")), uids(Dice::for_purpose(1, "a")));
        assert_ne!(uids(Dice::for_purpose(1, "a")), uids(Dice::for_purpose(1, "b")));
        let uid = Dice::new(7).uid();
        assert_eq!((uid.len(), uid.as_bytes()[14]), (36, b'4'));
        assert_eq!(Dice::new(7).suffix().len(), 5);
    }
}
