//! The queue: bursts, copies, garbage, kills, nodes of others, and a queue that is not there.

use crate::stage::{
    Mail, add_guest, claim_path, instance_of, is_going, launch_hook, lifecycle_hook, mailed, metric, n_running,
    populate, setup, spot_warning, state_change, status_of,
};
use kerf_controllers::Duty;
use kerf_controllers::interruption::Interruption;
use kerf_simulation::Rehearsal;
use serde_json::{Value, json};

fn only_interruption() -> Vec<Box<dyn Duty>> {
    vec![Box::new(Interruption::default())]
}

const N_MESSAGES: usize = 1_000;
const N_COPIES: usize = 100;
const N_GARBAGE: usize = 50;
const N_CLAIMS: usize = N_MESSAGES - N_COPIES - N_GARBAGE;

/// Claims that were launched, held by a finalizer: so "goes" shows as a deletion timestamp.
fn add_claims(scene: &mut Rehearsal, n_claims: usize) {
    for n in 0..n_claims {
        let name = format!("c-{n:04}");
        scene.create_value(&json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": name, "finalizers": ["karpenter.sh/termination"],
                "labels": {"karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "spot"}},
            "spec": {
                "requirements": [],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            },
        }));
        let status = json!({"status": {"providerID": format!("aws:///us-east-1a/i-{n:04}")}});
        scene.patch(&format!("{}/status", claim_path(&name)), &status);
    }
    scene.settle();
}

/// The bodies of a thousand messages: each claim's own, copies of every ninth or so, and garbage between.
fn bodies(scene: &Rehearsal) -> Vec<String> {
    let warning = |n: usize| spot_warning(scene, &format!("e-{n}"), &format!("i-{n:04}"));
    let mut bodies: Vec<String> = (0..N_CLAIMS).map(warning).collect();
    // Copies and garbage come between the others, copies before and after what they copy.
    for n in 0..N_COPIES {
        let copy = warning(n * 8);
        bodies.insert((n * 37 + 11) % bodies.len(), copy);
    }
    for n in 0..N_GARBAGE {
        let garbage = ["", "{", "null", "[1, 2]", "{\"detail-type\": 7}", "\u{1f980}"][n % 6].to_owned();
        bodies.insert((n * 53 + 5) % bodies.len(), garbage);
    }
    bodies
}

fn n_going(scene: &Rehearsal) -> usize {
    scene.claims().iter().filter(|claim| is_going(claim)).count()
}

/// A thousand messages in ten seconds; `each_second` may do harm meanwhile.
fn storm(scene: &mut Rehearsal, mail: &Mail, mut each_second: impl FnMut(&mut Rehearsal, usize)) {
    let bodies = bodies(scene);
    assert_eq!(bodies.len(), N_MESSAGES);
    for (second, some) in bodies.chunks(N_MESSAGES / 10).enumerate() {
        some.iter().for_each(|body| mail.send(body.clone()));
        each_second(scene, second);
        scene.run_for(1);
    }
}

#[test]
fn a_paused_operator_heeds_what_the_cloud_takes_back() {
    let mut setup = setup().with_duties(only_interruption);
    setup.options.pauses_disruption = true;
    let (mut scene, mail) = mailed(setup);
    add_claims(&mut scene, 1);
    mail.send(spot_warning(&scene, "e-0", "i-0000"));
    scene.run_until("it to be heard", 30, |scene| n_going(scene) == 1);
}

#[test]
fn a_clock_that_is_set_back_silences_nobody() {
    let (mut scene, mail) = mailed(setup().with_duties(only_interruption));
    add_claims(&mut scene, 2);
    let warn = |scene: &Rehearsal, n: usize| mail.send(spot_warning(scene, &format!("e-{n}"), &format!("i-{n:04}")));
    warn(&scene, 0);
    scene.run_until("the first notice to be heard", 30, |scene| n_going(scene) == 1);
    scene.set_clock(0, -300);
    scene.run_for(1);
    warn(&scene, 1);
    scene.run_until("the next one to be heard", 30, |scene| n_going(scene) == 2);
}

#[test]
fn a_thousand_messages_in_ten_seconds_are_each_handled_once_and_the_queue_is_empty() {
    let (mut scene, mail) = mailed(setup().with_duties(only_interruption));
    add_claims(&mut scene, N_CLAIMS);
    let began = scene.now();
    storm(&mut scene, &mail, |_, _| {});
    scene.run_until("the queue to be empty", 5, |_| mail.n_left() == 0);
    assert!(scene.now().duration_since(began).as_secs() <= 12, "it keeps up");
    assert_eq!(n_going(&scene), N_CLAIMS);
    let spot = ["karpenter_interruption_received_messages_total", "spot_interrupted"];
    assert_eq!(metric(&scene, &spot), (N_CLAIMS + N_COPIES) as f64);
    let nothing = ["karpenter_interruption_received_messages_total", "no_op"];
    assert_eq!(metric(&scene, &nothing), N_GARBAGE as f64);
    assert_eq!(metric(&scene, &["karpenter_interruption_deleted_messages_total"]), N_MESSAGES as f64);
    let disrupted = ["karpenter_nodeclaims_disrupted_total", "reason=\"spot_interrupted\"", "nodepool=\"default\""];
    assert_eq!(metric(&scene, &disrupted), N_CLAIMS as f64, "copies end nobody twice");
    assert_eq!(metric(&scene, &["karpenter_interruption_message_queue_duration_seconds_count"]), N_MESSAGES as f64);
    assert_eq!(scene.events("TerminatingOnInterruption").len(), N_CLAIMS);
}

#[test]
fn an_operator_that_is_killed_in_the_middle_of_a_storm_loses_no_message() {
    let (mut scene, mail) = mailed(setup().with_duties(only_interruption));
    add_claims(&mut scene, N_CLAIMS);
    let mut n_disrupted = 0.0;
    storm(&mut scene, &mail, |scene, second| {
        // Some steps into the work of this second: received, half of it stored, nothing acknowledged.
        for _ in 0..=second {
            scene.step();
        }
        n_disrupted += metric(scene, &["karpenter_nodeclaims_disrupted_total"]);
        scene.restart();
    });
    assert!(n_disrupted < N_CLAIMS as f64, "every kill came in the middle");
    // What a dead operator had in hand is visible again after twenty seconds.
    scene.run_until("the queue to be empty", 60, |_| mail.n_left() == 0);
    assert_eq!(n_going(&scene), N_CLAIMS);
    n_disrupted += metric(&scene, &["karpenter_nodeclaims_disrupted_total"]);
    assert!(n_disrupted <= N_CLAIMS as f64, "nobody was ended twice: {n_disrupted}");
}

#[test]
fn nothing_is_acknowledged_before_it_is_stored() {
    let (mut scene, mail) = mailed(setup().with_duties(only_interruption));
    add_claims(&mut scene, 3);
    mail.send(spot_warning(&scene, "e-1", "i-0001"));
    let mut was_going = false;
    while mail.n_left() > 0 {
        assert!(scene.step() || mail.n_left() == 0, "the message is dealt with without waiting");
        let is_going = is_going(&scene.get(&claim_path("c-0001")).unwrap());
        assert!(is_going || mail.n_left() == 1, "acknowledged before the deletion was stored");
        was_going |= is_going;
    }
    assert!(was_going);
}

#[test]
fn a_queue_that_is_not_there_is_asked_for_again_with_growing_patience() {
    let (mut scene, mail) = mailed(setup().with_duties(only_interruption));
    add_claims(&mut scene, 3);
    scene.run_for(1);
    mail.send("{}");
    mail.break_queue();
    scene.run_for(120);
    let n_asked = mail.aws().count("sqs:GetQueueUrl");
    assert!((5..=12).contains(&n_asked), "{n_asked} times in two minutes");
    mail.mend_queue();
    mail.send(spot_warning(&scene, "e-1", "i-0001"));
    // A minute of patience, and what was in hand when the queue broke is visible again twenty seconds later.
    scene.run_until("the queue to be empty", 90, |_| mail.n_left() == 0);
    assert!(is_going(&scene.get(&claim_path("c-0001")).unwrap()));
}

#[test]
fn notices_of_one_end_in_any_order_end_a_claim_once() {
    let (mut scene, mail) = mailed(setup().with_duties(only_interruption));
    add_claims(&mut scene, 3);
    mail.send(state_change(&scene, "e-3", "i-0001", "terminated"));
    mail.send(state_change(&scene, "e-2", "i-0001", "shutting-down"));
    mail.send(spot_warning(&scene, "e-1", "i-0001"));
    mail.send(spot_warning(&scene, "e-9", "i-of-somebody-else"));
    scene.run_until("the queue to be empty", 10, |_| mail.n_left() == 0);
    assert_eq!(n_going(&scene), 1);
    assert_eq!(metric(&scene, &["karpenter_nodeclaims_disrupted_total"]), 1.0);
    for reason in ["SpotInterrupted", "InstanceTerminating", "TerminatingOnInterruption"] {
        assert_eq!(scene.events(reason).len(), 1, "{reason}");
    }
}

#[test]
fn a_node_of_others_is_cordoned_and_drained_before_its_group_may_go_on() {
    let (mut scene, mail) = mailed(setup());
    add_guest(&mut scene, "guest", "i-guest");
    scene.create_value(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "namespace": "default", "annotations": {"kerf.dev/stops-after": "20s"}},
        "spec": {"nodeName": "guest", "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "main", "image": "web"}]},
    }));
    scene.run_until("the pod to run", 30, |scene| n_running(scene) == 1);
    mail.send(lifecycle_hook("i-guest"));
    scene.run_until("the node to be cordoned", 5, |scene| {
        scene.get("/api/v1/nodes/guest").unwrap()["spec"]["unschedulable"] == true
    });
    scene.run_for(10);
    assert_eq!(mail.aws().count("autoscaling:CompleteLifecycleAction"), 0, "the pod is still leaving");
    scene.run_until("the queue to be empty", 60, |_| mail.n_left() == 0);
    assert!(scene.pods().is_empty());
    assert_eq!(mail.aws().count("autoscaling:CompleteLifecycleAction"), 1, "however often the message came");
    assert!(scene.get("/api/v1/nodes/guest").is_some(), "the machine is not ours to end");
}

#[test]
fn a_group_that_waits_for_its_new_instance_may_go_on_once_the_node_is_ready() {
    let (mut scene, mail) = mailed(setup());
    mail.send(launch_hook("i-guest"));
    mail.send(launch_hook("i-of-another-cluster"));
    scene.run_for(60);
    assert_eq!(mail.n_left(), 2, "nobody knows the node yet");
    assert_eq!(mail.aws().count("autoscaling:CompleteLifecycleAction"), 0);
    add_guest(&mut scene, "guest", "i-guest");
    scene.run_until("the hook to be completed", 60, |_| mail.n_left() == 1);
    assert_eq!(mail.aws().count("autoscaling:CompleteLifecycleAction"), 1);
    scene.run_for(60);
    assert_eq!(mail.n_left(), 1, "what is not ours to judge is left to time out");
    assert!(scene.get("/api/v1/nodes/guest").unwrap()["spec"]["unschedulable"].is_null(), "it was only welcomed");
}

#[test]
fn a_pod_that_may_not_leave_a_node_of_others_holds_its_group_for_two_minutes_at_most() {
    let (mut scene, mail) = mailed(setup());
    add_guest(&mut scene, "guest", "i-guest");
    scene.create_value(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "namespace": "default", "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
        "spec": {"nodeName": "guest", "containers": [{"name": "main", "image": "web"}]},
    }));
    scene.run_until("the pod to run", 30, |scene| n_running(scene) == 1);
    mail.send(lifecycle_hook("i-guest"));
    scene.run_for(115);
    assert_eq!(mail.n_left(), 1);
    scene.run_until("the queue to be empty", 30, |_| mail.n_left() == 0);
    assert_eq!(n_running(&scene), 1, "nobody is forced");
}

#[test]
fn the_offering_that_was_taken_back_is_not_bought_again_at_once() {
    let (mut scene, mail) = mailed(setup());
    populate(&mut scene, 2, |_| {});
    let old = scene.claims()[0].clone();
    mail.send(spot_warning(&scene, "e-1", &instance_of(&old)));
    scene.run_until("a replacement", 10, |scene| scene.claims().len() == 2);
    scene
        .run_until("its launch", 10, |scene| scene.claims().iter().all(|claim| status_of(claim, "Launched") == "True"));
    let offering = |claim: &Value| {
        let labels = &claim["metadata"]["labels"];
        ["node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"].map(|key| labels[key].to_string())
    };
    let new = scene.claims().into_iter().find(|claim| !is_going(claim)).unwrap();
    assert_ne!(offering(&old), offering(&new));
}
