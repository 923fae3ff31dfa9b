use super::*;
use kerf_model::{Namespaces, WhenUnsatisfiable};

const NAMESPACES: &str = "
---
{apiVersion: v1, kind: Namespace, metadata: {name: red, labels: {team: red}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: blue, labels: {team: blue}}}
";

#[test]
fn terms_know_their_namespaces() {
    for (term, expected) in [
        ("", "default"),
        ("namespaces: [x, y]", "x y"),
        ("namespaceSelector: {}", "*"),
        ("namespaceSelector: {matchLabels: {team: red}}", "red"),
        ("namespaceSelector: {matchLabels: {team: red}}, namespaces: [x]", "red x"),
        ("namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}", "default"),
        ("namespaceSelector: {matchLabels: {team: none}}", ""),
    ] {
        let comma = if term.is_empty() { "" } else { ", " };
        let picture = snapshot(
            &(pod(&format!(
                "affinity: {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{{topologyKey: kubernetes.io/hostname, labelSelector: {{}}{comma}{term}}}]}}}}"
            )) + NAMESPACES),
        );
        let found = match &picture.demands[0].anti_affinity[0].namespaces {
            Namespaces::All => "*".to_owned(),
            Namespaces::These(names) => names.iter().map(|n| &**n).collect::<Vec<_>>().join(" "),
        };
        assert_eq!(found, expected, "{term}");
    }
}

#[test]
fn label_keys_of_the_pod_join_the_selector() {
    let picture = snapshot(&pod(
        "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {}, matchLabelKeys: [app, absent]}]},
                    podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 3, podAffinityTerm: {topologyKey: zone, labelSelector: {}, mismatchLabelKeys: [app]}}]}},
         topologySpreadConstraints: [{maxSkew: 2, minDomains: 3, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchExpressions: [{key: x, operator: Exists}]}, matchLabelKeys: [app], nodeAffinityPolicy: Ignore, nodeTaintsPolicy: Honor},
                                     {maxSkew: 1, topologyKey: failure-domain.beta.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}]",
    ));
    assert_eq!(notes(&picture), "");
    let demand = &picture.demands[0];
    let affinity = demand.affinity[0].selector.as_ref().unwrap();
    assert_eq!(affinity.terms.len(), 1);
    assert!(affinity.matches(&demand.labels));
    let anti = demand.preferred_anti_affinity[0].1.selector.as_ref().unwrap();
    assert!(!anti.matches(&demand.labels));
    let spread = &demand.spreads[0];
    assert_eq!((spread.max_skew, spread.min_domains, spread.when), (2, Some(3), WhenUnsatisfiable::ScheduleAnyway));
    assert_eq!(spread.selector.as_ref().unwrap().terms.len(), 2);
    assert_eq!(format!("{:?} {:?}", spread.node_affinity_policy, spread.node_taints_policy), "Ignore Honor");
    assert_eq!(&*demand.spreads[1].topology_key, labels::ZONE);
    assert!(demand.spreads[1].selector.is_none());
    assert_eq!(demand.labels.len(), 1, "app is looked at");
}

#[test]
fn pods_that_look_alike_to_topology_are_counted_together() {
    let running = |name: &str, app: &str, serial: &str| {
        format!(
            "\n---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {app}, serial: s{serial}}}}}, spec: {{nodeName: n, containers: [{{name: c}}]}}}}"
        )
    };
    let yaml = pod(
        "topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: p}}}]",
    ) + "\n---\n{apiVersion: v1, kind: Node, metadata: {name: n}}"
        + &running("a", "p", "1")
        + &running("b", "p", "2")
        + &running("c", "q", "3");
    let picture = snapshot(&yaml);
    let groups: Vec<(String, u32)> =
        picture.bound.iter().map(|group| (group.shape.labels["app"].to_string(), group.n_pods)).collect();
    assert_eq!(groups, [("p".to_owned(), 2), ("q".to_owned(), 1)]);
}

fn with_defaults() -> MirrorSettings {
    let config = serde_json::json!({"podTopologySpread": {"defaultConstraints": [
        {"maxSkew": 3, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    ]}});
    let mut settings = files();
    settings.default_spreads = crate::read_scheduler_config("f", &config).unwrap();
    settings
}

#[test]
fn default_spreads_select_what_services_and_owners_select() {
    let service = "\n---\n{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {selector: {app: p}}}";
    let headless = "\n---\n{apiVersion: v1, kind: Service, metadata: {name: h}, spec: {}}";
    let set = "\n---\n{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: rs}, spec: {replicas: 1, selector: {matchLabels: {tier: web}}, template: {spec: {containers: [{name: c}]}}}}";
    let owned = pod("").replace(
        "name: p,",
        "name: p, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: u, controller: true}],",
    );
    for (story, yaml, expected) in [
        ("nothing selects it", pod(""), None),
        ("a service", pod("") + service, Some("app")),
        ("a service without selector", pod("") + headless, None),
        ("an owner", owned.clone() + set, Some("tier")),
        ("both", owned + set + service, Some("app tier")),
    ] {
        let picture = observed(with_defaults(), &yaml).snapshot(UnixMillis(0), &TestSupply);
        let pod = picture.pods.iter().find(|pod| &*pod.id.name == "p").unwrap();
        let keys = picture.demand(pod.demand).spreads.first().map(|spread| {
            let terms = &spread.selector.as_ref().unwrap().terms;
            terms.iter().map(|term| &*term.key).collect::<Vec<_>>().join(" ")
        });
        assert_eq!(keys.as_deref(), expected, "{story}");
    }
    let own =
        pod("topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]") + service;
    let picture = observed(with_defaults(), &own).snapshot(UnixMillis(0), &TestSupply);
    assert_eq!(picture.demands[0].spreads.len(), 1, "a pod with its own constraints keeps to them");
}

#[test]
fn a_scheduler_configuration_is_read_strictly() {
    for (config, expected) in [
        (
            "{podTopologySpread: {defaultConstraints: [{maxSkew: 0, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]}}",
            "defaultConstraints[0].maxSkew",
        ),
        (
            "{podTopologySpread: {defaultConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: Never}]}}",
            "defaultConstraints[0].whenUnsatisfiable",
        ),
        (
            "{podTopologySpread: {defaultConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}]}}",
            "defaultConstraints[0].labelSelector",
        ),
        (
            "{podTopologySpread: {defaultConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}, {maxSkew: 2, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]}}",
            "defaultConstraints[1]",
        ),
        ("{podTopologySpreads: {}}", "podTopologySpreads"),
        ("[]", ""),
    ] {
        let value: Value = serde_norway::from_str(config).unwrap();
        let notes = crate::read_scheduler_config("f", &value).unwrap_err();
        assert!(notes[0].field.ends_with(expected), "{config}: {notes:?}");
    }
    assert_eq!(crate::read_scheduler_config("f", &Value::Null).unwrap(), []);
}
