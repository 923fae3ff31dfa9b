//! Objects that nobody has changed for a while, kept as what sets them apart from others of their kind.
//!
//! A hundred thousand pods differ in names, addresses and times, and are otherwise a few texts again and again: the fields that each
//! manager owns, the defaults, the statuses. LZ4 with some objects of the kind as its dictionary keeps a tenth of them, and is some
//! copies of bytes away.

use std::sync::Arc;

use bytes::Bytes;
use lz4_flex::block;

/// Each object that is packed pays for the dictionary's length in time.
const DICTIONARY_MAX: usize = 16 << 10;

/// Learns what the objects of one kind have in common.
#[derive(Debug, Default)]
pub(super) struct Packer {
    /// Only grows; what was packed with a shorter one keeps that one.
    dictionary: Arc<[u8]>,
}

/// An object, small.
#[derive(Debug)]
pub(super) struct Packed {
    dictionary: Arc<[u8]>,
    block: Box<[u8]>,
    n_bytes: usize,
}

impl Packer {
    pub(super) fn pack(&mut self, text: &[u8]) -> Packed {
        let mut block = block::compress_with_dict(text, &self.dictionary);
        // Not like anything seen before: others may be like it. A pod that runs is much like one that does not, and still worth it.
        let is_new = block.len() > (text.len() / 3).min(512).max(text.len() / 8);
        if is_new && self.dictionary.len() + text.len() <= DICTIONARY_MAX {
            self.dictionary = [&self.dictionary, text].concat().into();
            block = block::compress_with_dict(text, &self.dictionary);
        }
        Packed { dictionary: Arc::clone(&self.dictionary), block: block.into_boxed_slice(), n_bytes: text.len() }
    }
}

impl Packed {
    pub(super) fn unpack(&self) -> Bytes {
        let text = block::decompress_with_dict(&self.block, self.n_bytes, &self.dictionary);
        Bytes::from(text.expect("what is packed was packed here"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pod(index: usize) -> Vec<u8> {
        let fields = r#"{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:containers":{}}}"#;
        format!(
            r#"{{"kind":"Pod","metadata":{{"name":"web-{index}","uid":"{:032x}","managedFields":[{fields}]}},"status":{{"podIP":"10.0.{}.{}","phase":"Running","conditions":[{{"type":"Ready","status":"True"}}]}}}}"#,
            index * 7919,
            index / 256,
            index % 256
        )
        .into_bytes()
    }

    #[test]
    fn an_object_like_others_takes_little_and_comes_back_whole() {
        let mut packer = Packer::default();
        let packed: Vec<Packed> = (0..1000).map(|index| packer.pack(&pod(index))).collect();
        for (index, packed) in packed.iter().enumerate() {
            assert_eq!(packed.unpack(), pod(index));
        }
        let blocks: usize = packed.iter().map(|packed| packed.block.len()).sum();
        let whole: usize = (0..1000).map(|index| pod(index).len()).sum();
        assert!(blocks * 3 < whole, "{blocks} of {whole}");
        assert!(packer.dictionary.len() < 3 * pod(0).len(), "one pod is like another");
    }

    #[test]
    fn what_is_like_nothing_and_larger_than_the_dictionary_comes_back_too() {
        let mut packer = Packer::default();
        let large: Vec<u8> =
            (0..200_000_u32).flat_map(|index| index.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        assert_eq!(packer.pack(&large).unpack(), large);
        assert_eq!(packer.pack(b"").unpack(), b"".as_slice());
        assert!(packer.dictionary.is_empty());
    }

    proptest! {
        #[test]
        fn whatever_is_packed_comes_back(texts in prop::collection::vec("[ab\"{}:,]{0,200}", 1..20)) {
            let mut packer = Packer::default();
            let packed: Vec<Packed> = texts.iter().map(|text| packer.pack(text.as_bytes())).collect();
            for (text, packed) in texts.iter().zip(&packed) {
                prop_assert_eq!(&packed.unpack()[..], text.as_bytes());
            }
        }
    }
}
