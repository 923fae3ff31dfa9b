//! How often each action was asked, how it was answered, and how long that took.
//!
//! Counted where the SDK sends: a retry is an attempt of its own, as AWS and its throttling see it.

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeSerializationInterceptorContextRef, BeforeTransmitInterceptorContextRef, FinalizerInterceptorContextRef,
};
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::{ConfigBag, Storable, StoreReplace};
use kerf_cloud::clock::Clock;
use kerf_model::UnixMillis;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

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

/// How long something took.
#[derive(Debug, Clone, PartialEq)]
pub enum Took {
    /// One exchange.
    Attempt { call: Call, seconds: f64 },
    /// A call with all its attempts and the waits between them.
    Request { call: Call, seconds: f64, n_retries: u32 },
}

type Listener = Box<dyn Fn(&Took) + Send + Sync>;

/// Calls and the attempts that they took.
#[derive(Default)]
pub struct Calls {
    requests: Mutex<BTreeMap<Call, u64>>,
    attempts: Mutex<BTreeMap<Call, u64>>,
    listener: OnceLock<Listener>,
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

    /// Tells from now on how long each attempt and each call took. One listener: who comes second is not heard.
    pub fn listen(&self, listener: impl Fn(&Took) + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    fn tell(&self, took: &Took) {
        if let Some(listener) = self.listener.get() {
            listener(took);
        }
    }

    /// How often an operation was asked, however it ended.
    pub fn n_requests(&self, operation: &str) -> u64 {
        self.requests().iter().filter(|(call, _)| call.operation == operation).map(|(_, count)| count).sum()
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("requests", &self.requests).field("attempts", &self.attempts).finish()
    }
}

fn count(table: &Mutex<BTreeMap<Call, u64>>, call: Call) {
    *table.lock().unwrap_or_else(PoisonError::into_inner).entry(call).or_default() += 1;
}

/// Sits in every client, counts, and looks at the clock.
#[derive(Clone)]
pub(super) struct Counter {
    pub(super) calls: Arc<Calls>,
    pub(super) clock: Arc<dyn Clock>,
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counter").field(&self.calls).finish()
    }
}

/// What is kept beside a call while it is under way.
#[derive(Debug, Clone, Copy)]
struct Began(UnixMillis);

#[derive(Debug, Clone, Copy)]
struct AttemptBegan {
    at: UnixMillis,
    n_before: u32,
}

impl Storable for Began {
    type Storer = StoreReplace<Self>;
}

impl Storable for AttemptBegan {
    type Storer = StoreReplace<Self>;
}

impl Counter {
    fn seconds_since(&self, then: UnixMillis) -> f64 {
        (self.clock.now().0 - then.0).max(0) as f64 / 1_000.0
    }
}

impl Intercept for Counter {
    fn name(&self) -> &'static str {
        "kerf-calls"
    }

    fn read_before_execution(
        &self,
        _context: &BeforeSerializationInterceptorContextRef<'_>,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        config.interceptor_state().store_put(Began(self.clock.now()));
        Ok(())
    }

    fn read_before_attempt(
        &self,
        _context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let n_before = config.load::<AttemptBegan>().map_or(0, |last| last.n_before + 1);
        config.interceptor_state().store_put(AttemptBegan { at: self.clock.now(), n_before });
        Ok(())
    }

    fn read_after_attempt(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let call = call(context, config);
        count(&self.calls.attempts, call.clone());
        if let Some(began) = config.load::<AttemptBegan>() {
            self.calls.tell(&Took::Attempt { call, seconds: self.seconds_since(began.at) });
        }
        Ok(())
    }

    fn read_after_execution(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let call = call(context, config);
        count(&self.calls.requests, call.clone());
        if let Some(began) = config.load::<Began>() {
            let n_retries = config.load::<AttemptBegan>().map_or(0, |last| last.n_before);
            self.calls.tell(&Took::Request { call, seconds: self.seconds_since(began.0), n_retries });
        }
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
