use super::*;
use kerf_model::Readiness;

fn pool(metadata: &str, spec: &str, rest: &str) -> String {
    format!(
        "{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: a{metadata}}}, spec: {{template: {{spec: {{nodeClassRef: {{group: g, kind: TestNodeClass, name: c}}, {spec}}}}}}}{rest}}}"
    )
}

fn readiness(yaml: &str) -> String {
    match &snapshot(yaml).pools[0].readiness {
        Readiness::Ready => String::new(),
        Readiness::NotReady(reason) => reason.to_string(),
    }
}

#[test]
fn a_pool_is_read_as_it_is_written() {
    let picture = snapshot(
        "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: a}, spec: {weight: 10, limits: {cpu: 100, nodes: 5}, template: {metadata: {labels: {team: red}}, spec: {taints: [{key: t, effect: NoSchedule}], requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot]}, {key: node.kubernetes.io/instance-type, operator: Exists, minValues: 5}, {key: size, operator: Gte, values: ['4']}], nodeClassRef: {group: g, kind: TestNodeClass, name: c}}}}}",
    );
    assert_eq!(notes(&picture), "");
    let pool = &picture.pools[0];
    assert_eq!((pool.weight, pool.limits.to_string()), (10, "cpu 100, nodes 5".to_owned()));
    assert_eq!(
        pool.requirements.to_string(),
        "karpenter.sh/capacity-type In [spot], node.kubernetes.io/instance-type Exists, size >= 4"
    );
    assert_eq!(pool.requirements.get(labels::INSTANCE_TYPE).unwrap().min_values, Some(5));
    assert_eq!(pool.types.len(), 1);
    assert_eq!(pool.in_use.to_string(), "nodes 0");
}

#[test]
fn a_pool_that_cannot_be_used_says_why() {
    let condition = |kind: &str, status: &str| {
        format!(
            "{{type: {kind}, status: '{status}', reason: R, message: m, lastTransitionTime: '2024-01-01T00:00:00Z'}}"
        )
    };
    let with = |conditions: &str| pool("", "requirements: []", &format!(", status: {{conditions: [{conditions}]}}"));
    let class =
        |rest: &str| format!("\n---\n{{apiVersion: g.x/v1, kind: TestNodeClass, metadata: {{name: c}}, {rest}}}");
    let of_class = |rest: &str| pool("", "requirements: []", "").replace("group: g,", "group: g.x,") + &class(rest);
    for (story, yaml, expected) in [
        ("no status", pool("", "requirements: []", ""), ""),
        ("ready", with(&condition("Ready", "True")), ""),
        ("not known", with(&condition("Ready", "Unknown")), ""),
        ("not ready", with(&condition("Ready", "False")), "Ready=False, R, m"),
        (
            "the one to blame",
            with(&(condition("NodeClassReady", "False") + ", " + &condition("Ready", "False"))),
            "NodeClassReady=False, R, m",
        ),
        (
            "being deleted",
            pool(", deletionTimestamp: '2024-01-01T00:00:00Z'", "requirements: []", ""),
            "it is being deleted",
        ),
        (
            "an operator nobody knows",
            pool("", "requirements: [{key: a, operator: Like, values: [b]}]", ""),
            "spec.template.spec.requirements[0].operator: unknown operator \"Like\" (use In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte)",
        ),
        (
            "at odds with itself",
            pool("", "requirements: [{key: a, operator: In, values: [b]}, {key: a, operator: In, values: [c]}]", ""),
            "spec.template.spec.requirements[1]: a is asked to be In [b] and In [c] at once, which nothing can be",
        ),
        ("its class is fine", of_class("spec: {}"), ""),
        (
            "its class is not ready",
            of_class("status: {conditions: [{type: Ready, status: 'False', reason: SubnetsNotFound, message: none}]}"),
            "its TestNodeClass c is not ready: SubnetsNotFound, none",
        ),
    ] {
        assert_eq!(readiness(&yaml), expected, "{story}");
    }
    let live = observed(MirrorSettings::new(View::Live), &pool("", "requirements: []", ""));
    let picture = live.snapshot(UnixMillis(0), &TestSupply);
    assert_ne!(picture.pools[0].readiness, Readiness::Ready, "a live pool waits for its controller");
}

#[test]
fn pools_of_other_providers_are_left_alone() {
    let picture = snapshot(&pool("", "requirements: []", "").replace("TestNodeClass", "OtherClass"));
    assert!(picture.pools.is_empty());
    assert_eq!(
        notes(&picture),
        "NodePool a | spec.template.spec.nodeClassRef | nobody here serves OtherClass of \"g\"; the pool is left out"
    );
}

#[test]
fn static_pools_and_overlays_are_known() {
    let fixed = pool("", "requirements: []", "").replace("spec: {template", "spec: {replicas: 3, template");
    assert!(snapshot(&fixed).pools[0].is_static);
    let overlay = "{apiVersion: karpenter.sh/v1alpha1, kind: NodeOverlay, metadata: {name: o}, spec: {requirements: [], price: '1'}}";
    assert!(notes(&snapshot(overlay)).contains("feature gate NodeOverlay is off"));
}

#[test]
fn what_an_api_server_would_refuse_or_drop_is_told() {
    let class = "nodeClassRef: {group: g, kind: TestNodeClass, name: c}";
    for (story, spec, expected) in [
        (
            "a label written straight under metadata",
            format!("{{template: {{metadata: {{cost-centre: blue}}, spec: {{requirements: [], {class}}}}}}}"),
            "NodePool a | spec.template.metadata.cost-centre | there is no such field; an API server would drop it",
        ),
        (
            "no node class",
            "{template: {spec: {requirements: []}}}".to_owned(),
            "NodePool a | spec.template.spec | missing field `nodeClassRef`",
        ),
        (
            "a weight that is too large",
            format!("{{weight: 1000, template: {{spec: {{requirements: [], {class}}}}}}}"),
            "NodePool a | spec.weight | an API server would refuse it: found 1000",
        ),
        (
            "a label that is ours",
            format!(
                "{{template: {{metadata: {{labels: {{karpenter.sh/nodepool: x}}}}, spec: {{requirements: [], {class}}}}}}}"
            ),
            "NodePool a | spec.template.metadata.labels",
        ),
    ] {
        let yaml = format!("{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: a}}, spec: {spec}}}");
        let notes = notes(&snapshot(&yaml));
        assert!(notes.starts_with(expected), "{story}: {notes}");
        let stored = yaml.replace("name: a}", "name: a, uid: u}");
        assert!(!super::notes(&snapshot(&stored)).contains("an API server would"), "{story}: it has been through one");
    }
}

/// Dumps of clusters that have not moved to v1, and guides of that time.
#[test]
fn a_pool_of_v1beta1_means_what_it_is_converted_to() {
    let picture = snapshot(
        "
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata: {name: old}
spec:
  weight: 7
  limits: {resources: {cpu: 500}}
  template:
    spec:
      nodeClassRef: {apiVersion: g/v1beta1, kind: TestNodeClass, name: a}
      requirements: [{key: example.com/team, operator: In, values: [blue]}]
      kubelet: {maxPods: 20}
",
    );
    let pool = &picture.pools[0];
    assert_eq!((pool.name.0.as_ref(), pool.weight, &*pool.node_class.group), ("old", 7, "g"));
    assert_eq!(pool.limits.to_string(), "cpu 500");
    assert_eq!(notes(&picture), "");
}
