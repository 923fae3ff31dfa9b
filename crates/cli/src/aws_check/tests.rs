use super::look::check;
use super::report::{Finding, Report, Verdict};
use kerf_cloud::clock::{Clock, Wait};
use kerf_cloud_aws::settings::Settings;
use kerf_cloud_aws::wire::scripted::Scripted;
use kerf_cloud_aws::wire::{EksCluster, Failure, Image, SecurityGroup, Subnet, Tags, TypeInZone};
use kerf_model::UnixMillis;
use serde_json::{Value, json};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Nothing here takes time.
struct Still;

impl Clock for Still {
    fn now(&self) -> UnixMillis {
        UnixMillis(1_800_000_000_000)
    }

    fn sleep(&self, _: Duration) -> Wait {
        Box::pin(std::future::ready(()))
    }
}

/// The scripted AWS answers at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    for _ in 0..100 {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return answer;
        }
    }
    panic!("it waits for something")
}

fn tags(pairs: &[(&str, &str)]) -> Tags {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// An account in which everything is there.
fn account() -> Scripted {
    let aws = Scripted::default();
    let mut account = aws.account();
    account.identity.account = "111122223333".to_owned();
    account.identity.arn = "arn:aws:sts::111122223333:assumed-role/controller/karpenter".to_owned();
    account.cluster = Some(EksCluster {
        arn: "arn:aws:eks:us-west-2:111122223333:cluster/demo".to_owned(),
        endpoint: "https://demo.eks".to_owned(),
        version: "1.35".to_owned(),
        service_ipv4_cidr: Some("10.100.0.0/16".to_owned()),
        ..EksCluster::default()
    });
    let large = kerf_cloud::aws::type_facts("m5.large").unwrap();
    account.types.push(large.clone());
    for zone in ["us-west-2a", "us-west-2b"] {
        account.offerings.push(TypeInZone { instance_type: "m5.large".to_owned(), zone: zone.to_owned() });
    }
    let discovery = tags(&[("karpenter.sh/discovery", "demo")]);
    for (id, zone) in [("subnet-1", "us-west-2a"), ("subnet-2", "us-west-2b")] {
        account.subnets.push(Subnet {
            id: id.to_owned(),
            zone: zone.to_owned(),
            vpc_id: "vpc-1".to_owned(),
            n_free_addresses: 200,
            tags: discovery.clone(),
            ..Subnet::default()
        });
    }
    account.security_groups.push(SecurityGroup {
        id: "sg-1".to_owned(),
        name: "nodes".to_owned(),
        vpc_id: "vpc-1".to_owned(),
        tags: tags(&[("karpenter.sh/discovery", "demo"), ("kubernetes.io/cluster/demo", "owned")]),
    });
    let path = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard/recommended/image_id";
    account.parameters.insert(path.to_owned(), "ami-1".to_owned());
    let image = Image {
        id: "ami-1".to_owned(),
        name: "al2023".to_owned(),
        architecture: "x86_64".to_owned(),
        created: "2026-01-01T00:00:00Z".to_owned(),
        owner: "amazon".to_owned(),
        ..Image::default()
    };
    account.images.push((image, Tags::new()));
    account.queues.insert("demo".to_owned(), Vec::new());
    for role in ["AWSServiceRoleForEC2Spot", "KarpenterNodeRole-demo"] {
        account.roles.insert(role.to_owned(), format!("arn:aws:iam::111122223333:role/{role}"));
    }
    drop(account);
    aws
}

fn checked(aws: &Scripted, classes: Vec<Value>) -> Report {
    let settings = Settings {
        cluster_name: "demo".to_owned(),
        region: "us-west-2".to_owned(),
        interruption_queue: Some("demo".to_owned()),
        ..Settings::default()
    };
    now(check(Arc::new(aws.clone()), settings, classes, Arc::new(Still))).unwrap()
}

fn of(report: &Report, verdict: Verdict) -> Vec<&Finding> {
    report.findings.iter().filter(|finding| finding.verdict == verdict).collect()
}

fn denied(action: &'static str) -> Failure {
    Failure::new(action, "UnauthorizedOperation", "You are not authorized to perform this operation.")
}

#[test]
fn an_account_in_which_everything_is_there_lacks_nothing() {
    let aws = account();
    let report = checked(&aws, Vec::new());
    let problems: Vec<&Finding> = report.findings.iter().filter(|it| it.verdict != Verdict::Ok).collect();
    assert!(problems.is_empty(), "{problems:#?}");
    let subnets = report.findings.iter().find(|it| it.subject.ends_with(": subnets")).unwrap();
    assert!(subnets.message.contains("subnet-1") && subnets.message.contains("us-west-2b"), "{}", subnets.message);
    let account = aws.account();
    assert!(account.profiles.is_empty() && account.templates.is_empty(), "nothing is made");
}

#[test]
fn a_denied_call_that_nodes_need_is_missing_with_its_statement() {
    let aws = account();
    aws.fail_always(denied("ec2:DescribeSubnets"));
    let report = checked(&aws, Vec::new());
    let missing = of(&report, Verdict::Missing);
    let right = missing.iter().find(|finding| finding.subject == "ec2:DescribeSubnets").unwrap();
    assert_eq!(right.statement.as_ref().unwrap()["Action"], "ec2:DescribeSubnets");
    assert!(!report.is_complete());
}

#[test]
fn a_denied_call_that_nodes_can_do_without_switches_its_feature_off() {
    let aws = account();
    let optional = [
        "ec2:DescribeInstanceStatus",
        "ec2:DescribeSpotPriceHistory",
        "pricing:GetProducts",
        "iam:ListInstanceProfiles",
    ];
    for action in optional {
        aws.fail_always(denied(action));
    }
    let report = checked(&aws, Vec::new());
    let off: Vec<&str> = of(&report, Verdict::Off).iter().map(|finding| finding.subject.as_str()).collect();
    for action in optional {
        assert!(off.contains(&action), "{action}: {off:?}");
    }
    assert!(report.is_complete(), "{:#?}", of(&report, Verdict::Missing));
    assert!(of(&report, Verdict::Off).iter().all(|finding| finding.statement.is_some()));
}

#[test]
fn d1_32_two_selected_groups_that_are_the_clusters_own_are_odd() {
    let aws = account();
    let second = SecurityGroup {
        id: "sg-2".to_owned(),
        name: "cluster".to_owned(),
        vpc_id: "vpc-1".to_owned(),
        tags: tags(&[("karpenter.sh/discovery", "demo"), ("kubernetes.io/cluster/demo", "owned")]),
    };
    aws.account().security_groups.push(second);
    let report = checked(&aws, Vec::new());
    let odd = of(&report, Verdict::Odd);
    assert!(odd.iter().any(|finding| finding.message.contains("sg-1") && finding.message.contains("sg-2")), "{odd:#?}");
    assert!(report.is_complete(), "it works all the same");
}

#[test]
fn a_class_that_selects_nothing_says_what_there_is_instead() {
    let aws = account();
    let class = json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "typo", "uid": "1", "generation": 1},
        "spec": {
            "instanceProfile": "nodes", "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "dmeo"}}],
            "securityGroupSelectorTerms": [{"id": "sg-1"}],
        },
    });
    let report = checked(&aws, vec![class]);
    let missing = of(&report, Verdict::Missing);
    assert!(missing.iter().any(|it| it.subject == "EC2NodeClass typo: subnets"), "{missing:#?}");
    assert!(report.findings.iter().all(|it| !it.subject.contains("default")), "only what was given is looked at");
}

#[test]
fn a_queue_a_cluster_or_a_role_that_is_not_there_is_missing() {
    let aws = account();
    aws.account().queues.clear();
    aws.account().roles.clear();
    aws.account().cluster = None;
    let report = checked(&aws, Vec::new());
    let missing: Vec<&str> = of(&report, Verdict::Missing).iter().map(|it| it.subject.as_str()).collect();
    assert!(missing.contains(&"interruption queue demo") && missing.contains(&"EKS cluster demo"), "{missing:?}");
    let spot = report.findings.iter().find(|it| it.subject.contains("spot")).unwrap();
    assert!(spot.verdict == Verdict::Off && spot.message.contains("create-service-linked-role"), "{spot:?}");
}

#[test]
fn the_role_of_a_node_is_not_the_role_of_a_service_account() {
    let aws = account();
    aws.account().identity.arn = "arn:aws:sts::111122223333:assumed-role/KarpenterNodeRole-demo/i-0123".to_owned();
    let report = checked(&aws, Vec::new());
    assert!(report.findings[0].verdict == Verdict::Odd, "{:?}", report.findings[0]);
    assert!(report.findings[0].message.contains("not in effect"));
}

#[test]
fn nobody_without_credentials_is_told_anything_else() {
    let aws = account();
    aws.fail_always(Failure::new("sts:GetCallerIdentity", "InvalidClientTokenId", "The security token is invalid"));
    let asked = check(Arc::new(aws), Settings::default(), Vec::new(), Arc::new(Still));
    assert!(now(asked).unwrap_err().to_string().contains("AWS_PROFILE"));
}

#[test]
fn text_and_json_tell_the_same() {
    let aws = account();
    aws.fail_always(denied("ec2:DescribeInstanceStatus"));
    let report = checked(&aws, Vec::new());
    let (mut text, mut json) = (Vec::new(), Vec::new());
    report.write_text(&mut text).unwrap();
    report.write_json(&mut json).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("off      ec2:DescribeInstanceStatus") && text.contains("1 off"), "{text}");
    let json: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["cluster"], "demo");
    let off = json["findings"].as_array().unwrap().iter().find(|it| it["verdict"] == "off").unwrap();
    assert_eq!(off["statement"]["Action"], "ec2:DescribeInstanceStatus");
}
