//! The page that Prometheus reads: text format 0.0.4.

use super::{Family, Shape};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The media type of the page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page in the making. Writing to a string cannot fail, so nothing here does.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
    /// A family's series must stand together under one head.
    begun: BTreeSet<String>,
}

impl Page {
    /// The head of a family; its samples follow.
    pub fn begin(&mut self, name: &str, help: &str, shape: &str) {
        let is_new = self.begun.insert(name.to_owned());
        debug_assert!(is_new, "{name} is on the page already");
        self.text.push_str("# HELP ");
        self.text.push_str(name);
        self.text.push(' ');
        escape(&mut self.text, help, false);
        let _ = write!(self.text, "\n# TYPE {name} {shape}\n");
    }

    /// The head of one of our families.
    pub fn begin_family(&mut self, family: &Family) {
        self.begin(family.name, family.help, family.shape.as_str());
    }

    /// Answers whether the family is now to be written: no source has done it.
    pub(crate) fn begin_unless_begun(&mut self, family: &Family) -> bool {
        if self.begun.contains(family.name) {
            return false;
        }
        self.begin_family(family);
        true
    }

    /// One line.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.line(name, "", labels.iter().copied(), value);
    }

    /// One line, with the labels in two parts: what is the same for many series and what is not.
    pub fn sample_of<'a>(&mut self, name: &str, labels: impl Iterator<Item = (&'a str, &'a str)>, value: f64) {
        self.line(name, "", labels, value);
    }

    /// A histogram's lines. `counts` are by bucket, not cumulative; the last is beyond every bound.
    pub fn histogram(&mut self, name: &str, labels: &[(&str, &str)], bounds: &[f64], counts: &[u64], sum: f64) {
        let mut so_far = 0;
        for (place, count) in counts.iter().enumerate() {
            so_far += count;
            let bound = bounds.get(place).map_or_else(|| "+Inf".to_owned(), |bound| number(*bound));
            let labels = labels.iter().copied().chain([("le", bound.as_str())]);
            self.line(name, "_bucket", labels, so_far as f64);
        }
        self.line(name, "_sum", labels.iter().copied(), sum);
        self.line(name, "_count", labels.iter().copied(), so_far as f64);
    }

    /// A summary's lines.
    pub fn summary(&mut self, name: &str, labels: &[(&str, &str)], quantiles: &[(f64, f64)], sum: f64, count: u64) {
        for (quantile, value) in quantiles {
            let quantile = number(*quantile);
            let labels = labels.iter().copied().chain([("quantile", quantile.as_str())]);
            self.line(name, "", labels, *value);
        }
        self.line(name, "_sum", labels.iter().copied(), sum);
        self.line(name, "_count", labels.iter().copied(), count as f64);
    }

    pub fn into_text(self) -> String {
        self.text
    }

    fn line<'a>(&mut self, name: &str, suffix: &str, labels: impl Iterator<Item = (&'a str, &'a str)>, value: f64) {
        self.text.push_str(name);
        self.text.push_str(suffix);
        let mut opening = '{';
        for (label, text) in labels {
            self.text.push(opening);
            opening = ',';
            self.text.push_str(label);
            self.text.push_str("=\"");
            escape(&mut self.text, text, true);
            self.text.push('"');
        }
        if opening == ',' {
            self.text.push('}');
        }
        self.text.push(' ');
        write_number(&mut self.text, value);
        self.text.push('\n');
    }
}

/// How a family is written down in tables: type and buckets or quantiles.
pub fn describe(shape: Shape) -> String {
    match shape {
        Shape::Histogram(bounds) => {
            let bounds: Vec<String> = bounds.iter().map(|bound| number(*bound)).collect();
            format!("histogram {}", bounds.join(" "))
        }
        Shape::Summary => "summary 0 0.5 0.9 0.99 1".to_owned(),
        other => other.as_str().to_owned(),
    }
}

fn number(value: f64) -> String {
    let mut text = String::new();
    write_number(&mut text, value);
    text
}

fn write_number(text: &mut String, value: f64) {
    let _ = if value == f64::INFINITY {
        text.write_str("+Inf")
    } else if value == f64::NEG_INFINITY {
        text.write_str("-Inf")
    } else {
        write!(text, "{value}")
    };
}

/// A help text may contain quotation marks, a label value may not.
fn escape(text: &mut String, written: &str, is_label: bool) {
    for letter in written.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if is_label => text.push_str("\\\""),
            other => text.push(other),
        }
    }
}
