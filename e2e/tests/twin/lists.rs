//! Many objects at once: selectors, pages, and states of the past.

use serde_json::{Value, json};

use crate::expect::{names, refused, refused_with};
use crate::objects::{config_map, gadget, gadgets, labelled, pod};
use crate::stage::{Stage, cluster};

crate::tests!(
    a_list_has_a_kind_and_a_version_and_its_items_have_none,
    a_list_is_in_the_order_of_names,
    a_list_of_all_namespaces_tells_them_apart,
    label_selectors_choose,
    field_selectors_choose,
    an_unknown_field_cannot_be_selected_by,
    a_selector_that_cannot_be_read_is_refused,
    a_page_is_followed_by_the_next,
    pages_with_a_selector_do_not_count_what_remains,
    pages_show_the_state_of_the_first,
    a_token_that_cannot_be_read_is_refused,
    an_exact_version_shows_the_past,
    a_version_that_is_not_a_number_is_refused,
    a_match_without_a_version_is_refused,
    a_version_of_the_future_is_waited_for_and_refused,
    a_limit_that_is_not_a_number_is_refused,
    version_zero_is_any_state;
    alone
    an_expired_token_is_gone_and_offers_another,
    a_version_that_is_forgotten_is_gone,
);

fn a_list_has_a_kind_and_a_version_and_its_items_have_none(stage: &Stage) {
    let collection = stage.at("v1", "secrets");
    let empty = stage.read(&collection);
    assert_eq!(
        (&empty["kind"], &empty["apiVersion"], &empty["items"]),
        (&json!("SecretList"), &json!("v1"), &json!([]))
    );
    let created = stage.create(&collection, &json!({"metadata": {"name": "one"}}));
    let list = stage.read(&collection);
    let item = &list["items"][0];
    assert_eq!((&item["kind"], &item["apiVersion"]), (&Value::Null, &Value::Null));
    assert_eq!(item["metadata"], created["metadata"]);
    assert!(version_of(&list) >= version_of(&created));
}

fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn a_list_is_in_the_order_of_names(stage: &Stage) {
    let collection = stage.at("v1", "secrets");
    for name in ["b", "a.c", "a", "a-b", "c0", "0c"] {
        stage.create(&collection, &json!({"metadata": {"name": name}}));
    }
    assert_eq!(names(&stage.read(&collection)), ["0c", "a", "a-b", "a.c", "b", "c0"]);
}

fn a_list_of_all_namespaces_tells_them_apart(stage: &Stage) {
    let other = stage.unique("more");
    stage.create("/api/v1/namespaces", &json!({"metadata": {"name": other}}));
    stage.create(&stage.config_maps(), &labelled("one", json!({"list": stage.namespace})));
    stage.create(&format!("/api/v1/namespaces/{other}/configmaps"), &labelled("one", json!({"list": stage.namespace})));
    let list = stage.read(&format!("{}?labelSelector=list%3D{}", cluster("v1", "configmaps"), stage.namespace));
    let found: Vec<&Value> =
        list["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["namespace"]).collect();
    assert_eq!(found, [&json!(stage.namespace), &json!(other)]);
    stage.delete(&format!("/api/v1/namespaces/{other}"));
}

fn label_selectors_choose(stage: &Stage) {
    for (name, labels) in [
        ("a", json!({"app": "web", "tier": "1"})),
        ("b", json!({"app": "web", "tier": "2"})),
        ("c", json!({"app": "db"})),
        ("d", json!({"example.com/odd": ""})),
    ] {
        let mut secret = labelled(name, labels);
        secret["kind"] = json!("Secret");
        stage.create(&stage.at("v1", "secrets"), &secret);
    }
    #[rustfmt::skip]
    let cases: [(&str, &[&str]); 14] = [
        ("app=web", &["a", "b"]), ("app==web,tier=2", &["b"]), ("app!=web", &["c", "d"]), ("app in (web, db)", &["a", "b", "c"]),
        ("app notin (web)", &["c", "d"]), ("tier", &["a", "b"]), ("!app", &["d"]), ("app,!tier", &["c"]),
        ("example.com/odd", &["d"]), ("example.com/odd=", &["d"]), ("tier>1", &["b"]), ("tier<2", &["a"]), ("", &["a", "b", "c", "d"]),
        ("app=nobody", &[]),
    ];
    for (selector, expected) in cases {
        let list = stage.read(&format!("{}?labelSelector={}", stage.at("v1", "secrets"), encoded(selector)));
        assert_eq!(names(&list), expected, "{selector}");
    }
}

/// For a query: everything but letters and digits is written as its number.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { (byte as char).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn field_selectors_choose(stage: &Stage) {
    for (name, node, policy) in [("a", "n1", "Always"), ("b", "n2", "Never"), ("c", "", "Never")] {
        let mut pod = pod(name);
        pod["spec"]["restartPolicy"] = json!(policy);
        if !node.is_empty() {
            pod["spec"]["nodeName"] = json!(stage.unique(node));
        }
        stage.create(&stage.pods(), &pod);
    }
    let n1 = stage.unique("n1");
    #[rustfmt::skip]
    let cases: Vec<(String, &[&str])> = vec![
        ("metadata.name=b".to_owned(), &["b"]), ("metadata.name!=b".to_owned(), &["a", "c"]),
        (format!("metadata.namespace={}", stage.namespace), &["a", "b", "c"]), ("metadata.namespace=other".to_owned(), &[]),
        (format!("spec.nodeName={n1}"), &["a"]), ("spec.nodeName=".to_owned(), &["c"]), ("spec.nodeName!=".to_owned(), &["a", "b"]),
        ("spec.restartPolicy=Never".to_owned(), &["b", "c"]), ("status.phase=Pending,spec.restartPolicy!=Never".to_owned(), &["a"]),
        ("spec.schedulerName==nobody".to_owned(), &["a", "b", "c"]), ("spec.serviceAccountName=default".to_owned(), &["a", "b", "c"]),
        ("status.podIP=".to_owned(), &["a", "b", "c"]), ("status.nominatedNodeName=".to_owned(), &["a", "b", "c"]), ("spec.hostNetwork=false".to_owned(), &["a", "b", "c"]),
    ];
    for (selector, expected) in cases {
        let list = stage.read(&format!("{}?fieldSelector={}", stage.pods(), encoded(&selector)));
        // The real server may already have looked at a pod with a node.
        assert_eq!(names(&list), expected, "{selector}");
    }
}

fn an_unknown_field_cannot_be_selected_by(stage: &Stage) {
    let answer = stage.client.get(&format!("{}?fieldSelector=spec.image%3Dx", stage.pods())).unwrap();
    refused(&answer, 400, "BadRequest", "field label not supported: spec.image");
    let answer = stage.client.get(&format!("{}?fieldSelector=data%3Dx", stage.config_maps())).unwrap();
    refused(
        &answer,
        400,
        "BadRequest",
        r#""data" is not a known field selector: only "metadata.name", "metadata.namespace""#,
    );
}

fn a_selector_that_cannot_be_read_is_refused(stage: &Stage) {
    #[rustfmt::skip]
    let cases = [
        ("labelSelector", "a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("labelSelector", "a in x", "unable to parse requirement: found 'x' expected: '('"),
        ("labelSelector", "=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("labelSelector", "a=x!", "found '!', expected: ',' or 'end of string'"),
        ("labelSelector", "-a=x", "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"),
        ("labelSelector", "a=-x", "unable to parse requirement: values[0][a]: Invalid value: \"-x\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"),
        ("fieldSelector", "metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
    ];
    for (parameter, selector, message) in cases {
        let answer = stage.client.get(&format!("{}?{parameter}={}", stage.pods(), encoded(selector))).unwrap();
        refused_with(&answer, 400, "BadRequest");
        assert_eq!(answer.message(), message, "{selector}");
    }
}

fn five(stage: &Stage) -> String {
    let collection = stage.at("v1", "secrets");
    for name in ["a", "b", "c", "d", "e"] {
        stage.create(&collection, &json!({"metadata": {"name": name, "labels": {"x": "y"}}}));
    }
    collection
}

fn token_of(list: &Value) -> String {
    list["metadata"]["continue"].as_str().unwrap_or_default().to_owned()
}

fn a_page_is_followed_by_the_next(stage: &Stage) {
    let collection = five(stage);
    let first = stage.read(&format!("{collection}?limit=2"));
    assert_eq!(
        (names(&first), &first["metadata"]["remainingItemCount"]),
        (vec!["a".to_owned(), "b".to_owned()], &json!(3))
    );
    let second = stage.read(&format!("{collection}?limit=2&continue={}", encoded(&token_of(&first))));
    assert_eq!(
        (names(&second), &second["metadata"]["remainingItemCount"]),
        (vec!["c".to_owned(), "d".to_owned()], &json!(1))
    );
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let third = stage.read(&format!("{collection}?limit=2&continue={}", encoded(&token_of(&second))));
    assert_eq!(names(&third), ["e"]);
    assert_eq!(
        (&third["metadata"]["continue"], &third["metadata"]["remainingItemCount"]),
        (&Value::Null, &Value::Null)
    );
    let whole = stage.read(&format!("{collection}?limit=5"));
    assert_eq!((names(&whole).len(), token_of(&whole)), (5, String::new()));
}

fn pages_with_a_selector_do_not_count_what_remains(stage: &Stage) {
    let collection = five(stage);
    let first = stage.read(&format!("{collection}?limit=3&labelSelector=x%3Dy"));
    assert_eq!((names(&first).len(), &first["metadata"]["remainingItemCount"]), (3, &Value::Null));
    let second =
        stage.read(&format!("{collection}?limit=3&labelSelector=x%3Dy&continue={}", encoded(&token_of(&first))));
    assert_eq!(names(&second), ["d", "e"]);
}

fn pages_show_the_state_of_the_first(stage: &Stage) {
    let collection = five(stage);
    let first = stage.read(&format!("{collection}?limit=2"));
    stage.create(&collection, &json!({"metadata": {"name": "cc"}}));
    stage.delete(&format!("{collection}/d"));
    stage.patch(&format!("{collection}/e"), "merge", &json!({"metadata": {"labels": {"x": "new"}}}));
    let rest = stage.read(&format!("{collection}?continue={}", encoded(&token_of(&first))));
    assert_eq!(names(&rest), ["c", "d", "e"]);
    assert_eq!(rest["items"][2]["metadata"]["labels"], json!({"x": "y"}));
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
}

fn a_token_that_cannot_be_read_is_refused(stage: &Stage) {
    let answer = stage.client.get(&format!("{}?limit=2&continue=nonsense", stage.config_maps())).unwrap();
    refused_with(&answer, 400, "BadRequest");
    assert_eq!(
        answer.message(),
        "invalid continue token: continue key is not valid: invalid character '\\u009e' looking for beginning of value"
    );
}

fn an_exact_version_shows_the_past(stage: &Stage) {
    let collection = five(stage);
    let before = stage.read(&collection);
    stage.delete(&format!("{collection}/c"));
    let version = &before["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let past = stage.read(&format!("{collection}?resourceVersion={version}&resourceVersionMatch=Exact"));
    assert_eq!(names(&past), ["a", "b", "c", "d", "e"]);
    assert_eq!(past["metadata"]["resourceVersion"], *version);
    let now = stage.read(&format!("{collection}?resourceVersion={version}&resourceVersionMatch=NotOlderThan"));
    assert!(version_of(&now) >= version.parse().unwrap());
    assert_eq!(names(&stage.read(&collection)), ["a", "b", "d", "e"]);
}

fn a_version_that_is_not_a_number_is_refused(stage: &Stage) {
    let answer = stage.client.get(&format!("{}?resourceVersion=abc", stage.config_maps())).unwrap();
    refused_with(&answer, 400, "BadRequest");
    assert_eq!(
        answer.message(),
        r#"invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax"#
    );
}

fn a_match_without_a_version_is_refused(stage: &Stage) {
    let answer = stage.client.get(&format!("{}?resourceVersionMatch=Exact", stage.config_maps())).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(
        answer.message(),
        r#"ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"#
    );
    let answer =
        stage.client.get(&format!("{}?resourceVersionMatch=Nearly&resourceVersion=1", stage.config_maps())).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(
        answer.message(),
        r#"ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Unsupported value: "Nearly": supported values: "Exact", "NotOlderThan", """#
    );
}

fn a_version_of_the_future_is_waited_for_and_refused(stage: &Stage) {
    let answer = stage.client.get(&format!("{}?resourceVersion=999999999", stage.config_maps())).unwrap();
    refused_with(&answer, 504, "Timeout");
    assert!(
        answer.message().starts_with("Timeout: Too large resource version: 999999999, current: "),
        "{}",
        answer.message()
    );
    let details = &answer.body["details"];
    assert_eq!(details["retryAfterSeconds"], 1, "{details}");
    assert_eq!(
        details["causes"],
        json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}])
    );
}

fn a_limit_that_is_not_a_number_is_refused(stage: &Stage) {
    let answer = stage.client.get(&format!("{}?limit=many", stage.config_maps())).unwrap();
    refused_with(&answer, 400, "BadRequest");
    assert_eq!(answer.message(), r#"strconv.ParseInt: parsing "many": invalid syntax"#);
}

fn version_zero_is_any_state(stage: &Stage) {
    stage.create(&stage.config_maps(), &config_map("one", json!({})));
    stage.wait_for("a state at hand to have the new object", || {
        let list = stage.read(&format!("{}?resourceVersion=0", stage.config_maps()));
        names(&list).contains(&"one".to_owned())
    });
    let list = stage.read(&format!("{}?resourceVersion=0&limit=1", stage.config_maps()));
    assert!(!names(&list).is_empty());
}

/// `{"v":"meta.k8s.io/v1","rv":2,"start":"b\u0000"}`: after `b`, in a state from before the first test.
const TOKEN_OF_VERSION_2: &str = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Miwic3RhcnQiOiJiXHUwMDAwIn0";

/// Gadgets, because the real server remembers all states of a kind since it began to serve it.
fn five_gadgets(stage: &Stage) -> String {
    let collection = gadgets(stage, json!({}));
    for name in ["a", "b", "c", "d", "e"] {
        stage.create(&collection, &gadget(stage, name, json!({})));
    }
    collection
}

fn an_expired_token_is_gone_and_offers_another(stage: &Stage) {
    let collection = five_gadgets(stage);
    stage.forget_before(version_of(&stage.read(&collection)));
    let answer = stage.client.get(&format!("{collection}?limit=2&continue={TOKEN_OF_VERSION_2}")).unwrap();
    refused_with(&answer, 410, "Expired");
    assert_eq!(
        answer.message(),
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
         the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
         Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted \
         between the time the first chunk was returned and now may show up in the list."
    );
    let rest = stage.read(&format!("{collection}?continue={}", encoded(&token_of(&answer.body))));
    assert_eq!(names(&rest), ["c", "d", "e"]);
}

fn a_version_that_is_forgotten_is_gone(stage: &Stage) {
    let collection = five_gadgets(stage);
    stage.forget_before(version_of(&stage.read(&collection)));
    let answer = stage.client.get(&format!("{collection}?resourceVersion=2&resourceVersionMatch=Exact")).unwrap();
    refused(&answer, 410, "Expired", "The resourceVersion for the provided list is too old.");
}
