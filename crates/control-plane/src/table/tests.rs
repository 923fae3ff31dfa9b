use super::*;
use crate::kind::Catalog;

const NOW: &str = "2026-11-15T12:00:00Z";
const BORN: &str = "2026-11-15T11:59:00Z";

fn row(cells: &[Value]) -> String {
    let said = cells.iter().map(|cell| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned));
    said.collect::<Vec<_>>().join(" | ")
}

#[test]
fn rows_are_those_of_the_real_server() {
    #[derive(serde::Deserialize)]
    struct Case {
        row: String,
        object: Value,
    }
    let cases: Vec<Case> = serde_norway::from_str(include_str!("cases.yaml")).unwrap();
    let catalog = Catalog::built_in();
    for mut case in cases {
        case.object["metadata"]["creationTimestamp"] = json!(BORN);
        let (api_version, kind) = (text(&case.object["apiVersion"]), text(&case.object["kind"]));
        let resource = catalog.of_kind(api_version, kind).unwrap();
        let cells = cells(resource, &case.object, NOW.parse().unwrap());
        assert_eq!(row(&cells).trim_end(), case.row.trim_end(), "{kind}");
        assert_eq!(cells.len(), columns(resource).len(), "{kind}");
    }
}

#[test]
fn every_kind_has_a_row_even_of_nonsense() {
    let now = NOW.parse().unwrap();
    let nonsense = [
        json!(null),
        json!([1]),
        json!("x"),
        json!({"metadata": 7, "spec": [[]], "status": {"conditions": [3, {}],
        "containerStatuses": {"a": 1}, "initContainerStatuses": [null, {"restartCount": i64::MAX}, {"restartCount": 1}]}}),
    ];
    for resource in Catalog::built_in().iter() {
        for object in &nonsense {
            assert_eq!(cells(resource, object, now).len(), columns(resource).len(), "{}: {object}", resource.kind);
            let _ = conditions(resource, object);
        }
    }
}

#[test]
fn a_pod_that_has_ended_is_marked_in_its_row() {
    let catalog = Catalog::built_in();
    let pods = catalog.get("", "v1", "pods").unwrap();
    assert_eq!(conditions(pods, &json!({"status": {"phase": "Running"}})), None);
    let failed = conditions(pods, &json!({"status": {"phase": "Failed"}})).unwrap();
    assert_eq!(
        failed,
        json!([{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}])
    );
}

#[test]
fn a_cell_of_a_custom_resource_has_its_columns_type_or_is_empty() {
    let cases = [
        ("integer", json!(3), json!(3)),
        ("integer", json!(3.7), json!(3)),
        ("integer", json!("3"), json!(null)),
        ("number", json!(1.5), json!(1.5)),
        ("boolean", json!(true), json!(true)),
        ("boolean", json!("true"), json!(null)),
        ("string", json!("x"), json!("x")),
        ("string", json!({"a": [1, "x"]}), json!("{\"a\":[1,\"x\"]}")),
        ("string", json!(true), json!("true")),
        ("string", json!(null), json!(null)),
        ("date", json!("2026-01-01T00:00:00Z"), json!("318d")),
        ("date", json!("2026-13-01T00:00:00Z"), json!("<invalid>")),
        ("date", json!(5), json!(null)),
    ];
    for (kind, found, cell) in cases {
        assert_eq!(typed(kind, found.clone(), NOW.parse().unwrap()), cell, "{kind} {found}");
    }
}
