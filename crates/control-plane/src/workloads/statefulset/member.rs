//! One member of a StatefulSet: its name, its labels, and its storage.

use k8s_openapi::api::apps::v1::StatefulSetSpec;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::super::facts::{PodFacts, key_of};
use super::super::owner::Owner;
use super::super::revisions::REVISION_HASH;
use super::super::world::World;
use super::{COMPONENT, decide, start_of};

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

pub(crate) struct Member<'a> {
    pub(crate) owner: Owner<'a>,
    pub(crate) spec: &'a StatefulSetSpec,
    pub(crate) ordinal: i32,
}

/// What becomes of a member's claims.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Policy {
    pub(crate) deletes_when_scaled: bool,
    pub(crate) deletes_when_deleted: bool,
}

pub(crate) fn policy_of(spec: &StatefulSetSpec) -> Policy {
    let policy = spec.persistent_volume_claim_retention_policy.clone().unwrap_or_default();
    Policy {
        deletes_when_scaled: policy.when_scaled.as_deref() == Some("Delete"),
        deletes_when_deleted: policy.when_deleted.as_deref() == Some("Delete"),
    }
}

impl Member<'_> {
    pub(crate) fn pod_name(&self) -> String {
        format!("{}-{}", self.owner.name(), self.ordinal)
    }

    fn claim_name(&self, template: &PersistentVolumeClaim) -> String {
        format!("{}-{}", template.metadata.name.as_deref().unwrap_or_default(), self.pod_name())
    }

    pub(crate) fn pod(&self, template: &PodTemplateSpec, revision: &str) -> Pod {
        let mut pod = self.owner.pod(template);
        pod.metadata.generate_name = None;
        pod.metadata.name = Some(self.pod_name());
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.insert(REVISION_HASH.to_owned(), revision.to_owned());
        self.identify(&mut pod);
        let pod_spec = pod.spec.get_or_insert_default();
        pod_spec.hostname = Some(self.pod_name());
        pod_spec.subdomain = self.spec.service_name.clone().filter(|name| !name.is_empty());
        let claimed = self.volumes();
        let mut volumes = pod_spec.volumes.take().unwrap_or_default();
        volumes.retain(|volume| !claimed.iter().any(|ours| ours.name == volume.name));
        let all: Vec<Volume> = claimed.into_iter().chain(volumes).collect();
        pod_spec.volumes = (!all.is_empty()).then_some(all);
        pod
    }

    /// The labels by which a member is found.
    pub(crate) fn identify(&self, pod: &mut Pod) {
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.insert(POD_NAME.to_owned(), self.pod_name());
        labels.insert(POD_INDEX.to_owned(), self.ordinal.to_string());
    }

    pub(crate) fn is_identity_right(&self, pod: &PodFacts) -> bool {
        pod.labels.get(POD_NAME) == Some(&pod.key.name)
    }

    fn volumes(&self) -> Vec<Volume> {
        let templates = self.spec.volume_claim_templates.iter().flatten();
        templates
            .map(|template| Volume {
                name: template.metadata.name.clone().unwrap_or_default(),
                persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                    claim_name: self.claim_name(template),
                    read_only: None,
                }),
                ..Volume::default()
            })
            .collect()
    }

    /// The claims it should have.
    pub(crate) fn claims(&self) -> Vec<PersistentVolumeClaim> {
        let templates = self.spec.volume_claim_templates.iter().flatten();
        templates
            .map(|template| {
                let mut labels = template.metadata.labels.clone().unwrap_or_default();
                labels.extend(self.spec.selector.match_labels.clone().unwrap_or_default());
                PersistentVolumeClaim {
                    metadata: ObjectMeta {
                        name: Some(self.claim_name(template)),
                        namespace: self.owner.meta.namespace.clone(),
                        labels: (!labels.is_empty()).then_some(labels),
                        annotations: template.metadata.annotations.clone(),
                        ..ObjectMeta::default()
                    },
                    spec: template.spec.clone(),
                    status: None,
                }
            })
            .collect()
    }

    /// The owners that the retention policy gives a claim, where they differ from those it has. A claim that somebody else
    /// controls, or that belongs to an earlier object of the same name, is left alone.
    pub(crate) fn claim_owners(&self, claim: &PersistentVolumeClaim, pod: &PodFacts) -> Option<Vec<OwnerReference>> {
        let known = claim.metadata.owner_references.clone().unwrap_or_default();
        let ours = |owner: &OwnerReference| owner.uid == self.owner.uid() || owner.uid == pod.uid();
        let foreign = known.iter().any(|owner| {
            let is_namesake = (owner.kind == "StatefulSet" && owner.name == self.owner.name())
                || (owner.kind == "Pod" && owner.name == pod.key.name);
            !ours(owner) && (is_namesake || owner.controller == Some(true))
        });
        if foreign {
            return None;
        }
        let policy = policy_of(self.spec);
        let end = i64::from(start_of(self.spec)) + i64::from(self.spec.replicas.unwrap_or(1));
        let is_in_range = self.ordinal >= start_of(self.spec) && i64::from(self.ordinal) < end;
        let to_set = policy.deletes_when_deleted && (is_in_range || !policy.deletes_when_scaled);
        let to_pod = policy.deletes_when_scaled && !is_in_range;
        let mut wanted: Vec<OwnerReference> = known.iter().filter(|owner| !ours(owner)).cloned().collect();
        if to_set {
            wanted.push(self.owner.reference());
        }
        if to_pod {
            wanted.push(OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                name: pod.key.name.clone(),
                uid: pod.uid().to_owned(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            });
        }
        (wanted != known).then_some(wanted)
    }
}

/// Whether something about a member or its claims has to be put right.
pub(crate) fn needs_care(world: &World, spec: &StatefulSetSpec, set: &str, pod: &PodFacts) -> bool {
    let Some(ordinal) = decide::ordinal_of(set, &pod.key.name) else { return false };
    let Some(owner) = world.stateful_sets.get(&crate::store::Key::new(&pod.key.namespace, set)) else { return false };
    let member = Member { owner: Owner::of(owner.as_ref(), COMPONENT), spec, ordinal };
    let has_wrong_claims = member.claims().iter().any(|claim| {
        let known = world.claims.get(&key_of(&claim.metadata));
        known.is_some_and(|known| member.claim_owners(known, pod).is_some())
    });
    has_wrong_claims || !member.is_identity_right(pod)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::StatefulSet;
    use serde_json::json;

    use super::super::super::facts::testing::pod;
    use super::*;

    fn set(scaled: &str, deleted: &str) -> StatefulSet {
        serde_json::from_value(json!({
            "metadata": { "name": "db", "namespace": "default", "uid": "set" },
            "spec": {
                "replicas": 2, "serviceName": "dbs", "selector": { "matchLabels": { "app": "db" } },
                "template": { "metadata": { "labels": { "app": "db" } },
                              "spec": { "containers": [{ "name": "c" }], "volumes": [{ "name": "tmp", "emptyDir": {} }] } },
                "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"] } }],
                "persistentVolumeClaimRetentionPolicy": { "whenScaled": scaled, "whenDeleted": deleted },
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_member_has_its_name_labels_and_storage() {
        let set = set("Retain", "Retain");
        let spec = set.spec.as_ref().unwrap();
        let member = Member { owner: Owner::of(&set, COMPONENT), spec, ordinal: 1 };
        let pod = member.pod(&spec.template, "db-5f");
        assert_eq!(pod.metadata.name.as_deref(), Some("db-1"));
        let labels: Vec<_> =
            pod.metadata.labels.as_ref().unwrap().iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(
            labels,
            [
                "app=db",
                "apps.kubernetes.io/pod-index=1",
                "controller-revision-hash=db-5f",
                "statefulset.kubernetes.io/pod-name=db-1"
            ]
        );
        let spec = pod.spec.as_ref().unwrap();
        assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("db-1"), Some("dbs")));
        let volumes: Vec<_> = spec.volumes.as_ref().unwrap().iter().map(|volume| volume.name.as_str()).collect();
        assert_eq!(volumes, ["data", "tmp"]);
        let claims = member.claims();
        assert_eq!(claims[0].metadata.name.as_deref(), Some("data-db-1"));
        assert_eq!(claims[0].metadata.labels.as_ref().unwrap()["app"], "db");
    }

    #[test]
    fn claims_belong_to_whom_the_retention_policy_says() {
        for (scaled, deleted, ordinal, expected) in [
            ("Retain", "Retain", 0, ""),
            ("Retain", "Retain", 5, ""),
            ("Retain", "Delete", 0, "StatefulSet"),
            ("Retain", "Delete", 5, "StatefulSet"),
            ("Delete", "Retain", 0, ""),
            ("Delete", "Retain", 5, "Pod"),
            ("Delete", "Delete", 0, "StatefulSet"),
            ("Delete", "Delete", 5, "Pod"),
        ] {
            let set = set(scaled, deleted);
            let member = Member { owner: Owner::of(&set, COMPONENT), spec: set.spec.as_ref().unwrap(), ordinal };
            let pod = pod(&format!("db-{ordinal}"));
            let mut claim = member.claims().remove(0);
            let owners = member.claim_owners(&claim, &pod);
            let kinds = |owners: &Option<Vec<OwnerReference>>| {
                owners.iter().flatten().map(|owner| owner.kind.clone()).collect::<Vec<_>>().join(" ")
            };
            assert_eq!(kinds(&owners), expected, "{scaled} {deleted} {ordinal}");
            // Once they are right, there is nothing to do.
            claim.metadata.owner_references = owners;
            assert_eq!(member.claim_owners(&claim, &pod), None);
        }
    }

    #[test]
    fn a_claim_of_somebody_else_is_left_alone() {
        let set = set("Delete", "Delete");
        let member = Member { owner: Owner::of(&set, COMPONENT), spec: set.spec.as_ref().unwrap(), ordinal: 0 };
        for owner in [
            json!([{ "apiVersion": "x/v1", "kind": "Backup", "name": "b", "uid": "1", "controller": true }]),
            json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "earlier" }]),
        ] {
            let mut claim = member.claims().remove(0);
            claim.metadata.owner_references = serde_json::from_value(owner).unwrap();
            assert_eq!(member.claim_owners(&claim, &pod("db-0")), None);
        }
    }
}
