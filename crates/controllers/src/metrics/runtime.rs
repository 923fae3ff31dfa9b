//! Numbers of the process itself: memory, processor time, requests to the API server, calls of the cloud, the build.
//!
//! Upstream's performance suite takes a sample only from a page that has `process_resident_memory_bytes`,
//! `process_cpu_seconds_total` and `go_gc_heap_live_bytes`, none of them 0. The last is the live heap of Go's collector; ours is the
//! resident anonymous memory (`RssAnon`): heap and stacks, without the mapped binary and without pages shared with others. It counts
//! what the allocator holds back too, so it never flatters.

use super::families::{
    BUILD_INFO, CLIENT_GO_REQUEST_DURATION_SECONDS, CLIENT_GO_REQUEST_TOTAL, CLOUDPROVIDER_DURATION_SECONDS,
    CLOUDPROVIDER_ERRORS_TOTAL, CONTROLLER_RUNTIME_ACTIVE_WORKERS, CONTROLLER_RUNTIME_RECONCILE_ERRORS_TOTAL,
    CONTROLLER_RUNTIME_RECONCILE_TOTAL, GO_GC_HEAP_LIVE_BYTES, PROCESS_CPU_SECONDS_TOTAL, PROCESS_MAX_FDS,
    PROCESS_OPEN_FDS, PROCESS_RESIDENT_MEMORY_BYTES, PROCESS_START_TIME_SECONDS, PROCESS_VIRTUAL_MEMORY_BYTES,
};
use super::{Family, Metrics, Page, Source};
use crate::errand::{CloudCall, Errand, Outcome, Ticket};
use kerf_cloud::CloudError;
use kerf_model::{Text, UnixMillis};
use std::collections::BTreeMap;
use std::fs;

/// Linux counts processor time for programs in hundredths of a second, whatever its own clock does.
const TICKS_PER_SECOND: f64 = 100.0;

/// What the system knows of this process, asked when the page is rendered. Where there is no `/proc`, the series are absent.
#[derive(Debug, Default)]
pub struct Process;

impl Source for Process {
    fn render(&self, page: &mut Page, _: UnixMillis) {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (status, stat) = (read("/proc/self/status"), read("/proc/self/stat"));
        let samples = [
            (&PROCESS_RESIDENT_MEMORY_BYTES, status_bytes(&status, "VmRSS:")),
            (&GO_GC_HEAP_LIVE_BYTES, status_bytes(&status, "RssAnon:")),
            (&PROCESS_VIRTUAL_MEMORY_BYTES, status_bytes(&status, "VmSize:")),
            (&PROCESS_CPU_SECONDS_TOTAL, cpu_seconds(&stat)),
            (&PROCESS_START_TIME_SECONDS, start_seconds(&stat, &read("/proc/stat"))),
            (&PROCESS_OPEN_FDS, fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64)),
            (&PROCESS_MAX_FDS, max_descriptors(&read("/proc/self/limits"))),
        ];
        for (family, value) in samples {
            if let Some(value) = value {
                write(page, family, value);
            }
        }
    }
}

fn write(page: &mut Page, family: &Family, value: f64) {
    page.begin_family(family);
    page.sample(family.name, &[], value);
}

/// Tells the release, once at start.
pub fn tell_build(metrics: &Metrics, version: &str, commit: &str) {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let rust = concat!("rust", env!("CARGO_PKG_RUST_VERSION"));
    metrics.set(&BUILD_INFO, &[version, rust, arch, commit], 1.0);
}

/// Counts a request to the API server that has ended; status 0 means that there was no answer.
pub fn request_ended(metrics: &Metrics, method: &str, path: &str, status: u16, seconds: f64) {
    let code = if status == 0 { "<error>".to_owned() } else { status.to_string() };
    metrics.add(&CLIENT_GO_REQUEST_TOTAL, &[&code, method], 1.0);
    let target = Target::of(path);
    let verb = if method == "GET" && target.is_collection { "LIST" } else { method };
    let labels = [verb, target.group, target.version, target.plural, target.subresource];
    metrics.observe(&CLIENT_GO_REQUEST_DURATION_SECONDS, &labels, seconds);
}

/// Follows errands from their order to their end: how many are under way, how they ended, and how long the cloud took, waiting for a
/// turn included.
#[derive(Debug, Default)]
pub struct Stopwatch(BTreeMap<Ticket, Begun>);

#[derive(Debug)]
struct Begun {
    at: UnixMillis,
    what: What,
}

#[derive(Debug)]
enum What {
    CloudCall { method: &'static str, pool: Text },
    Other,
}

impl Stopwatch {
    pub fn began(&mut self, ticket: &Ticket, errand: &Errand, now: UnixMillis, metrics: &Metrics) {
        metrics.add(&CONTROLLER_RUNTIME_ACTIVE_WORKERS, &[ticket.duty], 1.0);
        let what = match errand {
            // Requests are counted by whoever sends them.
            Errand::Api(_) | Errand::Think(_) => What::Other,
            Errand::Cloud(call) => match call.method() {
                Some(method) => What::CloudCall { method, pool: pool_of(call) },
                None => What::Other,
            },
        };
        self.0.insert(ticket.clone(), Begun { at: now, what });
    }

    pub fn ended(&mut self, ticket: &Ticket, outcome: &Outcome, now: UnixMillis, metrics: &Metrics, provider: &str) {
        let Some(begun) = self.0.remove(ticket) else {
            return;
        };
        metrics.add(&CONTROLLER_RUNTIME_ACTIVE_WORKERS, &[ticket.duty], -1.0);
        let result = if has_failed(outcome) { "error" } else { "success" };
        metrics.add(&CONTROLLER_RUNTIME_RECONCILE_TOTAL, &[ticket.duty, result], 1.0);
        if result == "error" {
            metrics.add(&CONTROLLER_RUNTIME_RECONCILE_ERRORS_TOTAL, &[ticket.duty], 1.0);
        }
        let seconds = now.0.saturating_sub(begun.at.0).max(0) as f64 / 1_000.0;
        if let (What::CloudCall { method, pool }, Outcome::Cloud(answer)) = (&begun.what, outcome) {
            metrics.observe(&CLOUDPROVIDER_DURATION_SECONDS, &[ticket.duty, method, provider], seconds);
            if let Err(error) = answer {
                let kind = error_kind(error);
                // Upstream leaves the pool out where it does not know what went wrong.
                let pool = if kind == "unknown" { "" } else { &**pool };
                metrics.add(&CLOUDPROVIDER_ERRORS_TOTAL, &[ticket.duty, method, provider, kind, pool], 1.0);
            }
        }
    }
}

fn has_failed(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Api(answer) => answer.is_err(),
        // What a provider does not do is no failure: whoever asked does without.
        Outcome::Cloud(answer) => answer.as_ref().is_err_and(|error| !matches!(error, CloudError::Unsupported { .. })),
        Outcome::Thought { plan, .. } => plan.is_err(),
    }
}

/// The NodePool that a call is for, where the call says.
fn pool_of(call: &CloudCall) -> Text {
    match call {
        CloudCall::Launch(order) => order.pool.as_ref().map(|pool| pool.0.clone()).unwrap_or_default(),
        _ => Text::default(),
    }
}

fn error_kind(error: &CloudError) -> &'static str {
    match error {
        CloudError::NotFound { .. } => "NodeClaimNotFoundError",
        CloudError::ClassNotReady { .. } => "NodeClassNotReadyError",
        CloudError::NoCapacity { .. } => "InsufficientCapacityError",
        _ => "unknown",
    }
}

/// What a path of the API server names.
#[derive(Debug, PartialEq, Eq)]
struct Target<'a> {
    group: &'a str,
    version: &'a str,
    plural: &'a str,
    subresource: &'a str,
    is_collection: bool,
}

impl<'a> Target<'a> {
    fn of(path: &'a str) -> Self {
        let path = path.split('?').next().unwrap_or_default();
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let root = parts.next();
        let group = if root == Some("apis") { parts.next().unwrap_or_default() } else { "" };
        let version = parts.next().unwrap_or_default();
        let rest: Vec<&str> = parts.collect();
        let named = match rest.as_slice() {
            ["namespaces", _, plural, named @ ..] if !matches!(*plural, "status" | "finalize") => {
                (*plural, named.get(1), named.is_empty())
            }
            [plural, named @ ..] => (*plural, named.get(1), named.is_empty()),
            [] => ("", None, false),
        };
        let (plural, subresource, is_collection) = named;
        Self { group, version, plural, subresource: subresource.copied().unwrap_or_default(), is_collection }
    }
}

/// A line `VmRSS:     1234 kB`.
fn status_bytes(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0)
}

/// The fields of `stat` behind the program's name, which may itself contain anything; the first of these is the third of all.
fn fields(stat: &str) -> Option<Vec<&str>> {
    stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect())
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    let fields = fields(stat)?;
    let ticks = |position: usize| fields.get(position)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

fn start_seconds(stat: &str, system: &str) -> Option<f64> {
    let ticks: f64 = fields(stat)?.get(19)?.parse().ok()?;
    let boot: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + ticks / TICKS_PER_SECOND)
}

/// A line `Max open files   1024   4096   files`; the first figure is the one that counts.
fn max_descriptors(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errand::CloudAnswer;

    #[test]
    fn the_system_knows_what_the_process_takes() {
        let stat = "42 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 9 0 1000 77 5";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(start_seconds(stat, "cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_010.0));
        assert_eq!(status_bytes("Name:\tkerf\nVmRSS:\t    2048 kB\n", "VmRSS:"), Some(2_097_152.0));
        assert_eq!(
            max_descriptors("Max open files            1024                 4096                 files"),
            Some(1024.0)
        );
        assert_eq!(cpu_seconds(""), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_page_has_the_three_series_that_a_performance_report_needs() {
        let metrics = Metrics::default();
        metrics.attach("process", std::sync::Arc::new(Process));
        let page = metrics.render();
        for name in ["process_resident_memory_bytes", "go_gc_heap_live_bytes"] {
            let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).expect(name);
            assert!(line.parse::<f64>().unwrap() > 100_000.0, "{name} {line}");
        }
        // A test may have run for less than a hundredth of a second.
        assert!(page.contains("\nprocess_cpu_seconds_total "), "{page}");
    }

    #[test]
    fn a_path_names_group_version_resource_and_subresource() {
        let target = |path| {
            let Target { group, version, plural, subresource, is_collection } = Target::of(path);
            format!("{group}|{version}|{plural}|{subresource}|{is_collection}")
        };
        assert_eq!(target("/api/v1/nodes"), "|v1|nodes||true");
        assert_eq!(target("/api/v1/nodes/a?x=/y"), "|v1|nodes||false");
        assert_eq!(target("/api/v1/namespaces/a/pods/b/eviction"), "|v1|pods|eviction|false");
        assert_eq!(target("/api/v1/namespaces"), "|v1|namespaces||true");
        assert_eq!(target("/api/v1/namespaces/a"), "|v1|namespaces||false");
        assert_eq!(target("/apis/karpenter.sh/v1/nodeclaims/c/status"), "karpenter.sh|v1|nodeclaims|status|false");
        assert_eq!(target("/apis/apps/v1/namespaces/a/deployments"), "apps|v1|deployments||true");
        assert_eq!(target("/version"), "||||false");
    }

    #[test]
    fn requests_and_cloud_calls_are_counted_by_their_answers() {
        let metrics = Metrics::default();
        request_ended(&metrics, "GET", "/api/v1/nodes?limit=500", 200, 0.002);
        request_ended(&metrics, "GET", "/api/v1/nodes?limit=500", 0, 5.0);
        assert_eq!(metrics.get(&CLIENT_GO_REQUEST_TOTAL, &["<error>", "GET"]), Some(1.0));
        assert_eq!(metrics.get(&CLIENT_GO_REQUEST_DURATION_SECONDS, &["LIST", "", "v1", "nodes", ""]), Some(2.0));

        let ticket = |key: &str| Ticket { duty: "c", key: key.into() };
        let mut watch = Stopwatch::default();
        request_ended(&metrics, "POST", "/api/v1/namespaces/a/pods/b/eviction", 201, 0.01);
        assert_eq!(metrics.get(&CLIENT_GO_REQUEST_TOTAL, &["201", "POST"]), Some(1.0));
        let of_eviction = ["POST", "", "v1", "pods", "eviction"];
        assert_eq!(metrics.get(&CLIENT_GO_REQUEST_DURATION_SECONDS, &of_eviction), Some(1.0));
        for key in ["dry", "?", "well"] {
            watch.began(&ticket(key), &Errand::Cloud(CloudCall::List), UnixMillis(0), &metrics);
        }
        assert_eq!(metrics.get(&CONTROLLER_RUNTIME_ACTIVE_WORKERS, &["c"]), Some(3.0));
        let dry = CloudError::NoCapacity { message: "dry".into(), sold_out: Vec::new() };
        let answers =
            [("dry", Err(dry)), ("?", Err(CloudError::Other { message: "?".into() })), ("well", Ok(CloudAnswer::Done))];
        for (key, answer) in answers {
            watch.ended(&ticket(key), &Outcome::Cloud(answer), UnixMillis(2_500), &metrics, "kwok");
        }
        let errors = |kind, pool| metrics.get(&CLOUDPROVIDER_ERRORS_TOTAL, &["c", "List", "kwok", kind, pool]);
        assert_eq!(errors("InsufficientCapacityError", ""), Some(1.0));
        assert_eq!(errors("unknown", ""), Some(1.0));
        assert_eq!(metrics.get(&CLOUDPROVIDER_DURATION_SECONDS, &["c", "List", "kwok"]), Some(3.0));
        assert!(
            metrics
                .render()
                .contains("cloudprovider_duration_seconds_sum{controller=\"c\",method=\"List\",provider=\"kwok\"} 7.5")
        );
        assert_eq!(metrics.get(&CONTROLLER_RUNTIME_RECONCILE_TOTAL, &["c", "error"]), Some(2.0));
        assert_eq!(metrics.get(&CONTROLLER_RUNTIME_ACTIVE_WORKERS, &["c"]), Some(0.0));
    }
}
