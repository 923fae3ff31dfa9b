//! The table of accepted and rejected objects, judged by our own check. A real API server judges the same table in
//! `e2e`.

#![expect(clippy::unwrap_used, reason = "helpers of tests may, like tests")]

use std::collections::BTreeSet;

use kerf_api::testing::{CrdCase, Expect, crd_cases};
use kerf_api::{
    CapacityBuffer, CustomObject, Ec2NodeClass, Kind, KwokNodeClass, NodeClaim, NodeOverlay, NodePool, Problem,
};
use serde_json::Value;

#[test]
fn every_case_comes_out_as_the_table_says() {
    let wrong: Vec<String> = crd_cases().iter().filter_map(|case| mistake(case, &judge(case))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_an_update_starts_from_is_acceptable() {
    for case in crd_cases() {
        let Some(mut from) = case.update_from else { continue };
        let kind = Kind::of(&from).unwrap();
        kind.apply_defaults(&mut from);
        assert_eq!(kind.check(&from, None), [], "{}", case.name);
    }
}

#[test]
fn accepted_objects_read_into_their_types_and_are_still_accepted() {
    fn through<K: CustomObject>(object: Value) -> Vec<Problem> {
        let mut object: K = serde_json::from_value(object).unwrap();
        object.apply_defaults();
        object.check()
    }
    for case in crd_cases().into_iter().filter(|case| case.expect == Expect::Accept) {
        let problems = match Kind::of(&case.object).unwrap() {
            Kind::NodePool => through::<NodePool>(case.object),
            Kind::NodeClaim => through::<NodeClaim>(case.object),
            Kind::NodeOverlay => through::<NodeOverlay>(case.object),
            Kind::CapacityBuffer => through::<CapacityBuffer>(case.object),
            Kind::Ec2NodeClass => through::<Ec2NodeClass>(case.object),
            Kind::KwokNodeClass => through::<KwokNodeClass>(case.object),
        };
        assert_eq!(problems, [], "{}", case.name);
    }
}

#[test]
fn the_table_is_large_and_its_names_are_unique() {
    let cases = crd_cases();
    let names: BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
    assert_eq!(names.len(), cases.len());
    assert!(cases.len() >= 300, "{} cases", cases.len());
}

fn judge(case: &CrdCase) -> Vec<Problem> {
    let kind = Kind::of(&case.object).unwrap();
    let defaulted = |object: &Value| {
        let mut object = object.clone();
        kind.apply_defaults(&mut object);
        object
    };
    kind.check(&defaulted(&case.object), case.update_from.as_ref().map(defaulted).as_ref())
}

fn mistake(case: &CrdCase, problems: &[Problem]) -> Option<String> {
    let said = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    match &case.expect {
        Expect::Accept if problems.is_empty() => None,
        Expect::Accept => Some(format!("{}: should be accepted, but: {said}", case.name)),
        Expect::Reject { .. } if problems.is_empty() => Some(format!("{}: should be rejected", case.name)),
        Expect::Reject { text } if said.contains(text.as_str()) => None,
        Expect::Reject { text } => Some(format!("{}: should be rejected with {text:?}, but: {said}", case.name)),
    }
}
