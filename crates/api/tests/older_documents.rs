//! The documents' own manifests of v1beta1: accepted as they stand or refused with a way out, and what they become.

#![expect(clippy::unwrap_used, reason = "helpers of tests may, like tests")]

use kerf_api::older::{convert, to_current, v1beta1};
use kerf_api::{Kind, NodePool};
use serde_json::{Value, json};

const D0_47: &str = include_str!("documents/d0_47.yaml");
const D0_54: &str = include_str!("documents/d0_54.yaml");
const D0_56: &str = include_str!("documents/d0_56.yaml");
const D1_23: &str = include_str!("documents/d1_23.yaml");

fn read(yaml: &str) -> Value {
    serde_norway::from_str(yaml).unwrap()
}

/// As an API server admits it: nothing in it is unknown, and it has its defaults.
#[track_caller]
fn admitted(mut object: Value) -> Value {
    let kind = v1beta1::kind_of(&object).unwrap();
    assert_eq!(v1beta1::unknown_fields(kind, &object), [""; 0]);
    v1beta1::apply_defaults(kind, &mut object);
    assert_eq!(v1beta1::check(kind, &object, None), []);
    object
}

fn refusals(mut object: Value) -> Vec<String> {
    let problems = match v1beta1::kind_of(&object) {
        Some(kind) => {
            v1beta1::apply_defaults(kind, &mut object);
            v1beta1::check(kind, &object, None)
        }
        None => {
            let kind = Kind::of(&object).unwrap();
            kind.apply_defaults(&mut object);
            kind.check(&object, None)
        }
    };
    problems.iter().map(ToString::to_string).collect()
}

/// The v1 form, which v1 accepts, and which is read in v1beta1 as what was written there.
#[track_caller]
fn current(object: &Value) -> Value {
    let kind = v1beta1::kind_of(object).unwrap();
    let current = to_current(object).unwrap().unwrap();
    assert_eq!(kind.check(&current, None), []);
    assert_eq!(convert(&current, object["apiVersion"].as_str().unwrap()).unwrap(), *object);
    current
}

#[test]
fn d0_17_a_bad_pool_is_refused_and_a_good_one_gets_its_defaults() {
    let mut pool = read(D0_47);
    pool["spec"].as_object_mut().unwrap().remove("disruption");
    let expected =
        json!({"consolidationPolicy": "WhenUnderutilized", "expireAfter": "720h", "budgets": [{"nodes": "10%"}]});
    assert_eq!(admitted(pool.clone())["spec"]["disruption"], expected);
    pool["spec"]["weight"] = json!("heavy");
    assert_eq!(refusals(pool), [r#"spec.weight: found "heavy"; this must be a whole number"#]);
}

#[test]
fn d0_47_a_pool_with_every_field_of_the_document_works_as_it_stands() {
    let pool = admitted(read(D0_47));
    let current = current(&pool);
    let template = &current["spec"]["template"];
    assert_eq!(template["metadata"], pool["spec"]["template"]["metadata"]);
    assert_eq!(template["spec"]["requirements"], pool["spec"]["template"]["spec"]["requirements"]);
    assert_eq!(template["spec"]["taints"], json!([{"key": "example.com/only-blue", "effect": "NoSchedule"}]));
    assert_eq!(template["spec"]["expireAfter"], "720h");
    let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "workers"});
    assert_eq!(template["spec"]["nodeClassRef"], class);
    let typed: NodePool = serde_json::from_value(current).unwrap();
    assert_eq!(typed.spec.limits.unwrap()["cpu"].0, "500");
}

#[test]
fn d0_48_limits_are_accepted_nested_and_flat_as_text_and_as_numbers_but_not_both_ways_at_once() {
    let with = |limits: Value| {
        let mut pool = read(D0_47);
        pool["spec"]["limits"] = limits;
        pool
    };
    for (limits, expected) in [
        (json!({"resources": {"cpu": "500", "memory": "1000Gi"}}), json!({"cpu": "500", "memory": "1000Gi"})),
        (json!({"resources": {"cpu": 500, "memory": 1000}}), json!({"cpu": 500, "memory": 1000})),
        (json!({"cpu": "500", "memory": "1000Gi"}), json!({"cpu": "500", "memory": "1000Gi"})),
        (json!({"cpu": 500, "nvidia.com/gpu": 4}), json!({"cpu": 500, "nvidia.com/gpu": 4})),
    ] {
        assert_eq!(current(&admitted(with(limits)))["spec"]["limits"], expected);
    }
    let both = refusals(with(json!({"cpu": 500, "resources": {"memory": "1000Gi"}})));
    assert!(both[0].contains("not in both; move those of limits.resources to limits"), "{both:?}");
}

#[test]
fn d0_49_when_underutilized_may_say_how_long_it_waits() {
    let mut pool = admitted(read(D0_47));
    assert_eq!(
        current(&pool)["spec"]["disruption"],
        json!({"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s", "budgets": [{"nodes": "10%"}]})
    );
    pool["spec"]["disruption"].as_object_mut().unwrap().remove("consolidateAfter");
    assert_eq!(current(&pool)["spec"]["disruption"]["consolidateAfter"], "0s");
}

#[test]
fn d0_54_a_class_with_every_field_of_the_document_works_as_it_stands() {
    let class = admitted(read(D0_54));
    let current = current(&class);
    for field in class["spec"].as_object().unwrap().keys() {
        assert_eq!(current["spec"][field], class["spec"][field], "{field}");
    }
}

#[test]
fn d0_54_without_terms_the_family_becomes_an_alias() {
    let mut class = admitted(read(D0_54));
    class["spec"].as_object_mut().unwrap().remove("amiSelectorTerms");
    let current = current(&class);
    assert_eq!(current["spec"]["amiSelectorTerms"], json!([{"alias": "al2@latest"}]));
}

#[test]
fn d0_55_a_class_under_the_group_that_never_shipped_is_the_class_that_is_meant() {
    let mut odd = read(D0_54);
    odd["apiVersion"] = json!("compute.k8s.aws/v1beta1");
    assert_eq!(to_current(&odd), to_current(&read(D0_54)));
}

#[test]
fn d0_56_id_name_and_tags_in_one_term_are_refused_with_what_would_do() {
    let said = refusals(read(D0_56));
    assert!(said.iter().any(|problem| problem.contains("one of id, name or tags per term")), "{said:?}");
    assert!(said.iter().any(|problem| problem.starts_with("spec.securityGroupSelectorTerms[0].id")), "{said:?}");
}

#[test]
fn d0_57_a_map_where_a_list_belongs_is_refused_and_named() {
    let mut class = read(D0_54);
    class["spec"]["amiSelectorTerms"] = json!({"tags": {"karpenter.sh/discovery": "kerf-demo"}});
    let said = refusals(class);
    assert!(said[0].starts_with("spec.amiSelectorTerms: found"), "{said:?}");
    assert!(said[0].ends_with("this must be a list"), "{said:?}");
}

#[test]
fn d1_23_the_key_that_no_generation_has_is_refused_and_the_right_one_named() {
    let older = read(D1_23);
    for object in [to_current(&older).unwrap().unwrap(), older] {
        let said = refusals(object);
        assert!(said.iter().any(|problem| problem.contains("karpenter.sh/capacity-type is meant")), "{said:?}");
    }
}
