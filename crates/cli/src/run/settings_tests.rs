use super::*;
use clap::Parser;
use std::collections::BTreeMap;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    run: RunArguments,
}

fn resolve(flags: &[&str], variables: &[(&str, &str)]) -> anyhow::Result<(Settings, Vec<String>)> {
    let line = Line::try_parse_from([&["run"], flags].concat())?;
    let variables: BTreeMap<String, String> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Settings::resolve(&line.run, &|name| variables.get(name).cloned())
}

/// What one setting shows, in words.
fn shown(settings: &Settings, flag: &str) -> String {
    let s = settings;
    match flag {
        "cloud" => format!("{:?}", s.cloud).to_lowercase(),
        "instance-types-file-path" => {
            s.instance_types_file.as_ref().map_or_else(String::new, |it| it.display().to_string())
        }
        "karpenter-service" => s.karpenter_service.clone(),
        "cluster-name" => s.aws.cluster_name.clone(),
        "cluster-endpoint" => s.aws.cluster_endpoint.clone(),
        "cluster-ca-bundle" => s.aws.cluster_ca_bundle.clone(),
        "isolated-vpc" => s.aws.is_isolated_vpc.to_string(),
        "eks-control-plane" => s.aws.is_eks_control_plane.to_string(),
        "vm-memory-overhead-percent" => s.aws.vm_memory_overhead_share.to_string(),
        "interruption-queue" => s.aws.interruption_queue.clone(),
        "reserved-enis" => s.aws.reserved_enis.to_string(),
        "disable-dry-run" => s.aws.is_dry_run_disabled.to_string(),
        "enable-zonal-shift" => s.aws.has_zonal_shift.to_string(),
        "ami-refresh-interval" => format!("{}ms", s.aws.ami_refresh_ms),
        "subnet-refresh-interval" => format!("{}ms", s.aws.subnet_refresh_ms),
        "aws-feature-gates" => format!("NodeClassCEL={}", s.aws.has_node_class_cel),
        "metrics-port" => s.metrics_port.to_string(),
        "health-probe-port" => s.health_probe_port.to_string(),
        "explain-port" => s.explain_port.to_string(),
        "explain-file" => s.explain_file.as_ref().map_or_else(String::new, |it| it.display().to_string()),
        "kube-client-qps" => s.kube_client_qps.to_string(),
        "kube-client-burst" => s.kube_client_burst.to_string(),
        "enable-profiling" => s.profiles.to_string(),
        "disable-controller-warmup" => (!s.warms_up).to_string(),
        "watch-stale-after" => format!("{}ms", s.stale_after_ms),
        "pause-disruption" => s.pauses_disruption.to_string(),
        "brake-above-nodes" => s.brake_above_nodes.to_string(),
        "disable-leader-election" => (!s.elects_leader).to_string(),
        "disable-cluster-state-observability" => (!s.observes_cluster_state).to_string(),
        "leader-election-name" => s.lease_name.clone(),
        "leader-election-namespace" => s.lease_namespace.clone(),
        "memory-limit" => s.memory_limit_bytes.map_or_else(|| "-1".to_owned(), |bytes| bytes.to_string()),
        "cpu-requests" => s.cpu_requests_millis.to_string(),
        "log-level" => format!("{:?}", s.log.level).to_lowercase(),
        "log-output-paths" => s.log.paths.join(","),
        "log-error-output-paths" => s.log.error_paths.join(","),
        "batch-max-duration" => format!("{}ms", s.batch_max_ms),
        "batch-idle-duration" => format!("{}ms", s.batch_idle_ms),
        "preference-policy" => format!("{:?}", s.preferences),
        "min-values-policy" => format!("{:?}", s.min_values),
        "ignore-dra-requests" => s.ignores_dra_requests.to_string(),
        "legacy-node-repair" => s.repairs_as_before.to_string(),
        "feature-gates" => format!("StaticCapacity={}", s.gates.static_capacity),
        "scheduler-config" => s.default_spreads.len().to_string(),
        "rebalance" => format!("{:?}", s.rebalance),
        other => panic!("no such flag: {other}"),
    }
}

const SPREAD: &str = "{podTopologySpread: {defaultConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, \
                      whenUnsatisfiable: ScheduleAnyway}]}}";

/// Flag, what it is by default, a value for the variable, another for the flag, and what each shows.
type Row = (&'static str, &'static str, (&'static str, &'static str), (&'static str, &'static str));

const TABLE: [Row; 45] = [
    ("cloud", "kwok", ("sim", "sim"), ("kwok", "kwok")),
    ("instance-types-file-path", "", ("/a.json", "/a.json"), ("/b.json", "/b.json")),
    ("karpenter-service", "", ("a", "a"), ("b", "b")),
    ("cluster-name", "", ("a", "a"), ("b", "b")),
    ("cluster-endpoint", "", ("https://a", "https://a"), ("https://b", "https://b")),
    ("cluster-ca-bundle", "", ("YQ==", "YQ=="), ("Yg==", "Yg==")),
    ("isolated-vpc", "false", ("true", "true"), ("false", "false")),
    ("eks-control-plane", "false", ("true", "true"), ("false", "false")),
    ("vm-memory-overhead-percent", "0.075", ("0.1", "0.1"), ("0", "0")),
    ("interruption-queue", "", ("a", "a"), ("b", "b")),
    ("reserved-enis", "0", ("1", "1"), ("2", "2")),
    ("disable-dry-run", "false", ("true", "true"), ("false", "false")),
    ("enable-zonal-shift", "false", ("true", "true"), ("false", "false")),
    ("ami-refresh-interval", "60000ms", ("5m", "300000ms"), ("90s", "90000ms")),
    ("subnet-refresh-interval", "60000ms", ("5m", "300000ms"), ("90s", "90000ms")),
    ("aws-feature-gates", "NodeClassCEL=false", ("NodeClassCEL=true", "NodeClassCEL=true"), ("", "NodeClassCEL=false")),
    ("metrics-port", "8080", ("9000", "9000"), ("9001", "9001")),
    ("health-probe-port", "8081", ("9002", "9002"), ("0", "0")),
    ("explain-port", "0", ("9003", "9003"), ("9004", "9004")),
    ("explain-file", "", ("/a", "/a"), ("/b", "/b")),
    ("kube-client-qps", "200", ("5", "5"), ("-1", "-1")),
    ("kube-client-burst", "300", ("10", "10"), ("20", "20")),
    ("enable-profiling", "false", ("true", "true"), ("false", "false")),
    ("disable-controller-warmup", "true", ("false", "false"), ("true", "true")),
    ("watch-stale-after", "300000ms", ("20s", "20000ms"), ("10m", "600000ms")),
    ("pause-disruption", "false", ("true", "true"), ("false", "false")),
    ("brake-above-nodes", "20", ("50", "50"), ("200", "200")),
    ("disable-leader-election", "false", ("1", "true"), ("false", "false")),
    ("disable-cluster-state-observability", "false", ("T", "true"), ("false", "false")),
    ("leader-election-name", "karpenter-leader-election", ("a", "a"), ("b", "b")),
    ("leader-election-namespace", "", ("a", "a"), ("b", "b")),
    ("memory-limit", "-1", ("1073741824", "1073741824"), ("-1", "-1")),
    ("cpu-requests", "1000", ("2000", "2000"), ("-5", "1000")),
    ("log-level", "info", ("", "info"), ("debug", "debug")),
    ("log-output-paths", "stdout", ("stdout, /var/log/kerf", "stdout,/var/log/kerf"), ("stderr", "stderr")),
    ("log-error-output-paths", "stderr", ("stdout", "stdout"), ("/var/log/errors", "/var/log/errors")),
    ("batch-max-duration", "10000ms", ("1m30s", "90000ms"), ("300ms", "300ms")),
    ("batch-idle-duration", "1000ms", ("1.5s", "1500ms"), ("2s", "2000ms")),
    ("preference-policy", "Respect", ("Ignore", "Ignore"), ("Respect", "Respect")),
    ("min-values-policy", "Strict", ("BestEffort", "BestEffort"), ("Strict", "Strict")),
    ("ignore-dra-requests", "true", ("false", "false"), ("true", "true")),
    ("legacy-node-repair", "false", ("true", "true"), ("false", "false")),
    (
        "feature-gates",
        "StaticCapacity=false",
        ("StaticCapacity=true", "StaticCapacity=true"),
        ("", "StaticCapacity=false"),
    ),
    ("scheduler-config", "0", (SPREAD, "1"), ("", "0")),
    ("rebalance", "Ignore", ("replace", "Replace"), ("ignore", "Ignore")),
];

fn variable(flag: &str) -> String {
    if flag == "cloud" { "KERF_CLOUD".to_owned() } else { flag.replace('-', "_").to_ascii_uppercase() }
}

#[test]
fn every_setting_has_its_default_its_variable_and_its_flag_and_the_flag_wins() {
    let (defaults, warnings) = resolve(&[], &[]).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    for (flag, default, (in_variable, from_variable), (in_flag, from_flag)) in TABLE {
        assert_eq!(shown(&defaults, flag), default, "the default of {flag}");
        let variable = variable(flag);
        // Beside a cluster's name, aws would be the cloud where it is built in.
        let cloud = ("KERF_CLOUD", "kwok");
        let cloud = if flag == "cloud" { (variable.as_str(), in_variable) } else { cloud };
        let (settings, _) = resolve(&[], &[cloud, (&variable, in_variable)]).unwrap();
        assert_eq!(shown(&settings, flag), from_variable, "{variable}={in_variable}");
        let given = format!("--{flag}={in_flag}");
        let (settings, _) = resolve(&[&given], &[(&variable, in_variable)]).unwrap();
        assert_eq!(shown(&settings, flag), from_flag, "{given} over {variable}={in_variable}");
    }
}

#[test]
fn explanations_have_a_port_of_their_own_which_in_a_pod_is_known_to_everybody() {
    let port = |variables: &[(&str, &str)]| resolve(&[], variables).map(|(settings, _)| settings.explain_port);
    let pod = ("KUBERNETES_SERVICE_HOST", "10.0.0.1");
    assert_eq!(port(&[]).unwrap(), 0);
    assert_eq!(port(&[pod]).unwrap(), 8082);
    assert_eq!(port(&[pod, ("EXPLAIN_PORT", "9000")]).unwrap(), 9000);
    assert!(port(&[pod, ("EXPLAIN_PORT", "8081")]).unwrap_err().to_string().contains("a port of its own"));
}

#[test]
fn every_flag_is_in_the_table() {
    use clap::CommandFactory;
    let command = Line::command();
    let flags = command.get_arguments().filter_map(|argument| argument.get_long());
    let unknown: Vec<&str> = flags
        .filter(|flag| !matches!(*flag, "kubeconfig" | "help") && !TABLE.iter().any(|(known, ..)| known == flag))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn a_variable_that_cannot_be_read_is_told_and_the_default_counts() {
    for (flag, text) in [
        ("metrics-port", "eighty"),
        ("metrics-port", "70000"),
        ("health-probe-port", ""),
        ("kube-client-qps", "2.5"),
        ("enable-profiling", "yes"),
        ("batch-max-duration", "10"),
        ("batch-idle-duration", "-1s"),
        ("memory-limit", "1Gi"),
        ("ignore-dra-requests", "no"),
    ] {
        let variable = variable(flag);
        let (settings, warnings) = resolve(&[], &[(&variable, text)]).unwrap();
        let (_, default, ..) = TABLE.iter().find(|(known, ..)| *known == flag).unwrap();
        assert_eq!(shown(&settings, flag), *default, "{variable}={text}");
        assert_eq!(warnings.len(), 1, "{variable}={text}: {warnings:?}");
        assert!(warnings[0].contains(&variable) && warnings[0].contains(text), "{warnings:?}");
    }
}

#[test]
fn a_flag_that_cannot_be_read_is_fatal() {
    for flag in [
        "--metrics-port=eighty",
        "--metrics-port=70000",
        "--kube-client-qps=2.5",
        "--enable-profiling=1",
        "--enable-profiling=yes",
        "--batch-max-duration=10",
        "--batch-idle-duration=-1s",
        "--memory-limit=1Gi",
        "--cloud=nimbus",
        "--no-such-flag",
    ] {
        assert!(resolve(&[flag], &[]).is_err(), "{flag}");
    }
}

#[test]
fn aws_is_the_cloud_of_a_named_cluster_where_it_is_built_in() {
    let (settings, _) = resolve(&[], &[("CLUSTER_NAME", "demo")]).unwrap();
    assert_eq!(settings.cloud, if cfg!(feature = "aws") { Cloud::Aws } else { Cloud::Kwok });
    let (settings, _) = resolve(&["--cloud=kwok"], &[("CLUSTER_NAME", "demo")]).unwrap();
    assert_eq!(settings.cloud, Cloud::Kwok);
}

#[test]
fn settings_of_aws_are_checked_only_with_aws() {
    assert!(resolve(&["--cloud=kwok"], &[("RESERVED_ENIS", "-1")]).is_ok());
    let error = resolve(&["--cloud=aws"], &[("RESERVED_ENIS", "-1")]).unwrap_err().to_string();
    assert!(error.contains("RESERVED_ENIS") && error.contains("CLUSTER_NAME"), "all at once: {error}");
}

#[test]
fn a_bare_boolean_flag_means_true() {
    let (settings, _) = resolve(&["--enable-profiling", "--disable-leader-election"], &[]).unwrap();
    assert!(settings.profiles && !settings.elects_leader);
}

#[test]
fn what_cannot_be_meant_ends_the_start_with_what_to_do() {
    for (flags, variables, expected) in [
        (&[][..], &[("LOG_LEVEL", "verbose")][..], "debug, info and error"),
        (&[], &[("PREFERENCE_POLICY", "")], "Respect and Ignore"),
        (&["--rebalance=later"], &[], "ignore and replace"),
        (&[], &[("MIN_VALUES_POLICY", "strict")], "Strict and BestEffort"),
        (&[], &[("FEATURE_GATES", "StaticCapacity=")], "StaticCapacity"),
        (&[], &[("KERF_CLOUD", "nimbus")], "kwok, sim and aws"),
        (&[], &[("SCHEDULER_CONFIG", "{podTopologySpread: {defaultConstraint: []}}")], "defaultConstraint"),
        (&[], &[("SCHEDULER_CONFIG", "{")], "neither YAML nor JSON"),
        (&["--metrics-port=8081"], &[], "another port"),
        (&["--kube-client-qps=0"], &[], "-1 for any number"),
        (&["--kube-client-burst=0"], &[], "above 0"),
        (&["--brake-above-nodes=5"], &[], "20 or more"),
        (&["--leader-election-name="], &[], "--disable-leader-election"),
        (&["--cloud=sim", "--instance-types-file-path=a.json"], &[], "drop one of the two"),
        (&["--cloud=aws"], &[], "CLUSTER_NAME"),
        (&["--cloud=aws", "--cluster-name=a", "--reserved-enis=-1"], &[], "RESERVED_ENIS"),
        (&["--cloud=aws", "--cluster-name=a", "--ami-refresh-interval=soon"], &[], "--ami-refresh-interval"),
    ] {
        let error = resolve(flags, variables).unwrap_err();
        assert!(format!("{error:#}").contains(expected), "{flags:?} {variables:?}: {error:#}");
    }
}

#[test]
fn a_scheduler_config_is_strict() {
    let constraint = |text: &str| format!("{{podTopologySpread: {{defaultConstraints: [{text}]}}}}");
    for text in [
        "{maxSkew: 0, topologyKey: a/b, whenUnsatisfiable: DoNotSchedule}",
        "{maxSkew: 1, topologyKey: a/b, whenUnsatisfiable: Never}",
        "{maxSkew: 1, topologyKey: a/b, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}",
        "{maxSkew: 1, topologyKey: a/b, whenUnsatisfiable: DoNotSchedule, matchLabelKeys: [a]}",
        "{maxSkew: 1, topologyKey: a/b, whenUnsatisfiable: DoNotSchedule}, {maxSkew: 2, topologyKey: a/b, whenUnsatisfiable: DoNotSchedule}",
    ] {
        assert!(resolve(&[], &[("SCHEDULER_CONFIG", &constraint(text))]).is_err(), "{text}");
    }
}

#[test]
fn odd_pairs_are_told() {
    for (flags, expected) in [
        (&["--batch-idle-duration=20s"][..], "longer than"),
        (&["--feature-gates=TerminateFirstRepair=true"], "without gate NodeRepair"),
        (&["--legacy-node-repair", "--feature-gates=NodeRepair=true"], "deprecated"),
        (&["--ignore-dra-requests=false"], "not supported yet"),
        (&["--disable-controller-warmup=false", "--disable-leader-election"], "without leader election"),
    ] {
        let (_, warnings) = resolve(flags, &[]).unwrap();
        assert!(warnings.iter().any(|warning| warning.contains(expected)), "{flags:?}: {warnings:?}");
    }
}

#[test]
fn settings_reach_the_operator() {
    let (settings, _) = resolve(
        &[
            "--batch-max-duration=3s",
            "--batch-idle-duration=500ms",
            "--preference-policy=Ignore",
            "--min-values-policy=BestEffort",
            "--disable-cluster-state-observability",
            "--pause-disruption",
            "--feature-gates=EarlyBinding=true,NodeOverlay=true,ReservedCapacity=false",
            &format!("--scheduler-config={SPREAD}"),
        ],
        &[],
    )
    .unwrap();
    let options = settings.options(LabelRules::kwok(), &["example.com/rack"]);
    assert_eq!((options.batch_max_ms, options.batch_idle_ms), (3_000, 500));
    assert!(!options.observes_cluster_state && options.gates.early_binding && options.pauses_disruption);
    let scheduling = &options.mirror.scheduling;
    assert_eq!(scheduling.preferences, PreferencePolicy::Ignore);
    assert_eq!(scheduling.min_values, MinValuesPolicy::BestEffort);
    assert_eq!((scheduling.placed_by, scheduling.reserved), (Binder::Kerf, None));
    assert!(scheduling.well_known.contains("example.com/rack"));
    assert!(options.mirror.gates.node_overlay && !options.mirror.gates.capacity_buffer);
    assert_eq!(options.mirror.default_spreads.len(), 1);
}

#[test]
fn more_cores_allow_more_at_a_time() {
    for (millis, expected) in [(1, 50), (1_000, 50), (1_001, 57), (60_000, 500), (200_000, 500)] {
        assert_eq!(concurrency(millis, 50, 500), expected, "{millis}");
    }
}
