//! Time, as the owner of the cloud has it: the wall's, a faster one, or a virtual one.

use kerf_model::UnixMillis;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Ends when some time has passed.
pub type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Assumptions: `sleep` counts the same time as `now`. Under a virtual clock a sleeper is looked at again whenever the clock
/// has moved; nobody needs to wake it.
pub trait Clock: Send + Sync {
    fn now(&self) -> UnixMillis;

    fn sleep(&self, span: Duration) -> Wait;
}
