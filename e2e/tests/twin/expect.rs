//! What an answer should be.

use kerf_e2e::client::Answer;
use serde_json::Value;

/// The answer is a `Status` of failure with exactly this code, reason and message.
#[track_caller]
pub(crate) fn refused(answer: &Answer, code: u16, reason: &str, message: &str) {
    refused_with(answer, code, reason);
    assert_eq!(answer.message(), message);
}

/// The answer is a `Status` of failure; its message is the caller's business.
#[track_caller]
pub(crate) fn refused_with(answer: &Answer, code: u16, reason: &str) {
    let body = &answer.body;
    assert_eq!((answer.status, answer.reason()), (code, reason), "{}", answer.message());
    assert_eq!(
        (&body["kind"], &body["apiVersion"], &body["status"]),
        (&"Status".into(), &"v1".into(), &"Failure".into())
    );
    assert_eq!(body["code"], code, "{body}");
}

/// The causes of a `Status`, each as `reason field`.
pub(crate) fn causes(answer: &Answer) -> Vec<String> {
    let causes = answer.body.pointer("/details/causes").and_then(Value::as_array).into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    causes.map(|cause| format!("{} {}", text(&cause["reason"]), text(&cause["field"]))).collect()
}

/// The names of a list's items, in their order.
pub(crate) fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}
