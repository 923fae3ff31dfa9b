//! The kwok provider's clerk and clock, on an in-process server and a virtual clock.

use crate::stage::request;
use kerf_cloud::{Answer, CloudError};
use kerf_cloud_sim::{Clock, Created, NodeDesk, Wait};
use kerf_control_plane::Server;
use kerf_controllers::ApiFailure;
use kerf_model::UnixMillis;
use serde_json::{Value, json};
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Work that goes on while nobody waits for it. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Background(Arc<Mutex<Vec<Wait>>>);

impl Background {
    /// Looks at every piece of work once. Answers how many are left.
    pub(crate) fn poll(&self) -> usize {
        let mut work = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        work.retain_mut(|future| future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(work);
        all.len()
    }

    fn add(&self, work: Wait) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(work);
    }
}

/// Files Nodes with an in-process server.
pub(crate) struct Clerk {
    pub(crate) server: Server,
    pub(crate) background: Background,
}

impl Clerk {
    fn ask(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Result<Value, CloudError> {
        request(&self.server, method, path, content_type, body).map_err(error_of)
    }
}

fn error_of(failure: ApiFailure) -> CloudError {
    let message = failure.message.as_str().into();
    if failure.is_not_found() { CloudError::NotFound { what: message } } else { CloudError::Other { message } }
}

fn answer<T: Send + 'static>(result: Result<T, CloudError>) -> Answer<T> {
    Box::pin(ready(result))
}

impl NodeDesk for Clerk {
    fn create_node(&self, node: Value) -> Answer<Created> {
        let created = request(&self.server, "POST", "/api/v1/nodes", "application/json", &node);
        answer(match created {
            Ok(_) => Ok(Created::New),
            Err(failure) if failure.already_exists() => Ok(Created::WasThere),
            Err(failure) => Err(error_of(failure)),
        })
    }

    fn get_node(&self, name: &str) -> Answer<Option<Value>> {
        answer(match self.ask("GET", &format!("/api/v1/nodes/{name}"), "", &Value::Null) {
            Err(error) if error.is_not_found() => Ok(None),
            found => found.map(Some),
        })
    }

    fn list_nodes(&self) -> Answer<Vec<Value>> {
        let list = self.ask("GET", "/api/v1/nodes", "", &Value::Null);
        answer(list.map(|list| list["items"].as_array().cloned().unwrap_or_default()))
    }

    fn delete_node(&self, name: &str) -> Answer<()> {
        self.delete(&format!("/api/v1/nodes/{name}"))
    }

    fn delete_claim(&self, name: &str) -> Answer<()> {
        self.delete(&format!("/apis/karpenter.sh/v1/nodeclaims/{name}"))
    }

    fn patch_node_status(&self, name: &str, patch: Value) -> Answer<()> {
        let path = format!("/api/v1/nodes/{name}/status");
        answer(self.ask("PATCH", &path, "application/merge-patch+json", &patch).map(drop))
    }

    fn spawn(&self, work: Wait) {
        self.background.add(work);
    }

    fn tell(&self, message: String) {
        // A rehearsal shows what became of it; words are for people.
        drop(message);
    }
}

impl Clerk {
    fn delete(&self, path: &str) -> Answer<()> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        answer(match self.ask("DELETE", path, "application/json", &options) {
            Err(error) if error.is_not_found() => Ok(()),
            done => done.map(drop),
        })
    }
}

/// The plane's clock, as a cloud sees it.
#[derive(Clone)]
pub(crate) struct StageClock(pub(crate) kerf_control_plane::clock::Clock);

impl Clock for StageClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.now().as_millisecond())
    }

    fn sleep(&self, span: Duration) -> Wait {
        let until = self.now().0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX));
        Box::pin(Sleep { clock: self.clone(), until })
    }
}

struct Sleep {
    clock: StageClock,
    until: i64,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.clock.now().0 >= self.until { Poll::Ready(()) } else { Poll::Pending }
    }
}
