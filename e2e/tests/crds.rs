//! Does a real API server judge our objects as we say it does?
//!
//! The table is `kerf_api::testing::crd_cases`; `Kind::check` judges the same one in `crates/api`. Objects to be created are sent
//! as a dry run; for an update the object before it is really created, the change is a dry run, and the object goes again.
//!
//! Asked of the peer's definitions (`KERF_CRDS=<folder>`), the verdicts should be the same and some words will differ.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use std::collections::BTreeSet;
use std::time::Instant;

use kerf_api::Kind;
use kerf_api::testing::{CrdCase, Expect, crd_cases};
use kerf_e2e::client::{Answer, Client};
use kerf_e2e::control_plane::{self, Started, build, parts};
use kerf_e2e::crds::{self, Crd};
use kerf_e2e::skipped;
use serde_json::Value;

#[derive(Default)]
struct Tally {
    n_accepted: usize,
    n_rejected: usize,
    n_transitions: usize,
    unexpected: Vec<String>,
}

#[test]
fn a_real_api_server_accepts_and_rejects_what_the_table_says() {
    let cases = crd_cases();
    let plane = match control_plane::start(&build::to_stderr).unwrap() {
        Started::Ready(plane) => plane,
        Started::Skipped(reason) => {
            skipped::tell(1, &format!("{} CRD cases were not asked", cases.len()), &reason);
            return;
        }
    };
    let client = plane.client().unwrap();
    let crds = crds::read(&crds::folder()).unwrap();
    assert_eq!(crds.len(), Kind::ALL.len(), "one definition for each kind");
    crds::install(&client, &crds).unwrap();

    let began = Instant::now();
    let mut tally = Tally::default();
    for case in &cases {
        match crds.iter().find(|crd| case.object["kind"] == crd.kind && case.object["apiVersion"] == crd.api_version) {
            Some(crd) => count(&mut tally, case, ask(&client, crd, case)),
            None => tally.unexpected.push(format!("{}: no definition for its kind", case.name)),
        }
    }
    build::to_stderr(&format!(
        "CRDs on kube-apiserver {}: {} accepted, {} rejected, {} transition cases, {} unexpected ({} ms)",
        parts::KUBERNETES.version,
        tally.n_accepted,
        tally.n_rejected,
        tally.n_transitions,
        tally.unexpected.len(),
        began.elapsed().as_millis(),
    ));
    assert!(tally.unexpected.is_empty(), "{}", tally.unexpected.join("\n"));
}

fn count(tally: &mut Tally, case: &CrdCase, answer: Result<Answer, String>) {
    let verdict =
        answer.and_then(|answer| judge(&case.expect, &answer).and_then(|()| blames_the_same_fields(case, &answer)));
    match (verdict, &case.update_from, &case.expect) {
        (Err(complaint), _, _) => tally.unexpected.push(format!("{}: {complaint}", case.name)),
        (Ok(()), Some(_), _) => tally.n_transitions += 1,
        (Ok(()), None, Expect::Accept) => tally.n_accepted += 1,
        (Ok(()), None, Expect::Reject { .. }) => tally.n_rejected += 1,
    }
}

fn judge(expect: &Expect, answer: &Answer) -> Result<(), String> {
    // 422: read, and found invalid. 400: not even readable as this kind. Everything else is no verdict on the object.
    let is_refusal = matches!(answer.status, 400 | 422);
    let said = || format!("{} {}", answer.status, answer.message());
    match expect {
        Expect::Accept if answer.is_success() => Ok(()),
        Expect::Accept => Err(format!("should be accepted: {}", said())),
        Expect::Reject { text } if is_refusal && answer.message().contains(text.as_str()) => Ok(()),
        Expect::Reject { text } if is_refusal => Err(format!("is rejected in other words than {text:?}: {}", said())),
        Expect::Reject { .. } if answer.is_success() => Err("should be rejected".to_owned()),
        Expect::Reject { .. } => Err(format!("should be rejected, and got no verdict: {}", said())),
    }
}

/// The table asks for one text; this asks that `Kind::check`, which stands in for the server in all our tools, blames exactly the
/// fields that the server blames.
fn blames_the_same_fields(case: &CrdCase, answer: &Answer) -> Result<(), String> {
    let kind = Kind::of(&case.object).ok_or("we do not know its kind")?;
    let defaulted = |object: &Value| {
        let mut object = object.clone();
        kind.apply_defaults(&mut object);
        object
    };
    let before = case.update_from.as_ref().map(defaulted);
    let ours: BTreeSet<String> =
        kind.check(&defaulted(&case.object), before.as_ref()).into_iter().map(|problem| problem.path).collect();
    let causes = answer.body.pointer("/details/causes").and_then(Value::as_array).into_iter().flatten();
    let theirs: BTreeSet<String> = causes
        .filter_map(|cause| cause["field"].as_str())
        // `<nil>` is the remark that rules were left out because the object is broken already.
        .filter(|field| *field != "<nil>")
        // The scale subresource blames its path a second time, as the definition writes it: `.spec.replicas`.
        .map(|field| field.trim_start_matches('.').to_owned())
        .collect();
    if ours == theirs { Ok(()) } else { Err(format!("we blame {ours:?}, the server {theirs:?}: {}", answer.message())) }
}

/// The server's answer, or why the question could not be put.
fn ask(client: &Client, crd: &Crd, case: &CrdCase) -> Result<Answer, String> {
    let Some(before) = &case.update_from else {
        return Ok(client.post(&format!("{}?dryRun=All", crd.collection()), &case.object).unwrap());
    };
    let created = client.post(&crd.collection(), before).unwrap();
    if created.status != 201 {
        return Err(format!("what it starts from is refused: {} {}", created.status, created.message()));
    }
    let path = crd.object(created.body["metadata"]["name"].as_str().unwrap());
    let subresource = case.subresource.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
    let answer =
        client.put(&format!("{path}{subresource}?dryRun=All"), &at_revision_of(&created.body, &case.object)).unwrap();
    let deleted = client.delete(&path).unwrap();
    if !deleted.is_success() {
        return Err(format!("cannot be cleared away: {}", deleted.message()));
    }
    Ok(answer)
}

/// An update says which state it is based on.
fn at_revision_of(stored: &Value, object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
    object
}
