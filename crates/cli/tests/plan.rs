//! The binary as users meet it: what it prints, and what its exit status says.
#![expect(clippy::unwrap_used, reason = "a test that cannot run its binary should fail at once")]

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn kerf(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kerf"));
    command.args(arguments).current_dir(root()).stdin(Stdio::null());
    command.output().unwrap()
}

fn kerf_with_input(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kerf"))
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// What an example prints, without the catalogue's date and size, which change on their own.
fn example(name: &str, expected_status: i32) -> String {
    let output = kerf(&["plan", "-f", &format!("examples/{name}"), "--now", "2026-11-15T09:10:00Z"]);
    assert_eq!(output.status.code(), Some(expected_status), "{}{}", stdout(&output), stderr(&output));
    let is_stable = |line: &&str| !line.trim_start().starts_with("catalogue:");
    stdout(&output).lines().filter(is_stable).map(|line| format!("{line}\n")).collect()
}

/// The same example for programs.
fn document(name: &str) -> Value {
    let output = kerf(&["plan", "-f", &format!("examples/{name}"), "-o", "json", "--now", "2026-11-15T09:10:00Z"]);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Each launch as pool, first choice, zone, capacity type and number of pods, in order.
fn launches(document: &Value) -> Vec<(&str, &str, &str, &str, usize)> {
    let launches = document["launches"].as_array().unwrap().iter();
    let mut out: Vec<_> = launches
        .map(|launch| {
            let first = |field: &str| launch["instanceTypes"][0][field].as_str().unwrap();
            let n_pods = launch["pods"].as_array().unwrap().len();
            (launch["nodePool"].as_str().unwrap(), first("name"), first("zone"), first("capacityType"), n_pods)
        })
        .collect();
    out.sort_unstable();
    out
}

/// How many pods a refusal concerns, its causes by pool, and what would help.
type Refusal<'a> = (usize, Vec<(&'a str, &'a str)>, &'a str);

fn refusals(document: &Value) -> Vec<Refusal<'_>> {
    let entries = document["pending"].as_array().unwrap().iter();
    entries
        .map(|entry| {
            let verdicts = entry["verdicts"].as_array().unwrap().iter();
            let causes = verdicts
                .map(|verdict| (verdict["nodePool"].as_str().unwrap_or("-"), verdict["cause"].as_str().unwrap()));
            (entry["pods"].as_array().unwrap().len(), causes.collect(), entry["wouldHelp"].as_str().unwrap_or("-"))
        })
        .collect()
}

#[test]
fn inflate_60_is_spread_over_the_cheapest_nodes() {
    // By hand: c6a is the cheapest per CPU ($0.03825), its sizes hold one CPU less than they have, and 60 pods need at
    // least 61 CPUs: 64 in whatever sizes.
    let plan = document("inflate-60");
    assert_eq!((&plan["summary"]["podsOnNewNodes"], &plan["pending"]), (&60.into(), &Value::Array(vec![])));
    assert_eq!(plan["cost"]["dollarsPerHourAdded"], 64.0 * 0.03825);
    assert!(launches(&plan).iter().all(|(pool, name, _, rate, _)| {
        (*pool, name.starts_with("c6a."), *rate) == ("default", true, "on-demand")
    }));
    insta::assert_snapshot!(example("inflate-60", 0));
}

#[test]
fn one_pod_per_node_gets_exactly_six_nodes() {
    let text = example("one-pod-per-node", 0);
    assert!(text.contains("6 pods on 6 new nodes"), "{text}");
    // The cheapest machine with more than a CPU for pods, six times.
    let plan = document("one-pod-per-node");
    assert_eq!(launches(&plan), [("default", "c6a.large", "us-east-1a", "on-demand", 1); 6]);
    assert_eq!(plan["cost"]["dollarsPerHourAdded"], 0.459);
    insta::assert_snapshot!(text);
}

#[test]
fn gpus_go_to_those_who_tolerate_their_taint() {
    let text = example("gpu", 2);
    assert!(text.contains("did not tolerate taint (taint=nvidia.com/gpu=true:NoSchedule)"), "{text}");
    // One GPU each, and the eight others share the cheapest machine with four CPUs for them.
    let plan = document("gpu");
    let gpu = ("gpu", "g4dn.xlarge", "us-east-1a", "on-demand", 1);
    assert_eq!(launches(&plan), [("general", "c5.2xlarge", "us-east-1a", "on-demand", 8), gpu, gpu, gpu]);
    let causes = vec![("general", "TooLarge"), ("gpu", "TaintNotTolerated")];
    assert_eq!(refusals(&plan), [(1, causes, "tolerate nvidia.com/gpu=true:NoSchedule to use nodepool gpu")]);
    insta::assert_snapshot!(text);
}

#[test]
fn what_spot_cannot_give_on_demand_gives() {
    // The spot pool weighs more and may have sixteen CPUs, which hold fifteen pods. The other nine are bought on demand.
    let plan = document("spot-fallback");
    let pods = |of: &str| launches(&plan).iter().filter(|launch| (launch.0, launch.3) == (of, of)).map(|l| l.4).sum();
    assert_eq!((pods("spot"), pods("on-demand")), (15usize, 9usize));
    assert_eq!(plan["pending"], Value::Array(vec![]));
    insta::assert_snapshot!(example("spot-fallback", 0));
}

#[test]
fn a_pool_at_its_limit_names_the_limit() {
    let text = example("pool-at-limit", 2);
    assert!(text.contains("nodepool default: limits: cpu"), "{text}");
    // Four CPUs are left: one machine with three pods. Two more would serve the next pod.
    let plan = document("pool-at-limit");
    assert_eq!(launches(&plan), [("default", "c6i.xlarge", "us-east-1a", "on-demand", 3)]);
    let causes = vec![("default", "LimitReached")];
    assert_eq!(refusals(&plan), [(7, causes, "raise limit cpu of nodepool default to 18")]);
    insta::assert_snapshot!(text);
}

#[test]
fn volumes_decide_about_zones() {
    let text = example("zonal-volume", 2);
    assert!(text.contains("PersistentVolumeClaim default/data-orphan does not exist"), "{text}");
    // The class of db's volumes allows zone b only; the archive lies in zone c.
    let plan = document("zonal-volume");
    let zones: Vec<(&str, usize)> = launches(&plan).iter().map(|(_, _, zone, _, n_pods)| (*zone, *n_pods)).collect();
    assert_eq!(zones.iter().filter(|(zone, _)| *zone == "us-east-1b").map(|(_, n_pods)| n_pods).sum::<usize>(), 2);
    assert_eq!(zones.iter().filter(|(zone, _)| *zone == "us-east-1c").map(|(_, n_pods)| n_pods).sum::<usize>(), 1);
    assert_eq!(plan["cost"]["dollarsPerHourAdded"], 0.277, "2 × $0.096 for the database, $0.085 for the archiver");
    assert_eq!(refusals(&plan), [(1, vec![("-", "Ill")], "-")]);
    insta::assert_snapshot!(text);
}

#[test]
fn a_dump_of_a_cluster_is_planned_around_what_is_there() {
    let text = example("cluster-dump", 2);
    assert!(!text.contains("Notes"), "a dump of kubectl is nothing odd: {text}");
    insta::assert_snapshot!(text);
}

#[test]
fn the_same_input_gives_the_same_bytes_in_every_format() {
    for format in ["text", "json", "yaml"] {
        let run =
            || stdout(&kerf(&["plan", "-f", "examples/cluster-dump", "-o", format, "--now", "2026-11-15T09:10:00Z"]));
        assert_eq!(run(), run(), "{format}");
    }
    let json = stdout(&kerf(&["plan", "-f", "examples/inflate-60", "-o", "json"]));
    let document: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["format"], "kerf-plan/v1");
    assert_eq!(document["summary"]["podsOnNewNodes"], 60);
    let yaml = stdout(&kerf(&["plan", "-f", "examples/inflate-60", "-o", "yaml"]));
    let same: Value = serde_norway::from_str(&yaml).unwrap();
    assert_eq!(same["summary"], document["summary"]);
}

const POOL: &str = "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: p}, spec: {template: {spec: {nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}, requirements: []}}}}\n";

#[test]
fn bad_documents_are_told_with_file_and_field_and_the_rest_is_planned() {
    let folder = std::env::temp_dir().join(format!("kerf-bad-input-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("below")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let pod = |name: &str, more: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]{more}}}}}\n"
        )
    };
    write("a.yaml", &format!("{POOL}---\n{}---\nkind: Pod\n  bad: [\n---\n{}", pod("fine", ""), pod("fine", "")));
    write("b.yml", &pod("odd-amount", "").replace("cpu: 1", "cpu: 1 core"));
    write(
        "c.json",
        "{\"kind\": \"List\", \"items\": [{\"kind\": \"Pod\", \"apiVersion\": \"v1\", \"metadata\": {\"name\": \"json\"}, \"spec\": {\"containers\": [{\"name\": \"c\"}]}}, {\"kind\": \"Po",
    );
    write(
        "below/d.yaml",
        &pod(
            "odd-operator",
            ", affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Like}]}]}}}",
        ),
    );
    write("ignored.txt", "this is not read");
    let output = kerf(&["plan", "-f", folder.to_str().unwrap()]);
    std::fs::remove_dir_all(&folder).unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(2), "{text}{}", stderr(&output));
    for expected in [
        "2 pods on 1 new node; 2 pods pending",
        "a.yaml:6: document 3: it is not YAML",
        "a.yaml:8: Pod default/fine: it was given before, at",
        "b.yml:1: Pod default/odd-amount: spec.containers[0].resources.requests.cpu: \"1 core\" is not a quantity",
        "c.json:1: document 1, after item 1: it ends in the middle",
        "below/d.yaml:1: Pod default/odd-operator: spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator: unknown operator \"Like\"",
    ] {
        assert!(text.contains(expected), "missing {expected:?} in\n{text}");
    }
}

#[test]
fn standard_input_is_read_in_both_languages() {
    let json =
        r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}"#;
    let output = kerf_with_input(&["plan", "-f", "-"], json);
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("there is no NodePool that grows for pods"), "{}", stdout(&output));
    let output = kerf_with_input(&["plan"], POOL);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).starts_with("0 pods wait for a place; nothing is to be done."));
}

#[test]
fn what_cannot_be_used_at_all_ends_with_status_one() {
    for (arguments, input, expected) in [
        (&["plan", "-f", "no-such-file.yaml"][..], "", "cannot read no-such-file.yaml"),
        (&["plan", "-f", "-"][..], "", "there is no Kubernetes object in -"),
        (&["plan", "-f", "-"][..], "{{{{", "nothing could be read: stdin:1"),
        (&["plan", "-f", "-", "--instance-types", "README.md"][..], "", "README.md"),
        (
            &["plan", "-f", "-", "--scheduler-config", "examples/inflate-60/nodepool.yaml"][..],
            "",
            "there is no such field",
        ),
        (&["plan", "--sideways"][..], "", "unexpected argument"),
        (&["plan", "-f", "-", "--feature-gates", "NodeOverlay="][..], "", "NodeOverlay"),
        (&["crds", "--kind", "Deployment"][..], "", "there is no kind \"Deployment\""),
        (&[][..], "", "Usage: kerf"),
    ] {
        let output = kerf_with_input(arguments, input);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn help_version_and_crds_are_answers() {
    let help = kerf(&["plan", "--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(stdout(&help).contains("2  pods stay pending"));
    assert!(stdout(&kerf(&["--version"])).starts_with("kerf "));
    let crds = stdout(&kerf(&["crds"]));
    assert_eq!(crds.matches("kind: CustomResourceDefinition").count(), 6);
    assert!(stdout(&kerf(&["crds", "--kind", "ec2nc"])).contains("ec2nodeclasses.karpenter.k8s.aws"));
}

#[test]
fn an_own_file_of_instance_types_serves_every_pool() {
    let file = std::env::temp_dir().join(format!("kerf-types-{}.json", std::process::id()));
    let types = r#"[{"name": "big.box", "architecture": "amd64", "operatingSystems": ["linux"], "resources": {"cpu": "64", "memory": "256Gi"},
        "offerings": [{"Price": 2.5, "Available": true, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["here"]}]}]},
        {"name": "odd", "architecture": "amd64", "operatingSystems": ["linux"], "resources": {"cpu": "many"}, "offerings": []}]"#;
    std::fs::write(&file, types).unwrap();
    let pool = POOL.replace("KWOKNodeClass", "AnyClass");
    let pod = "---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {topology.kubernetes.io/zone: here}, containers: [{name: c, resources: {requests: {cpu: 40}}}]}}";
    let output =
        kerf_with_input(&["plan", "-f", "-", "--instance-types", file.to_str().unwrap()], &format!("{pool}{pod}"));
    std::fs::remove_file(&file).unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    assert!(text.contains("big.box") && text.contains("$2.5000"), "{text}");
    assert!(text.contains("instance type odd"), "{text}");
}
