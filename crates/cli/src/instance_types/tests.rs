//! What the command prints, and what it says to those who mistyped.

use super::*;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: InstanceTypesArguments,
}

fn run_with(words: &[&str]) -> Result<String, String> {
    let line = Line::try_parse_from([&["instance-types"], words].concat()).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    run(&line.arguments, &mut out).map_err(|error| format!("{error:#}"))?;
    Ok(String::from_utf8(out).unwrap())
}

/// What is printed, without the counts and dates of the catalogue, which change on their own.
fn page(words: &[&str]) -> String {
    let text = run_with(words).unwrap();
    text.lines().filter(|line| !line.contains("Catalogue of")).map(|line| format!("{line}\n")).collect()
}

fn names(words: &[&str]) -> Vec<String> {
    let text = run_with(&[words, &["-o", "json"]].concat()).unwrap();
    let page: serde_json::Value = serde_json::from_str(&text).unwrap();
    let name = |it: &serde_json::Value| it["name"].as_str().unwrap().to_owned();
    page["instanceTypes"].as_array().unwrap().iter().map(name).collect()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

const POOL: &str = "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    metadata:
      labels: {team: red}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.k8s.aws/instance-family, operator: In, values: [m5, m6g], minValues: 3}
        - {key: karpenter.k8s.aws/instance-size, operator: In, values: [large]}
        - {key: team, operator: Exists}
";

const CLASS: &str = "\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: bottlerocket@latest}]
  kubelet: {maxPods: 50}
status:
  subnets: [{id: subnet-1, zone: eu-west-1b, zoneID: euw1-az2}]
";

#[test]
fn types_are_selected_as_a_pool_would_and_the_cheapest_come_first() {
    let page =
        page(&["-r", "instance-category In c,m", "-r", "instance-generation In 5", "--cpu", "2", "--memory", "..8Gi"]);
    insta::assert_snapshot!(page);
}

#[test]
fn a_wide_table_says_more() {
    let page =
        page(&["-r", "node.kubernetes.io/instance-type In m5d.large,p5.48xlarge,inf2.24xlarge,m5.metal", "-o", "wide"]);
    insta::assert_snapshot!(page);
}

#[test]
fn families_are_shown_side_by_side() {
    let page = page(&["-r", "node.kubernetes.io/instance-type In m5.large,a1.large", "--ami-family", "all"]);
    insta::assert_snapshot!(page);
}

#[test]
fn programs_get_offerings_labels_and_amounts() {
    let words = ["-r", "node.kubernetes.io/instance-type In m5.large", "--zone", "us-west-2a", "-o", "json"];
    let mut page: serde_json::Value = serde_json::from_str(&run_with(&words).unwrap()).unwrap();
    page.as_object_mut().unwrap().retain(|key, _| key != "catalogue" && key != "prices");
    insta::assert_snapshot!(format!("{page:#}"));
}

#[test]
fn a_pool_and_its_class_say_what_is_wanted_and_what_is_left() {
    let file = file(&format!("{POOL}---\n{CLASS}"));
    insta::assert_snapshot!(page(&["-f", file.path().to_str().unwrap()]));
}

#[test]
fn a_price_and_a_way_to_buy_narrow_the_list() {
    let cheap = names(&["--capacity-type", "on-demand", "--max-price", "0.01", "--region", "us-east-1"]);
    assert!(cheap.contains(&"t4g.nano".to_owned()) && !cheap.contains(&"m5.large".to_owned()), "{cheap:?}");
    let at_spot_prices = names(&["--capacity-type", "spot", "--max-price", "0.01", "--region", "us-east-1"]);
    assert!(at_spot_prices.len() > cheap.len(), "{at_spot_prices:?}");
}

#[test]
fn what_nothing_does_is_told_wish_by_wish() {
    let page = page(&["-r", "kubernetes.io/arch In arm64", "-r", "instance-gpu-manufacturer In amd", "--cpu", "4.."]);
    assert!(page.starts_with("No instance type of us-east-1 does all of this.\n"), "{page}");
    assert!(page.contains("kubernetes.io/arch In [arm64]: ") && page.contains("--cpu: "), "{page}");
}

#[test]
fn mistakes_are_told_with_what_would_do() {
    for (words, part) in [
        (&["-r", "instance-categry In c"][..], "did you mean karpenter.k8s.aws/instance-category?"),
        (&["-r", "colour In red"], "no type has the label colour; they have"),
        (&["-r", "instance-category"], "has no operator; use one of In, NotIn"),
        (&["-r", "instance-category is c"], "\"is\" is no operator"),
        (&["-r", "instance-category In"], "In needs values"),
        (&["-r", "instance-cpu Gt many"], "Gt needs one whole number"),
        (&["-r", "instance-cpu Exists 4"], "Exists takes no values"),
        (&["--region", "mars-1"], "has no region \"mars-1\""),
        (&["--zone", "us-east-1z"], "us-east-1 has no zone \"us-east-1z\"; it has us-east-1a"),
        (&["--cpu", "8..4"], "nothing is between 8 and 4"),
        (&["--cpu", ".."], "a range needs a bound"),
        (&["--memory", "lots"], "is not a quantity"),
        (&["--ami-family", "Ubuntu"], "use all or AL2, AL2023"),
        (&["--capacity-type", "reserved"], "reservations are an account's own"),
        (&["--max-price", "-1"], "a price is a positive number"),
        (&["--max-price", "cheap"], "use dollars per hour"),
        (&["-f", "/no/such/file.yaml"], "/no/such/file.yaml"),
    ] {
        let error = run_with(words).unwrap_err();
        assert!(error.contains(part), "{words:?}: {error}");
    }
    let (none, two) = (file(CLASS), file(&format!("{POOL}---\n{POOL}")));
    let error = run_with(&["-f", none.path().to_str().unwrap()]).unwrap_err();
    assert_eq!(error, "the files hold no NodePool to take requirements from");
    let error = run_with(&["-f", two.path().to_str().unwrap()]).unwrap_err();
    assert_eq!(error, "the files hold several NodePools (default, default); give one");
}

/// D0.85: narrowing types spoils spot; this command helps to find more of them.
#[test]
fn d0_85_instance_types_finds_the_many_types_that_spot_wants() {
    let found = names(&["--capacity-type", "spot", "-r", "instance-category In c,m,r", "--cpu", "4..16"]);
    assert!(found.len() > 100, "{}", found.len());
    let narrow = names(&["--capacity-type", "spot", "-r", "instance-family In m5", "--cpu", "4..16"]);
    assert!(narrow.len() < 5, "{narrow:?}");
}
