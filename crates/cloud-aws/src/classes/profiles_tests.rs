use super::*;
use crate::classes::testing::now_ready;
use crate::wire::scripted::Scripted;
use kerf_cloud::ClaimInUse;
use kerf_model::NodeClassRef;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

fn settings() -> Settings {
    Settings { cluster_name: "demo".to_owned(), region: "eu-west-1".to_owned(), ..Settings::default() }
}

fn class(spec: Value, profile: Option<&str>) -> Ec2NodeClass {
    let metadata = json!({"name": "default", "uid": "uid-1"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": {"instanceProfile": profile}})).unwrap()
}

fn later(seconds: i64) -> UnixMillis {
    UnixMillis(NOW.0 + seconds * 1_000)
}

fn role_missing() -> Failure {
    Failure::new("iam:AddRoleToInstanceProfile", "NoSuchEntity", "The role with name nodes cannot be found.")
}

#[test]
fn a_role_gets_a_profile_under_the_path_of_its_class_with_the_tags_of_the_contract() {
    let (aws, profiles) = (Scripted::default(), Profiles::default());
    let wanted = class(json!({"role": "some/path/nodes", "tags": {"team": "a"}}), None);
    let name = now_ready(profiles.ensure(&aws, &settings(), &wanted, NOW)).unwrap();
    let (cluster, hash) = name.split_once('_').unwrap();
    assert_eq!((cluster, hash.parse::<u64>().is_ok()), ("demo", true));
    let made = aws.account().profiles[&name].clone();
    assert_eq!((made.path.as_str(), made.roles), ("/karpenter/eu-west-1/demo/uid-1/", vec!["nodes".to_owned()]));
    let tags: Vec<String> = made.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(
        tags,
        [
            "eks:eks-cluster-name=demo",
            "karpenter.k8s.aws/ec2nodeclass=default",
            "kubernetes.io/cluster/demo=owned",
            "team=a",
            "topology.kubernetes.io/region=eu-west-1",
        ]
    );
    let n_calls = aws.account().calls.len();
    let again = class(json!({"role": "some/path/nodes"}), Some(&name));
    assert_eq!(now_ready(profiles.ensure(&aws, &settings(), &again, later(899))), Ok(name.clone()));
    assert_eq!(aws.account().calls.len(), n_calls, "known for a quarter of an hour");
    assert_eq!(now_ready(profiles.ensure(&aws, &settings(), &again, later(900))), Ok(name));
    assert_eq!(aws.account().calls.len(), n_calls + 1, "then it is looked up");
}

#[test]
fn another_role_gets_another_profile_and_both_are_protected_for_an_hour() {
    let (aws, profiles) = (Scripted::default(), Profiles::default());
    let first = now_ready(profiles.ensure(&aws, &settings(), &class(json!({"role": "a"}), None), NOW)).unwrap();
    let second =
        now_ready(profiles.ensure(&aws, &settings(), &class(json!({"role": "b"}), Some(&first)), NOW)).unwrap();
    assert_ne!(first, second);
    let nobody = InUse::default();
    let collect = |at| now_ready(profiles.collect(&aws, &settings(), &nobody, at)).unwrap();
    assert!(collect(later(3_599)).is_empty());
    let mut both = vec![first, second];
    both.sort();
    assert_eq!(collect(later(3_600)), both);
    assert!(aws.account().profiles.is_empty());
}

#[test]
fn a_profile_that_was_begun_is_finished_under_the_same_name() {
    let aws = Scripted::default();
    let wanted = class(json!({"role": "nodes"}), None);
    let name = now_ready(Profiles::default().ensure(&aws, &settings(), &wanted, NOW)).unwrap();
    aws.account().profiles.get_mut(&name).unwrap().roles = vec!["wrong".to_owned()];
    assert_eq!(now_ready(Profiles::default().ensure(&aws, &settings(), &wanted, NOW)), Ok(name.clone()));
    assert_eq!(aws.account().profiles[&name].roles, ["nodes"]);
    assert_eq!(aws.count("iam:CreateInstanceProfile"), 1);
}

#[test]
fn d0_58_a_role_that_does_not_exist_is_named_and_not_tried_again_for_a_minute() {
    let (aws, profiles) = (Scripted::default(), Profiles::default());
    aws.fail_always(role_missing());
    let wanted = class(json!({"role": "nodes"}), None);
    for (at, n_tries) in [(0, 1), (59, 1), (60, 2)] {
        let trouble = now_ready(profiles.ensure(&aws, &settings(), &wanted, later(at))).unwrap_err();
        assert!(matches!(&trouble, NoProfile::RoleMissing { role, .. } if role == "nodes"), "{trouble:?}");
        assert_eq!(aws.count("iam:AddRoleToInstanceProfile"), n_tries, "{at}");
    }
    assert!(aws.account().profiles.is_empty(), "what was begun is taken back");
}

#[test]
fn a_profile_of_the_users_own_is_used_without_a_word_to_iam() {
    let aws = Scripted::default();
    let wanted = class(json!({"instanceProfile": "mine"}), None);
    assert_eq!(now_ready(Profiles::default().ensure(&aws, &settings(), &wanted, NOW)), Ok("mine".to_owned()));
    assert!(aws.account().calls.is_empty());
}

#[test]
fn a_role_gets_its_profile_in_an_isolated_vpc_too() {
    let (aws, isolated) = (Scripted::default(), Settings { is_isolated_vpc: true, ..settings() });
    let wanted = class(json!({"role": "nodes"}), None);
    let name = now_ready(Profiles::default().ensure(&aws, &isolated, &wanted, NOW)).unwrap();
    assert_eq!(aws.account().profiles[&name].roles, ["nodes"]);
}

#[test]
fn a_class_that_ends_takes_its_profiles_along_and_nobody_elses() {
    let (aws, profiles) = (Scripted::default(), Profiles::default());
    let name = now_ready(profiles.ensure(&aws, &settings(), &class(json!({"role": "nodes"}), None), NOW)).unwrap();
    let legacy = format!("demo_{}", fnv1(b"eu-west-1default"));
    let ours = Tags::from([("kubernetes.io/cluster/demo".to_owned(), "owned".to_owned())]);
    let put = |name: &str, path: &str, tags: &Tags| {
        let profile = InstanceProfile {
            name: name.to_owned(),
            path: path.to_owned(),
            roles: vec!["nodes".to_owned()],
            tags: tags.clone(),
        };
        aws.account().profiles.insert(name.to_owned(), profile);
    };
    put(&legacy, "/", &ours);
    put("other", "/karpenter/eu-west-1/demo/uid-2/", &ours);
    let ending = class(json!({"role": "nodes"}), Some(&name));
    now_ready(profiles.end(&aws, &settings(), &ending)).unwrap();
    assert_eq!(aws.account().profiles.keys().collect::<Vec<_>>(), ["other"]);
    // Without leave to list, the profile of the status goes.
    put(&name, "/karpenter/eu-west-1/demo/uid-1/", &ours);
    aws.fail_always(Failure::new("iam:ListInstanceProfiles", "AccessDenied", "no"));
    now_ready(profiles.end(&aws, &settings(), &ending)).unwrap();
    assert_eq!(aws.account().profiles.keys().collect::<Vec<_>>(), ["other"]);
}

#[test]
fn profiles_that_a_class_or_a_claim_names_are_not_collected() {
    let (aws, profiles) = (Scripted::default(), Profiles::default());
    for (name, path) in [
        ("of-class", "/karpenter/eu-west-1/demo/a/"),
        ("of-claim", "/karpenter/eu-west-1/demo/a/"),
        ("of-nobody", "/karpenter/eu-west-1/demo/gone/"),
        ("of-another-cluster", "/karpenter/eu-west-1/other/a/"),
        ("of-a-person", "/"),
    ] {
        let profile = InstanceProfile { name: name.to_owned(), path: path.to_owned(), ..InstanceProfile::default() };
        aws.account().profiles.insert(name.to_owned(), profile);
    }
    let claim = ClaimInUse {
        name: "claim".into(),
        provider_id: None,
        node_class: NodeClassRef {
            group: "karpenter.k8s.aws".into(),
            kind: "EC2NodeClass".into(),
            name: "default".into(),
        },
        labels: BTreeMap::new(),
        annotations: BTreeMap::from([(labels::INSTANCE_PROFILE_NAME.into(), "of-claim".into())]),
        is_deleting: false,
    };
    let in_use = InUse {
        classes: vec![Arc::new(json!({"status": {"instanceProfile": "of-class"}}))],
        claims: vec![claim],
        pools: Vec::new(),
    };
    assert_eq!(now_ready(profiles.collect(&aws, &settings(), &in_use, NOW)).unwrap(), ["of-nobody"]);
    assert_eq!(aws.account().profiles.len(), 4);
}

#[test]
fn names_that_iam_would_refuse_are_not_asked_for() {
    assert!(is_iam_name("demo_123"));
    assert!(!is_iam_name("de mo_123"));
    assert!(!is_iam_name(&"a".repeat(129)));
}
