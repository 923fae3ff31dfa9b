//! Node classes on the embedded control plane, with a provider that has something to say of them.

use kerf_cloud::{
    Answer, ClassStatus, CloudError, CloudProvider, Instance, InstanceRef, LaunchOrder, NodeClassKind, RepairPolicy,
    TypesAsk,
};
use kerf_controllers::classes::Classes;
use kerf_model::{CapacityType, InstanceType, Money, Text, TypeName};
use kerf_simulation::{Rehearsal, Setup};
use serde_json::{Value, json};
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

const CLASS: &str = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses/default";

/// Counts how often it was asked, and says so on the class.
struct Resolver(Arc<AtomicI64>);

const CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";
const FINALIZER: &str = "example.com/termination";
const HASH: &str = "example.com/hash";
const HASH_VERSION: &str = "example.com/hash-version";

/// Makes things for its classes, and hashes them.
#[derive(Clone, Default)]
struct Maker {
    n_resolved: Arc<AtomicI64>,
    n_ended: Arc<AtomicI64>,
    /// So many ends fail before one succeeds.
    n_failures: Arc<AtomicI64>,
}

fn nothing<T: Send + 'static>() -> Answer<T> {
    Box::pin(ready(Err(CloudError::Unsupported { what: "this".into() })))
}

impl CloudProvider for Resolver {
    fn name(&self) -> &'static str {
        "resolver"
    }

    fn node_classes(&self) -> Vec<NodeClassKind> {
        vec![NodeClassKind::plain("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses")]
    }

    fn well_known_labels(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn instance_types(&self, _: &TypesAsk<'_>) -> Result<Arc<[Arc<InstanceType>]>, CloudError> {
        Ok(Arc::from([]))
    }

    fn price(&self, _: &TypeName, _: Option<&Text>, _: CapacityType) -> Option<Money> {
        None
    }

    fn launch(&self, _: Arc<LaunchOrder>) -> Answer<Instance> {
        nothing()
    }

    fn terminate(&self, _: InstanceRef) -> Answer<()> {
        nothing()
    }

    fn get(&self, _: Text) -> Answer<Instance> {
        nothing()
    }

    fn list(&self) -> Answer<Vec<Instance>> {
        nothing()
    }

    fn reboot(&self, _: InstanceRef, _: Text) -> Answer<()> {
        nothing()
    }

    fn resolve_class(&self, class: Arc<Value>) -> Answer<ClassStatus> {
        let n = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        let condition = json!({
            "type": "Ready", "status": "True", "reason": "Ready", "message": format!("asked {n} times"),
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": class["metadata"]["generation"],
        });
        Box::pin(ready(Ok(ClassStatus {
            status: json!({"conditions": [condition]}),
            annotations: [("example.com/asked".into(), n.to_string().into())].into(),
            again_after: Some(Duration::from_secs(300)),
        })))
    }

    fn drift(&self, _: InstanceRef, _: Arc<Value>) -> Answer<Option<Text>> {
        nothing()
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        Vec::new()
    }
}

impl CloudProvider for Maker {
    fn name(&self) -> &'static str {
        "maker"
    }

    fn node_classes(&self) -> Vec<NodeClassKind> {
        vec![NodeClassKind {
            finalizer: Some(FINALIZER),
            hash: Some((HASH, HASH_VERSION)),
            ..NodeClassKind::plain("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses")
        }]
    }

    fn well_known_labels(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn instance_types(&self, _: &TypesAsk<'_>) -> Result<Arc<[Arc<InstanceType>]>, CloudError> {
        Ok(Arc::from([]))
    }

    fn price(&self, _: &TypeName, _: Option<&Text>, _: CapacityType) -> Option<Money> {
        None
    }

    fn launch(&self, _: Arc<LaunchOrder>) -> Answer<Instance> {
        nothing()
    }

    fn terminate(&self, _: InstanceRef) -> Answer<()> {
        nothing()
    }

    fn get(&self, _: Text) -> Answer<Instance> {
        nothing()
    }

    fn list(&self) -> Answer<Vec<Instance>> {
        nothing()
    }

    fn reboot(&self, _: InstanceRef, _: Text) -> Answer<()> {
        nothing()
    }

    fn resolve_class(&self, class: Arc<Value>) -> Answer<ClassStatus> {
        self.n_resolved.fetch_add(1, Ordering::SeqCst);
        assert_eq!(
            class["metadata"]["finalizers"],
            json!([FINALIZER]),
            "nothing is made before the finalizer is there"
        );
        Box::pin(ready(Ok(ClassStatus {
            status: Value::Null,
            annotations: [(HASH.into(), "9".into()), (HASH_VERSION.into(), "v2".into())].into(),
            again_after: None,
        })))
    }

    fn end_class(&self, _: Arc<Value>) -> Answer<()> {
        if self.n_failures.fetch_sub(1, Ordering::SeqCst) > 0 {
            return Box::pin(ready(Err(CloudError::Other { message: "not yet".into() })));
        }
        self.n_ended.fetch_add(1, Ordering::SeqCst);
        Box::pin(ready(Ok(())))
    }

    fn drift(&self, _: InstanceRef, _: Arc<Value>) -> Answer<Option<Text>> {
        nothing()
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        Vec::new()
    }
}

fn with_maker() -> (Rehearsal, Maker) {
    let maker = Maker::default();
    let cloud = maker.clone();
    let setup = Setup::default().with_duties(of_classes).with_cloud(move |_| Arc::new(cloud.clone()));
    (Rehearsal::new(setup), maker)
}

fn claim(name: &str, class: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": class},
            "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
        },
    })
}

fn of_classes() -> Vec<Box<dyn kerf_controllers::Duty>> {
    vec![Box::new(Classes::default())]
}

#[test]
fn a_class_is_resolved_when_it_changes_and_again_after_a_while() {
    let asked = Arc::new(AtomicI64::new(0));
    let counter = asked.clone();
    let setup = Setup::default().with_duties(of_classes).with_cloud(move |_| Arc::new(Resolver(counter.clone())));
    let mut rehearsal = Rehearsal::new(setup);
    rehearsal.create("{apiVersion: karpenter.kwok.sh/v1alpha1, kind: KWOKNodeClass, metadata: {name: default}}");
    let says = |rehearsal: &Rehearsal, n: i64| {
        let class = rehearsal.get(CLASS).unwrap_or_default();
        class["metadata"]["annotations"]["example.com/asked"] == json!(n.to_string())
            && class["status"]["conditions"][0]["message"] == format!("asked {n} times")
    };
    rehearsal.run_until("the answer is written", 5, |rehearsal| says(rehearsal, 1));
    rehearsal.run_for(299);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "what we write is no reason to ask again");
    rehearsal.run_until("it is asked again", 5, |rehearsal| says(rehearsal, 2));
    rehearsal.patch(CLASS, &json!({"spec": {"nodeRegistrationDelay": "5s"}}));
    rehearsal.run_until("it is asked about the change", 5, |rehearsal| says(rehearsal, 3));
}

#[test]
fn nothing_is_written_for_a_provider_that_has_nothing_to_say() {
    let mut rehearsal = Rehearsal::new(Setup::default().with_duties(of_classes));
    rehearsal.create("{apiVersion: karpenter.kwok.sh/v1alpha1, kind: KWOKNodeClass, metadata: {name: default}}");
    rehearsal.run_for(3_600);
    assert_eq!(rehearsal.n_calls(), 0);
}

#[test]
fn a_class_stays_until_its_claims_are_gone_and_what_was_made_for_it_is_too() {
    let (mut rehearsal, maker) = with_maker();
    rehearsal.create("{apiVersion: karpenter.kwok.sh/v1alpha1, kind: KWOKNodeClass, metadata: {name: default}}");
    rehearsal.run_until("it is looked up", 5, |_| maker.n_resolved.load(Ordering::SeqCst) == 1);
    for n in 1..=7 {
        rehearsal.create_value(&claim(&format!("claim-{n}"), "default", &json!({})));
    }
    rehearsal.create_value(&claim("of-another", "another", &json!({})));
    rehearsal.delete(CLASS);
    rehearsal.run_until("it says whom it waits for", 5, |it| !it.events("WaitingOnNodeClaimTermination").is_empty());
    assert_eq!(
        rehearsal.events("WaitingOnNodeClaimTermination"),
        ["Waiting on NodeClaim termination for claim-1, claim-2, claim-3, claim-4, claim-5 and 2 other(s)"]
    );
    for n in 1..=6 {
        rehearsal.delete(&format!("{CLAIMS}/claim-{n}"));
    }
    rehearsal.run_for(3_600);
    assert_eq!(maker.n_ended.load(Ordering::SeqCst), 0, "one claim is left");
    assert!(rehearsal.get(CLASS).is_some());
    maker.n_failures.store(2, Ordering::SeqCst);
    rehearsal.delete(&format!("{CLAIMS}/claim-7"));
    rehearsal.run_until("it is gone", 30, |it| it.get(CLASS).is_none());
    assert_eq!(maker.n_ended.load(Ordering::SeqCst), 1, "after two failures, and once");
    assert_eq!(maker.n_resolved.load(Ordering::SeqCst), 1, "a class that goes is not looked up");
}

#[test]
fn a_class_that_goes_while_nobody_watches_is_seen_off_after_a_restart() {
    let (mut rehearsal, maker) = with_maker();
    rehearsal.create("{apiVersion: karpenter.kwok.sh/v1alpha1, kind: KWOKNodeClass, metadata: {name: default}}");
    rehearsal.run_until("it is looked up", 5, |_| maker.n_resolved.load(Ordering::SeqCst) == 1);
    rehearsal.settle();
    rehearsal.kill();
    rehearsal.delete(CLASS);
    rehearsal.revive();
    rehearsal.run_until("it is gone", 60, |it| it.get(CLASS).is_none());
    assert_eq!(maker.n_ended.load(Ordering::SeqCst), 1);
}

#[test]
fn an_annotation_of_a_person_asks_for_another_look_and_one_of_ours_does_not() {
    let (mut rehearsal, maker) = with_maker();
    rehearsal.create("{apiVersion: karpenter.kwok.sh/v1alpha1, kind: KWOKNodeClass, metadata: {name: default}}");
    let is_hashed = |it: &Rehearsal| it.get(CLASS).is_some_and(|class| class["metadata"]["annotations"][HASH] == "9");
    rehearsal.run_until("it is hashed", 5, is_hashed);
    rehearsal.run_for(60);
    assert_eq!(maker.n_resolved.load(Ordering::SeqCst), 1);
    rehearsal.patch(CLASS, &json!({"metadata": {"annotations": {"look": "again"}}}));
    rehearsal.run_until("it is looked up again", 5, |_| maker.n_resolved.load(Ordering::SeqCst) == 2);
    rehearsal.run_for(60);
    assert_eq!(maker.n_resolved.load(Ordering::SeqCst), 2);
}

#[test]
fn when_the_way_of_hashing_changes_claims_are_rewritten_before_their_class() {
    let (mut rehearsal, _) = with_maker();
    let old = json!({HASH: "1", HASH_VERSION: "v1"});
    rehearsal.kill();
    rehearsal.create_value(&claim("plain", "default", &old));
    rehearsal.create_value(&claim("drifted", "default", &old));
    rehearsal.create_value(&claim("of-another", "another", &old));
    let drifted = json!({"type": "Drifted", "status": "True", "reason": "x", "message": "x", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    rehearsal.patch(&format!("{CLAIMS}/drifted/status"), &json!({"status": {"conditions": [drifted]}}));
    rehearsal.create_value(&json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
        "metadata": {"name": "default", "annotations": {HASH: "1", HASH_VERSION: "v1"}},
    }));
    rehearsal.revive();
    let says = |rehearsal: &Rehearsal, path: &str| {
        let annotations = rehearsal.get(path).unwrap_or_default()["metadata"]["annotations"].clone();
        [HASH, HASH_VERSION].map(|key| annotations[key].as_str().unwrap_or_default().to_owned())
    };
    rehearsal.run_until("the class is rewritten", 60, |it| says(it, CLASS) == ["9", "v2"]);
    assert_eq!(says(&rehearsal, &format!("{CLAIMS}/plain")), ["9", "v2"]);
    assert_eq!(says(&rehearsal, &format!("{CLAIMS}/drifted")), ["1", "v2"], "what has drifted stays so");
    assert_eq!(says(&rehearsal, &format!("{CLAIMS}/of-another")), ["1", "v1"]);
}
