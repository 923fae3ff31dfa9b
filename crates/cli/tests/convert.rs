//! `kerf convert` as users meet it.
#![expect(clippy::unwrap_used, reason = "a test that cannot run its binary should fail at once")]

use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The documents' own YAML.
fn document(name: &str) -> String {
    std::fs::read_to_string(root().join(format!("crates/api/tests/documents/{name}.yaml"))).unwrap()
}

struct Said {
    status: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    /// Kind, name and object of everything printed.
    fn objects(&self) -> Vec<Value> {
        use serde::Deserialize as _;
        serde_norway::Deserializer::from_str(&self.out).map(|document| Value::deserialize(document).unwrap()).collect()
    }

    fn titles(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.objects()
            .iter()
            .map(|object| format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"])))
            .collect()
    }

    #[track_caller]
    fn object(&self, title: &str) -> Value {
        let i = self.titles().iter().position(|there| there == title);
        self.objects().swap_remove(i.unwrap_or_else(|| panic!("no {title} in {:?}\n{}", self.titles(), self.err)))
    }
}

fn convert_with(arguments: &[&str], input: &str) -> Said {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kerf"))
        .arg("convert")
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Who refuses its command line does not read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { status: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

const INSTALLED: [&str; 4] =
    ["--kubernetes-version", "1.28", "--default-instance-profile", "KarpenterNodeInstanceProfile-kerf-demo"];

fn convert(input: &str) -> Said {
    convert_with(&[&["-f", "-"], &INSTALLED[..]].concat(), input)
}

/// What people read: both streams and the status.
fn shown(said: &Said) -> String {
    format!("{}=== exit status {}\n{}", said.out, said.status.unwrap(), said.err)
}

#[test]
fn d1_22_spot_with_on_demand_is_converted_with_its_slips_repaired() {
    insta::assert_snapshot!(shown(&convert(&document("d1_22"))));
}

#[test]
fn d1_24_gpu_families_are_converted() {
    insta::assert_snapshot!(shown(&convert(&document("d1_24"))));
}

#[test]
fn d2_16_the_provisioner_of_the_install_guide_is_converted() {
    insta::assert_snapshot!(shown(&convert(&document("d2_16"))));
}

#[test]
fn d3_7_the_provisioner_of_the_hands_on_guide_is_converted() {
    insta::assert_snapshot!(shown(&convert(&document("d3_7"))));
}

#[test]
fn d0_47_the_kubelet_of_a_pool_goes_to_its_class() {
    let said = convert(&format!("{}\n---\n{}", document("d0_47"), document("d0_54")));
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert_eq!(said.titles(), ["EC2NodeClass workers", "NodePool workers"]);
    let kubelet = said.object("EC2NodeClass workers")["spec"]["kubelet"].take();
    assert_eq!(kubelet["maxPods"], 20);
    insta::assert_snapshot!(shown(&said));
}

#[test]
fn d0_55_the_group_that_never_shipped_is_rewritten() {
    let alias = document("d0_54").replace("karpenter.k8s.aws/v1beta1", "compute.k8s.aws/v1beta1");
    let said = convert(&alias);
    assert_eq!(said.status, Some(0), "{}", said.err);
    let class = said.object("EC2NodeClass workers");
    assert_eq!(class["apiVersion"], "karpenter.k8s.aws/v1");
    assert_eq!(
        class["metadata"]["annotations"]["kerf.dev/released-from"],
        "ec2nodeclassaliases.compute.k8s.aws/workers"
    );
    let plain = convert(&document("d0_54")).object("EC2NodeClass workers");
    assert_eq!(plain["spec"], class["spec"]);
}

#[test]
fn d0_56_a_term_that_says_too_much_is_refused_with_the_words_of_the_page() {
    let said = convert(&document("d0_56"));
    assert_eq!((said.status, said.out.as_str()), (Some(2), ""));
    assert!(said.err.contains("EC2NodeClass workers: spec.securityGroupSelectorTerms"), "{}", said.err);
}

fn pool_with_kubelet(name: &str, kubelet: &Value) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": {"name": name},
        "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": {"name": "workers"}, "kubelet": kubelet}}},
    })
}

fn list(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

#[test]
fn pools_that_disagree_about_the_kubelet_get_a_class_each() {
    let class: Value = serde_norway::from_str(&document("d0_54")).unwrap();
    let (few, many) = (json!({"maxPods": 20}), json!({"maxPods": 110}));
    let agreed = convert(&list(&[pool_with_kubelet("a", &few), pool_with_kubelet("b", &few), class.clone()]));
    assert_eq!(
        (agreed.status, agreed.titles()),
        (Some(0), ["EC2NodeClass workers", "NodePool a", "NodePool b"].map(String::from).to_vec())
    );

    let said = convert(&list(&[pool_with_kubelet("a", &few), pool_with_kubelet("b", &many), class.clone()]));
    assert_eq!(said.status, Some(0), "{}", said.err);
    let class_of = |pool: &str| {
        let name = said.object(pool)["spec"]["template"]["spec"]["nodeClassRef"]["name"].as_str().unwrap().to_owned();
        said.object(&format!("EC2NodeClass {name}"))
    };
    assert_eq!(class_of("NodePool a")["spec"]["kubelet"], few);
    assert_eq!(class_of("NodePool b")["spec"]["kubelet"], many);
    assert_eq!(said.object("EC2NodeClass workers")["spec"].get("kubelet"), None, "the class itself stays as it was");
    assert!(said.object("NodePool a")["metadata"]["annotations"].to_string().find("v1beta1-kubelet").is_none());

    let alone = convert(&list(&[pool_with_kubelet("a", &few)]));
    assert_eq!((alone.status, alone.out.as_str()), (Some(2), ""));
    assert!(alone.err.contains(r#"there is no EC2NodeClass "workers" to go by; give it along"#), "{}", alone.err);
}

fn provisioner(name: &str, more: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner",
        "metadata": {
            "name": name, "uid": "1-2-3", "resourceVersion": "7", "generation": 2, "creationTimestamp": "2023-01-01T00:00:00Z",
            "managedFields": [{}], "finalizers": ["x"], "labels": {"team": "a"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "karpenter.sh/provisioner-hash": "1", "note": "mine"},
        },
        "spec": {"providerRef": {"name": "shared"}},
        "status": {"resources": {"cpu": "4"}},
    });
    for (field, value) in more.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    object
}

fn template() -> Value {
    json!({
        "apiVersion": "karpenter.k8s.aws/v1alpha1", "kind": "AWSNodeTemplate", "metadata": {"name": "shared"},
        "spec": {"amiFamily": "AL2", "subnetSelector": {"a": "b"}, "securityGroupSelector": {"a": "b"}},
    })
}

#[test]
fn what_a_server_wrote_is_not_printed_and_what_people_wrote_is() {
    let said = convert(&list(&[provisioner("p", &json!({})), template()]));
    assert_eq!(said.status, Some(0), "{}", said.err);
    let mut pool = said.object("NodePool p");
    assert_eq!(
        pool["metadata"].take(),
        json!({
            "name": "p",
            "labels": {"team": "a"},
            "annotations": {
                "note": "mine",
                "kerf.dev/provisioner-name": "p",
                "kerf.dev/released-from": "provisioners.karpenter.sh/p",
                "karpenter.sh/expiry-replaces-first": "true",
            },
        })
    );
    assert_eq!(pool.get("status"), None);
    assert_eq!(
        said.object("EC2NodeClass shared")["metadata"]["annotations"],
        json!({"kerf.dev/released-from": "awsnodetemplates.karpenter.k8s.aws/shared"})
    );
}

/// Or nodes would be replaced on the day that somebody moves on.
#[test]
fn what_is_printed_has_the_spec_that_the_operator_made() {
    let settings = kerf_api::older::TranslationSettings {
        default_instance_profile: Some("KarpenterNodeInstanceProfile-kerf-demo".to_owned()),
        kubernetes_minor: Some(28),
        cluster_name: Some("kerf-demo".to_owned()),
        ..Default::default()
    };
    let with_kubelet = provisioner("kubelet", &json!({"kubelet": {"maxPods": 20}}));
    let documents = ["d1_22", "d1_24", "d2_16", "d3_7"].map(|name| serde_norway::from_str(&document(name)).unwrap());
    for provisioner in documents.into_iter().chain([provisioner("plain", &json!({})), with_kubelet]) {
        let template = template();
        let needs_template = provisioner["spec"].get("providerRef").is_some();
        let made = kerf_api::older::translate(&provisioner, needs_template.then_some(&template), &settings);
        let said = convert(&list(&[provisioner, template]));
        for object in [made.node_pool.unwrap(), made.node_class.unwrap()] {
            let title =
                format!("{} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
            assert_eq!(said.object(&title)["spec"], object["spec"], "{title}");
        }
    }
}

#[test]
fn a_template_is_converted_once_for_all_who_share_it() {
    let with_kubelet = json!({"kubeletConfiguration": {"maxPods": 20}});
    let said = convert(&list(&[
        provisioner("a", &json!({})),
        provisioner("b", &json!({})),
        provisioner("c", &with_kubelet),
        template(),
    ]));
    assert_eq!(said.status, Some(0), "{}", said.err);
    let own =
        said.object("NodePool c")["spec"]["template"]["spec"]["nodeClassRef"]["name"].as_str().unwrap().to_owned();
    assert_eq!(
        said.titles(),
        ["EC2NodeClass shared", &format!("EC2NodeClass {own}"), "NodePool a", "NodePool b", "NodePool c"]
            .map(String::from)
    );
    assert_eq!(convert(&list(&[template()])).titles(), ["EC2NodeClass shared"], "and alone");
    let said = convert(&list(&[provisioner("a", &json!({}))]));
    assert_eq!((said.status, said.out.as_str()), (Some(2), ""));
    assert!(said.err.contains("spec.providerRef.name"), "{}", said.err);
}

#[test]
fn what_has_no_equivalent_is_told_and_left_out_and_the_rest_is_printed() {
    let lost = document("d2_16")
        .replace("  provider:", "  provider:\n    launchTemplate: mine")
        .replace("name: batch", "name: lost");
    let odd =
        document("d2_16").replace("  provider:", "  provider:\n    colour: red").replace("name: batch", "name: odd");
    let said = convert(&format!("{}\n---\n{lost}\n---\n{odd}", document("d3_7")));
    assert_eq!(said.status, Some(2));
    assert_eq!(said.titles(), ["EC2NodeClass lab", "EC2NodeClass odd", "NodePool lab", "NodePool odd"]);
    insta::assert_snapshot!(said.err);
}

#[test]
fn without_the_cluster_s_version_nobody_guesses() {
    let said = convert_with(&["-f", "-", "--role", "KarpenterNodeRole"], &document("d2_16"));
    assert_eq!((said.status, said.out.as_str()), (Some(2), ""));
    assert!(said.err.contains("--kubernetes-version"), "{}", said.err);
    let said =
        convert_with(&["-f", "-", "--role", "KarpenterNodeRole", "--kubernetes-version", "1.33"], &document("d2_16"));
    assert_eq!(said.status, Some(0), "{}", said.err);
    let class = said.object("EC2NodeClass batch");
    assert_eq!(
        (&class["spec"]["role"], &class["spec"]["amiSelectorTerms"][0]["alias"]),
        (&json!("KarpenterNodeRole"), &json!("al2023@latest"))
    );
}

#[test]
fn json_is_one_list_in_the_same_order() {
    let said = convert_with(&[&["-f", "-", "-o", "json"], &INSTALLED[..]].concat(), &document("d3_7"));
    let list: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&list["kind"], &list["items"]), (&json!("List"), &json!(convert(&document("d3_7")).objects())));
}

#[test]
fn objects_of_v1_come_out_as_they_are_and_others_not_at_all() {
    let lab = convert(&document("d3_7"));
    let deployment = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n";
    let claim = "---\napiVersion: karpenter.sh/v1beta1\nkind: NodeClaim\nmetadata: {name: c1}\n";
    let said = convert(&format!("{}{deployment}{claim}", lab.out));
    assert_eq!((said.status, &said.out), (Some(0), &lab.out));
    assert!(said.err.contains("Not converted (it is not of Karpenter): Deployment web"), "{}", said.err);
    assert!(said.err.contains("NodeClaim c1"), "{}", said.err);
}

#[test]
fn a_translated_pool_in_a_dump_is_released_whether_its_provisioner_is_there_or_not() {
    let mut pool = convert(&document("d3_7")).object("NodePool lab");
    pool["metadata"]["annotations"] = json!({"kerf.dev/translated-from": "provisioners.karpenter.sh/lab/1-2"});
    pool["spec"]["disruption"]["budgets"] = json!([{"nodes": "10%"}]);
    let alone = convert(&list(&[pool.clone()]));
    assert_eq!(
        alone.object("NodePool lab")["metadata"]["annotations"],
        json!({"kerf.dev/released-from": "provisioners.karpenter.sh/lab"})
    );
    let both = convert(&format!("{}\n---\n{}", document("d3_7"), serde_norway::to_string(&pool).unwrap()));
    assert_eq!((both.status, both.out), (Some(0), convert(&document("d3_7")).out));
}

#[test]
fn two_objects_that_become_one_are_told() {
    let class = convert(&document("d3_7")).object("EC2NodeClass lab");
    let mut other = class.clone();
    other["metadata"]["annotations"].take();
    other["spec"]["tags"] = json!({"team": "other"});
    let said = convert(&format!("{}\n---\n{}", document("d3_7"), serde_norway::to_string(&other).unwrap()));
    assert_eq!(said.status, Some(2));
    assert!(said.err.contains("stdin:19 has an EC2NodeClass of that name, and that one counts"), "{}", said.err);
    assert_eq!(said.titles(), ["EC2NodeClass lab"], "the pool does not go by a class that it does not mean");
    assert_eq!(said.object("EC2NodeClass lab")["spec"], other["spec"]);
}

#[test]
fn input_that_cannot_be_read_prints_nothing() {
    for input in ["", "just words\n", "a: [\n", "- 1\n- 2\n"] {
        let said = convert(input);
        assert_eq!((said.status, said.out.as_str()), (Some(1), ""), "{input:?}: {}", said.err);
        assert!(said.err.starts_with("kerf: "), "{input:?}: {}", said.err);
    }
    assert_eq!(convert_with(&["-f", "no/such/file.yaml"], "").status, Some(1));
    assert_eq!(convert_with(&["--kubernetes-version", "next"], "").status, Some(1));
    let unknown = document("d2_16").replace("v1alpha5", "v1alpha4");
    let said = convert(&unknown);
    assert_eq!((said.status, said.out.as_str()), (Some(2), ""));
    assert!(said.err.contains("v1alpha5, v1alpha1, v1beta1 and v1 are"), "{}", said.err);
}

#[test]
fn what_somebody_wrote_in_v1_or_v1beta1_wins_over_a_translation() {
    let mut pool = convert(&document("d3_7")).object("NodePool lab");
    pool["metadata"]["annotations"].take();
    pool["spec"]["limits"] = json!({"cpu": "7"});
    let said = convert(&format!("{}\n---\n{}", document("d3_7"), serde_norway::to_string(&pool).unwrap()));
    assert_eq!((said.status, said.titles()), (Some(2), vec!["NodePool lab".to_owned()]), "{}", said.err);
    assert_eq!(said.object("NodePool lab")["spec"], pool["spec"]);
    assert!(said.err.contains("Provisioner lab: metadata.name: found \"lab\""), "{}", said.err);
    assert!(said.err.contains("has a NodePool of that name, and that one counts"), "{}", said.err);
    let printed = convert(&document("d3_7")).object("NodePool lab");
    let same = convert(&format!("{}\n---\n{}", document("d3_7"), serde_norway::to_string(&printed).unwrap()));
    assert_eq!((same.status, same.out), (Some(0), convert(&document("d3_7")).out), "who agrees is one");

    let class: Value = serde_norway::from_str(&document("d0_54")).unwrap();
    let mut template = template();
    template["metadata"]["name"] = json!("workers");
    let user = provisioner("p", &json!({"providerRef": {"name": "workers"}}));
    let said = convert(&list(&[user, template, class.clone()]));
    assert_eq!((said.status, said.titles()), (Some(2), vec!["EC2NodeClass workers".to_owned()]), "{}", said.err);
    assert_eq!(said.object("EC2NodeClass workers"), convert(&list(&[class])).object("EC2NodeClass workers"));
    assert!(said.err.contains("AWSNodeTemplate workers: metadata.name: found \"workers\""), "{}", said.err);
    assert!(said.err.contains("Provisioner p: spec.providerRef.name"), "{}", said.err);
}

#[test]
fn a_pool_is_printed_only_with_the_class_that_it_means() {
    let mut template = template();
    template["metadata"]["name"] = json!("batch");
    let gpu = list(&[provisioner("gpu", &json!({"providerRef": {"name": "batch"}})), template.clone()]);
    let said = convert(&format!("{}\n---\n{gpu}", document("d2_16")));
    assert_eq!(said.status, Some(2));
    assert_eq!(said.titles(), ["EC2NodeClass batch", "NodePool batch"], "{}", said.err);
    assert!(said.err.contains("Provisioner gpu: spec.providerRef.name: found \"batch\""), "{}", said.err);

    let mut ubuntu: Value = serde_norway::from_str(&document("d0_54")).unwrap();
    ubuntu["spec"]["amiFamily"] = json!("Ubuntu");
    ubuntu["spec"].as_object_mut().unwrap().remove("amiSelectorTerms");
    let mut plain = pool_with_kubelet("a", &json!({}));
    plain["spec"]["template"]["spec"].as_object_mut().unwrap().remove("kubelet");
    let said = convert(&list(&[plain.clone(), ubuntu]));
    assert_eq!((said.status, said.out.as_str()), (Some(2), ""), "{}", said.err);
    assert!(said.err.contains("NodePool a: spec.template.spec.nodeClassRef.name: found \"workers\""), "{}", said.err);

    let alone = convert(&list(&[plain.clone()]));
    assert_eq!((alone.status, alone.titles()), (Some(0), vec!["NodePool a".to_owned()]), "its class is elsewhere");

    template["metadata"]["name"] = json!("workers");
    let said = convert(&list(&[plain.clone(), template.clone()]));
    assert_eq!(said.titles(), ["EC2NodeClass workers"]);
    assert!(said.err.contains("AWSNodeTemplate workers becomes an EC2NodeClass of that name"), "{}", said.err);
    let mut made = convert(&list(&[template.clone()])).object("EC2NodeClass workers");
    made["metadata"]["annotations"] =
        json!({"kerf.dev/translated-from": "awsnodetemplates.karpenter.k8s.aws/workers/1"});
    let said = convert(&list(&[plain, template, made]));
    assert_eq!(said.titles(), ["EC2NodeClass workers", "NodePool a"], "{}", said.err);
}

#[test]
fn a_string_stays_a_string_where_kubectl_reads_it() {
    let words = ["on", "off", "y", "n", "yes", "no", "1_000", "12_3.5", "0o7", "0b1"];
    let labels: serde_json::Map<String, Value> =
        words.iter().flat_map(|word| [((*word).to_owned(), json!("a")), (format!("of-{word}"), json!(word))]).collect();
    let mut template = template();
    template["spec"]["tags"] = json!({"1:30": "1:30"});
    let said = convert(&list(&[provisioner("p", &json!({"labels": labels})), template]));
    assert!(said.out.contains("'1:30': '1:30'\n"), "{}", said.out);
    for word in words {
        assert!(said.out.contains(&format!("'{word}': a\n")), "{word}: {}{}", said.out, said.err);
        assert!(said.out.contains(&format!("of-{word}: '{word}'\n")), "{word}: {}", said.out);
    }
}

#[test]
fn an_object_of_v1_whose_spec_is_none_is_refused() {
    let mut pool = pool_with_kubelet("a", &json!({}));
    pool["spec"]["template"]["spec"]["kubelet"] = json!({"maxPods": 20});
    for (spec, found) in [(json!("x"), "\"x\""), (json!(3), "3"), (json!([1]), "[1]"), (json!(null), "null")] {
        let class = json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "workers"}, "spec": spec,
        });
        let said = convert(&list(&[pool.clone(), class]));
        assert_eq!((said.status, said.out.as_str()), (Some(2), ""), "{}", said.err);
        assert!(said.err.contains(&format!("EC2NodeClass workers: spec: found {found}; an object")), "{}", said.err);
    }
}

#[test]
fn kubelet_settings_of_v1beta1_are_fitted_to_the_family_of_their_class() {
    let mut class: Value = serde_norway::from_str(&document("d0_54")).unwrap();
    class["spec"]["amiFamily"] = json!("Bottlerocket");
    let kubelet = json!({"podsPerCore": 2, "clusterDNS": ["10.0.0.1", "10.0.0.2"], "systemReserved": {"cpu": 1}});
    let said = convert(&list(&[pool_with_kubelet("a", &kubelet), class]));
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert_eq!(
        said.object("EC2NodeClass workers")["spec"]["kubelet"],
        json!({"clusterDNS": ["10.0.0.1"], "systemReserved": {"cpu": "1"}})
    );
    let warning = "NodePool a: spec.template.spec.kubelet.podsPerCore: Bottlerocket never had this setting";
    assert!(said.err.contains(warning), "{}", said.err);
}

#[test]
fn kubelet_settings_of_a_pool_that_is_left_out_are_nobody_s() {
    let mut class: Value = serde_norway::from_str(&document("d0_54")).unwrap();
    let mut broken = pool_with_kubelet("b", &json!({"maxPods": 110}));
    broken["spec"]["weight"] = json!(1000);
    let said = convert(&list(&[pool_with_kubelet("a", &json!({"maxPods": 20})), broken, class.clone()]));
    assert_eq!(said.titles(), ["EC2NodeClass workers", "NodePool a"], "{}", said.err);
    assert_eq!(said.object("EC2NodeClass workers")["spec"]["kubelet"], json!({"maxPods": 20}));

    let mut kwok = pool_with_kubelet("a", &json!({"maxPods": 20}));
    kwok["spec"]["template"]["spec"]["nodeClassRef"] = json!({"kind": "KWOKNodeClass", "name": "workers"});
    let said = convert(&list(&[kwok, class.take()]));
    assert_eq!((said.status, said.titles()), (Some(2), vec!["EC2NodeClass workers".to_owned()]), "{}", said.err);
    let message = "these belong to the class now, and KWOKNodeClass has none; take them out";
    assert!(said.err.contains(message), "{}", said.err);
}

#[test]
fn an_annotation_about_the_kubelet_counts_where_the_class_says_nothing() {
    let mut class = convert(&document("d0_54")).object("EC2NodeClass workers");
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {
            "name": "a", "annotations": {"compatibility.karpenter.sh/v1beta1-kubelet-conversion": r#"{"maxPods":20}"#},
        },
        "spec": {"template": {"spec": {
            "requirements": [], "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "workers"},
        }}},
    });
    let said = convert(&list(&[pool.clone(), class.clone()]));
    assert_eq!(said.object("EC2NodeClass workers")["spec"]["kubelet"], json!({"maxPods": 20}));
    class["spec"]["kubelet"] = json!({"maxPods": 30});
    let said = convert(&list(&[pool, class]));
    assert_eq!((said.status, said.titles().len()), (Some(0), 2), "{}", said.err);
    assert_eq!(said.object("EC2NodeClass workers")["spec"]["kubelet"], json!({"maxPods": 30}));
    assert!(said.err.contains("EC2NodeClass workers has kubelet settings of its own, and those count"), "{}", said.err);
}

#[test]
fn who_moves_kubelet_settings_is_told_that_nodes_may_be_replaced() {
    let mut class: Value = serde_norway::from_str(&document("d0_54")).unwrap();
    let (few, many) = (json!({"maxPods": 20}), json!({"maxPods": 110}));
    let drift = "nodes of this pool may be replaced";
    let moved = convert(&list(&[pool_with_kubelet("a", &few), class.clone()]));
    assert_eq!(moved.err.matches(drift).count(), 1, "{}", moved.err);
    let derived = convert(&list(&[pool_with_kubelet("a", &few), pool_with_kubelet("b", &many), class.clone()]));
    assert_eq!(derived.err.matches(drift).count(), 2, "{}", derived.err);
    class = moved.object("EC2NodeClass workers");
    let same = convert(&list(&[pool_with_kubelet("a", &few), class]));
    assert_eq!((same.status, same.err.as_str()), (Some(0), ""), "the class had them before");
}
