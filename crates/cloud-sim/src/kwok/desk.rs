//! What the kwok provider asks of the cluster. The shell answers over a client, a test from memory.

use kerf_cloud::Answer;
use kerf_cloud::clock::Wait;
use serde_json::Value;

/// The clerk who files Node objects.
pub trait NodeDesk: Send + Sync {
    /// Creates a Node, status included. One of that name that is there already is left alone, and said to be there.
    fn create_node(&self, node: Value) -> Answer<Created>;

    /// None when there is none of that name.
    fn get_node(&self, name: &str) -> Answer<Option<Value>>;

    fn list_nodes(&self) -> Answer<Vec<Value>>;

    /// Asks for deletion. A Node that is not there is fine.
    fn delete_node(&self, name: &str) -> Answer<()>;

    /// Asks for deletion of a NodeClaim. One that is not there is fine.
    fn delete_claim(&self, name: &str) -> Answer<()>;

    /// A merge patch of the status subresource; `NotFound` when there is no such Node.
    fn patch_node_status(&self, name: &str, patch: Value) -> Answer<()>;

    /// Keeps polling this until it ends. Dropping it, as a crash does, loses nothing that a repeated launch does not bring back.
    fn spawn(&self, work: Wait);

    /// A line for the log: something in the background went wrong.
    fn tell(&self, message: String);
}

/// What came of a wish to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    New,
    WasThere,
}
