//! What the documents say of Provisioners, one test per line, each named after it, as far as a translation alone can show it: the YAML is
//! theirs, except for names.

#![expect(clippy::unwrap_used, reason = "helpers of tests may, like tests")]

use kerf_api::Kind;
use kerf_api::older::marks::{self, PROVISIONER_NAME, TRANSLATED_FROM};
use kerf_api::older::{
    EXPIRY_REPLACES_FIRST, TranslatedKind, Translation, TranslationSettings, convert, older_crds, translate,
    translate_alias,
};
use serde_json::{Value, json};

const D0_54: &str = include_str!("documents/d0_54.yaml");
const D1_22: &str = include_str!("documents/d1_22.yaml");
const D1_24: &str = include_str!("documents/d1_24.yaml");
const D2_16: &str = include_str!("documents/d2_16.yaml");
const D3_7: &str = include_str!("documents/d3_7.yaml");

/// As installed in the documents: a default instance profile, and a cluster that still has AL2.
fn settings(kubernetes_minor: u32) -> TranslationSettings {
    TranslationSettings {
        default_instance_profile: Some("KarpenterNodeInstanceProfile-kerf-demo".to_owned()),
        default_role: None,
        kubernetes_minor: Some(kubernetes_minor),
        cluster_name: Some("kerf-demo".to_owned()),
    }
}

fn applied(yaml: &str) -> Value {
    let mut object: Value = serde_norway::from_str(yaml).unwrap();
    let kind = TranslatedKind::of(&object).unwrap();
    kind.apply_defaults(&mut object);
    assert_eq!(kind.check(&object, None), [], "kubectl apply goes through");
    assert_eq!(kind.unknown_fields(&object), [""; 0], "kubectl apply knows every field");
    object
}

/// Applies and translates it; whatever comes out without a refusal is fit for an API server.
fn translated(yaml: &str, kubernetes_minor: u32) -> Translation {
    let made = translate(&applied(yaml), None, &settings(kubernetes_minor));
    if made.refusals.is_empty() {
        for (kind, object) in [(Kind::NodePool, &made.node_pool), (Kind::Ec2NodeClass, &made.node_class)] {
            let mut object = object.clone().unwrap();
            kind.apply_defaults(&mut object);
            assert_eq!(kind.check(&object, None), []);
            assert_eq!(kind.unknown_fields(&object), [""; 0]);
        }
    }
    made
}

fn pool(made: &Translation) -> &Value {
    made.node_pool.as_ref().unwrap()
}

fn class(made: &Translation) -> &Value {
    made.node_class.as_ref().unwrap()
}

/// Key, operator and values, as one line each.
fn requirements(made: &Translation) -> Vec<String> {
    let items = pool(made)["spec"]["template"]["spec"]["requirements"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |item: &Value| {
        let values: Vec<String> = item["values"].as_array().into_iter().flatten().map(text).collect();
        format!("{} {} {}", text(&item["key"]), text(&item["operator"]), values.join(","))
    };
    items.iter().map(line).collect()
}

fn warnings(made: &Translation) -> String {
    made.warnings.iter().map(|warning| format!("{warning}\n")).collect()
}

const DEFAULTS: [&str; 4] = [
    "kubernetes.io/os In linux",
    "kubernetes.io/arch In amd64",
    "karpenter.k8s.aws/instance-category In c,m,r",
    "karpenter.k8s.aws/instance-generation Gt 2",
];

#[test]
fn d1_22_spot_with_on_demand_as_fallback_is_one_requirement_on_the_pool() {
    let made = translated(D1_22, 28);
    assert_eq!(made.refusals, []);
    assert_eq!(requirements(&made)[0], "karpenter.sh/capacity-type In spot,on-demand");
    assert_eq!(requirements(&made)[1..], DEFAULTS);
    assert_eq!(class(&made)["spec"]["instanceProfile"], "my-node-profile");
    // The words of the document say `ondemand`.
    let made = translated(&D1_22.replace("on-demand", "ondemand"), 28);
    assert_eq!(requirements(&made)[0], "karpenter.sh/capacity-type In spot,on-demand");
    assert!(warnings(&made).contains(r#""ondemand" is read as "on-demand""#), "{}", warnings(&made));
}

#[test]
fn d1_23_both_slips_are_repaired_with_a_warning() {
    let made = translated(D1_22, 28);
    let told = warnings(&made);
    assert!(told.contains("spec.provider.requirements: requirements belong under spec"), "{told}");
    assert!(told.contains("spec.provider.requirements[0].key: there is no label karpenter.k8s.aws/capacity-type; it is read as karpenter.sh/capacity-type"), "{told}");
    // In v1 the schema refuses the key, and names the right one.
    let mut wrong = pool(&made).clone();
    wrong["spec"]["template"]["spec"]["requirements"][0]["key"] = json!("karpenter.k8s.aws/capacity-type");
    let told = Kind::NodePool.check(&wrong, None);
    assert!(told.iter().any(|problem| problem.wants.contains("karpenter.sh/capacity-type")), "{told:?}");
}

#[test]
fn d1_24_families_that_are_called_categories_are_asked_for_as_families() {
    let made = translated(D1_24, 28);
    assert_eq!(made.refusals, []);
    assert_eq!(
        requirements(&made),
        [
            "karpenter.k8s.aws/instance-family In p3,g4dn",
            "karpenter.sh/capacity-type In on-demand",
            "kubernetes.io/os In linux",
            "kubernetes.io/arch In amd64"
        ],
        "and no default category beside them"
    );
    assert!(warnings(&made).contains("p3, g4dn are families, not categories"), "{}", warnings(&made));
}

#[test]
fn d2_13_who_names_no_instance_profile_gets_the_default_one() {
    let made = translated(D2_16, 28);
    assert_eq!(class(&made)["spec"]["instanceProfile"], "KarpenterNodeInstanceProfile-kerf-demo");
    assert_eq!(class(&translated(D3_7, 28))["spec"]["instanceProfile"], "lab-node-profile", "who names one keeps it");
    let without =
        translate(&applied(D2_16), None, &TranslationSettings { kubernetes_minor: Some(28), ..Default::default() });
    assert!(!without.may_launch());
    assert_eq!(without.refusals.len(), 1, "{without:#?}");
    assert_eq!(without.refusals[0].path, "spec.provider.instanceProfile");
    assert!(without.refusals[0].message.contains("aws.defaultInstanceProfile"), "{}", without.refusals[0]);
}

#[test]
fn d2_16_the_provisioner_becomes_a_pool_and_a_class_of_its_name() {
    let made = translated(D2_16, 28);
    assert_eq!((&made.refusals[..], &made.warnings[..]), (&[][..], &[][..]));
    assert_eq!(requirements(&made)[0], "karpenter.sh/capacity-type In spot");
    assert_eq!(requirements(&made)[1..], DEFAULTS);
    let pool = pool(&made);
    assert_eq!(pool["metadata"]["name"], "batch");
    assert_eq!(pool["spec"]["limits"], json!({"cpu": "1000"}), "an integer will do");
    assert_eq!(
        pool["spec"]["template"]["spec"]["nodeClassRef"],
        json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "batch"})
    );
    let class = class(&made);
    assert_eq!(class["metadata"]["name"], "batch");
    let by_tag = json!([{"tags": {"karpenter.sh/discovery": "kerf-demo"}}]);
    assert_eq!(class["spec"]["subnetSelectorTerms"], by_tag);
    assert_eq!(class["spec"]["securityGroupSelectorTerms"], by_tag);
}

#[test]
fn d2_17_without_a_family_it_is_al2_where_that_exists_and_al2023_with_a_warning_after() {
    let alias = |made: &Translation| class(made)["spec"]["amiSelectorTerms"].clone();
    for minor in [23, 28, 32] {
        let made = translated(D2_16, minor);
        assert_eq!(alias(&made), json!([{"alias": "al2@latest"}]));
        assert_eq!(made.warnings, []);
    }
    let made = translated(D2_16, 33);
    assert!(made.may_launch());
    assert_eq!(alias(&made), json!([{"alias": "al2023@latest"}]));
    assert!(warnings(&made).contains("Kubernetes 1.33 has no AL2 images, so AL2023 is taken"), "{}", warnings(&made));
}

#[test]
fn d0_59_a_family_that_is_named_is_refused_with_the_patch_that_helps_and_never_switched() {
    let named = D2_16.replace("  provider:", "  provider:\n    amiFamily: AL2");
    assert!(translated(&named, 32).may_launch());
    let made = translated(&named, 33);
    assert!(!made.may_launch());
    let [refusal] = &made.refusals[..] else { panic!("{made:#?}") };
    assert_eq!((refusal.path.as_str(), refusal.found.as_str()), ("spec.provider.amiFamily", "\"AL2\""));
    let command = r#"kubectl patch provisioner batch --type merge -p '{"spec":{"provider":{"amiFamily":"AL2023"}}}'"#;
    assert!(refusal.message.ends_with(command), "{refusal}");
    assert!(translated(&named.replace("amiFamily: AL2", "amiFamily: AL2023"), 33).may_launch(), "and it does help");
}

#[test]
fn d2_18_the_defaults_of_the_contract_are_written_out_on_the_pool() {
    let bare = "
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: bare}
spec:
  provider:
    subnetSelector: {karpenter.sh/discovery: kerf-demo}
    securityGroupSelector: {karpenter.sh/discovery: kerf-demo}
";
    let made = translated(bare, 28);
    assert_eq!(requirements(&made)[0], "karpenter.sh/capacity-type In on-demand");
    assert_eq!(requirements(&made)[1..], DEFAULTS);
    assert_eq!(class(&made)["spec"]["amiSelectorTerms"], json!([{"alias": "al2@latest"}]));
}

#[test]
fn d2_19_what_is_absent_means_never() {
    let made = translated(D2_16, 28);
    let spec = &pool(&made)["spec"];
    assert_eq!(spec["disruption"], json!({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"}));
    assert_eq!(spec["template"]["spec"]["expireAfter"], "Never");
    let made = translated(&D2_16.replace("  ttlSecondsAfterEmpty: 30\n", ""), 28);
    assert_eq!(
        pool(&made)["spec"]["disruption"],
        json!({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"})
    );
}

#[test]
fn d2_22_a_translated_pool_never_deletes_by_force() {
    for yaml in [D1_22, D1_24, D2_16, D3_7] {
        assert_eq!(pool(&translated(yaml, 28))["spec"]["template"]["spec"].get("terminationGracePeriod"), None);
    }
}

#[test]
fn d0_27_expiry_of_a_translated_pool_replaces_first() {
    let made = translated(
        &D2_16.replace("  ttlSecondsAfterEmpty", "  ttlSecondsUntilExpired: 2592000\n  ttlSecondsAfterEmpty"),
        28,
    );
    assert_eq!(pool(&made)["spec"]["template"]["spec"]["expireAfter"], "2592000s");
    assert_eq!(pool(&made)["metadata"]["annotations"][EXPIRY_REPLACES_FIRST], "true");
}

#[test]
fn d3_7_bottlerocket_wildcards_taints_and_small_spot_types_come_through() {
    let made = translated(D3_7, 28);
    assert_eq!((&made.refusals[..], &made.warnings[..]), (&[][..], &[][..]));
    assert_eq!(
        requirements(&made),
        [
            "karpenter.sh/capacity-type In spot",
            "node.kubernetes.io/instance-type In t3a.large,t3.large,t3.xlarge",
            "kubernetes.io/os In linux",
            "kubernetes.io/arch In amd64"
        ]
    );
    let template = &pool(&made)["spec"]["template"];
    assert_eq!(template["metadata"]["labels"], json!({"deployment": "lab"}));
    assert_eq!(template["spec"]["taints"], json!([{"key": "dedicated", "value": "lab", "effect": "NoSchedule"}]));
    assert_eq!(
        class(&made)["spec"],
        json!({
            "amiSelectorTerms": [{"alias": "bottlerocket@latest"}],
            "instanceProfile": "lab-node-profile",
            "tags": {"accounting": "kerf", "eks/nodegroup-name": "lab-group", "eks/cluster-name": "kerf-demo"},
            "subnetSelectorTerms": [{"tags": {"Name": "LabStack/Vpc/PrivateSubnet*"}}],
            "securityGroupSelectorTerms": [{"tags": {"kubernetes.io/cluster/kerf-demo": "owned"}}],
            "metadataOptions": {
                "httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 2, "httpTokens": "required",
            },
        })
    );
    // Bottlerocket still exists; today's cluster changes nothing.
    assert_eq!(translated(D3_7, 36), made);
}

#[test]
fn d3_12_a_list_of_provisioners_shows_name_and_age() {
    let definitions = older_crds();
    let provisioners = definitions.iter().find(|crd| crd.spec.names.kind == "Provisioner").unwrap();
    assert_eq!(provisioners.metadata.name.as_deref(), Some("provisioners.karpenter.sh"));
    assert_eq!(
        (provisioners.spec.names.singular.as_deref(), provisioners.spec.scope.as_str()),
        (Some("provisioner"), "Cluster")
    );
    let columns = provisioners.spec.versions[0].additional_printer_columns.as_ref().unwrap();
    let narrow: Vec<&str> =
        columns.iter().filter(|column| column.priority.is_none()).map(|column| column.name.as_str()).collect();
    assert_eq!(narrow, ["Age"], "beside the name, which every list has");
    let mut told = applied(D3_7);
    told["status"] = json!({
        "conditions": [{"type": "Translated", "status": "True", "reason": "Translated", "lastTransitionTime": "2024-01-01T01:01:01Z"}],
        "resources": {"cpu": "4", "memory": "16Gi"},
        "lastScaleTime": "2024-01-01T01:01:01Z",
    });
    assert_eq!(TranslatedKind::Provisioner.check(&told, None), []);
    assert_eq!(TranslatedKind::Provisioner.unknown_fields(&told), [""; 0]);
}

#[test]
fn d3_16_the_pool_says_which_provisioner_name_its_nodes_carry() {
    let mut provisioner = applied(D3_7);
    provisioner["metadata"]["uid"] = json!("0d6c");
    let made = translate(&provisioner, None, &settings(28));
    let annotations = &pool(&made)["metadata"]["annotations"];
    assert_eq!(annotations[PROVISIONER_NAME], "lab");
    assert_eq!(annotations[TRANSLATED_FROM], "provisioners.karpenter.sh/lab/0d6c");
    assert_eq!(marks::origin(pool(&made)), marks::origin(class(&made)));
    assert_eq!(marks::origin(pool(&made)).map(|origin| origin.uid), Some("0d6c".to_owned()));
}

#[test]
fn d0_55_the_group_that_never_shipped_is_taken_for_the_one_that_did() {
    let alias = applied(&D0_54.replace("karpenter.k8s.aws/v1beta1", "compute.k8s.aws/v1beta1"));
    assert_eq!(TranslatedKind::of(&alias), Some(TranslatedKind::ComputeNodeClass));
    let made = translate_alias(&alias);
    assert_eq!((&made.refusals[..], &made.warnings[..]), (&[][..], &[][..]));
    let meant: Value = serde_norway::from_str(D0_54).unwrap();
    let meant = convert(&meant, "karpenter.k8s.aws/v1").unwrap();
    assert_eq!(class(&made)["spec"], meant["spec"]);
    assert_eq!(class(&made)["metadata"]["name"], "workers");
    assert_eq!(class(&made)["metadata"]["annotations"][TRANSLATED_FROM], "ec2nodeclassaliases.compute.k8s.aws/workers");
    // And `kubectl get ec2nodeclasses` still means the others.
    assert!(older_crds().iter().all(|crd| crd.spec.names.plural != "ec2nodeclasses"));
}

#[test]
fn d0_56_an_alias_with_a_term_that_says_too_much_is_refused() {
    let mut alias: Value = serde_norway::from_str(D0_54).unwrap();
    alias["apiVersion"] = json!("compute.k8s.aws/v1beta1");
    alias["spec"]["securityGroupSelectorTerms"] = json!([{"id": "sg-1", "name": "workers-sg", "tags": {"a": "b"}}]);
    let made = translate_alias(&alias);
    assert!(!made.may_launch());
    assert!(made.refusals.iter().all(|refusal| refusal.path == "spec.securityGroupSelectorTerms"), "{made:#?}");
}
