//! The numbers of one family, by label values.

use super::{Family, Page, Shape};
use std::collections::{BTreeMap, VecDeque};

/// A summary answers from so many latest observations: exactly, so within upstream's error of 0.01. Upstream looks back ten minutes
/// instead; a count needs no clock, and a quiet quarter of an hour does not empty the answer.
const OBSERVATIONS_KEPT: usize = 1_000;

const QUANTILES: [f64; 5] = [0.0, 0.5, 0.9, 0.99, 1.0];

/// Between label values in a key. No Kubernetes name or label contains it.
const BETWEEN: char = '\u{1f}';

/// One allocation per series for all of its label values.
#[derive(Debug, Default)]
pub(super) struct Series(BTreeMap<Box<str>, Value>);

#[derive(Debug)]
pub(super) enum Value {
    Number(f64),
    Histogram(Box<Histogram>),
    Summary(Box<Summary>),
}

#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    /// By bucket; the last is beyond every bound.
    counts: Vec<u64>,
    sum: f64,
}

#[derive(Debug, Default)]
pub(super) struct Summary {
    latest: VecDeque<f64>,
    sum: f64,
    count: u64,
}

impl Series {
    pub(super) fn entry(&mut self, labels: &[&str], shape: Shape) -> &mut Value {
        self.0.entry(key(labels)).or_insert_with(|| match shape {
            Shape::Counter | Shape::Gauge => Value::Number(0.0),
            Shape::Histogram(bounds) => Value::Histogram(Box::new(Histogram::new(bounds))),
            Shape::Summary => Value::Summary(Box::default()),
        })
    }

    pub(super) fn get(&self, labels: &[&str]) -> Option<f64> {
        match self.0.get(&key(labels))? {
            Value::Number(number) => Some(*number),
            Value::Histogram(histogram) => Some(histogram.counts.iter().sum::<u64>() as f64),
            Value::Summary(summary) => Some(summary.count as f64),
        }
    }

    pub(super) fn remove(&mut self, labels: &[&str]) {
        self.0.remove(&key(labels));
    }

    pub(super) fn remove_where(&mut self, position: usize, value: &str) {
        self.0.retain(|key, _| key.split(BETWEEN).nth(position) != Some(value));
    }

    pub(super) fn render(&self, family: &Family, page: &mut Page) {
        let mut labels: Vec<(&str, &str)> = Vec::with_capacity(family.labels.len());
        for (key, value) in &self.0 {
            labels.clear();
            labels.extend(family.labels.iter().copied().zip(key.split(BETWEEN)));
            match value {
                Value::Number(number) => page.sample(family.name, &labels, *number),
                Value::Histogram(histogram) => histogram.render(family.name, &labels, page),
                Value::Summary(summary) => summary.render(family.name, &labels, page),
            }
        }
    }
}

impl Value {
    pub(super) fn add(&mut self, by: f64) {
        if let Self::Number(number) = self {
            *number += by;
        }
    }

    pub(super) fn set(&mut self, to: f64) {
        if let Self::Number(number) = self {
            *number = to;
        }
    }

    pub(super) fn observe(&mut self, observed: f64, shape: Shape) {
        match self {
            Self::Histogram(histogram) => histogram.observe(observed),
            Self::Summary(summary) => summary.observe(observed),
            Self::Number(_) => debug_assert!(false, "{} is not observed", shape.as_str()),
        }
    }
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub(crate) fn observe(&mut self, observed: f64) {
        let place = self.bounds.partition_point(|bound| *bound < observed);
        self.counts[place] += 1;
        self.sum += observed;
    }

    pub(crate) fn render(&self, name: &str, labels: &[(&str, &str)], page: &mut Page) {
        page.histogram(name, labels, self.bounds, &self.counts, self.sum);
    }
}

impl Summary {
    fn observe(&mut self, observed: f64) {
        if self.latest.len() == OBSERVATIONS_KEPT {
            self.latest.pop_front();
        }
        self.latest.push_back(observed);
        self.sum += observed;
        self.count += 1;
    }

    fn render(&self, name: &str, labels: &[(&str, &str)], page: &mut Page) {
        let mut sorted: Vec<f64> = self.latest.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |quantile: f64| {
            let rank = (quantile * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
        };
        page.summary(name, labels, &QUANTILES.map(|quantile| (quantile, at(quantile))), self.sum, self.count);
    }
}

fn key(labels: &[&str]) -> Box<str> {
    let mut key = String::with_capacity(labels.iter().map(|label| label.len() + 1).sum());
    for (position, label) in labels.iter().enumerate() {
        if position > 0 {
            key.push(BETWEEN);
        }
        if label.contains(BETWEEN) {
            // What a stranger writes must not move the labels behind it.
            key.extend(label.chars().filter(|letter| *letter != BETWEEN));
        } else {
            key.push_str(label);
        }
    }
    key.into_boxed_str()
}
