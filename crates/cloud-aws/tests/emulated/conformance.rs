//! The provider on the bench of the conformance suite, with the SDK and the account behind it.
//!
//! One provider serves all rules: learning the account's thousand types takes seconds. Each rule has claims of its own, a full
//! stock, and a clock that has moved on so far that nothing of the rule before it counts any more.
//!
//! What the account cannot show: machines here are up and gone at once, so reads never lag behind writes; and it ends no machine by
//! itself. Both are rehearsed over the scripted wire (`provider`), which also fails calls now and then.

use crate::{REGION, Stage, Wall};
use kerf_cloud::clock::{Clock, Wait};
use kerf_cloud::conformance::{self, Bench};
use kerf_cloud::{Answer, CloudError, CloudProvider, InUse, Instance, LaunchOrder, OfferingKey};
use kerf_cloud_aws::cloud::AwsCloud;
use kerf_cloud_aws::settings::Settings;
use kerf_e2e::control_plane::build;
use kerf_model::{NodeClassRef, Quantity, Requirement, Requirements, Resources, Text, UnixMillis, labels};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// Longer than anything is remembered that a rule could trip over.
const LONG: Duration = Duration::from_secs(600);

/// Runs as the wall's does, and can be moved on.
#[derive(Clone, Default)]
struct Ahead(Arc<AtomicI64>);

impl Ahead {
    fn move_on(&self, span: Duration) {
        self.0.fetch_add(i64::try_from(span.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for Ahead {
    fn now(&self) -> UnixMillis {
        UnixMillis(Wall.now().0 + self.0.load(Ordering::SeqCst))
    }

    fn sleep(&self, span: Duration) -> Wait {
        Wall.sleep(span)
    }
}

struct World {
    stage: Stage,
    clock: Ahead,
    cloud: Arc<AwsCloud>,
    class: Value,
    /// Told apart by a number, so that the claims of one rule are not those of another.
    n_rules: Cell<u32>,
    sold_out: RefCell<Vec<OfferingKey>>,
}

impl World {
    fn new(stage: Stage) -> Self {
        let clock = Ahead::default();
        let cloud = started(&stage, &clock);
        let class = json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
            "metadata": {"name": "default", "uid": "class-uid", "generation": 1},
            "spec": {
                "amiSelectorTerms": [{"alias": "al2023@latest"}],
                "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
                "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
                "role": stage.made.role,
            },
        });
        let mut world = Self { stage, clock, cloud, class, n_rules: Cell::new(0), sold_out: RefCell::default() };
        world.resolve();
        world
    }

    /// What the operator does with a class: asks, and writes down.
    fn resolve(&mut self) {
        let found = self.stage.run(self.cloud.resolve_class(Arc::new(self.class.clone()))).unwrap();
        found.write_into(&mut self.class);
        let ready = self.class["status"]["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Ready");
        assert_eq!(ready.unwrap()["status"], "True", "{:#}", self.class["status"]["conditions"]);
    }

    fn restock(&self) {
        for key in self.sold_out.take() {
            self.set_stock(&key, None);
        }
    }

    fn set_stock(&self, key: &OfferingKey, left: Option<u32>) {
        let row = (key.capacity_type.as_str(), key.instance_type.as_str(), &*key.zone, left);
        self.stage.account.stock(&[row]).unwrap();
    }
}

/// As `kerf run` starts it.
fn started(stage: &Stage, clock: &Ahead) -> Arc<AwsCloud> {
    let settings = Settings {
        cluster_name: "demo".to_owned(),
        cluster_ca_bundle: "Y2E=".to_owned(),
        region: REGION.to_owned(),
        kubernetes_version: "1.35".to_owned(),
        ..Settings::default()
    };
    let cloud = AwsCloud::new(Arc::new(stage.sdk.clone()), settings, Arc::new(clock.clone()));
    stage.run(cloud.start()).unwrap();
    stage.run(cloud.run_chore("providers.pricing", Arc::new(InUse::default()))).unwrap();
    cloud
}

struct Rule<'a> {
    world: &'a World,
    number: u32,
}

impl<'a> Rule<'a> {
    fn next(world: &'a World) -> Self {
        world.restock();
        world.clock.move_on(LONG);
        let number = world.n_rules.get() + 1;
        world.n_rules.set(number);
        Self { world, number }
    }
}

impl Bench for Rule<'_> {
    fn cloud(&self) -> &dyn CloudProvider {
        &*self.world.cloud
    }

    fn wait<T>(&self, answer: Answer<T>) -> Result<T, CloudError> {
        self.world.stage.run(answer)
    }

    fn pause(&self, span: Duration) {
        self.world.clock.move_on(span);
    }

    fn settle(&self) {
        self.world.clock.move_on(LONG);
    }

    fn order(&self, name: &str) -> LaunchOrder {
        let name = format!("{name}-{}", self.number);
        LaunchOrder {
            claim: name.as_str().into(),
            uid: name.as_str().into(),
            pool: Some("default".into()),
            node_class: NodeClassRef {
                group: "karpenter.k8s.aws".into(),
                kind: "EC2NodeClass".into(),
                name: "default".into(),
            },
            class_object: Some(Arc::new(self.world.class.clone())),
            requirements: Requirements::new()
                .with(labels::CAPACITY_TYPE, Requirement::is_in(["spot", "on-demand"]))
                .with(labels::ARCH, Requirement::is_in(["amd64"]))
                .with(labels::OS, Requirement::is_in(["linux"])),
            requests: Resources::new().with("cpu", Quantity::from_milli(500)),
            labels: BTreeMap::from([(labels::NODEPOOL.into(), "default".into())]),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            avoid: Vec::new(),
        }
    }

    fn node_name(&self, instance: &Instance) -> Option<Text> {
        Some(format!("node-of-{}", instance.claim).into())
    }

    fn sell_out(&self, offering: &OfferingKey) -> bool {
        self.world.set_stock(offering, Some(0));
        self.world.sold_out.borrow_mut().push(offering.clone());
        true
    }

    fn boot_mark(&self, instance: &Instance) -> Option<String> {
        let id = instance.provider_id.rsplit('/').next()?.to_owned();
        let heard = self.world.stage.account.heard().unwrap();
        let is_restart = |parameters: &Value| parameters.to_string().contains(&id);
        let restarts = heard.iter().filter(|it| it.operation == "RebootInstances" && is_restart(&it.parameters));
        Some(restarts.count().to_string())
    }

    fn successor(&self) -> Option<Box<dyn CloudProvider>> {
        let next = started(&self.world.stage, &self.world.clock);
        Some(Box::new(Arc::into_inner(next).expect("nobody else has it yet")))
    }
}

#[test]
fn ec2_keeps_the_rules_of_a_provider_through_the_sdk() {
    let Some(stage) = Stage::start("the conformance suite through the AWS SDK") else { return };
    let world = World::new(stage);
    conformance::run(|| Rule::next(&world));
    let n_rules = world.n_rules.get();
    assert_eq!(n_rules as usize, conformance::checks::<Rule<'_>>().len());
    let n_launched = world.stage.sdk.calls().n_requests("CreateFleet");
    build::to_stderr(&format!(
        "{n_rules} rules of the conformance suite hold through the SDK, over {n_launched} fleets"
    ));
    build::to_stderr(
        "not shown here, but over the scripted wire: reads that lag behind writes, calls that fail now and then",
    );
}
