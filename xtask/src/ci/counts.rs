//! What test programs say of themselves, added up.

use std::collections::BTreeSet;

use super::documents::Line;

/// The sum over all test programs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// What did not run, and why.
    pub(crate) skipped: Vec<Skipped>,
    /// The lines of the five documents that a passed test is named after.
    pub(crate) of_documents: BTreeSet<Line>,
    /// What the suites on two stages and on the emulated account say of themselves.
    pub(crate) remarks: Vec<String>,
    /// Of the program that is being read: tests that it has named as ignored so far.
    pub(super) n_ignored: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub(crate) n_tests: usize,
    pub(crate) what: String,
    pub(crate) reason: String,
}

impl Counts {
    /// One line of a test program.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some((name, outcome)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) {
            let name = name.rsplit("::").next().unwrap_or(name);
            if outcome == "ok" {
                self.of_documents.extend(Line::of_test(name));
            } else if let Some(reason) = outcome.strip_prefix("ignored") {
                let reason = reason.trim_start_matches([',', ' ']);
                let reason = if reason.is_empty() { "no reason given" } else { reason };
                self.n_ignored += 1;
                self.skipped.push(Skipped { n_tests: 1, what: name.to_owned(), reason: reason.to_owned() });
            }
        }
        if REMARKS.iter().any(|begin| line.starts_with(begin)) {
            self.remarks.push(line.to_owned());
        }
        if line.starts_with("test result: ") {
            let count = |what: &str| {
                line.split([';', '.'])
                    .filter_map(|part| part.trim().strip_suffix(what))
                    .find_map(|number| number.trim().parse::<usize>().ok())
                    .unwrap_or(0)
            };
            self.passed += count("passed");
            self.failed += count("failed");
            // A line may be torn by what a test itself wrote meanwhile.
            let n_tests = count("ignored").saturating_sub(std::mem::take(&mut self.n_ignored));
            if n_tests > 0 {
                let (what, reason) = ("tests without a name".to_owned(), "ignored".to_owned());
                self.skipped.push(Skipped { n_tests, what, reason });
            }
        }
    }

    /// What plain tests collected that had to return without having asked anything ([`kerf_e2e::skipped`]): they count as
    /// passed in their program's own words.
    pub(crate) fn read_skips(&mut self, text: &str) {
        for line in text.lines() {
            let mut columns = line.splitn(4, '\t');
            let n_tests = columns.next().and_then(|number| number.parse().ok()).unwrap_or(1);
            let mut next = || columns.next().unwrap_or_default().to_owned();
            let (what, reason, test) = (next(), next(), next());
            self.passed = self.passed.saturating_sub(n_tests);
            for line in Line::of_test(test.rsplit("::").next().unwrap_or_default()) {
                self.of_documents.remove(&line);
            }
            self.skipped.push(Skipped { n_tests, what, reason });
        }
    }

    pub(crate) fn n_skipped(&self) -> usize {
        self.skipped.iter().map(|skipped| skipped.n_tests).sum()
    }
}

const REMARKS: [&str; 4] = ["twin tests on ", "aws tests on ", "operator tests", "seeds: "];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_all_test_programs_are_summed() {
        let mut counts = Counts::default();
        for line in [
            "running 3 tests",
            "test quantity::tests::d0_81_a_name ... ok",
            "test real::documents::d2_12_other ... ok",
            "test embedded::documents::d2_12_other ... ok",
            "test d3_1_not_yet ... FAILED",
            "test real::d3_2_not_here ... ignored, no go on PATH",
            "test d2_words_only ... ok",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "twin tests on real: 3 passed, 0 failed",
            "test result: FAILED. 4 passed; 2 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.10s",
        ] {
            counts.read(line);
        }
        assert_eq!((counts.passed, counts.failed, counts.n_skipped()), (7, 2, 3), "two lines were torn");
        let lines: Vec<String> = counts.of_documents.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["D0.81", "D2.12"], "once, however many stages a test ran on");
        assert_eq!(counts.skipped[0].reason, "no go on PATH");
        assert_eq!(counts.remarks, ["twin tests on real: 3 passed, 0 failed"]);
    }

    #[test]
    fn a_test_that_returned_without_asking_is_skipped_and_not_passed() {
        let mut counts = Counts { passed: 10, ..Counts::default() };
        counts.read("test real::d2_12_other ... ok");
        counts.read_skips("1\ta visit\tno python3\treal::d2_12_other\n2\tsome cases\tno go on PATH\t\n");
        assert_eq!((counts.passed, counts.n_skipped(), counts.of_documents.len()), (7, 3, 0));
        assert_eq!(
            (counts.skipped[1].what.as_str(), counts.skipped[1].reason.as_str()),
            ("some cases", "no go on PATH")
        );
    }
}
