//! Files Node objects for the kwok provider, over the operator's own client and at its rate.

use kerf_cloud::{Answer, CloudError};
use kerf_cloud_sim::{Clock, Created, NodeDesk, Wait};
use kerf_controllers::resource::{NODE_CLAIMS, NODES, Resource};
use kerf_controllers::shell::{Caller, WallClock};
use kerf_controllers::{ApiFailure, write};
use kerf_model::UnixMillis;
use serde_json::Value;
use std::time::Duration;

pub(crate) struct Clerk {
    caller: Caller,
    runtime: tokio::runtime::Handle,
}

impl Clerk {
    /// Needs a tokio runtime around it.
    pub(crate) fn new(caller: Caller) -> Self {
        Self { caller, runtime: tokio::runtime::Handle::current() }
    }

    fn delete(&self, resource: Resource, name: &str) -> Answer<()> {
        let caller = self.caller.clone();
        let call = write::delete(resource, "", name, None);
        Box::pin(async move {
            match caller.call(call).await {
                Ok(_) => Ok(()),
                Err(failure) if failure.is_not_found() => Ok(()),
                Err(failure) => Err(cloud_error(failure)),
            }
        })
    }
}

impl NodeDesk for Clerk {
    fn create_node(&self, node: Value) -> Answer<Created> {
        let caller = self.caller.clone();
        Box::pin(async move {
            match caller.call(write::create(NODES, "", &node)).await {
                Ok(_) => Ok(Created::New),
                Err(failure) if failure.already_exists() => Ok(Created::WasThere),
                Err(failure) => Err(cloud_error(failure)),
            }
        })
    }

    fn get_node(&self, name: &str) -> Answer<Option<Value>> {
        let (caller, path) = (self.caller.clone(), NODES.path("", name));
        Box::pin(async move {
            match caller.get(&path).await {
                Ok(node) => Ok(Some(node)),
                Err(failure) if failure.is_not_found() => Ok(None),
                Err(failure) => Err(cloud_error(failure)),
            }
        })
    }

    fn list_nodes(&self) -> Answer<Vec<Value>> {
        let caller = self.caller.clone();
        Box::pin(async move {
            let mut nodes = Vec::new();
            let collection = NODES.collection();
            let listed = caller.each_page(&collection, |mut page| {
                if let Value::Array(items) = page["items"].take() {
                    nodes.extend(items);
                }
            });
            listed.await.map_err(cloud_error)?;
            Ok(nodes)
        })
    }

    fn delete_node(&self, name: &str) -> Answer<()> {
        self.delete(NODES, name)
    }

    fn delete_claim(&self, name: &str) -> Answer<()> {
        self.delete(NODE_CLAIMS, name)
    }

    fn patch_node_status(&self, name: &str, patch: Value) -> Answer<()> {
        let (caller, name) = (self.caller.clone(), name.to_owned());
        Box::pin(async move {
            match caller.call(write::patch_status(NODES, "", &name, patch)).await {
                Ok(_) => Ok(()),
                Err(failure) if failure.is_not_found() => {
                    Err(CloudError::NotFound { what: format!("Node {name}").into() })
                }
                Err(failure) => Err(cloud_error(failure)),
            }
        })
    }

    fn spawn(&self, work: Wait) {
        self.runtime.spawn(work);
    }

    fn tell(&self, message: String) {
        tracing::warn!("{message}");
    }
}

fn cloud_error(failure: ApiFailure) -> CloudError {
    let message = failure.message.into();
    match failure.status {
        429 => CloudError::Throttled { message, retry_after: Duration::from_secs(1) },
        _ => CloudError::Other { message },
    }
}

/// The clock on the wall, for the provider.
pub(crate) struct RealTime;

impl Clock for RealTime {
    fn now(&self) -> UnixMillis {
        kerf_controllers::shell::Clock::now(&WallClock)
    }

    fn sleep(&self, span: Duration) -> Wait {
        Box::pin(tokio::time::sleep(span))
    }
}
