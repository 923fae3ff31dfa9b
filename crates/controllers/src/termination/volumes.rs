//! Which volumes hold a node back: those still attached to it, unless a pod that stays there uses them.

use super::drain::is_drainable;
use crate::world::World;
use kerf_model::{Text, UnixMillis};
use std::collections::{BTreeMap, BTreeSet};

/// Attachments by node. Attachments do not move, but they go.
#[derive(Debug, Default)]
pub(super) struct Attachments {
    by_node: BTreeMap<Text, BTreeSet<Text>>,
    node_of: BTreeMap<Text, Text>,
}

impl Attachments {
    /// An attachment came, changed or went. Answers the node that it is about.
    pub(super) fn observe(&mut self, name: &Text, world: &World) -> Option<Text> {
        let node: Option<Text> =
            world.attachments.get(name).map(|attachment| attachment.spec.node_name.as_str().into());
        let before = match &node {
            Some(node) => self.node_of.insert(name.clone(), node.clone()),
            None => self.node_of.remove(name),
        };
        if let Some(before) = &before
            && let Some(names) = self.by_node.get_mut(before)
        {
            names.remove(name);
            if names.is_empty() {
                self.by_node.remove(before);
            }
        }
        if let Some(node) = &node {
            self.by_node.entry(node.clone()).or_default().insert(name.clone());
        }
        node.or(before)
    }

    /// The attachments that a node waits for, by name.
    pub(super) fn blocking<'a>(&'a self, node: &str, world: &'a World, now: UnixMillis) -> Vec<&'a Text> {
        let Some(names) = self.by_node.get(node) else {
            return Vec::new();
        };
        let staying = world.pods_on(node).filter(|pod| !is_drainable(pod, now));
        let kept: BTreeSet<&str> = staying
            .flat_map(|pod| pod.volume_claims.iter().map(move |claim| (pod.id.namespace.clone(), claim.clone())))
            .filter_map(|named| world.volume_claims.get(&named)?.spec.as_ref()?.volume_name.as_deref())
            .collect();
        let is_blocking = |name: &&Text| {
            let attachment = world.attachments.get(*name);
            let volume = attachment.and_then(|attachment| attachment.spec.source.persistent_volume_name.as_deref());
            volume.is_some_and(|volume| !kept.contains(volume))
        };
        names.iter().filter(is_blocking).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_mirror::{Mirror, MirrorSettings, Object, View};
    use serde_json::{Value, json};

    fn world(objects: &[Value]) -> (World, Attachments) {
        let mut world = World::new(Mirror::new(MirrorSettings::new(View::Live)), []);
        let mut attachments = Attachments::default();
        for (version, object) in objects.iter().enumerate() {
            let mut object = object.clone();
            object["metadata"]["resourceVersion"] = json!((version + 1).to_string());
            let object = Object::read(object).unwrap();
            let name = object.key().name;
            let is_attachment = matches!(object, Object::VolumeAttachment(_));
            world.observe(object);
            if is_attachment {
                attachments.observe(&name, &world);
            }
        }
        (world, attachments)
    }

    fn attachment(name: &str, volume: Option<&str>) -> Value {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name},
            "spec": {"attacher": "ebs", "nodeName": "node", "source": {"persistentVolumeName": volume}},
        })
    }

    fn volume(name: &str, claim: &str) -> [Value; 2] {
        let bound = json!({"namespace": "default", "name": claim});
        [
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {"claimRef": bound}}),
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": bound, "spec": {"volumeName": name}}),
        ]
    }

    fn pod(name: &str, claim: &str, tolerations: Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {
                "nodeName": "node", "containers": [], "tolerations": tolerations,
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
            },
        })
    }

    #[test]
    fn volumes_of_pods_that_stay_and_attachments_without_a_volume_hold_nobody_back() {
        let mut objects = vec![attachment("a", Some("pv-a")), attachment("b", Some("pv-b")), attachment("c", None)];
        objects.extend(volume("pv-a", "stays"));
        objects.extend(volume("pv-b", "goes"));
        objects.push(pod("daemon", "stays", json!([{"operator": "Exists"}])));
        objects.push(pod("app", "goes", json!([])));
        let (mut world, mut attachments) = world(&objects);
        assert_eq!(attachments.blocking("node", &world, UnixMillis(0)), [&Text::from("b")]);
        assert_eq!(attachments.blocking("other", &world, UnixMillis(0)), Vec::<&Text>::new());
        let key = Object::read(attachment("b", None)).unwrap().key();
        world.forget(&key, None);
        assert_eq!(attachments.observe(&"b".into(), &world), Some("node".into()));
        assert_eq!(attachments.blocking("node", &world, UnixMillis(0)), Vec::<&Text>::new());
    }
}
