//! An account with a network, images, prices and eight types in three zones, and the provider in front of it.

use kerf_cloud::aws::type_facts;
use kerf_cloud::clock::Clock;
use kerf_cloud::{CloudError, CloudProvider, InUse, Instance, LaunchOrder, OfferingKey};
use kerf_cloud_aws::by_hand::{HandClock, Hands, finish};
use kerf_cloud_aws::cloud::AwsCloud;
use kerf_cloud_aws::settings::Settings;
use kerf_cloud_aws::wire::scripted::Scripted;
use kerf_cloud_aws::wire::{
    EksCluster, Image, InstanceProfile, ListPrice, SecurityGroup, SpotPrice, Subnet, Tags, TypeInZone,
};
use kerf_model::{CapacityType, Money, NodeClassRef, Quantity, Requirement, Requirements, Resources, TypeName, labels};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const CLUSTER: &str = "prod";
pub(crate) const ZONES: [(&str, &str); 3] =
    [("us-west-2a", "usw2-az1"), ("us-west-2b", "usw2-az2"), ("us-west-2c", "usw2-az3")];
/// With their prices in thousandths of a dollar.
pub(crate) const TYPES: [(&str, i64); 8] = [
    ("c5.large", 85),
    ("c6i.large", 86),
    ("m5.large", 96),
    ("m6i.large", 97),
    ("r5.large", 126),
    ("c5.xlarge", 170),
    ("m5.xlarge", 192),
    ("m6i.xlarge", 193),
];

const STEP: Duration = Duration::from_millis(5);

pub(crate) struct Stage {
    pub(crate) aws: Scripted,
    pub(crate) clock: HandClock,
    pub(crate) cloud: Arc<AwsCloud>,
    pub(crate) class: Value,
}

pub(crate) fn stage() -> Stage {
    stage_with(|_| {}, |_| {})
}

pub(crate) fn stage_with(change_class: impl FnOnce(&mut Value), change_settings: impl FnOnce(&mut Settings)) -> Stage {
    let (aws, clock) = (Scripted::default(), HandClock::new());
    furnish(&aws, &clock);
    let mut settings = settings();
    change_settings(&mut settings);
    let cloud = AwsCloud::new(Arc::new(aws.clone()), settings, Arc::new(clock.clone()));
    let mut class = class();
    change_class(&mut class);
    let mut stage = Stage { aws, clock, cloud, class };
    stage.wait(stage.cloud.start()).unwrap();
    stage.wait(stage.cloud.run_chore("providers.pricing", Arc::new(InUse::default()))).unwrap();
    stage.resolve();
    stage.aws.account().calls.clear();
    stage
}

pub(crate) fn settings() -> Settings {
    Settings {
        cluster_name: CLUSTER.to_owned(),
        cluster_endpoint: Some("https://cluster".to_owned()),
        cluster_ca_bundle: "Y2E=".to_owned(),
        region: "us-west-2".to_owned(),
        kubernetes_version: "1.35".to_owned(),
        interruption_queue: Some("notices".to_owned()),
        ..Settings::default()
    }
}

fn discovery() -> Tags {
    Tags::from([("karpenter.sh/discovery".to_owned(), CLUSTER.to_owned())])
}

fn furnish(aws: &Scripted, clock: &HandClock) {
    let mut account = aws.account();
    account.now_ms = clock.now().0;
    account.types = TYPES.iter().map(|(name, _)| type_facts(name).expect("in the catalogue").clone()).collect();
    for (name, thousandths) in TYPES {
        let price = Money::from_micros(thousandths * 1_000);
        account.list_prices.push(ListPrice { instance_type: name.to_owned(), price });
        for (position, (zone, _)) in (0i64..).zip(ZONES) {
            account.offerings.push(TypeInZone { instance_type: name.to_owned(), zone: zone.to_owned() });
            let price = Money::from_micros(thousandths * 300 + position);
            account.spot_prices.push(SpotPrice {
                instance_type: name.to_owned(),
                zone: zone.to_owned(),
                price,
                at_ms: 1,
            });
        }
    }
    // The price list is asked for bare metal too, and an empty answer counts for none.
    account.list_prices.push(ListPrice { instance_type: "m5.metal".to_owned(), price: Money::from_micros(4_608_000) });
    for (zone, zone_id) in ZONES {
        account.subnets.push(Subnet {
            id: format!("subnet-{zone}"),
            zone: zone.to_owned(),
            zone_id: Some(zone_id.to_owned()),
            vpc_id: "vpc-1".to_owned(),
            n_free_addresses: 1_000,
            tags: discovery(),
        });
    }
    account.security_groups.push(SecurityGroup {
        id: "sg-1".to_owned(),
        name: "nodes".to_owned(),
        vpc_id: "vpc-1".to_owned(),
        tags: discovery(),
    });
    account.images.push((
        Image {
            id: "ami-1".to_owned(),
            name: "image".to_owned(),
            architecture: "x86_64".to_owned(),
            created: "2026-01-01T00:00:00.000Z".to_owned(),
            deprecated_at_ms: None,
            owner: "self".to_owned(),
        },
        discovery(),
    ));
    account.profiles.insert(
        "profile-1".to_owned(),
        InstanceProfile {
            name: "profile-1".to_owned(),
            path: "/".to_owned(),
            roles: vec!["node".to_owned()],
            tags: Tags::new(),
        },
    );
    account.cluster = Some(EksCluster {
        arn: "arn:aws:eks:us-west-2:1:cluster/prod".to_owned(),
        endpoint: "https://cluster".to_owned(),
        version: "1.35".to_owned(),
        ca: "Y2E=".to_owned(),
        service_ipv4_cidr: Some("10.100.0.0/16".to_owned()),
        service_ipv6_cidr: None,
    });
}

fn class() -> Value {
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": {"name": "default", "uid": "class-uid", "generation": 1},
        "spec": {
            "amiFamily": "AL2023",
            "amiSelectorTerms": [{"tags": {"karpenter.sh/discovery": CLUSTER}}],
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": CLUSTER}}],
            "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": CLUSTER}}],
            "instanceProfile": "profile-1",
            "tags": {"team": "x"},
        },
    })
}

impl Stage {
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        finish(&self.clock, STEP, future)
    }

    /// What the operator does with a class: asks, and writes down.
    pub(crate) fn resolve(&mut self) {
        let found = self.wait(self.cloud.resolve_class(Arc::new(self.class.clone()))).unwrap();
        found.write_into(&mut self.class);
        let ready = self.class["status"]["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Ready");
        assert_eq!(ready.unwrap()["status"], "True", "{:#}", self.class["status"]["conditions"]);
    }

    /// A claim of half a CPU, which every type has room for.
    pub(crate) fn order(&self, name: &str, kinds: &[&str]) -> LaunchOrder {
        LaunchOrder {
            claim: name.into(),
            uid: name.into(),
            pool: Some("default".into()),
            node_class: NodeClassRef {
                group: "karpenter.k8s.aws".into(),
                kind: "EC2NodeClass".into(),
                name: "default".into(),
            },
            class_object: Some(Arc::new(self.class.clone())),
            requirements: Requirements::new()
                .with(labels::CAPACITY_TYPE, Requirement::is_in(kinds.iter().copied()))
                .with(labels::OS, Requirement::is_in(["linux"])),
            requests: Resources::new().with("cpu", Quantity::from_milli(500)),
            labels: BTreeMap::from([(labels::NODEPOOL.into(), "default".into())]),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            avoid: Vec::new(),
        }
    }

    pub(crate) fn launch(&self, order: LaunchOrder) -> Result<Instance, CloudError> {
        self.wait(self.cloud.launch(Arc::new(order)))
    }

    /// Launches all at once, as a burst of claims does.
    pub(crate) fn launch_all(&self, orders: Vec<LaunchOrder>) -> Vec<Result<Instance, CloudError>> {
        let mut hands = Hands::default();
        for order in orders {
            hands.take(self.cloud.launch(Arc::new(order)));
        }
        for _ in 0..10_000 {
            hands.poll();
            let answers = hands.answers();
            if answers.iter().all(Option::is_some) {
                return answers.into_iter().flatten().collect();
            }
            self.clock.advance(STEP);
        }
        panic!("the launches do not end");
    }

    pub(crate) fn sell_out(&self, key: &OfferingKey) {
        let kind = key.capacity_type.as_str().to_owned();
        let entry = (kind, key.instance_type.as_str().to_owned(), key.zone.to_string());
        self.aws.account().sold_out.push(entry);
    }

    /// Of every type in every zone.
    pub(crate) fn sell_out_all(&self, kind: CapacityType) {
        for (name, _) in TYPES {
            for (zone, _) in ZONES {
                self.sell_out(&OfferingKey {
                    instance_type: TypeName::from(name),
                    zone: zone.into(),
                    capacity_type: kind,
                });
            }
        }
    }

    /// Requests of a call, in order.
    pub(crate) fn requests(&self, action: &str) -> Vec<String> {
        let account = self.aws.account();
        account.calls.iter().filter(|(called, _)| *called == action).map(|(_, request)| request.clone()).collect()
    }
}
