//! How often each action was asked, and how it was answered.
//!
//! Counted where the SDK sends: a retry is an attempt of its own, as AWS and its throttling see it.

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::FinalizerInterceptorContextRef;
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// As the labels of `aws_sdk_go_request_total` have them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// `EC2`, `SQS`: as the SDK names the service.
    pub service: String,
    /// `CreateFleet`.
    pub operation: String,
    /// The HTTP status; 0 when nothing came back.
    pub status: u16,
}

/// Calls and the attempts that they took.
#[derive(Debug, Default)]
pub struct Calls {
    requests: Mutex<BTreeMap<Call, u64>>,
    attempts: Mutex<BTreeMap<Call, u64>>,
}

impl Calls {
    /// Calls by their last answer.
    pub fn requests(&self) -> BTreeMap<Call, u64> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What really went over the line, retries included.
    pub fn attempts(&self) -> BTreeMap<Call, u64> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often an operation was asked, however it ended.
    pub fn n_requests(&self, operation: &str) -> u64 {
        self.requests().iter().filter(|(call, _)| call.operation == operation).map(|(_, count)| count).sum()
    }
}

fn count(table: &Mutex<BTreeMap<Call, u64>>, call: Call) {
    *table.lock().unwrap_or_else(PoisonError::into_inner).entry(call).or_default() += 1;
}

/// Sits in every client and counts.
#[derive(Debug, Clone)]
pub(super) struct Counter(pub(super) Arc<Calls>);

impl Intercept for Counter {
    fn name(&self) -> &'static str {
        "kerf-calls"
    }

    fn read_after_attempt(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        count(&self.0.attempts, call(context, config));
        Ok(())
    }

    fn read_after_execution(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        count(&self.0.requests, call(context, config));
        Ok(())
    }
}

fn call(context: &FinalizerInterceptorContextRef<'_>, config: &ConfigBag) -> Call {
    let metadata = config.load::<Metadata>();
    Call {
        service: metadata.map_or_else(String::new, |metadata| metadata.service().to_owned()),
        operation: metadata.map_or_else(String::new, |metadata| metadata.name().to_owned()),
        status: context.response().map_or(0, |response| response.status().as_u16()),
    }
}
