//! The machines of an embedded control plane, as the yard of a simulated cloud.

use crate::clerk::StageClock;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kerf_cloud::aws::UnknownRegion;
use kerf_cloud_sim::{NewMachine, SimCloud, SimOptions, Yard};
use kerf_control_plane::ControlPlane;
use kerf_control_plane::kubelet::{CsiDriver, Machine, Machines};
use kerf_model::{Resources, Text, labels};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A simulated cloud whose machines become nodes of the plane, on the plane's own virtual clock.
pub fn sim_cloud(plane: &ControlPlane, options: SimOptions) -> Result<SimCloud, UnknownRegion> {
    let clock = plane.server().lock().clock.clone();
    SimCloud::new(options, Arc::new(StageClock(clock)), Arc::new(PlaneYard(plane.machines().clone())))
}

/// Presses the power buttons of a control plane's machines.
pub struct PlaneYard(pub Machines);

impl Yard for PlaneYard {
    fn boot(&self, machine: NewMachine) {
        self.0.boot(plugged(machine));
    }

    fn reboot(&self, node: &str) {
        self.0.power_off(node);
        self.0.power_on(node);
    }

    fn terminate(&self, node: &str) {
        self.0.terminate(node);
    }
}

fn plugged(new: NewMachine) -> Machine {
    let zone = new.labels.contains_key(labels::ZONE).then(|| labels::ZONE.to_owned());
    let driver = |(name, limit): (&Text, &u32)| CsiDriver {
        name: name.to_string(),
        node_id: new.provider_id.rsplit('/').next().unwrap_or_default().to_owned(),
        topology_keys: zone.iter().cloned().collect(),
        allocatable: i32::try_from(*limit).ok(),
    };
    Machine {
        csi_drivers: new.attach_limits.iter().map(driver).collect(),
        name: new.name.to_string(),
        provider_id: new.provider_id.to_string(),
        labels: strings(&new.labels),
        annotations: strings(&new.annotations),
        capacity: quantities(&new.capacity).into(),
        allocatable: quantities(&new.allocatable).into(),
        taints: new
            .taints
            .iter()
            .map(|taint| Taint {
                key: taint.key.to_string(),
                value: Some(taint.value.to_string()).filter(|value| !value.is_empty()),
                effect: taint.effect.as_str().to_owned(),
                time_added: None,
            })
            .collect(),
        boot_delay: SignedDuration::try_from(new.boot_delay).unwrap_or(SignedDuration::MAX),
        ready_delay: SignedDuration::try_from(new.ready_delay).unwrap_or(SignedDuration::MAX),
        internal_ip: new.internal_ip.map(|address| address.to_string()),
        ..Machine::default()
    }
}

fn strings(map: &BTreeMap<Text, Text>) -> BTreeMap<String, String> {
    map.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

fn quantities(resources: &Resources) -> BTreeMap<String, Quantity> {
    resources.iter().map(|(name, amount)| (name.to_string(), Quantity(amount.to_string()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::request;
    use kerf_cloud::{Answer, CloudProvider, InstanceRef, LaunchOrder};
    use kerf_model::{Labels, NodeClassRef, Requirement, Requirements};
    use serde_json::{Value, json};
    use std::task::{Context, Poll, Waker};

    fn now<T>(mut answer: Answer<T>) -> T {
        match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => answer.unwrap(),
            Poll::Pending => panic!("a calm cloud answers at once"),
        }
    }

    fn order(class: Value) -> LaunchOrder {
        LaunchOrder {
            claim: "default-abc".into(),
            uid: "uid".into(),
            pool: None,
            node_class: NodeClassRef {
                group: "karpenter.k8s.aws".into(),
                kind: "EC2NodeClass".into(),
                name: "default".into(),
            },
            class_object: Some(Arc::new(class)),
            requirements: Requirements::new().with(labels::INSTANCE_TYPE, Requirement::is_in(["m7i.large"])),
            requests: Resources::new(),
            labels: Labels::from([(labels::NODEPOOL.into(), "default".into())]),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            avoid: Vec::new(),
        }
    }

    #[test]
    fn a_machine_that_was_bought_becomes_a_node_of_the_plane() {
        let options = kerf_control_plane::Options {
            clock: kerf_control_plane::clock::Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()),
            ..kerf_control_plane::Options::default()
        };
        let plane = ControlPlane::in_process(&options);
        let cloud = sim_cloud(&plane, SimOptions::default()).unwrap();
        let mut class = json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
            "spec": {
                "role": "home",
                "amiSelectorTerms": [{"alias": "bottlerocket@latest"}],
                "subnetSelectorTerms": [{"tags": {"a": "b"}}],
                "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
            },
        });
        class["status"] = now(cloud.resolve_class(Arc::new(class.clone()))).status;
        let instance = now(cloud.launch(Arc::new(order(class))));
        let nodes = || request(plane.server(), "GET", "/api/v1/nodes", "", &Value::Null).unwrap()["items"].clone();
        plane.settle();
        assert_eq!(nodes(), json!([]));
        plane.advance(SignedDuration::from_secs(60));
        let node = nodes()[0].clone();
        assert_eq!(node["spec"]["providerID"], *instance.provider_id);
        assert_eq!(node["spec"]["taints"], json!([{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]));
        assert_eq!(node["status"]["allocatable"]["cpu"], *instance.allocatable.get("cpu").to_string());
        assert_eq!(node["metadata"]["labels"]["karpenter.sh/nodepool"], "default");
        let name = node["metadata"]["name"].as_str().unwrap();
        assert!(name.starts_with("ip-10-") && name.ends_with(".ec2.internal"), "{name}");
        let drivers =
            request(plane.server(), "GET", &format!("/apis/storage.k8s.io/v1/csinodes/{name}"), "", &Value::Null);
        assert_eq!(drivers.unwrap()["spec"]["drivers"][0]["name"], "ebs.csi.aws.com");

        let reference = InstanceRef {
            provider_id: instance.provider_id,
            claim: "default-abc".into(),
            node_name: Some(name.into()),
        };
        let is_ready = || {
            let conditions = nodes()[0]["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().find(|one| one["type"] == "Ready").map(|one| one["status"].as_str().unwrap().to_owned())
        };
        now(cloud.reboot(reference.clone(), "operation".into()));
        plane.advance(SignedDuration::from_secs(120));
        assert_eq!(is_ready().as_deref(), Some("True"));
        now(cloud.terminate(reference));
        plane.advance(SignedDuration::from_secs(120));
        assert_eq!(is_ready().as_deref(), Some("Unknown"));
    }
}
