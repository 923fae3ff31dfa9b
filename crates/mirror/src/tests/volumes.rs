use super::*;

const CLASSES: &str = "
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: late}, provisioner: kubernetes.io/aws-ebs, volumeBindingMode: WaitForFirstConsumer, allowedTopologies: [{matchLabelExpressions: [{key: topology.ebs.csi.aws.com/zone, values: [a, b]}]}, {matchLabelExpressions: [{key: topology.kubernetes.io/zone, values: [c]}]}]}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: early}, provisioner: x}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: usual, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}, provisioner: y, volumeBindingMode: WaitForFirstConsumer}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: in-b}, spec: {csi: {driver: ebs.csi.aws.com, volumeHandle: h}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [b]}]}]}}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: local}, spec: {local: {path: /d}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n]}]}]}}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: going, deletionTimestamp: '2024-01-01T00:00:00Z'}, spec: {}}
";

fn with_claims(claims: &[&str]) -> Snapshot {
    let volumes: Vec<String> =
        (0..claims.len()).map(|i| format!("{{name: v{i}, persistentVolumeClaim: {{claimName: c{i}}}}}")).collect();
    let mut yaml = pod(&format!("volumes: [{}]", volumes.join(", "))) + CLASSES;
    for (i, claim) in claims.iter().enumerate() {
        yaml += &format!("\n---\n{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: c{i}}}, {claim}}}");
    }
    snapshot(&yaml)
}

#[test]
fn volumes_say_where_they_can_be_reached() {
    for (claims, expected) in [
        (vec!["spec: {volumeName: in-b}"], "topology.kubernetes.io/zone In [b]"),
        (
            vec!["spec: {storageClassName: late}"],
            "topology.kubernetes.io/zone In [a, b] | topology.kubernetes.io/zone In [c]",
        ),
        (vec!["spec: {volumeName: in-b}", "spec: {storageClassName: late}"], "topology.kubernetes.io/zone In [b]"),
        (vec!["spec: {volumeName: local}"], ""),
        (vec!["spec: {}"], ""),
        (vec!["spec: {volumeName: in-b}", "spec: {}"], "topology.kubernetes.io/zone In [b]"),
    ] {
        let picture = with_claims(&claims);
        assert_eq!(ill(&picture), "", "{claims:?}");
        let alternatives: Vec<String> =
            picture.demands[0].volumes.alternatives.iter().map(ToString::to_string).collect();
        assert_eq!(alternatives.join(" | "), expected, "{claims:?}");
    }
}

#[test]
fn volumes_that_cannot_be_had_say_why() {
    for (claim, expected) in [
        (
            "spec: {storageClassName: none-such}",
            "StorageClass none-such of PersistentVolumeClaim default/c0 does not exist",
        ),
        ("spec: {storageClassName: ''}", "PersistentVolumeClaim default/c0 is unbound, and asks for no StorageClass"),
        ("spec: {storageClassName: early}", "binds at once (Immediate)"),
        (
            "spec: {volumeName: none-such}",
            "PersistentVolume none-such of PersistentVolumeClaim default/c0 does not exist",
        ),
        ("spec: {volumeName: going}", "PersistentVolume going of PersistentVolumeClaim default/c0 is being deleted"),
        ("spec: {volumeName: in-b}, status: {phase: Lost}", "has lost its volume"),
    ] {
        let picture = with_claims(&[claim]);
        assert!(ill(&picture).contains(expected), "{claim}: {}", ill(&picture));
        assert!(ill(&picture).starts_with("default/p: spec.volumes[v0]: "), "{}", ill(&picture));
        assert!(notes(&picture).contains(expected), "{claim}");
    }
    let mut settings = files();
    settings.unsupported_drivers.insert("y".into());
    let yaml = pod("volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]")
        + CLASSES
        + "\n---\n{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {}}";
    let picture = observed(settings, &yaml).snapshot(UnixMillis(0), &TestSupply);
    assert!(ill(&picture).contains("driven by y, which no node of ours supports"));
}

#[test]
fn ephemeral_volumes_are_named_after_their_pod() {
    let spec = "volumes: [{name: scratch, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: late}}}}]";
    let missing = snapshot(&(pod(spec) + CLASSES));
    assert!(ill(&missing).contains("PersistentVolumeClaim default/p-scratch does not exist"));
    let job = format!(
        "{{apiVersion: batch/v1, kind: Job, metadata: {{name: j}}, spec: {{template: {{spec: {{containers: [{{name: c}}], {spec}}}}}}}}}"
    );
    let promised = snapshot(&(job + CLASSES));
    assert_eq!(waiting(&promised), "default/j-1");
    assert!(promised.demands[0].volumes.attachments["ebs.csi.aws.com"].contains("default/j-1-scratch"));
}
