//! What AWS is about to do to instances, as it stands in an SQS queue.
//!
//! ```text
//! EventBridge rules, lifecycle hooks ─▶ SQS ─▶ Queue::notices ── parse ─▶ Notice
//!                                        ▲                                  │ the operator acts
//!                                        └── Queue::acknowledge ◀───────────┘ DeleteMessage, CompleteLifecycleAction
//! ```
//!
//! A queue that was made for the AWS Node Termination Handler works as it is: its message kinds are understood, those of lifecycle
//! hooks included. One queue feeds one consumer: whoever takes it over removes the other.
//!
//! What is absent: nodes, claims, and what is done about a notice. Messages about instances of others come out like any other.

mod message;
mod queue;

pub use message::{Parsed, parse};
pub use queue::Queue;
