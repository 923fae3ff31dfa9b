//! A panic ends one thing, not the process: the object, errand or look that it happened in.
//!
//! ```text
//! thought      guarded, then by halves: whose presence makes it panic? ─▶ planned without it        (poison)
//! duty         guarded, then shown what changed by halves             ─▶ goes on without it         (ward)
//! wake, cloud  guarded                                                ─▶ unreadable; a failed errand
//! anything else                                                       ─▶ the hook ends the process, which is started again
//! ```
//!
//! The panic hook runs before anything is unwound, on the thread that panics, and is told nothing: so the one thing here that is kept
//! outside of any value is how many guards this thread is within.

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// What a panic said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a defect of Kerf: {0}")]
pub struct Defect(pub String);

/// Runs something that may panic. What it was changing may be left half changed: whoever calls this must be able to go on from there.
pub fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, Defect> {
    DEPTH.set(DEPTH.get() + 1);
    let outcome = catch_unwind(AssertUnwindSafe(run));
    DEPTH.set(DEPTH.get() - 1);
    outcome.map_err(|payload| {
        let words = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let words = words.or_else(|| payload.downcast_ref::<String>().cloned());
        Defect(words.unwrap_or_else(|| "it panicked without a word".to_owned()))
    })
}

/// For the panic hook: whether somebody will take care of a panic on this thread. Threads of the engine and of providers answer whoever waits
/// for them.
pub fn is_guarded() -> bool {
    let started_by_others = [kerf_engine::THREAD, kerf_cloud::EXPRESSION_THREAD];
    DEPTH.get() > 0 || std::thread::current().name().is_some_and(|name| started_by_others.contains(&name))
}

/// A future each of whose steps is guarded.
pub struct Guarded<F>(Pin<Box<F>>);

impl<F: Future> Guarded<F> {
    pub fn new(future: F) -> Self {
        Self(Box::pin(future))
    }
}

impl<F: Future> Future for Guarded<F> {
    type Output = Result<F::Output, Defect>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match guarded(|| self.0.as_mut().poll(context)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(defect) => Poll::Ready(Err(defect)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn a_panic_is_an_error_with_its_words_and_the_next_one_is_guarded_too() {
        assert!(!is_guarded());
        for _ in 0..2 {
            let outcome: Result<(), Defect> = guarded(|| {
                assert!(is_guarded());
                panic!("no {}", "way")
            });
            assert_eq!(outcome.unwrap_err().to_string(), "a defect of Kerf: no way");
            assert!(!is_guarded());
        }
        assert_eq!(guarded(|| 1), Ok(1));
    }

    #[test]
    fn a_future_is_guarded_while_it_is_polled_and_only_then() {
        let mut n_polls = 0;
        let future = std::future::poll_fn(move |_| {
            assert!(is_guarded());
            n_polls += 1;
            if n_polls == 2 {
                panic!("at the second step")
            }
            Poll::<()>::Pending
        });
        let mut guarded = Box::pin(Guarded::new(future));
        let mut context = Context::from_waker(Waker::noop());
        assert!(guarded.as_mut().poll(&mut context).is_pending());
        assert!(!is_guarded());
        let Poll::Ready(Err(defect)) = guarded.as_mut().poll(&mut context) else { panic!() };
        assert_eq!(defect.0, "at the second step");
    }
}
