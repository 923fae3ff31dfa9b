//! `deploy/crds` is what the code generates. Run with `UPDATE_CRDS=1`, or `cargo xtask crds`, to write it anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use kerf_api::older::{TranslatedKind, older_crds, older_crds_yaml};
use kerf_api::{
    ConversionService, Kind, crd, crd_files, crds, crds_converted_by, crds_yaml, crds_yaml_converted_by, write_crds,
};

fn dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")
}

#[test]
fn the_committed_crds_are_the_generated_ones() {
    if std::env::var_os("UPDATE_CRDS").is_some() {
        write_crds(&dir()).unwrap();
    }
    for (name, generated) in crd_files() {
        let path = dir().join(name);
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == generated, "{} is stale; run `cargo xtask crds`", path.display());
    }
    let expected: BTreeSet<String> = crd_files().into_iter().map(|(name, _)| name).collect();
    assert_eq!(expected.len(), Kind::ALL.len());
    let present: BTreeSet<String> = fs::read_dir(dir())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains('_') && name.ends_with(".yaml"))
        .collect();
    assert_eq!(present, expected);
}

#[test]
fn the_stream_of_all_crds_reads_back_as_the_crds() {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use serde::Deserialize as _;
    for (yaml, expected) in [(crds_yaml(None), crds()), (older_crds_yaml(None), older_crds())] {
        let read: Vec<CustomResourceDefinition> = serde_norway::Deserializer::from_str(&yaml)
            .map(|document| CustomResourceDefinition::deserialize(document).unwrap())
            .collect();
        assert_eq!(read, expected);
    }
}

/// PyYAML and other readers of YAML 1.1 make a date of a bare instant.
#[test]
fn an_instant_is_written_as_a_string_in_every_dialect_of_yaml() {
    let yaml = crds_yaml(Some(Kind::KwokNodeClass));
    assert!(yaml.contains("lastTransitionTime: '2024-01-01T01:01:01Z'"), "{yaml}");
}

#[test]
fn a_reservation_whose_state_is_not_said_is_active() {
    let mut class = serde_json::json!({"status": {"capacityReservations": [{"id": "cr-1"}]}});
    Kind::Ec2NodeClass.apply_defaults(&mut class);
    let reservation = &class["status"]["capacityReservations"][0];
    assert_eq!((&reservation["state"], &reservation["reservationType"]), (&"active".into(), &"default".into()));
}

#[test]
fn labels_of_a_template_have_one_writer_and_annotations_one_per_key() {
    let pool = serde_json::to_value(&crds()[0].spec.versions[0].schema).unwrap();
    let metadata = pool.pointer("/openAPIV3Schema/properties/spec/properties/template/properties/metadata").unwrap();
    for (field, expected) in [("labels", "atomic"), ("annotations", "granular")] {
        assert_eq!(metadata["properties"][field]["x-kubernetes-map-type"], expected, "{field}");
    }
}

#[test]
fn kinds_are_found_by_any_of_their_names() {
    for (word, kind) in [
        ("NodePool", Some(Kind::NodePool)),
        ("nodeclaims", Some(Kind::NodeClaim)),
        ("overlays", Some(Kind::NodeOverlay)),
        ("cb", Some(Kind::CapacityBuffer)),
        ("ec2nc", Some(Kind::Ec2NodeClass)),
        ("kwoknodeclasses.karpenter.kwok.sh", Some(Kind::KwokNodeClass)),
        ("pods", None),
    ] {
        assert_eq!(Kind::from_word(word), kind, "{word}");
    }
}

/// kubectl takes the group that comes first in the alphabet, and `compute.k8s.aws` would come first.
#[test]
fn no_word_for_an_older_kind_means_a_current_one() {
    for crd in older_crds() {
        let names = crd.spec.names;
        let words = [names.plural, names.singular.unwrap()].into_iter().chain(names.short_names.into_iter().flatten());
        for word in words {
            assert_eq!(Kind::from_word(&word), None, "{word}");
            assert_eq!(
                TranslatedKind::from_word(&word).map(TranslatedKind::group),
                Some(crd.spec.group.as_str()),
                "{word}"
            );
        }
    }
    assert_eq!(TranslatedKind::from_word("ec2nodeclasses"), None);
    assert_eq!(TranslatedKind::from_word("EC2NodeClass"), None);
}

#[test]
fn every_crd_is_stored_in_its_first_version_with_the_subresources_of_its_kind() {
    for crd in crds() {
        let version = &crd.spec.versions[0];
        assert!(version.served && version.storage);
        let subresources = version.subresources.as_ref().unwrap();
        assert!(subresources.status.is_some());
        assert_eq!(subresources.scale.is_some(), crd.spec.names.kind == "NodePool");
        assert_eq!(crd.spec.scope == "Namespaced", crd.spec.names.kind == "CapacityBuffer");
    }
}

/// There are manifests and stored objects of v1beta1 for three kinds, and for no other.
#[test]
fn d4_2_the_three_kinds_that_had_a_v1beta1_still_serve_it_and_store_v1() {
    for (crd, kind) in crds().iter().zip(Kind::ALL) {
        let versions: Vec<_> =
            crd.spec.versions.iter().map(|version| (version.name.as_str(), version.served, version.storage)).collect();
        match kind {
            Kind::NodePool | Kind::NodeClaim | Kind::Ec2NodeClass => {
                assert_eq!(versions, [("v1", true, true), ("v1beta1", true, false)]);
                let status = crd.spec.versions[1].subresources.as_ref().unwrap();
                assert!(status.status.is_some() && status.scale.is_none());
            }
            _ => assert_eq!(versions.len(), 1, "{}", kind.name()),
        }
        assert_eq!(versions.iter().map(|(name, ..)| *name).collect::<Vec<_>>(), kind.versions());
    }
}

/// An API server that converts by itself would rewrite the version and drop every field that has moved.
#[test]
fn a_crd_of_two_versions_is_converted_by_a_webhook_and_never_by_the_api_server() {
    for crd in crds() {
        let Some(conversion) = &crd.spec.conversion else {
            assert_eq!(crd.spec.versions.len(), 1);
            continue;
        };
        assert_eq!(
            serde_json::to_value(conversion).unwrap(),
            serde_json::json!({"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"service": {"name": "karpenter", "namespace": "kube-system", "path": "/convert", "port": 8443}},
            }})
        );
    }
}

#[test]
fn the_conversion_service_is_named_by_whoever_installs() {
    let service = ConversionService { name: "kerf".into(), namespace: "nodes".into(), path: "/c".into(), port: 443 };
    let crds = crds_converted_by(&service);
    let yaml = crds_yaml_converted_by(Some(Kind::NodePool), &service);
    assert!(yaml.contains("namespace: nodes"), "{yaml}");
    let stanza = serde_json::to_value(&crds[0].spec.conversion).unwrap();
    let expected = serde_json::json!({"name": "kerf", "namespace": "nodes", "path": "/c", "port": 443});
    assert_eq!(stanza["webhook"]["clientConfig"], serde_json::json!({"service": expected}));
}

#[test]
fn kubectl_get_prints_for_v1beta1_what_it_printed_then() {
    let names = |kind| -> Vec<String> {
        let columns = crd(kind).spec.versions[1].additional_printer_columns.clone().unwrap_or_default();
        columns.into_iter().map(|column| column.name).collect()
    };
    assert_eq!(names(Kind::NodePool), ["NodeClass", "Weight"]);
    assert_eq!(names(Kind::NodeClaim), ["Type", "Zone", "Node", "Ready", "Age", "Capacity", "NodePool", "NodeClass"]);
    assert_eq!(names(Kind::Ec2NodeClass), [""; 0]);
}

/// A description is for the reader of `kubectl explain`: every field that is not self-evident to an API server has one.
#[test]
fn every_field_is_described() {
    fn visit(schema: &serde_json::Value, path: &str, bare: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if property.get("description").is_none() && path != ".metadata" {
                bare.push(path.clone());
            }
            visit(property, &path, bare);
        }
        visit_if(&schema["items"], &format!("{path}[]"), bare);
        visit_if(&schema["additionalProperties"], &format!("{path}{{}}"), bare);
    }
    fn visit_if(schema: &serde_json::Value, path: &str, bare: &mut Vec<String>) {
        if schema.is_object() {
            visit(schema, path, bare);
        }
    }
    for crd in crds().into_iter().chain(older_crds()) {
        for version in &crd.spec.versions {
            let mut bare = Vec::new();
            visit(&serde_json::to_value(&version.schema).unwrap()["openAPIV3Schema"], "", &mut bare);
            assert_eq!(bare, [""; 0], "{} {}", crd.spec.names.kind, version.name);
        }
    }
}
