//! What may differ between two clusters that behave alike, taken out of what kubectl said: names that were drawn, ages,
//! addresses, times. And what kwok, which stands in for the kubelets of the real cluster, leaves out.

use std::sync::LazyLock;

use regex_lite::Regex;

/// Patterns and what stands for them, in the order in which they are replaced.
static REPLACED: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    const TABLE: &[(&str, &str)] = &[
        (r"https://127\.0\.0\.1:[0-9]+", "ENDPOINT"),
        (r"/[^ ]*/(LIVE|MERGED)-[0-9]+/", "${1}/"),
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UID"),
        (r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z| [+-][0-9]{4}( [A-Z]+)?)?", "TIME"),
        (r"\b[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} [+-][0-9]{4}", "TIME"),
        (r#"(resourceVersion|Resource Version)(\\*":|:) *(\\*")?[0-9]+(\\*")?"#, "resourceVersion: N"),
        (r"\b(10|172|192)(\.[0-9]{1,3}){3}\b", "ADDRESS"),
        (r"(HolderIdentity:  ).*", "${1}HOLDER"),
        (r"^(Node:  [a-z-]+/|IP:).*", "${1}"),
        // Suffixes are drawn from letters and digits that make no words.
        (r"(-|=|: |\b)[bcdf-hj-np-tv-z2456789]{4,10}-[bcdf-hj-np-tv-z2456789]{5}\b", "${1}HASH-DRAWN"),
        (r"(pod-template-hash(=|: ))[bcdf-hj-np-tv-z2456789]{4,10}\b", "${1}HASH"),
        (r"(web|made)-[bcdf-hj-np-tv-z2456789]{4,10}\b", "${1}-HASH"),
        (r"(agent|made|generated|kube-api-access)-[bcdf-hj-np-tv-z2456789]{5}\b", "${1}-DRAWN"),
        (r"(^|  )(<invalid>|[0-9]{1,3}s|[0-9]{1,2}m([0-9]{1,2}s)?)( \(x[0-9]+ over [0-9ms]+\))?(  |$)", "${1}AGE$5"),
        (r"\(will retry after [0-9]+s\)", "(will retry)"),
        (r"[0-9]+ms\b", "AGE"),
    ];
    TABLE.iter().map(|(pattern, by)| (Regex::new(pattern).expect("the table has valid patterns"), *by)).collect()
});

static SPACES: LazyLock<Regex> = LazyLock::new(|| Regex::new(" {2,}|\t+").expect("a valid pattern"));

/// The lines of an output without what may differ.
pub(crate) fn of(output: &str) -> Vec<String> {
    // kubectl may or may not log that it ended a watch while it read from it.
    let is_log = |line: &&str| line.contains("reflector.go") && line.contains("context canceled");
    let mut lines: Vec<String> = output.lines().filter(|line| !is_log(line)).map(line).collect();
    if lines.iter().any(|line| line.starts_with("Events:")) {
        leave_out_of_description(&mut lines);
        sort_events(&mut lines);
    }
    if lines.iter().any(|line| line == "kind: Pod") {
        leave_out_pod_status(&mut lines);
    }
    // After a refused change of a pod comes a difference of Go structures.
    if let Some(refused) = lines.iter().position(|line| line.contains("pod updates may not change fields other than")) {
        lines.truncate(refused + 1);
    }
    lines
}

fn line(text: &str) -> String {
    // The width of a column follows from its longest entry, which may be a drawn name. What indents a line stays.
    let indent = text.len() - text.trim_start_matches(' ').len();
    let (indent, rest) = text.split_at(indent);
    let mut said = format!("{indent}{}", SPACES.replace_all(rest.trim_end(), "  "));
    for (pattern, by) in REPLACED.iter() {
        // Twice, as two ages may share the spaces between them.
        said = pattern.replace_all(&said, *by).into_owned();
        if by.contains("AGE") {
            said = pattern.replace_all(&said, *by).into_owned();
        }
    }
    said
}

/// In descriptions of pods and nodes: kwok tells no identity of containers, keeps its own conditions, and tells no events.
fn leave_out_of_description(lines: &mut Vec<String>) {
    const FIELDS: [&str; 4] = ["Container ID:", "Image ID:", "Host Port:", "IPs:"];
    let mut section = String::new();
    lines.retain(|line| {
        if !line.starts_with(' ') {
            section = line.split(':').next().unwrap_or_default().to_owned();
        }
        let is_kubelets = line.contains("  kubelet") || FIELDS.iter().any(|field| line.trim_start().starts_with(field));
        let is_within = line.starts_with(' ');
        let of_deployment = line.contains("Available") || line.contains("Progressing");
        !(is_kubelets || is_within && (section == "IPs" || section == "Conditions" && !of_deployment))
    });
}

/// In a pod's own words: of its status, kwok tells what schedulers and people need, and a kubelet tells more.
fn leave_out_pod_status(lines: &mut Vec<String>) {
    let mut is_status = false;
    lines.retain(|line| {
        if !line.starts_with(' ') {
            is_status = line == "status:";
        }
        !is_status || !line.starts_with(' ') || line.starts_with("  phase:") || line.starts_with("  qosClass:")
    });
}

/// Events of the same second come in any order.
fn sort_events(lines: &mut [String]) {
    let Some(begin) = lines.iter().position(|line| line.starts_with("Events:")) else { return };
    let Some(rows) = lines.get_mut(begin + 1..) else { return };
    let end = rows.iter().position(|line| !line.starts_with(' ')).unwrap_or(rows.len());
    rows[..end].sort();
}

#[test]
fn drawn_names_ages_and_addresses_are_alike() {
    let cases = [
        ("web-7d9c5b6f4-x2v4k   1/1     Running   0          3m5s", "web-HASH-DRAWN  1/1  Running  0  AGE"),
        (
            "web-64f6c5d8b9   2   2  2  10s   web  i  app=web,pod-template-hash=64f6c5d8b9",
            "web-HASH  2  2  2  AGE  web  i  app=web,pod-template-hash=HASH",
        ),
        (
            "  Normal  Scheduled  2s (x3 over 9s)  default-scheduler  ok",
            "  Normal  Scheduled  AGE  default-scheduler  ok",
        ),
        (
            "Tolerations:  not-ready:NoExecute op=Exists for 300s",
            "Tolerations:  not-ready:NoExecute op=Exists for 300s",
        ),
        ("creationTimestamp: \"2026-11-15T12:33:11Z\"", "creationTimestamp: \"TIME\""),
        ("Start Time:       Sun, 15 Nov 2026 12:33:11 +0000", "Start Time:  TIME"),
        ("uid: 28f1bb89-56f0-4493-a98d-9b8289015eae", "uid: UID"),
        ("node 10.0.0.12", "node ADDRESS"),
        ("IP:  10.0.0.12", "IP:"),
    ];
    for (said, alike) in cases {
        assert_eq!(line(said), alike);
    }
}
