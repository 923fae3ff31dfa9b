//! An SDK error as a [`Failure`]: what AWS said, or why it said nothing.

use crate::wire::Failure;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use aws_types::request_id::RequestId;
use std::error::Error;

/// For `map_err`: names the action that failed.
pub(super) fn of<E>(action: &'static str) -> impl Fn(SdkError<E, HttpResponse>) -> Failure
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    SdkError<E, HttpResponse>: RequestId,
{
    move |error| {
        let code = error.code().unwrap_or_default().to_owned();
        let message = match error.message() {
            Some(message) => message.to_owned(),
            None => chain(&error),
        };
        let status = error.raw_response().map_or(0, |response| response.status().as_u16());
        let request_id = error.request_id().map(str::to_owned);
        Failure { action, code, message, status, request_id }
    }
}

/// An answer that lacks what it should have.
pub(super) fn incomplete(action: &'static str, what: &str) -> Failure {
    let message = format!("the answer has no {what}");
    Failure { action, code: String::new(), message, status: 200, request_id: None }
}

/// Every layer says only its own part.
fn chain(error: &dyn Error) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !said.ends_with(&words) {
            said = format!("{said}: {words}");
        }
        source = cause.source();
    }
    said
}
