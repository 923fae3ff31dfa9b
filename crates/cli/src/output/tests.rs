//! What people and programs read of plans made by hand.

use super::*;
use kerf_model::{
    Candidate, CapacityType, ClaimName, Cost, NodeClassRef, NodeName, Operator, PendingPod, Quantity, Relaxed, Remedy,
    Resources, Revision, Robustness, Spent, Strategy, UnixMillis, Verdict,
};

fn pods(stem: &str, numbers: std::ops::RangeInclusive<u32>) -> Vec<PodId> {
    numbers.map(|number| PodId::new("default", &format!("{stem}-{number}"))).collect()
}

fn option(name: &str, capacity_type: CapacityType, dollars: f64) -> LaunchOption {
    LaunchOption {
        instance_type: name.into(),
        zone: Some("us-east-1a".into()),
        capacity_type: Some(capacity_type),
        price: Money::from_dollars(dollars),
        price_is_estimate: capacity_type == CapacityType::Spot,
    }
}

fn launch(number: usize, any_of: Vec<LaunchOption>, for_pods: Vec<PodId>) -> Step {
    Step::Launch(Box::new(Launch {
        claim: ClaimName(format!("default-r7-{number}").into()),
        pool: "default".into(),
        node_class: NodeClassRef {
            group: "karpenter.k8s.aws".into(),
            kind: "EC2NodeClass".into(),
            name: "default".into(),
        },
        any_of: any_of.into(),
        requirements: Requirements::new()
            .with("karpenter.k8s.aws/instance-cpu", Requirement::new(Operator::Gt, &["4".into()]).unwrap())
            .with("kubernetes.io/arch", Requirement::is_in(["amd64"]))
            .into(),
        labels: [("team".into(), "red".into())].into(),
        taints: vec![Taint { key: "dedicated".into(), value: "x".into(), effect: kerf_model::Effect::NoSchedule }],
        startup_taints: Vec::new(),
        requests: Resources::new().with("cpu", Quantity::from_milli(15_150)),
        why: Reason::PodsWaiting { n_pods: for_pods.len() },
        for_pods,
        reservations: Vec::new(),
        min_values_relaxed: false,
    }))
}

fn rich() -> (Snapshot, Plan, Report) {
    use CapacityType::{OnDemand, Spot};
    let big = || vec![option("c7g.4xlarge", Spot, 0.2311), option("c6g.4xlarge", Spot, 0.2402)];
    let steps = vec![
        Step::Place(Placement {
            node: NodeName::from("ip-10-0-1-2.ec2.internal"),
            pods: pods("web-7d5", 1..=2),
            why: Reason::RoomOnNode { n_pods: 2, in_flight: false },
        }),
        Step::Place(Placement {
            node: NodeName::from("default-x1x2x"),
            pods: pods("inflate", 1..=1),
            why: Reason::RoomOnNode { n_pods: 1, in_flight: true },
        }),
        launch(1, big(), pods("inflate", 2..=16)),
        launch(2, big(), pods("inflate", 17..=31)),
        launch(3, vec![option("m7i.large", OnDemand, 0.1008)], pods("inflate", 32..=32)),
    ];
    let too_large = Arc::new(Refusal {
        verdicts: vec![
            Verdict {
                pool: Some("default".into()),
                why: Why::TooLarge {
                    resource: "cpu".into(),
                    needs: Quantity::from_units(200),
                    largest: Quantity::from_milli(191_450),
                    on: Some("m7i.48xlarge".into()),
                    n_types: 412,
                },
            },
            Verdict {
                pool: Some("gpu".into()),
                why: Why::TaintNotTolerated {
                    taint: Taint {
                        key: "nvidia.com/gpu".into(),
                        value: "".into(),
                        effect: kerf_model::Effect::NoSchedule,
                    },
                },
            },
        ],
        remedy: Some(Remedy::ReduceRequest { resource: "cpu".into(), to: Quantity::from_milli(191_300) }),
    });
    let ill = Refusal {
        verdicts: vec![Verdict {
            pool: None,
            why: Why::Ill {
                field: "spec.volumes[data]".into(),
                message: "PersistentVolumeClaim default/gone does not exist".into(),
            },
        }],
        remedy: None,
    };
    let aside = Refusal { verdicts: vec![Verdict { pool: None, why: Why::NotForUs }], remedy: None };
    let mut refused: Vec<(PodId, Arc<Refusal>)> =
        pods("big", 1..=12).into_iter().map(|pod| (pod, too_large.clone())).collect();
    refused.push((PodId::new("team-a", "lost"), Arc::new(ill)));
    refused.push((PodId::new("default", "elsewhere"), Arc::new(aside)));
    let snapshot = Snapshot {
        pods: vec![PendingPod {
            id: PodId::new("default", "inflate-1"),
            demand: kerf_model::DemandIdx(0),
            created: UnixMillis(0),
            priority: 0,
            leaving: Some(NodeName::from("old")),
            is_virtual: false,
        }],
        notes: vec![Note {
            source: "dump.yaml:812".into(),
            object: "Pod team-a/lost".into(),
            field: "spec.volumes[data]".into(),
            message: "PersistentVolumeClaim default/gone does not exist".into(),
        }],
        ..Snapshot::default()
    };
    let report = Report {
        revision: Revision(7),
        refused,
        relaxed: vec![Relaxed { pods: pods("web", 1..=2), given_up: vec!["preferred zone us-east-1c".into()] }],
        cost: Cost {
            before: Money::from_dollars(1.5),
            added: Money::from_dollars(0.563),
            bound: Money::from_dollars(0.5514),
            bound_ignores: vec!["zone spread".into()],
            has_estimates: true,
            n_unpriced_nodes: 1,
        },
        spent: Spent { steps: 12_345, is_cut_off: true },
        candidates: vec![Candidate {
            strategy: Strategy::ByValue,
            n_nodes: 3,
            n_placed: 34,
            cost: Money::from_dollars(0.563),
            cost_after_scheduler: Some(Money::from_dollars(0.6638)),
        }],
        robustness: Some(Robustness { n_orders: 10, worst_stranded: 0, worst_cost: Money::from_dollars(0.6638) }),
    };
    (snapshot, Plan { based_on: Revision(7), steps }, report)
}

fn document() -> Document {
    let (snapshot, plan, report) = rich();
    let origin = Origin { name: "AWS us-east-1".to_owned(), date: Some("2026-07-01".to_owned()), n_types: 812 };
    Document::new(&snapshot, &plan, &report, &[origin])
}

fn text(document: &Document) -> String {
    let mut out = Vec::new();
    super::text::write(&mut out, document).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_plan_reads_like_this() {
    insta::assert_snapshot!(text(&document()));
}

#[test]
fn a_plan_serialises_like_this() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&document()).unwrap());
}

#[test]
fn nothing_to_do_is_said_briefly() {
    let report = Report {
        revision: Revision(0),
        refused: Vec::new(),
        relaxed: Vec::new(),
        cost: Cost {
            before: Money::ZERO,
            added: Money::ZERO,
            bound: Money::ZERO,
            bound_ignores: Vec::new(),
            has_estimates: false,
            n_unpriced_nodes: 0,
        },
        spent: Spent::default(),
        candidates: Vec::new(),
        robustness: None,
    };
    let document =
        Document::new(&Snapshot::default(), &Plan { based_on: Revision(0), steps: Vec::new() }, &report, &[]);
    insta::assert_snapshot!(text(&document));
}

#[test]
fn bounds_are_written_as_a_node_claim_writes_them() {
    let between = Requirement { at_least: Some(5), at_most: Some(9), ..Requirement::exists() };
    let requirements = Requirements::new().with("size", between).with("gone", Requirement::does_not_exist());
    let written: Vec<String> = requirement_entries(&requirements)
        .iter()
        .map(|entry| format!("{} {} {:?}", entry.key, entry.operator, entry.values))
        .collect();
    assert_eq!(written, ["gone DoesNotExist []", "size Gte [\"5\"]", "size Lte [\"9\"]"]);
}
