//! Chance without a state: a draw follows from the seed, what it is for, and what it is about.
//!
//! Draws of one purpose therefore do not shift those of another, and the order of questions changes no answer.

/// The source of all draws of one world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chance {
    seed: u64,
}

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// 64 bits for one purpose and one subject.
    pub(crate) fn bits(self, purpose: &str, subject: &str, number: u64) -> u64 {
        let hash = [purpose, "\0", subject].iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, part| fold(hash, part));
        mix(mix(hash ^ mix(self.seed)) ^ mix(number.wrapping_add(1)))
    }

    /// A number from 0 up to, but not including, 1.
    pub(crate) fn share(self, purpose: &str, subject: &str, number: u64) -> f64 {
        // 53 bits are what a float can hold.
        (self.bits(purpose, subject, number) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// So many hexadecimal digits, at most 16.
    pub(crate) fn hex(self, purpose: &str, subject: &str, n_digits: usize) -> String {
        let mut digits = format!("{:016x}", self.bits(purpose, subject, 0));
        digits.truncate(n_digits);
        digits
    }
}

/// Continues an FNV-1a hash.
fn fold(hash: u64, text: &str) -> u64 {
    text.bytes().fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The finishing step of splitmix64: every bit of the input moves every bit of the output.
fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_follows_from_seed_purpose_subject_and_number_alone() {
        let draw = |seed, purpose, subject, number| Chance::new(seed).bits(purpose, subject, number);
        let first = draw(1, "a", "x", 0);
        assert_eq!(first, draw(1, "a", "x", 0));
        for other in [draw(2, "a", "x", 0), draw(1, "b", "x", 0), draw(1, "a", "y", 0), draw(1, "a", "x", 1)] {
            assert_ne!(first, other);
        }
        assert_ne!(draw(1, "ab", "c", 0), draw(1, "a", "bc", 0));
    }

    #[test]
    fn shares_are_spread_evenly() {
        let chance = Chance::new(7);
        let n_below = (0..10_000).filter(|n| chance.share("spread", "x", *n) < 0.25).count();
        assert!((2_300..2_700).contains(&n_below), "{n_below} of 10000 below a quarter");
        assert_eq!(chance.hex("id", "x", 16).len(), 16);
    }
}
