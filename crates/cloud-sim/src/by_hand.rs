//! For tests: a clock that moves when told, and futures that are polled by hand.

use kerf_cloud::clock::{Clock, Wait};
use kerf_model::UnixMillis;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Starts at a round number that is nobody's default.
pub(crate) const START_MS: i64 = 1_800_000_000_000;

/// Clones show the same time.
#[derive(Clone)]
pub(crate) struct HandClock(Arc<AtomicI64>);

impl HandClock {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(START_MS)))
    }

    pub(crate) fn advance(&self, span: Duration) {
        self.0.fetch_add(span.as_millis() as i64, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::SeqCst))
    }

    fn sleep(&self, span: Duration) -> Wait {
        Box::pin(Sleep { clock: self.clone(), until: self.now().0 + span.as_millis() as i64 })
    }
}

struct Sleep {
    clock: HandClock,
    until: i64,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.clock.now().0 >= self.until { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Work that goes on in the background.
#[derive(Clone, Default)]
pub(crate) struct Background(Arc<Mutex<Vec<Wait>>>);

impl Background {
    pub(crate) fn add(&self, work: Wait) {
        self.0.lock().unwrap().push(work);
    }

    /// Looks at every piece of work once.
    pub(crate) fn poll(&self) {
        let mut work = std::mem::take(&mut *self.0.lock().unwrap());
        work.retain_mut(|future| future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        self.0.lock().unwrap().extend(work);
    }
}

/// Polls until the future ends, a second at a time.
pub(crate) fn finish<T>(clock: &HandClock, future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    for _ in 0..100_000 {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return answer;
        }
        clock.advance(Duration::from_secs(1));
    }
    panic!("the future does not end within a day");
}
