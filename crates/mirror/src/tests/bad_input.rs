use super::*;

/// One mistake, and what is said about it; a sound pod beside it is still seen.
fn check(document: &str, expected: &str) {
    let sound = "{apiVersion: v1, kind: Pod, metadata: {name: sound}, spec: {containers: [{name: c}]}}";
    let picture = snapshot(&format!("{document}\n---\n{sound}"));
    assert_eq!(waiting(&picture), "default/sound", "{document}");
    let notes = notes(&picture);
    assert!(notes.starts_with(expected), "{document}\n  expected {expected}\n  found {notes}");
}

#[test]
fn a_pod_that_brings_a_defect_to_light_is_left_out_and_told_and_the_rest_goes_on() {
    check(
        &pod("").replace("name: p,", "name: panics,"),
        "Pod default/panics | spec | what it needs cannot be worked out, which is a defect of Kerf",
    );
}

#[test]
fn each_mistake_is_told_with_object_and_field_and_the_rest_goes_on() {
    let affinity = |expression: &str| {
        pod(&format!(
            "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchExpressions: [{expression}]}}]}}}}}}"
        ))
    };
    const TERM: &str = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]";
    for (document, expected) in [
        (
            pod("").replace("cpu: 1", "cpu: 1x"),
            "Pod default/p | spec.containers[0].resources.requests.cpu | \"1x\" is not a quantity".to_owned(),
        ),
        (pod("").replace("cpu: 1", "cpu: '-1'"), "Pod default/p | spec.containers[0].resources.requests.cpu | \"-1\" is negative".into()),
        (
            affinity("{key: a, operator: Within, values: [b]}"),
            format!("Pod default/p | {TERM}.matchExpressions[0].operator | unknown operator \"Within\""),
        ),
        (
            affinity("{key: a, operator: In, values: [b]}, {key: a, operator: In, values: [c]}"),
            format!("Pod default/p | {TERM} | a is asked to be In [b] and In [c] at once"),
        ),
        (
            affinity("{key: a, operator: In, values: [b]}").replace("spec: {", "spec: {nodeSelector: {a: c}, "),
            format!("Pod default/p | {TERM} | a is asked to be In [c] and In [b] at once"),
        ),
        (
            pod("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [n]}]}]}}}"),
            format!("Pod default/p | {TERM}.matchFields | node fields cannot be required"),
        ),
        (pod("nodeSelector: {kubernetes.io/hostname: n}"), "Pod default/p | spec.nodeSelector[kubernetes.io/hostname] |".into()),
        (pod("nodeSelector: {a: 'b c'}"), "Pod default/p | spec.nodeSelector[a] | \"b c\" cannot be".into()),
        (pod("tolerations: [{key: a, operator: Is}]"), "Pod default/p | spec.tolerations[0].operator | unknown operator \"Is\"".into()),
        (
            pod("topologySpreadConstraints: [{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]"),
            "Pod default/p | spec.topologySpreadConstraints[0].maxSkew | 0 is not above zero".into(),
        ),
        (
            pod("volumes: [{name: data, persistentVolumeClaim: {claimName: gone}}]"),
            "Pod default/p | spec.volumes[data] | PersistentVolumeClaim default/gone does not exist".into(),
        ),
        (pod("tolerations: 7"), "Pod default/p | spec.tolerations | invalid type: integer `7`".into()),
        ("{apiVersion: v1, kind: Pod, metadata: {name: p}}".into(), "Pod default/p | spec.containers | a pod needs".into()),
        ("{apiVersion: v1, kind: Pod, spec: {}}".into(), "Pod without a name | metadata.name | it has no name".into()),
        ("{kind: Pod}".into(), "Pod without a name |  | it has no apiVersion".into()),
        ("just words".into(), "object without a name |  | it is not a mapping".into()),
        (
            "{apiVersion: karpenter.sh/v1alpha9, kind: NodePool, metadata: {name: old}}".into(),
            "NodePool old | apiVersion | karpenter.sh/v1alpha9 is not read, only v1; so is v1beta1".into(),
        ),
        (
            "{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}}\n---\n{apiVersion: example.com/v1, kind: Thing, metadata: {name: b}}".into(),
            "Thing a | kind | Thing of example.com/v1 is not used for planning, nor are 1 more of the kind".into(),
        ),
        (
            "{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: lots}}}".into(),
            "Node n | status.allocatable.cpu | \"lots\" is not a quantity".into(),
        ),
        (
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {selector: {}, template: {spec: {containers: [{name: c, resources: {limits: {memory: 1GiB}}}]}}}}".into(),
            "Deployment default/d | spec.template.spec.containers[0].resources.limits.memory | \"1GiB\"".into(),
        ),
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}".into(), String::new()),
        ("{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: s}, spec: {}}".into(), String::new()),
    ] {
        check(&document, &expected);
    }
}

#[test]
fn a_pod_that_makes_no_sense_is_refused_with_the_same_words() {
    let picture = snapshot(&pod("").replace("cpu: 1", "cpu: 1x"));
    assert!(
        ill(&picture).starts_with("default/p: spec.containers[0].resources.requests.cpu: \"1x\""),
        "{}",
        ill(&picture)
    );
    let picture = snapshot(&pod("tolerations: 7"));
    assert!(ill(&picture).starts_with("default/p: spec.tolerations: invalid type"), "{}", ill(&picture));
}

#[test]
fn a_bad_preference_is_left_out_and_the_pod_still_counts() {
    let picture = snapshot(&pod(
        "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Like, values: [b]}]}}]}}",
    ));
    assert_eq!(waiting(&picture), "default/p");
    assert!(notes(&picture).contains("unknown operator \"Like\""));
    assert!(picture.demands[0].preferred_terms.is_empty());
}

#[test]
fn one_of_several_terms_may_contradict_itself() {
    let picture = snapshot(&pod(
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}, {key: a, operator: NotIn, values: [b]}]}, {matchExpressions: [{key: x, operator: Exists}]}]}}}",
    ));
    assert_eq!(waiting(&picture), "default/p");
    assert!(notes(&picture).contains("the other terms are used"));
    assert_eq!(picture.demands[0].required_terms.len(), 1);
}

#[test]
fn a_running_pod_with_an_odd_request_is_noted_and_not_refused() {
    let picture = snapshot(&format!(
        "{}\n---\n{{apiVersion: v1, kind: Node, metadata: {{name: n}}}}",
        pod("nodeName: n, nodeSelector: {kubernetes.io/hostname: n}").replace("cpu: 1", "cpu: 1x, memory: 1Gi")
    ));
    assert_eq!(ill(&picture), "");
    assert_eq!(picture.notes.len(), 1);
    assert_eq!(picture.nodes[0].used.to_string(), "memory 1Gi, pods 1");
}

#[test]
fn more_replicas_than_a_cluster_holds_are_cut_with_a_note() {
    let picture = snapshot(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 2000000000, selector: {}, template: {spec: {containers: [{name: c}]}}}}",
    );
    assert_eq!(picture.pods.len(), 500_000);
    assert!(notes(&picture).contains("more than a cluster holds"));
}
