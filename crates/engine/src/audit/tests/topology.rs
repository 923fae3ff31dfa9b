//! Laws about company and spread.

use super::*;

fn term(key: &str, app: &str) -> PodTerm {
    PodTerm {
        topology_key: key.into(),
        namespaces: Namespaces::These(["default".into()].into()),
        selector: Some(LabelSelector::from_labels([("app", app)])),
    }
}

fn bound(node: u32, app: &str, anti_affinity: Vec<PodTerm>) -> BoundGroup {
    BoundGroup {
        node: NodeIdx(node),
        shape: Arc::new(BoundShape {
            namespace: kerf_model::NamespaceName::default(),
            labels: [(Text::from("app"), Text::from(app))].into(),
            anti_affinity,
        }),
        n_pods: 1,
    }
}

#[test]
fn pods_that_avoid_each_other_do_not_meet() {
    let shy = |key: &str| Demand { anti_affinity: vec![term(key, "x")], ..demand("x", 100) };
    let mut s = scene(vec![(shy(labels::HOSTNAME), 2), (shy(labels::ZONE), 2), (demand("x", 100), 1)]);
    let met = is!(Breach::AntiAffinity { .. });
    good(&s, vec![launch("c1", &["p0-0"]), launch("c2", &["p0-1"])]);
    bad(&s, vec![launch("c1", &["p0-0", "p0-1"])], met);
    bad(&s, vec![on("n1", &["p0-0", "p2-0"])], met);
    good(&s, vec![launch_in(ZONE_A, "c1", &["p1-0"]), on("n2", &["p1-1"])]);
    bad(&s, vec![launch_in(ZONE_B, "c1", &["p1-0"]), on("n2", &["p1-1"])], met);
    // A claim is in every zone where it may end.
    bad(&s, vec![launch("c1", &["p1-0"]), on("n2", &["p1-1"])], met);
    s.bound = vec![bound(0, "x", vec![])];
    bad(&s, vec![on("n1", &["p0-0"])], met);
    good(&s, vec![on("n2", &["p0-0"])]);
    s.nodes[0].stage = NodeStage::Leaving;
    good(&s, vec![launch_in(ZONE_A, "c1", &["p1-0"])]);
}

#[test]
fn a_pod_stays_away_from_those_that_avoid_it() {
    let mut s = scene(vec![
        (demand("x", 100), 1),
        (Demand { anti_affinity: vec![term(labels::HOSTNAME, "x")], ..demand("y", 100) }, 1),
    ]);
    s.bound = vec![bound(0, "y", vec![term(labels::ZONE, "x")])];
    let met = is!(Breach::AntiAffinity { kind: TopologyKind::InverseAntiAffinity, .. });
    good(&s, vec![on("n2", &["p0-0"])]);
    bad(&s, vec![on("n1", &["p0-0"])], met);
    bad(&s, vec![launch("c1", &["p0-0"])], met);
    bad(&s, vec![on("n2", &["p0-0", "p1-0"])], is!(Breach::AntiAffinity { .. }));
}

#[test]
fn a_quarrel_that_was_there_before_is_no_breach() {
    let mut s = scene(vec![(demand("z", 100), 1)]);
    s.bound = vec![bound(0, "x", vec![term(labels::HOSTNAME, "x")]), bound(0, "x", vec![])];
    good(&s, vec![on("n1", &["p0-0"])]);
}

#[test]
fn a_pod_that_seeks_others_finds_them() {
    let near = |key: &str| Demand { affinity: vec![term(key, "db")], ..demand("x", 100) };
    let mut s = scene(vec![(near(labels::ZONE), 2), (near(labels::HOSTNAME), 1), (demand("db", 100), 1)]);
    let alone = is!(Breach::AffinityAlone { .. });
    bad(&s, vec![on("n1", &["p0-0"])], alone);
    good(&s, vec![on("n1", &["p0-0", "p2-0"])]);
    good(&s, vec![on("n1", &["p2-0"]), launch_in(ZONE_A, "c1", &["p0-0"])]);
    bad(&s, vec![on("n1", &["p2-0"]), launch_in(ZONE_B, "c1", &["p0-0"])], alone);
    // In the same claim they are together wherever it ends.
    good(&s, vec![launch("c1", &["p0-0", "p1-0", "p2-0"])]);
    bad(&s, vec![launch("c1", &["p2-0"]), launch("c2", &["p0-0"])], alone);
    s.bound = vec![bound(0, "db", vec![])];
    good(&s, vec![on("n1", &["p0-0", "p1-0"])]);
    bad(&s, vec![on("n2", &["p0-0"])], alone);
    bad(&s, vec![launch("c1", &["p0-0"])], alone);
    s.bound.push(bound(1, "db", vec![]));
    good(&s, vec![launch("c1", &["p0-0"])]);
}

#[test]
fn the_first_of_a_group_may_come_alone_and_the_others_follow_it() {
    let herd = Demand { affinity: vec![term(labels::ZONE, "x")], ..demand("x", 100) };
    let mut s = scene(vec![(herd, 2), (demand("x", 100), 1)]);
    let alone = is!(Breach::AffinityAlone { .. });
    good(&s, vec![launch("c1", &["p0-0"])]);
    good(&s, vec![launch_in(ZONE_A, "c1", &["p0-0"]), on("n1", &["p0-1"])]);
    bad(&s, vec![launch_in(ZONE_A, "c1", &["p0-0"]), on("n2", &["p0-1"])], alone);
    s.bound = vec![bound(0, "x", vec![])];
    bad(&s, vec![on("n2", &["p0-0", "p0-1"])], alone);
    // Before one that does not mind where it is.
    s.bound.clear();
    good(&s, vec![on("n2", &["p0-0"]), on("n1", &["p1-0"])]);
    s.bound = vec![bound(0, "x", vec![])];
    // The one that is there is on its way out.
    s.nodes[0].stage = NodeStage::Leaving;
    good(&s, vec![on("n2", &["p0-0", "p0-1"])]);
}

fn spread(key: &str, max_skew: u32) -> Spread {
    Spread {
        topology_key: key.into(),
        max_skew,
        min_domains: None,
        when: WhenUnsatisfiable::DoNotSchedule,
        selector: Some(LabelSelector::from_labels([("app", "x")])),
        node_affinity_policy: NodePolicy::Honor,
        node_taints_policy: NodePolicy::Ignore,
    }
}

#[test]
fn zones_stay_level() {
    let even = |spread: Spread| Demand { spreads: vec![spread], ..demand("x", 100) };
    let mut s = scene(vec![(even(spread(labels::ZONE, 1)), 3)]);
    let wide = is!(Breach::SpreadTooWide { .. });
    good(&s, vec![on("n1", &["p0-0"])]);
    good(&s, vec![on("n1", &["p0-0", "p0-1"]), launch_in(ZONE_B, "c1", &["p0-2"])]);
    bad(&s, vec![on("n1", &["p0-0", "p0-1"])], wide);
    bad(&s, vec![launch("c1", &["p0-0"])], is!(Breach::DomainUnknown { .. }));
    // Nodes that are there, and zones that could be opened, both count.
    s.nodes.pop();
    bad(&s, vec![on("n1", &["p0-0", "p0-1"])], wide);
    s.pools.clear();
    good(&s, vec![on("n1", &["p0-0", "p0-1"])]);
    s.demands[0] = Arc::new(even(Spread { min_domains: Some(2), ..spread(labels::ZONE, 1) }));
    bad(&s, vec![on("n1", &["p0-0", "p0-1"])], wide);
}

#[test]
fn a_zone_that_the_pod_may_not_use_does_not_hold_it_back() {
    let in_a = Demand {
        node_selector: Requirements::new().with(labels::ZONE, Requirement::is_in([ZONE_A])),
        spreads: vec![spread(labels::ZONE, 1)],
        ..demand("x", 100)
    };
    let s = scene(vec![(in_a, 3)]);
    good(&s, vec![on("n1", &["p0-0", "p0-1"]), launch_in(ZONE_A, "c1", &["p0-2"])]);
}

#[test]
fn hosts_stay_level_with_the_emptiest_that_is_there() {
    let even = Demand { spreads: vec![spread(labels::HOSTNAME, 1)], ..demand("x", 100) };
    let mut s = scene(vec![(even.clone(), 6), (demand("x", 100), 1)]);
    let wide = is!(Breach::SpreadTooWide { .. });
    let three_each = || vec![launch("c1", &["p0-0", "p0-1", "p0-2"]), launch("c2", &["p0-3", "p0-4", "p0-5"])];
    bad(&s, three_each(), wide);
    s.nodes.clear();
    good(&s, three_each());
    bad(&s, [three_each(), vec![launch("c3", &["p1-0"])]].concat(), wide);
    // What already was uneven is no breach where nothing is added, and nodes out of sight do not count.
    s.nodes = vec![node("n1", ZONE_A), node("n2", ZONE_A)];
    s.bound = (0..5).map(|_| bound(0, "x", vec![])).collect();
    good(&s, vec![on("n2", &["p0-0"])]);
    bad(&s, vec![on("n1", &["p0-0"]), on("n2", &["p0-1"])], wide);
    s.bound.clear();
    s.nodes[1].taints = vec![Taint { key: "t".into(), value: "".into(), effect: Effect::NoSchedule }];
    bad(&s, vec![on("n1", &["p0-0", "p0-1"])], wide);
    s.demands[0] = Arc::new(Demand {
        spreads: vec![Spread { node_taints_policy: NodePolicy::Honor, ..spread(labels::HOSTNAME, 1) }],
        ..even
    });
    good(&s, vec![on("n1", &["p0-0", "p0-1"])]);
}

#[test]
fn a_hundred_thousand_pods_on_ten_thousand_nodes_are_judged_at_once() {
    let n_demands = 1000;
    let even = Demand { spreads: vec![spread(labels::HOSTNAME, 100)], ..demand("x", 10) };
    let demands = (0..n_demands)
        .map(|idx| {
            let mut demand = if idx % 10 == 0 { even.clone() } else { demand("x", 10) };
            demand.requests.set(CPU, Quantity::from_milli(1 + idx % 7));
            demand.labels.insert("n".into(), idx.to_string().as_str().into());
            (demand, 100)
        })
        .collect();
    let mut s = scene(demands);
    s.nodes = (0..10_000).map(|idx| node(&format!("n{idx}"), ZONE_A)).collect();
    s.pools[0].types = (0..600).map(|idx| Arc::new(machine(&format!("t{idx:03}"), 8, 100))).collect();
    let any_of: Arc<[LaunchOption]> = (0..600).map(|idx| option(&format!("t{idx:03}"), ZONE_A, 100)).collect();
    let steps = s
        .pods
        .chunks(10)
        .enumerate()
        .map(|(idx, pods)| {
            let names: Vec<&str> = pods.iter().map(|pod| &*pod.id.name).collect();
            if idx % 2 == 0 {
                on(&format!("n{idx}"), &names)
            } else {
                let claim = claim(&format!("c{idx}"), &names);
                Step::Launch(Box::new(Launch { any_of: any_of.clone(), ..claim }))
            }
        })
        .collect();
    good(&s, steps);
}
