//! Questions that arrive together travel together: many askers, one call, an answer for each.
//!
//! ```text
//! ask(key, item) ──▶ the open bucket of that key ── idle or max window over ──▶ run(key, items) ──▶ one answer per item
//! ```
//!
//! While a call of the same key is under way, whoever comes later waits for it as long as the max window lets: a wave whose askers
//! are slow to arrive takes a few calls then, not one for each pause.
//!
//! There is no task of its own here: whoever waits for an answer drives the call for all, so nothing needs a runtime. A bucket
//! whose askers have all gone away is driven no further.

use crate::tally::Tally;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use kerf_cloud::clock::Clock;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// As many calls of one kind as run at once; more wait.
const RUNNING_MAX: usize = 100;
/// How often what waits for another call looks whether its turn has come.
const TURN_CHECK: Duration = Duration::from_millis(10);

const BATCH_TIME: &str = "karpenter_cloudprovider_batcher_batch_time_seconds";
const BATCH_SIZE: &str = "karpenter_cloudprovider_batcher_batch_size";

/// How long a bucket stays open.
#[derive(Debug, Clone, Copy)]
pub struct Windows {
    /// After the last that joined.
    pub idle: Duration,
    /// After the first.
    pub max: Duration,
    pub items_max: usize,
}

/// What a bucket does when it closes: as many answers as items, in their order.
pub type Run<K, I, O> = Arc<dyn Fn(K, Vec<I>) -> BoxFuture<'static, Vec<O>> + Send + Sync>;

/// Clones are the same batcher.
pub struct Batcher<K, I, O> {
    /// As metrics name it.
    name: &'static str,
    tally: Arc<Tally>,
    clock: Arc<dyn Clock>,
    windows: Windows,
    run: Run<K, I, O>,
    open: Arc<Mutex<Open<K, I, O>>>,
}

struct Open<K, I, O> {
    /// Few at a time; found by comparing keys.
    buckets: Vec<Bucket<K, I, O>>,
    n_made: u64,
    /// Calls under way, by the number of their bucket.
    running: Vec<(u64, K)>,
}

struct Bucket<K, I, O> {
    number: u64,
    key: K,
    items: Vec<I>,
    first_ms: i64,
    last_ms: i64,
    answers: Shared<BoxFuture<'static, Arc<[O]>>>,
}

impl<K, I, O> Clone for Batcher<K, I, O> {
    fn clone(&self) -> Self {
        Self {
            name: self.name,
            tally: self.tally.clone(),
            clock: self.clock.clone(),
            windows: self.windows,
            run: self.run.clone(),
            open: self.open.clone(),
        }
    }
}

impl<K, I, O> Batcher<K, I, O>
where
    K: Clone + PartialEq + Send + 'static,
    I: Send + 'static,
    O: Clone + Send + Sync + 'static,
{
    pub fn new(
        name: &'static str,
        tally: Arc<Tally>,
        clock: Arc<dyn Clock>,
        windows: Windows,
        run: Run<K, I, O>,
    ) -> Self {
        let open = Arc::new(Mutex::new(Open { buckets: Vec::new(), n_made: 0, running: Vec::new() }));
        Self { name, tally, clock, windows, run, open }
    }

    /// Joins the bucket of the key at once; the answer comes when the future is awaited.
    pub fn ask(&self, key: K, item: I) -> impl Future<Output = O> + Send + use<K, I, O> {
        let (answers, position) = self.join(key, item);
        async move {
            let answers = answers.await;
            answers.get(position).cloned().expect("a call answers each of its items")
        }
    }

    fn join(&self, key: K, item: I) -> (Shared<BoxFuture<'static, Arc<[O]>>>, usize) {
        let now_ms = self.clock.now().0;
        let mut open = lock(&self.open);
        let items_max = self.windows.items_max;
        let found = open.buckets.iter_mut().find(|bucket| bucket.key == key && bucket.items.len() < items_max);
        if let Some(bucket) = found {
            bucket.items.push(item);
            bucket.last_ms = now_ms.max(bucket.last_ms);
            return (bucket.answers.clone(), bucket.items.len() - 1);
        }
        open.n_made += 1;
        let number = open.n_made;
        let answers = self.clone().drive(number).boxed().shared();
        let bucket =
            Bucket { number, key, items: vec![item], first_ms: now_ms, last_ms: now_ms, answers: answers.clone() };
        open.buckets.push(bucket);
        (answers, 0)
    }

    async fn drive(self, number: u64) -> Arc<[O]> {
        while let Some(wait) = self.open_for(number) {
            self.clock.sleep(wait).await;
        }
        while lock(&self.open).running.len() >= RUNNING_MAX {
            self.clock.sleep(TURN_CHECK).await;
        }
        let bucket = {
            let mut open = lock(&self.open);
            let at = open.buckets.iter().position(|bucket| bucket.number == number);
            let bucket = at.map(|at| open.buckets.swap_remove(at));
            open.running.extend(bucket.as_ref().map(|bucket| (number, bucket.key.clone())));
            bucket
        };
        let _running = Running { open: &self.open, number };
        // Only this future takes the bucket of its number, and it does so once.
        let Some(bucket) = bucket else { return Arc::from(Vec::new()) };
        let n_items = bucket.items.len();
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of a window and items of a batch are few")]
        let (waited_s, size) = ((self.clock.now().0 - bucket.first_ms).max(0) as f64 / 1_000.0, n_items as f64);
        self.tally.note(BATCH_TIME, [self.name], waited_s);
        self.tally.note(BATCH_SIZE, [self.name], size);
        let answers = (self.run)(bucket.key, bucket.items).await;
        debug_assert_eq!(answers.len(), n_items);
        Arc::from(answers)
    }

    /// How long the bucket is still open. None: its time is over.
    fn open_for(&self, number: u64) -> Option<Duration> {
        let open = lock(&self.open);
        let bucket = open.buckets.iter().find(|bucket| bucket.number == number)?;
        if bucket.items.len() >= self.windows.items_max {
            return None;
        }
        let now_ms = self.clock.now().0;
        if now_ms < bucket.last_ms {
            // Somebody has set the clock back: nobody knows how long it has been.
            return None;
        }
        let left = |due_ms: i64| {
            let left_ms = u64::try_from(due_ms - now_ms).ok().filter(|left| *left > 0)?;
            Some(Duration::from_millis(left_ms))
        };
        let most = left(bucket.first_ms + millis(self.windows.max))?;
        let idle = left(bucket.last_ms + millis(self.windows.idle)).map(|idle| idle.min(most));
        let is_running = || open.running.iter().any(|(_, key)| *key == bucket.key);
        idle.or_else(|| is_running().then(|| TURN_CHECK.min(most)))
    }
}

/// A call under way; none any more with the end of this value.
struct Running<'a, K, I, O> {
    open: &'a Mutex<Open<K, I, O>>,
    number: u64,
}

impl<K, I, O> Drop for Running<'_, K, I, O> {
    fn drop(&mut self) {
        lock(self.open).running.retain(|(number, _)| *number != self.number);
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::{HandClock, Hands};
    use std::sync::atomic::{AtomicUsize, Ordering};

    type Calls = Arc<Mutex<Vec<Vec<u32>>>>;

    /// Each call is written down; each item is answered with itself doubled.
    fn batcher(clock: &HandClock, items_max: usize) -> (Batcher<&'static str, u32, u32>, Calls) {
        let calls = Calls::default();
        let seen = calls.clone();
        let run: Run<&'static str, u32, u32> = Arc::new(move |_, items| {
            lock(&seen).push(items.clone());
            futures_util::future::ready(items.iter().map(|item| item * 2).collect()).boxed()
        });
        let windows = Windows { idle: Duration::from_millis(35), max: Duration::from_millis(1_000), items_max };
        (Batcher::new("test", Arc::default(), Arc::new(clock.clone()), windows, run), calls)
    }

    #[test]
    fn what_arrives_within_the_idle_window_is_one_call() {
        let clock = HandClock::new();
        let (batcher, calls) = batcher(&clock, 10);
        let mut hands = Hands::default();
        hands.take(batcher.ask("a", 1));
        clock.advance(Duration::from_millis(30));
        hands.poll();
        hands.take(batcher.ask("a", 2));
        hands.take(batcher.ask("b", 3));
        clock.advance(Duration::from_millis(30));
        hands.poll();
        assert!(lock(&calls).is_empty(), "the second kept the bucket open");
        clock.advance(Duration::from_millis(5));
        hands.poll();
        assert_eq!(*lock(&calls), [vec![1, 2], vec![3]]);
        assert_eq!(hands.answers(), [Some(2), Some(4), Some(6)]);
        let figures: Vec<_> = batcher.tally.take().into_iter().map(|sample| (sample.family, sample.value)).collect();
        assert_eq!(figures, [(BATCH_TIME, 0.065), (BATCH_SIZE, 2.0), (BATCH_TIME, 0.035), (BATCH_SIZE, 1.0)]);
    }

    #[test]
    fn a_bucket_that_never_rests_closes_after_the_max_window() {
        let clock = HandClock::new();
        let (batcher, calls) = batcher(&clock, 1_000);
        let mut hands = Hands::default();
        for item in 0..60 {
            hands.take(batcher.ask("a", item));
            clock.advance(Duration::from_millis(20));
            hands.poll();
        }
        let calls = lock(&calls).clone();
        assert_eq!(calls.len(), 1, "a second of asking every 20 ms");
        assert_eq!(calls[0].len(), 50);
    }

    #[test]
    fn a_clock_that_is_set_back_keeps_no_bucket_open() {
        let clock = HandClock::new();
        clock.advance(Duration::from_secs(600));
        let (batcher, calls) = batcher(&clock, 10);
        let mut hands = Hands::default();
        hands.take(batcher.ask("a", 1));
        hands.poll();
        clock.set_back(Duration::from_secs(300));
        hands.take(batcher.ask("a", 2));
        clock.advance(Duration::from_millis(40));
        hands.poll();
        assert_eq!(*lock(&calls), [vec![1, 2]]);
        assert_eq!(hands.answers(), [Some(2), Some(4)]);
    }

    #[test]
    fn while_an_equal_call_is_under_way_the_next_bucket_stays_open() {
        let clock = HandClock::new();
        let calls = Calls::default();
        let (seen, ticks) = (calls.clone(), clock.clone());
        let run: Run<&'static str, u32, u32> = Arc::new(move |_, items| {
            lock(&seen).push(items.clone());
            let ticks = ticks.clone();
            async move {
                ticks.sleep(Duration::from_millis(500)).await;
                items
            }
            .boxed()
        });
        let windows = Windows { idle: Duration::from_millis(35), max: Duration::from_millis(1_000), items_max: 1_000 };
        let batcher = Batcher::new("test", Arc::default(), Arc::new(clock.clone()), windows, run);
        let mut hands = Hands::default();
        for item in 0..12 {
            hands.take(batcher.ask("a", item));
            if item == 1 {
                hands.take(batcher.ask("b", 100));
            }
            for _ in 0..5 {
                clock.advance(Duration::from_millis(10));
                hands.poll();
            }
        }
        // Every 50 ms one more: alone, each would have been a call of its own. Another key does not wait.
        assert_eq!(lock(&calls)[..3], [vec![0], vec![100], (1..=10).collect()]);
    }

    #[test]
    fn a_full_bucket_does_not_wait() {
        let clock = HandClock::new();
        let (batcher, calls) = batcher(&clock, 2);
        let mut hands = Hands::default();
        for item in 0..3 {
            hands.take(batcher.ask("a", item));
        }
        hands.poll();
        assert_eq!(*lock(&calls), [vec![0, 1]]);
        clock.advance(Duration::from_millis(35));
        hands.poll();
        assert_eq!(*lock(&calls), [vec![0, 1], vec![2]]);
    }

    #[test]
    fn an_asker_that_goes_away_does_not_stop_the_others() {
        let clock = HandClock::new();
        let (batcher, calls) = batcher(&clock, 10);
        let mut hands = Hands::default();
        let first = batcher.ask("a", 1);
        hands.take(batcher.ask("a", 2));
        drop(first);
        clock.advance(Duration::from_millis(35));
        hands.poll();
        assert_eq!(hands.answers(), [Some(4)]);
        assert_eq!(*lock(&calls), [vec![1, 2]]);
    }

    #[test]
    fn more_than_a_hundred_calls_wait_for_their_turn() {
        let clock = HandClock::new();
        let gate = Arc::new(AtomicUsize::new(0));
        let (running, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (seen, high, until, ticks) = (running.clone(), peak.clone(), gate.clone(), clock.clone());
        let run: Run<u32, (), ()> = Arc::new(move |_, items| {
            let (seen, high, until, ticks) = (seen.clone(), high.clone(), until.clone(), ticks.clone());
            async move {
                let now = seen.fetch_add(1, Ordering::SeqCst) + 1;
                high.fetch_max(now, Ordering::SeqCst);
                while until.load(Ordering::SeqCst) == 0 {
                    ticks.sleep(Duration::from_millis(1)).await;
                }
                seen.fetch_sub(1, Ordering::SeqCst);
                vec![(); items.len()]
            }
            .boxed()
        });
        let windows = Windows { idle: Duration::ZERO, max: Duration::ZERO, items_max: 1 };
        let batcher = Batcher::new("test", Arc::default(), Arc::new(clock.clone()), windows, run);
        let mut hands = Hands::default();
        for key in 0..150 {
            hands.take(batcher.ask(key, ()));
        }
        hands.poll();
        assert_eq!(running.load(Ordering::SeqCst), 100);
        gate.store(1, Ordering::SeqCst);
        for _ in 0..3 {
            clock.advance(TURN_CHECK);
            hands.poll();
        }
        assert!(hands.answers().iter().all(Option::is_some));
        assert_eq!(peak.load(Ordering::SeqCst), 100);
    }
}
