//! Rows of a list, page by page, as far as a list may go.

use crate::limits::{PAGES_MAX, ROWS_MAX};
use crate::wire::Failure;

pub(super) struct Listed<T> {
    action: &'static str,
    rows: Vec<T>,
    n_pages: usize,
}

impl<T> Listed<T> {
    pub(super) fn new(action: &'static str) -> Self {
        Self { action, rows: Vec::new(), n_pages: 0 }
    }

    /// One more page. A list without an end is a failure: half of it would look like a shortage.
    pub(super) fn add(&mut self, page: impl IntoIterator<Item = T>) -> Result<(), Failure> {
        self.n_pages += 1;
        self.rows.extend(page);
        if self.n_pages <= PAGES_MAX && self.rows.len() <= ROWS_MAX {
            return Ok(());
        }
        let (n_rows, n_pages) = (self.rows.len(), self.n_pages);
        let message = format!("the list has no end: {n_rows} rows in {n_pages} pages, and more");
        Err(Failure { status: 200, ..Failure::new(self.action, "", &message) })
    }

    pub(super) fn rows(self) -> Vec<T> {
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_without_an_end_is_a_failure() {
        let mut endless = Listed::new("ec2:DescribeSubnets");
        for _ in 0..PAGES_MAX {
            endless.add(Vec::<u8>::new()).unwrap();
        }
        let failure = endless.add(Vec::new()).unwrap_err();
        assert!(failure.to_string().contains("has no end: 0 rows in 10001 pages"), "{failure}");
        let mut large = Listed::new("ec2:DescribeSubnets");
        large.add(vec![0_u8; ROWS_MAX]).unwrap();
        assert_eq!(large.add([0]).unwrap_err().status, 200);
    }
}
