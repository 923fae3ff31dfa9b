//! The documents' story: inflate from 0 to 60 pods, and back to no node; its timeline, and its bill.

use super::picture::{Picture, dollars};
use super::{Playground, UpArguments, view};
use anyhow::bail;
use jiff::{SignedDuration, Timestamp};
use kerf_controllers::resource::DEPLOYMENTS;
use kerf_controllers::write;
use serde_json::json;
use std::io::Write;
use std::time::Duration;

const REPLICAS: usize = 60;
/// Of the playground's own time. A machine boots in less than a minute, and an empty node goes after half a minute.
const PATIENCE: SignedDuration = SignedDuration::from_mins(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(crate) async fn play(playground: &Playground<'_>, arguments: &UpArguments) -> anyhow::Result<()> {
    let story = Story { playground, began: playground.clock.now() };
    if arguments.empty {
        bail!("--demo needs the NodePool and the Deployment that --empty leaves out");
    }
    story.wait("a NodePool that is ready", |picture| picture.pools.iter().any(|pool| pool.state == "ready")).await?;
    story.tell("the cluster has no node; NodePool default is ready, Deployment inflate has no replica")?;
    story.scale(REPLICAS).await?;
    story.tell(&format!("kubectl scale deployment inflate --replicas {REPLICAS}"))?;
    let picture = story.wait("pods that wait", |picture| picture.pending.len() + picture.n_running >= REPLICAS).await?;
    story.tell(&format!("{} pods wait for a place", picture.pending.len()))?;
    let picture = story.wait("a decision", |picture| !picture.decisions.is_empty()).await?;
    story.tell_decisions(&picture)?;
    let picture = story.wait("a node", |picture| picture.nodes.iter().any(|node| node.stage == "ready")).await?;
    story.tell(&format!("first node ready: {}", view::summary(&picture)))?;
    let picture = story.wait("60 running pods", |picture| picture.n_running == REPLICAS).await?;
    story.tell(&format!("all run: {}", view::summary(&picture)))?;
    for node in &picture.nodes {
        let (cpu, memory) = node.fill;
        let fill = format!("{:.0} % of CPU, {:.0} % of memory", cpu * 100.0, memory * 100.0);
        story.say(&format!("  {}  {}  {} pods, {fill}", node.name, node.what, node.n_pods))?;
    }
    story.scale(0).await?;
    story.tell("kubectl scale deployment inflate --replicas 0")?;
    let picture = story.wait("no pod", |picture| picture.n_pods == 0).await?;
    story.tell(&format!("the nodes are empty: {}", view::summary(&picture)))?;
    story.wait("no node", |picture| picture.nodes.is_empty()).await?;
    story.tell("the last node is gone")?;
    story.bill()
}

struct Story<'a> {
    playground: &'a Playground<'a>,
    began: Timestamp,
}

impl Story<'_> {
    async fn scale(&self, replicas: usize) -> anyhow::Result<()> {
        let patch = write::patch(DEPLOYMENTS, "default", "inflate", json!({"spec": {"replicas": replicas}}));
        self.playground
            .caller
            .call(patch)
            .await
            .map(drop)
            .map_err(|failure| anyhow::anyhow!("scaling inflate: {failure}"))
    }

    async fn wait(&self, what: &str, holds: impl Fn(&Picture) -> bool) -> anyhow::Result<Picture> {
        let end = self.playground.clock.now() + PATIENCE;
        loop {
            let Some(picture) = self.playground.look().await else { bail!("the operator has ended") };
            if holds(&picture) {
                return Ok(picture);
            }
            if self.playground.clock.now() > end {
                bail!("waited {PATIENCE:#} in vain for {what}: {}", view::summary(&picture));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// A line with the time since the beginning.
    fn tell(&self, what: &str) -> anyhow::Result<()> {
        let passed = self.playground.clock.now().duration_since(self.began);
        self.say(&format!("{:>7.1} s  {what}", passed.as_secs_f64()))
    }

    fn tell_decisions(&self, picture: &Picture) -> anyhow::Result<()> {
        for decision in &picture.decisions {
            let (_, what) = decision.split_once("  ").unwrap_or(("", decision));
            self.tell(&format!("decided: {what}"))?;
        }
        Ok(())
    }

    fn say(&self, line: &str) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}")?;
        Ok(out.flush()?)
    }

    fn bill(&self) -> anyhow::Result<()> {
        let bill = self.playground.cloud.bill();
        self.say("\nThe bill")?;
        for line in &bill.lines {
            let until = line.until.map_or(self.playground.clock.now().as_millisecond(), |until| until.0);
            let minutes = (until - line.from.0) as f64 / 60_000.0;
            self.say(&format!(
                "  {:<24} {:<36} {minutes:>5.1} min  {}",
                line.node,
                line.offering.to_string(),
                dollars(line.spent_micros)
            ))?;
        }
        self.say(&format!("  total {}", dollars(bill.spent_micros)))
    }
}
