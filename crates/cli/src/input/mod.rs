//! Finds Kubernetes objects in files, folders and standard input, one at a time.
//!
//! Streams: of a dump of a hundred thousand pods only one is held at once. What cannot be read is told with its file
//! and line, and what stands beside it is still found.

mod json;
mod yaml;

use anyhow::Context;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Takes what is found.
pub(crate) trait Sink {
    /// An object, and where it starts (`dump.yaml:12`).
    fn object(&mut self, source: &str, value: Value);
    /// Something that is no object.
    fn trouble(&mut self, trouble: Trouble);
}

/// A document that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// File and line.
    pub(crate) source: String,
    /// `document 3`, or `item 17 of document 1`.
    pub(crate) what: String,
    pub(crate) message: String,
}

/// Reads all of it. Fails only for what cannot be opened or read at all.
pub(crate) fn read_all(paths: &[PathBuf], sink: &mut dyn Sink) -> anyhow::Result<()> {
    for path in paths {
        if path.as_os_str() == "-" {
            read_stream("stdin", Box::new(BufReader::new(std::io::stdin().lock())), sink)?;
            continue;
        }
        let is_folder = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.is_dir();
        let files = if is_folder { files_in(path)? } else { vec![path.clone()] };
        for file in files {
            let name = file.display().to_string();
            let reader = File::open(&file).with_context(|| format!("cannot read {name}"))?;
            read_stream(&name, Box::new(BufReader::with_capacity(1 << 16, reader)), sink)?;
        }
    }
    Ok(())
}

/// Objects of one stream, in whichever of the two languages it is.
fn read_stream(name: &str, mut reader: Box<dyn BufRead + '_>, sink: &mut dyn Sink) -> anyhow::Result<()> {
    let start = reader.fill_buf().with_context(|| format!("cannot read {name}"))?;
    if looks_like_json(start) { json::read(name, reader, sink) } else { yaml::read(name, reader, sink) }
        .with_context(|| format!("cannot read {name}"))
}

/// YAML can start with a brace too, but then its first key has no quotes.
fn looks_like_json(start: &[u8]) -> bool {
    let mut significant = start.iter().filter(|byte| !byte.is_ascii_whitespace());
    match significant.next() {
        Some(b'{') => matches!(significant.next(), Some(b'"' | b'}')),
        Some(b'[') => matches!(significant.next(), Some(b'{' | b']')),
        _ => false,
    }
}

/// Files with objects in a folder and below, in order of path.
fn files_in(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut out = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read folder {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read folder {}", folder.display()))?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.is_dir() {
            out.extend(files_in(&path)?);
        } else if matches!(extension, Some("yaml" | "yml" | "json")) {
            out.push(path);
        }
    }
    out.sort();
    Ok(out)
}

/// The kind of the items of a list that says it for all of them: `PodList` holds Pods.
fn item_kind(list_kind: &str) -> Option<&str> {
    list_kind.strip_suffix("List").filter(|kind| !kind.is_empty())
}

/// Gives an item the kind of its list, if it has none of its own.
fn with_kind(mut item: Value, api_version: Option<&str>, list_kind: Option<&str>) -> Value {
    if let (Some(object), Some(kind)) = (item.as_object_mut(), list_kind.and_then(item_kind))
        && !object.contains_key("kind")
    {
        object.insert("kind".to_owned(), kind.into());
        object.entry("apiVersion").or_insert_with(|| api_version.unwrap_or("v1").into());
    }
    item
}

#[cfg(test)]
mod tests;
