use super::*;
use crate::by_hand::{HandClock, finish};
use crate::wire::scripted::Scripted;
use crate::wire::{Tags, TypeInZone};
use kerf_cloud::aws::type_facts;
use kerf_model::ClaimName;
use serde_json::json;

/// Sells one type of each architecture, the other one first by name.
fn stage() -> (Scripted, HandClock, Arc<AwsCloud>) {
    let (aws, clock) = (Scripted::default(), HandClock::new());
    for name in ["c5.large", "m6g.large"] {
        let mut account = aws.account();
        account.types.push(type_facts(name).unwrap().clone());
        account.offerings.push(TypeInZone { instance_type: name.to_owned(), zone: "us-west-2a".to_owned() });
    }
    let settings = Settings {
        cluster_name: "prod".to_owned(),
        cluster_endpoint: Some("https://cluster".to_owned()),
        cluster_ca_bundle: "Y2E=".to_owned(),
        region: "us-west-2".to_owned(),
        kubernetes_version: "1.35".to_owned(),
        ..Settings::default()
    };
    let cloud = AwsCloud::new(Arc::new(aws.clone()), settings, Arc::new(clock.clone()));
    finish(&clock, STEP, cloud.start()).unwrap();
    (aws, clock, cloud)
}

const STEP: Duration = Duration::from_millis(5);

fn machine(id: &str, instance_type: &str, image_id: &str) -> Ec2Instance {
    let tags =
        [(api_labels::NODE_POOL, "default"), (api_labels::EC2_NODE_CLASS, "default"), ("eks:eks-cluster-name", "prod")];
    Ec2Instance {
        id: id.to_owned(),
        instance_type: instance_type.to_owned(),
        image_id: image_id.to_owned(),
        state: "running".to_owned(),
        zone: "us-west-2a".to_owned(),
        subnet_id: Some("subnet-1".to_owned()),
        security_group_ids: vec!["sg-1".to_owned()],
        tags: tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect::<Tags>(),
        ..Ec2Instance::default()
    }
}

fn reference(id: &str) -> InstanceRef {
    InstanceRef { provider_id: format!("aws:///us-west-2a/{id}").into(), claim: ClaimName("c".into()), node_name: None }
}

#[test]
fn what_ends_or_deletes_something_is_called_so() {
    let (_, _, cloud) = stage();
    let chores = CloudProvider::chores(&*cloud);
    let collecting: Vec<&str> = chores.iter().filter(|chore| chore.collects).map(|chore| chore.name).collect();
    assert_eq!(collecting, ["instance.garbagecollection", "instanceprofile.garbagecollection"]);
}

#[test]
fn an_instance_is_compared_with_the_image_for_its_own_type() {
    let (aws, clock, cloud) = stage();
    let arch = |name: &str| json!([{"key": "kubernetes.io/arch", "operator": "In", "values": [name]}]);
    let class = Arc::new(json!({
        "metadata": {"name": "default"},
        "spec": {},
        "status": {
            "amis": [{"id": "ami-amd", "requirements": arch("amd64")}, {"id": "ami-arm", "requirements": arch("arm64")}],
            "subnets": [{"id": "subnet-1", "zone": "us-west-2a"}],
            "securityGroups": [{"id": "sg-1"}],
        },
    }));
    aws.account().instances = vec![
        machine("i-1", "c5.large", "ami-amd"),
        machine("i-2", "m6g.large", "ami-arm"),
        machine("i-3", "x9.huge", "ami-arm"),
    ];
    let drift = |id: &str| finish(&clock, STEP, cloud.drift(reference(id), class.clone()));
    assert_eq!((drift("i-1").unwrap(), drift("i-2").unwrap()), (None, None));
    let error = drift("i-3").unwrap_err().to_string();
    assert!(error.contains("x9.huge") && error.contains("no longer lists"), "{error}");
}

#[test]
fn a_place_in_a_reservation_is_free_again_when_its_instance_is_gone_and_not_before() {
    let (aws, clock, cloud) = stage();
    let reserved = Ec2Instance { reservation_id: Some("cr-1".to_owned()), ..machine("i-1", "c5.large", "ami-amd") };
    aws.account().instances = vec![reserved];
    cloud.0.supply.reservations().set("cr-1", 3);
    finish(&clock, STEP, cloud.list()).unwrap();
    let end = || finish(&clock, STEP, cloud.terminate(reference("i-1")));
    end().unwrap();
    assert_eq!(cloud.0.supply.reservations().available("cr-1"), 3, "it is ending");
    assert!(end().unwrap_err().is_not_found());
    assert_eq!(cloud.0.supply.reservations().available("cr-1"), 4);
}
