//! An account on loopback that others wrote, asked through the official SDK: every call of the wire, the provider on the bench of
//! the conformance suite, and the contract's formulas over every type that the account sells.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

mod calls;
mod conformance;
mod formulas;
mod ways;

use kerf_cloud::clock::{Clock, Wait};
use kerf_cloud_aws::sdk::{Connection, Sdk};
use kerf_e2e::aws::{self, Emulator, Prepared, Started};
use kerf_e2e::control_plane::build;
use kerf_e2e::skipped;
use kerf_model::UnixMillis;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const REGION: &str = "us-west-2";

/// An account of its own with a cluster called `demo`, and the SDK pointed at it.
struct Stage {
    runtime: tokio::runtime::Runtime,
    account: Box<Emulator>,
    made: Prepared,
    sdk: Sdk,
}

impl Stage {
    /// `what` is skipped aloud where there is no emulator.
    fn start(what: &str) -> Option<Self> {
        let account = match aws::start(&build::to_stderr).unwrap() {
            Started::Ready(account) => account,
            Started::Skipped(reason) => {
                skipped::tell(1, what, &reason);
                return None;
            }
        };
        let made = account.prepare("demo", REGION).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connection = connection(account.endpoint());
        let sdk = runtime.block_on(Sdk::connect(connection, Arc::new(Wall))).unwrap();
        Some(Self { runtime, account, made, sdk })
    }

    /// The same account, reached in another way.
    fn reached(&self, change: impl FnOnce(&mut Connection)) -> Sdk {
        let mut connection = connection(self.account.endpoint());
        change(&mut connection);
        self.run(Sdk::connect(connection, Arc::new(Wall))).unwrap()
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

fn connection(endpoint: &str) -> Connection {
    Connection {
        region: Some(REGION.to_owned()),
        version: "1.2.3".to_owned(),
        endpoint: Some(endpoint.to_owned()),
        credentials: Some(("AKIAOPERATOR".to_owned(), "secret".to_owned())),
        ..Connection::default()
    }
}

struct Wall;

impl Clock for Wall {
    fn now(&self) -> UnixMillis {
        UnixMillis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64)
    }

    fn sleep(&self, span: Duration) -> Wait {
        Box::pin(tokio::time::sleep(span))
    }
}
