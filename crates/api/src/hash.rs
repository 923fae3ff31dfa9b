//! Drift hashes: a template as a number.
//!
//! Claims made by an operator that came before us carry these numbers, so ours must come out the same to the last bit,
//! or a takeover would replace every node. Only values, order and names of the hashed fields matter; they are spelled
//! out here and frozen by test vectors.
//!
//! Caveat: `timeAdded` of a taint is left out. Nobody writes it into a template.

mod ec2_node_class;
mod node_pool;

pub use ec2_node_class::VERSION as EC2_NODE_CLASS_HASH_VERSION;
pub use node_pool::VERSION as NODE_POOL_HASH_VERSION;

/// 64-bit FNV-1: multiply, then xor (FNV-1a does it the other way round). Also names instance profiles on AWS.
pub fn fnv1(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| hash.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(*byte))
}

fn of_text(text: &str) -> u64 {
    fnv1(text.as_bytes())
}

fn of_bool(flag: bool) -> u64 {
    fnv1(&[u8::from(flag)])
}

fn of_i32(number: i32) -> u64 {
    fnv1(&number.to_le_bytes())
}

fn of_i64(number: i64) -> u64 {
    fnv1(&number.to_le_bytes())
}

fn pair(a: u64, b: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&a.to_le_bytes());
    bytes[8..].copy_from_slice(&b.to_le_bytes());
    fnv1(&bytes)
}

fn finish(a: u64) -> u64 {
    fnv1(&a.to_le_bytes())
}

fn of_map<'a>(entries: impl IntoIterator<Item = (&'a String, &'a String)>) -> u64 {
    finish(entries.into_iter().fold(0, |hash, (key, value)| hash ^ pair(of_text(key), of_text(value))))
}

/// Order does not matter, and two equal items cancel out.
fn of_list(items: impl IntoIterator<Item = u64>) -> u64 {
    items.into_iter().fold(0, |hash, item| hash ^ item)
}

/// A struct, field by field in the order of the original declaration. A field that is absent (or zero, where zero means
/// absent) is `None` and leaves no trace.
struct OfStruct(u64);

impl OfStruct {
    fn named(name: &str) -> Self {
        Self(of_text(name))
    }

    fn field(self, name: &str, value: Option<u64>) -> Self {
        match value {
            Some(value) => Self(finish(self.0 ^ pair(of_text(name), value))),
            None => self,
        }
    }

    fn text(self, name: &str, value: Option<&String>) -> Self {
        self.field(name, value.map(|text| of_text(text)))
    }

    /// A plain string: the empty one counts as absent.
    fn plain_text(self, name: &str, value: &str) -> Self {
        self.field(name, (!value.is_empty()).then(|| of_text(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv1_is_not_fnv1a() {
        assert_eq!(fnv1(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1(b"a"), 0xaf63_bd4c_8601_b7be);
        assert_eq!(fnv1(b"foobar"), 0x340d_8765_a4dd_a9c2);
    }

    #[test]
    fn equal_items_of_a_list_cancel_out() {
        assert_eq!(of_list([7, 9, 7]), 9);
        assert_eq!(of_list([]), 0);
    }
}
