//! The control plane as a value: start it, talk to it, drop it.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

use crate::certificates::Certificates;
use crate::clock::Clock;
use crate::custom::Converter;
use crate::definitions::Definitions;
use crate::drive::{Controller, Drive, Round};
use crate::expiry::EventExpiry;
use crate::garbage::GarbageCollector;
use crate::kubelet::{KubeletOptions, Kubelets, Machines};
use crate::namespaces::Namespaces;
use crate::nodes;
use crate::quotas::Quotas;
use crate::scheduler::{Profile, Scheduler};
use crate::secrets;
use crate::serve;
use crate::server::Server;
use crate::service::Service;
use crate::volumes::{self, VolumeOptions};
use crate::workloads::Workloads;

/// However far away the next wish is, the loop looks up now and then: cheap, and a lost wake-up heals.
const LOOK_UP_EVERY: Duration = Duration::from_secs(1);

/// What kind of control plane.
#[derive(Clone, Debug)]
pub struct Options {
    pub clock: Clock,
    /// Uids, generated names and every other chance follow from it, but for what keeps strangers out: keys and the token.
    pub seed: u64,
    /// The port on loopback; 0 takes a free one.
    pub port: u16,
    /// Without them only the API server is there.
    pub with_controllers: bool,
    pub kubelets: KubeletOptions,
    /// Of the scheduler, beside the default one.
    pub scheduler_profiles: Vec<Profile>,
    /// Converts objects of definitions whose strategy is `Webhook`. No webhook is called: without it, such requests fail.
    pub converter: Option<Converter>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Clock::real(),
            seed: 1,
            port: 0,
            with_controllers: true,
            kubelets: KubeletOptions::default(),
            scheduler_profiles: Vec::new(),
            converter: None,
        }
    }
}

/// How to reach it, and as whom.
#[derive(Clone, Debug)]
pub struct Address {
    pub endpoint: String,
    pub ca_pem: String,
    pub token: String,
}

/// A whole control plane. Dropping it ends it.
pub struct ControlPlane {
    server: Server,
    drive: Arc<Mutex<Drive>>,
    machines: Machines,
    address: Option<Address>,
    stop: Arc<AtomicBool>,
    stop_serving: Option<watch::Sender<bool>>,
    threads: Vec<JoinHandle<()>>,
}

impl ControlPlane {
    /// In this process alone: no socket, no thread. Whoever holds it calls [`ControlPlane::settle`] and
    /// [`ControlPlane::advance`].
    #[must_use]
    pub fn in_process(options: &Options) -> Self {
        // No socket, no certificate: what pods would be told to trust is empty, and the same in every run.
        Self::assemble(options, "")
    }

    fn assemble(options: &Options, ca_pem: &str) -> Self {
        let server = Server::new(options.clock.clone(), options.seed);
        server.lock().converter.clone_from(&options.converter);
        let kubelets = Kubelets::new(options.kubelets.clone());
        let machines = kubelets.machines();
        let controllers =
            if options.with_controllers { controllers(options, kubelets, ca_pem) } else { api_controllers() };
        let drive = Drive::new(controllers, options.seed);
        let (nudge, bell) = (drive.nudge(), server.clone());
        machines.on_press(move || {
            nudge.give();
            bell.ring();
        });
        Self {
            server,
            drive: Arc::new(Mutex::new(drive)),
            machines,
            address: None,
            stop: Arc::new(AtomicBool::new(false)),
            stop_serving: None,
            threads: Vec::new(),
        }
    }

    /// With TLS on loopback, and a thread that lets the controllers work as the real time passes.
    pub fn start(options: &Options) -> io::Result<Self> {
        let certificates = Certificates::create()?;
        let mut plane = Self::assemble(options, &certificates.ca_pem);
        plane.serve(options, certificates)?;
        plane.drive_in_background()?;
        Ok(plane)
    }

    /// The server, for requests from within the process.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// A tower service, for `kube::Client::new(plane.service(), "default")`.
    #[must_use]
    pub fn service(&self) -> Service {
        Service::new(self.server.clone())
    }

    /// The power buttons of the simulated machines.
    #[must_use]
    pub fn machines(&self) -> &Machines {
        &self.machines
    }

    /// None for one without a socket.
    #[must_use]
    pub fn address(&self) -> Option<&Address> {
        self.address.as_ref()
    }

    /// Writes a kubeconfig that points kubectl here, for the eyes of whoever runs this alone: a file that is there, or a link to
    /// one, is replaced and not written through.
    pub fn write_kubeconfig(&self, path: &Path) -> io::Result<()> {
        let address = self.address.as_ref().ok_or_else(|| io::Error::other("this control plane serves no socket"))?;
        secrets::write(path, &address.kubeconfig())
    }

    /// Lets the controllers do what is due now. Answers when something will be due next.
    ///
    /// # Panics
    /// When controllers undo each other's work for ever, which is a defect of ours.
    pub fn settle(&self) -> Option<Timestamp> {
        let mut drive = self.drive.lock().unwrap_or_else(PoisonError::into_inner);
        match drive.settle(&mut self.server.lock()) {
            Some(Round::Until(then)) => Some(then),
            Some(_) => None,
            None => panic!("the controllers never settle"),
        }
    }

    /// Lets the controllers work once, whatever they leave to do.
    #[cfg(test)]
    pub(crate) fn round(&self) {
        self.drive.lock().unwrap_or_else(PoisonError::into_inner).round(&mut self.server.lock());
    }

    /// Moves a virtual clock on, stopping wherever something is due.
    pub fn advance(&self, by: SignedDuration) {
        let clock = self.server.lock().clock.clone();
        let end = clock.now() + by;
        loop {
            match self.settle() {
                Some(then) if then <= end => clock.advance_to(then),
                _ => break,
            }
        }
        clock.advance_to(end);
        self.settle();
    }

    fn serve(&mut self, options: &Options, certificates: Certificates) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("kerf-api")
            .enable_all()
            .build()?;
        let (listener, socket) = runtime.block_on(serve::listen(options.port))?;
        let token = secrets::token()?;
        self.server.lock().token.clone_from(&token);
        let (stop, stopped) = watch::channel(false);
        let serving = serve::serve(
            listener,
            certificates.tls,
            self.service(),
            token.clone(),
            serve::Patience::default(),
            stopped,
        );
        self.threads.push(std::thread::Builder::new().name("kerf-serve".to_owned()).spawn(move || {
            runtime.block_on(serving);
            runtime.shutdown_timeout(Duration::from_millis(200));
        })?);
        self.stop_serving = Some(stop);
        self.address = Some(Address { endpoint: format!("https://{socket}"), ca_pem: certificates.ca_pem, token });
        Ok(())
    }

    fn drive_in_background(&mut self) -> io::Result<()> {
        let (server, drive, stop) = (self.server.clone(), Arc::clone(&self.drive), Arc::clone(&self.stop));
        let thread = std::thread::Builder::new().name("kerf-drive".to_owned()).spawn(move || {
            while !stop.load(Ordering::Acquire) {
                let mut drive = drive.lock().unwrap_or_else(PoisonError::into_inner);
                let mut state = server.lock();
                let round = drive.round(&mut state);
                let wait = match round {
                    Round::Again => {
                        // Requests that wait are answered before the next round.
                        continue;
                    }
                    Round::Until(then) => {
                        let span = then.duration_since(state.now()).unsigned_abs();
                        state.clock.in_real_time(span).min(LOOK_UP_EVERY)
                    }
                    Round::Quiet => LOOK_UP_EVERY,
                };
                drop(drive);
                if !state.store.has_unseen() {
                    drop(server.wait(state, wait));
                }
            }
        })?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(stop) = self.stop_serving.take() {
            // Nobody listens any more when the serving thread has ended by itself.
            let _ = stop.send(true);
        }
        self.server.ring();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Address {
    /// A kubeconfig for this address.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        use base64::Engine as _;
        let ca = base64::engine::general_purpose::STANDARD.encode(&self.ca_pem);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: kerf\n\
             clusters:\n- name: kerf\n  cluster:\n    server: {}\n    certificate-authority-data: {ca}\n\
             users:\n- name: kerf\n  user:\n    token: {}\n\
             contexts:\n- name: kerf\n  context:\n    cluster: kerf\n    user: kerf\n",
            self.endpoint, self.token
        )
    }
}

/// The controllers without which the API server itself would not keep its promises.
fn api_controllers() -> Vec<Box<dyn Controller>> {
    vec![
        Box::new(Definitions::default()),
        Box::new(Namespaces::default()),
        Box::new(EventExpiry::default()),
        Box::new(GarbageCollector::default()),
    ]
}

/// Every controller of a cluster, in the order in which they work.
fn controllers(options: &Options, kubelets: Kubelets, ca_pem: &str) -> Vec<Box<dyn Controller>> {
    let mut controllers = api_controllers();
    controllers.push(Box::new(Quotas::default()));
    controllers.push(Box::new(Workloads::new(ca_pem)));
    controllers.push(Box::new(Scheduler::with_profiles(options.scheduler_profiles.clone())));
    controllers.extend(nodes::controllers());
    controllers.extend(volumes::controllers(&VolumeOptions::default()));
    controllers.push(Box::new(kubelets));
    controllers
}
