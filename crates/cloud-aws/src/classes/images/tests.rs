use super::*;
use crate::classes::testing::now_ready;
use crate::wire::Tags;
use crate::wire::scripted::Scripted;
use kerf_cloud::aws::{NodeClassFacts, assemble};
use serde_json::{Value, json};

const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

fn image(id: &str, architecture: &str, created: &str) -> Image {
    Image {
        id: id.to_owned(),
        name: format!("name of {id}"),
        architecture: architecture.to_owned(),
        created: created.to_owned(),
        deprecated_at_ms: None,
        owner: "amazon".to_owned(),
    }
}

fn class(spec: Value) -> Ec2NodeClass {
    serde_json::from_value(json!({"metadata": {"name": "default"}, "spec": spec})).unwrap()
}

fn look(aws: &Scripted, spec: Value, version: &str) -> Result<Vec<Ami>, NoImages> {
    now_ready(find(aws, &class(spec), version, &Parameters::default(), NOW)).map(|found| found.amis)
}

/// An account in which AWS publishes every variant of al2023 for 1.31.
fn with_al2023() -> Scripted {
    let aws = Scripted::default();
    for (arch, variant, id) in [
        ("x86_64", "standard", "ami-standard"),
        ("x86_64", "nvidia", "ami-nvidia"),
        ("x86_64", "neuron", "ami-neuron"),
        ("arm64", "standard", "ami-arm"),
    ] {
        let name =
            format!("/aws/service/eks/optimized-ami/1.31/amazon-linux-2023/{arch}/{variant}/recommended/image_id");
        let mut account = aws.account();
        account.parameters.insert(name, id.to_owned());
        account.images.push((image(id, arch, "2026-01-01T00:00:00Z"), Tags::new()));
    }
    aws
}

fn ids(amis: &[Ami]) -> Vec<&str> {
    amis.iter().map(|ami| ami.id.as_str()).collect()
}

fn instance_type(name: &str) -> InstanceType {
    assemble(kerf_cloud::aws::type_facts(name).unwrap(), "us-east-1", &[], &NodeClassFacts::default())
}

#[test]
fn an_alias_finds_every_variant_that_is_published_and_each_type_gets_its_own() {
    let amis = look(&with_al2023(), json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]}), "1.31").unwrap();
    assert_eq!(ids(&amis), ["ami-arm", "ami-neuron", "ami-nvidia", "ami-standard"]);
    let keys: Vec<&str> = amis[3].requirements.iter().map(|requirement| requirement.key.as_str()).collect();
    assert_eq!(keys, ["kubernetes.io/arch", labels::INSTANCE_GPU_COUNT, labels::INSTANCE_ACCELERATOR_COUNT]);
    for (name, expected) in [
        ("m5.large", Some("ami-standard")),
        ("m6g.large", Some("ami-arm")),
        ("g5.xlarge", Some("ami-nvidia")),
        ("inf2.xlarge", Some("ami-neuron")),
        // An Arm machine with GPUs: that variant was not published.
        ("g5g.xlarge", None),
    ] {
        assert_eq!(choose(&amis, &instance_type(name)).map(|ami| ami.id.as_str()), expected, "{name}");
    }
}

#[test]
fn d0_23_a_family_alone_picks_the_fitting_image_through_ssm() {
    let amis = look(&with_al2023(), json!({"amiFamily": "AL2023"}), "1.31").unwrap();
    assert_eq!(choose(&amis, &instance_type("m5.large")).unwrap().id, "ami-standard");
    assert_eq!(choose(&amis, &instance_type("m6g.large")).unwrap().id, "ami-arm");
}

#[test]
fn d0_59_an_al2_alias_from_1_33_is_unsupported_and_asks_nothing() {
    let aws = with_al2023();
    let refusal = look(&aws, json!({"amiSelectorTerms": [{"alias": "al2@latest"}]}), "1.33").unwrap_err();
    assert!(matches!(&refusal, NoImages::UnsupportedAlias(why) if why.contains("al2023")), "{refusal:?}");
    assert!(aws.account().calls.is_empty());
}

#[test]
fn bottlerocket_serves_standard_and_neuron_with_one_image() {
    let aws = Scripted::default();
    aws.account()
        .parameters
        .insert("/aws/service/bottlerocket/aws-k8s-1.31/x86_64/1.20.3/image_id".to_owned(), "ami-1".to_owned());
    aws.account().images.push((image("ami-1", "x86_64", "2026-01-01T00:00:00Z"), Tags::new()));
    let amis = look(&aws, json!({"amiSelectorTerms": [{"alias": "bottlerocket@v1.20.3"}]}), "1.31").unwrap();
    assert_eq!(ids(&amis), ["ami-1", "ami-1"]);
    assert!(choose(&amis, &instance_type("inf2.xlarge")).is_some());
    assert!(choose(&amis, &instance_type("m5.large")).is_some());
    assert!(choose(&amis, &instance_type("g5.xlarge")).is_none());
}

#[test]
fn an_alias_that_names_no_release_says_where_it_looked() {
    let said = look(&with_al2023(), json!({"amiSelectorTerms": [{"alias": "al2023@v19990101"}]}), "1.31").unwrap_err();
    assert!(
        matches!(&said, NoImages::NotFound(why) if why.contains("al2023@v19990101") && why.contains("v19990101/image_id")),
        "{said:?}"
    );
}

#[test]
fn one_variant_that_cannot_be_read_is_no_reason_to_do_without_the_others() {
    let aws = with_al2023();
    aws.fail_next(Failure::new("ssm:GetParameter", "InternalServerError", "oops"));
    let amis = look(&aws, json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]}), "1.31").unwrap();
    assert_eq!(ids(&amis), ["ami-arm", "ami-neuron", "ami-nvidia"]);
    aws.fail_always(Failure::new("ssm:GetParameter", "AccessDeniedException", "no"));
    let refusal = look(&aws, json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]}), "1.31").unwrap_err();
    assert!(matches!(refusal, NoImages::Failed(failure) if failure.is_denied()));
}

#[test]
fn published_images_are_used_even_where_images_may_not_be_described() {
    let aws = with_al2023();
    aws.fail_always(Failure::new("ec2:DescribeImages", "UnauthorizedOperation", "no"));
    let asked = class(json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]}));
    let found = now_ready(find(&aws, &asked, "1.31", &Parameters::default(), NOW)).unwrap();
    assert_eq!(choose(&found.amis, &instance_type("m6g.large")).unwrap().id, "ami-arm");
    assert_eq!(choose(&found.amis, &instance_type("g5.xlarge")).unwrap().id, "ami-nvidia");
    assert_eq!(found.trouble.map(|failure| failure.action), Some("ec2:DescribeImages"));
}

#[test]
fn ids_and_parameters_are_one_question_and_names_and_tags_one_each() {
    let aws = Scripted::default();
    {
        let mut account = aws.account();
        account.parameters.insert("/mine".to_owned(), "ami-2".to_owned());
        account.parameters.insert("/odd".to_owned(), "not an image".to_owned());
        let team = Tags::from([("team".to_owned(), "a".to_owned())]);
        account.images.push((image("ami-1", "x86_64", "2026-01-01T00:00:00Z"), Tags::new()));
        account.images.push((image("ami-2", "arm64", "2026-01-02T00:00:00Z"), Tags::new()));
        account.images.push((image("ami-3", "x86_64", "2026-01-03T00:00:00Z"), team));
        account.images.push((
            Image { owner: "stranger".to_owned(), ..image("ami-4", "x86_64", "2026-01-04T00:00:00Z") },
            Tags::new(),
        ));
        account
            .images
            .push((image("ami-5", "i386", "2026-01-05T00:00:00Z"), Tags::from([("team".to_owned(), "a".to_owned())])));
    }
    let terms = json!({"amiFamily": "AL2023", "amiSelectorTerms": [
        {"id": "ami-1"}, {"ssmParameter": "/mine"}, {"ssmParameter": "/odd"}, {"ssmParameter": "/none"},
        {"name": "name of *"}, {"tags": {"team": "a"}},
    ]});
    let amis = look(&aws, terms, "1.31").unwrap();
    assert_eq!(ids(&amis), ["ami-3", "ami-2"], "the newest of each architecture, and nobody else's by name");
    assert_eq!(aws.count("ec2:DescribeImages"), 3);
    let calls = aws.account().calls.clone();
    let named = calls.iter().find(|(_, request)| request.contains("name of *")).unwrap();
    assert!(named.1.contains("self") && named.1.contains("amazon"), "{}", named.1);
}

#[test]
fn an_image_of_an_id_needs_no_ssm() {
    let aws = Scripted::default();
    aws.fail_always(Failure::new("ssm:GetParameter", "AccessDeniedException", "no"));
    aws.account().images.push((image("ami-1", "x86_64", "2026-01-01T00:00:00Z"), Tags::new()));
    let amis = look(&aws, json!({"amiFamily": "AL2023", "amiSelectorTerms": [{"id": "ami-1"}]}), "1.31").unwrap();
    assert_eq!(ids(&amis), ["ami-1"]);
    assert_eq!(aws.count("ssm:GetParameter"), 0);
}

#[test]
fn of_images_for_the_same_an_older_one_that_is_not_deprecated_wins() {
    let deprecated =
        |id: &str, created: &str, at: i64| Image { deprecated_at_ms: Some(at), ..image(id, "x86_64", created) };
    let (first, second) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
    for (images, expected, is_deprecated) in [
        (vec![image("ami-old", "x86_64", first), image("ami-new", "x86_64", second)], "ami-new", false),
        (vec![image("ami-old", "x86_64", first), deprecated("ami-new", second, NOW.0)], "ami-old", false),
        (vec![image("ami-old", "x86_64", first), deprecated("ami-new", second, NOW.0 + 1)], "ami-new", false),
        (vec![deprecated("ami-old", first, 0), deprecated("ami-new", second, 0)], "ami-new", true),
        (vec![image("ami-a", "x86_64", first), image("ami-b", "x86_64", first)], "ami-b", false),
    ] {
        let found = images.into_iter().map(|image| (image, Vec::new())).collect();
        let amis = best(found, NOW);
        assert_eq!((ids(&amis), amis[0].deprecated), (vec![expected], is_deprecated));
    }
}

#[test]
fn parameters_are_asked_once_a_day_and_those_of_users_every_five_minutes() {
    let aws = with_al2023();
    let parameters = Parameters::default();
    let later = |seconds: i64| UnixMillis(NOW.0 + seconds * 1_000);
    let name = "/aws/service/eks/optimized-ami/1.31/amazon-linux-2023/arm64/standard/recommended/image_id";
    for (ttl, at, n_asked) in [(ALIAS_TTL, 0, 1), (ALIAS_TTL, 86_399, 1), (ALIAS_TTL, 86_400, 2)] {
        now_ready(parameters.get(&aws, name, true, ttl, later(at))).unwrap();
        assert_eq!(aws.count("ssm:GetParameter"), n_asked, "{at}");
    }
    aws.account().parameters.insert("/mine".to_owned(), "ami-1".to_owned());
    for (at, n_asked) in [(0, 3), (299, 3), (300, 4)] {
        now_ready(parameters.get(&aws, "/mine", true, TERM_TTL, later(at))).unwrap();
        assert_eq!(aws.count("ssm:GetParameter"), n_asked, "{at}");
    }
}

#[test]
fn a_parameter_is_forgotten_once_its_image_is_deprecated_unless_it_is_pinned() {
    let aws = with_al2023();
    let parameters = Parameters::default();
    let name = |variant: &str| {
        format!("/aws/service/eks/optimized-ami/1.31/amazon-linux-2023/x86_64/{variant}/recommended/image_id")
    };
    for (variant, is_mutable) in [("standard", true), ("nvidia", false), ("neuron", true)] {
        now_ready(parameters.get(&aws, &name(variant), is_mutable, ALIAS_TTL, NOW)).unwrap();
    }
    assert_eq!(now_ready(parameters.forget_deprecated(&aws, NOW)), Ok(0));
    for (image, _) in aws.account().images.iter_mut().filter(|(image, _)| image.id != "ami-neuron") {
        image.deprecated_at_ms = Some(NOW.0);
    }
    assert_eq!(now_ready(parameters.forget_deprecated(&aws, NOW)), Ok(1));
    let before = aws.count("ssm:GetParameter");
    for variant in ["standard", "nvidia", "neuron"] {
        now_ready(parameters.get(&aws, &name(variant), true, ALIAS_TTL, NOW)).unwrap();
    }
    assert_eq!(aws.count("ssm:GetParameter") - before, 1, "only the standard one is asked for again");
}
