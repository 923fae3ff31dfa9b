//! What a new machine lacks, fetched and built while cargo checks and builds what is ours.

use anyhow::{Context as _, Result};
use kerf_e2e::control_plane::build;
use kerf_e2e::control_plane::parts;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use crate::toolbox::Tool;

/// Looks at licences, bans and sources. It could look at advisories too, but their database is a Git repository of its
/// own, and a check that needs the network fails on the wrong days. Without the part of it that fetches, it builds in a
/// quarter of the time.
const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2", flags: &["--debug", "--no-default-features"] };

pub(super) struct Ahead {
    go_parts: JoinHandle<Result<build::Prepared>>,
    deny: JoinHandle<Result<PathBuf>>,
}

pub(super) struct Ready {
    /// Or why it is not there.
    pub(super) deny: Result<PathBuf, String>,
}

impl Ahead {
    pub(super) fn start() -> Self {
        Self {
            go_parts: thread::spawn(|| build::prepare(parts::CLUSTER, &build::to_stderr)),
            deny: thread::spawn(|| DENY.prepare()),
        }
    }

    /// A machine without Go is not told here: each test that misses it says so. A build that fails is told at once.
    pub(super) fn wait(self) -> Result<Ready> {
        let panicked = "a helper thread of the test command panicked";
        self.go_parts.join().ok().context(panicked)?.context("the parts of a real control plane")?;
        let deny = self.deny.join().ok().context(panicked)?.map_err(|error| format!("{error:#}"));
        Ok(Ready { deny })
    }
}
