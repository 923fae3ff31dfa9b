//! Sets of completion indexes, written `0-2,5`.

use std::fmt;

/// Ordered intervals that neither touch nor overlap. Kept as intervals because a Job may have very many indexes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Indexes(Vec<(u32, u32)>);

impl Indexes {
    /// Reads as far as it makes sense, and only indexes below `limit`.
    pub(crate) fn parse(text: &str, limit: u32) -> Self {
        let mut indexes = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else { break };
            if first >= limit {
                break;
            }
            indexes.add(first, last.min(limit - 1));
        }
        indexes
    }

    pub(crate) fn insert(&mut self, index: u32) {
        self.add(index, index);
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// How many of these are in `others`.
    pub(crate) fn n_in(&self, others: &Self) -> u64 {
        let overlap = |a: &(u32, u32), b: &(u32, u32)| {
            let (first, last) = (a.0.max(b.0), a.1.min(b.1));
            if first <= last { u64::from(last - first) + 1 } else { 0 }
        };
        self.0.iter().map(|mine| others.0.iter().map(|theirs| overlap(mine, theirs)).sum::<u64>()).sum()
    }

    /// The first `n` below `limit` that are neither here nor taken.
    pub(crate) fn first_free(&self, n: usize, limit: u32, is_taken: &dyn Fn(u32) -> bool) -> Vec<u32> {
        let mut free = Vec::new();
        let mut next = 0;
        let mut gaps = self.0.iter();
        while free.len() < n && next < limit {
            let (end, resume) = match gaps.next() {
                Some((first, last)) => ((*first).min(limit), last.saturating_add(1)),
                None => (limit, limit),
            };
            free.extend((next..end).filter(|index| !is_taken(*index)).take(n - free.len()));
            next = resume;
        }
        free
    }

    fn add(&mut self, first: u32, last: u32) {
        if first > last {
            return;
        }
        self.0.push((first, last));
        self.0.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(self.0.len());
        for (first, last) in self.0.drain(..) {
            match merged.last_mut() {
                Some(before) if before.1.saturating_add(1) >= first => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        self.0 = merged;
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (first, last)) in self.0.iter().enumerate() {
            if nth > 0 {
                f.write_str(",")?;
            }
            match last - first {
                0 => write!(f, "{first}")?,
                1 => write!(f, "{first},{last}")?,
                _ => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_read_and_written_as_the_real_ones() {
        for (text, limit, expected, n) in [
            ("", 10, "", 0),
            ("0", 10, "0", 1),
            ("0,1", 10, "0,1", 2),
            ("0,1,2", 10, "0-2", 3),
            ("1-3,5,7-8", 10, "1-3,5,7,8", 6),
            ("1-3,5,7-8", 6, "1-3,5", 4),
            ("0-4294967295", 3, "0-2", 3),
            ("x", 3, "", 0),
            ("3-1", 9, "", 0),
        ] {
            let indexes = Indexes::parse(text, limit);
            assert_eq!((indexes.to_string().as_str(), indexes.len()), (expected, n), "{text}");
        }
    }

    #[test]
    fn free_indexes_are_the_lowest_that_are_not_done_and_not_taken() {
        let mut done = Indexes::parse("0-1,4", 10);
        assert_eq!(done.first_free(3, 10, &|index| index == 3), [2, 5, 6]);
        assert_eq!(done.first_free(9, 6, &|_| false), [2, 3, 5]);
        assert_eq!(Indexes::default().first_free(2, 1, &|_| false), [0]);
        done.insert(2);
        assert_eq!(done.to_string(), "0-2,4");
        assert_eq!(Indexes::parse("1-5", 10).n_in(&done), 3);
    }
}
