//! Numbers for Prometheus: duties count, the shell serves the page.
//!
//! ```text
//! duty ── add, set, observe, remove ──▶ Metrics ── render ──▶ the page (text format 0.0.4)
//! board of pods, of nodes, of conditions ── Source ──▲
//! ```
//!
//! Every name, label, bucket and quantile is upstream's: dashboards and alerts go on working. `prometheus-client` writes
//! OpenMetrics, which gives counters another name and knows no summaries, so the registry is our own; it is small, because a
//! duty needs four verbs.
//!
//! What exists once per pod, node or condition is not stored here as numbers and label strings, a hundred thousand of them:
//! a [`Source`] holds the facts that the operator shares anyway, and writes the series while the page is rendered.
//!
//! Not for deciding: nothing reads a metric back.

pub mod catalogue;
pub mod families;
pub mod page;
pub mod runtime;
mod series;

use kerf_model::UnixMillis;
pub use page::Page;
pub(crate) use series::Histogram;
use series::{Series, Value};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A family of series.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Family {
    /// The whole name, prefix included.
    pub name: &'static str,
    pub help: &'static str,
    pub shape: Shape,
    pub labels: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub enum Shape {
    Counter,
    Gauge,
    /// Upper bounds of its buckets, ascending; `+Inf` is understood.
    Histogram(&'static [f64]),
    /// The quantiles 0, 0.5, 0.9, 0.99 and 1 of the latest observations.
    Summary,
}

impl Shape {
    /// As the `TYPE` line says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
            Self::Summary => "summary",
        }
    }
}

/// Writes its series when the page is rendered, from facts that it holds anyway.
pub trait Source: Send + Sync {
    /// Ages are told as of `now`.
    fn render(&self, page: &mut Page, now: UnixMillis);
}

/// All series of the process. Each verb is a short lock; nobody holds it while the page is written to a client.
pub struct Metrics {
    families: Mutex<BTreeMap<&'static str, (Family, Series)>>,
    sources: Mutex<BTreeMap<&'static str, Arc<dyn Source>>>,
    /// When the operator last worked.
    worked_at: AtomicI64,
}

impl Default for Metrics {
    /// With every family of [`families::ALL`], so that a page names them before they have a series.
    fn default() -> Self {
        let families = families::ALL.iter().map(|family| (family.name, (**family, Series::default()))).collect();
        Self { families: Mutex::new(families), sources: Mutex::default(), worked_at: AtomicI64::new(0) }
    }
}

impl Metrics {
    /// Counts up.
    pub fn add(&self, family: &Family, labels: &[&str], by: f64) {
        debug_assert!(matches!(family.shape, Shape::Counter | Shape::Gauge), "{}: nothing to add to", family.name);
        self.change(family, labels, |value| value.add(by));
    }

    pub fn set(&self, family: &Family, labels: &[&str], to: f64) {
        debug_assert_eq!(family.shape, Shape::Gauge, "{}: only a gauge is set", family.name);
        self.change(family, labels, |value| value.set(to));
    }

    /// One more observation, of a histogram or a summary.
    pub fn observe(&self, family: &Family, labels: &[&str], observed: f64) {
        let is_observed = matches!(family.shape, Shape::Histogram(_) | Shape::Summary);
        debug_assert!(is_observed, "{}: nothing to observe", family.name);
        self.change(family, labels, |value| value.observe(observed, family.shape));
    }

    /// Drops a series.
    pub fn remove(&self, family: &Family, labels: &[&str]) {
        if let Some((_, series)) = self.families().get_mut(family.name) {
            series.remove(labels);
        }
    }

    /// Drops every series whose label has this value: what is gone leaves no numbers behind.
    pub fn remove_where(&self, family: &Family, label: &str, value: &str) {
        let Some(position) = family.labels.iter().position(|name| *name == label) else {
            debug_assert!(false, "{} has no label {label}", family.name);
            return;
        };
        if let Some((_, series)) = self.families().get_mut(family.name) {
            series.remove_where(position, value);
        }
    }

    /// Drops every series of a family.
    pub fn clear(&self, family: &Family) {
        if let Some((_, series)) = self.families().get_mut(family.name) {
            *series = Series::default();
        }
    }

    /// Puts these series in the place of all that a gauge had, at once: no page shows half of them.
    pub fn replace<'a>(&self, family: &Family, all: impl Iterator<Item = (Vec<&'a str>, f64)>) {
        debug_assert_eq!(family.shape, Shape::Gauge, "{}: only a gauge is replaced", family.name);
        let mut series = Series::default();
        for (labels, value) in all {
            debug_assert_eq!(family.labels.len(), labels.len(), "{}: {labels:?}", family.name);
            series.entry(&labels, family.shape).set(value);
        }
        self.families().insert(family.name, (*family, series));
    }

    /// What a counter or gauge stands at, or how often a histogram or summary observed; None without a series.
    pub fn get(&self, family: &Family, labels: &[&str]) -> Option<f64> {
        self.families().get(family.name).and_then(|(_, series)| series.get(labels))
    }

    /// Series that are written while the page is rendered. A source takes the place of the one of its name before it: after
    /// a change of leadership the new duty's facts count.
    pub fn attach(&self, name: &'static str, source: Arc<dyn Source>) {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).insert(name, source);
    }

    /// The operator's time, for whoever renders without a clock.
    pub(crate) fn tell_time(&self, now: UnixMillis) {
        self.worked_at.store(now.0, Ordering::Relaxed);
    }

    /// The page, in the text format 0.0.4, as of when the operator last worked.
    pub fn render(&self) -> String {
        self.render_at(UnixMillis(self.worked_at.load(Ordering::Relaxed)))
    }

    /// The page as of now.
    pub fn render_at(&self, now: UnixMillis) -> String {
        let sources: Vec<Arc<dyn Source>> =
            self.sources.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let mut page = Page::default();
        for source in sources {
            source.render(&mut page, now);
        }
        for (family, series) in self.families().values() {
            if page.begin_unless_begun(family) {
                series.render(family, &mut page);
            }
        }
        page.into_text()
    }

    fn change(&self, family: &Family, labels: &[&str], change: impl FnOnce(&mut Value)) {
        debug_assert_eq!(family.labels.len(), labels.len(), "{}: {:?} for {labels:?}", family.name, family.labels);
        let mut families = self.families();
        let (_, series) = families.entry(family.name).or_insert_with(|| (*family, Series::default()));
        change(series.entry(labels, family.shape));
    }

    fn families(&self) -> MutexGuard<'_, BTreeMap<&'static str, (Family, Series)>> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").field("families", &self.families().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTED: Family =
        Family { name: "a_counted_total", help: "Counts.", shape: Shape::Counter, labels: &["pool", "zone"] };
    const TIMED: Family =
        Family { name: "b_timed_seconds", help: "Takes time.", shape: Shape::Histogram(&[0.5, 1.0, 2.5]), labels: &[] };
    const SUMMED: Family = Family { name: "c_summed", help: "Sums\nup.", shape: Shape::Summary, labels: &["pool"] };

    fn page_of(metrics: &Metrics, family: &Family) -> String {
        let mentions = |line: &&str| line.contains(family.name);
        metrics.render().lines().filter(mentions).map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn counters_and_histograms_read_as_prometheus_writes_them() {
        let metrics = Metrics::default();
        metrics.add(&COUNTED, &["default", "z\"1\\\n"], 1.0);
        metrics.add(&COUNTED, &["default", "z\"1\\\n"], 2.0);
        metrics.add(&COUNTED, &["", ""], 0.0);
        for seconds in [0.25, 1.0, 9.0] {
            metrics.observe(&TIMED, &[], seconds);
        }
        assert_eq!(
            page_of(&metrics, &COUNTED),
            "# HELP a_counted_total Counts.\n# TYPE a_counted_total counter\n\
             a_counted_total{pool=\"\",zone=\"\"} 0\n\
             a_counted_total{pool=\"default\",zone=\"z\\\"1\\\\\\n\"} 3\n"
        );
        assert_eq!(
            page_of(&metrics, &TIMED),
            "# HELP b_timed_seconds Takes time.\n# TYPE b_timed_seconds histogram\n\
             b_timed_seconds_bucket{le=\"0.5\"} 1\nb_timed_seconds_bucket{le=\"1\"} 2\n\
             b_timed_seconds_bucket{le=\"2.5\"} 2\nb_timed_seconds_bucket{le=\"+Inf\"} 3\n\
             b_timed_seconds_sum 10.25\nb_timed_seconds_count 3\n"
        );
    }

    #[test]
    fn a_summary_tells_five_quantiles_of_the_latest_observations() {
        let metrics = Metrics::default();
        for n in 1..=3_000 {
            metrics.observe(&SUMMED, &["default"], f64::from(n));
        }
        // The latest thousand are 2001 to 3000.
        assert_eq!(
            page_of(&metrics, &SUMMED),
            "# HELP c_summed Sums\\nup.\n# TYPE c_summed summary\n\
             c_summed{pool=\"default\",quantile=\"0\"} 2001\nc_summed{pool=\"default\",quantile=\"0.5\"} 2500\n\
             c_summed{pool=\"default\",quantile=\"0.9\"} 2900\nc_summed{pool=\"default\",quantile=\"0.99\"} 2990\n\
             c_summed{pool=\"default\",quantile=\"1\"} 3000\n\
             c_summed_sum{pool=\"default\"} 4501500\nc_summed_count{pool=\"default\"} 3000\n"
        );
    }

    #[test]
    fn what_is_removed_is_off_the_page_and_a_family_without_series_is_still_named() {
        let metrics = Metrics::default();
        metrics.add(&COUNTED, &["a", "1"], 1.0);
        metrics.add(&COUNTED, &["a", "2"], 1.0);
        metrics.add(&COUNTED, &["b", "1"], 1.0);
        metrics.remove(&COUNTED, &["b", "1"]);
        assert_eq!(metrics.get(&COUNTED, &["b", "1"]), None);
        assert_eq!(metrics.get(&COUNTED, &["a", "2"]), Some(1.0));
        metrics.remove_where(&COUNTED, "pool", "a");
        assert_eq!(page_of(&metrics, &COUNTED), "# HELP a_counted_total Counts.\n# TYPE a_counted_total counter\n");
    }

    #[test]
    fn a_source_writes_its_own_families_once() {
        struct Board;
        impl Source for Board {
            fn render(&self, page: &mut Page, _: UnixMillis) {
                page.begin(COUNTED.name, COUNTED.help, "counter");
                page.sample(COUNTED.name, &[("pool", "of a board")], f64::INFINITY);
            }
        }
        let metrics = Metrics::default();
        metrics.attach("board", Arc::new(Board));
        metrics.attach("board", Arc::new(Board));
        metrics.add(&COUNTED, &["stored", ""], 1.0);
        assert_eq!(
            page_of(&metrics, &COUNTED),
            "# HELP a_counted_total Counts.\n# TYPE a_counted_total counter\n\
             a_counted_total{pool=\"of a board\"} +Inf\n"
        );
    }
}
