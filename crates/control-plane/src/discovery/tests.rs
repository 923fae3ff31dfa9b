use super::*;

const OLD: &str = "application/json";

fn tell(path: &str, accept: &str) -> (Value, &'static str) {
    answer(&Catalog::built_in(), path, accept).unwrap_or_else(|| panic!("{path} is served"))
}

#[test]
fn the_form_of_the_answer_is_the_first_of_the_list_that_there_is() {
    let v2 = AGGREGATED;
    let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
    let cases = [
        ("", false),
        ("*/*", false),
        (OLD, false),
        (v2, true),
        (beta, false),
        (&format!("{v2},{beta},{OLD}"), true),
        (&format!("{beta},{OLD}"), false),
        (&format!("{OLD},{v2}"), false),
        (&format!("application/vnd.kubernetes.protobuf,{v2}"), true),
        ("application/json; as=APIGroupDiscoveryList; v=v2; g=apidiscovery.k8s.io", true),
        (";;=,;=", false),
    ];
    for (accept, is_aggregated) in cases {
        assert_eq!(wants_aggregated(accept), is_aggregated, "{accept}");
    }
}

#[test]
fn groups_come_in_the_order_of_the_real_server() {
    let (list, content_type) = tell("/apis", OLD);
    assert_eq!(content_type, "application/json");
    let names: Vec<&str> =
        list["groups"].as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap()).collect();
    assert_eq!(
        names.join(" "),
        "apps events.k8s.io batch policy rbac.authorization.k8s.io storage.k8s.io admissionregistration.k8s.io \
         apiextensions.k8s.io scheduling.k8s.io coordination.k8s.io resource.k8s.io"
    );
    let (again, content_type) = tell("/apis", AGGREGATED);
    assert_eq!(content_type, AGGREGATED);
    let told: Vec<&str> =
        again["items"].as_array().unwrap().iter().map(|group| group["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(told, names);
}

#[test]
fn a_group_version_lists_its_resources_and_their_subresources() {
    let (apps, _) = tell("/apis/apps/v1", OLD);
    let names: Vec<&str> = apps["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(
        names.join(" "),
        "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status \
         replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status"
    );
    let all = json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]);
    assert_eq!(
        apps["resources"][3],
        json!({"name": "deployments", "singularName": "deployment", "namespaced": true, "kind": "Deployment",
            "verbs": all, "shortNames": ["deploy"], "categories": ["all"]})
    );
    assert_eq!(
        apps["resources"][4],
        json!({"name": "deployments/scale", "singularName": "", "namespaced": true, "group": "autoscaling",
            "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"]})
    );
    let (core, _) = tell("/api/v1", OLD);
    assert_eq!((&core["apiVersion"], &core["groupVersion"]), (&Value::Null, &json!("v1")));
    let find = |name: &str| core["resources"].as_array().unwrap().iter().find(|r| r["name"] == name).cloned().unwrap();
    assert_eq!(find("pods/eviction")["kind"], "Eviction");
    assert_eq!(find("pods/eviction")["group"], "policy");
    assert_eq!(find("namespaces")["verbs"], json!(["create", "delete", "get", "list", "patch", "update", "watch"]));
}

#[test]
fn what_is_not_served_has_no_document() {
    let catalog = Catalog::built_in();
    for path in
        ["/apis/nope", "/apis/apps/v9", "/api/v2", "/apis/apps/v1/deployments", "/", "", "/healthz", "/apis//v1"]
    {
        assert_eq!(answer(&catalog, path, ""), None, "{path}");
    }
    for path in ["/apis/", "/api/", "/apis/apps/", "/apis/apps/v1/", "/version"] {
        assert!(answer(&catalog, path, "").is_some(), "{path}");
    }
}

#[test]
fn stable_versions_go_before_betas_and_newer_before_older() {
    let mut versions =
        vec!["v1alpha1", "foo10", "v2", "v1beta2", "v10", "v1", "v11beta2", "foo1", "v0", "v1beta1", "v11alpha2"];
    versions.sort_by(|a, b| by_preference(a, b));
    assert_eq!(versions.join(" "), "v10 v2 v1 v11beta2 v1beta2 v1beta1 v11alpha2 v1alpha1 foo1 foo10 v0");
}

#[test]
fn the_version_is_the_release_we_stand_for() {
    let version = version();
    assert_eq!(
        (&version["major"], &version["minor"], &version["gitVersion"]),
        (&json!("1"), &json!("36"), &json!("v1.36.3"))
    );
}
