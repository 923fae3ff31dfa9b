//! The queue itself: found by name, read in batches, emptied of what has been dealt with.

use super::message::parse;
use crate::wire::{Aws, Failure, LifecycleAction};
use kerf_cloud::{CloudError, Notice};
use kerf_model::Text;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lifecycle actions that wait for leave. Far more than any group ends at a time; what is older has timed out.
const ACTIONS_MAX: usize = 10_000;
/// What SQS is given when it asks us to slow down.
const SLOWER: Duration = Duration::from_secs(5);

/// One queue of one region.
pub struct Queue {
    name: String,
    region: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Looked up once, and again after a failure.
    url: Option<String>,
    /// By receipt. A memory only: a message that nobody deletes comes again, with its action in it.
    actions: BTreeMap<Text, LifecycleAction>,
    /// The latest receipt of each message, in the order in which messages were first seen.
    receipts: Vec<(String, Text)>,
}

impl Queue {
    pub fn new(name: &str, region: &str) -> Self {
        Self { name: name.to_owned(), region: region.to_owned(), state: Mutex::default() }
    }

    /// Waits for messages, twenty seconds at most.
    pub async fn notices(&self, wire: &dyn Aws) -> Result<Vec<Notice>, CloudError> {
        let url = self.url(wire).await?;
        let messages = match wire.receive_messages(url).await {
            Ok(messages) => messages,
            Err(failure) => {
                // It may have been made anew under another address.
                self.state().url = None;
                return Err(self.trouble(&failure));
            }
        };
        let mut notices = Vec::with_capacity(messages.len());
        for message in messages {
            let parsed = parse(&message);
            if parsed.is_malformed {
                tracing::error!(
                    controller = "interruption",
                    queue = self.name,
                    "message-id" = message.id,
                    error = &*parsed.notice.detail,
                    "dropping a message that cannot be read"
                );
            }
            if let Some(action) = parsed.action {
                self.state().remember(message.id, parsed.notice.receipt.clone(), action);
            }
            notices.push(parsed.notice);
        }
        Ok(notices)
    }

    /// Lets Auto Scaling groups go on that wait for it, and deletes the messages. A message whose action cannot be completed stays.
    pub async fn acknowledge(&self, wire: &dyn Aws, receipts: Vec<Text>) -> Result<(), CloudError> {
        let mut done = Vec::with_capacity(receipts.len());
        let mut trouble = None;
        for receipt in receipts {
            let action = self.state().actions.get(&receipt).cloned();
            let completed = match &action {
                None => Ok(()),
                Some(action) => wire.complete_lifecycle_action(action.clone()).await,
            };
            match (completed, action) {
                (Err(failure), Some(action)) if !is_over(&failure) => trouble = Some(not_completed(&action, &failure)),
                _ => done.push(receipt),
            }
        }
        if !done.is_empty() {
            let url = self.url(wire).await?;
            let texts = done.iter().map(ToString::to_string).collect();
            wire.delete_messages(url, texts).await.map_err(|failure| self.trouble(&failure))?;
            self.state().forget(&done);
        }
        trouble.map_or(Ok(()), Err)
    }

    async fn url(&self, wire: &dyn Aws) -> Result<String, CloudError> {
        let known = self.state().url.clone();
        if let Some(url) = known {
            return Ok(url);
        }
        let url = wire.get_queue_url(self.name.clone()).await.map_err(|failure| self.trouble(&failure))?;
        self.state().url = Some(url.clone());
        Ok(url)
    }

    /// What is wrong with the queue, and what would do.
    fn trouble(&self, failure: &Failure) -> CloudError {
        if failure.is_throttled() {
            return CloudError::Throttled { message: failure.to_string().into(), retry_after: SLOWER };
        }
        let (name, region) = (&self.name, &self.region);
        let setting = "settings.interruptionQueue (--interruption-queue, INTERRUPTION_QUEUE)";
        let message = if failure.is_not_found() {
            format!(
                "SQS queue {name:?} does not exist in {region}: {failure}. {setting} names it: create the queue, correct the \
                 name, or leave it empty to run without notices of interruption"
            )
        } else if failure.is_denied() {
            format!(
                "SQS queue {name:?} of {setting} may not be used: {failure}. Allow sqs:GetQueueUrl, sqs:ReceiveMessage and \
                 sqs:DeleteMessage on it to the operator's role"
            )
        } else {
            format!("SQS queue {name:?} of {setting}: {failure}")
        };
        CloudError::Other { message: message.into() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remember(&mut self, message_id: String, receipt: Text, action: LifecycleAction) {
        if let Some(at) = self.receipts.iter().position(|(id, _)| *id == message_id) {
            let (_, old) = self.receipts.remove(at);
            self.actions.remove(&old);
        }
        self.actions.insert(receipt.clone(), action);
        self.receipts.push((message_id, receipt));
        if self.receipts.len() > ACTIONS_MAX {
            let (_, oldest) = self.receipts.remove(0);
            self.actions.remove(&oldest);
        }
    }

    fn forget(&mut self, receipts: &[Text]) {
        for receipt in receipts {
            if self.actions.remove(receipt).is_some() {
                self.receipts.retain(|(_, held)| held != receipt);
            }
        }
    }
}

/// Whether nobody waits for the action any more: it was completed, or timed out, or its instance is gone.
fn is_over(failure: &Failure) -> bool {
    failure.code == "ValidationError" || failure.is_not_found()
}

fn not_completed(action: &LifecycleAction, failure: &Failure) -> CloudError {
    let LifecycleAction { group, hook, instance_id, .. } = action;
    let fix = if failure.is_denied() {
        ". Allow autoscaling:CompleteLifecycleAction to the operator's role; until then the group waits for its hook's timeout"
    } else {
        ""
    };
    let message =
        format!("hook {hook} of Auto Scaling group {group} was not told that {instance_id} may end: {failure}{fix}");
    CloudError::Other { message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::QueueMessage;
    use crate::wire::scripted::Scripted;
    use kerf_cloud::NoticeKind;
    use std::task::{Context, Poll, Waker};

    fn now<T>(future: impl Future<Output = T>) -> T {
        match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("a scripted AWS answers at once"),
        }
    }

    fn message(id: &str, body: &str) -> QueueMessage {
        QueueMessage { id: id.to_owned(), receipt: format!("r-{id}"), body: body.to_owned(), sent_ms: 5_000 }
    }

    fn stage(messages: &[QueueMessage]) -> (Scripted, Queue) {
        let aws = Scripted::default();
        aws.account().queues.insert("home".to_owned(), messages.to_vec());
        (aws, Queue::new("home", "eu-west-1"))
    }

    const SPOT: &str = r#"{"version":"0","id":"e-1","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning",
        "time":"2026-01-01T00:00:00Z","detail":{"instance-id":"i-1","instance-action":"terminate"}}"#;
    const HOOK: &str = r#"{"LifecycleHookName":"h","LifecycleTransition":"autoscaling:EC2_INSTANCE_TERMINATING",
        "AutoScalingGroupName":"g","EC2InstanceId":"i-2","LifecycleActionToken":"t","RequestId":"q"}"#;

    #[test]
    fn messages_become_notices_and_stay_until_they_are_acknowledged() {
        let (aws, queue) = stage(&[message("m-1", SPOT), message("m-2", "garbage")]);
        for _ in 0..2 {
            let notices = now(queue.notices(&aws)).unwrap();
            let kinds: Vec<NoticeKind> = notices.iter().map(|notice| notice.kind).collect();
            assert_eq!(kinds, [NoticeKind::SpotInterrupted, NoticeKind::NoOp]);
        }
        now(queue.acknowledge(&aws, vec!["r-m-1".into(), "r-m-2".into()])).unwrap();
        assert_eq!(now(queue.notices(&aws)).unwrap(), []);
        assert_eq!(aws.count("sqs:GetQueueUrl"), 1, "the address is looked up once");
        assert_eq!(aws.count("sqs:DeleteMessage"), 1, "a batch is one call");
    }

    #[test]
    fn a_queue_that_does_not_exist_says_which_setting_which_call_and_what_to_do() {
        let aws = Scripted::default();
        let queue = Queue::new("home", "eu-west-1");
        let words = now(queue.notices(&aws)).unwrap_err().to_string();
        for part in ["\"home\"", "eu-west-1", "--interruption-queue", "sqs:GetQueueUrl", "create the queue"] {
            assert!(words.contains(part), "{part}: {words}");
        }
        aws.account().queues.insert("home".to_owned(), Vec::new());
        assert_eq!(now(queue.notices(&aws)).unwrap(), [], "it is looked for again");
    }

    #[test]
    fn a_queue_that_went_away_is_looked_up_again() {
        let (aws, queue) = stage(&[]);
        now(queue.notices(&aws)).unwrap();
        aws.fail_next(Failure::new("sqs:ReceiveMessage", "AWS.SimpleQueueService.NonExistentQueue", "gone"));
        assert!(now(queue.notices(&aws)).is_err());
        now(queue.notices(&aws)).unwrap();
        assert_eq!(aws.count("sqs:GetQueueUrl"), 2);
    }

    #[test]
    fn a_denied_call_names_what_to_allow() {
        let (aws, queue) = stage(&[]);
        aws.fail_next(Failure::new("sqs:GetQueueUrl", "AccessDenied", "no"));
        let words = now(queue.notices(&aws)).unwrap_err().to_string();
        assert!(words.contains("sqs:ReceiveMessage and sqs:DeleteMessage"), "{words}");
        aws.fail_next(Failure::new("sqs:GetQueueUrl", "RequestThrottled", "slow"));
        assert!(matches!(now(queue.notices(&aws)).unwrap_err(), CloudError::Throttled { .. }));
    }

    #[test]
    fn acknowledging_completes_the_lifecycle_action_first() {
        let (aws, queue) = stage(&[message("m-1", HOOK)]);
        let notices = now(queue.notices(&aws)).unwrap();
        assert_eq!((notices[0].kind, &*notices[0].id), (NoticeKind::LifecycleAction, "q"));
        now(queue.acknowledge(&aws, vec!["r-m-1".into()])).unwrap();
        let calls: Vec<&str> = aws.account().calls.iter().map(|(action, _)| *action).collect();
        let complete = calls.iter().position(|call| *call == "autoscaling:CompleteLifecycleAction").unwrap();
        let delete = calls.iter().position(|call| *call == "sqs:DeleteMessage").unwrap();
        assert!(complete < delete, "{calls:?}");
        assert!(queue.state().actions.is_empty() && queue.state().receipts.is_empty());
    }

    #[test]
    fn an_action_that_may_not_be_completed_keeps_its_message_and_only_its_own() {
        let (aws, queue) = stage(&[message("m-1", HOOK), message("m-2", SPOT)]);
        now(queue.notices(&aws)).unwrap();
        let receipts: Vec<Text> = vec!["r-m-1".into(), "r-m-2".into()];
        aws.fail_next(Failure::new("autoscaling:CompleteLifecycleAction", "AccessDenied", "no"));
        let words = now(queue.acknowledge(&aws, receipts.clone())).unwrap_err().to_string();
        for part in ["hook h", "group g", "i-2", "Allow autoscaling:CompleteLifecycleAction"] {
            assert!(words.contains(part), "{part}: {words}");
        }
        let left: Vec<String> = aws.account().queues["home"].iter().map(|message| message.id.clone()).collect();
        assert_eq!(left, ["m-1"]);
        aws.fail_next(Failure::new("autoscaling:CompleteLifecycleAction", "ValidationError", "No active action"));
        now(queue.acknowledge(&aws, receipts)).unwrap();
        assert!(aws.account().queues["home"].is_empty(), "an action that is over needs nobody");
    }

    #[test]
    fn a_message_that_comes_again_has_one_receipt_the_latest() {
        let (aws, queue) = stage(&[message("m-1", HOOK)]);
        now(queue.notices(&aws)).unwrap();
        aws.account().queues.get_mut("home").unwrap()[0].receipt = "r-later".to_owned();
        now(queue.notices(&aws)).unwrap();
        assert_eq!(queue.state().actions.len(), 1);
        now(queue.acknowledge(&aws, vec!["r-later".into()])).unwrap();
        assert_eq!(aws.count("autoscaling:CompleteLifecycleAction"), 1);
    }
}
