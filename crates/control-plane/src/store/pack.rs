//! Objects that nobody has changed for a while, kept as what sets them apart from others of their kind.
//!
//! ```text
//! dictionary  {"metadata":{"name":"web-1","managedFields":[…]},"spec":{…}}       some objects of the kind, one after the other
//! object      ╰─────copy──────────╯╰"2"╯╰──────────────copy───────────────╯      copies and what is new
//! ```
//!
//! A hundred thousand pods differ in names, addresses and times, and are otherwise a few texts again and again: the fields that each
//! manager owns, the defaults, the statuses. What is packed is a tenth as large, and as many copies of bytes away.

use std::sync::Arc;

use bytes::Bytes;

/// Copies are found by so many bytes, and are never shorter.
const MATCH_MIN: usize = 8;
/// Where a copy begins is told in two bytes.
const DICTIONARY_MAX: usize = 1 << 16;
const SLOTS: usize = 1 << 14;

/// Learns what the objects of one kind have in common.
#[derive(Debug, Default)]
pub(super) struct Packer {
    /// Only grows; what was packed with a shorter one keeps that one.
    dictionary: Arc<[u8]>,
    /// Where in the dictionary a few bytes were last, by their hash. Zero is nowhere.
    slots: Vec<u32>,
}

/// An object, small.
#[derive(Debug)]
pub(super) struct Packed {
    dictionary: Arc<[u8]>,
    steps: Box<[u8]>,
}

impl Packer {
    pub(super) fn pack(&mut self, text: &[u8]) -> Packed {
        let mut steps = self.steps(text);
        // Not like anything seen before: others may be like it.
        if steps.len() > text.len() / 2 && self.dictionary.len() + text.len() <= DICTIONARY_MAX {
            self.learn(text);
            steps = self.steps(text);
        }
        Packed { dictionary: Arc::clone(&self.dictionary), steps: steps.into_boxed_slice() }
    }

    fn learn(&mut self, text: &[u8]) {
        let from = self.dictionary.len();
        self.dictionary = [&self.dictionary, text].concat().into();
        self.slots.resize(SLOTS, 0);
        for (offset, start) in text.windows(MATCH_MIN).enumerate() {
            if let (Some(slot), Ok(place)) = (self.slots.get_mut(slot_of(start)), u32::try_from(from + offset + 1)) {
                *slot = place;
            }
        }
    }

    /// Length of the text, then by turns: how many new bytes, these, how many to copy, and from where.
    fn steps(&self, text: &[u8]) -> Vec<u8> {
        let mut steps = Vec::with_capacity(text.len() / 4);
        put_number(&mut steps, text.len());
        let (mut at, mut told, mut expected) = (0, 0, 0);
        while at + MATCH_MIN <= text.len() {
            let Some((place, length)) = self.find(text, at, expected + (at - told)) else {
                at += 1;
                continue;
            };
            let back = n_common(text[told..at].iter().rev(), self.dictionary[..place].iter().rev());
            let (from, place, length) = (at - back, place - back, length + back);
            put_number(&mut steps, from - told);
            steps.extend_from_slice(&text[told..from]);
            put_number(&mut steps, length);
            steps.extend(u16::try_from(place).unwrap_or_default().to_le_bytes());
            at = from + length;
            told = at;
            expected = place + length;
        }
        if told < text.len() {
            put_number(&mut steps, text.len() - told);
            steps.extend_from_slice(&text[told..]);
        }
        steps
    }

    /// Where the dictionary goes on like the text from `at`, and how far: in the place that follows from the last copy, or where these
    /// bytes were last.
    fn find(&self, text: &[u8], at: usize, expected: usize) -> Option<(usize, usize)> {
        let try_at = |place: usize| {
            let length = n_common(text[at..].iter(), self.dictionary.get(place..)?.iter());
            (length >= MATCH_MIN).then_some((place, length))
        };
        try_at(expected).or_else(|| {
            let slot = *self.slots.get(slot_of(text.get(at..at + MATCH_MIN)?))?;
            try_at(usize::try_from(slot).ok()?.checked_sub(1)?)
        })
    }
}

impl Packed {
    pub(super) fn unpack(&self) -> Bytes {
        let mut rest: &[u8] = &self.steps;
        let length = take_number(&mut rest);
        let mut text = Vec::with_capacity(length);
        while !rest.is_empty() {
            let n_new = take_number(&mut rest);
            let (new, after) = rest.split_at(n_new.min(rest.len()));
            text.extend_from_slice(new);
            rest = after;
            if text.len() >= length {
                break;
            }
            let n_copied = take_number(&mut rest);
            let Some((place, after)) = rest.split_first_chunk::<2>() else { break };
            let place = usize::from(u16::from_le_bytes(*place));
            text.extend_from_slice(self.dictionary.get(place..place + n_copied).unwrap_or_default());
            rest = after;
        }
        Bytes::from(text)
    }
}

fn slot_of(start: &[u8]) -> usize {
    let number = start.first_chunk::<MATCH_MIN>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    usize::try_from(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50).unwrap_or_default()
}

fn n_common<'a>(left: impl Iterator<Item = &'a u8>, right: impl Iterator<Item = &'a u8>) -> usize {
    left.zip(right).take_while(|(left, right)| left == right).count()
}

/// Seven bits a byte, the lowest first; the eighth says that more follow.
fn put_number(steps: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        steps.push(0x80 | u8::try_from(number & 0x7f).unwrap_or_default());
        number >>= 7;
    }
    steps.push(u8::try_from(number).unwrap_or_default());
}

fn take_number(rest: &mut &[u8]) -> usize {
    let (mut number, mut shift) = (0, 0);
    while let Some((byte, after)) = rest.split_first() {
        *rest = after;
        number |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
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
        let steps: usize = packed.iter().map(|packed| packed.steps.len()).sum();
        let whole: usize = (0..1000).map(|index| pod(index).len()).sum();
        assert!(steps * 3 < whole, "{steps} of {whole}");
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
