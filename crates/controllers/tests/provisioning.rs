//! From pods that wait to nodes that run them, on a whole control plane under a virtual clock.

mod scene;

use kerf_controllers::explain::{Subject, explain};
use kerf_controllers::metrics::Metrics;
use kerf_controllers::{Operator, Options, Wake};
use kerf_mirror::{Kind, MirrorSettings, ObjectKey, View};
use kerf_model::PodId;
use kerf_simulation::{Rehearsal, Setup};
use scene::{cluster, condition, inflate, n_pods, name, pool, roll, scale};
use serde_json::{Value, json};
use std::sync::Arc;

#[test]
fn d0_1_pods_without_a_place_get_nodes_and_run_and_the_nodes_are_ours() {
    let mut scene = cluster(Setup::default(), |_| {});
    scene.create_value(&inflate("inflate", 5, |_| {}));
    scene.run_until("five running pods", 60, |scene| n_pods(scene, "Running") == 5);
    for node in scene.nodes() {
        let labels = &node["metadata"]["labels"];
        assert_eq!(labels["karpenter.sh/nodepool"], "default");
        assert_eq!(labels["karpenter.sh/registered"], "true");
        assert!(labels["node.kubernetes.io/instance-type"].is_string());
    }
    scene.run_for(10);
    for claim in scene.claims() {
        assert_eq!(condition(&claim, "Ready")["status"], "True", "{claim}");
        assert_eq!(claim["metadata"]["labels"]["karpenter.sh/capacity-type"], "on-demand");
    }
}

#[test]
fn d0_2_capacity_is_started_within_a_minute_of_a_change_of_load() {
    let mut scene = cluster(Setup::default(), |_| {});
    scene.run_for(30);
    scene.create_value(&inflate("inflate", 500, |_| {}));
    let began = scene.now();
    scene.run_until("every pod to run", 60, |scene| n_pods(scene, "Running") == 500);
    assert!(scene.now().duration_since(began).as_secs() < 60);
}

#[test]
fn d0_16_a_selector_that_matches_nothing_is_told_with_its_key() {
    let mut scene = cluster(Setup::default(), |_| {});
    scene.create_value(&inflate("odd", 1, |spec| spec["nodeSelector"] = json!({"example.com/colour": "blue"})));
    scene.run_until("an event that names the key", 60, |scene| {
        scene
            .events("FailedScheduling")
            .iter()
            .any(|message| message.starts_with("Failed to schedule pod, ") && message.contains("example.com/colour"))
    });
    assert!(scene.claims().is_empty());
}

#[test]
fn d0_63_four_replicas_of_inflate_run() {
    let mut scene = cluster(Setup::default(), |_| {});
    scene.create_value(&inflate("inflate", 0, |_| {}));
    scene.run_for(5);
    assert!(scene.nodes().is_empty());
    scale(&mut scene, "inflate", 4);
    scene.run_until("four running pods", 60, |scene| n_pods(scene, "Running") == 4);
}

#[test]
fn d1_25_pods_of_fargate_never_cause_a_node() {
    let mut scene = cluster(Setup::default(), |_| {});
    scene.create_value(&inflate("serverless", 2, |spec| spec["schedulerName"] = json!("fargate-scheduler")));
    scene.run_for(3);
    // Whatever another scheduler says of them.
    for pod in scene.pods() {
        let path = format!("/api/v1/namespaces/default/pods/{}/status", name(&pod));
        scene.patch(&path, &json!({"status": {"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ]}}));
    }
    scene.run_for(60);
    assert!(scene.claims().is_empty());
    scene.create_value(&inflate("ours", 1, |_| {}));
    scene.run_until("ours to run", 60, |scene| n_pods(scene, "Running") == 1);
    assert_eq!(scene.claims().len(), 1);
}

#[test]
fn d3_15_pods_that_tolerate_a_pools_taint_run_there_on_one_node() {
    let mut scene = cluster(Setup::default(), |pool| {
        pool["spec"]["template"]["metadata"] = json!({"labels": {"deployment": "lab"}});
        pool["spec"]["template"]["spec"]["taints"] =
            json!([{"key": "dedicated", "value": "lab", "effect": "NoSchedule"}]);
    });
    scene.create_value(&inflate("inflate", 2, |spec| {
        spec["tolerations"] =
            json!([{"key": "dedicated", "operator": "Equal", "value": "lab", "effect": "NoSchedule"}]);
        spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "deployment", "operator": "In", "values": ["lab"]}]}]
        }}});
    }));
    scene.run_until("both to run", 85, |scene| n_pods(scene, "Running") == 2);
    assert_eq!(scene.nodes().len(), 1);
    let node = &scene.nodes()[0];
    assert!(node["spec"]["taints"].as_array().unwrap().iter().any(|taint| taint["key"] == "dedicated"));
}

#[test]
fn d4_7_sixty_replicas_get_nodes_and_all_run() {
    let mut scene = cluster(Setup::default(), |_| {});
    scene.create_value(&inflate("inflate", 0, |_| {}));
    scene.run_for(5);
    scale(&mut scene, "inflate", 60);
    scene.run_until("sixty running pods", 60, |scene| n_pods(scene, "Running") == 60);
    scene.run_for(60);
    assert_eq!(scene.claims().len(), scene.nodes().len());
    let events = scene.events("Nominated");
    assert!(events.iter().all(|message| message.starts_with("Pod should schedule on: node")), "{events:?}");
}

#[test]
fn limits_are_never_crossed_not_even_by_restarts_between_two_passes() {
    let mut scene = cluster(Setup::default(), |pool| pool["spec"]["limits"] = json!({"cpu": "20"}));
    scene.create_value(&inflate("inflate", 100, |_| {}));
    let mut dice = 7;
    for _ in 0..40 {
        scene.run_for(i64::try_from(roll(&mut dice) % 3).unwrap());
        scene.restart();
        assert!(most_cpu(&scene) <= 20.0, "{} CPUs", most_cpu(&scene));
    }
    scene.run_for(60);
    assert!(most_cpu(&scene) <= 20.0);
    assert!(n_pods(&scene, "Running") >= 15, "the limit leaves room for most of 20 CPUs");
    assert!(!scene.events("FailedScheduling").is_empty());
}

/// What all claims have together, as the pool counts it.
fn most_cpu(scene: &Rehearsal) -> f64 {
    let cpu = |claim: &Value| {
        let text = claim["status"]["capacity"]["cpu"].as_str()?;
        text.strip_suffix('m').map_or_else(|| text.parse().ok(), |milli| Some(milli.parse::<f64>().ok()? / 1_000.0))
    };
    scene.claims().iter().map(|claim| cpu(claim).unwrap_or(0.0)).sum()
}

#[test]
fn one_backlog_does_not_come_in_waves() {
    let mut scene = cluster(Setup::default(), |_| {});
    let small = |spec: &mut Value| {
        spec["containers"][0]["resources"]["requests"] = json!({"cpu": "900m", "memory": "3100Mi"});
    };
    let large = |spec: &mut Value| {
        spec["containers"][0]["resources"]["requests"] = json!({"cpu": "3500m", "memory": "28Gi"});
    };
    scene.create_value(&inflate("small", 100, small));
    scene.create_value(&inflate("large", 100, large));
    scene.run_until("the first claim", 60, |scene| !scene.claims().is_empty());
    scene.settle();
    let n_claims = scene.claims().len();
    scene.run_until("all pods to run", 120, |scene| n_pods(scene, "Running") == 200);
    scene.run_for(60);
    assert_eq!(scene.claims().len(), n_claims);
}

#[test]
fn pods_with_a_hostname_spread_use_what_is_on_its_way_before_more_is_bought() {
    let mut scene = cluster(Setup::default(), |_| {});
    // Half a minute in which every look sees pods that wait and nodes that are not there yet.
    let class = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses/default";
    scene.patch(class, &json!({"spec": {"nodeRegistrationDelay": "30s"}}));
    scene.create_value(&inflate("spread", 60, |spec| {
        spec["topologySpreadConstraints"] = json!([{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "spread"}},
        }]);
    }));
    scene.run_until("the first claim", 30, |scene| !scene.claims().is_empty());
    scene.settle();
    let n_claims = scene.claims().len();
    assert!(n_claims < 60, "not one node for each pod: {n_claims}");
    scene.run_until("all to run", 120, |scene| n_pods(scene, "Running") == 60);
    scene.run_for(60);
    assert_eq!(scene.claims().len(), n_claims);
}

#[test]
fn who_was_promised_a_node_on_its_way_is_thought_about_again_only_when_somebody_new_waits() {
    let mut scene = cluster(Setup::default(), |_| {});
    let class = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses/default";
    scene.patch(class, &json!({"spec": {"nodeRegistrationDelay": "60s"}}));
    scene.create_value(&inflate("first", 20, |_| {}));
    scene.run_until("the first claim", 30, |scene| !scene.claims().is_empty());
    scene.settle();
    let n_decisions = |scene: &Rehearsal| scene.operator().record().decisions().count();
    let before = n_decisions(&scene);
    for weight in 1..4 {
        scene.patch("/apis/karpenter.sh/v1/nodepools/default", &json!({"spec": {"weight": weight}}));
        scene.run_for(5);
    }
    assert_eq!(n_decisions(&scene), before, "a look at pods that have a promise is no new decision");
    scene.create_value(&inflate("second", 1, |_| {}));
    scene.run_until("another decision", 15, |scene| n_decisions(scene) > before);
    scene.run_until("all pods to run", 120, |scene| n_pods(scene, "Running") == 21);
}

#[test]
fn nodes_that_somebody_spoils_are_followed_more_and_more_slowly() {
    let mut scene = cluster(Setup::default(), |_| {});
    scene.create_value(&inflate("inflate", 1, |_| {}));
    for _ in 0..90 {
        scene.run_for(1);
        let is_spoiled = |node: &Value| node["spec"]["taints"].to_string().contains("rogue");
        for node in scene.nodes().iter().filter(|node| !is_spoiled(node)) {
            let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            taints.push(json!({"key": "rogue", "effect": "NoExecute"}));
            scene.patch(&format!("/api/v1/nodes/{}", name(node)), &json!({"spec": {"taints": taints}}));
        }
    }
    let n_nodes = scene.nodes().len();
    assert!((4..=12).contains(&n_nodes), "{n_nodes} nodes for one pod in a minute and a half");
}

#[test]
fn a_pool_that_cannot_be_used_does_not_stop_the_others() {
    let mut scene = cluster(Setup::default(), |_| {});
    let mut orphan = pool("orphan");
    orphan["spec"]["template"]["spec"]["nodeClassRef"]["name"] = json!("missing");
    orphan["spec"]["weight"] = json!(100);
    scene.create_value(&orphan);
    scene.create_value(&inflate("inflate", 2, |_| {}));
    scene.run_until("both to run", 60, |scene| n_pods(scene, "Running") == 2);
    let orphan = scene.get("/apis/karpenter.sh/v1/nodepools/orphan").unwrap();
    assert_eq!(condition(&orphan, "NodeClassReady")["reason"], "NodeClassNotFound");
}

#[test]
fn a_pod_that_can_never_fit_is_told_once_and_costs_nothing() {
    let mut scene = cluster(Setup::default(), |_| {});
    scene.create_value(&inflate("whale", 1, |spec| {
        spec["containers"][0]["resources"]["requests"] = json!({"cpu": "1000"});
    }));
    scene.run_for(120);
    assert!(scene.claims().is_empty());
    let told = scene.events("FailedScheduling");
    assert!(told.iter().any(|message| message.contains("cpu 1000")), "{told:?}");
    assert_eq!(told.iter().filter(|message| message.starts_with("Failed to schedule pod, ")).count(), 1);
}

/// With the gate `EarlyBinding` on.
fn binds_early() -> Setup {
    let mut setup = Setup::default();
    setup.options.gates.early_binding = true;
    setup.options.mirror.scheduling.placed_by = kerf_model::Binder::Kerf;
    setup
}

#[test]
fn d0_5_pods_go_to_the_new_node_without_kube_scheduler() {
    let mut scene = cluster(binds_early(), |_| {});
    scene.create_value(&inflate("inflate", 20, |_| {}));
    scene.run_until("all to run", 60, |scene| n_pods(scene, "Running") == 20);
    scene.run_for(30);
    let scheduled = scene.events("Scheduled");
    assert!(scheduled.is_empty(), "kube-scheduler bound {} of them", scheduled.len());
    for node in scene.nodes() {
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        assert!(taints.is_empty(), "the fence is down: {taints:?}");
    }
    assert!(scene.claims().iter().all(|claim| condition(claim, "Initialized")["status"] == "True"));
}

#[test]
fn d2_2_pods_are_bound_as_soon_as_their_node_is_online_before_it_is_ready() {
    // Machines of the simulated EC2 take a while from registration to Ready, as real ones do.
    let (mut scene, _) = Rehearsal::on_sim(binds_early(), kerf_cloud_sim::SimOptions::default());
    scene.create(
        "{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: default}, spec: {role: r, \
         amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{tags: {a: b}}], \
         securityGroupSelectorTerms: [{tags: {a: b}}]}}",
    );
    let mut of_ec2 = pool("default");
    of_ec2["spec"]["template"]["spec"]["nodeClassRef"] =
        json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    scene.create_value(&of_ec2);
    scene.create_value(&inflate("inflate", 3, |_| {}));
    scene.run_until("all to be bound", 120, |scene| {
        let pods = scene.pods();
        pods.len() == 3 && pods.iter().all(|pod| pod["spec"]["nodeName"].is_string())
    });
    let nodes = scene.nodes();
    assert!(nodes.iter().all(|node| condition(node, "Ready")["status"] != "True"), "the node is not ready yet");
    scene.run_until("all to run", 60, |scene| n_pods(scene, "Running") == 3);
}

#[test]
fn d3_19_binding_follows_registration_within_a_second() {
    let mut scene = cluster(binds_early(), |_| {});
    scene.create_value(&inflate("inflate", 2, |_| {}));
    scene.run_until("a registered node", 60, |scene| {
        scene.nodes().iter().any(|node| node["metadata"]["labels"]["karpenter.sh/registered"] == "true")
    });
    let registered = scene.now();
    scene.run_until("both to be bound", 60, |scene| scene.pods().iter().all(|pod| pod["spec"]["nodeName"].is_string()));
    assert!(scene.now().duration_since(registered).as_millis() <= 1_000);
}

#[test]
fn early_binding_respects_startup_taints_and_loses_no_pod_over_a_restart() {
    let mut scene = cluster(binds_early(), |pool| {
        pool["spec"]["template"]["spec"]["startupTaints"] =
            json!([{"key": "example.com/agent", "effect": "NoSchedule"}]);
    });
    scene.create_value(&inflate("inflate", 4, |_| {}));
    scene.run_until("a registered node", 60, |scene| {
        scene.nodes().iter().any(|node| node["metadata"]["labels"]["karpenter.sh/registered"] == "true")
    });
    scene.run_for(5);
    assert!(scene.pods().iter().all(|pod| pod["spec"]["nodeName"].is_null()), "a startup taint keeps pods away");
    scene.restart();
    for node in scene.nodes() {
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let rest: Vec<Value> = taints.into_iter().filter(|taint| taint["key"] != "example.com/agent").collect();
        scene.patch(&format!("/api/v1/nodes/{}", name(&node)), &json!({"spec": {"taints": rest}}));
    }
    scene.run_until("all to run", 60, |scene| n_pods(scene, "Running") == 4);
}

#[test]
fn a_fence_that_is_left_when_the_gate_is_switched_off_comes_down() {
    let mut scene = cluster(Setup::default(), |_| {});
    scene.create_value(&inflate("inflate", 1, |_| {}));
    scene.run_until("it runs", 60, |scene| n_pods(scene, "Running") == 1);
    let path = format!("/api/v1/nodes/{}", name(&scene.nodes()[0]));
    let fence = json!({"key": kerf_api::taints::EARLY_BINDING, "effect": "NoSchedule"});
    scene.patch(&path, &json!({"spec": {"taints": [fence]}}));
    scene.run_until("it is down", 10, |scene| scene.nodes()[0]["spec"]["taints"].as_array().is_none_or(Vec::is_empty));
}

#[test]
fn an_operator_killed_at_200_random_moments_of_a_scale_up_loses_and_doubles_nothing() {
    let mut scene = cluster(Setup::default(), |pool| pool["spec"]["limits"] = json!({"cpu": "600"}));
    scene.create_value(&inflate("inflate", 500, |_| {}));
    let mut dice = 42;
    for kill in 0..200 {
        // Between two errands, or after some time: either may be in the middle of something.
        if roll(&mut dice).is_multiple_of(2) {
            for _ in 0..roll(&mut dice) % 40 {
                scene.step();
            }
        } else {
            scene.run_for(i64::try_from(roll(&mut dice) % 2).unwrap());
        }
        scene.restart();
        assert!(most_cpu(&scene) <= 600.0, "after {kill} kills");
    }
    scene.run_until("all to run", 600, |scene| n_pods(scene, "Running") == 500);
    scene.run_for(300);
    assert_eq!(n_pods(&scene, "Running"), 500);
    let claims = scene.claims();
    let mut ids: Vec<String> =
        claims.iter().map(|claim| claim["status"]["providerID"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    let mut nodes: Vec<String> =
        scene.nodes().iter().map(|node| node["spec"]["providerID"].as_str().unwrap().to_owned()).collect();
    nodes.sort();
    assert_eq!(ids, nodes, "every instance has its claim, and every claim its instance");
    ids.dedup();
    assert_eq!(ids.len(), claims.len(), "no claim was launched twice");
}

#[test]
fn a_pod_that_is_left_out_before_planning_is_explained() {
    let mut scene = cluster(Setup::default(), |_| {});
    let mistyped = json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["sopt"]});
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [mistyped]}]});
    scene.create_value(&inflate("mistyped", 1, |spec| {
        spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    }));
    let is_ours = |message: &String| message.starts_with("Failed to schedule pod, ");
    scene.run_until("it to be told", 60, |scene| scene.events("FailedScheduling").iter().any(is_ours));
    let explained = |scene: &Rehearsal| {
        let pod = name(&scene.pods()[0]);
        explain(scene.operator(), &Subject::Pod(PodId::new("default", &pod))).unwrap()
    };
    let first = explained(&scene);
    assert_eq!(first.now, "waits, and is left out of every plan");
    assert_eq!(first.decisions.len(), 1, "{first:?}");
    assert!(first.decisions[0].why.contains("[sopt] is a capacity type"), "{first:?}");
    scene.run_for(120);
    assert_eq!(explained(&scene).decisions[0].at, first.decisions[0].at, "since when it is so");
}

#[test]
fn what_cannot_be_read_is_explained_with_the_reason() {
    let scene = cluster(Setup::default(), |_| {});
    let options = Options::new(MirrorSettings::new(View::Live));
    let metrics = Arc::new(Metrics::default());
    let mut operator = Operator::with_duties(options, scene.cloud().clone(), metrics, Vec::new());
    for (kind, namespace, subject) in [
        (Kind::Pod, "default", Subject::Pod(PodId::new("default", "odd"))),
        (Kind::NodeClaim, "", Subject::NodeClaim("odd".to_owned())),
    ] {
        assert_eq!(explain(&operator, &subject), None);
        let key = ObjectKey { kind, class_kind: None, namespace: namespace.into(), name: "odd".into() };
        let (field, message) = ("spec.x".to_owned(), "not a number".to_owned());
        operator.wake(Wake::Unreadable { key: Some(key), what: "odd".to_owned(), field, message });
        let now = explain(&operator, &subject).unwrap().now;
        assert_eq!(now, "cannot be read, and is left alone: spec.x: not a number");
    }
}

#[test]
fn a_pods_event_has_the_whole_reason_and_what_would_help_however_many_pools_refuse() {
    let mut scene = cluster(Setup::default(), |_| {});
    for n in 0..30 {
        scene.create_value(&pool(&format!("one-of-many-pools-with-a-long-name-{n}")));
    }
    scene.create_value(&inflate("whale", 1, |spec| {
        spec["containers"][0]["resources"]["requests"] = json!({"cpu": "1000"});
    }));
    let is_ours = |message: &String| message.starts_with("Failed to schedule pod, ");
    scene.run_until("it to be told", 60, |scene| scene.events("FailedScheduling").iter().any(is_ours));
    let told = scene.events("FailedScheduling").into_iter().find(is_ours).unwrap();
    assert!(told.len() <= 1_024 && told.len() > 800, "{}", told.len());
    let kept = told.matches("nodepool one-of").count() + told.matches("nodepool default:").count();
    assert!(told.contains(&format!("; {} more (would help: request at most ", 31 - kept)), "{told}");
}
