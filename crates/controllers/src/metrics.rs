//! Numbers for Prometheus. Duties count; the shell serves the page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

/// A family of series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    /// The whole name, prefix included.
    pub name: &'static str,
    pub help: &'static str,
    pub shape: Shape,
    pub labels: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    Counter,
    Gauge,
}

/// All series of the process.
#[derive(Debug, Default)]
pub struct Metrics(Mutex<BTreeMap<Family, BTreeMap<Vec<String>, f64>>>);

impl Metrics {
    /// Counts up.
    pub fn add(&self, family: &Family, labels: &[&str], by: f64) {
        self.change(family, labels, |value| *value += by);
    }

    pub fn set(&self, family: &Family, labels: &[&str], to: f64) {
        self.change(family, labels, |value| *value = to);
    }

    /// Drops a series.
    pub fn remove(&self, family: &Family, labels: &[&str]) {
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        if let Some(series) = self.lock().get_mut(family) {
            series.remove(&labels);
        }
    }

    /// The page.
    pub fn render(&self) -> String {
        let mut page = String::new();
        for (family, series) in &*self.lock() {
            let shape = match family.shape {
                Shape::Counter => "counter",
                Shape::Gauge => "gauge",
            };
            let _ = writeln!(page, "# HELP {} {}\n# TYPE {} {shape}", family.name, family.help, family.name);
            for (labels, value) in series {
                let pairs: Vec<String> =
                    family.labels.iter().zip(labels).map(|(name, value)| format!("{name}={value:?}")).collect();
                let _ = writeln!(page, "{}{{{}}} {value}", family.name, pairs.join(","));
            }
        }
        page
    }

    fn change(&self, family: &Family, labels: &[&str], change: impl FnOnce(&mut f64)) {
        debug_assert_eq!(family.labels.len(), labels.len(), "{}", family.name);
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        change(self.lock().entry(*family).or_default().entry(labels).or_insert(0.0));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Family, BTreeMap<Vec<String>, f64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
