use super::*;

#[test]
fn only_pods_that_wait_for_a_place_count() {
    let pod = |metadata: &str, spec: &str, status: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: p, {metadata}}}, spec: {{containers: [{{name: c}}], {spec}}}, status: {{{status}}}}}"
        )
    };
    let unschedulable = "phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]";
    for (story, pod, counts) in [
        ("written by hand", pod("", "", ""), true),
        ("pending without conditions", pod("", "", "phase: Pending"), true),
        ("found unschedulable", pod("", "", unschedulable), true),
        (
            "gated",
            pod("", "", "phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: SchedulingGated}]"),
            false,
        ),
        ("gated, not looked at", pod("", "schedulingGates: [{name: g}]", ""), false),
        ("for Fargate", pod("", "schedulerName: fargate-scheduler", unschedulable), false),
        ("for another scheduler", pod("", "schedulerName: mine", unschedulable), true),
        ("preempting", pod("", "", &format!("{unschedulable}, nominatedNodeName: n")), false),
        ("bound", pod("", "nodeName: n", ""), false),
        ("ended", pod("", "", "phase: Succeeded"), false),
        ("being deleted", pod("deletionTimestamp: '2024-01-01T00:00:00Z'", "", unschedulable), false),
        (
            "of a DaemonSet",
            pod(
                "ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: u, controller: true}]",
                "",
                unschedulable,
            ),
            false,
        ),
        (
            "static",
            pod(
                "ownerReferences: [{apiVersion: v1, kind: Node, name: n, uid: u, controller: true}]",
                "",
                unschedulable,
            ),
            false,
        ),
    ] {
        assert_eq!(snapshot(&pod).pods.len() == 1, counts, "{story}");
    }
    let live = observed(MirrorSettings::new(View::Live), &pod("", "", "phase: Pending"));
    assert!(live.snapshot(UnixMillis(0), &TestSupply).pods.is_empty(), "nobody has found it unschedulable yet");
}

#[test]
fn a_pod_that_nobody_looked_at_counts_with_one_like_it_that_found_no_place() {
    let pod = |name: &str, cpu: u32, status: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: web}}}}, spec: {{containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}, status: {{phase: Pending, {status}}}}}\n---\n"
        )
    };
    let judged = "conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]";
    let yaml = [pod("judged", 1, judged), pod("alike", 1, ""), pod("other", 2, "")].concat();
    let live = observed(MirrorSettings::new(View::Live), &yaml);
    assert_eq!(waiting(&live.snapshot(UnixMillis(0), &TestSupply)), "default/alike default/judged");
}

#[test]
fn equal_pods_share_one_demand_whatever_their_serial_numbers() {
    let pod = |name: &str, cpu: u32| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: web, serial: {name}}}}}, spec: {{containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}\n---\n"
        )
    };
    let yaml = [pod("c", 1), pod("a", 1), pod("b", 2)].concat();
    let picture = snapshot(&yaml);
    assert_eq!(waiting(&picture), "default/a default/b default/c");
    let indices: Vec<u32> = picture.pods.iter().map(|pod| pod.demand.0).collect();
    assert_eq!(indices, [0, 1, 0]);
    assert!(picture.demands[0].labels.is_empty(), "no selector looks at them");
}

#[test]
fn the_order_of_objects_does_not_show() {
    let documents = [
        pod("nodeSelector: {team: red}"),
        "{apiVersion: v1, kind: Pod, metadata: {name: q}, spec: {containers: [{name: c, resources: {requests: {cpu: x}}}]}}".into(),
        "{apiVersion: v1, kind: Node, metadata: {name: n}}".into(),
        "{apiVersion: v1, kind: Pod, metadata: {name: r}, spec: {nodeName: n, containers: [{name: c}]}}".into(),
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 2, selector: {}, template: {spec: {containers: [{name: c}]}}}}".into(),
        "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: z}, spec: {template: {spec: {requirements: [], nodeClassRef: {group: g, kind: TestNodeClass, name: a}}}}}".into(),
    ];
    let look = |documents: &[String]| {
        let mut mirror = Mirror::new(files());
        for document in documents {
            mirror.observe_value("f", serde_norway::from_str(document).unwrap());
        }
        format!("{:?}", mirror.snapshot(UnixMillis(0), &TestSupply))
    };
    let mut reversed = documents.clone();
    reversed.reverse();
    assert_eq!(look(&documents), look(&reversed));
}

#[test]
fn what_is_forgotten_is_gone() {
    let mut mirror = observed(files(), &pod(""));
    let object = crate::Object::read(serde_norway::from_str(&pod("")).unwrap()).unwrap();
    assert_eq!(
        mirror.observe(&"again".into(), object.clone()),
        crate::Seen::Replaced { earlier: "test.yaml#0".into() }
    );
    mirror.forget(&object.key());
    assert!(mirror.snapshot(UnixMillis(0), &TestSupply).pods.is_empty());
}

#[test]
fn pods_that_do_not_want_us_are_set_aside() {
    for (spec, expected) in [
        (
            "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: karpenter.sh/nodepool, operator: DoesNotExist}]}]}}}",
            "NotForUs",
        ),
        (
            "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: karpenter.sh/nodepool, operator: DoesNotExist}]}}]}}",
            "NotForUs",
        ),
        ("resourceClaims: [{name: gpu}]", "DynamicResources"),
    ] {
        let picture = snapshot(&pod(spec));
        assert!(picture.pods.is_empty());
        assert_eq!(format!("{:?}", picture.ill[0].1), expected);
        assert_eq!(notes(&picture), "", "that is no mistake");
    }
}

#[test]
fn priority_follows_the_class() {
    let classes = "
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: usual}, value: 7, globalDefault: true}
";
    for (spec, expected) in [
        ("", 7),
        ("priorityClassName: high", 1000),
        ("priorityClassName: high, priority: 3", 3),
        ("priorityClassName: system-node-critical", 2_000_001_000),
    ] {
        assert_eq!(snapshot(&(pod(spec) + classes)).pods[0].priority, expected, "{spec}");
    }
}

#[test]
fn tolerations_ports_and_affinity_are_read_whole() {
    let picture = snapshot(&pod(
        "hostNetwork: true, tolerations: [{key: b, operator: Exists}, {key: a, value: x, effect: NoSchedule}, {key: b, operator: Exists, tolerationSeconds: 5}],
         affinity: {nodeAffinity: {
           requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: x, operator: In, values: [a]}]}, {matchExpressions: [{key: y, operator: Gt, values: ['3']}]}]},
           preferredDuringSchedulingIgnoredDuringExecution: [{weight: 5, preference: {matchExpressions: [{key: z, operator: Exists}]}}]}}"
    ).replace("{name: c,", "{name: c, ports: [{containerPort: 80}, {containerPort: 81, hostPort: 8080, protocol: UDP, hostIP: 1.2.3.4}],"));
    assert_eq!(notes(&picture), "");
    let demand = &picture.demands[0];
    assert_eq!(demand.tolerations.len(), 2);
    let ports: Vec<String> = demand.host_ports.iter().map(|p| format!("{}:{}/{}", p.ip, p.port, p.protocol)).collect();
    assert_eq!(ports, [":80/TCP", "1.2.3.4:8080/UDP"]);
    let terms: Vec<String> = demand.required_terms.iter().map(ToString::to_string).collect();
    assert_eq!(terms, ["x In [a]", "y >= 4"]);
    assert_eq!(demand.preferred_terms[0].0, 5);
}
