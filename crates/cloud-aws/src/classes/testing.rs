//! For the tests of this room: answers of a scripted account are there at once.

use kerf_cloud::clock::{Clock, Wait};
use kerf_model::UnixMillis;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The answer of a future that waits for nothing.
pub(crate) fn now_ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("a scripted account answers at once"),
    }
}

/// A clock that stands still until it is set.
pub(crate) struct StillClock(AtomicI64);

impl StillClock {
    pub(crate) fn at(now: UnixMillis) -> Self {
        Self(AtomicI64::new(now.0))
    }

    pub(crate) fn advance(&self, span: Duration) {
        self.0.fetch_add(i64::try_from(span.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for StillClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::SeqCst))
    }

    fn sleep(&self, _: Duration) -> Wait {
        Box::pin(std::future::ready(()))
    }
}
