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
    assert_eq!(rehearsal.n_calls, 0);
}
