//! What can be seen in a source file without understanding it.

use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};

/// A file likes to be read in one sitting, some four hundred lines. At this length it is a book, and wants chapters.
const LINES_MAX: usize = 900;

/// Where our own Rust lives.
const FOLDERS: [&str; 4] = ["crates", "e2e", "xtask", "fuzz"];

pub(crate) struct Source {
    /// From the root of the workspace.
    pub(crate) path: PathBuf,
    pub(crate) content: String,
}

/// Every Rust file of ours, in order of path.
pub(crate) fn read_sources(root: &Path) -> Result<Vec<Source>> {
    let mut paths = Vec::new();
    for folder in FOLDERS {
        let folder = root.join(folder);
        if folder.is_dir() {
            collect(&folder, &mut paths)?;
        }
    }
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let content =
                std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
            let path = path.strip_prefix(root).unwrap_or(&path).to_path_buf();
            Ok(Source { path, content })
        })
        .collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("{} cannot be listed", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("{} cannot be listed", folder.display()))?.path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                collect(&path, paths)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
    Ok(())
}

pub(crate) fn check(file: &Source) -> Vec<String> {
    let shown = file.path.display();
    let mut breaches = Vec::new();
    let n_lines = file.content.lines().count();
    if n_lines > LINES_MAX {
        breaches.push(format!("{shown}: {n_lines} lines; over {LINES_MAX} a file wants to become two"));
    }
    for (index, line) in file.content.lines().enumerate() {
        if let Some(left) = left_for_later(line) {
            breaches.push(format!("{shown}:{}: {left}", index + 1));
        }
    }
    breaches
}

/// The patterns are put together here so that this file does not find itself.
fn left_for_later(line: &str) -> Option<&'static str> {
    let code = line.split("//").next().unwrap_or_default();
    if code.contains(concat!("to", "do!(")) || code.contains(concat!("un", "implemented!(")) {
        return Some("left for later: finish it, or let the type say that it is not there");
    }
    if code.contains(concat!("#[ig", "nore]")) {
        return Some("an ignored test says why: #[ignore = \"…\"]");
    }
    None
}

/// Whether the first words of a crate say what it is for.
pub(crate) fn has_opening(content: &str) -> bool {
    content
        .lines()
        .find(|line| !line.trim().is_empty())
        .is_some_and(|line| line.strip_prefix("//!").is_some_and(|rest| !rest.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(content: &str) -> Source {
        Source { path: "crates/model/src/lib.rs".into(), content: content.to_owned() }
    }

    #[test]
    fn a_long_file_is_told_its_length() {
        let breaches = check(&source(&"let x = 1;\n".repeat(901)));
        assert_eq!(breaches.len(), 1);
        assert!(breaches[0].contains("901 lines"), "{breaches:?}");
        assert!(check(&source(&"let x = 1;\n".repeat(900))).is_empty());
    }

    #[test]
    fn what_is_left_for_later_is_found_with_its_line() {
        for line in [concat!("to", "do!()"), concat!("    un", "implemented!(\"soon\")"), concat!("#[ig", "nore]")] {
            let breaches = check(&source(&format!("fn f() {{\n{line}\n}}\n")));
            assert_eq!(breaches.len(), 1, "{line}");
            assert!(breaches[0].starts_with("crates/model/src/lib.rs:2:"), "{breaches:?}");
        }
    }

    #[test]
    fn a_comment_and_a_reason_are_fine() {
        for line in [concat!("// to", "do!() is what we never write"), "#[ignore = \"needs a GPU\"]"] {
            assert!(check(&source(line)).is_empty(), "{line}");
        }
    }

    #[test]
    fn an_opening_has_words() {
        assert!(has_opening("\n//! The words.\n"));
        assert!(!has_opening("//!\n"));
        assert!(!has_opening("// A comment.\nfn main() {}\n"));
        assert!(!has_opening(""));
    }
}
