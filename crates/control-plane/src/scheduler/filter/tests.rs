//! A table for each check. That the words and sets are the real ones is proved against the real scheduler in `e2e`.

use serde_json::{Value, json};

use super::super::testing::{asking, cluster, facts, node, over, placed, pod, put, said};
use super::super::{Cluster, verdicts};

fn labelled(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}})
}

fn zoned(name: &str, zone: &str) -> Value {
    node(name, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}))
}

fn check(cluster: &Cluster, rows: &[(Value, &str)]) {
    for (wanted, expected) in rows {
        assert_eq!(said(cluster, wanted), *expected, "{wanted}");
    }
}

#[test]
fn a_cordoned_or_tainted_node_takes_who_tolerates_it() {
    let cluster = cluster(
        &[
            node("cordoned", json!({"spec": {"unschedulable": true}})),
            node("tainted", json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}})),
            node("soft", json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}})),
        ],
        &[],
    );
    let tolerating = |key: &str| pod("p", json!({"spec": {"tolerations": [{"key": key, "operator": "Exists"}]}}));
    check(
        &cluster,
        &[
            (
                pod("p", json!({})),
                "cordoned: node(s) were unschedulable!\ntainted: node(s) had untolerated taint(s)!\nsoft: fits",
            ),
            (tolerating("k"), "cordoned: node(s) were unschedulable!\ntainted: fits\nsoft: fits"),
            (
                tolerating("node.kubernetes.io/unschedulable"),
                "cordoned: fits\ntainted: node(s) had untolerated taint(s)!\nsoft: fits",
            ),
        ],
    );
}

#[test]
fn a_pod_goes_where_its_selector_and_terms_allow() {
    let cluster = cluster(&[node("n1", json!({"metadata": {"labels": {"disk": "ssd"}}})), node("n2", json!({}))], &[]);
    let terms = |terms: Value| {
        pod(
            "p",
            json!({"spec": {"affinity": {"nodeAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}}),
        )
    };
    let named = |name: &str| json!({"key": "metadata.name", "operator": "In", "values": [name]});
    check(
        &cluster,
        &[
            (
                pod("p", json!({"spec": {"nodeSelector": {"disk": "ssd"}}})),
                "n1: fits\nn2: node(s) didn't match Pod's node affinity/selector!",
            ),
            (
                terms(json!([{"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]}])),
                "n1: node(s) didn't match Pod's node affinity/selector!\nn2: fits",
            ),
            (
                terms(json!([{"matchFields": [named("n2")]}])),
                "n1: node(s) didn't satisfy plugin(s) [NodeAffinity]!\nn2: fits",
            ),
            (terms(json!([{"matchFields": [named("n1"), named("n2")]}])), "pod affinity terms conflict"),
        ],
    );
}

#[test]
fn what_does_not_fit_is_named_resource_by_resource() {
    let small = node("small", json!({"status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "1"}}}));
    let gpu = node("gpu", json!({"status": {"allocatable": {"kerf.test/gpu": "1"}}}));
    let cluster =
        cluster(&[small, gpu], &[placed("a", "small", asking("500m", "1Gi")), placed("b", "gpu", asking("3", "1Gi"))]);
    let gpus = |count: &str| {
        over(
            pod("p", json!({})),
            json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"kerf.test/gpu": count}}}]}}),
        )
    };
    check(
        &cluster,
        &[
            (pod("p", json!({})), "small: Too many pods\ngpu: fits"),
            (pod("p", asking("1", "1Gi")), "small: Too many pods, Insufficient cpu, Insufficient memory\ngpu: fits"),
            (
                pod("p", asking("2", "1Gi")),
                "small: Too many pods, Insufficient cpu, Insufficient memory!\ngpu: Insufficient cpu",
            ),
            (gpus("1"), "small: Too many pods, Insufficient kerf.test/gpu!\ngpu: fits"),
        ],
    );
}

#[test]
fn a_host_port_is_taken_once() {
    let port =
        |port: i32| json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": port}]}]}});
    let cluster = cluster(&[node("n1", json!({}))], &[placed("a", "n1", port(80))]);
    check(
        &cluster,
        &[
            (pod("p", port(80)), "n1: node(s) didn't have free ports for the requested pod ports"),
            (pod("p", port(81)), "n1: fits"),
        ],
    );
}

#[test]
fn pods_keep_near_to_and_away_from_each_other() {
    let rule = |kind: &str, app: &str, key: &str| {
        json!({"spec": {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution":
            [{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}]}}}})
    };
    let zone = "topology.kubernetes.io/zone";
    let bare = node("bare", json!({"metadata": {"labels": {"topology.kubernetes.io/zone": null}}}));
    let cluster = cluster(
        &[zoned("a1", "a"), zoned("a2", "a"), zoned("b1", "b"), bare],
        &[
            placed("web", "a1", labelled("web")),
            placed("loner", "b1", over(labelled("loner"), rule("podAntiAffinity", "db", "kubernetes.io/hostname"))),
            placed("gone", "b1", over(labelled("web"), json!({"status": {"phase": "Succeeded"}}))),
        ],
    );
    let with = |app: &str, rule: Value| over(pod("p", labelled(app)), rule);
    let nobody = "node(s) didn't match pod affinity rules!";
    let (near, nowhere, first) = (
        format!("a1: fits\na2: fits\nb1: {nobody}\nbare: {nobody}"),
        format!("a1: {nobody}\na2: {nobody}\nb1: {nobody}\nbare: {nobody}"),
        format!("a1: fits\na2: fits\nb1: fits\nbare: {nobody}"),
    );
    check(
        &cluster,
        &[
            (with("x", rule("podAffinity", "web", zone)), &near),
            (with("x", rule("podAffinity", "nobody", zone)), &nowhere),
            (with("first", rule("podAffinity", "first", zone)), &first),
            (
                with("x", rule("podAntiAffinity", "web", zone)),
                "a1: node(s) didn't match pod anti-affinity rules\na2: node(s) didn't match pod anti-affinity rules\nb1: fits\nbare: fits",
            ),
            (
                pod("p", labelled("db")),
                "a1: fits\na2: fits\nb1: node(s) didn't satisfy existing pods anti-affinity rules\nbare: fits",
            ),
        ],
    );
}

#[test]
fn a_rule_looks_into_the_namespaces_it_names() {
    let away = |more: Value| {
        let mut term = json!({"labelSelector": {}, "topologyKey": "kubernetes.io/hostname"});
        term = over(term, more);
        pod(
            "p",
            json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}}),
        )
    };
    let cluster = cluster(&[node("n1", json!({}))], &[placed("a", "n1", json!({"metadata": {"namespace": "other"}}))]);
    let (fits, refused) = ("n1: fits", "n1: node(s) didn't match pod anti-affinity rules");
    check(
        &cluster,
        &[
            (away(json!({})), fits),
            (away(json!({"namespaces": ["other"]})), refused),
            (away(json!({"namespaceSelector": {}})), refused),
            (away(json!({"namespaceSelector": {"matchLabels": {"team": "other"}}})), refused),
            (away(json!({"namespaceSelector": {"matchLabels": {"team": "third"}}})), fits),
            (away(json!({"namespaces": ["other"], "labelSelector": null})), fits),
        ],
    );
}

#[test]
fn spread_counts_what_its_policies_include() {
    let cluster = cluster(
        &[
            zoned("a1", "a"),
            zoned("b1", "b"),
            over(zoned("c1", "c"), json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})),
            node("bare", json!({"metadata": {"labels": {"topology.kubernetes.io/zone": null}}})),
        ],
        &[
            placed("w1", "a1", labelled("web")),
            placed("w2", "a1", labelled("web")),
            placed("w3", "b1", labelled("web")),
            placed(
                "w4",
                "b1",
                over(labelled("web"), json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
            ),
        ],
    );
    let spread = |more: Value| {
        let constraint = over(
            json!({"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}}}),
            more,
        );
        over(pod("p", labelled("web")), json!({"spec": {"topologySpreadConstraints": [constraint]}}))
    };
    let lines = |a: &str, b: &str| {
        format!(
            "a1: {a}\nb1: {b}\nc1: node(s) had untolerated taint(s)!\nbare: node(s) didn't match pod topology spread constraints (missing required label)!"
        )
    };
    let full = "node(s) didn't match pod topology spread constraints";
    for (more, expected) in [
        // The tainted zone is empty, and counts unless its taints are honoured.
        (json!({}), lines(full, full)),
        (json!({"maxSkew": 2}), lines(full, "fits")),
        (json!({"nodeTaintsPolicy": "Honor"}), lines(full, "fits")),
        (json!({"nodeTaintsPolicy": "Honor", "minDomains": 3}), lines(full, full)),
        (
            json!({"whenUnsatisfiable": "ScheduleAnyway"}),
            "a1: fits\nb1: fits\nc1: node(s) had untolerated taint(s)!\nbare: fits".to_owned(),
        ),
        (json!({"labelSelector": {"matchLabels": {"app": "other"}}}), lines("fits", "fits")),
    ] {
        let wanted = spread(more);
        assert_eq!(said(&cluster, &wanted), expected, "{wanted}");
    }
}

fn claim(name: &str, more: Value) -> Value {
    let base = json!({"metadata": {"namespace": "default", "name": name, "uid": format!("uid-{name}")},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}, "storageClassName": "wait"}});
    over(base, more)
}

fn bound(name: &str, volume: &str) -> Value {
    claim(
        name,
        json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": volume}}),
    )
}

fn volume(name: &str, more: Value) -> Value {
    let base = json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"],
        "storageClassName": "wait"}, "status": {"phase": "Available"}});
    over(base, more)
}

fn mounting(claim: &str) -> Value {
    pod("p", json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}}))
}

fn only_zone(zone: &str) -> Value {
    json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions":
        [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]}]}}}})
}

fn storage_cluster() -> Cluster {
    let mut cluster = cluster(&[zoned("a1", "a"), zoned("b1", "b")], &[]);
    for (name, provisioner, mode, zones) in [
        ("wait", "kubernetes.io/no-provisioner", "WaitForFirstConsumer", json!(null)),
        (
            "make",
            "csi.test",
            "WaitForFirstConsumer",
            json!([{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["b"]}]}]),
        ),
        ("now", "csi.test", "Immediate", json!(null)),
    ] {
        let class = json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, "allowedTopologies": zones});
        put(&mut cluster, "storageclasses", &class);
    }
    cluster
}

#[test]
fn a_pod_follows_its_volumes() {
    let mut cluster = storage_cluster();
    for (plural, object) in [
        ("persistentvolumes", volume("free-a", only_zone("a"))),
        (
            "persistentvolumes",
            volume(
                "held-b",
                over(only_zone("b"), json!({"spec": {"claimRef": {"namespace": "default", "name": "bound"}}})),
            ),
        ),
        (
            "persistentvolumes",
            volume(
                "zoned",
                json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "a__c"}}, "spec": {"claimRef": {"namespace": "default", "name": "zone"}, "storageClassName": "make"}}),
            ),
        ),
        ("persistentvolumeclaims", claim("open", json!({}))),
        ("persistentvolumeclaims", claim("large", json!({"spec": {"resources": {"requests": {"storage": "6Gi"}}}}))),
        ("persistentvolumeclaims", claim("made", json!({"spec": {"storageClassName": "make"}}))),
        (
            "persistentvolumeclaims",
            claim(
                "chosen",
                json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "b1"}}, "spec": {"storageClassName": "make"}}),
            ),
        ),
        ("persistentvolumeclaims", claim("now", json!({"spec": {"storageClassName": "now"}}))),
        (
            "persistentvolumeclaims",
            claim("leaving", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
        ),
        ("persistentvolumeclaims", bound("bound", "held-b")),
        ("persistentvolumeclaims", bound("zone", "zoned")),
        ("persistentvolumeclaims", bound("lost", "never")),
    ] {
        put(&mut cluster, plural, &object);
    }
    let none = "node(s) didn't find available persistent volumes to bind!";
    for (claim, expected) in [
        ("open", format!("a1: fits\nb1: {none}")),
        ("large", format!("a1: {none}\nb1: {none}")),
        ("made", format!("a1: {none}\nb1: fits")),
        ("chosen", format!("a1: {none}\nb1: fits")),
        ("now", "pod has unbound immediate PersistentVolumeClaims".to_owned()),
        ("leaving", "persistentvolumeclaim \"leaving\" is being deleted".to_owned()),
        ("bound", "a1: node(s) didn't match PersistentVolume's node affinity!\nb1: fits".to_owned()),
        ("zone", "a1: fits\nb1: node(s) had no available volume zone!".to_owned()),
        ("lost", "persistentvolume \"never\" not found".to_owned()),
        ("absent", "persistentvolumeclaim \"absent\" not found".to_owned()),
    ] {
        assert_eq!(said(&cluster, &mounting(claim)), expected, "{claim}");
    }
}

#[test]
fn a_claim_for_one_pod_serves_one_pod() {
    let mut cluster = storage_cluster();
    put(&mut cluster, "persistentvolumes", &volume("v", json!({})));
    put(
        &mut cluster,
        "persistentvolumeclaims",
        &over(bound("mine", "v"), json!({"spec": {"accessModes": ["ReadWriteOncePod"]}})),
    );
    assert_eq!(said(&cluster, &mounting("mine")), "a1: fits\nb1: fits");
    let user = over(mounting("mine"), json!({"metadata": {"name": "user"}, "spec": {"nodeName": "a1"}}));
    put(&mut cluster, "pods", &user);
    let taken = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
    assert_eq!(said(&cluster, &mounting("mine")), format!("a1: {taken}\nb1: {taken}"));
}

#[test]
fn a_node_holds_as_many_volumes_as_its_driver_says() {
    let mut cluster = storage_cluster();
    for name in ["one", "two"] {
        let csi = json!({"spec": {"csi": {"driver": "csi.test", "volumeHandle": name}}});
        put(&mut cluster, "persistentvolumes", &volume(name, csi));
        put(&mut cluster, "persistentvolumeclaims", &bound(name, name));
    }
    put(
        &mut cluster,
        "csinodes",
        &json!({"metadata": {"name": "a1"}, "spec": {"drivers": [{"name": "csi.test", "nodeID": "a1", "allocatable": {"count": 1}}]}}),
    );
    put(
        &mut cluster,
        "pods",
        &over(mounting("one"), json!({"metadata": {"name": "user"}, "spec": {"nodeName": "a1"}})),
    );
    assert_eq!(said(&cluster, &mounting("one")), "a1: fits\nb1: fits");
    assert_eq!(said(&cluster, &mounting("two")), "a1: node(s) exceed max volume count\nb1: fits");
}

#[test]
fn a_disk_named_in_the_pod_is_not_shared() {
    let disk = json!({"spec": {"volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": "d"}}]}});
    let cluster = cluster(&[node("n1", json!({})), node("n2", json!({}))], &[placed("a", "n1", disk.clone())]);
    assert_eq!(said(&cluster, &pod("p", disk)), "n1: node(s) had no available disk\nn2: fits");
}

#[test]
fn room_made_for_an_important_pod_is_kept_for_it() {
    let important =
        over(pod("vip", asking("3", "1Gi")), json!({"spec": {"priority": 10}, "status": {"nominatedNodeName": "n1"}}));
    let cluster = cluster(&[node("n1", json!({}))], std::slice::from_ref(&important));
    assert_eq!(said(&cluster, &pod("p", asking("2", "1Gi"))), "n1: Insufficient cpu");
    let above = over(pod("p", asking("2", "1Gi")), json!({"spec": {"priority": 11}}));
    assert_eq!(said(&cluster, &above), "n1: fits");
    assert_eq!(said(&cluster, &important), "n1: fits");
}

#[test]
fn counts_kept_along_the_way_equal_counts_made_anew() {
    let rule = json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        [{"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "topology.kubernetes.io/zone"}]}}}});
    let probe = over(
        over(pod("p", labelled("web")), rule.clone()),
        json!({"spec": {"topologySpreadConstraints":
        [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]}}),
    );
    let nodes = [zoned("a1", "a"), zoned("b1", "b"), zoned("c1", "c")];
    let mut kept = cluster(&nodes, &[]);
    let steps = [
        ("put", placed("x", "a1", labelled("web"))),
        ("put", placed("y", "b1", over(labelled("db"), rule))),
        ("put", placed("x", "a1", labelled("db"))),
        ("drop", placed("y", "b1", json!({}))),
        ("put", placed("z", "later", labelled("web"))),
        ("node", zoned("later", "c")),
        ("unnode", zoned("a1", "a")),
        ("put", placed("x", "a1", labelled("web"))),
        ("node", zoned("a1", "b")),
    ];
    let (mut nodes, mut pods): (Vec<Value>, Vec<Value>) = (nodes.to_vec(), Vec::new());
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    for (what, object) in steps {
        let list = if what.ends_with("node") { &mut nodes } else { &mut pods };
        list.retain(|other| name(other) != name(&object));
        let key = crate::store::Key::new(object["metadata"]["namespace"].as_str().unwrap_or_default(), &name(&object));
        match what {
            "drop" => kept.remove("", "pods", &key),
            "unnode" => kept.remove("", "nodes", &key),
            "put" => {
                list.push(object.clone());
                put(&mut kept, "pods", &object);
            }
            _ => {
                list.push(object.clone());
                put(&mut kept, "nodes", &object);
            }
        }
        let anew = cluster(&nodes, &pods);
        let sorted = |cluster: &Cluster| {
            let mut all = verdicts(&facts(&probe), cluster).unwrap();
            all.sort_by(|a, b| a.0.cmp(&b.0));
            all
        };
        assert_eq!(sorted(&kept), sorted(&anew), "after {what} {object}");
    }
}
