//! Errands: whatever takes time or changes the world, as values. Only `apply` (the shell) runs them.

use kerf_cloud::{Answer, ClassStatus, CloudError, CloudProvider, Instance, InstanceRef, LaunchOrder};
use kerf_model::{Effort, Plan, Report, Snapshot, Text};
use serde_json::Value;
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
    Get { provider_id: Text },
    List,
    Reboot { instance: InstanceRef, operation: Text },
    ResolveClass(Arc<Value>),
    Drift { instance: InstanceRef, class: Arc<Value> },
}

impl CloudCall {
    /// As the `method` label of `karpenter_cloudprovider_*` says it.
    pub fn method(&self) -> &'static str {
        match self {
            Self::Launch(_) => "Create",
            Self::Terminate(_) => "Delete",
            Self::Get { .. } => "Get",
            Self::List => "List",
            Self::Reboot { .. } => "Reboot",
            Self::ResolveClass(_) => "ResolveClass",
            Self::Drift { .. } => "IsDrifted",
        }
    }
}

#[derive(Debug, Clone)]
pub enum CloudAnswer {
    Launched(Box<Instance>),
    Found(Box<Instance>),
    Listed(Vec<Instance>),
    Class(Box<ClassStatus>),
    Drifted(Option<Text>),
    Done,
}

/// Something to think about, off the operator's own thread.
#[derive(Debug, Clone)]
pub enum Thought {
    Capacity { snapshot: Arc<Snapshot>, effort: Effort },
}

/// How an errand ended.
#[derive(Debug)]
pub enum Outcome {
    /// The object as stored, or whatever the server said.
    Api(Result<Value, ApiFailure>),
    Cloud(Result<CloudAnswer, CloudError>),
    /// A plan that passed the audit, or the breaches in words.
    Thought {
        snapshot: Arc<Snapshot>,
        plan: Result<Plan, Vec<String>>,
        report: Box<Report>,
    },
}

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

/// Runs a thought: plans, and lets the audit judge.
pub fn think(thought: Thought) -> Outcome {
    match thought {
        Thought::Capacity { snapshot, effort } => {
            let (plan, report) = kerf_engine::plan_capacity(&snapshot, &effort);
            let plan = match kerf_engine::audit(&snapshot, &plan) {
                Ok(()) => Ok(plan),
                Err(breaches) => Err(breaches.iter().map(ToString::to_string).collect()),
            };
            Outcome::Thought { snapshot, plan, report: Box::new(report) }
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
        CloudCall::Drift { instance, class } => {
            let answer = cloud.drift(instance, class);
            Box::pin(async move { answer.await.map(CloudAnswer::Drifted) })
        }
    }
}
