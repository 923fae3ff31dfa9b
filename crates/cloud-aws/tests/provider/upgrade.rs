//! The cluster gets another version of Kubernetes while we run.

use crate::stage::{Stage, settings, stage};
use kerf_cloud::{CloudProvider, InstanceRef};
use kerf_cloud_aws::classes::ApiServer;
use kerf_cloud_aws::cloud::AwsCloud;
use kerf_cloud_aws::wire::{Image, Tags};
use kerf_model::ClaimName;
use serde_json::json;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Says what the test says.
#[derive(Clone, Default)]
struct Version(Arc<Mutex<Option<&'static str>>>);

impl ApiServer for Version {
    fn version(&self) -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>> {
        let said = self.0.lock().unwrap().map(str::to_owned).ok_or_else(|| "no answer".to_owned());
        Box::pin(std::future::ready(said))
    }
}

impl Stage {
    /// AWS publishes an image for a version.
    fn publish(&self, version: &str, id: &str) {
        let path =
            format!("/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/x86_64/standard/recommended/image_id");
        let image = Image {
            id: id.to_owned(),
            name: format!("image of {version}"),
            architecture: "x86_64".to_owned(),
            created: "2026-01-01T00:00:00.000Z".to_owned(),
            owner: "amazon".to_owned(),
            ..Image::default()
        };
        let mut account = self.aws.account();
        account.parameters.insert(path, id.to_owned());
        account.images.push((image, Tags::new()));
    }

    fn images(&self) -> Vec<&str> {
        self.class["status"]["amis"].as_array().unwrap().iter().filter_map(|ami| ami["id"].as_str()).collect()
    }
}

#[test]
fn after_an_upgrade_aliases_mean_its_images_and_older_nodes_have_drifted() {
    let mut stage = stage();
    let version = Version::default();
    let wire = Arc::new(stage.aws.clone());
    stage.cloud = AwsCloud::beside(Some(Arc::new(version.clone())), wire, settings(), Arc::new(stage.clock.clone()));
    stage.wait(stage.cloud.start()).unwrap();
    stage.publish("1.35", "ami-35");
    stage.publish("1.36", "ami-36");
    stage.class["spec"]["amiSelectorTerms"] = json!([{"alias": "al2023@latest"}]);
    stage.class["metadata"]["generation"] = 2.into();
    stage.resolve();
    assert_eq!(stage.images(), ["ami-35"]);
    let bought = stage.launch(stage.order("claim", &["on-demand"])).unwrap();
    let instance =
        || InstanceRef { provider_id: bought.provider_id.clone(), claim: ClaimName("claim".into()), node_name: None };
    let drift = |stage: &Stage| {
        let found = stage.wait(stage.cloud.drift(instance(), Arc::new(stage.class.clone()))).unwrap();
        found.map(|word| word.to_string())
    };
    let look = |stage: &mut Stage| {
        let told = stage.wait(stage.cloud.run_chore("providers.version", Arc::default()));
        stage.clock.advance(Duration::from_secs(300));
        stage.resolve();
        told.is_ok()
    };
    assert!(!look(&mut stage), "an API server that is busy with its upgrade is told");
    assert_eq!((stage.images(), drift(&stage)), (vec!["ami-35"], None), "what is known stays");
    *version.0.lock().unwrap() = Some("v1.36.1-eks-1a2b3c");
    assert!(look(&mut stage));
    assert_eq!((stage.images(), drift(&stage).as_deref()), (vec!["ami-36"], Some("AMIDrift")));
    let next = stage.launch(stage.order("next", &["on-demand"])).unwrap();
    assert_eq!(&*next.image_id, "ami-36");
}
