//! Panics, planted, and marks, lost: one object or duty suffers, and the operator goes on.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

mod scene;
mod scripted;

use kerf_controllers::lifecycle::Lifecycle;
use kerf_controllers::world::Change;
use kerf_controllers::{Desk, Duty, Outcome, World};
use kerf_model::{Snapshot, Text, UnixMillis};
use kerf_simulation::{Rehearsal, Setup};
use scene::{cluster, inflate, n_pods};
use scripted::{CLAIMS, claim, condition, get_claim, has_claim, rehearse};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn metric(scene: &Rehearsal, line: &str) -> bool {
    scene.operator().metrics().render().lines().any(|it| it == line)
}

/// A pod whose presence makes planning panic, until it is mended.
static IS_MENDED: AtomicBool = AtomicBool::new(false);

fn poisoned_pod(snapshot: &Snapshot) {
    let has_poison = snapshot.pods.iter().any(|pod| &*pod.id.name == "poison");
    assert!(IS_MENDED.load(Ordering::SeqCst) || !has_poison, "planted");
}

#[test]
fn a_pod_that_panics_the_planner_is_left_out_and_told_and_all_others_get_their_nodes() {
    let mut setup = Setup::default();
    setup.options.plant = Some(poisoned_pod);
    let mut scene = cluster(setup, |_| {});
    scene.create_value(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "poison", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "web", "resources": {"requests": {"cpu": "120"}}}]},
    }));
    scene.create_value(&inflate("web", 50, |_| {}));
    scene.run_until("all others run", 120, |scene| n_pods(scene, "Running") == 50);
    let told = scene.events("Quarantined");
    assert_eq!(told, ["planning panics because of it, and leaves it out for 5 minutes (a defect of Kerf: planted)"]);
    assert!(metric(&scene, "kerf_quarantined_objects{controller=\"provisioner\"} 1"));
    scene.create_value(&inflate("later", 5, |_| {}));
    scene.run_until("those who come later run, too", 120, |scene| n_pods(scene, "Running") == 55);
    assert!(
        metric(&scene, "kerf_defects_total{controller=\"provisioner\"} 1"),
        "nobody panics a second time meanwhile"
    );
    IS_MENDED.store(true, Ordering::SeqCst);
    scene.run_until("it is tried again", 400, |scene| n_pods(scene, "Running") == 56);
}

static IS_REPLACED: AtomicBool = AtomicBool::new(false);

fn poisoned_until_replaced(snapshot: &Snapshot) {
    let has_poison = snapshot.pods.iter().any(|pod| &*pod.id.name == "poison");
    assert!(IS_REPLACED.load(Ordering::SeqCst) || !has_poison, "planted");
}

#[test]
fn a_pod_that_takes_the_place_of_one_that_was_left_out_is_planned_at_once() {
    let mut setup = Setup::default();
    setup.options.plant = Some(poisoned_until_replaced);
    let mut scene = cluster(setup, |_| {});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "poison", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "web", "resources": {"requests": {"cpu": "1"}}}]},
    });
    let gauge = |scene: &Rehearsal, n: usize| {
        metric(scene, &format!("kerf_quarantined_objects{{controller=\"provisioner\"}} {n}"))
    };
    scene.create_value(&pod);
    scene.run_until("it is left out", 60, |scene| gauge(scene, 1));
    scene.delete("/api/v1/namespaces/default/pods/poison");
    scene.run_until("it is forgotten", 60, |scene| gauge(scene, 0));
    IS_REPLACED.store(true, Ordering::SeqCst);
    scene.create_value(&pod);
    scene.run_until("another one of its name runs", 60, |scene| n_pods(scene, "Running") == 1);
}

fn always(_: &Snapshot) {
    panic!("planted")
}

#[test]
fn a_planner_that_panics_whatever_it_is_asked_holds_up_nobody_else() {
    let mut setup = Setup::default();
    setup.options.plant = Some(always);
    let mut scene = cluster(setup, |_| {});
    scene.create_value(&inflate("web", 3, |_| {}));
    scene.run_for(30);
    assert_eq!(n_pods(&scene, "Running"), 0);
    scene.create_value(&json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "by-hand"},
        "spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            ],
        },
    }));
    scene.run_until("a claim by hand gets its node", 60, |scene| !scene.nodes().is_empty());
}

/// Looks at claims, and panics on one of them.
#[derive(Default)]
struct Clumsy {
    marked: BTreeSet<Text>,
}

static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
static N_PANICS: AtomicUsize = AtomicUsize::new(0);

impl Duty for Clumsy {
    fn name(&self) -> &'static str {
        "test.clumsy"
    }

    fn observe(&mut self, change: &Change, _: &World) {
        if let Change::Claim { name, after: Some(_), .. } = change {
            self.marked.insert(name.clone());
        }
    }

    fn work(&mut self, _: &mut Desk<'_>) -> Option<UnixMillis> {
        // In the order of names: "poison" comes before half of the others.
        for name in std::mem::take(&mut self.marked) {
            if &*name == "poison" {
                N_PANICS.fetch_add(1, Ordering::SeqCst);
                panic!("it tripped over {name}");
            }
            SEEN.lock().unwrap().insert(name.to_string());
        }
        None
    }

    fn done(&mut self, _: &Text, _: Outcome, _: &mut Desk<'_>) {}
}

#[test]
fn a_duty_that_panics_on_one_object_leaves_it_alone_for_a_while_and_does_all_others() {
    let (mut scene, _) = rehearse(|| vec![Box::new(Clumsy::default()), Box::new(Lifecycle::default())]);
    scene.settle();
    for n in 0..40 {
        let prefix = if n % 2 == 0 { "a" } else { "z" };
        scene.create_value(&claim(&format!("{prefix}{n}"), &json!({})));
    }
    scene.create_value(&claim("poison", &json!({})));
    scene.settle();
    assert_eq!(SEEN.lock().unwrap().len(), 40);
    assert_eq!(condition(&get_claim(&scene, "poison"), "Launched"), "True Launched", "other duties go on with it");
    let n_panics = N_PANICS.load(Ordering::SeqCst);
    assert!(n_panics <= 10, "found by halves: {n_panics}");
    let words = "test.clumsy panics on it and leaves it alone for 5 minutes (a defect of Kerf: it tripped over poison)";
    assert_eq!(scene.events("Quarantined"), [words]);
    assert!(metric(&scene, "kerf_quarantined_objects{controller=\"test.clumsy\"} 1"));
    scene.patch(&format!("{CLAIMS}/poison"), &json!({"metadata": {"labels": {"a": "b"}}}));
    scene.run_for(290);
    assert_eq!(N_PANICS.load(Ordering::SeqCst), n_panics, "left alone");
    scene.run_for(20);
    assert_eq!(N_PANICS.load(Ordering::SeqCst), n_panics + 1, "shown again, once");
    scene.create_value(&claim("late", &json!({})));
    scene.settle();
    assert!(SEEN.lock().unwrap().contains("late"));
}

/// Panics whatever it is shown.
struct Broken;

impl Duty for Broken {
    fn name(&self) -> &'static str {
        "test.broken"
    }

    fn observe(&mut self, _: &Change, _: &World) {}

    fn work(&mut self, _: &mut Desk<'_>) -> Option<UnixMillis> {
        panic!("planted")
    }

    fn done(&mut self, _: &Text, _: Outcome, _: &mut Desk<'_>) {}
}

#[test]
fn a_duty_that_panics_at_nothing_rests_longer_and_longer_and_the_others_go_on() {
    let (mut scene, _) = rehearse(|| vec![Box::new(Broken), Box::new(Lifecycle::default())]);
    scene.create_value(&claim("c", &json!({})));
    scene.run_for(800);
    assert_eq!(condition(&get_claim(&scene, "c"), "Launched"), "True Launched");
    assert!(scene.events("Quarantined").is_empty(), "no object is at fault");
    let page = scene.operator().metrics().render();
    let line = page.lines().find_map(|it| it.strip_prefix("kerf_defects_total{controller=\"test.broken\"} "));
    let n_panics: usize = line.unwrap().parse().unwrap();
    assert!((5..12).contains(&n_panics), "{n_panics}");
}

/// Lifecycle that does not hear of a claim's end the first time.
struct Deaf(Lifecycle, bool);

impl Duty for Deaf {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn observe(&mut self, change: &Change, world: &World) {
        match change {
            Change::Claim { after: Some(claim), .. } if self.1 && claim.metadata.deletion_timestamp.is_some() => {
                self.1 = false;
            }
            _ => self.0.observe(change, world),
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        self.0.work(desk)
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        self.0.done(key, outcome, desk);
    }
}

#[test]
fn what_nobody_heard_of_is_looked_at_again_within_ten_minutes() {
    let (mut scene, cloud) = rehearse(|| vec![Box::new(Deaf(Lifecycle::default(), true))]);
    scene.settle();
    scene.create_value(&claim("c", &json!({})));
    scene.settle();
    assert_eq!(condition(&get_claim(&scene, "c"), "Launched"), "True Launched");
    scene.delete(&format!("{CLAIMS}/c"));
    scene.run_for(60);
    assert_eq!((has_claim(&scene, "c"), cloud.script().n_terminations), (true, 0), "its news was lost");
    scene.run_until("the sweep finds it", 600, |scene| !has_claim(scene, "c"));
}

/// Trips over what it remembers, whatever it is shown, under the name of a duty that does not.
struct Worn;

impl Duty for Worn {
    fn name(&self) -> &'static str {
        "nodeclaim.lifecycle"
    }

    fn observe(&mut self, _: &Change, _: &World) {}

    fn work(&mut self, _: &mut Desk<'_>) -> Option<UnixMillis> {
        panic!("what it remembers makes no sense")
    }

    fn done(&mut self, _: &Text, _: Outcome, _: &mut Desk<'_>) {}
}

#[test]
fn a_duty_that_panics_on_what_it_remembers_begins_anew() {
    let (mut scene, _) = rehearse(|| vec![Box::new(Worn)]);
    scene.create_value(&claim("c", &json!({})));
    scene.run_for(5);
    assert_eq!(condition(&get_claim(&scene, "c"), "Launched"), "absent");
    scene.run_until("another one takes its place", 120, |scene| {
        condition(&get_claim(scene, "c"), "Launched") == "True Launched"
    });
}

/// Notes the claims that there are, and never gets over one of them, under the name of a duty that does.
#[derive(Default)]
struct Grudge {
    is_hurt: bool,
}

impl Duty for Grudge {
    fn name(&self) -> &'static str {
        "nodeclaim.lifecycle"
    }

    fn observe(&mut self, change: &Change, _: &World) {
        self.is_hurt |= matches!(change, Change::Claim { name, .. } if &**name == "poison");
    }

    fn work(&mut self, _: &mut Desk<'_>) -> Option<UnixMillis> {
        assert!(!self.is_hurt, "it remembers");
        None
    }

    fn done(&mut self, _: &Text, _: Outcome, _: &mut Desk<'_>) {}
}

#[test]
fn nobody_else_is_barred_because_a_duty_remembers_what_it_panicked_on() {
    let (mut scene, _) = rehearse(|| vec![Box::new(Grudge::default())]);
    scene.settle();
    let names: Vec<String> = (0..10).map(|n| format!("c{n}")).chain(["poison".to_owned()]).collect();
    for name in &names {
        scene.create_value(&claim(name, &json!({})));
    }
    scene.run_for(60);
    assert!(scene.events("Quarantined").len() <= 1, "{:?}", scene.events("Quarantined"));
    for name in names.iter().filter(|name| *name != "poison") {
        assert_eq!(condition(&get_claim(&scene, name), "Launched"), "True Launched", "{name}");
    }
}

static KNOWN: Mutex<BTreeSet<Text>> = Mutex::new(BTreeSet::new());

/// Keeps a list of claims, and panics after it has written one of them down.
#[derive(Default)]
struct Clerk {
    is_upset: bool,
}

impl Duty for Clerk {
    fn name(&self) -> &'static str {
        "test.clerk"
    }

    fn observe(&mut self, change: &Change, _: &World) {
        let Change::Claim { name, after, .. } = change else { return };
        match after {
            Some(_) => KNOWN.lock().unwrap().insert(name.clone()),
            None => KNOWN.lock().unwrap().remove(name),
        };
        self.is_upset = after.is_some() && &**name == "poison";
    }

    fn work(&mut self, _: &mut Desk<'_>) -> Option<UnixMillis> {
        assert!(!std::mem::take(&mut self.is_upset), "it is poison");
        None
    }

    fn done(&mut self, _: &Text, _: Outcome, _: &mut Desk<'_>) {}
}

#[test]
fn what_goes_while_it_is_left_alone_is_known_to_have_gone() {
    let (mut scene, _) = rehearse(|| vec![Box::new(Clerk::default())]);
    scene.settle();
    for name in ["a", "poison"] {
        scene.create_value(&claim(name, &json!({})));
    }
    scene.settle();
    assert!(metric(&scene, "kerf_quarantined_objects{controller=\"test.clerk\"} 1"));
    scene.delete(&format!("{CLAIMS}/poison"));
    scene.run_for(310);
    assert_eq!(KNOWN.lock().unwrap().iter().map(|name| &**name).collect::<Vec<_>>(), ["a"]);
}
