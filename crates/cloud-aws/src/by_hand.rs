//! For tests: a clock that moves when told, and futures that are polled by hand.

use kerf_cloud::clock::{Clock, Wait};
use kerf_model::UnixMillis;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Starts at a round number that is nobody's default.
pub const START_MS: i64 = 1_800_000_000_000;

/// Clones show the same time.
#[derive(Clone)]
pub struct HandClock {
    /// How long it has gone.
    gone_ms: Arc<AtomicI64>,
    /// What it showed when it had not gone at all.
    begin_ms: Arc<AtomicI64>,
}

impl Default for HandClock {
    fn default() -> Self {
        Self::new()
    }
}

impl HandClock {
    pub fn new() -> Self {
        Self { gone_ms: Arc::default(), begin_ms: Arc::new(AtomicI64::new(START_MS)) }
    }

    pub fn advance(&self, span: Duration) {
        self.gone_ms.fetch_add(millis(span), Ordering::SeqCst);
    }

    /// Shows an earlier time. Whoever sleeps sleeps no longer for it.
    pub fn set_back(&self, span: Duration) {
        self.begin_ms.fetch_sub(millis(span), Ordering::SeqCst);
    }

    fn gone_ms(&self) -> i64 {
        self.gone_ms.load(Ordering::SeqCst)
    }
}

impl Clock for HandClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.begin_ms.load(Ordering::SeqCst) + self.gone_ms())
    }

    fn sleep(&self, span: Duration) -> Wait {
        Box::pin(Sleep { clock: self.clone(), until_ms: self.gone_ms().saturating_add(millis(span)) })
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

struct Sleep {
    clock: HandClock,
    until_ms: i64,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.clock.gone_ms() >= self.until_ms { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Futures that are held, and what they answered.
pub struct Hands<T>(Vec<Held<T>>);

enum Held<T> {
    Waiting(Pin<Box<dyn Future<Output = T> + Send>>),
    Answered(T),
}

impl<T> Default for Hands<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone> Hands<T> {
    pub fn take(&mut self, future: impl Future<Output = T> + Send + 'static) {
        self.0.push(Held::Waiting(Box::pin(future)));
    }

    /// Looks at every future that waits.
    pub fn poll(&mut self) {
        for held in &mut self.0 {
            if let Held::Waiting(future) = held
                && let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            {
                *held = Held::Answered(answer);
            }
        }
    }

    /// In the order in which they were taken.
    pub fn answers(&self) -> Vec<Option<T>> {
        let answer = |held: &Held<T>| match held {
            Held::Waiting(_) => None,
            Held::Answered(answer) => Some(answer.clone()),
        };
        self.0.iter().map(answer).collect()
    }
}

/// Polls until the future ends, `step` at a time.
///
/// # Panics
///
/// When it does not end.
pub fn finish<T>(clock: &HandClock, step: Duration, future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    for _ in 0..100_000 {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return answer;
        }
        clock.advance(step);
    }
    panic!("the future does not end");
}
