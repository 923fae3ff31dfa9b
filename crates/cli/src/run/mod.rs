//! `kerf run`: the operator against a cluster.
//!
//! ```text
//! arguments + environment ─▶ settings ─▶ connect ─▶ cloud ─▶ shell ── until SIGTERM
//!                                                              └── pages: /metrics, /healthz, /readyz, and on loopback /explain/
//! ```

pub(crate) mod arguments;
#[cfg(feature = "aws")]
pub(crate) mod aws;
pub(crate) mod aws_arguments;
pub(crate) mod aws_settings;
#[cfg(any(feature = "aws", test))]
mod aws_start;
pub(crate) mod clerk;
pub(crate) mod connect;
pub(crate) mod gates;
mod log;
pub(crate) mod pages;
pub(crate) mod porch;
pub(crate) mod settings;

use crate::explain::invitation::Left;
use crate::explain::page;
use anyhow::{Context, bail};
use arguments::{Cloud, RunArguments};
use clerk::{Clerk, RealTime};
use kerf_cloud::{CloudProvider, RepairAction, kwok};
use kerf_cloud_sim::KwokCloud;
use kerf_controllers::metrics::{Metrics, runtime};
use kerf_controllers::shell::{
    Bounds, Caller, Election, Handle, Limits, Setup, Shell, Timings, WallClock, identity, serve,
};
use kerf_controllers::{Operator, Options, guard};
use kerf_mirror::{Kind, LabelRules};
use kerf_model::InstanceType;
use porch::Porch;
use settings::Settings;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// What the binary was built from, where the build says.
const COMMIT: &str = match option_env!("KERF_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// What a playground's binary says to those who want EC2 of it.
pub(crate) const NOT_BUILT_IN: &str = "is not part of this binary, which was built without the AWS SDK: use a released image, or build \
                                       with `cargo build --release --package kerf-cli --features aws`";

/// How often to compare memory with its limit.
const LOOK_AT_MEMORY_EVERY: Duration = Duration::from_secs(30);

pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    let (settings, warnings) = Settings::resolve(arguments, &settings::environment)?;
    log::start(&settings.log)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    end_on_panic();
    // Two workers: while one reads a large page, the other renews the lease.
    let threads = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("kerf")
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let outcome = threads.block_on(operate(settings));
    // Watches and background waits of the provider have nothing more to say.
    threads.shutdown_background();
    outcome
}

async fn operate(settings: Settings) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    // Before anything that may take its time: a probe that nobody answers ends the process.
    let probes_port = listen("health-probe-port", settings.health_probe_port)?;
    let probes_address = probes_port.local_addr()?;
    let porch = Porch::open(probes_port).context("the probes cannot be served")?;
    let config = connect::config(settings.kubeconfig.as_deref(), version).await?;
    let client = connect::client(config.clone())?;
    // Files are read before the network is waited for.
    let types = instance_types(&settings)?;
    connect::first_contact(&config, &client).await?;
    let limits = Limits {
        per_second: settings.kube_client_qps as f64,
        burst: settings.kube_client_burst,
        in_flight: settings.in_flight(),
    };
    let metrics = Arc::new(Metrics::default());
    metrics.attach("process", Arc::new(runtime::Process));
    runtime::tell_build(&metrics, version, COMMIT);
    let caller = Caller::new(client, limits).counted(&metrics);
    let (cloud, rules): (Arc<dyn CloudProvider>, LabelRules) = match settings.cloud {
        Cloud::Aws => (aws_cloud(&settings, &caller, &metrics, version, &porch).await?, LabelRules::aws()),
        Cloud::Kwok | Cloud::Sim => {
            let clerk = Arc::new(Clerk::new(caller.clone()));
            (Arc::new(KwokCloud::new(clerk, Arc::new(RealTime), types)), LabelRules::kwok())
        }
    };
    if settings.gates.node_repair && !settings.repairs_as_before {
        check_repair_policies(&*cloud)?;
    }
    let options = settings.options(rules, &cloud.well_known_labels());
    let identity = identity();
    let election = settings.elects_leader.then(|| election(&settings, &config, &identity)).transpose()?;
    let metrics_port = listen("metrics-port", settings.metrics_port)?;
    let metrics_address = metrics_port.local_addr()?;
    let cloud_name = cloud.name();
    let shell = Shell::new(Setup {
        unwanted: unwanted(&options),
        operator: Operator::new(options, Arc::clone(&cloud), metrics),
        cloud,
        clock: Arc::new(WallClock),
        caller,
        election,
        warms_up: settings.warms_up,
        stale_after: Duration::from_millis(settings.stale_after_ms),
    })?;
    let handle = shell.handle();
    serve("metrics", metrics_port, pages::metrics(&handle, settings.profiles), Bounds::default())?;
    porch.show(pages::probes(&handle));
    let identity = if settings.elects_leader { identity.as_str() } else { "" };
    let (explain_address, _left) = explanations(&handle, &settings, &config, identity);
    tracing::info!(
        version,
        cloud = cloud_name,
        cluster = %config.cluster_url,
        metrics = %metrics_address,
        probes = %probes_address,
        explain = explain_address,
        "starting"
    );
    if let Some(limit) = settings.memory_limit_bytes {
        tokio::spawn(watch_memory(limit));
    }
    drop(handle);
    shell.run(asked_to_stop()?).await?;
    tracing::info!("stopped");
    Ok(())
}

/// Where `kerf explain` is answered. Without it the operator works as well.
fn explanations(
    handle: &Handle,
    settings: &Settings,
    config: &kube::Config,
    identity: &str,
) -> (Option<String>, Option<Left>) {
    let port = settings.explain_port;
    let opened = if settings.is_in_pod {
        page::in_pod(handle, port).map(|address| (address, None))
    } else {
        page::outside(handle, port, &config.cluster_url, identity, settings.explain_file.as_deref())
            .map(|(address, left)| (address, Some(left)))
    };
    match opened {
        Ok((address, left)) => (Some(address.to_string()), left),
        Err(error) => {
            tracing::warn!(error = format!("{error:#}"), "`kerf explain` will find nobody here");
            (None, None)
        }
    }
}

fn instance_types(settings: &Settings) -> anyhow::Result<Vec<InstanceType>> {
    match settings.cloud {
        Cloud::Kwok => match &settings.instance_types_file {
            None => Ok(kwok::embedded()),
            Some(path) => read_types(path),
        },
        // EC2 is asked, once the cluster is.
        Cloud::Aws if cfg!(feature = "aws") => Ok(Vec::new()),
        Cloud::Aws => bail!("--cloud aws {NOT_BUILT_IN}"),
        Cloud::Sim => bail!(
            "--cloud sim needs machines that only the playground has: run `kerf up`, or use --cloud kwok on a cluster \
             with a kwok controller"
        ),
    }
}

#[cfg(feature = "aws")]
use aws::start as aws_cloud;

#[cfg(not(feature = "aws"))]
async fn aws_cloud(
    _: &Settings,
    _: &Caller,
    _: &Arc<Metrics>,
    _: &str,
    _: &Porch,
) -> anyhow::Result<Arc<dyn CloudProvider>> {
    bail!("--cloud aws {NOT_BUILT_IN}")
}

fn read_types(path: &Path) -> anyhow::Result<Vec<InstanceType>> {
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the instance types of {name} (--instance-types-file-path)"))?;
    let parsed = kwok::parse(&text);
    if parsed.types.is_empty() {
        match parsed.problems.first() {
            Some(problem) => bail!("{name} holds no instance type that can be used: {problem}"),
            None => bail!(
                "{name} holds no instance type: give a JSON array of them, or drop the flag for the built-in ones"
            ),
        }
    }
    for problem in &parsed.problems {
        tracing::warn!(file = %name, "{problem}");
    }
    Ok(parsed.types)
}

/// A set of policies without exactly one fallback that replaces would leave broken nodes to chance.
fn check_repair_policies(cloud: &dyn CloudProvider) -> anyhow::Result<()> {
    let policies = cloud.repair_policies();
    let name = cloud.name();
    let fallbacks: Vec<_> = policies.iter().filter(|policy| policy.reason.is_empty()).collect();
    let [fallback] = fallbacks.as_slice() else {
        bail!(
            "gate NodeRepair needs exactly one repair policy without a reason, but the {name} provider has {} of {}: \
             switch the gate off",
            fallbacks.len(),
            policies.len()
        );
    };
    if fallback.action != RepairAction::ReplaceNode {
        bail!("gate NodeRepair needs a fallback policy that replaces nodes; that of the {name} provider reboots them");
    }
    for policy in &policies {
        let is_status = matches!(&*policy.status, "True" | "False" | "Unknown");
        if policy.condition.is_empty() || !is_status || policy.priority > 100 {
            bail!(
                "gate NodeRepair: the {name} provider has an invalid repair policy for {}={} (priority {})",
                policy.condition,
                policy.status,
                policy.priority
            );
        }
    }
    Ok(())
}

/// Its client is its own: see [`Election`].
fn election(settings: &Settings, config: &kube::Config, identity: &str) -> anyhow::Result<Election> {
    let namespace = [settings.lease_namespace.clone(), std::env::var("SYSTEM_NAMESPACE").unwrap_or_default()]
        .into_iter()
        .find(|namespace| !namespace.is_empty())
        // Of the pod's service account, or of the kubeconfig's context.
        .unwrap_or_else(|| config.default_namespace.clone());
    let client = connect::client(config.clone())?;
    Ok(Election::new(client, &namespace, &settings.lease_name, identity, Timings::default()))
}

/// Kinds that only a gate makes use of.
fn unwanted(options: &Options) -> Vec<Kind> {
    let kinds = [
        (Kind::NodeOverlay, options.gates.node_overlay),
        // Buffers are sized by templates of pods, and by Deployments; nothing else is.
        (Kind::CapacityBuffer, options.gates.capacity_buffer),
        (Kind::PodTemplate, options.gates.capacity_buffer),
        (Kind::Deployment, options.gates.capacity_buffer),
    ];
    kinds.into_iter().filter(|(_, is_wanted)| !is_wanted).map(|(kind, _)| kind).collect()
}

fn listen(flag: &str, port: u16) -> anyhow::Result<TcpListener> {
    // Both families where there are two.
    let both = TcpListener::bind((std::net::Ipv6Addr::UNSPECIFIED, port));
    both.or_else(|_| TcpListener::bind((std::net::Ipv4Addr::UNSPECIFIED, port)))
        .with_context(|| format!("cannot listen on port {port} (--{flag}): give another port, or end what uses it"))
}

fn asked_to_stop() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    Ok(async move {
        // Either will do; there is no order.
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// There is no garbage collector to restrain: all that can be done about a limit is to say that it comes near.
async fn watch_memory(limit_bytes: u64) {
    let mut is_told = false;
    loop {
        tokio::time::sleep(LOOK_AT_MEMORY_EVERY).await;
        let Some(resident_bytes) = pages::resident_bytes() else {
            return;
        };
        let is_near = resident_bytes > limit_bytes / 10 * 9;
        if is_near && !is_told {
            tracing::warn!(
                resident_bytes,
                limit_bytes,
                "memory is near its limit: raise limits.memory of the container"
            );
        }
        is_told = is_near;
    }
}

/// A defect in one thread must not leave a process behind that leads and does nothing, unless somebody takes care of it.
fn end_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if guard::is_guarded() {
            tracing::error!(%panic, "a defect, which ends only what it happened in");
            return;
        }
        tell(panic);
        tracing::error!(%panic, "a defect: ending, so that the process is started again");
        std::process::exit(1);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const CASE: &str = "KERF_TEST_PANIC";

    #[test]
    fn a_panic_that_somebody_guards_leaves_the_process_alone_and_any_other_ends_it() {
        if let Ok(case) = std::env::var(CASE) {
            end_on_panic();
            let on_a_thread = |name: &str| {
                let thread = std::thread::Builder::new().name(name.to_owned());
                let thread: std::thread::JoinHandle<()> = thread.spawn(|| panic!("planted")).unwrap();
                if let Err(panic) = thread.join() {
                    std::panic::resume_unwind(panic);
                }
            };
            match case.as_str() {
                "guarded" => assert!(guard::guarded::<()>(|| panic!("planted")).is_err()),
                "thread" => assert!(guard::guarded(|| on_a_thread(kerf_engine::THREAD)).is_err()),
                "expression" => assert!(guard::guarded(|| on_a_thread(kerf_cloud::EXPRESSION_THREAD)).is_err()),
                _ => panic!("planted"),
            }
            return;
        }
        for (case, expected) in [("guarded", 0), ("thread", 0), ("expression", 0), ("unguarded", 1)] {
            let name = "run::tests::a_panic_that_somebody_guards_leaves_the_process_alone_and_any_other_ends_it";
            let output =
                Command::new(std::env::current_exe().unwrap()).args(["--exact", name]).env(CASE, case).output();
            let output = output.unwrap();
            assert_eq!(output.status.code(), Some(expected), "{case}: {}", String::from_utf8_lossy(&output.stdout));
        }
    }
}
