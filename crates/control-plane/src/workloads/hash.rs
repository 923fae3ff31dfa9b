//! The short names of templates: `5d4f8c7b9`.

use serde::Serialize;

/// The letters of the real encoding: no vowels, and nothing that is easily mistaken for something else.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A hash of anything that serialises. `collisions` is counted up by the owner when two templates happen to share a hash.
pub(crate) fn short_hash<T: Serialize>(value: &T, collisions: Option<i32>) -> String {
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut hash = fnv32a(0x811c_9dc5, &text);
    if let Some(collisions) = collisions {
        hash = fnv32a(hash, &collisions.to_le_bytes());
    }
    safe(&hash.to_string())
}

/// Each byte becomes one of the letters, as the real controllers encode the decimal form of a hash.
fn safe(text: &str) -> String {
    text.bytes().map(|byte| char::from(LETTERS[usize::from(byte) % LETTERS.len()])).collect()
}

pub(crate) fn fnv32a(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_looks_like_the_real_ones_and_follows_from_what_is_hashed() {
        let one = short_hash(&"template", None);
        assert!(one.len() >= 6 && one.len() <= 10 && one.bytes().all(|b| LETTERS.contains(&b)), "{one}");
        assert_eq!(one, short_hash(&"template", None));
        assert_ne!(one, short_hash(&"template", Some(1)));
        assert_ne!(one, short_hash(&"other", None));
    }

    #[test]
    fn the_encoding_is_the_real_one() {
        // FNV-1a of "hello", and the letters for the ten digits.
        assert_eq!(fnv32a(0x811c_9dc5, b"hello"), 0x4f9f_2cab);
        assert_eq!(safe("0123456789"), "456789bcdf");
    }
}
