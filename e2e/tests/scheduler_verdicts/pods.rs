//! Pods, placed and waiting: each family leans on one kind of rule, and the last mixes them all.

use serde_json::{Value, json};

use super::dice::Dice;
use super::scene::Scene;

const FAMILIES: [&str; 9] =
    ["resources", "taints", "node affinity", "ports", "affinity", "anti-affinity", "spread", "volumes", "everything"];
/// Pods with this label are not turned down.
pub(crate) const PLACED_FOR_REAL: &str = "kerf.test/placed";
const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

/// A pod that every node would have.
pub(crate) fn undemanding() -> Value {
    json!({"metadata": {"name": "probe"}, "spec": {"tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "c", "image": "probe"}]}})
}

/// A pod that waits, and the family it belongs to.
pub(crate) fn waiting(scene: &Scene, number: usize, dice: &mut Dice) -> (&'static str, Value) {
    let family = FAMILIES[number % FAMILIES.len()];
    let mut pod = bare(&format!("p{number}"), dice);
    let is = |one: &str, dice: &mut Dice| family == one || (family == "everything" && dice.percent(35));
    if is("resources", dice) {
        ask(&mut pod, dice);
    }
    if is("taints", dice) {
        tolerate(&mut pod, dice);
    } else if dice.percent(60) {
        pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    }
    if is("node affinity", dice) {
        choose_nodes(&mut pod, scene, dice);
    }
    if is("ports", dice) {
        take_ports(&mut pod, dice);
    }
    if is("affinity", dice) {
        set_affinity(&mut pod, "podAffinity", scene, dice);
    }
    if is("anti-affinity", dice) {
        set_affinity(&mut pod, "podAntiAffinity", scene, dice);
    }
    if is("spread", dice) {
        spread(&mut pod, dice);
    }
    if is("volumes", dice) {
        mount(&mut pod, scene, dice);
    }
    (family, pod)
}

/// A pod that is more important than all others and asks for much.
pub(crate) fn important(number: usize, dice: &mut Dice) -> Value {
    let mut pod = bare(&format!("v{number}"), dice);
    pod["spec"]["priorityClassName"] = json!("top");
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {
        "cpu": dice.pick(&["500m", "1", "2", "3"]), "memory": dice.pick(&["200Mi", "900Mi", "2Gi"])}});
    match dice.range(0, 5) {
        0 => take_ports(&mut pod, dice),
        1 => spread(&mut pod, dice),
        _ => {}
    }
    pod
}

/// A pod with wishes, to be placed where they are met best.
pub(crate) fn choosing(number: usize, dice: &mut Dice) -> Value {
    let mut pod = bare(&format!("c{number}"), dice);
    pod["metadata"]["labels"][PLACED_FOR_REAL] = json!("yes");
    pod["spec"]["containers"][0]["image"] = json!(dice.pick(&["web", "db:1", "registry.test/cache"]));
    if dice.percent(70) {
        pod["spec"]["containers"][0]["resources"] = json!({"requests": requests(dice)});
    }
    let effects = if dice.percent(50) { vec!["NoSchedule", "NoExecute"] } else { vec![""] };
    let tolerations: Vec<Value> =
        effects.iter().map(|effect| json!({"operator": "Exists", "effect": effect})).collect();
    pod["spec"]["tolerations"] = json!(tolerations);
    if dice.percent(40) {
        let preferred: Vec<Value> = (0..dice.range(1, 4))
            .map(|_| json!({"weight": dice.range(1, 101), "preference": {"matchExpressions": [expression(dice)]}}))
            .collect();
        pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = json!(preferred);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        if dice.percent(30) {
            let term = json!({"topologyKey": dice.pick(&[HOST, ZONE]), "labelSelector": selector(dice)});
            pod["spec"]["affinity"][kind]["preferredDuringSchedulingIgnoredDuringExecution"] =
                json!([{"weight": dice.range(1, 101), "podAffinityTerm": term}]);
        }
    }
    if dice.percent(30) {
        spread(&mut pod, dice);
        for constraint in pod["spec"]["topologySpreadConstraints"].as_array_mut().unwrap() {
            constraint["whenUnsatisfiable"] = json!("ScheduleAnyway");
            constraint.as_object_mut().unwrap().remove("minDomains");
        }
    }
    pod
}

/// A pod that has its node.
pub(crate) fn placed(scene: &Scene, number: usize, node: &str, dice: &mut Dice) -> Value {
    let mut pod = bare(&format!("e{number}"), dice);
    let is_here = dice.percent(75);
    pod["metadata"]["namespace"] = json!(if is_here { scene.namespace() } else { scene.other_namespace() });
    pod["spec"]["nodeName"] = json!(node);
    if dice.percent(40) {
        pod["spec"]["priorityClassName"] = json!(dice.pick(&["some", "more"]));
    }
    if dice.percent(60) {
        ask(&mut pod, dice);
    }
    if dice.percent(30) {
        take_ports(&mut pod, dice);
    }
    if dice.percent(25) {
        set_affinity(&mut pod, "podAntiAffinity", scene, dice);
    }
    if dice.percent(10) {
        set_affinity(&mut pod, "podAffinity", scene, dice);
    }
    if dice.percent(15) {
        let kind = dice.pick(&["podAffinity", "podAntiAffinity"]);
        let term = json!({"topologyKey": dice.pick(&[HOST, ZONE]), "labelSelector": selector(dice)});
        pod["spec"]["affinity"][kind]["preferredDuringSchedulingIgnoredDuringExecution"] =
            json!([{"weight": dice.range(1, 101), "podAffinityTerm": term}]);
    }
    if is_here && dice.percent(30) {
        mount(&mut pod, scene, dice);
    }
    pod
}

fn bare(name: &str, dice: &mut Dice) -> Value {
    let mut labels = json!({});
    if dice.percent(85) {
        labels["app"] = json!(dice.pick(&["web", "web", "db", "cache"]));
    }
    if dice.percent(50) {
        labels["tier"] = json!(dice.pick(&["front", "back"]));
    }
    json!({"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"name": "c", "image": "web"}]}})
}

fn requests(dice: &mut Dice) -> Value {
    let mut requests = json!({});
    if dice.percent(80) {
        requests["cpu"] = json!(dice.pick(&["100m", "250m", "500m", "1", "1500m", "3"]));
    }
    if dice.percent(60) {
        requests["memory"] = json!(dice.pick(&["64Mi", "300M", "512Mi", "1Gi", "3Gi"]));
    }
    if dice.percent(15) {
        requests["ephemeral-storage"] = json!(dice.pick(&["100Mi", "2Gi"]));
    }
    requests
}

fn ask(pod: &mut Value, dice: &mut Dice) {
    let mut first = requests(dice);
    let mut limits = json!({});
    if dice.percent(20) {
        first["kerf.test/gpu"] = json!("1");
        limits["kerf.test/gpu"] = json!("1");
    }
    if dice.percent(8) {
        first["hugepages-2Mi"] = json!("32Mi");
        limits["hugepages-2Mi"] = json!("32Mi");
        first["cpu"] = json!("100m");
    }
    let mut containers = vec![json!({"name": "c", "image": "web", "resources": {"requests": first, "limits": limits}})];
    if dice.percent(30) {
        containers.push(json!({"name": "d", "image": "web", "resources": {"requests": requests(dice)}}));
    }
    let mut init = Vec::new();
    for (name, is_sidecar) in [("i", false), ("s", true), ("j", false)] {
        if dice.percent(20) {
            let mut container = json!({"name": name, "image": "web", "resources": {"requests": requests(dice)}});
            if is_sidecar {
                container["restartPolicy"] = json!("Always");
            }
            init.push(container);
        }
    }
    pod["spec"]["containers"] = json!(containers);
    pod["spec"]["initContainers"] = json!(init);
    let is_huge = pod["spec"]["containers"][0]["resources"]["requests"]["hugepages-2Mi"].is_string();
    if dice.percent(15) && !is_huge {
        // The pod as a whole may not ask for less than its containers together.
        pod["spec"]["resources"] = json!({"requests": {"cpu": dice.pick(&["6", "9"]), "memory": "7Gi"}});
    }
}

fn tolerate(pod: &mut Value, dice: &mut Dice) {
    let mut tolerations = Vec::new();
    for key in ["dedicated", "spot", "node.kubernetes.io/not-ready", "node.kubernetes.io/unschedulable"] {
        if dice.percent(55) {
            let mut toleration = json!({"key": key});
            if dice.percent(40) {
                toleration["operator"] = json!("Exists");
            } else {
                toleration["operator"] = json!("Equal");
                toleration["value"] = json!(dice.pick(&["", "a", "b"]));
            }
            if dice.percent(50) {
                toleration["effect"] = json!(dice.pick(&["NoSchedule", "NoExecute", "PreferNoSchedule"]));
            }
            tolerations.push(toleration);
        }
    }
    pod["spec"]["tolerations"] = json!(tolerations);
}

fn expression(dice: &mut Dice) -> Value {
    let key = dice.pick(&["disk", "cpus", ZONE, "rack"]);
    match (key, dice.range(0, 4)) {
        (key, 0) => json!({"key": key, "operator": dice.pick(&["Exists", "DoesNotExist"])}),
        ("cpus", _) => {
            json!({"key": "cpus", "operator": dice.pick(&["Gt", "Lt"]), "values": [dice.range(1, 9).to_string()]})
        }
        (key, _) => json!({"key": key, "operator": dice.pick(&["In", "NotIn"]),
            "values": [dice.pick(&["ssd", "a", "r1"]), dice.pick(&["hdd", "b", "r2"])]}),
    }
}

fn choose_nodes(pod: &mut Value, scene: &Scene, dice: &mut Dice) {
    if dice.percent(35) {
        pod["spec"]["nodeSelector"] = json!({"disk": dice.pick(&["ssd", "hdd"])});
    }
    if dice.percent(80) {
        let terms: Vec<Value> = (0..dice.range(1, 4))
            .map(|_| {
                let mut term = json!({});
                let is_by_name = dice.percent(30);
                if is_by_name {
                    let name = if dice.percent(85) { scene.any_node(dice) } else { "elsewhere".to_owned() };
                    let operator = dice.pick(&["In", "In", "NotIn"]);
                    term["matchFields"] = json!([{"key": "metadata.name", "operator": operator, "values": [name]}]);
                    if dice.percent(15) {
                        term["matchFields"]
                            .as_array_mut()
                            .unwrap()
                            .push(json!({"key": "metadata.name", "operator": "In", "values": [scene.any_node(dice)]}));
                    }
                }
                if !is_by_name || dice.percent(40) {
                    let expressions: Vec<Value> = (0..dice.range(1, 3)).map(|_| expression(dice)).collect();
                    term["matchExpressions"] = json!(expressions);
                }
                term
            })
            .collect();
        pod["spec"]["affinity"]["nodeAffinity"] =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    }
}

fn take_ports(pod: &mut Value, dice: &mut Dice) {
    let mut ports: Vec<Value> = Vec::new();
    for number in [8080, 8081] {
        if dice.percent(60) {
            let mut port =
                json!({"containerPort": number, "hostPort": number, "protocol": dice.pick(&["TCP", "TCP", "UDP"])});
            if dice.percent(40) {
                port["hostIP"] = json!(dice.pick(&["127.0.0.1", "10.0.0.1"]));
            }
            ports.push(port);
        }
    }
    pod["spec"]["containers"][0]["ports"] = json!(ports);
}

fn selector(dice: &mut Dice) -> Value {
    match dice.range(0, 10) {
        0 => json!({}),
        1 => json!({"matchExpressions": [{"key": "tier", "operator": dice.pick(&["Exists", "DoesNotExist"])}]}),
        2 | 3 => {
            json!({"matchExpressions": [{"key": "app", "operator": dice.pick(&["In", "NotIn"]), "values": ["web", "cache"]}]})
        }
        4 => json!({"matchLabels": {"app": "web", "tier": "front"}}),
        _ => json!({"matchLabels": {"app": dice.pick(&["web", "web", "db", "cache", "nobody"])}}),
    }
}

fn set_affinity(pod: &mut Value, kind: &str, scene: &Scene, dice: &mut Dice) {
    // To be near somebody is the harder wish: one rule, mostly about zones.
    let (n_terms, keys) = match kind {
        "podAffinity" if dice.percent(80) => (1, [ZONE, ZONE, ZONE, HOST]),
        _ => (dice.range(1, 3), [HOST, HOST, ZONE, "rack"]),
    };
    let terms: Vec<Value> = (0..n_terms)
        .map(|_| {
            let mut term = json!({"topologyKey": dice.pick(&keys)});
            if dice.percent(95) {
                term["labelSelector"] = selector(dice);
                if dice.percent(15) {
                    term[dice.pick(&["matchLabelKeys", "mismatchLabelKeys"])] = json!(["tier"]);
                }
            }
            match dice.range(0, 8) {
                0 => term["namespaces"] = json!([scene.other_namespace()]),
                1 => term["namespaces"] = json!([scene.namespace(), scene.other_namespace()]),
                2 => term["namespaceSelector"] = json!({}),
                3 => term["namespaceSelector"] = json!({"matchLabels": {"team": dice.pick(&["red", "blue"])}}),
                _ => {}
            }
            // A key may not be asked for by the selector and by the pod's own label at once.
            if term["labelSelector"].to_string().contains("\"tier\"") {
                for keys in ["matchLabelKeys", "mismatchLabelKeys"] {
                    term.as_object_mut().unwrap().remove(keys);
                }
            }
            term
        })
        .collect();
    pod["spec"]["affinity"][kind] = json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
}

fn spread(pod: &mut Value, dice: &mut Dice) {
    let mut constraints: Vec<Value> = Vec::new();
    for key in [HOST, ZONE, "rack"] {
        if !dice.percent(if key == "rack" { 15 } else { 60 }) {
            continue;
        }
        let mut constraint =
            json!({"topologyKey": key, "maxSkew": dice.range(1, 4), "whenUnsatisfiable": "DoNotSchedule"});
        if dice.percent(92) {
            constraint["labelSelector"] = selector(dice);
            if dice.percent(20) && !constraint.to_string().contains("\"tier\"") {
                constraint["matchLabelKeys"] = json!(["tier"]);
            }
        }
        if dice.percent(30) {
            constraint["minDomains"] = json!(dice.range(1, 6));
        }
        if dice.percent(30) {
            constraint["nodeAffinityPolicy"] = json!(dice.pick(&["Honor", "Ignore"]));
        }
        if dice.percent(30) {
            constraint["nodeTaintsPolicy"] = json!(dice.pick(&["Honor", "Ignore"]));
        }
        constraints.push(constraint);
    }
    pod["spec"]["topologySpreadConstraints"] = json!(constraints);
    if dice.percent(30) {
        pod["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    }
}

fn mount(pod: &mut Value, scene: &Scene, dice: &mut Dice) {
    let mut volumes: Vec<Value> = Vec::new();
    for i in 0..dice.range(1, 4) {
        let claim = scene.claims[dice.range(0, scene.claims.len())].clone();
        let mut volume = json!({"name": format!("v{i}")});
        match dice.range(0, 100) {
            0..4 => volume["persistentVolumeClaim"] = json!({"claimName": "missing"}),
            4..7 => {
                volume["ephemeral"] = json!({"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}}}}});
            }
            7..17 => {
                volume["gcePersistentDisk"] = json!({"pdName": dice.pick(&["d1", "d2"]), "readOnly": dice.percent(50)});
            }
            17..22 => {
                volume["iscsi"] = json!({"targetPortal": "10.0.0.9", "iqn": "iqn.2026-01.test.kerf:disk", "lun": 0, "readOnly": dice.percent(50)});
            }
            22..27 => {
                volume["rbd"] =
                    json!({"monitors": [dice.pick(&["m1", "m2"])], "image": "i", "readOnly": dice.percent(50)});
            }
            27..32 => volume["awsElasticBlockStore"] = json!({"volumeID": dice.pick(&["e1", "e2"])}),
            _ => volume["persistentVolumeClaim"] = json!({"claimName": claim}),
        }
        volumes.push(volume);
    }
    pod["spec"]["volumes"] = json!(volumes);
}
