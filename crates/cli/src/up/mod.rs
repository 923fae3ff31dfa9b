//! `kerf up`: a whole cluster in one process: control plane, simulated cloud, and the operator that scales it.
//!
//! ```text
//! kubectl ──TLS──▶ control plane ◀──in process── operator (the same shell as `kerf run`)
//!                      ▲ nodes                       │
//!                      └──── simulated EC2 ◀─────────┘        view, or plain lines, or the demo's timeline
//! ```

mod arguments;
mod clock;
mod demo;
mod manifests;
mod picture;
mod view;

pub(crate) use arguments::UpArguments;

use crate::explain::page;
use anyhow::{Context, bail};
use clock::PlaneClock;
use kerf_cloud::CloudProvider;
use kerf_cloud_sim::{Faults, SimCloud, SimOptions};
use kerf_control_plane::clock::Clock;
use kerf_control_plane::{ControlPlane, Converter};
use kerf_controllers::metrics::Metrics;
use kerf_controllers::shell::{Bounds, Caller, Handle, Limits, Setup, Shell, serve};
use kerf_controllers::{Gates, Operator, Options};
use kerf_mirror::{LabelRules, MirrorSettings, View};
use kerf_model::{Binder, Text};
use kerf_simulation::PlaneYard;
use picture::Picture;
use std::io::{IsTerminal, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often the view is drawn anew, at most.
const DRAW_EVERY: Duration = Duration::from_millis(500);
/// The simulated cloud is looked at so often: notices, ends, prices.
const TICK_EVERY: Duration = Duration::from_millis(50);

/// Requests of the operator under way at the same time: the server is in this process, and more would only be more memory.
const IN_FLIGHT_MAX: usize = 64;

const STARTER: &str = include_str!("starter.yaml");

/// A playground that runs.
struct Playground<'a> {
    plane: &'a ControlPlane,
    clock: Clock,
    cloud: SimCloud,
    handle: Handle,
    caller: Caller,
    kubeconfig: PathBuf,
}

pub(crate) fn run(arguments: &UpArguments) -> anyhow::Result<()> {
    if arguments.speed <= 0.0 || !arguments.speed.is_finite() {
        bail!("--speed {} makes no sense: 1 is the wall's time, 60 an hour per minute", arguments.speed);
    }
    if arguments.demo && !arguments.files.is_empty() {
        bail!("--demo plays its own story; leave out -f, or leave out --demo");
    }
    // The control plane has threads and a runtime of its own, and so begins before ours and ends after it.
    let clock = Clock::faster(arguments.speed());
    let plane = ControlPlane::start(&kerf_control_plane::Options {
        clock: clock.clone(),
        seed: arguments.seed,
        port: arguments.port,
        // What the operator's webhook does on other clusters.
        converter: Some(Converter::new(|object, api_version| {
            kerf_api::older::convert(object, api_version).map_err(|error| error.to_string())
        })),
        ..kerf_control_plane::Options::default()
    })
    .with_context(|| format!("cannot listen on port {} of loopback (try --port 0)", arguments.port))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("kerf")
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let outcome = runtime.block_on(play(arguments, &plane, clock));
    runtime.shutdown_background();
    outcome
}

async fn play(arguments: &UpArguments, plane: &ControlPlane, clock: Clock) -> anyhow::Result<()> {
    let kubeconfig = arguments.kubeconfig.clone().unwrap_or_else(default_kubeconfig);
    write_kubeconfig(plane, &kubeconfig)?;

    let plane_clock = Arc::new(PlaneClock(clock.clone()));
    let yard = Arc::new(PlaneYard(plane.machines().clone()));
    let faults = if arguments.bad_day { Faults::bad_day() } else { Faults::default() };
    let options =
        SimOptions { seed: arguments.seed, region: arguments.region.clone(), faults, ..SimOptions::default() };
    let cloud = SimCloud::new(options, plane_clock.clone(), yard)
        .with_context(|| format!("--region {}: the built-in catalogue does not have it", arguments.region))?;

    let client = kube::Client::new(plane.service(), "default");
    let caller = Caller::new(client, Limits { in_flight: IN_FLIGHT_MAX, ..Limits::none() });
    manifests::install_definitions(plane)?;
    if !arguments.empty {
        manifests::apply(&caller, "the starter", STARTER).await?;
    }
    for file in &arguments.files {
        manifests::apply_file(&caller, file).await?;
    }

    let metrics = Arc::new(Metrics::default());
    let operator = Operator::new(operator_options(arguments, &cloud), provider(&cloud), metrics);
    let shell = Shell::new(Setup {
        operator,
        cloud: provider(&cloud),
        clock: plane_clock,
        caller: caller.clone(),
        election: None,
        warms_up: false,
        unwanted: Vec::new(),
        stale_after: kerf_controllers::limits::STALE_AFTER,
    })?;
    let handle = shell.handle();
    let pages = TcpListener::bind(("127.0.0.1", arguments.metrics_port)).with_context(|| {
        format!("cannot listen on port {} of loopback (try --metrics-port 0)", arguments.metrics_port)
    })?;
    let metrics_address = pages.local_addr()?;
    serve("metrics", pages, crate::run::pages::metrics(&handle, false), Bounds::default())
        .context("cannot start a thread")?;
    let url = plane.address().map(|address| address.endpoint.clone()).unwrap_or_default();
    let (_, _left) = page::outside(&handle, 0, &url, "", invitation(&kubeconfig).as_deref())?;

    let playground = Playground { plane, clock, cloud, handle, caller, kubeconfig };
    let ticker = tokio::spawn(tick(playground.cloud.clone()));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let operating = tokio::spawn(shell.run(async {
        // Whoever drops the sender has ended too.
        let _ = stopped.await;
    }));
    playground.greet(arguments, metrics_address)?;
    let outcome =
        if arguments.demo { demo::play(&playground, arguments).await } else { playground.show(arguments).await };
    drop(stop);
    operating.await.context("the operator's task")??;
    ticker.abort();
    outcome
}

fn provider(cloud: &SimCloud) -> Arc<dyn CloudProvider> {
    Arc::new(cloud.clone())
}

fn operator_options(arguments: &UpArguments, cloud: &SimCloud) -> Options {
    let mut mirror = MirrorSettings::new(View::Live);
    mirror.labels = LabelRules::aws()
        .with_well_known(kerf_api::labels::KWOK_WELL_KNOWN.iter().copied())
        .with_restricted_domain(kerf_api::labels::KWOK_GROUP);
    mirror.scheduling.well_known.extend(cloud.well_known_labels().into_iter().map(Text::from));
    mirror.gates.node_overlay = true;
    mirror.gates.capacity_buffer = true;
    if arguments.early_binding {
        mirror.scheduling.placed_by = Binder::Kerf;
    }
    let mut options = Options::new(mirror);
    // A playground shows everything there is.
    options.gates = Gates {
        node_overlay: true,
        static_capacity: true,
        capacity_buffer: true,
        early_binding: arguments.early_binding,
        ..Gates::default()
    };
    options
}

async fn tick(cloud: SimCloud) {
    loop {
        cloud.tick();
        tokio::time::sleep(TICK_EVERY).await;
    }
}

fn default_kubeconfig() -> PathBuf {
    match std::env::var_os("HOME") {
        Some(home) if Path::new(&home).is_dir() => Path::new(&home).join(".kube").join("kerf.yaml"),
        _ => std::env::temp_dir().join("kerf-kubeconfig.yaml"),
    }
}

/// Without a home the invitation lies beside the kubeconfig.
fn invitation(kubeconfig: &Path) -> Option<PathBuf> {
    let has_home = std::env::var_os("HOME").is_some_and(|home| Path::new(&home).is_dir());
    (!has_home).then(|| kubeconfig.with_extension("explain.json"))
}

fn write_kubeconfig(plane: &ControlPlane, path: &Path) -> anyhow::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    plane
        .write_kubeconfig(path)
        .with_context(|| format!("cannot write {} (choose another place with --kubeconfig)", path.display()))
}

impl Playground<'_> {
    fn greet(&self, arguments: &UpArguments, metrics: std::net::SocketAddr) -> anyhow::Result<()> {
        let url = self.plane.address().map(|address| address.endpoint.as_str()).unwrap_or_default();
        let speed = match arguments.speed() {
            1.0 => String::new(),
            speed => format!(", clock {speed}× as fast"),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "A cluster is running in this process{speed}.")?;
        writeln!(out, "  API server  {url}")?;
        writeln!(out, "  metrics     http://{metrics}/metrics")?;
        writeln!(out, "  kubeconfig  {}", self.kubeconfig.display())?;
        if !arguments.demo {
            writeln!(out, "\nIn another terminal:\n  export KUBECONFIG={}", self.kubeconfig.display())?;
            writeln!(out, "  kubectl scale deployment inflate --replicas 60\n  kubectl get nodeclaims -o wide\n")?;
        }
        Ok(())
    }

    /// Shows what happens until somebody has seen enough.
    async fn show(&self, arguments: &UpArguments) -> anyhow::Result<()> {
        let is_terminal = std::io::stdout().is_terminal() && !arguments.plain;
        let mut screen = view::Screen::new(is_terminal);
        loop {
            let began = std::time::Instant::now();
            let Some(picture) = self.look().await else { bail!("the operator has ended") };
            screen.show(&picture)?;
            // A large cluster takes longer to look at; it is looked at less often.
            let pause = DRAW_EVERY.max(began.elapsed() * 20);
            // Biased: who asks to stop does not wait for another picture.
            tokio::select! {
                biased;
                _ = tokio::signal::ctrl_c() => break,
                () = terminated() => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
        screen.close()?;
        let bill = self.cloud.bill();
        writeln!(std::io::stdout(), "spent {}", picture::dollars(bill.spent_micros))?;
        Ok(())
    }

    async fn look(&self) -> Option<Picture> {
        let now = kerf_model::UnixMillis(self.clock.now().as_millisecond());
        let bill = self.cloud.bill();
        self.handle.look(move |operator| Picture::of(operator, now, &bill)).await
    }
}

async fn terminated() {
    match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(mut signal) => {
            signal.recv().await;
        }
        // Without the signal there is still the keyboard.
        Err(_) => std::future::pending().await,
    }
}
