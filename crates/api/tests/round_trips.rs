//! One object of each kind with every field set: the types lose nothing, and the types and the schema know the same
//! fields.

#![expect(clippy::unwrap_used, reason = "helpers of tests may, like tests")]

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kerf_api::{
    CapacityBuffer, CustomObject, Ec2NodeClass, Kind, KwokNodeClass, NodeClaim, NodeOverlay, NodePool, crd,
};
use serde_json::{Value, json};

fn condition() -> Value {
    json!({"type": "Ready", "status": "True", "reason": "Ready", "message": "all is well", "observedGeneration": 3,
           "lastTransitionTime": "2024-01-01T01:01:01Z"})
}

fn taints() -> Value {
    json!([{"key": "example.com/a", "value": "b", "effect": "NoExecute", "timeAdded": "2024-01-01T01:01:01Z"}])
}

fn whole(kind: Kind) -> Value {
    let requirements = json!([{"key": "example.com/a", "operator": "In", "values": ["b", "c"], "minValues": 2}]);
    let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let resources = json!({"cpu": "4", "memory": "16Gi"});
    let (spec, status) = match kind {
        Kind::NodePool => (
            json!({
                "template": {
                    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
                    "spec": {"taints": taints(), "startupTaints": taints(), "requirements": requirements, "nodeClassRef": class,
                             "terminationGracePeriod": "0h30m", "expireAfter": "720h"},
                },
                "disruption": {
                    "consolidateAfter": "90s",
                    "consolidationPolicy": "WhenEmpty",
                    "budgets": [{"nodes": "20%", "reasons": ["Drifted", "Unhealthy"], "schedule": "@daily", "duration": "1h30m0s"}],
                },
                "limits": {"nodes": "7"}, "weight": 10, "replicas": 5,
            }),
            json!({"resources": resources, "nodes": 3, "nodeClassObservedGeneration": 2, "conditions": [condition()]}),
        ),
        Kind::NodeClaim => (
            json!({"taints": taints(), "startupTaints": taints(), "requirements": requirements, "resources": {"requests": resources},
                   "nodeClassRef": class, "terminationGracePeriod": "60s", "expireAfter": "Never"}),
            json!({"nodeName": "n", "providerID": "aws:///a/i-1", "imageID": "ami-1", "capacity": resources, "allocatable": resources,
                   "lastPodEventTime": "2024-01-01T01:01:01Z", "conditions": [condition()]}),
        ),
        Kind::NodeOverlay => (
            json!({"requirements": [{"key": "a", "operator": "Gte", "values": ["1"]}], "price": "1.5", "priceAdjustment": "+10%",
                   "capacity": {"example.com/gpu": "2"}, "weight": 7}),
            json!({"conditions": [condition()]}),
        ),
        Kind::CapacityBuffer => (
            json!({"provisioningStrategy": "buffer.x-k8s.io/active-capacity", "podTemplateRef": {"name": "t"},
                   "scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}, "replicas": 2, "percentage": 10, "limits": resources}),
            json!({"podTemplateRef": {"name": "t"}, "podTemplateGeneration": 4, "replicas": 2,
                   "provisioningStrategy": "buffer.x-k8s.io/active-capacity", "conditions": [condition()]}),
        ),
        Kind::Ec2NodeClass => (whole_ec2_spec(), whole_ec2_status()),
        Kind::KwokNodeClass => (json!({"nodeRegistrationDelay": "10s"}), json!({"conditions": [condition()]})),
    };
    json!({
        "apiVersion": kind.api_version(), "kind": kind.name(), "spec": spec, "status": status,
        "metadata": {"name": "whole", "labels": {"a": "b"}, "annotations": {"karpenter.sh/nodepool-hash": "1"}, "generation": 3,
                     "creationTimestamp": "2024-01-01T01:01:01Z", "finalizers": ["karpenter.sh/termination"]},
    })
}

fn whole_ec2_spec() -> Value {
    json!({
        "subnetSelectorTerms": [{"tags": {"a": "b"}, "id": "subnet-1"}],
        "securityGroupSelectorTerms": [{"tags": {"a": "b"}, "id": "sg-1", "name": "n"}],
        "capacityReservationSelectorTerms": [{"tags": {"a": "b"}, "id": "cr-1", "ownerID": "012345678901", "instanceMatchCriteria": "open"}],
        "placementGroupSelector": {"name": "n", "id": "pg-1"},
        "associatePublicIPAddress": false,
        "ipPrefixCount": 3,
        "amiSelectorTerms": [{"alias": "al2023@latest", "tags": {"a": "b"}, "id": "ami-1", "name": "n", "owner": "self", "ssmParameter": "/p"}],
        "amiFamily": "AL2023",
        "userData": "#!/bin/sh",
        "role": "role",
        "instanceProfile": "profile",
        "tags": {"team": "a"},
        "kubelet": {"maxPods": "vcpus * 8", "somethingNew": {"deep": [1, {"deeper": null}]}},
        "blockDeviceMappings": [{
            "deviceName": "/dev/xvda",
            "rootVolume": true,
            "ebs": {"deleteOnTermination": true, "encrypted": false, "iops": 3000, "kmsKeyID": "k", "snapshotID": "snap-1", "throughput": 125,
                    "volumeInitializationRate": 100, "volumeSize": "1024Gi", "volumeType": "gp3"},
        }],
        "instanceStorePolicy": "RAID0",
        "networkInterfaces": [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}],
        "detailedMonitoring": true,
        "metadataOptions": {"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 2, "httpTokens": "optional"},
        "connectionTracking": {"tcpEstablishedTimeout": 60, "udpStreamTimeout": 60, "udpTimeout": 30},
        "context": "c",
        "cpuOptions": {"nestedVirtualization": "enabled"},
    })
}

fn whole_ec2_status() -> Value {
    json!({
        "subnets": [{"id": "subnet-1", "zone": "a", "zoneID": "az1"}],
        "securityGroups": [{"id": "sg-1", "name": "n"}],
        "amis": [{"id": "ami-1", "name": "n", "deprecated": true, "requirements": [{"key": "a", "operator": "In", "values": ["b"]}]}],
        "capacityReservations": [{
            "availabilityZone": "a", "endTime": "2024-01-01T01:01:01Z", "id": "cr-1", "instanceMatchCriteria": "open",
            "instanceType": "m5.large", "ownerID": "012345678901", "reservationType": "default", "interruptible": true, "state": "active",
        }],
        "instanceProfile": "profile",
        "conditions": [condition()],
    })
}

fn through_type(kind: Kind, object: &Value) -> Value {
    fn through<K: CustomObject>(object: &Value) -> Value {
        serde_json::to_value(serde_json::from_value::<K>(object.clone()).unwrap()).unwrap()
    }
    match kind {
        Kind::NodePool => through::<NodePool>(object),
        Kind::NodeClaim => through::<NodeClaim>(object),
        Kind::NodeOverlay => through::<NodeOverlay>(object),
        Kind::CapacityBuffer => through::<CapacityBuffer>(object),
        Kind::Ec2NodeClass => through::<Ec2NodeClass>(object),
        Kind::KwokNodeClass => through::<KwokNodeClass>(object),
    }
}

#[test]
fn every_field_of_every_kind_survives_reading_and_writing() {
    for kind in Kind::ALL {
        let object = whole(*kind);
        assert_eq!(through_type(*kind, &object), object, "{}", kind.name());
    }
}

/// The whole object has every field of the schema and no other; with the test above, so do the types.
#[test]
fn types_and_schema_know_the_same_fields() {
    for kind in Kind::ALL {
        let crd = crd(*kind);
        let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
        let mut described = BTreeSet::new();
        fields(schema, "", &mut described);
        let mut present = BTreeSet::new();
        for part in ["spec", "status"] {
            present.insert(format!(".{part}"));
            paths(&whole(*kind)[part], &format!(".{part}"), &mut present);
        }
        let missing: Vec<_> = described.iter().filter(|path| !present.contains(*path)).collect();
        assert_eq!(missing, [""; 0], "{}: described, but not in the whole object", kind.name());
        assert_eq!(
            kind.unknown_fields(&whole(*kind)),
            [""; 0],
            "{}: in the whole object, but not described",
            kind.name()
        );
    }
}

/// Paths of all named properties below `spec` and `status`.
fn fields(schema: &JSONSchemaProps, path: &str, found: &mut BTreeSet<String>) {
    for (name, property) in schema.properties.iter().flatten() {
        if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            continue;
        }
        found.insert(format!("{path}.{name}"));
        fields(property, &format!("{path}.{name}"), found);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        fields(items, &format!("{path}[]"), found);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        fields(values, &format!("{path}{{}}"), found);
    }
}

fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                found.insert(format!("{path}.{name}"));
                paths(field, &format!("{path}.{name}"), found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| paths(item, &format!("{path}[]"), found)),
        _ => {}
    }
}

#[test]
fn an_object_of_another_kind_or_version_is_refused() {
    assert!(serde_json::from_value::<NodeClaim>(whole(Kind::NodePool)).is_err());
    let mut old = whole(Kind::NodePool);
    old["apiVersion"] = json!("karpenter.sh/v1beta1");
    let error = serde_json::from_value::<NodePool>(old).unwrap_err().to_string();
    assert_eq!(error, "expected karpenter.sh/v1 NodePool, found karpenter.sh/v1beta1 NodePool");
    let mut bare = whole(Kind::NodePool);
    bare.as_object_mut().unwrap().retain(|name, _| name != "apiVersion" && name != "kind");
    assert!(serde_json::from_value::<NodePool>(bare).is_ok());
}

#[test]
fn an_unknown_word_is_kept_and_named_later() {
    let mut object = whole(Kind::NodePool);
    object["spec"]["disruption"]["consolidationPolicy"] = json!("WhenTheMoonIsFull");
    assert_eq!(through_type(Kind::NodePool, &object), object);
    let problems = Kind::NodePool.check(&object, None);
    assert!(problems.iter().any(|problem| problem.path == "spec.disruption.consolidationPolicy"), "{problems:?}");
}

#[test]
fn whole_numbers_are_read_as_quantities() {
    let mut object = whole(Kind::NodePool);
    object["spec"]["limits"] = json!({"nodes": 7});
    let pool: NodePool = serde_json::from_value(object).unwrap();
    assert_eq!(pool.spec.limits.unwrap()["nodes"].0, "7");
}

#[test]
fn defaults_are_those_of_the_schema() {
    let mut pool: NodePool = serde_json::from_value(json!({"spec": {"template": {"spec": {
        "requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}}}}))
    .unwrap();
    pool.apply_defaults();
    assert_eq!(
        serde_json::to_value(&pool.spec).unwrap(),
        json!({
            "template": {"spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "expireAfter": "720h"}},
            "disruption": {"consolidateAfter": "0s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{"nodes": "10%"}]},
        })
    );

    let mut pool = pool.clone();
    pool.spec.disruption = Some(
        serde_json::from_value(json!({"consolidationPolicy": "WhenEmpty", "budgets": [{"reasons": ["Empty"]}]}))
            .unwrap(),
    );
    pool.apply_defaults();
    assert_eq!(
        serde_json::to_value(&pool.spec.disruption).unwrap(),
        json!({"consolidateAfter": "0s", "consolidationPolicy": "WhenEmpty", "budgets": [{"nodes": "10%", "reasons": ["Empty"]}]})
    );

    let mut class: Ec2NodeClass =
        serde_json::from_value(json!({"spec": {"metadataOptions": {"httpTokens": "optional"}}})).unwrap();
    class.apply_defaults();
    assert_eq!(
        serde_json::to_value(&class.spec.metadata_options).unwrap(),
        json!({"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1, "httpTokens": "optional"})
    );

    let mut kwok = KwokNodeClass::default();
    kwok.apply_defaults();
    let conditions = kwok.status.unwrap().conditions;
    assert_eq!((conditions[0].type_.as_str(), conditions[0].status.as_str()), ("Ready", "True"));

    let mut buffer: CapacityBuffer = serde_json::from_value(json!({"spec": {}})).unwrap();
    buffer.apply_defaults();
    assert_eq!(buffer.spec.provisioning_strategy.as_deref(), Some("buffer.x-k8s.io/active-capacity"));
}
