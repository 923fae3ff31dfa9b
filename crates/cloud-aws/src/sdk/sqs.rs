//! SQS: the queue of interruptions.

use super::failure::{incomplete, of};
use crate::wire::{Failure, QueueMessage};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName};

/// SQS takes so many at once.
const BATCH_MAX: usize = 10;

pub(super) async fn url(client: &Client, name: String) -> Result<String, Failure> {
    const ACTION: &str = "sqs:GetQueueUrl";
    let answer = client.get_queue_url().queue_name(name).send().await.map_err(of(ACTION))?;
    answer.queue_url.ok_or_else(|| incomplete(ACTION, "queue URL"))
}

/// Waits up to twenty seconds for the first message; what is not deleted comes again after twenty more.
pub(super) async fn receive(client: &Client, queue_url: String) -> Result<Vec<QueueMessage>, Failure> {
    let answer = client
        .receive_message()
        .queue_url(queue_url)
        .max_number_of_messages(10)
        .visibility_timeout(20)
        .wait_time_seconds(20)
        .message_system_attribute_names(MessageSystemAttributeName::SentTimestamp)
        .message_attribute_names("All")
        .send()
        .await
        .map_err(of("sqs:ReceiveMessage"))?;
    Ok(answer.messages.unwrap_or_default().into_iter().map(message).collect())
}

fn message(row: Message) -> QueueMessage {
    let sent = row.attributes.as_ref().and_then(|it| it.get(&MessageSystemAttributeName::SentTimestamp));
    QueueMessage {
        sent_ms: sent.and_then(|text| text.parse().ok()).unwrap_or_default(),
        id: row.message_id.unwrap_or_default(),
        receipt: row.receipt_handle.unwrap_or_default(),
        body: row.body.unwrap_or_default(),
    }
}

/// In batches, which IAM knows by the same action as single ones. Fails with the first that was not deleted.
pub(super) async fn delete(client: &Client, queue_url: String, receipts: Vec<String>) -> Result<(), Failure> {
    const ACTION: &str = "sqs:DeleteMessage";
    for batch in receipts.chunks(BATCH_MAX) {
        let mut call = client.delete_message_batch().queue_url(&queue_url);
        for (idx, receipt) in batch.iter().enumerate() {
            let entry = DeleteMessageBatchRequestEntry::builder().id(idx.to_string()).receipt_handle(receipt).build();
            call = call.entries(entry.map_err(|error| incomplete(ACTION, &error.to_string()))?);
        }
        let answer = call.send().await.map_err(of(ACTION))?;
        if let Some(failed) = answer.failed().first() {
            return Err(Failure::new(ACTION, failed.code(), failed.message().unwrap_or("a message was not deleted")));
        }
    }
    Ok(())
}
