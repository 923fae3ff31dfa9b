//! Files as people write them.

use super::*;
use crate::kwok::{INSTANCE_FAMILY, INSTANCE_SIZE, embedded, render};
use kerf_model::CapacityType;

fn one(body: &str) -> Parsed {
    let offering = r#"{"Price": 0.5, "Available": false, "Requirements": [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z1"]}]}"#;
    parse(&format!("[{}]", body.replace("OFFERING", offering)))
}

#[test]
fn keys_are_read_whatever_their_case_and_available_is_always_true() {
    let parsed = one(r#"{"Name": "m5.large", "ARCHITECTURE": "amd64", "operatingsystems": ["linux"],
        "Resources": {"cpu": 2, "memory": "8Gi"}, "Offerings": [OFFERING]}"#);
    assert_eq!(parsed.problems, []);
    let it = &parsed.types[0];
    assert_eq!(it.capacity.to_string(), "cpu 2, memory 8Gi, pods 110");
    assert_eq!(it.overhead.to_string(), "cpu 100m, memory 10Mi");
    assert_eq!(it.offerings[0].price, Money::from_dollars(0.5));
    assert!(it.offerings[0].available);
    assert_eq!(it.requirements.get(INSTANCE_SIZE).and_then(Requirement::single).map(|v| &**v), Some("large"));
    assert_eq!(it.requirements.get(INSTANCE_FAMILY).and_then(Requirement::single).map(|v| &**v), Some("m5"));
}

#[test]
fn our_own_keys_say_labels_and_overhead() {
    let parsed =
        one(r#"{"name": "x", "architecture": "amd64", "operatingSystems": ["linux"], "resources": {"cpu": "2"},
        "labels": {"team": "red"}, "overhead": {"cpu": "0"}, "offerings": [OFFERING]}"#);
    assert_eq!(parsed.problems, []);
    assert_eq!(parsed.types[0].requirements.get("team"), Some(&Requirement::is_in(["red"])));
    assert_eq!(parsed.types[0].overhead.to_string(), "cpu 0");
}

#[test]
fn the_older_shape_of_an_offering_is_read_as_it_was_meant() {
    let parsed =
        one(r#"{"name": "x", "architecture": "amd64", "operatingSystems": ["linux"], "resources": {"cpu": "2"},
        "offerings": [{"zone": "z1", "capacityType": "on-demand", "price": 0.1}]}"#);
    assert_eq!(parsed.problems, []);
    assert_eq!(parsed.types[0].offerings[0].capacity_type(), Some(CapacityType::OnDemand));
}

#[test]
fn what_cannot_be_used_is_named_and_the_rest_loads() {
    let rest = r#""architecture": "amd64", "operatingSystems": ["linux"]"#;
    let text = format!(
        r#"{{"name": "bad-cpu", {rest}, "resources": {{"cpu": "two"}}, "offerings": [OFFERING]}},
        {{"name": "bad-arch", "operatingSystems": [], "resources": {{"cpu": "2"}}, "offerings": [OFFERING]}},
        {{{rest}, "resources": {{"cpu": "2"}}, "offerings": [OFFERING]}},
        {{"name": "half", {rest}, "resources": {{"cpu": "2"}}, "offerings": [OFFERING, {{"Price": -1}}, {{"Price": 1}}]}},
        {{"name": "good", {rest}, "resources": {{"cpu": "2"}}, "offerings": [OFFERING]}},
        {{"name": "good", {rest}, "resources": {{"cpu": "2"}}, "offerings": [OFFERING]}},
        7"#
    );
    let parsed = one(&text);
    let names: Vec<&str> = parsed.types.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["half", "good"]);
    assert_eq!(parsed.types[0].offerings.len(), 1);
    let told: Vec<String> = parsed.problems.iter().map(ToString::to_string).collect();
    let expected = [
        r#"instance type bad-cpu: resources.cpu: found "two", expected a quantity such as 4, 500m or 8Gi, zero or more"#,
        "instance type bad-arch: architecture: found nothing, expected a text",
        "instance type bad-arch: operatingSystems: found [], expected a list of texts",
        "instance type #2: name: found nothing, expected a text",
        "instance type half: offerings[1].Price: found -1, expected a price in dollars per hour, zero or more",
        "instance type half: offerings[2].Requirements[topology.kubernetes.io/zone]: found nothing, \
         expected one value each for topology.kubernetes.io/zone and karpenter.sh/capacity-type",
        r#"instance type good: name: found "good", expected a name that no earlier type has"#,
        "instance type #6: (type): found 7, expected an object",
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_file_that_is_no_list_is_refused_whole() {
    for text in ["", "{}", "[1", "null"] {
        let parsed = parse(text);
        assert!(parsed.types.is_empty() && parsed.problems.len() == 1, "{text}");
    }
}

#[test]
fn what_is_written_reads_back_the_same() {
    let types = embedded();
    let parsed = parse(&render(&types));
    assert_eq!(parsed.problems, []);
    assert_eq!(parsed.types, types);
}
