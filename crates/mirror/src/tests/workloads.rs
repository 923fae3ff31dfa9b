use super::*;

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: inflate}
spec:
  replicas: 3
  selector: {matchLabels: {app: inflate}}
  template:
    metadata: {labels: {app: inflate}}
    spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}
";

fn replica_set(name: &str, owner: &str) -> String {
    format!(
        "\n---\n{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: {name}, ownerReferences: [{{apiVersion: apps/v1, kind: Deployment, name: {owner}, uid: u, controller: true}}]}}, spec: {{replicas: 3, selector: {{matchLabels: {{app: inflate}}}}, template: {{metadata: {{labels: {{app: inflate}}}}, spec: {{containers: [{{name: c}}]}}}}}}}}"
    )
}

fn owned(name: &str, kind: &str, owner: &str) -> String {
    format!(
        "\n---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: inflate}}, ownerReferences: [{{apiVersion: apps/v1, kind: {kind}, name: {owner}, uid: u, controller: true}}]}}, spec: {{nodeName: gone, containers: [{{name: c}}]}}}}"
    )
}

#[test]
fn a_deployment_without_pods_counts_with_those_it_would_create() {
    let picture = snapshot(DEPLOYMENT);
    assert_eq!(waiting(&picture), "default/inflate-1 default/inflate-2 default/inflate-3");
    assert_eq!(picture.demands.len(), 1);
    assert_eq!(picture.demands[0].requests.to_string(), "cpu 1, pods 1");
    let live = observed(MirrorSettings::new(View::Live), DEPLOYMENT).snapshot(UnixMillis(0), &TestSupply);
    assert!(live.pods.is_empty(), "in a live cluster the controller makes them");
}

#[test]
fn nothing_counts_twice() {
    let pods = owned("inflate-x-1", "ReplicaSet", "inflate-x") + &owned("inflate-x-2", "ReplicaSet", "inflate-x");
    for (story, yaml, expected) in [
        ("by ReplicaSet", format!("{DEPLOYMENT}{}{pods}", replica_set("inflate-x", "inflate")), 1),
        ("by selector", format!("{DEPLOYMENT}{pods}"), 1),
        ("the set of another", format!("{DEPLOYMENT}{}{pods}", replica_set("inflate-x", "other")), 3 + 1),
        ("all there", format!("{DEPLOYMENT}{pods}{}", owned("inflate-x-3", "ReplicaSet", "inflate-x")), 0),
        (
            "more than wanted, in a rollout",
            format!("{DEPLOYMENT}{pods}{}", owned("a", "ReplicaSet", "y") + &owned("b", "ReplicaSet", "y")),
            0,
        ),
    ] {
        assert_eq!(snapshot(&yaml).pods.len(), expected, "{story}");
    }
}

#[test]
fn pods_that_were_not_shown_are_not_planned_again() {
    let picture = snapshot(&format!("{DEPLOYMENT}status: {{replicas: 2}}\n"));
    assert_eq!(waiting(&picture), "default/inflate-1");
    assert!(notes(&picture).contains("it has 2 pods, of which 0 are shown here"));
}

#[test]
fn each_kind_of_workload_says_how_many() {
    let template = "template: {spec: {containers: [{name: c}]}}";
    for (document, expected) in [
        (format!("{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: w}}, spec: {{selector: {{}}, {template}}}}}"), "default/w-1"),
        (format!("{{apiVersion: v1, kind: ReplicationController, metadata: {{name: w}}, spec: {{replicas: 2, {template}}}}}"), "default/w-1 default/w-2"),
        (
            format!("{{apiVersion: apps/v1, kind: StatefulSet, metadata: {{name: w, namespace: n}}, spec: {{replicas: 2, selector: {{}}, {template}}}}}"),
            "n/w-0 n/w-1",
        ),
        (format!("{{apiVersion: batch/v1, kind: Job, metadata: {{name: w}}, spec: {{parallelism: 3, completions: 2, {template}}}}}"), "default/w-1 default/w-2"),
        (format!("{{apiVersion: batch/v1, kind: Job, metadata: {{name: w}}, spec: {{suspend: true, {template}}}}}"), ""),
        (
            format!("{{apiVersion: batch/v1, kind: Job, metadata: {{name: w}}, spec: {{{template}}}, status: {{conditions: [{{type: Complete, status: 'True'}}]}}}}"),
            "",
        ),
        (format!("{{apiVersion: batch/v1, kind: CronJob, metadata: {{name: w}}, spec: {{jobTemplate: {{spec: {{{template}}}}}}}}}"), ""),
        (format!("{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: w}}, spec: {{replicas: 0, selector: {{}}, {template}}}}}"), ""),
        (
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: w}, spec: {selector: {}, template: {spec: {schedulerName: fargate-scheduler, containers: [{name: c}]}}}}".into(),
            "",
        ),
    ] {
        let picture = snapshot(&document);
        assert_eq!(waiting(&picture), expected, "{document}");
        assert_eq!(notes(&picture), "", "{document}");
    }
}

#[test]
fn a_stateful_set_brings_its_claims() {
    let set = "
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {replicas: 2, selector: {}, template: {spec: {containers: [{name: c}]}}, volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: zonal}}]}}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: zonal}, provisioner: ebs.csi.aws.com, volumeBindingMode: WaitForFirstConsumer, allowedTopologies: [{matchLabelExpressions: [{key: topology.kubernetes.io/zone, values: [a]}]}]}
";
    let picture = snapshot(set);
    assert_eq!(waiting(&picture), "default/db-0 default/db-1");
    let volumes = &picture.demands[0].volumes;
    assert_eq!(volumes.alternatives[0].to_string(), "topology.kubernetes.io/zone In [a]");
    assert!(volumes.attachments["ebs.csi.aws.com"].contains("default/data-db-0"));
}

#[test]
fn the_namespace_gives_what_a_template_does_not_say() {
    let range = "\n---\n{apiVersion: v1, kind: LimitRange, metadata: {name: r, namespace: n}, spec: {limits: [{type: Container, default: {cpu: 2}, defaultRequest: {cpu: 500m, memory: 64Mi}}]}}";
    let daemon = "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d, namespace: n}, spec: {selector: {}, template: {spec: {containers: [{name: c, resources: {limits: {memory: 1Gi}}}]}}}}";
    let picture = snapshot(&format!("{daemon}{range}"));
    assert_eq!(picture.daemons[0].demand.requests.to_string(), "cpu 500m, memory 1Gi, pods 1");
}

#[test]
fn a_daemon_set_is_represented_by_its_newest_pod() {
    let owner = "ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: u, controller: true}]";
    let affinity = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [n]}]}]}}}";
    let pod = |name: &str, day: u32, cpu: &str| {
        format!(
            "\n---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, creationTimestamp: '2024-01-0{day}T00:00:00Z', {owner}}}, spec: {{nodeName: n, {affinity}, containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}"
        )
    };
    let daemon = "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d}, spec: {selector: {}, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}], affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: x, operator: Exists}]}]}}}}}}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: n}}";
    let picture = snapshot(&format!("{daemon}{}{}", pod("old", 1, "2"), pod("new", 2, "3")));
    assert_eq!(notes(&picture), "");
    assert_eq!(&*picture.daemons[0].name, "default/d");
    let demand = &picture.daemons[0].demand;
    assert_eq!(demand.requests.to_string(), "cpu 3, pods 1");
    assert_eq!(demand.required_terms[0].to_string(), "x Exists");
    assert_eq!(picture.nodes[0].used_by_daemons.to_string(), "cpu 5, pods 2");
    assert_eq!(picture.pods.len(), 0);
}

#[test]
fn capacity_buffers_become_virtual_pods_when_switched_on() {
    let yaml = format!(
        "{DEPLOYMENT}\n---\n{{apiVersion: autoscaling.x-k8s.io/v1beta1, kind: CapacityBuffer, metadata: {{name: spare}}, spec: {{scalableRef: {{apiGroup: apps, kind: Deployment, name: inflate}}, percentage: 50}}}}"
    );
    let mut settings = files();
    settings.gates.capacity_buffer = true;
    let picture = observed(settings, &yaml).snapshot(UnixMillis(0), &TestSupply);
    let virtual_pods: Vec<String> =
        picture.pods.iter().filter(|pod| pod.is_virtual).map(|pod| pod.id.to_string()).collect();
    assert_eq!(virtual_pods, ["default/capacity-buffer-spare-1", "default/capacity-buffer-spare-2"]);
    assert_eq!(picture.demands.len(), 1, "they look like what they imitate");
    let off = snapshot(&yaml);
    assert_eq!(off.pods.len(), 3);
    assert!(notes(&off).contains("feature gate CapacityBuffer is off"));
}
