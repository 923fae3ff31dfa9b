//! What the operator shows on its two ports.

use kerf_controllers::metrics::page::CONTENT_TYPE;
use kerf_controllers::shell::{Handle, Health, Kept, Pages, Reply};
use std::fmt::Write as _;

/// /metrics, and with profiling what can honestly be said about the process.
pub(crate) fn metrics(handle: &Handle, profiles: bool) -> Pages {
    let (metrics, clock) = (handle.metrics().clone(), handle.clock().clone());
    let page = Kept::new(move || metrics.render_at(clock.now()).into());
    let pages = Pages::default().with("/metrics", move |_| {
        let body = page.page();
        async move { Reply { status: 200, content_type: CONTENT_TYPE, body } }
    });
    if !profiles {
        return pages;
    }
    pages.with("/debug/pprof/", |request| {
        let reply = profile(request.uri().path());
        async move { reply }
    })
}

/// /healthz says that we are; /readyz that everything has been seen once, and with ?verbose what was looked at and what stands still.
pub(crate) fn probes(handle: &Handle) -> Pages {
    let health = handle.health().clone();
    Pages::default().with("/healthz", |_| async { Reply::text(200, "ok") }).with("/readyz", move |request| {
        let is_verbose = request.uri().query().is_some_and(|query| query.split('&').any(asks_for_more));
        let reply = match health.missing() {
            Some(_) if is_verbose => verbose(&health),
            Some(missing) if missing.is_empty() => Reply::text(200, "ok"),
            Some(missing) => {
                let lines: Vec<String> = missing.iter().map(|line| format!("[-]{line}\n")).collect();
                Reply::text(500, format!("{}readyz check failed\n", lines.concat()))
            }
            None => Reply::text(500, "[-]nothing has been looked at yet\nreadyz check failed\n"),
        };
        async move { reply }
    })
}

/// As the API server's own page takes it: the name, with any value.
fn asks_for_more(part: &str) -> bool {
    part.split('=').next() == Some("verbose")
}

/// One line for each kind, and one for each standstill, which makes nobody unready.
fn verbose(health: &Health) -> Reply {
    let mut lines = String::new();
    for (what, trouble) in health.checks() {
        // Writing to a string cannot fail.
        let _ = match trouble {
            None => writeln!(lines, "[+]{what} ok"),
            Some(why) => writeln!(lines, "[-]{what}: {why}"),
        };
    }
    for (what, why) in health.standstills() {
        // As above.
        let _ = writeln!(lines, "[!]{what} stand still: {why}");
    }
    let is_ready = health.is_ready();
    lines.push_str(if is_ready { "readyz check passed\n" } else { "readyz check failed\n" });
    Reply::text(if is_ready { 200 } else { 500 }, lines)
}

/// The probes of one that cannot begin yet, and why.
pub(crate) fn say_waiting(why: &str) -> Pages {
    let why = why.replace('\n', " ");
    Pages::default().with("/healthz", |_| async { Reply::text(200, "ok") }).with("/readyz", move |_| {
        let reply = Reply::text(500, format!("[-]{why}\nreadyz check failed\n"));
        async move { reply }
    })
}

/// The pages that Go programs have here, as far as a program without a garbage collector has something to say.
fn profile(path: &str) -> Reply {
    let page = path.trim_start_matches("/debug/pprof/").trim_end_matches('/');
    match page {
        "" => Reply::text(
            200,
            "cmdline       the command line\n\
             heap, allocs  memory, as the kernel counts it\n\
             goroutine, threadcreate  threads, and the CPU time of each\n\
             profile, trace, symbol, block, mutex: not here; see their pages\n",
        ),
        "cmdline" => {
            let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
            Reply::text(200, words.join("\0"))
        }
        "heap" | "allocs" => Reply::text(200, memory()),
        "goroutine" | "threadcreate" => Reply::text(200, threads()),
        "profile" | "trace" | "symbol" | "block" | "mutex" => Reply::text(
            501,
            format!(
                "{page} is a page of the Go runtime, and this is no Go program.\n\
                 For a CPU profile, attach `perf record -F 99 -g -p {}` to the process; its symbols are in the binary.\n",
                std::process::id()
            ),
        ),
        other => Reply::text(404, format!("there is no profile {other:?}; see /debug/pprof/\n")),
    }
}

/// The lines of /proc/self/status about memory. Empty where there is no /proc.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status.lines().filter(|line| line.starts_with("Vm") || line.starts_with("Rss"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Resident memory, where the kernel says.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// One line per thread: its name, and ticks of CPU time in user and system mode.
fn threads() -> String {
    let mut lines: Vec<String> = Vec::new();
    for entry in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name is in brackets, and may hold anything.
        let Some((head, tail)) = stat.rsplit_once(')') else { continue };
        let name = head.split_once('(').map_or("", |(_, name)| name);
        let fields: Vec<&str> = tail.split_whitespace().collect();
        if let (Some(user), Some(system)) = (fields.get(11), fields.get(12)) {
            lines.push(format!("{name}: user {user} ticks, system {system} ticks\n"));
        }
    }
    lines.sort();
    let mut out = String::new();
    let _ = writeln!(out, "{} threads", lines.len());
    out.extend(lines);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_the_go_runtime_say_what_to_use_instead() {
        let reply = profile("/debug/pprof/profile");
        assert_eq!(reply.status, 501);
        assert!(String::from_utf8_lossy(&reply.body).contains("perf record"));
        assert_eq!(profile("/debug/pprof/nonsense").status, 404);
    }

    #[test]
    fn what_can_be_said_is_said() {
        for (page, word) in [("", "heap"), ("cmdline", "kerf"), ("heap", "VmRSS"), ("goroutine", "threads")] {
            let reply = profile(&format!("/debug/pprof/{page}"));
            assert_eq!(reply.status, 200, "{page}");
            assert!(String::from_utf8_lossy(&reply.body).contains(word), "{page}");
        }
        assert!(resident_bytes().unwrap() > 1_000_000);
    }
}
