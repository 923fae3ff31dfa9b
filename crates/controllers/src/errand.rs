//! Errands: whatever takes time or changes the world, as values. Only `apply` (the shell) runs them.

use crate::guard::Defect;
use crate::poison::{Poison, Without, think_without};
use kerf_cloud::{
    Answer, ChoreReport, ClassStatus, CloudError, CloudProvider, InUse, Instance, InstanceRef, LaunchOrder, Notice,
};
use kerf_model::{Effort, Plan, Report, Snapshot, Text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub enum Errand {
    Api(ApiCall),
    Cloud(CloudCall),
    Think(Thought),
}

/// One request to the API server.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiCall {
    pub method: &'static str,
    /// Path and query.
    pub path: String,
    pub content_type: &'static str,
    /// Null for none.
    pub body: Value,
}

#[derive(Debug, Clone)]
pub enum CloudCall {
    Launch(Arc<LaunchOrder>),
    Terminate(InstanceRef),
    Get {
        provider_id: Text,
    },
    /// Whether a person has taken the machine over.
    IsReleased {
        provider_id: Text,
    },
    List,
    Reboot {
        instance: InstanceRef,
        operation: Text,
    },
    ResolveClass(Arc<Value>),
    EndClass(Arc<Value>),
    Drift {
        instance: InstanceRef,
        class: Arc<Value>,
    },
    LabelInstance(InstanceRef),
    /// Waits until the cloud has something to tell, or for some seconds.
    Notices,
    Acknowledge(Vec<Text>),
    RunChore {
        name: &'static str,
        in_use: Arc<InUse>,
    },
}

impl CloudCall {
    /// As the `method` label of `karpenter_cloudprovider_*` says it; None for what upstream does not count there.
    pub fn method(&self) -> Option<&'static str> {
        match self {
            Self::Launch(_) => Some("Create"),
            Self::Terminate(_) => Some("Delete"),
            Self::Get { .. } => Some("Get"),
            Self::List => Some("List"),
            Self::Reboot { .. } => Some("Reboot"),
            Self::ResolveClass(_) => Some("ResolveClass"),
            Self::Drift { .. } => Some("IsDrifted"),
            Self::EndClass(_)
            | Self::IsReleased { .. }
            | Self::LabelInstance(_)
            | Self::Notices
            | Self::Acknowledge(_)
            | Self::RunChore { .. } => None,
        }
    }

    /// Whether somebody else could notice that it was asked.
    pub fn changes_something(&self) -> bool {
        match self {
            Self::Launch(_)
            | Self::Terminate(_)
            | Self::Reboot { .. }
            | Self::ResolveClass(_)
            | Self::EndClass(_)
            | Self::LabelInstance(_)
            | Self::Acknowledge(_)
            | Self::RunChore { .. } => true,
            Self::Get { .. } | Self::IsReleased { .. } | Self::List | Self::Drift { .. } | Self::Notices => false,
        }
    }

    /// Whether it is nothing but waiting for news: who stops need not wait for it, since what it would have told is told again.
    pub fn is_listening(&self) -> bool {
        matches!(self, Self::Notices)
    }
}

#[derive(Debug, Clone)]
pub enum CloudAnswer {
    Launched(Box<Instance>),
    Found(Box<Instance>),
    Listed(Vec<Instance>),
    Class(Box<ClassStatus>),
    Drifted(Option<Text>),
    Released(bool),
    /// Annotations for the claim.
    Labelled(BTreeMap<Text, Text>),
    Noticed(Vec<Notice>),
    Chore(Box<ChoreReport>),
    Done,
}

/// Something to think about, off the operator's own thread.
#[derive(Debug, Clone)]
pub enum Thought {
    /// `plant` is for tests, see [`crate::Options`].
    Capacity { snapshot: Arc<Snapshot>, effort: Effort, plant: Option<fn(&Snapshot)> },
}

/// How an errand ended.
#[derive(Debug)]
pub enum Outcome {
    /// The object as stored, or whatever the server said.
    Api(Result<Value, ApiFailure>),
    Cloud(Result<CloudAnswer, CloudError>),
    /// A plan that passed the audit, or the breaches in words.
    Thought {
        /// Without those that made it panic.
        snapshot: Arc<Snapshot>,
        plan: Result<Plan, Vec<String>>,
        report: Box<Report>,
        poison: Vec<Poison>,
        /// It panicked at first.
        defect: Option<Defect>,
    },
}

/// A reason that no server gives.
const NOT_SENT: &str = "NotSent";

/// What the API server refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiFailure {
    /// 0 when there was no answer at all.
    pub status: u16,
    pub reason: String,
    pub message: String,
}

impl ApiFailure {
    /// It was never sent: see [`crate::dispatch`].
    pub fn not_sent(message: String) -> Self {
        Self { status: 0, reason: NOT_SENT.to_owned(), message }
    }

    pub fn is_not_sent(&self) -> bool {
        self.status == 0 && self.reason == NOT_SENT
    }

    /// Whether a write may be done although the answer is no good. The server may fail after it has stored something, and what is between
    /// us and it may not have waited; but somebody's webhook is asked before.
    pub fn may_be_done(&self) -> bool {
        match self.status {
            0 => !self.is_not_sent(),
            500.. => !self.message.contains("failed calling webhook"),
            _ => false,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.status == 404
    }

    pub fn is_conflict(&self) -> bool {
        self.status == 409 && self.reason != "AlreadyExists"
    }

    pub fn already_exists(&self) -> bool {
        self.status == 409 && self.reason == "AlreadyExists"
    }
}

/// Whose errand it is. `key` is the duty's own word, mostly an object's name; while an errand runs, its key is busy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub duty: &'static str,
    pub key: Text,
}

/// Runs a thought: plans, and lets the audit judge. A panic is no end: see [`crate::poison`].
pub fn think(thought: Thought) -> Outcome {
    let Thought::Capacity { snapshot, effort, plant } = thought;
    let plan = |snapshot: &Snapshot| {
        if let Some(plant) = plant {
            plant(snapshot);
        }
        let (plan, report) = kerf_engine::plan_capacity(snapshot, &effort);
        match kerf_engine::audit(snapshot, &plan) {
            Ok(()) => (Ok(plan), report),
            Err(breaches) => (Err(breaches.iter().map(ToString::to_string).collect::<Vec<_>>()), report),
        }
    };
    match think_without(Arc::clone(&snapshot), plan) {
        Ok((Without { answer: (plan, report), snapshot, poison }, defect)) => {
            Outcome::Thought { snapshot, plan, report: Box::new(report), poison, defect }
        }
        Err(defect) => {
            let nothing = Snapshot { revision: snapshot.revision, now: snapshot.now, ..Snapshot::default() };
            let (_, report) = kerf_engine::plan_capacity(&nothing, &effort);
            let plan = Err(vec![defect.to_string()]);
            Outcome::Thought { snapshot, plan, report: Box::new(report), poison: Vec::new(), defect: Some(defect) }
        }
    }
}

/// Asks a provider.
pub fn ask(cloud: &dyn CloudProvider, call: CloudCall) -> Answer<CloudAnswer> {
    match call {
        CloudCall::Launch(order) => {
            let answer = cloud.launch(order);
            Box::pin(async move { answer.await.map(|instance| CloudAnswer::Launched(Box::new(instance))) })
        }
        CloudCall::Terminate(instance) => {
            let answer = cloud.terminate(instance);
            Box::pin(async move { answer.await.map(|()| CloudAnswer::Done) })
        }
        CloudCall::Get { provider_id } => {
            let answer = cloud.get(provider_id);
            Box::pin(async move { answer.await.map(|instance| CloudAnswer::Found(Box::new(instance))) })
        }
        CloudCall::IsReleased { provider_id } => match cloud.released(provider_id) {
            Some(answer) => Box::pin(async move { answer.await.map(CloudAnswer::Released) }),
            None => Box::pin(std::future::ready(Ok(CloudAnswer::Released(false)))),
        },
        CloudCall::List => {
            let answer = cloud.list();
            Box::pin(async move { answer.await.map(CloudAnswer::Listed) })
        }
        CloudCall::Reboot { instance, operation } => {
            let answer = cloud.reboot(instance, operation);
            Box::pin(async move { answer.await.map(|()| CloudAnswer::Done) })
        }
        CloudCall::ResolveClass(class) => {
            let answer = cloud.resolve_class(class);
            Box::pin(async move { answer.await.map(|status| CloudAnswer::Class(Box::new(status))) })
        }
        CloudCall::EndClass(class) => {
            let answer = cloud.end_class(class);
            Box::pin(async move { answer.await.map(|()| CloudAnswer::Done) })
        }
        CloudCall::Drift { instance, class } => {
            let answer = cloud.drift(instance, class);
            Box::pin(async move { answer.await.map(CloudAnswer::Drifted) })
        }
        CloudCall::LabelInstance(instance) => {
            let answer = cloud.label_instance(instance);
            Box::pin(async move { answer.await.map(CloudAnswer::Labelled) })
        }
        CloudCall::Notices => {
            let answer = cloud.notices();
            Box::pin(async move { answer.await.map(CloudAnswer::Noticed) })
        }
        CloudCall::Acknowledge(receipts) => {
            let answer = cloud.acknowledge(receipts);
            Box::pin(async move { answer.await.map(|()| CloudAnswer::Done) })
        }
        CloudCall::RunChore { name, in_use } => {
            let answer = cloud.run_chore(name, in_use);
            Box::pin(async move { answer.await.map(|report| CloudAnswer::Chore(Box::new(report))) })
        }
    }
}
