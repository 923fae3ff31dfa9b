//! The documents' lines about interruption.

use crate::stage::{
    add_guest, claim_path, instance_of, is_going, lifecycle_hook, mailed, mute, n_running, name, populate, rebalance,
    replacing, scheduled_change, setup, spoken, spot_warning, state_change, status_of,
};
use kerf_simulation::Rehearsal;
use serde_json::{Value, json};

fn only_claim(scene: &Rehearsal) -> Value {
    let claims = scene.claims();
    assert_eq!(claims.len(), 1);
    claims[0].clone()
}

fn is_gone(scene: &Rehearsal, claim: &Value) -> bool {
    scene.get(&claim_path(&name(claim))).is_none()
}

/// The termination handler, or an administrator, cordons a node and evicts who is on it.
fn cordon_and_drain(scene: &mut Rehearsal, node: &str) {
    scene.patch(&format!("/api/v1/nodes/{node}"), &json!({"spec": {"unschedulable": true}}));
    for pod in scene.pods() {
        if pod["spec"]["nodeName"] == node {
            scene.delete(&format!("/api/v1/namespaces/default/pods/{}", name(&pod)));
        }
    }
}

#[test]
fn d0_11_neither_cluster_autoscaler_nor_the_termination_handler_is_needed_beside_it() {
    // Everything that the handler's queue mode knows, through one queue: a node of ours, and one of a managed group.
    let (mut scene, mail) = mailed(setup());
    populate(&mut scene, 2, |_| {});
    add_guest(&mut scene, "guest", "i-guest");
    let old = only_claim(&scene);
    mail.send(spot_warning(&scene, "e-1", &instance_of(&old)));
    mail.send(lifecycle_hook("i-guest"));
    scene.run_until("both nodes to be out of use", 120, |scene| {
        is_gone(scene, &old) && scene.get("/api/v1/nodes/guest").unwrap()["spec"]["unschedulable"] == true
    });
    scene.run_until("all to run", 60, |scene| n_running(scene) == 2);
    assert_eq!(mail.n_left(), 0);
    assert_eq!(mail.aws().count("autoscaling:CompleteLifecycleAction"), 1);
}

#[test]
fn d0_26_a_spot_interruption_reaches_the_queue_and_the_node_goes() {
    let (mut scene, mail) = mailed(setup());
    populate(&mut scene, 2, |_| {});
    let old = only_claim(&scene);
    mail.send(spot_warning(&scene, "e-1", &instance_of(&old)));
    scene.run_until("the node to be gone", 120, |scene| is_gone(scene, &old));
    let messages = scene.events("SpotInterrupted");
    assert_eq!(messages.len(), 2, "on claim and node: {messages:?}");
}

#[test]
fn d0_75_warnings_maintenance_and_the_end_of_instances_drain_the_node() {
    for (kind, reason) in [
        ("spot", "SpotInterrupted"),
        ("maintenance", "InstanceUnhealthy"),
        ("terminating", "InstanceTerminating"),
        ("stopping", "InstanceStopping"),
    ] {
        let (mut scene, mail) = mailed(setup());
        populate(&mut scene, 2, |_| {});
        let old = only_claim(&scene);
        let instance = instance_of(&old);
        mail.send(match kind {
            "spot" => spot_warning(&scene, "e-1", &instance),
            "maintenance" => scheduled_change(&scene, "e-1", &instance),
            "terminating" => state_change(&scene, "e-1", &instance, "shutting-down"),
            _ => state_change(&scene, "e-1", &instance, "stopping"),
        });
        scene.run_until("its pods to be asked to leave", 10, |scene| {
            scene.pods().iter().any(|pod| is_going(pod) && pod["spec"]["nodeName"].is_string())
        });
        scene.run_until("the node to be gone and all to run elsewhere", 180, |scene| {
            is_gone(scene, &old) && n_running(scene) == 2
        });
        assert_eq!(scene.events(reason).len(), 2, "{kind}: on claim and node");
        assert_eq!(scene.events("TerminatingOnInterruption").len(), 2, "{kind}");
        assert_eq!(mail.n_left(), 0);
    }
}

#[test]
fn d0_76_a_notice_for_a_node_that_goes_already_changes_nothing() {
    // Ours are coordinated: emptiness, a person and the queue may all want the same node.
    let (mut scene, mail) = mailed(setup());
    populate(&mut scene, 2, |_| {});
    let old = only_claim(&scene);
    scene.delete(&claim_path(&name(&old)));
    mail.send(spot_warning(&scene, "e-1", &instance_of(&old)));
    scene.run_until("the node to be gone", 120, |scene| is_gone(scene, &old));
    scene.run_until("all to run", 120, |scene| n_running(scene) == 2);
    assert_eq!(mail.n_left(), 0);
    assert_eq!(scene.events("TerminatingOnInterruption"), Vec::<String>::new(), "somebody else ended it");
    assert_eq!(scene.claims().len(), 1, "one node was replaced by one");
}

#[test]
fn d0_77_who_lets_the_termination_handler_act_on_recommendations_comes_to_no_harm() {
    let (mut scene, mail) = mailed(setup());
    populate(&mut scene, 2, |_| {});
    let old = only_claim(&scene);
    mail.send(rebalance(&scene, "e-1", &instance_of(&old)));
    scene.run_for(60);
    assert!(!is_going(&only_claim(&scene)), "by default a recommendation is not acted upon");
    cordon_and_drain(&mut scene, old["status"]["nodeName"].as_str().unwrap());
    scene.run_until("the pods to have new capacity", 180, |scene| n_running(scene) == 2);
    scene.run_until("the cordoned empty node to go", 300, |scene| is_gone(scene, &old));
}

#[test]
fn d1_13_copies_are_handled_once_and_nothing_is_lost_while_the_operator_is_down() {
    let (mut scene, mail) = mailed(setup());
    populate(&mut scene, 2, |_| {});
    let old = only_claim(&scene);
    scene.kill();
    let warning = state_change(&scene, "e-1", &instance_of(&old), "stopping");
    mail.send(warning.clone());
    // Less than the retention of the documents' queue.
    scene.run_for(290);
    mail.send(warning);
    assert!(!is_going(&only_claim(&scene)));
    scene.revive();
    scene.run_until("the node to be gone", 180, |scene| is_gone(scene, &old));
    scene.run_until("all to run", 120, |scene| n_running(scene) == 2);
    assert_eq!(mail.n_left(), 0);
    assert_eq!(scene.events("InstanceStopping").len(), 2, "once on the claim and once on the node");
}

#[test]
fn d1_17_a_terminated_instance_leaves_and_a_started_one_shows_by_its_node() {
    let (mut scene, mail) = mailed(setup());
    populate(&mut scene, 2, |_| {});
    let old = only_claim(&scene);
    for (n, state) in ["pending", "running"].iter().enumerate() {
        mail.send(state_change(&scene, &format!("e-{n}"), &instance_of(&old), state));
    }
    scene.run_for(60);
    assert_eq!(mail.n_left(), 0);
    assert!(!is_going(&only_claim(&scene)), "a machine that begins is no reason to act");
    assert_eq!(status_of(&only_claim(&scene), "Ready"), "True", "its readiness came from the Node");
    mail.send(state_change(&scene, "e-9", &instance_of(&old), "terminated"));
    scene.run_until("the node to be gone", 180, |scene| is_gone(scene, &old));
    scene.run_until("its pods to run elsewhere", 180, |scene| n_running(scene) == 2);
}

#[test]
fn d1_18_who_asks_for_it_gets_machines_at_risk_replaced_early_and_drained_then() {
    let (mut scene, mail) = mailed(replacing());
    populate(&mut scene, 2, |_| {});
    scene.run_for(700);
    let old = only_claim(&scene);
    mail.send(rebalance(&scene, "e-1", &instance_of(&old)));
    scene.run_until("the old machine to be asked to leave", 180, |scene| {
        scene.get(&claim_path(&name(&old))).is_none_or(|claim| is_going(&claim))
    });
    let new = scene.claims().into_iter().find(|claim| name(claim) != name(&old)).unwrap();
    assert_eq!(status_of(&new, "Ready"), "True");
}

#[test]
fn d1_19_before_maintenance_pods_end_gracefully_and_run_elsewhere() {
    let (mut scene, mail) = mailed(setup());
    populate(&mut scene, 2, |spec| spec["annotations"] = json!({"kerf.dev/stops-after": "25s"}));
    let old = only_claim(&scene);
    mail.send(scheduled_change(&scene, "e-1", &instance_of(&old)));
    scene.run_until("pods to leave", 10, |scene| scene.pods().iter().any(is_going));
    scene.run_for(15);
    let leaving: Vec<Value> = scene.pods().into_iter().filter(is_going).collect();
    assert!(!leaving.is_empty(), "they have the time that they need");
    assert!(leaving.iter().all(|pod| pod["metadata"]["deletionGracePeriodSeconds"] == 30), "their own grace period");
    assert!(!is_gone(&scene, &old), "and the machine waits for them");
    scene.run_until("the node to be gone", 120, |scene| is_gone(scene, &old));
    scene.run_until("all to run", 120, |scene| n_running(scene) == 2);
}

#[test]
fn d1_20_after_a_spot_notice_a_replacement_is_asked_for_within_seconds_and_the_drain_is_done_in_two_minutes() {
    // The simulated cloud tells it and takes the machine two minutes later, as EC2 does.
    let (mut scene, cloud) = spoken(setup());
    populate(&mut scene, 3, |_| {});
    let old = only_claim(&scene);
    assert!(cloud.interrupt(old["status"]["providerID"].as_str().unwrap()));
    let noticed = scene.now();
    scene.run_until("a replacement to be asked for", 5, |scene| scene.claims().len() == 2);
    scene.run_until("the drain to be done", 115, |scene| is_gone(scene, &old) || status_of_path(scene, &old) == "True");
    scene.run_until("all to run elsewhere", 115, |scene| n_running(scene) == 3);
    let took = scene.now().duration_since(noticed).as_secs();
    assert!(took < 120, "before the machine is gone: {took} s");
    scene.run_for(600);
    assert_eq!(scene.claims().len(), 1, "one came for one that went");
    assert_eq!(cloud.take_notices(), [], "everything was acknowledged");
}

fn status_of_path(scene: &Rehearsal, claim: &Value) -> String {
    status_of(&scene.get(&claim_path(&name(claim))).unwrap(), "Drained")
}

#[test]
fn d2_3_without_a_queue_the_termination_handler_may_run_beside_us() {
    let (mut scene, mail) = mute(setup());
    populate(&mut scene, 2, |_| {});
    let old = only_claim(&scene);
    cordon_and_drain(&mut scene, old["status"]["nodeName"].as_str().unwrap());
    scene.run_until("new capacity", 180, |scene| n_running(scene) == 2);
    scene.run_until("the empty node to go", 300, |scene| is_gone(scene, &old));
    assert_eq!(mail.n_refused(), 1, "where there is nothing to hear, nobody listens");
}

#[test]
fn d3_25_pods_of_a_node_that_the_handler_cordoned_and_drained_get_new_capacity_and_the_node_is_ended() {
    let (mut scene, mail) = mailed(setup());
    populate(&mut scene, 3, |_| {});
    let old = only_claim(&scene);
    cordon_and_drain(&mut scene, old["status"]["nodeName"].as_str().unwrap());
    scene.run_until("new capacity", 180, |scene| n_running(scene) == 3);
    scene.run_until("the empty node to be ended", 300, |scene| is_gone(scene, &old));
    // And who sets the queue may skip the handler.
    let next = only_claim(&scene);
    mail.send(spot_warning(&scene, "e-1", &instance_of(&next)));
    scene.run_until("the node to be gone", 120, |scene| is_gone(scene, &next));
}

#[test]
fn d3_26_what_the_handlers_role_allows_on_the_queue_is_what_we_ask_of_it() {
    let (mut scene, mail) = mailed(setup());
    populate(&mut scene, 1, |_| {});
    mail.send(spot_warning(&scene, "e-1", &instance_of(&only_claim(&scene))));
    scene.run_until("the queue to be empty", 30, |_| mail.n_left() == 0);
    let account = mail.aws().account();
    let mut asked: Vec<&str> = account.calls.iter().map(|(action, _)| *action).collect();
    asked.sort_unstable();
    asked.dedup();
    // The handler is given the queue's address; we look it up by its name, which is the one permission more.
    assert_eq!(asked, ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"]);
}

#[test]
fn d3_27_a_queue_with_the_handlers_two_rules_works_as_our_interruption_queue() {
    let (mut scene, mail) = mailed(setup());
    populate(&mut scene, 1, |_| {});
    let claim = only_claim(&scene);
    let instance = instance_of(&claim);
    // Rule one lets three kinds through, rule two every health event of every service.
    mail.send(rebalance(&scene, "e-1", &instance));
    mail.send(state_change(&scene, "e-2", &instance, "running"));
    let other = json!({"service": "RDS", "eventTypeCategory": "scheduledChange", "affectedEntities": [{"entityValue": instance}]});
    mail.send(crate::stage::event(&scene, "e-3", "aws.health", "AWS Health Event", &other));
    scene.run_for(10);
    assert_eq!(mail.n_left(), 0);
    assert!(!is_going(&only_claim(&scene)));
    mail.send(scheduled_change(&scene, "e-4", &instance));
    mail.send(spot_warning(&scene, "e-5", &instance));
    scene.run_until("the node to be gone", 180, |scene| is_gone(scene, &claim));
    assert_eq!(mail.n_left(), 0);
}

#[test]
fn d3_28_the_handlers_settings_are_what_we_do_without_a_setting() {
    // checkASGTagBeforeDraining: false: instances are in no group, and no group is asked about them.
    let (mut scene, mail) = mailed(setup());
    populate(&mut scene, 1, |_| {});
    let claim = only_claim(&scene);
    mail.send(spot_warning(&scene, "e-1", &instance_of(&claim)));
    scene.run_until("the node to be gone", 180, |scene| is_gone(scene, &claim));
    assert_eq!(mail.aws().count("autoscaling:CompleteLifecycleAction"), 0);
    // A test that a new hook of some group sends is deleted like everything else.
    mail.send(json!({"Event": "autoscaling:TEST_NOTIFICATION", "AutoScalingGroupName": "g"}).to_string());
    scene.run_until("the queue to be empty", 10, |_| mail.n_left() == 0);
}

#[test]
fn d3_29_the_handlers_queue_is_taken_over_with_what_is_in_it() {
    let (mut scene, mail) = mailed(setup());
    populate(&mut scene, 1, |_| {});
    let claim = only_claim(&scene);
    // The handler stops with work in its queue; the operator starts on the same queue.
    scene.kill();
    mail.send(spot_warning(&scene, "e-1", &instance_of(&claim)));
    mail.send(lifecycle_hook("i-of-another-cluster"));
    scene.revive();
    scene.run_until("the queue to be empty", 30, |_| mail.n_left() == 0);
    scene.run_until("the node to be gone", 180, |scene| is_gone(scene, &claim));
}

#[test]
fn d3_31_pods_get_their_own_grace_period_bounded_by_the_notice() {
    for (grace, stops_after, least, most) in [(90, "80s", 78, 95), (600, "500s", 100, 121)] {
        let (mut scene, mail) = mailed(setup());
        populate(&mut scene, 1, |spec| {
            spec["terminationGracePeriodSeconds"] = json!(grace);
            spec["annotations"] = json!({"kerf.dev/stops-after": stops_after});
        });
        let old = only_claim(&scene);
        let node = old["status"]["nodeName"].as_str().unwrap().to_owned();
        mail.send(spot_warning(&scene, "e-1", &instance_of(&old)));
        let noticed = scene.now();
        let is_there = |scene: &Rehearsal| scene.pods().iter().any(|pod| pod["spec"]["nodeName"] == *node);
        scene.run_until("the pod to be gone", 130, |scene| !is_there(scene));
        let took = scene.now().duration_since(noticed).as_secs();
        assert!((least..=most).contains(&took), "grace {grace}: {took} s");
    }
}

#[test]
fn d3_31_a_pod_that_must_not_be_disrupted_still_gets_its_grace_period_before_the_machine_is_gone() {
    let (mut scene, mail) = mailed(setup());
    populate(&mut scene, 1, |spec| {
        spec["annotations"] = json!({"karpenter.sh/do-not-disrupt": "true", "kerf.dev/stops-after": "10s"});
    });
    let old = only_claim(&scene);
    mail.send(spot_warning(&scene, "e-1", &instance_of(&old)));
    scene.run_for(85);
    assert!(!scene.pods().iter().any(is_going), "it is left alone as long as its grace period still fits");
    scene.run_until("it to be asked to leave", 10, |scene| scene.pods().iter().any(is_going));
    let pods = scene.pods();
    let grace =
        pods.iter().find(|pod| is_going(pod)).unwrap()["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap();
    assert!((25..=30).contains(&grace), "{grace}");
}
