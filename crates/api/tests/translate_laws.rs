//! What holds for every Provisioner: an answer, the same each time, and fit for an API server unless a refusal says otherwise.

use kerf_api::older::{Translation, TranslationSettings, translate, translate_alias, translate_template};
use kerf_api::{Ec2NodeClass, Kind, LabelRules, NodePool};
use proptest::collection::{btree_map, vec};
use proptest::option::of as maybe;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        select(vec!["", "Never", "-1", "1,2,,3", ",", "AL2", "Ubuntu", "\u{1f980}", "karpenter.sh/x", "/"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map("[a-z:./-]{0,12}", inner, 0..4).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn word() -> impl Strategy<Value = Value> {
    "[a-z]([a-z0-9-]{0,8}[a-z0-9])?".prop_map(Value::from)
}

fn labels() -> impl Strategy<Value = Value> {
    let key = prop_oneof!["[a-z]{1,8}", "example\\.com/[a-z]{1,8}", Just("kubernetes.io/arch".to_owned())];
    btree_map(key, word(), 0..4).prop_map(|labels| Value::Object(labels.into_iter().collect()))
}

fn requirement() -> impl Strategy<Value = Value> {
    let of = |key: &'static str, values: &'static [&'static str]| {
        (select(vec!["In", "NotIn"]), proptest::sample::subsequence(values, 1..=values.len()))
            .prop_map(move |(operator, values)| json!({"key": key, "operator": operator, "values": values}))
    };
    prop_oneof![
        of("karpenter.sh/capacity-type", &["spot", "on-demand"]),
        of("karpenter.k8s.aws/capacity-type", &["spot", "on-demand", "ondemand"]),
        of("node.kubernetes.io/instance-type", &["m5.large", "t3a.xlarge"]),
        of("karpenter.k8s.aws/instance-category", &["c", "m"]),
        of("karpenter.k8s.aws/instance-category", &["p3", "g4dn"]),
        of("karpenter.k8s.aws/instance-family", &["m5", "c6a"]),
        of("beta.kubernetes.io/arch", &["arm64"]),
        of("topology.kubernetes.io/zone", &["a", "b"]),
        select(vec!["Gt", "Lt"]).prop_map(
            |operator| json!({"key": "karpenter.k8s.aws/instance-cpu", "operator": operator, "values": ["3"]})
        ),
        select(vec!["Exists", "DoesNotExist"])
            .prop_map(|operator| json!({"key": "example.com/x", "operator": operator})),
    ]
}

/// No key twice, as the operator wants it.
fn taints(prefix: &'static str) -> impl Strategy<Value = Value> {
    let taint = (maybe(word()), select(vec!["NoSchedule", "PreferNoSchedule", "NoExecute"]));
    vec(taint, 0..3).prop_map(move |taints| {
        let made = |(i, (value, effect)): (usize, (Option<Value>, &str))| json!({"key": format!("{prefix}{i}"), "value": value, "effect": effect});
        taints.into_iter().enumerate().map(made).collect()
    })
}

fn selector(ids: &'static str) -> impl Strategy<Value = Value> {
    let value = select(vec!["x", "*", "a,b", " a , b ", "Private*", ""]);
    prop_oneof![
        btree_map("[a-z]{1,6}", value, 1..4).prop_map(|tags| json!(tags)),
        (select(vec!["aws-ids", "aws::ids"]), Just(ids)).prop_map(|(key, ids)| json!({key: ids})),
    ]
}

fn kubelet() -> impl Strategy<Value = Value> {
    let fields = (
        maybe(0..200_i64),
        maybe(0..8_i64),
        maybe(select(vec!["containerd", "dockerd"])),
        maybe(any::<bool>()),
        any::<bool>(),
    );
    fields.prop_map(|(max_pods, per_core, runtime, quota, has_soft)| {
        let soft = has_soft.then(|| json!({"memory.available": "10%"}));
        let grace = has_soft.then(|| json!({"memory.available": "2m"}));
        json!({
            "maxPods": max_pods, "podsPerCore": per_core, "containerRuntime": runtime, "cpuCFSQuota": quota, "clusterDNS": ["10.0.0.1", "fd00::1"],
            "systemReserved": {"cpu": 1}, "evictionSoft": soft, "evictionSoftGracePeriod": grace,
        })
    })
}

fn provider() -> impl Strategy<Value = Value> {
    let images = prop_oneof![
        Just((None, None)),
        select(vec!["AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022"])
            .prop_map(|family| (Some(family), None)),
        select(vec!["AL2", "Custom", "Ubuntu", "Bottlerocket"])
            .prop_map(|family| (Some(family), Some(json!({"aws-ids": "ami-1,ami-2"})))),
        Just((None, Some(json!({"aws::name": "a,b*", "aws::owners": "self", "team": "a,b"})))),
    ];
    let size = select(vec![json!("100Gi"), json!("18Ti"), json!("12345Mi"), json!("1T"), json!(21_474_836_480_i64)]);
    let options = (maybe(select(vec!["required", "optional"])), maybe(1..=64_i64));
    (
        (images, selector("subnet-1, subnet-2"), selector("sg-1"), maybe(word()), maybe("\\PC{0,20}")),
        (maybe(labels()), maybe(size), maybe(options), maybe(any::<bool>()), maybe(vec(requirement(), 0..2))),
    )
        .prop_map(|((images, subnets, groups, profile, user_data), (tags, size, options, monitoring, requirements))| {
            let volumes = size.map(|size| json!([{"deviceName": "/dev/xvda", "ebs": {"volumeSize": size, "volumeType": "gp3"}}]));
            let options = options.map(|(tokens, hops)| json!({"httpTokens": tokens, "httpPutResponseHopLimit": hops}));
            json!({
                "amiFamily": images.0, "amiSelector": images.1, "subnetSelector": subnets, "securityGroupSelector": groups,
                "instanceProfile": profile, "userData": user_data, "tags": tags, "blockDeviceMappings": volumes, "metadataOptions": options,
                "detailedMonitoring": monitoring, "requirements": requirements,
            })
        })
}

/// A Provisioner as people wrote them, and the template it names, if it names one.
fn sound() -> impl Strategy<Value = (Value, Option<Value>)> {
    let goes = prop_oneof![
        Just((None, None)),
        (0..100_000_i64).prop_map(|idle_s| (Some(idle_s), None)),
        any::<bool>().prop_map(|enabled| (None, Some(json!({"enabled": enabled})))),
    ];
    let limit = select(vec![json!(1000), json!("64"), json!("1.5"), json!("100Gi"), json!(2.0)]);
    (
        (provider(), any::<bool>(), maybe(kubelet()), goes, maybe(1..10_000_000_i64), maybe(1..=100_i64)),
        (labels(), labels(), taints("a"), taints("b"), vec(requirement(), 0..4), maybe(btree_map("[a-z]{1,5}", limit, 0..3))),
    )
        .prop_map(|((mut provider, is_inline, kubelet, goes, age_s, weight), (labels, notes, taints, startup, requirements, limits))| {
            let mut spec = json!({
                "labels": labels, "annotations": notes, "taints": taints, "startupTaints": startup, "requirements": requirements,
                "kubeletConfiguration": kubelet, "ttlSecondsAfterEmpty": goes.0, "consolidation": goes.1, "ttlSecondsUntilExpired": age_s,
                "weight": weight, "limits": limits.map(|limits| json!({"resources": limits})),
            });
            let template = (!is_inline).then(|| {
                provider["requirements"].take();
                json!({"metadata": {"name": "t", "uid": "2"}, "spec": provider})
            });
            match &template {
                Some(_) => spec["providerRef"] = json!({"name": "t"}),
                None => spec["provider"] = provider,
            }
            (json!({"metadata": {"name": "p", "uid": "1"}, "spec": spec}), template)
        })
}

fn settings() -> impl Strategy<Value = TranslationSettings> {
    (maybe(20..40_u32), any::<bool>(), any::<bool>()).prop_map(|(kubernetes_minor, has_profile, has_role)| {
        TranslationSettings {
            default_instance_profile: has_profile.then(|| "profile".to_owned()),
            default_role: has_role.then(|| "role".to_owned()),
            kubernetes_minor,
            cluster_name: None,
        }
    })
}

/// Puts some other value anywhere into it, or takes something out.
fn damage(value: &mut Value, path: &[Index], with: Option<Value>) {
    let Some((first, rest)) = path.split_first() else {
        *value = with.unwrap_or(Value::Null);
        return;
    };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let name = fields.keys().nth(first.index(fields.len())).cloned().unwrap_or_default();
            damage_field(fields, &name, rest, with);
        }
        Value::Array(items) if !items.is_empty() => {
            let i = first.index(items.len());
            damage(&mut items[i], rest, with);
        }
        leaf => *leaf = with.unwrap_or(Value::Null),
    }
}

fn damage_field(fields: &mut Map<String, Value>, name: &str, rest: &[Index], with: Option<Value>) {
    match (rest.is_empty(), with, fields.get_mut(name)) {
        (true, None, _) => drop(fields.remove(name)),
        (_, with, Some(field)) => damage(field, rest, with),
        (_, _, None) => {}
    }
}

/// Everything an API server and the operator would refuse.
fn problems(made: &Translation) -> Vec<String> {
    let mut problems = Vec::new();
    for (kind, object) in [(Kind::NodePool, &made.node_pool), (Kind::Ec2NodeClass, &made.node_class)] {
        let Some(mut object) = object.clone() else { continue };
        kind.apply_defaults(&mut object);
        problems.extend(kind.check(&object, None).into_iter().map(|problem| problem.to_string()));
        problems.extend(kind.unknown_fields(&object));
        let operator = match kind {
            Kind::NodePool => serde_json::from_value(object).map(|pool: NodePool| pool.validate(&LabelRules::aws())),
            _ => serde_json::from_value(object)
                .map(|class: Ec2NodeClass| [class.validate_tags(), class.validate_kubelet()].concat()),
        };
        match operator {
            Ok(found) => problems.extend(found.into_iter().map(|problem| problem.to_string())),
            Err(error) => problems.push(error.to_string()),
        }
    }
    problems
}

proptest! {
    #[test]
    fn what_people_wrote_is_translated_into_what_an_api_server_takes((provisioner, template) in sound()) {
        let installed = TranslationSettings {
            default_instance_profile: Some("profile".to_owned()), kubernetes_minor: Some(28), ..Default::default()
        };
        let made = translate(&provisioner, template.as_ref(), &installed);
        prop_assert_eq!(&made.refusals, &[]);
        prop_assert_eq!(problems(&made), [""; 0]);
    }

    #[test]
    fn without_a_refusal_an_api_server_takes_it_whatever_was_wrong(
        (mut provisioner, mut template) in sound(),
        blows in vec((vec(any::<Index>(), 1..6), maybe(any_json()), any::<bool>()), 0..3),
        settings in settings(),
    ) {
        for (path, with, hits_template) in blows {
            match &mut template {
                Some(template) if hits_template => damage(template, &path, with),
                _ => damage(&mut provisioner, &path, with),
            }
        }
        let made = translate(&provisioner, template.as_ref(), &settings);
        prop_assert_eq!(&translate(&provisioner, template.as_ref(), &settings), &made);
        if made.refusals.is_empty() {
            prop_assert_eq!(problems(&made), [""; 0]);
        }
        // What is said has a place and a reason.
        for refusal in &made.refusals {
            prop_assert!(!refusal.path.is_empty() && !refusal.message.is_empty() && !refusal.found.is_empty(), "{refusal}");
        }
        if let Some(template) = &template {
            translate_template(template, &settings);
        }
    }

    #[test]
    fn any_json_has_an_answer(provisioner in any_json(), template in maybe(any_json()), spec in any_json(), settings in settings()) {
        translate(&provisioner, template.as_ref(), &settings);
        translate_template(&provisioner, &settings);
        translate_alias(&provisioner);
        translate_alias(&json!({"metadata": {"name": "c"}, "spec": spec}));
        let made = translate(&json!({"metadata": {"name": "p"}, "spec": spec}), template.as_ref(), &settings);
        prop_assert!(!made.may_launch(), "nothing useful can come of that: {spec}");
    }
}
