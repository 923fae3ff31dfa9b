//! YAML: documents, and the items of kubectl's lists.
//!
//! The text is cut at lines that can mean only one thing (`---`, and `- ` at the depth of a list's items), and each
//! piece is parsed alone. So one broken item does not take its list with it, and memory holds one item.

use super::{Sink, Trouble, with_kind};
use serde::Deserialize;
use serde_json::Value;
use std::io::BufRead;

pub(super) fn read(name: &str, mut reader: impl BufRead, sink: &mut dyn Sink) -> anyhow::Result<()> {
    let mut cutter = Cutter { name, sink, document: Document::new(1, 1), n_line: 0 };
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if reader.read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        cutter.line(&String::from_utf8_lossy(&bytes));
    }
    cutter.end_document();
    Ok(())
}

struct Cutter<'a> {
    name: &'a str,
    sink: &'a mut dyn Sink,
    document: Document,
    n_line: usize,
}

/// The document that is being read.
struct Document {
    number: usize,
    /// All of it, except the items that were cut out.
    rest: Piece,
    items: Items,
    n_items: usize,
    /// Items that leave their kind to the list.
    kindless: Vec<(String, Value)>,
}

#[derive(Default)]
struct Piece {
    text: String,
    first_line: usize,
}

enum Items {
    None,
    /// After `items:`, before the first item.
    Expected,
    /// At this depth; the current item so far.
    At {
        depth: usize,
        item: Piece,
    },
    Over,
}

impl Document {
    fn new(number: usize, first_line: usize) -> Self {
        Self {
            number,
            rest: Piece { text: String::new(), first_line },
            items: Items::None,
            n_items: 0,
            kindless: Vec::new(),
        }
    }
}

impl Cutter<'_> {
    fn line(&mut self, line: &str) {
        self.n_line += 1;
        let content = line.trim_end();
        if let Some(inline) = document_start(content) {
            self.end_document();
            if !inline.is_empty() {
                self.document.rest.first_line = self.n_line;
                self.document.rest.text = format!("{inline}\n");
            }
            return;
        }
        if content == "..." {
            self.end_document();
            return;
        }
        let depth = content.len() - content.trim_start().len();
        let is_blank = content.trim_start().is_empty() || content.trim_start().starts_with('#');
        match &mut self.document.items {
            Items::Expected if !is_blank => match starts_item(content) {
                Some(depth) => self.start_item(depth, line),
                // Not a list of objects after all.
                None => {
                    self.document.items = Items::Over;
                    self.document.rest.text.push_str(line);
                }
            },
            Items::At { depth: of_items, item } => {
                let of_items = *of_items;
                if is_blank || depth > of_items {
                    item.text.push_str(line);
                } else if depth == of_items && content[depth..].starts_with("- ") {
                    self.end_item();
                    self.start_item(of_items, line);
                } else {
                    self.end_item();
                    self.document.items = Items::Over;
                    self.document.rest.text.push_str(line);
                }
            }
            _ => {
                if content == "items:" && matches!(self.document.items, Items::None) {
                    self.document.items = Items::Expected;
                }
                self.document.rest.text.push_str(line);
            }
        }
    }

    fn start_item(&mut self, depth: usize, line: &str) {
        let item = Piece {
            // The dash becomes a space: what follows it is indented like the rest of the item.
            text: format!("{} {}", &line[..depth], &line[depth + 1..]),
            first_line: self.n_line,
        };
        self.document.items = Items::At { depth, item };
    }

    fn end_item(&mut self) {
        let Items::At { item, .. } = std::mem::replace(&mut self.document.items, Items::Over) else {
            return;
        };
        self.document.n_items += 1;
        let what = format!("item {} of document {}", self.document.n_items, self.document.number);
        if let Some(value) = self.parse(&item, what) {
            let source = format!("{}:{}", self.name, item.first_line);
            if value.get("kind").is_some() {
                self.sink.object(&source, value);
            } else {
                self.document.kindless.push((source, value));
            }
        }
    }

    fn end_document(&mut self) {
        self.end_item();
        let next = Document::new(self.document.number, self.n_line + 1);
        let document = std::mem::replace(&mut self.document, next);
        let is_empty = document.n_items == 0
            && document.rest.text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        if is_empty {
            return;
        }
        self.document.number = document.number + 1;
        let rest = self.parse(&document.rest, format!("document {}", document.number));
        let text = |field: &str| rest.as_ref().and_then(|rest| rest.get(field)).and_then(Value::as_str);
        for (source, item) in document.kindless {
            self.sink.object(&source, with_kind(item, text("apiVersion"), text("kind")));
        }
        if document.n_items == 0
            && let Some(value) = rest
        {
            self.whole(&document.rest, value);
        }
    }

    /// A document that was not cut: an object, or a list in a notation that cannot be cut by lines.
    fn whole(&mut self, piece: &Piece, mut value: Value) {
        let source = format!("{}:{}", self.name, piece.first_line);
        let is_list = value.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
        let mut items = match value {
            Value::Array(items) => return items.into_iter().for_each(|item| self.sink.object(&source, item)),
            ref mut list if is_list => list.get_mut("items").map(Value::take),
            object => return self.sink.object(&source, object),
        };
        let text = |field: &str| value.get(field).and_then(Value::as_str);
        for item in items.iter_mut().filter_map(Value::as_array_mut).flatten() {
            let item = with_kind(item.take(), text("apiVersion"), text("kind"));
            self.sink.object(&source, item);
        }
    }

    fn parse(&mut self, piece: &Piece, what: String) -> Option<Value> {
        match Value::deserialize(serde_norway::Deserializer::from_str(&piece.text)) {
            Ok(value) => Some(value),
            Err(error) => {
                // The parser counts from where the piece starts, people from where the file starts.
                let line = error.location().map_or(0, |location| location.line().saturating_sub(1));
                let message = error.to_string();
                let message = message.split(" at line ").next().unwrap_or_default();
                self.sink.trouble(Trouble {
                    source: format!("{}:{}", self.name, piece.first_line + line),
                    what,
                    message: format!("it is not YAML: {message}"),
                });
                None
            }
        }
    }
}

/// What follows a document marker on its line.
fn document_start(content: &str) -> Option<&str> {
    let rest = content.strip_prefix("---")?;
    if rest.is_empty() {
        return Some("");
    }
    let rest = rest.strip_prefix([' ', '\t'])?.trim();
    Some(if rest.starts_with('#') { "" } else { rest })
}

/// The depth of an item of a list of objects, if the line starts one.
fn starts_item(content: &str) -> Option<usize> {
    let depth = content.len() - content.trim_start().len();
    let first = content[depth..].strip_prefix("- ")?.trim_start();
    ["apiVersion:", "kind:", "metadata:"].iter().any(|key| first.starts_with(key)).then_some(depth)
}
