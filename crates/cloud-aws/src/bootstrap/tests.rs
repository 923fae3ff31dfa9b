use super::*;
use proptest::prelude::*;
use serde_json::json;

fn kubelet(value: Value) -> Kubelet {
    serde_json::from_value(value).unwrap()
}

fn amounts(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn taint(key: &str, value: &str, effect: Effect) -> Taint {
    Taint { key: key.into(), value: value.into(), effect }
}

/// A node of a small cluster, without anything that a user wrote.
fn plain(family: AmiFamily) -> Bootstrap {
    let claim = Labels::from([
        ("karpenter.sh/nodepool".into(), "default".into()),
        ("kubernetes.io/arch".into(), "amd64".into()),
        ("team".into(), "blue".into()),
    ]);
    Bootstrap {
        family,
        cluster_name: "demo".to_owned(),
        cluster: ClusterFacts {
            endpoint: "https://demo.eks.test".to_owned(),
            ca_bundle: STANDARD.encode("a certificate"),
            service_cidr: Some("10.100.0.0/16".to_owned()),
            version: "1.35".to_owned(),
            dns: Some("10.100.0.10".parse().unwrap()),
        },
        custom: None,
        kubelet: Kubelet::new(),
        resolved: ResolvedKubelet { max_pods: 29, ..ResolvedKubelet::default() },
        labels: node_labels(&claim, CapacityType::Spot),
        taints: node_taints(&[taint("dedicated", "batch", Effect::NoSchedule)], &[]),
        instance_store_raid: false,
        bottlerocket_version: None,
    }
}

/// Every setting of the kubelet that all families pass on, local disks, and user data.
fn full(family: AmiFamily, custom: &str) -> Bootstrap {
    let kubelet = kubelet(json!({
        "clusterDNS": ["10.0.1.100"],
        "maxPods": 42,
        "podsPerCore": 10,
        "systemReserved": {"cpu": "100m", "memory": "min(memory_mib, 100)"},
        "kubeReserved": {"memory": "200Mi"},
        "evictionHard": {"nodefs.available": "10%", "memory.available": "5%"},
        "evictionSoft": {"memory.available": "500Mi"},
        "evictionSoftGracePeriod": {"memory.available": "1m30s"},
        "evictionMaxPodGracePeriod": 60,
        "imageGCHighThresholdPercent": 85,
        "imageGCLowThresholdPercent": 80,
        "cpuCFSQuota": true,
    }));
    Bootstrap {
        custom: Some(custom.to_owned()),
        kubelet,
        resolved: ResolvedKubelet {
            max_pods: 42,
            // The second was not asked for, so the image decides it.
            kube_reserved: amounts(&[("memory", "200Mi"), ("cpu", "70m")]),
            system_reserved: amounts(&[("cpu", "100m"), ("memory", "112Mi")]),
        },
        instance_store_raid: true,
        ..plain(family)
    }
}

fn text(inputs: &Bootstrap) -> String {
    render(inputs).unwrap().unwrap()
}

const SCRIPT: &str = "#!/bin/bash\necho \"hello\"\n";

const ARCHIVE: &str = "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"BOUNDARY\"\r\n\r\n\
    --BOUNDARY\r\nContent-Type: text/cloud-config; charset=\"us-ascii\"\r\nMerge-Type: list(append)\r\n\r\n\
    #cloud-config\r\npackages: [jq]\r\n\r\n\
    --BOUNDARY\r\nContent-Type: text/x-shellscript;\r\n charset=\"us-ascii\"\r\n\r\n#!/bin/bash\r\necho two\r\n--BOUNDARY--\r\n";

#[test]
fn whole_user_data_of_each_family() {
    for (name, inputs) in [
        ("al2", plain(AmiFamily::Al2)),
        ("al2_full", full(AmiFamily::Al2, SCRIPT)),
        ("al2_archive", full(AmiFamily::Al2, ARCHIVE)),
        ("al2023", plain(AmiFamily::Al2023)),
        ("al2023_full", full(AmiFamily::Al2023, SCRIPT)),
        ("al2023_archive", full(AmiFamily::Al2023, ARCHIVE)),
        ("bottlerocket", plain(AmiFamily::Bottlerocket)),
        (
            "bottlerocket_full",
            full(
                AmiFamily::Bottlerocket,
                "[settings.kubernetes]\nkube-api-qps = 30\nmax-pods = 7\n\
                 [settings.kubernetes.node-labels]\n\"example.com/own\" = \"1\"\nteam = \"red\"\n\
                 [settings.ntp]\ntime-servers = [\"169.254.169.123\"]\n",
            ),
        ),
        ("windows2019", plain(AmiFamily::Windows2019)),
        ("windows2022_full", full(AmiFamily::Windows2022, "Write-Host \"it's me\"\r\n")),
        ("windows2025", plain(AmiFamily::Windows2025)),
        ("custom", full(AmiFamily::Custom, "anything: goes\r\n--//")),
    ] {
        insta::assert_snapshot!(name, text(&inputs));
    }
}

#[test]
fn launch_templates_get_it_in_base64() {
    let encoded = user_data(&plain(AmiFamily::Al2)).unwrap().unwrap();
    assert_eq!(STANDARD.decode(encoded).unwrap(), text(&plain(AmiFamily::Al2)).into_bytes());
    assert_eq!(user_data(&plain(AmiFamily::Custom)), Ok(None));
}

#[test]
fn a_node_does_not_give_itself_labels_of_kubernetes() {
    let claim = [
        "kubernetes.io/arch",
        "node.kubernetes.io/instance-type",
        "k8s.io/x",
        "sub.k8s.io/x",
        "node-restriction.kubernetes.io/x",
        "notkubernetes.io/x",
        "topology.k8s.aws/zone-id",
        "plain",
    ];
    let claim: Labels = claim.into_iter().map(|key| (key.into(), "v".into())).collect();
    let labels: Vec<String> = node_labels(&claim, CapacityType::Reserved).into_keys().collect();
    assert_eq!(
        labels,
        [
            "karpenter.sh/capacity-type",
            "karpenter.sh/do-not-sync-taints",
            "notkubernetes.io/x",
            "plain",
            "topology.k8s.aws/zone-id"
        ]
    );
}

#[test]
fn a_node_is_born_unregistered_and_with_each_taint_once() {
    let (a, b) = (taint("a", "1", Effect::NoSchedule), taint("b", "", Effect::NoExecute));
    let taints = node_taints(std::slice::from_ref(&a), &[b, a.clone()]);
    let words: Vec<String> = taints.iter().map(ToString::to_string).collect();
    assert_eq!(words, ["a=1:NoSchedule", "b:NoExecute", "karpenter.sh/unregistered:NoExecute"]);
}

#[test]
fn an_ipv6_cluster_is_told_so_on_al2() {
    let mut inputs = plain(AmiFamily::Al2);
    inputs.cluster.dns = Some("fd00::a".parse().unwrap());
    let text = text(&inputs);
    assert!(text.contains(" \\\n--ip-family ipv6 \\\n--dns-cluster-ip 'fd00::a' \\\n"), "{text}");
}

#[test]
fn text_from_elsewhere_cannot_end_a_quotation() {
    let quote = |family| text(&Bootstrap { cluster_name: "it's".to_owned(), ..plain(family) });
    assert!(quote(AmiFamily::Al2).contains(r"bootstrap.sh 'it'\''s' "));
    assert!(quote(AmiFamily::Windows2022).contains("-EKSClusterName 'it''s' "));
    assert!(quote(AmiFamily::Bottlerocket).contains("cluster-name = \"it's\""));
    assert!(quote(AmiFamily::Al2023).contains("name: \"it's\""));
}

#[test]
fn d0_23_user_data_of_the_class_runs_at_boot_before_the_node_joins() {
    // As the document writes it: without a line that names a shell.
    for family in [AmiFamily::Al2, AmiFamily::Al2023] {
        let inputs = Bootstrap { custom: Some("echo \"hello\"\n".to_owned()), ..plain(family) };
        let parts = mime::parts_of(&text(&inputs)).unwrap();
        assert_eq!(parts.len(), 2);
        assert_eq!(parts[0], mime::Part::new(mime::SHELL_SCRIPT, "#!/bin/bash\necho \"hello\"\n"));
    }
    let windows = Bootstrap { custom: Some("echo hello".to_owned()), ..plain(AmiFamily::Windows2022) };
    assert!(text(&windows).starts_with("<powershell>\necho hello\n[string]"));
}

#[test]
fn a_script_that_names_its_interpreter_or_begins_with_a_comment_is_left_alone() {
    for custom in ["#!/usr/bin/python3\nprint()", "#cloud-config\n[]"] {
        assert_eq!(al2::user_parts(custom).unwrap(), [mime::Part::new(mime::SHELL_SCRIPT, custom)]);
    }
}

/// The parts of an archive by their content types.
fn kinds(text: &str) -> Vec<String> {
    mime::parts_of(text).unwrap().into_iter().map(|part| part.headers.join("|")).collect()
}

#[test]
fn user_parts_of_al2023_are_told_apart_and_the_node_config_comes_last() {
    let config = "Content-Type: application/node.eks.aws";
    let script = mime::SHELL_SCRIPT;
    for (custom, expected) in [
        ("#!/bin/bash\necho: a", config),
        ("#!/bin/bash\necho a", script),
        ("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {}", config),
        ("---\napiVersion: node.eks.aws/v1alpha1\n---\nkind: NodeConfig\n", config),
        ("{\"apiVersion\": \"node.eks.aws/v1alpha1\"}", config),
        ("[1, 2]", script),
        ("just words", script),
        ("#!/usr/bin/env python3\nprint()", script),
        ("a: b: c: d", script),
    ] {
        let inputs = Bootstrap { custom: Some(custom.to_owned()), ..plain(AmiFamily::Al2023) };
        assert_eq!(kinds(&text(&inputs)), [expected, config], "{custom}");
    }
    let archive = Bootstrap { custom: Some(ARCHIVE.to_owned()), ..plain(AmiFamily::Al2023) };
    let expected = [
        "Content-Type: text/cloud-config; charset=\"us-ascii\"|Merge-Type: list(append)",
        "Content-Type: text/x-shellscript;\n charset=\"us-ascii\"",
        config,
    ];
    assert_eq!(kinds(&text(&archive)), expected);
    assert!(!text(&archive).contains('\r'));
}

#[test]
fn al2023_passes_on_any_kubelet_setting_and_keeps_its_own() {
    let mut inputs = plain(AmiFamily::Al2023);
    inputs.kubelet = kubelet(json!({
        "maxPods": "max_pods * 2",
        "singleProcessOOMKill": true,
        "featureGates": {"B": true, "A": false},
        "kubeReserved": {"cpu": "vcpus * 100000000"},
    }));
    inputs.resolved.max_pods = 58;
    let config = text(&inputs);
    let config = config.split("    config:\n").nth(1).unwrap().split("    flags:").next().unwrap();
    let expected = [
        "clusterDNS:",
        "- 10.100.0.10",
        "featureGates:",
        "  A: false",
        "  B: true",
        "maxPods: 58",
        "registerWithTaints:",
        "- effect: NoSchedule",
        "  key: dedicated",
        "  value: batch",
        "- effect: NoExecute",
        "  key: karpenter.sh/unregistered",
        "singleProcessOOMKill: true",
    ];
    let lines: Vec<&str> = config.lines().map(|line| line.strip_prefix("      ").unwrap()).collect();
    assert_eq!(lines, expected, "the expression that came to nothing is left out");
}

#[test]
fn al2023_needs_the_range_of_services_and_a_certificate_that_can_be_read() {
    let mut inputs = plain(AmiFamily::Al2023);
    inputs.cluster.ca_bundle = "no base64!".to_owned();
    assert!(matches!(render(&inputs), Err(BootstrapError::CaBundle { .. })));
    inputs.cluster.service_cidr = None;
    assert_eq!(render(&inputs), Err(BootstrapError::NoServiceCidr));
}

#[test]
fn archives_that_are_none_are_refused_with_the_line() {
    for (custom, line, why) in [
        ("MIME-Version: 1.0\n\n--//\n", 2, "there is no Content-Type header"),
        ("Content-Type: multipart/mixed\n\nx", 2, "multipart/mixed has no boundary"),
        (
            "Content-Type: multipart/mixed; boundary=\"B\"\n\nno parts\n",
            3,
            "the line --B that begins a part is missing",
        ),
        (
            "Content-Type: multipart/mixed; boundary=B\n\n--B\nContent-Type: text/plain\n\nbody\n",
            6,
            "the line --B-- that ends the archive is missing",
        ),
        (
            "\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"B\"\n\n--B\necho no header\n--B--",
            6,
            "a header such as `Content-Type: …` or an empty line was expected, found \"echo no header\"",
        ),
    ] {
        for family in [AmiFamily::Al2, AmiFamily::Al2023] {
            let expected = BootstrapError::Mime { line, why: why.to_owned() };
            assert_eq!(check(family, custom), Err(expected.clone()), "{custom}");
            let inputs = Bootstrap { custom: Some(custom.to_owned()), ..plain(family) };
            assert_eq!(render(&inputs), Err(expected.clone()));
            assert!(expected.to_string().starts_with("spec.userData begins like a MIME message but is none: line "));
        }
    }
}

#[test]
fn a_message_without_parts_is_one_part() {
    let parts = mime::parts_of("MIME-Version: 1.0\nContent-Type: text/cloud-config\n\n#cloud-config\na: b").unwrap();
    assert_eq!(parts, [mime::Part::new("Content-Type: text/cloud-config", "#cloud-config\na: b")]);
}

#[test]
fn a_script_that_contains_our_boundary_does_not_tear_the_archive() {
    let custom = "cat <<X\n--//\n--//=\nX";
    let text = text(&Bootstrap { custom: Some(custom.to_owned()), ..plain(AmiFamily::Al2) });
    let parts = mime::parts_of(&text).unwrap();
    assert_eq!((parts.len(), parts[0].body.as_str()), (2, format!("#!/bin/bash\n{custom}").as_str()));
}

#[test]
fn a_node_config_that_cannot_be_read_is_refused_rather_than_run_as_a_script() {
    let custom = "# mine\napiVersion: node.eks.aws/v1alpha1\nspec: {kubelet: [}\n";
    let error = check(AmiFamily::Al2023, custom).unwrap_err();
    assert!(matches!(error, BootstrapError::Yaml { .. }));
    assert!(error.to_string().contains("line 3"), "{error}");
}

fn bottlerocket(custom: &str) -> Table {
    text(&Bootstrap { custom: Some(custom.to_owned()), ..plain(AmiFamily::Bottlerocket) }).parse().unwrap()
}

use toml::Table;

#[test]
fn bottlerocket_keeps_other_settings_and_drops_what_it_does_not_know() {
    let merged = bottlerocket(
        "[settings.kubernetes]\nkube-api-qps = 30\nno-such-key = true\ncluster-name = \"other\"\n\
         [settings.kubernetes.node-taints]\nmine = [\"x:NoSchedule\"]\n\
         [settings.kubernetes.node-labels]\nteam = \"red\"\n\"own.example/x\" = \"y\"\n\
         [settings.kernel]\nlockdown = \"integrity\"\n[other]\nlost = 1\n",
    );
    let settings = merged["settings"].as_table().unwrap();
    let kubernetes = settings["kubernetes"].as_table().unwrap();
    assert!(!merged.contains_key("other") && !kubernetes.contains_key("no-such-key"));
    assert_eq!(settings["kernel"]["lockdown"].as_str(), Some("integrity"));
    assert_eq!(kubernetes["kube-api-qps"].as_integer(), Some(30));
    assert_eq!(kubernetes["cluster-name"].as_str(), Some("demo"));
    let taints: Vec<&String> = kubernetes["node-taints"].as_table().unwrap().keys().collect();
    assert_eq!(taints, ["dedicated", "karpenter.sh/unregistered"]);
    let labels = kubernetes["node-labels"].as_table().unwrap();
    assert_eq!((labels["team"].as_str(), labels["own.example/x"].as_str()), (Some("blue"), Some("y")));
}

#[test]
fn settings_of_the_user_stay_where_the_class_says_nothing() {
    let merged = bottlerocket(
        "[settings.kubernetes]\nimage-gc-high-threshold-percent = \"70\"\n[settings.kubernetes.system-reserved]\ncpu = \"1\"\n",
    );
    let kubernetes = &merged["settings"]["kubernetes"];
    assert_eq!(kubernetes["image-gc-high-threshold-percent"].as_str(), Some("70"));
    assert_eq!(kubernetes["system-reserved"]["cpu"].as_str(), Some("1"));
}

#[test]
fn d1_7_settings_of_host_containers_and_kernel_survive_the_merge() {
    let merged = bottlerocket(
        "[settings.host-containers.admin]\nenabled = false\n\n[settings.host-containers.control]\nenabled = true\n\n\
         [settings.kernel]\nlockdown = \"integrity\"\n",
    );
    let settings = &merged["settings"];
    assert_eq!(settings["host-containers"]["admin"]["enabled"].as_bool(), Some(false));
    assert_eq!(settings["host-containers"]["control"]["enabled"].as_bool(), Some(true));
    assert_eq!(settings["kernel"]["lockdown"].as_str(), Some("integrity"));
    assert_eq!(settings["kubernetes"]["cluster-name"].as_str(), Some("demo"));
}

#[test]
fn local_disks_of_bottlerocket_are_mounted_before_commands_of_the_user() {
    let commands = |version: Option<&str>| {
        let custom = "[settings.bootstrap-commands.001-mine]\ncommands = [[\"apiclient\", \"get\"]]\nmode = \"once\"\n";
        let inputs = Bootstrap {
            custom: Some(custom.to_owned()),
            instance_store_raid: true,
            bottlerocket_version: version.map(str::to_owned),
            ..plain(AmiFamily::Bottlerocket)
        };
        let merged: Table = text(&inputs).parse().unwrap();
        merged["settings"]["bootstrap-commands"].as_table().unwrap().clone()
    };
    let newest = commands(Some("latest"));
    assert_eq!(newest.keys().collect::<Vec<_>>(), ["000-mount-instance-storage", "001-mine"]);
    let mount = &newest["000-mount-instance-storage"];
    assert_eq!((mount["mode"].as_str(), mount["essential"].as_bool()), (Some("always"), Some(true)));
    let bind = |table: &Table| table["000-mount-instance-storage"]["commands"][1].as_array().unwrap().len();
    assert_eq!((bind(&newest), bind(&commands(Some("1.45.0"))), bind(&commands(None))), (3, 7, 7));
}

#[test]
fn toml_that_cannot_be_read_is_refused_with_its_place() {
    for (custom, line, column) in [("[settings\nkubernetes = 1\n", 1, 10), ("[settings.kernel]\nlockdown = ü\n", 2, 12)]
    {
        match check(AmiFamily::Bottlerocket, custom) {
            Err(BootstrapError::Toml { line: l, column: c, .. }) => assert_eq!((l, c), (line, column), "{custom}"),
            other => panic!("{custom}: {other:?}"),
        }
    }
    for (custom, key) in [
        ("settings = 1", "settings"),
        ("[settings]\nkubernetes = []", "settings.kubernetes"),
        ("[settings]\nbootstrap-commands = 'x'", "settings.bootstrap-commands"),
        ("[settings.kubernetes]\nnode-labels = 1", "settings.kubernetes.node-labels"),
    ] {
        let error = check(AmiFamily::Bottlerocket, custom).unwrap_err();
        assert!(error.to_string().starts_with(&format!("spec.userData: {key} is ")), "{error}");
    }
}

#[test]
fn user_data_above_16_kib_is_refused_with_the_numbers() {
    let at_most = |n: usize| Bootstrap { custom: Some("x".repeat(n)), ..plain(AmiFamily::Custom) };
    assert_eq!(render(&at_most(USER_DATA_BYTES_MAX)).unwrap().unwrap().len(), USER_DATA_BYTES_MAX);
    let error = render(&at_most(USER_DATA_BYTES_MAX + 1)).unwrap_err();
    assert_eq!(error, BootstrapError::TooLarge { bytes: 16_385, custom_bytes: 16_385 });
    let script = Bootstrap { custom: Some("x".repeat(16_000)), ..plain(AmiFamily::Al2) };
    let error = render(&script).unwrap_err();
    assert!(matches!(error, BootstrapError::TooLarge { bytes: 16_385.., custom_bytes: 16_000 }), "{error}");
    assert!(error.to_string().contains("16000 of them are spec.userData"), "{error}");
}

#[test]
fn d0_21_reserved_resources_for_agents_on_the_host_reach_the_kubelet() {
    let of = |family| {
        let mut inputs = plain(family);
        inputs.kubelet = kubelet(json!({"systemReserved": {"cpu": "250m", "memory": "512Mi"}}));
        inputs.resolved.system_reserved = amounts(&[("cpu", "250m"), ("memory", "512Mi")]);
        text(&inputs)
    };
    for (family, expected) in [
        (AmiFamily::Al2, "--system-reserved=\"cpu=250m,memory=512Mi\""),
        (AmiFamily::Al2023, "      systemReserved:\n        cpu: 250m\n        memory: 512Mi\n"),
        (AmiFamily::Bottlerocket, "[settings.kubernetes.system-reserved]\ncpu = \"250m\"\nmemory = \"512Mi\"\n"),
        (AmiFamily::Windows2022, "--system-reserved=\"cpu=250m,memory=512Mi\""),
    ] {
        assert!(of(family).contains(expected), "{family:?}: {}", of(family));
    }
}

#[test]
fn d0_14_the_number_of_pods_that_was_planned_with_reaches_the_kubelet() {
    for (family, expected) in [
        (AmiFamily::Al2, "--use-max-pods false \\\n--kubelet-extra-args '--node-labels="),
        (AmiFamily::Al2, " --max-pods=110 "),
        (AmiFamily::Al2023, "\n      maxPods: 110\n"),
        (AmiFamily::Bottlerocket, "\nmax-pods = 110\n"),
        (AmiFamily::Windows2025, " --max-pods=110"),
    ] {
        let mut inputs = plain(family);
        inputs.kubelet = kubelet(json!({"maxPods": 110, "podsPerCore": 8}));
        inputs.resolved.max_pods = 110;
        assert!(text(&inputs).contains(expected), "{family:?}: {}", text(&inputs));
    }
}

fn any_family() -> impl Strategy<Value = AmiFamily> {
    prop::sample::select(vec![
        AmiFamily::Al2,
        AmiFamily::Al2023,
        AmiFamily::Bottlerocket,
        AmiFamily::Windows2022,
        AmiFamily::Custom,
    ])
}

/// Lines that come close to what is understood, in any order.
fn any_user_data() -> impl Strategy<Value = String> {
    let lines = prop::sample::select(vec![
        "MIME-Version: 1.0",
        "Content-Type: multipart/mixed; boundary=\"//\"",
        "Content-Type: multipart/mixed; boundary=",
        "Content-Type: text/x-shellscript",
        "--//",
        "--//--",
        "",
        " folded",
        ":",
        "[settings.kubernetes]",
        "[[settings]]",
        "max-pods = 1",
        "node-labels = {a = 1}",
        "key = \"",
        "apiVersion: node.eks.aws/v1alpha1",
        "- a: [",
        "&a [*a]",
        "#!/bin/bash",
        "é\r",
    ]);
    prop_oneof![any::<String>(), prop::collection::vec(lines, 0..12).prop_map(|lines| lines.join("\n"))]
}

proptest! {
    #[test]
    fn arbitrary_user_data_is_rendered_or_refused_and_never_panics(family in any_family(), custom in any_user_data()) {
        let inputs = Bootstrap { custom: Some(custom.clone()), instance_store_raid: true, ..plain(family) };
        let rendered = render(&inputs);
        // Who judges the class says the same as who launches, size apart.
        let is_too_large = matches!(rendered, Err(BootstrapError::TooLarge { .. }));
        prop_assert!(is_too_large || rendered.is_ok() == check(family, &custom).is_ok());
        if let (Ok(Some(text)), AmiFamily::Al2 | AmiFamily::Al2023) = (&rendered, family) {
            prop_assert!(mime::parts_of(text).is_ok(), "{}", text);
        }
        if let (Ok(Some(text)), AmiFamily::Bottlerocket) = (&rendered, family) {
            prop_assert!(text.parse::<Table>().is_ok(), "{}", text);
        }
    }
}
