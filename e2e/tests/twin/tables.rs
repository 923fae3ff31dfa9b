//! What `kubectl get` shows: columns and cells of the server.

use kerf_e2e::client::Answer;
use serde_json::{Value, json};

use crate::expect::refused_with;
use crate::objects::{config_map, cron_job, deployment, gadget, gadgets, pod};
use crate::stage::Stage;

crate::tests!(
    a_table_of_pods,
    a_table_has_an_object_or_its_metadata_or_nothing,
    a_table_of_one_object,
    tables_have_the_columns_of_their_kinds,
    a_table_of_deployments_has_their_images,
    a_table_of_gadgets_has_the_columns_of_their_definition,
    a_table_of_an_empty_list_has_columns,
    a_table_is_paged,
    metadata_alone_can_be_asked_for,
    a_format_that_nobody_knows_is_not_acceptable,
    metadata_of_a_watch_is_partial,
);

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

fn table(stage: &Stage, path: &str) -> Value {
    let answer = stage.client.call("GET", path).header("Accept", TABLE).send().unwrap();
    assert_eq!(answer.status, 200, "{}", answer.message());
    assert_eq!((&answer.body["kind"], &answer.body["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    answer.body
}

fn columns(table: &Value) -> Vec<String> {
    let columns = table["columnDefinitions"].as_array().into_iter().flatten();
    // A column of a lower priority is one of the wide ones.
    columns
        .map(|column| {
            let name = column["name"].as_str().unwrap_or_default();
            if column["priority"] == 0 { name.to_owned() } else { format!("({name})") }
        })
        .collect()
}

fn a_table_of_pods(stage: &Stage) {
    stage.create(&stage.pods(), &pod("one"));
    let table = table(stage, &stage.pods());
    #[rustfmt::skip]
    assert_eq!(
        columns(&table),
        ["Name", "Ready", "Status", "Restarts", "Age", "(IP)", "(Node)", "(Nominated Node)", "(Readiness Gates)"]
    );
    let name = &table["columnDefinitions"][0];
    assert_eq!((&name["type"], &name["format"]), (&json!("string"), &json!("name")));
    assert!(name["description"].as_str().unwrap().starts_with("Name must be unique within a namespace."), "{name}");
    let cells = &table["rows"][0]["cells"];
    let age = cells[4].as_str().unwrap();
    assert!(age.ends_with('s'), "{age}");
    assert_eq!(cells, &json!(["one", "0/1", "Pending", "0", age, "<none>", "<none>", "<none>", "<none>"]));
    assert_eq!(table["rows"][0]["object"]["metadata"]["name"], "one");
}

fn a_table_has_an_object_or_its_metadata_or_nothing(stage: &Stage) {
    stage.create(&stage.at("v1", "secrets"), &json!({"metadata": {"name": "one"}, "stringData": {"a": "b"}}));
    let object = |include: &str| {
        table(stage, &format!("{}?includeObject={include}", stage.at("v1", "secrets")))["rows"][0]["object"].clone()
    };
    assert_eq!((&object("Object")["kind"], &object("Object")["data"]), (&json!("Secret"), &json!({"a": "Yg=="})));
    let metadata = object("Metadata");
    assert_eq!(
        (&metadata["kind"], &metadata["apiVersion"], &metadata["data"]),
        (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1"), &Value::Null)
    );
    assert_eq!(object("None"), Value::Null);
    let answer = stage
        .client
        .call("GET", &format!("{}?includeObject=Half", stage.pods()))
        .header("Accept", TABLE)
        .send()
        .unwrap();
    refused_with(&answer, 400, "BadRequest");
    assert_eq!(
        answer.message(),
        r#"Unable to convert to Table as requested: includeObject: Invalid value: "Half": must be 'Metadata', 'Object', 'None', or empty"#
    );
}

fn a_table_of_one_object(stage: &Stage) {
    stage.create(&stage.config_maps(), &config_map("one", json!({"a": "1", "b": "2"})));
    let table = table(stage, &stage.object("v1", "configmaps", "one"));
    assert_eq!(columns(&table), ["Name", "Data", "Age"]);
    assert_eq!(table["rows"].as_array().unwrap().len(), 1);
    assert_eq!((&table["rows"][0]["cells"][0], &table["rows"][0]["cells"][1]), (&json!("one"), &json!(2)));
}

fn tables_have_the_columns_of_their_kinds(stage: &Stage) {
    #[rustfmt::skip]
    let cases: [(&str, &[&str]); 27] = [
        ("/api/v1/nodes", &["Name", "Status", "Roles", "Age", "Version", "(Internal-IP)", "(External-IP)", "(OS-Image)", "(Kernel-Version)", "(Container-Runtime)"]),
        ("/api/v1/namespaces", &["Name", "Status", "Age"]),
        ("/api/v1/persistentvolumes", &["Name", "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass", "VolumeAttributesClass", "Reason", "Age", "(VolumeMode)"]),
        ("/api/v1/persistentvolumeclaims", &["Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "Age", "(VolumeMode)"]),
        ("/api/v1/services", &["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "(Selector)"]),
        ("/api/v1/serviceaccounts", &["Name", "Age"]),
        ("/api/v1/secrets", &["Name", "Type", "Data", "Age"]),
        ("/api/v1/events", &["Last Seen", "Type", "Reason", "Object", "(Subobject)", "(Source)", "Message", "(First Seen)", "(Count)", "(Name)"]),
        ("/api/v1/limitranges", &["Name", "Created At"]),
        ("/api/v1/resourcequotas", &["Name", "Request", "Limit", "Age"]),
        ("/api/v1/replicationcontrollers", &["Name", "Desired", "Current", "Ready", "Age", "(Containers)", "(Images)", "(Selector)"]),
        ("/apis/apps/v1/replicasets", &["Name", "Desired", "Current", "Ready", "Age", "(Containers)", "(Images)", "(Selector)"]),
        ("/apis/apps/v1/deployments", &["Name", "Ready", "Up-to-date", "Available", "Age", "(Containers)", "(Images)", "(Selector)"]),
        ("/apis/apps/v1/statefulsets", &["Name", "Ready", "Age", "(Containers)", "(Images)"]),
        ("/apis/apps/v1/daemonsets", &["Name", "Desired", "Current", "Ready", "Up-to-date", "Available", "Node Selector", "Age", "(Containers)", "(Images)", "(Selector)"]),
        ("/apis/apps/v1/controllerrevisions", &["Name", "Controller", "Revision", "Age"]),
        ("/apis/batch/v1/jobs", &["Name", "Status", "Completions", "Duration", "Age", "(Containers)", "(Images)", "(Selector)"]),
        ("/apis/batch/v1/cronjobs", &["Name", "Schedule", "Timezone", "Suspend", "Active", "Last Schedule", "Age", "(Containers)", "(Images)", "(Selector)"]),
        ("/apis/policy/v1/poddisruptionbudgets", &["Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"]),
        ("/apis/storage.k8s.io/v1/storageclasses", &["Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"]),
        ("/apis/storage.k8s.io/v1/volumeattachments", &["Name", "Attacher", "PV", "Node", "Attached", "Age"]),
        ("/apis/storage.k8s.io/v1/csinodes", &["Name", "Drivers", "Age"]),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", &["Name", "Value", "Global-Default", "Age", "PreemptionPolicy"]),
        ("/apis/coordination.k8s.io/v1/leases", &["Name", "Holder", "Age"]),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", &["Name", "Created At"]),
        ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &["Name", "Role", "Age", "(Users)", "(Groups)", "(ServiceAccounts)"]),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &["Name", "Created At"]),
    ];
    for (path, expected) in cases {
        assert_eq!(columns(&table(stage, path)), expected, "{path}");
    }
}

fn a_table_of_deployments_has_their_images(stage: &Stage) {
    stage.create(&stage.at("apps/v1", "deployments"), &deployment("one"));
    stage.create(&stage.at("batch/v1", "cronjobs"), &cron_job("one"));
    let row = table(stage, &stage.at("apps/v1", "deployments"))["rows"][0]["cells"].clone();
    assert_eq!((&row[0], &row[1], &row[2], &row[3]), (&json!("one"), &json!("0/0"), &json!(0), &json!(0)));
    assert_eq!((&row[5], &row[6], &row[7]), (&json!("web"), &json!("web:1"), &json!("app=one")));
    let row = table(stage, &stage.at("batch/v1", "cronjobs"))["rows"][0]["cells"].clone();
    assert_eq!(
        (&row[1], &row[2], &row[3], &row[4], &row[5]),
        (&json!("0 0 31 12 *"), &json!("<none>"), &json!("True"), &json!(0), &json!("<none>"))
    );
}

fn a_table_of_gadgets_has_the_columns_of_their_definition(stage: &Stage) {
    let collection = gadgets(
        stage,
        json!({"additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How large."},
            {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
            {"name": "Secret", "type": "string", "jsonPath": ".spec.secret", "priority": 1},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]}),
    );
    let content = json!({"spec": {"size": 3, "secret": "s"}, "status": {"conditions": [{"type": "Old", "status": "False"}, {"type": "Ready", "status": "True"}]}});
    stage.create(&collection, &gadget(stage, "full", content));
    stage.create(&collection, &gadget(stage, "empty", json!({})));
    let table = table(stage, &collection);
    assert_eq!(columns(&table), ["Name", "Size", "Ready", "(Secret)", "Age"]);
    assert_eq!(
        table["columnDefinitions"][1],
        json!({"name": "Size", "type": "integer", "format": "", "description": "How large.", "priority": 0})
    );
    let age = |row: usize| table["rows"][row]["cells"][4].clone();
    assert_eq!(table["rows"][0]["cells"], json!(["empty", null, null, null, age(0)]));
    assert_eq!(table["rows"][1]["cells"], json!(["full", 3, "True", "s", age(1)]));
}

fn a_table_of_an_empty_list_has_columns(stage: &Stage) {
    let table = table(stage, &stage.pods());
    assert_eq!((columns(&table).len(), &table["rows"]), (9, &json!([])));
    assert!(table["metadata"]["resourceVersion"].is_string());
}

fn a_table_is_paged(stage: &Stage) {
    for name in ["a", "b", "c"] {
        stage.create(&stage.at("v1", "secrets"), &json!({"metadata": {"name": name}}));
    }
    let table = table(stage, &format!("{}?limit=2", stage.at("v1", "secrets")));
    assert_eq!((table["rows"].as_array().unwrap().len(), &table["metadata"]["remainingItemCount"]), (2, &json!(1)));
    assert!(table["metadata"]["continue"].as_str().is_some_and(|token| !token.is_empty()));
}

fn partial(stage: &Stage, path: &str, kind: &str) -> Answer {
    let accept = format!("application/json;as={kind};v=v1;g=meta.k8s.io");
    stage.client.call("GET", path).header("Accept", accept).send().unwrap()
}

fn metadata_alone_can_be_asked_for(stage: &Stage) {
    let created =
        stage.create(&stage.at("v1", "secrets"), &json!({"metadata": {"name": "one"}, "stringData": {"a": "b"}}));
    let list = partial(stage, &stage.at("v1", "secrets"), "PartialObjectMetadataList").body;
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("PartialObjectMetadataList"), &json!("meta.k8s.io/v1")));
    assert_eq!((&list["items"][0]["metadata"], &list["items"][0]["data"]), (&created["metadata"], &Value::Null));
    let one = partial(stage, &stage.object("v1", "secrets", "one"), "PartialObjectMetadata").body;
    assert_eq!(
        (&one["kind"], &one["metadata"], &one["data"]),
        (&json!("PartialObjectMetadata"), &created["metadata"], &Value::Null)
    );
}

fn a_format_that_nobody_knows_is_not_acceptable(stage: &Stage) {
    let answer = stage.client.call("GET", &stage.pods()).header("Accept", "image/png").send().unwrap();
    refused_with(&answer, 406, "NotAcceptable");
    assert!(answer.message().starts_with("406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf"), "{}", answer.message());
    let answer = partial(stage, &stage.pods(), "Poem");
    refused_with(&answer, 406, "NotAcceptable");
}

fn metadata_of_a_watch_is_partial(stage: &Stage) {
    stage.create(&stage.at("v1", "secrets"), &json!({"metadata": {"name": "one"}, "stringData": {"a": "b"}}));
    let path = format!("{}?watch=true&timeoutSeconds=30", stage.at("v1", "secrets"));
    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let watch = stage.client.call("GET", &path).header("Accept", accept).watch().unwrap().unwrap();
    let event = crate::stage::next_event(&watch);
    assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("ADDED"), &json!("PartialObjectMetadata")));
    assert_eq!(event["object"]["data"], Value::Null);
}
