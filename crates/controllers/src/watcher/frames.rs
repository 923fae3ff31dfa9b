//! Finds the events in what a watch sends: lines of JSON, or frames of protocol buffers, however they are cut.

use crate::limits::EVENT_BYTES_MAX;
use bytes::Bytes;
use kerf_mirror::wire_frame;

/// What has come and was not read yet.
#[derive(Debug)]
pub(super) struct Frames {
    is_wire: bool,
    /// The latest piece, and how far it was read.
    piece: Bytes,
    at: usize,
    /// The beginning of an event that continues in a later piece.
    begun: Vec<u8>,
    /// What lies in `begun` was read; it goes with the next look.
    is_spent: bool,
}

/// One event, whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Line(&'a [u8]),
    Wire(&'a [u8]),
}

impl Frames {
    pub(super) fn new(is_wire: bool) -> Self {
        Self { is_wire, piece: Bytes::new(), at: 0, begun: Vec::new(), is_spent: false }
    }

    pub(super) fn is_wire(&self) -> bool {
        self.is_wire
    }

    /// Takes in another piece; those before have been read to their end.
    pub(super) fn feed(&mut self, piece: Bytes) {
        debug_assert!(self.at >= self.piece.len(), "the piece before was not read to its end");
        (self.piece, self.at) = (piece, 0);
    }

    /// The next event, or None when another piece is needed. Fails with words when this cannot be a stream of events.
    pub(super) fn next(&mut self) -> Result<Option<Frame<'_>>, String> {
        if std::mem::take(&mut self.is_spent) {
            self.begun.clear();
        }
        let frame = if self.is_wire { self.next_wire()? } else { self.next_line() };
        if frame.is_none() && self.begun.len() > EVENT_BYTES_MAX {
            return Err(format!("an event of more than {} MiB", EVENT_BYTES_MAX >> 20));
        }
        Ok(frame.map(|range| match range {
            Found::InPiece(from, to) if self.is_wire => Frame::Wire(&self.piece[from..to]),
            Found::InPiece(from, to) => Frame::Line(&self.piece[from..to]),
            Found::Begun(from) if self.is_wire => Frame::Wire(&self.begun[from..]),
            Found::Begun(from) => Frame::Line(&self.begun[from..]),
        }))
    }

    /// Most events lie within one piece, and need not be copied.
    fn next_line(&mut self) -> Option<Found> {
        let rest = &self.piece[self.at..];
        let Some(length) = rest.iter().position(|byte| *byte == b'\n') else {
            self.begun.extend_from_slice(rest);
            self.at = self.piece.len();
            return None;
        };
        let from = self.at;
        self.at += length + 1;
        if self.begun.is_empty() {
            return Some(Found::InPiece(from, from + length));
        }
        self.begun.extend_from_slice(&self.piece[from..from + length]);
        self.is_spent = true;
        Some(Found::Begun(0))
    }

    fn next_wire(&mut self) -> Result<Option<Found>, String> {
        if self.begun.is_empty() {
            let rest = &self.piece[self.at..];
            if let Some((frame, tail)) = wire_frame(rest)? {
                let end = self.piece.len() - tail.len();
                self.at = end;
                return Ok(Some(Found::InPiece(end - frame.len(), end)));
            }
            self.begun.extend_from_slice(rest);
            self.at = self.piece.len();
            return Ok(None);
        }
        // Only as much is copied as the event is long: first its head, which says how long it is.
        while self.at < self.piece.len() {
            let missing = missing(&self.begun).unwrap_or(1).clamp(1, self.piece.len() - self.at);
            self.begun.extend_from_slice(&self.piece[self.at..self.at + missing]);
            self.at += missing;
            if let Some((frame, tail)) = wire_frame(&self.begun)? {
                debug_assert!(tail.is_empty(), "more was copied than the event is long");
                let from = self.begun.len() - frame.len();
                self.is_spent = true;
                return Ok(Some(Found::Begun(from)));
            }
        }
        Ok(None)
    }
}

enum Found {
    InPiece(usize, usize),
    Begun(usize),
}

/// Bytes that a frame still lacks, once its four bytes of length are there.
fn missing(begun: &[u8]) -> Option<usize> {
    let head: [u8; 4] = begun.get(..4)?.try_into().ok()?;
    let whole = usize::try_from(u32::from_be_bytes(head)).ok()?.checked_add(4)?;
    whole.checked_sub(begun.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut frames: Frames, stream: &[u8], size: usize) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        for piece in stream.chunks(size) {
            frames.feed(Bytes::copy_from_slice(piece));
            while let Some(Frame::Line(bytes) | Frame::Wire(bytes)) = frames.next().unwrap() {
                found.push(bytes.to_vec());
            }
        }
        found
    }

    #[test]
    fn however_a_stream_is_cut_its_events_are_the_same() {
        let events: Vec<Vec<u8>> = (0..40_u8).map(|n| vec![b'a' + n % 26; usize::from(n) * 7 % 300]).collect();
        let lines: Vec<u8> = events.iter().flat_map(|event| [event.as_slice(), b"\n"].concat()).collect();
        let wire: Vec<u8> = events
            .iter()
            .flat_map(|event| [&u32::try_from(event.len()).unwrap().to_be_bytes(), event.as_slice()].concat())
            .collect();
        for size in [1, 2, 3, 5, 64, 1_000, 100_000] {
            assert_eq!(all(Frames::new(false), &lines, size), events, "lines in pieces of {size}");
            assert_eq!(all(Frames::new(true), &wire, size), events, "frames in pieces of {size}");
        }
    }

    #[test]
    fn a_line_that_never_ends_is_given_up() {
        let mut frames = Frames::new(false);
        for _ in 0..=(EVENT_BYTES_MAX >> 20) {
            frames.feed(Bytes::from(vec![b'x'; 1 << 20]));
            if let Err(message) = frames.next() {
                return assert!(message.contains("MiB"), "{message}");
            }
        }
        panic!("it was read on and on");
    }
}
