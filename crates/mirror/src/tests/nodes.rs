use super::*;

const POOL: &str = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec: {template: {spec: {requirements: [], startupTaints: [{key: start, effect: NoSchedule}], nodeClassRef: {group: g, kind: TestNodeClass, name: a}}}}
";

fn node(labels: &str, taints: &str) -> String {
    format!(
        "{POOL}\n---\n{{apiVersion: v1, kind: Node, metadata: {{name: n, labels: {{{labels}}}}}, spec: {{providerID: id-1, taints: [{taints}]}}, status: {{capacity: {{cpu: 2}}, allocatable: {{cpu: 1900m}}}}}}"
    )
}

fn claim(status: &str) -> String {
    format!(
        "\n---\n{{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {{name: c, labels: {{karpenter.sh/nodepool: default}}}}, spec: {{taints: [{{key: own, effect: NoSchedule}}], startupTaints: [{{key: start, effect: NoSchedule}}], requirements: [{{key: node.kubernetes.io/instance-type, operator: In, values: [t.small]}}], resources: {{requests: {{cpu: 1}}}}, nodeClassRef: {{group: g, kind: TestNodeClass, name: a}}}}, status: {{{status}}}}}"
    )
}

fn taints(node: &kerf_model::Node) -> String {
    node.taints.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_node_comes_a_long_way() {
    let ours = "karpenter.sh/nodepool: default";
    let booting = "{key: karpenter.sh/unregistered, effect: NoExecute}, {key: node.kubernetes.io/not-ready, effect: NoSchedule}, {key: start, effect: NoSchedule}, {key: own, effect: NoSchedule}";
    for (story, yaml, stage, expected) in [
        ("not ours", node("", "{key: x, effect: NoSchedule}"), NodeStage::Initialized, "x:NoSchedule"),
        (
            "not ours, not ready",
            node("", "{key: node.kubernetes.io/not-ready, effect: NoSchedule}"),
            NodeStage::Initialized,
            "node.kubernetes.io/not-ready:NoSchedule",
        ),
        ("unregistered", node(ours, booting) + &claim("providerID: id-1"), NodeStage::InFlight, "own:NoSchedule"),
        (
            "registered",
            node(
                &format!("{ours}, karpenter.sh/registered: 'true'"),
                "{key: start, effect: NoSchedule, value: v}, {key: readiness.k8s.io/x, effect: NoExecute}, {key: y, effect: NoSchedule}",
            ) + &claim("providerID: id-1"),
            NodeStage::InFlight,
            "y:NoSchedule",
        ),
        (
            "registered, its claim not shown",
            node(&format!("{ours}, karpenter.sh/registered: 'true'"), "{key: start, effect: NoSchedule}"),
            NodeStage::InFlight,
            "",
        ),
        (
            "initialized: every taint counts",
            node(
                &format!("{ours}, karpenter.sh/registered: 'true', karpenter.sh/initialized: 'true'"),
                "{key: start, effect: NoSchedule}",
            ) + &claim("providerID: id-1"),
            NodeStage::Initialized,
            "start:NoSchedule",
        ),
        (
            "rebooting",
            node(
                &format!("{ours}, karpenter.sh/registered: 'true', karpenter.sh/initialized: 'true'"),
                "{key: karpenter.sh/rebooting, effect: NoSchedule}",
            ) + &claim(
                "providerID: id-1, conditions: [{type: Rebooting, status: 'True'}, {type: DisruptionReason, status: 'True'}]",
            ),
            NodeStage::InFlight,
            "",
        ),
        (
            "instance terminating",
            node(ours, "") + &claim("providerID: id-1, conditions: [{type: InstanceTerminating, status: 'True'}]"),
            NodeStage::Leaving,
            "own:NoSchedule",
        ),
        (
            "matched by node name",
            node(ours, "") + &claim("nodeName: n, conditions: [{type: DisruptionReason, status: 'True'}]"),
            NodeStage::Leaving,
            "own:NoSchedule",
        ),
    ] {
        let picture = snapshot(&yaml);
        assert_eq!(picture.nodes.len(), 1, "{story}");
        assert_eq!(picture.nodes[0].stage, stage, "{story}");
        assert_eq!(taints(&picture.nodes[0]), expected, "{story}");
    }
}

use kerf_model::NodeStage;

#[test]
fn a_cordoned_node_is_tainted() {
    let picture = snapshot("{apiVersion: v1, kind: Node, metadata: {name: n}, spec: {unschedulable: true}}");
    assert_eq!(taints(&picture.nodes[0]), "node.kubernetes.io/unschedulable:NoSchedule");
}

#[test]
fn a_claim_alone_is_a_node_on_its_way() {
    let picture =
        snapshot(&format!("{POOL}{}", claim("providerID: id-9, capacity: {cpu: 2}, allocatable: {cpu: 1900m}")));
    let node = &picture.nodes[0];
    assert_eq!((node.name.as_str(), node.stage), ("c", NodeStage::InFlight));
    assert_eq!(node.allocatable.to_string(), "cpu 1900m");
    assert_eq!(node.instance_type.as_ref().unwrap().as_str(), "t.small");
    assert_eq!(picture.pools[0].in_use.to_string(), "cpu 2, nodes 1");
    let unlaunched = snapshot(&format!("{POOL}{}", claim("")));
    assert_eq!(unlaunched.nodes[0].allocatable.to_string(), "cpu 1", "at least what was asked for");
}

#[test]
fn a_node_that_is_there_before_its_claim_knows_is_one_machine() {
    let yaml = node("kubernetes.io/hostname: c", "") + &claim("");
    assert_eq!(snapshot(&yaml).nodes.len(), 1);
    let other = node("kubernetes.io/hostname: d", "") + &claim("");
    assert_eq!(snapshot(&other).nodes.len(), 2);
}

#[test]
fn an_uninitialized_node_borrows_figures_from_its_claim() {
    let yaml = node("karpenter.sh/nodepool: default", "")
        + &claim("providerID: id-1, allocatable: {cpu: 7, memory: 1Gi}, capacity: {cpu: 8, nvidia.com/gpu: 1}");
    let picture = snapshot(&yaml);
    assert_eq!(picture.nodes[0].allocatable.to_string(), "cpu 1900m, memory 1Gi");
    assert_eq!(picture.nodes[0].capacity.to_string(), "cpu 2, nvidia.com/gpu 1");
}

#[test]
fn a_node_is_priced_by_what_its_labels_say() {
    for (labels, expected) in [
        (
            "karpenter.sh/nodepool: default, node.kubernetes.io/instance-type: t.small, topology.kubernetes.io/zone: b, karpenter.sh/capacity-type: on-demand",
            Some(1.1),
        ),
        (
            "karpenter.sh/nodepool: default, node.kubernetes.io/instance-type: t.small, topology.kubernetes.io/zone: a, karpenter.sh/capacity-type: spot",
            Some(0.3),
        ),
        (
            "karpenter.sh/nodepool: default, node.kubernetes.io/instance-type: t.small, topology.kubernetes.io/zone: a",
            Some(1.0),
        ),
        ("node.kubernetes.io/instance-type: m5.large", Some(0.096)),
        ("node.kubernetes.io/instance-type: unheard-of", None),
        ("", None),
    ] {
        let picture = snapshot(&node(labels, ""));
        assert_eq!(picture.nodes[0].price.map(Money::dollars), expected, "{labels}");
    }
}

#[test]
fn pods_take_room_ports_and_volumes_on_their_node() {
    let yaml = node("node.kubernetes.io/instance-type: t.small, karpenter.sh/nodepool: default", "")
        + "
---
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeName: n, volumes: [{name: v, persistentVolumeClaim: {claimName: claim}}], containers: [{name: c, ports: [{containerPort: 1, hostPort: 80}], resources: {requests: {cpu: 1}}}]}, status: {phase: Running}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b, deletionTimestamp: '2024-01-01T00:00:00Z'}, spec: {nodeName: n, containers: [{name: c, resources: {requests: {cpu: 1}}}]}, status: {phase: Running}}
---
{apiVersion: v1, kind: Pod, metadata: {name: done}, spec: {nodeName: n, containers: [{name: c, resources: {requests: {cpu: 1}}}]}, status: {phase: Failed}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: claim}, spec: {volumeName: pv}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv}, spec: {csi: {driver: ebs.csi.aws.com, volumeHandle: h}}}
---
{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: n}, spec: {drivers: [{name: other, nodeID: n, allocatable: {count: 3}}, {name: free, nodeID: n}]}}
";
    let picture = snapshot(&yaml);
    let node = &picture.nodes[0];
    assert_eq!(node.used.to_string(), "cpu 2, pods 2");
    assert_eq!(node.host_ports[0].port, 80);
    assert!(node.attached["ebs.csi.aws.com"].contains("default/claim"));
    assert_eq!(format!("{:?}", node.attach_limits), "{\"ebs.csi.aws.com\": 26, \"other\": 3}");
    assert_eq!(picture.bound.iter().map(|group| group.n_pods).sum::<u32>(), 1, "terminating pods are not counted");
}

#[test]
fn pods_of_a_leaving_node_want_a_new_place_if_they_can_move() {
    let leaving =
        "{apiVersion: v1, kind: Node, metadata: {name: n, deletionTimestamp: '2024-01-01T00:00:00Z', finalizers: [x]}}";
    let pod = |metadata: &str, spec: &str| {
        format!(
            "\n---\n{{apiVersion: v1, kind: Pod, metadata: {{name: p, labels: {{app: p}}, {metadata}}}, spec: {{nodeName: n, containers: [{{name: c}}], {spec}}}, status: {{phase: Running, startTime: '2023-11-14T22:00:00Z'}}}}"
        )
    };
    let shut = "\n---\n{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b}, spec: {maxUnavailable: 0, selector: {matchLabels: {app: p}}}}";
    let open = |name: &str| {
        format!(
            "\n---\n{{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {{name: {name}}}, spec: {{maxUnavailable: 1, selector: {{matchLabels: {{app: p}}}}}}}}"
        )
    };
    let owner = |kind: &str| {
        format!("ownerReferences: [{{apiVersion: apps/v1, kind: {kind}, name: o, uid: u, controller: true}}]")
    };
    let deleting = "deletionTimestamp: '2024-01-01T00:00:00Z'";
    for (story, yaml, moves) in [
        ("plain", pod("", ""), true),
        ("held for ever", pod("annotations: {karpenter.sh/do-not-disrupt: 'true'}", ""), false),
        ("held for ever, in older words", pod("annotations: {karpenter.sh/do-not-evict: 'true'}", ""), false),
        // The picture is taken at 22:13:20.
        ("held for an hour that lasts", pod("annotations: {karpenter.sh/do-not-disrupt: 1h}", ""), false),
        ("held for minutes that are over", pod("annotations: {karpenter.sh/do-not-disrupt: 10m}", ""), true),
        ("terminating", pod(deleting, ""), false),
        ("terminating, of a StatefulSet", pod(&format!("{deleting}, {}", owner("StatefulSet")), ""), true),
        ("daemon", pod(&owner("DaemonSet"), ""), false),
        ("guarded", pod("", "") + shut, false),
        ("guarded loosely", pod("", "") + &open("a"), true),
        ("guarded twice", pod("", "") + &open("a") + &open("b"), false),
        ("guarded, but never evicted", pod("", "tolerations: [{operator: Exists}]") + shut, true),
    ] {
        let picture = snapshot(&format!("{leaving}{yaml}"));
        assert_eq!(picture.pods.len() == 1, moves, "{story}");
        if moves {
            assert_eq!(picture.pods[0].leaving.as_ref().unwrap().as_str(), "n", "{story}");
            assert!(picture.bound.is_empty(), "{story}");
        }
    }
}

#[test]
fn pods_on_nodes_that_are_not_shown_are_told_once() {
    let picture = snapshot(
        &(pod("nodeName: elsewhere") + "\n---\n" + &pod("nodeName: elsewhere").replace("name: p,", "name: q,")),
    );
    assert_eq!(picture.notes.len(), 1);
    assert!(notes(&picture).contains("it runs on elsewhere, which is not shown here, and 1 more pods"));
}

#[test]
fn a_machine_counts_against_its_limit_until_its_claim_or_node_is_deleted_whatever_it_is_marked_with() {
    let ours = "karpenter.sh/nodepool: default";
    let marked = claim("providerID: id-1, conditions: [{type: DisruptionReason, status: 'True'}]");
    let deleted = marked.replace("name: c,", "name: c, deletionTimestamp: '2026-01-01T00:00:00Z',");
    for (story, yaml, in_use, usage) in [
        ("marked", node(ours, "") + &marked, "cpu 2, nodes 1", None),
        ("deleted", node(ours, "") + &deleted, "nodes 0", None),
        ("neither", node(ours, "") + &claim("providerID: id-1"), "cpu 2, nodes 1", Some("cpu 2, nodes 1")),
    ] {
        let mirror = observed(MirrorSettings::new(View::Files), &format!("{POOL}{yaml}"));
        let pool = &mirror.snapshot(UnixMillis(0), &TestSupply).pools[0];
        assert_eq!(pool.in_use.to_string(), in_use, "{story}");
        assert_eq!(mirror.usage().get(&pool.name).map(ToString::to_string).as_deref(), usage, "{story}");
    }
}

#[test]
fn until_the_cloud_has_answered_a_claim_counts_with_what_it_reserves() {
    let reserving = |text: &str, status: &str| {
        claim(status).replace("name: c,", &format!("name: c, annotations: {{kerf.dev/reserves: '{text}'}},"))
    };
    let reserves = r#"{"cpu":"16","nodes":"1"}"#;
    for (story, yaml, expected) in [
        ("reserved", reserving(reserves, ""), "cpu 16, nodes 1"),
        ("bought", reserving(reserves, "capacity: {cpu: 4}"), "cpu 4, nodes 1"),
        ("nothing reserved", claim(""), "cpu 1, nodes 1"),
        ("there", reserving(reserves, "providerID: id-1") + "\n---\n" + &node("", ""), "cpu 2, nodes 1"),
        ("nonsense", reserving("many", ""), "cpu 1, nodes 1"),
    ] {
        let mirror = observed(MirrorSettings::new(View::Files), &format!("{POOL}{yaml}"));
        let picture = mirror.snapshot(UnixMillis(0), &TestSupply);
        assert_eq!(picture.pools[0].in_use.to_string(), expected, "{story}");
        assert_eq!(mirror.usage()[&picture.pools[0].name].to_string(), expected, "{story}");
        let is_noted = picture.notes.iter().any(|note| note.field.contains("kerf.dev/reserves"));
        assert_eq!(is_noted, story == "nonsense", "{story}");
    }
}
