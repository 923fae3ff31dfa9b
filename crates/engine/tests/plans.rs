//! Small clusters and the plans one would draw by hand.

mod scene;

use kerf_model::labels::{HOSTNAME, ZONE};
use kerf_model::{Binder, Effort, HostPort, Strategy};
use scene::{check, plan, render, snapshot};
use std::sync::Arc;

#[test]
fn the_cheapest_offering_that_fits_wins() {
    check(
        "type m.large 2cpu 8Gi $0.10
         type m.xlarge 4cpu 16Gi $0.20
         pool default
         pod web 3cpu 1Gi",
        "launch 1 x m.xlarge $0.2000 from default for web",
    );
}

#[test]
fn two_small_nodes_are_bought_where_they_are_cheaper_than_one_large() {
    check(
        "type t.small 1cpu 2Gi $0.05
         type t.large 2cpu 4Gi $0.12
         pool default
         pod web 1cpu 1Gi x 2",
        "launch 2 x t.small $0.0500 from default for web",
    );
}

#[test]
fn several_types_come_from_one_decision() {
    check(
        "type c.big 16cpu 16Gi $0.50
         type r.big 4cpu 64Gi $0.50
         pool default
         pod compute 15cpu 1Gi
         pod cache 1cpu 60Gi",
        "launch 1 x c.big $0.5000 from default for compute
         launch 1 x r.big $0.5000 from default for cache",
    );
}

#[test]
fn nodes_that_are_there_are_filled_first_and_then_those_on_their_way() {
    check(
        "type m.large 2cpu 8Gi $0.10
         pool default
         node a-coming 2cpu 8Gi coming
         node b-ready 2cpu 8Gi
         pod web 1cpu 1Gi x 5",
        "place web x2 on b-ready
         place web x2 on a-coming
         launch 1 x m.large $0.1000 from default for web",
    );
}

#[test]
fn the_heavier_pool_is_used_until_its_limit_and_then_the_lighter() {
    check(
        "type m.large 2cpu 8Gi $0.10
         pool first weight 10 limit cpu=4
         pool second
         pod web 2cpu 1Gi x 3",
        "launch 2 x m.large $0.1000 from first for web
         launch 1 x m.large $0.1000 from second for web",
    );
}

#[test]
fn the_number_of_nodes_is_a_limit_within_one_pass() {
    check(
        "type m.large 2cpu 8Gi $0.10
         pool default limit nodes=2
         pod web 2cpu 1Gi x 3",
        "launch 2 x m.large $0.1000 from default for web
         refuse web: nodepool default: limits: nodes 2 of 2 in use, the smallest suitable node needs 1 (would help: raise limit nodes of nodepool default to 3)",
    );
}

#[test]
fn among_equal_pools_the_cheaper_is_chosen_then_the_first_by_name() {
    check(
        "type a.large 2cpu 8Gi $0.10
         type b.large 2cpu 8Gi $0.05
         pool dear need family In a
         pool cheap-2 need family In b
         pool cheap-1 need family In b
         pod web 1cpu 1Gi",
        "launch 1 x b.large $0.0500 from cheap-1 for web",
    );
}

#[test]
fn a_tainted_pool_serves_only_those_who_tolerate_it() {
    check(
        "type g.large 4cpu 16Gi $0.80 gpu 1
         pool gpu taint gpu=true:NoSchedule
         pod train 1cpu 1Gi gpu 1 tolerate gpu
         pod web 1cpu 1Gi",
        "launch 1 x g.large $0.8000 from gpu for train
         refuse web: nodepool gpu: did not tolerate taint (taint=gpu=true:NoSchedule) (would help: tolerate gpu=true:NoSchedule to use nodepool gpu)",
    );
}

#[test]
fn spot_is_bought_where_it_is_allowed_and_on_demand_where_it_is_asked_for() {
    check(
        "type m.large 2cpu 8Gi $0.10 spot $0.03
         pool default
         pod web 2cpu 1Gi
         pod pinned 2cpu 1Gi select karpenter.sh/capacity-type=on-demand",
        "launch 1 x m.large $0.1000 from default for pinned
         launch 1 x m.large spot $0.0300 from default for web",
    );
}

#[test]
fn pods_apart_from_each_other_get_a_node_each_and_others_fill_the_gaps() {
    check(
        &format!(
            "type m.large 2cpu 8Gi $0.10
             pool default
             pod db 1cpu 1Gi x 3 apart {HOSTNAME}
             pod web 1cpu 1Gi x 3"
        ),
        "launch 3 x m.large $0.1000 from default for db, web",
    );
}

#[test]
fn a_zone_spread_is_even_and_counts_what_runs_already() {
    check(
        &format!(
            "type m.large 2cpu 8Gi $0.10 zones a,b,c
             pool default
             node n1 1m 1Mi zone a runs app=web 2
             pod web 2cpu 1Gi x 4 spread {ZONE}"
        ),
        "launch 2 x m.large $0.1000 from default in b for web
         launch 2 x m.large $0.1000 from default in c for web",
    );
}

#[test]
fn pods_apart_by_zone_are_placed_in_as_many_zones_as_there_are() {
    check(
        &format!(
            "type m.large 2cpu 8Gi $0.10 zones a,b
             pool default
             pod db 1cpu 1Gi x 3 apart {ZONE}"
        ),
        &format!(
            "launch 1 x m.large $0.1000 from default in a for db
             launch 1 x m.large $0.1000 from default in b for db
             refuse db: nodepool default: unsatisfiable topology constraint for pod anti-affinity, key={ZONE} (counts = a:1 b:1)"
        ),
    );
}

#[test]
fn a_pod_follows_another_into_its_zone() {
    check(
        &format!(
            "type m.large 2cpu 8Gi $0.10 zones a,b
             pool default
             pod db 2cpu 1Gi select {ZONE}=b
             pod web 1cpu 1Gi x 2 beside {ZONE} db"
        ),
        "launch 1 x m.large $0.1000 from default in b for db
         launch 1 x m.large $0.1000 from default in b for web x2",
    );
}

#[test]
fn a_hostname_spread_is_satisfied_by_few_full_nodes() {
    check(
        &format!(
            "type m.small 1cpu 4Gi $0.10
             type m.big 8cpu 32Gi $0.40
             pool default
             pod web 1cpu 1Gi x 16 spread {HOSTNAME}"
        ),
        "launch 2 x m.big $0.4000 from default for web x8",
    );
}

#[test]
fn nodes_on_their_way_rise_evenly_with_every_spread_before_more_are_bought() {
    let mut scene = snapshot(&format!(
        "type m.small 4cpu 16Gi $0.40
         type m.big 16cpu 64Gi $1.20
         pool default
         node n1 16cpu 64Gi zone a
         node n2 16cpu 64Gi zone a
         node n3 16cpu 64Gi zone a runs app=large 1
         node n4 16cpu 64Gi zone a runs app=small 1
         pod large 4cpu 16Gi x 17 spread {HOSTNAME}
         pod small 1cpu 4Gi x 17 spread {HOSTNAME}"
    ));
    scene.settings.placed_by = Binder::KubeScheduler;
    let (told, report) = plan(&scene);
    let expected = [
        "place large x3, small x3 on n1",
        "place large x3, small x3 on n2",
        "place large x2, small x3 on n3",
        "place large x3, small x2 on n4",
        "launch 2 x m.big $1.2000 from default for large x3, small x3",
    ];
    assert_eq!(render(&told, &report), expected);
}

#[test]
fn however_much_of_a_spread_was_planned_before_it_ends_on_as_many_nodes() {
    // Nodes with a pod of each already, nodes that are still empty, and pods of each that wait: a hundred of each in all.
    for (n_begun, n_empty, n_waiting) in [(0, 0, 100), (0, 17, 100), (13, 13, 87), (26, 0, 74), (6, 1, 94), (1, 0, 99)]
    {
        let begun = (0..n_begun).map(|n| format!("node b{n} 11600m 97Gi zone a runs app=large 1 runs app=small 1"));
        let empty = (0..n_empty).map(|n| format!("node e{n} 16cpu 128Gi zone a"));
        let nodes = begun.chain(empty).collect::<Vec<_>>().join("\n");
        let mut scene = snapshot(&format!(
            "type s.small 8cpu 32Gi $0.38
             type m.big 16cpu 128Gi $0.54
             pool default
             {nodes}
             pod large 3500m 28Gi x {n_waiting} spread {HOSTNAME}
             pod small 900m 3100Mi x {n_waiting} spread {HOSTNAME}"
        ));
        scene.settings.placed_by = Binder::KubeScheduler;
        let (told, _) = plan(&scene);
        let n_new = told.steps.iter().filter(|step| matches!(step, kerf_model::Step::Launch(_))).count();
        assert_eq!(n_begun + n_empty + n_new, 34, "{n_begun} begun, {n_empty} empty");
    }
}

#[test]
fn daemons_take_their_share_of_every_new_node() {
    check(
        "type m.large 2cpu 8Gi $0.10
         type m.xlarge 4cpu 16Gi $0.20
         pool default
         daemon agent 500m 1Gi
         pod web 2cpu 1Gi",
        "launch 1 x m.xlarge $0.2000 from default for web",
    );
}

#[test]
fn a_preference_is_given_up_when_nothing_can_grant_it() {
    let scene = format!(
        "type m.large 2cpu 8Gi $0.10
         pool default
         pod web 1cpu 1Gi prefer {ZONE}=nowhere"
    );
    let (told, report) = plan(&snapshot(&scene));
    assert_eq!(render(&told, &report), ["launch 1 x m.large $0.1000 from default for web"]);
    assert_eq!(&*report.relaxed[0].given_up[0], &format!("preferred node affinity {ZONE} In [nowhere] (weight 1)"));
}

#[test]
fn a_reservation_is_filled_first_and_then_waited_for() {
    check(
        "type m.large 2cpu 8Gi $0.10 reserved r-1=1
         pool default
         pod web 2cpu 1Gi x 2",
        "launch 1 x m.large reserved $0.0000 from default for web
         refuse web: waits for reservation r-1, which is spoken for in this pass",
    );
}

#[test]
fn a_pod_larger_than_every_offering_is_refused_with_the_numbers() {
    check(
        "type m.large 2cpu 8Gi $0.10
         type m.xlarge 4cpu 16Gi $0.20
         pool default
         pod huge 5cpu 1Gi",
        "refuse huge: nodepool default: no instance type has enough resources: needs cpu 5 with the daemons, the largest of 2 (m.xlarge) has 4 (would help: request at most 4 of cpu)",
    );
}

#[test]
fn a_misspelt_label_is_named_with_the_one_that_was_meant() {
    check(
        "type m.large 2cpu 8Gi $0.10
         pool default
         pod web 1cpu 1Gi select node.kubernetes.io/instnace-type=m.large",
        "refuse web: nodepool default: label \"node.kubernetes.io/instnace-type\" does not have known values (wanted In [m.large]) (typo of \"node.kubernetes.io/instance-type\"?)",
    );
}

#[test]
fn small_pods_are_placed_although_large_ones_ahead_of_them_cannot_be() {
    check(
        "type m.large 2cpu 8Gi $0.10
         pool default
         pod huge 64cpu 1Gi x 500
         pod small 1cpu 1Gi x 4",
        "launch 2 x m.large $0.1000 from default for small x2
         refuse huge x500: nodepool default: no instance type has enough resources: needs cpu 64 with the daemons, the largest of 1 (m.large) has 2 (would help: request at most 2 of cpu)",
    );
}

#[test]
fn a_plan_that_kube_scheduler_would_upset_gives_way_to_one_that_holds() {
    let mut scene = snapshot(
        "type m.big 16cpu 64Gi $1.60
         type c.small 4cpu 4Gi $0.30
         pool default
         pod small 1cpu 1Gi x 8
         pod large 4cpu 28Gi x 6",
    );
    scene.settings.placed_by = Binder::KubeScheduler;
    let (_, report) = plan(&scene);
    let robustness = report.robustness.expect("kube-scheduler places");
    assert_eq!(robustness.worst_stranded, 0, "{:?}", report.candidates);
    assert_eq!(robustness.worst_cost, report.cost.added);
}

#[test]
fn a_port_that_every_nodes_daemon_has_is_named_with_what_would_help() {
    let mut scene = snapshot(
        "type m.large 2cpu 8Gi $0.10
         pool default
         daemon agent 100m 1Gi
         pod web 1cpu 1Gi",
    );
    let port = vec![HostPort { ip: "".into(), port: 9100, protocol: "TCP".into() }];
    Arc::make_mut(&mut scene.daemons[0].demand).host_ports = port.clone();
    Arc::make_mut(&mut scene.demands[0]).host_ports = port;
    let (told, report) = plan(&scene);
    assert_eq!(
        render(&told, &report),
        ["refuse web: nodepool default: host port 9100 is taken (would help: drop host port 9100)"]
    );
}

#[test]
fn virtual_pods_of_buffers_are_told_apart_from_waiting_ones() {
    let (told, _) = plan(&snapshot(
        "type m.large 2cpu 8Gi $0.10
         pool default
         pod spare 2cpu 1Gi virtual",
    ));
    let why = told.steps.iter().map(|step| match step {
        kerf_model::Step::Launch(launch) => launch.why.to_string(),
        kerf_model::Step::Place(placement) => placement.why.to_string(),
    });
    assert_eq!(why.collect::<Vec<_>>(), ["capacity buffers waiting: 1"]);
}

#[test]
fn the_report_tells_what_was_tried_and_how_far_from_the_best_it_is() {
    let (_, report) = plan(&snapshot(
        "type m.large 2cpu 8Gi $0.10
         pool default
         pod web 500m 1Gi x 40",
    ));
    assert_eq!(report.candidates[0].strategy, Strategy::ByValue);
    assert!(report.cost.gap().is_some_and(|gap| (0.0..0.001).contains(&gap)), "{:?}", report.cost);
    assert!(!report.spent.is_cut_off);
}

#[test]
fn a_search_that_is_cut_off_says_so() {
    let scene = snapshot(
        "type m.large 2cpu 8Gi $0.10
         pool default
         pod a 1cpu 1Gi x 3
         pod b 700m 1Gi x 3
         pod c 600m 1Gi x 3",
    );
    let (told, report) = kerf_engine::plan_capacity(&scene, &Effort { max: 2 });
    kerf_engine::audit(&scene, &told).expect("what is there is sound");
    assert!(report.spent.is_cut_off);
    assert!(report.refused.iter().any(|(_, refusal)| refusal.to_string().contains("stopped after 2 steps")));
}
