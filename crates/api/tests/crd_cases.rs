//! The table of accepted and rejected objects, judged by our own check. A real API server judges the same table in
//! `e2e`.

#![expect(clippy::unwrap_used, reason = "helpers of tests may, like tests")]

use std::collections::BTreeSet;

use kerf_api::older::{TranslatedKind, v1beta1};
use kerf_api::testing::{CrdCase, Expect, crd_cases, older_crd_cases, translated_crd_cases};
use kerf_api::{
    CapacityBuffer, CustomObject, Ec2NodeClass, Kind, KwokNodeClass, NodeClaim, NodeOverlay, NodePool, Problem,
};
use serde_json::Value;

#[test]
fn every_case_comes_out_as_the_table_says() {
    let cases = all_cases();
    let wrong: Vec<String> = cases.filter_map(|case| mistake(&case, &judge(&case))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_an_update_starts_from_is_acceptable() {
    for case in all_cases() {
        let Some(from) = case.update_from else { continue };
        let case = CrdCase { object: from, update_from: None, ..case };
        assert_eq!(judge(&case), [], "{}", case.name);
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
    let cases: Vec<CrdCase> = all_cases().collect();
    let names: BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
    assert_eq!(names.len(), cases.len());
    assert!(cases.len() >= 300, "{} cases", cases.len());
}

/// What v1beta1 accepts, v1 has a form for that it accepts, too.
#[test]
fn accepted_objects_of_v1beta1_are_accepted_in_v1() {
    for case in older_crd_cases().into_iter().filter(|case| case.expect == Expect::Accept) {
        let kind = v1beta1::kind_of(&case.object).unwrap();
        let current = kerf_api::older::to_current(&case.object).unwrap().unwrap();
        assert_eq!(kind.check(&current, None), [], "{}", case.name);
    }
}

fn all_cases() -> impl Iterator<Item = CrdCase> {
    crd_cases().into_iter().chain(older_crd_cases()).chain(translated_crd_cases())
}

fn judge(case: &CrdCase) -> Vec<Problem> {
    if let Some(kind) = TranslatedKind::of(&case.object) {
        let defaulted = |object: &Value| {
            let mut object = object.clone();
            kind.apply_defaults(&mut object);
            object
        };
        return kind.check(&defaulted(&case.object), case.update_from.as_ref().map(defaulted).as_ref());
    }
    if let Some(kind) = v1beta1::kind_of(&case.object) {
        let defaulted = |object: &Value| {
            let mut object = object.clone();
            v1beta1::apply_defaults(kind, &mut object);
            object
        };
        return v1beta1::check(kind, &defaulted(&case.object), case.update_from.as_ref().map(defaulted).as_ref());
    }
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
