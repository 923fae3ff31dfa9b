//! What is told of versions: discovery, OpenAPI, warnings.

use kerf_control_plane::request::Request;
use serde_json::{Value, json};

use super::stage::{BETA, DEFINITION, GROUP, Stage, V1, definition, gadget};

#[test]
fn versions_are_listed_in_order_with_the_newest_stable_one_preferred() {
    let stage = Stage::plain();
    let mut definition = definition("None");
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    for (name, served) in [("v2alpha1", true), ("v10", false), ("v1beta2", true)] {
        let mut version = versions[0].clone();
        version["name"] = json!(name);
        version["served"] = json!(served);
        versions.push(version);
    }
    stage.define(&definition);
    let expected = ["v1", "v1beta2", "v1beta1", "v2alpha1"];
    let group = stage.get(&format!("/apis/{GROUP}"));
    let told: Vec<&str> =
        group["versions"].as_array().unwrap().iter().map(|version| version["version"].as_str().unwrap()).collect();
    assert_eq!((told.as_slice(), &group["preferredVersion"]["version"]), (expected.as_slice(), &json!("v1")));
    let listed = stage.get("/apis")["groups"].clone();
    let listed = listed.as_array().unwrap().iter().find(|group| group["name"] == GROUP).unwrap();
    assert_eq!((&listed["versions"], &listed["preferredVersion"]), (&group["versions"], &group["preferredVersion"]));
    let aggregated = stage.plane.server().handle(&Request {
        method: "GET".to_owned(),
        path: "/apis".to_owned(),
        accept: "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList".to_owned(),
        ..Request::default()
    });
    let aggregated = aggregated.to_value();
    let ours = aggregated["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == GROUP).unwrap();
    let told: Vec<&str> =
        ours["versions"].as_array().unwrap().iter().map(|version| version["version"].as_str().unwrap()).collect();
    assert_eq!(told, expected);
    assert_eq!(ours["versions"][1]["resources"][0]["responseKind"]["version"], "v1beta2");
    assert_eq!(stage.ask("GET", &format!("/apis/{GROUP}/v10"), "", &Value::Null).status, 404);
}

#[test]
fn discovery_says_in_every_version_which_one_is_kept() {
    let stage = Stage::plain();
    stage.define(&definition("None"));
    let hash = |version: &str| {
        let list = stage.get(&format!("/apis/{GROUP}/{version}"));
        list["resources"][0]["storageVersionHash"].clone()
    };
    // The first eight bytes of the SHA-256 of "shapes.kerf.test/v1/Gadget".
    let kept_in_v1 = json!("KZ5LgchFfUA=");
    assert_eq!((hash("v1"), hash("v1beta1")), (kept_in_v1.clone(), kept_in_v1));
    stage.keep_in("v1beta1");
    let kept_in_beta = json!("9Jte39hnOl4=");
    assert_eq!((hash("v1"), hash("v1beta1")), (kept_in_beta.clone(), kept_in_beta));
    let mut definition = stage.get(DEFINITION);
    definition["spec"]["versions"][0]["served"] = json!(false);
    stage.put(DEFINITION, &definition);
    assert_eq!(hash("v1"), Value::Null, "a version that is not served is not spoken of");
}

#[test]
fn each_version_has_its_paths_and_schema_in_open_api() {
    let stage = Stage::plain();
    stage.define(&definition("None"));
    let index = stage.get("/openapi/v3");
    for (version, field, other) in [("v1", "size", "sizeText"), ("v1beta1", "sizeText", "size")] {
        assert!(index["paths"].get(format!("apis/{GROUP}/{version}")).is_some());
        let document = stage.get(&format!("/openapi/v3/apis/{GROUP}/{version}"));
        let path = format!("/apis/{GROUP}/{version}/namespaces/{{namespace}}/gadgets/{{name}}/scale");
        assert!(document["paths"].get(&path).is_some(), "{path}");
        let name = format!("test.kerf.shapes.{version}.Gadget");
        let v2 = stage.get("/openapi/v2");
        for schema in [&document["components"]["schemas"][&name], &v2["definitions"][&name]] {
            let fields = &schema["properties"]["spec"]["properties"];
            assert!(fields.get(field).is_some() && fields.get(other).is_none(), "{schema}");
            assert_eq!(
                schema["x-kubernetes-group-version-kind"],
                json!([{"group": GROUP, "version": version, "kind": "Gadget"}])
            );
        }
        assert!(v2["paths"].get(&path).is_some(), "{path}");
    }
}

#[test]
fn whatever_is_asked_of_a_deprecated_version_it_says_what_to_use() {
    let stage = Stage::plain();
    let mut definition = definition("None");
    definition["spec"]["versions"][0]["deprecated"] = json!(true);
    stage.define(&definition);
    let expected = [format!("{GROUP}/v1beta1 Gadget is deprecated; use {GROUP}/v1 Gadget")];
    let created = stage.ask("POST", BETA, "application/json", &gadget("v1beta1", "one", json!({})));
    assert_eq!((created.status, created.warnings.as_slice()), (201, expected.as_slice()));
    for path in [BETA.to_owned(), format!("{BETA}/one"), format!("{BETA}/none"), format!("{BETA}?watch=true")] {
        assert_eq!(stage.ask("GET", &path, "", &Value::Null).warnings, expected, "{path}");
    }
    assert!(stage.ask("GET", V1, "", &Value::Null).warnings.is_empty());
}
