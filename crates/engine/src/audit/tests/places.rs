//! Laws about who is put where.

use super::*;

#[test]
fn a_pod_is_placed_at_most_once() {
    let s = scene(vec![(demand("x", 100), 2)]);
    good(&s, vec![on("n1", &["p0-0"]), launch("c1", &["p0-1"])]);
    bad(&s, vec![on("n1", &["p0-0"]), launch("c1", &["p0-0", "p0-1"])], is!(Breach::PodPlacedTwice { .. }));
    bad(&s, vec![on("n1", &["p0-0", "p0-0"])], is!(Breach::PodPlacedTwice { .. }));
}

#[test]
fn only_known_pods_go_to_known_nodes_that_stay() {
    let mut s = scene(vec![(demand("x", 100), 1)]);
    s.nodes[1].stage = NodeStage::Leaving;
    good(&s, vec![on("n1", &["p0-0"])]);
    bad(&s, vec![on("n1", &["who"])], is!(Breach::PodUnknown { .. }));
    bad(&s, vec![on("n9", &["p0-0"])], is!(Breach::NodeUnknown { .. }));
    bad(&s, vec![on("n2", &["p0-0"])], is!(Breach::NodeLeaving { .. }));
}

#[test]
fn a_plan_is_for_the_picture_it_was_made_from() {
    let s = scene(vec![]);
    let plan = Plan { based_on: kerf_model::Revision(7), steps: vec![] };
    assert!(matches!(audit(&s, &plan).unwrap_err()[..], [Breach::WrongRevision { .. }]));
}

#[test]
fn claims_have_names_of_their_own_and_pods_to_serve() {
    let s = scene(vec![(demand("x", 100), 2)]);
    good(&s, vec![launch("c1", &["p0-0"]), launch("c2", &["p0-1"])]);
    bad(&s, vec![launch("c1", &["p0-0"]), launch("c1", &["p0-1"])], is!(Breach::ClaimNameTaken { .. }));
    bad(&s, vec![launch("c1", &[])], is!(Breach::LaunchForNobody { .. }));
}

#[test]
fn a_node_holds_its_pods_and_the_daemons_still_to_come() {
    let mut s = scene(vec![(demand("x", 1000), 4)]);
    s.nodes[0].used = amount(1000, 0, 1);
    good(&s, vec![on("n1", &["p0-0", "p0-1", "p0-2"])]);
    bad(&s, vec![on("n1", &["p0-0", "p0-1", "p0-2", "p0-3"])], is!(Breach::Overfull { .. }));
    s.daemons = vec![Daemon { name: "d".into(), demand: Arc::new(demand("d", 1000)) }];
    bad(&s, vec![on("n1", &["p0-0", "p0-1", "p0-2"])], is!(Breach::Overfull { .. }));
    s.nodes[0].used_by_daemons = amount(1000, 0, 1);
    good(&s, vec![on("n1", &["p0-0", "p0-1", "p0-2"])]);
}

#[test]
fn what_was_overdrawn_before_is_no_breach_unless_more_is_asked() {
    let mut s = scene(vec![(Demand { requests: amount(100, 0, 1), ..demand("x", 0) }, 1), (demand("y", 100), 1)]);
    s.nodes[0].used = amount(0, 99_999, 1);
    good(&s, vec![on("n1", &["p0-0"])]);
    bad(&s, vec![on("n1", &["p1-0"])], is!(Breach::Overfull { .. }));
}

#[test]
fn every_option_is_large_enough_for_the_pods_and_its_daemons() {
    let mut s = scene(vec![(demand("x", 1000), 3)]);
    good(&s, vec![launch("c1", &["p0-0", "p0-1"])]);
    bad(&s, vec![launch("c1", &["p0-0", "p0-1", "p0-2"])], is!(Breach::Overfull { .. }));
    let for_large = Demand {
        node_selector: Requirements::new().with(labels::INSTANCE_TYPE, Requirement::is_in(["large"])),
        ..demand("d", 1000)
    };
    s.daemons = vec![Daemon { name: "d".into(), demand: Arc::new(for_large) }];
    good(&s, vec![launch("c1", &["p0-0", "p0-1"])]);
    s.daemons[0].demand = Arc::new(demand("d", 1000));
    bad(&s, vec![launch("c1", &["p0-0", "p0-1"])], is!(Breach::Overfull { .. }));
}

#[test]
fn an_offering_with_less_room_counts() {
    let mut s = scene(vec![(demand("x", 1000), 2)]);
    let mut small = machine("small", 2, 100);
    small.offerings[1].overrides = Some(Box::new(kerf_model::offering::Overrides {
        capacity: Resources::new().with(CPU, Quantity::from_units(1)),
        overhead: Resources::new(),
    }));
    s.pools[0].types = [small, machine("large", 8, 400)].map(Arc::new).into();
    good(&s, vec![launch_in(ZONE_A, "c1", &["p0-0", "p0-1"])]);
    bad(&s, vec![launch("c1", &["p0-0", "p0-1"])], is!(Breach::Overfull { .. }));
}

#[test]
fn a_claim_requests_what_its_pods_do() {
    let s = scene(vec![(demand("x", 1000), 1)]);
    let mut low = claim("c1", &["p0-0"]);
    low.requests = amount(500, 128, 1);
    bad(&s, vec![Step::Launch(Box::new(low))], is!(Breach::RequestsTooLow { .. }));
}

#[test]
fn taints_are_tolerated_but_preferences_bind_nobody() {
    let taint = |effect| Taint { key: "gpu".into(), value: "".into(), effect };
    let mut s = scene(vec![(demand("x", 100), 1)]);
    s.nodes[0].taints = vec![taint(Effect::PreferNoSchedule)];
    good(&s, vec![on("n1", &["p0-0"])]);
    s.nodes[0].taints = vec![taint(Effect::NoExecute)];
    bad(&s, vec![on("n1", &["p0-0"])], is!(Breach::TaintNotTolerated { .. }));
    s.pools[0].taints = vec![taint(Effect::NoSchedule)];
    let plan = || {
        let claim = Launch { taints: vec![taint(Effect::NoSchedule)], ..claim("c1", &["p0-0"]) };
        vec![Step::Launch(Box::new(claim))]
    };
    bad(&s, plan(), is!(Breach::TaintNotTolerated { .. }));
    s.demands[0] = Arc::new(Demand {
        tolerations: vec![Toleration {
            key: "gpu".into(),
            operator: TolerationOperator::Exists,
            value: "".into(),
            effect: None,
        }],
        ..demand("x", 100)
    });
    good(&s, plan());
}

#[test]
fn a_pod_may_run_wherever_its_claim_ends() {
    let zonal = |zone: &str| Requirements::new().with(labels::ZONE, Requirement::is_in([zone]));
    let mut s = scene(vec![
        (Demand { node_selector: zonal(ZONE_A), ..demand("x", 100) }, 1),
        (Demand { required_terms: vec![zonal(ZONE_A), zonal(ZONE_B)], ..demand("y", 100) }, 1),
    ]);
    let unmet = is!(Breach::RequirementsNotMet { .. });
    good(&s, vec![on("n1", &["p0-0"]), on("n2", &["p1-0"])]);
    bad(&s, vec![on("n2", &["p0-0"])], unmet);
    good(&s, vec![launch_in(ZONE_A, "c1", &["p0-0", "p1-0"])]);
    bad(&s, vec![launch_in(ZONE_B, "c1", &["p0-0", "p1-0"])], unmet);
    bad(&s, vec![launch("c1", &["p0-0"])], unmet);
    good(&s, vec![launch("c1", &["p1-0"])]);
    // A claim may leave the zone open if only one zone has anything for sale.
    let only_a = |name, cpu, price| {
        let mut kind = machine(name, cpu, price);
        kind.offerings.pop();
        Arc::new(kind)
    };
    s.pools[0].types = [only_a("small", 2, 100), only_a("large", 8, 400)].into();
    good(&s, vec![launch("c1", &["p0-0"])]);
}

#[test]
fn a_custom_label_is_declared_before_it_is_selected() {
    let team = |requirement| Requirements::new().with("team", requirement);
    let wanting = |requirement| Demand { node_selector: team(requirement), ..demand("x", 100) };
    let mut s = scene(vec![
        (wanting(Requirement::is_in(["red"])), 1),
        (wanting(Requirement::not_in(["blue"])), 1),
        (wanting(Requirement::exists()), 1),
    ]);
    let unmet = is!(Breach::RequirementsNotMet { .. });
    good(&s, vec![on("n1", &["p1-0"])]);
    good(&s, vec![launch("c1", &["p1-0"])]);
    bad(&s, vec![launch("c1", &["p0-0"])], unmet);
    bad(&s, vec![launch("c1", &["p2-0"])], unmet);
    s.pools[0].requirements = team(Requirement::is_in(["red", "green"]));
    good(&s, vec![launch("c1", &["p1-0", "p2-0"])]);
    bad(&s, vec![launch("c1", &["p0-0"])], unmet);
    let mut red = claim("c1", &["p0-0", "p1-0", "p2-0"]);
    red.requirements = team(Requirement::is_in(["red"])).into();
    good(&s, vec![Step::Launch(Box::new(red))]);
}

#[test]
fn a_host_port_is_given_out_once() {
    let port = |ip: &str| HostPort { ip: ip.into(), port: 80, protocol: "TCP".into() };
    let with = |ip: &str| Demand { host_ports: vec![port(ip)], ..demand("x", 100) };
    let mut s = scene(vec![(with("10.0.0.1"), 2), (with("10.0.0.2"), 1), (with(""), 1)]);
    let taken = is!(Breach::HostPortTwice { .. });
    good(&s, vec![on("n1", &["p0-0", "p1-0"])]);
    bad(&s, vec![on("n1", &["p0-0", "p0-1"])], taken);
    bad(&s, vec![launch("c1", &["p0-0", "p2-0"])], taken);
    s.nodes[0].host_ports = vec![port("0.0.0.0")];
    bad(&s, vec![on("n1", &["p0-0"])], taken);
    s.daemons = vec![Daemon { name: "d".into(), demand: Arc::new(with("")) }];
    bad(&s, vec![launch("c1", &["p0-0"])], taken);
}

#[test]
fn volumes_are_within_reach_and_within_the_limit() {
    let with = |zone: &str, names: &[&str]| {
        let mut demand = demand("x", 100);
        demand.volumes.alternatives = vec![Requirements::new().with(labels::ZONE, Requirement::is_in([zone]))];
        let names: BTreeSet<Text> = names.iter().map(|name| Text::from(*name)).collect();
        demand.volumes.attachments = [(Text::from("ebs"), names)].into();
        demand
    };
    let mut s = scene(vec![(with(ZONE_A, &["v1"]), 1), (with(ZONE_A, &["v1", "v2"]), 1), (with(ZONE_A, &["v3"]), 1)]);
    let far = is!(Breach::VolumeOutOfReach { .. });
    good(&s, vec![on("n1", &["p0-0", "p1-0"])]);
    good(&s, vec![launch_in(ZONE_A, "c1", &["p0-0", "p1-0"])]);
    bad(&s, vec![on("n2", &["p0-0"])], far);
    bad(&s, vec![launch("c1", &["p0-0"])], far);
    let full = is!(Breach::VolumeLimit { needs: 3, limit: 2, .. });
    bad(&s, vec![on("n1", &["p1-0", "p2-0"])], full);
    bad(&s, vec![launch_in(ZONE_A, "c1", &["p1-0", "p2-0"])], full);
    s.nodes[0].attached = [(Text::from("ebs"), ["v1", "v8"].map(Text::from).into())].into();
    good(&s, vec![on("n1", &["p0-0"])]);
    bad(&s, vec![on("n1", &["p1-0"])], full);
}
