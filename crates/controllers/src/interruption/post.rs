//! The way in and out: one long poll at a time, and receipts for what has been dealt with.

use super::{CloudAnswer, CloudCall, CloudError, Desk, NAME, Notice, UnixMillis, families};
use kerf_model::Text;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(super) const POLL: &str = "poll";
pub(super) const ACKNOWLEDGE: &str = "acknowledge";

/// Notices that may be under way before no more are fetched: in the queue they are safer than here.
const CASES_MAX: usize = 1_000;
/// A provider that answers at once that there is nothing is asked again after this long.
const AGAIN_MS: i64 = 1_000;
const BACKOFF_MS: (i64, i64) = (1_000, 60_000);
/// How many ids of notices are remembered after they were dealt with: copies come within minutes.
const HANDLED_MAX: usize = 20_000;
/// After so many failures a receipt is given up: its notice comes again by itself.
const ACKNOWLEDGE_TRIES_MAX: u32 = 5;

#[derive(Debug)]
pub(super) struct Post {
    /// The provider tells nothing, ever.
    is_resting: bool,
    asked_at: UnixMillis,
    poll_at: UnixMillis,
    n_failures: u32,
    handled: BTreeSet<Text>,
    handled_order: VecDeque<Text>,
    /// Receipts to hand in, and how often that failed.
    receipts: BTreeMap<Text, u32>,
    handed_in: Vec<Text>,
    acknowledge_at: UnixMillis,
}

impl Default for Post {
    fn default() -> Self {
        let never = UnixMillis(i64::MIN);
        Self {
            is_resting: false,
            asked_at: never,
            poll_at: never,
            n_failures: 0,
            handled: BTreeSet::new(),
            handled_order: VecDeque::new(),
            receipts: BTreeMap::new(),
            handed_in: Vec::new(),
            acknowledge_at: never,
        }
    }
}

impl Post {
    /// Fetches what there is, and hands in receipts. Answers when to be called again.
    pub(super) fn work(&mut self, n_cases: usize, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if self.is_resting {
            return None;
        }
        let mut wish = None;
        if !self.receipts.is_empty() && !desk.is_busy(ACKNOWLEDGE) {
            if self.acknowledge_at <= desk.now {
                self.handed_in = self.receipts.keys().cloned().collect();
                desk.ask_cloud(&ACKNOWLEDGE.into(), CloudCall::Acknowledge(self.handed_in.clone()));
            } else {
                wish = Some(self.acknowledge_at);
            }
        }
        if !desk.is_busy(POLL) && n_cases < CASES_MAX {
            if self.poll_at <= desk.now {
                self.asked_at = desk.now;
                desk.ask_cloud(&POLL.into(), CloudCall::Notices);
            } else {
                wish = crate::queue::earlier(wish, Some(self.poll_at));
            }
        }
        wish
    }

    /// The poll has ended. Answers what it brought.
    pub(super) fn received(&mut self, answer: Result<CloudAnswer, CloudError>, desk: &Desk<'_>) -> Vec<Notice> {
        match answer {
            Ok(CloudAnswer::Noticed(notices)) => {
                self.n_failures = 0;
                let soon = if notices.is_empty() { self.asked_at.0.saturating_add(AGAIN_MS) } else { desk.now.0 };
                self.poll_at = UnixMillis(soon.max(desk.now.0));
                return notices;
            }
            Ok(_) => self.poll_at = UnixMillis(desk.now.0 + AGAIN_MS),
            Err(CloudError::Unsupported { .. }) => self.is_resting = true,
            Err(error) => {
                let asked_ms = match &error {
                    CloudError::Throttled { retry_after, .. } => {
                        i64::try_from(retry_after.as_millis()).unwrap_or(i64::MAX)
                    }
                    _ => 0,
                };
                let wait_ms = backoff_ms(self.n_failures).max(asked_ms);
                self.n_failures += 1;
                tracing::error!(controller = NAME, %error, wait_ms, "cannot fetch notices of interruption");
                self.poll_at = UnixMillis(desk.now.0.saturating_add(wait_ms));
            }
        }
        Vec::new()
    }

    pub(super) fn was_handled(&self, id: &str) -> bool {
        self.handled.contains(id)
    }

    /// A notice has been dealt with: its copies need nothing but a receipt.
    pub(super) fn acknowledge(&mut self, id: Text, receipts: impl IntoIterator<Item = Text>) {
        if self.handled.insert(id.clone()) {
            self.handled_order.push_back(id);
        }
        if self.handled_order.len() > HANDLED_MAX
            && let Some(oldest) = self.handled_order.pop_front()
        {
            self.handled.remove(&oldest);
        }
        self.receipts.extend(receipts.into_iter().map(|receipt| (receipt, 0)));
    }

    pub(super) fn acknowledged(&mut self, answer: Result<CloudAnswer, CloudError>, desk: &Desk<'_>) {
        let handed_in = std::mem::take(&mut self.handed_in);
        match answer {
            Ok(_) => {
                desk.metrics.add(&families::INTERRUPTION_DELETED_MESSAGES_TOTAL, &[], handed_in.len() as f64);
                self.receipts.retain(|receipt, _| !handed_in.contains(receipt));
            }
            Err(error) => {
                let mut most = 0;
                for receipt in &handed_in {
                    let Some(n_tries) = self.receipts.get_mut(receipt) else { continue };
                    *n_tries += 1;
                    most = most.max(*n_tries);
                    if *n_tries >= ACKNOWLEDGE_TRIES_MAX {
                        self.receipts.remove(receipt);
                    }
                }
                let wait_ms = backoff_ms(most.saturating_sub(1));
                tracing::error!(controller = NAME, %error, wait_ms, "cannot acknowledge notices of interruption");
                self.acknowledge_at = UnixMillis(desk.now.0.saturating_add(wait_ms));
            }
        }
    }
}

fn backoff_ms(n_failures: u32) -> i64 {
    BACKOFF_MS.0.saturating_mul(1 << n_failures.min(20)).min(BACKOFF_MS.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_wait_longer_each_time_up_to_a_minute() {
        let waits: Vec<i64> = (0..8).map(backoff_ms).collect();
        assert_eq!(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
    }

    #[test]
    fn what_was_dealt_with_is_remembered_but_not_for_ever() {
        let mut post = Post::default();
        for n in 0..=HANDLED_MAX {
            post.acknowledge(n.to_string().into(), [Text::from(format!("r-{n}"))]);
        }
        assert!(!post.was_handled("0"));
        assert!(post.was_handled("1") && post.was_handled(&HANDLED_MAX.to_string()));
        assert_eq!(post.handled.len(), HANDLED_MAX);
    }
}
