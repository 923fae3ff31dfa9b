//! Which lines of the five documents have a test, which only a written difference, and which neither.
//!
//! ```text
//! documents.txt         the lines, by the area that answers for them ─┐
//! names of passed tests                                              ─┼─▶ a row per area
//! docs/differences.md   lines that a row names                       ─┘
//! ```

use std::collections::BTreeSet;
use std::fmt;

const LINES: &str = include_str!("documents.txt");

/// `D0.81`: line 81 of document 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    document: u8,
    number: u16,
}

/// How an area of Kerf stands to its lines.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) name: String,
    pub(crate) n_tested: usize,
    /// Without a test, but a row of the differences says what happens instead.
    pub(crate) n_different: usize,
    pub(crate) open: Vec<Line>,
}

impl Line {
    /// The lines that a test is named after: `d0_81_…`, or several, `d1_29_d1_30_…`.
    pub(crate) fn of_test(name: &str) -> Vec<Self> {
        let (mut lines, mut parts) = (Vec::new(), name.split('_'));
        while let (Some(document), Some(number)) = (parts.next().and_then(|part| part.strip_prefix('d')), parts.next())
        {
            let (Ok(document), Ok(number)) = (document.parse(), number.parse()) else { break };
            lines.push(Self { document, number });
        }
        lines
    }

    /// `D0.81`.
    fn parse(word: &str) -> Option<Self> {
        let (document, number) = word.strip_prefix('D')?.split_once('.')?;
        Some(Self { document: document.parse().ok()?, number: number.parse().ok()? })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "D{}.{}", self.document, self.number)
    }
}

/// The areas in the order of the list.
pub(crate) fn areas(tested: &BTreeSet<Line>, differences: &str) -> Vec<Area> {
    let different: BTreeSet<Line> = words(differences).filter_map(Line::parse).collect();
    let mut areas: Vec<Area> = Vec::new();
    for word in LINES.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace) {
        if let Some(name) = word.strip_suffix(':') {
            areas.push(Area { name: name.to_owned(), n_tested: 0, n_different: 0, open: Vec::new() });
        } else if let (Some(area), Some(line)) = (areas.last_mut(), Line::parse(word)) {
            if tested.contains(&line) {
                area.n_tested += 1;
            } else if different.contains(&line) {
                area.n_different += 1;
            } else {
                area.open.push(line);
            }
        }
    }
    areas
}

impl Area {
    pub(crate) fn n_lines(&self) -> usize {
        self.n_tested + self.n_different + self.open.len()
    }
}

/// Words as they stand in prose: `(D0.5, D2.2).` has two.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').map(|word| word.trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_five_documents_stands_in_one_area() {
        let areas = areas(&BTreeSet::new(), "");
        let lines: Vec<Line> = areas.iter().flat_map(|area| area.open.iter().copied()).collect();
        let once: BTreeSet<Line> = lines.iter().copied().collect();
        assert_eq!((lines.len(), once.len(), areas.len()), (198, 198, 10));
        for document in 0..5 {
            let numbers: Vec<u16> =
                once.iter().filter(|line| line.document == document).map(|line| line.number).collect();
            assert_eq!(numbers, (1..=numbers.len() as u16).collect::<Vec<_>>(), "none is left out of D{document}");
        }
    }

    #[test]
    fn a_line_has_a_test_or_a_written_difference_or_is_open() {
        let tested = BTreeSet::from_iter(Line::of_test("d0_12_a_dashboard_finds_its_metrics"));
        let areas = areas(&tested, "| O1 | said of D0.12, too; and D0.69. |");
        let metrics = areas.iter().find(|area| area.name == "metrics").unwrap();
        assert_eq!((metrics.n_lines(), metrics.n_tested, metrics.n_different), (2, 1, 0));
        assert_eq!(metrics.open.iter().map(ToString::to_string).collect::<Vec<_>>(), ["D0.89"]);
        let migration = areas.iter().find(|area| area.name == "migration").unwrap();
        assert_eq!((migration.n_different, migration.open.len()), (1, 0));
    }

    #[test]
    fn only_names_with_both_numbers_are_of_a_line() {
        for name in ["d2_words_only", "drain", "d_1_2", "x0_81_a"] {
            assert_eq!(Line::of_test(name), [], "{name}");
        }
        let several: Vec<String> = Line::of_test("d1_29_d1_30_every_d").iter().map(ToString::to_string).collect();
        assert_eq!(several, ["D1.29", "D1.30"]);
    }
}
