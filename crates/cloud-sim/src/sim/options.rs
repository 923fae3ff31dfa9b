//! How the simulated cloud behaves. Whatever goes wrong is switched on here, each with its own rate.

use kerf_cloud::kwok;
use kerf_model::InstanceType;
use std::collections::BTreeMap;
use std::time::Duration;

/// A simulated world. The default one is a calm day in us-east-1: machines take as long as machines take, and nothing fails.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// Everything that is drawn follows from it.
    pub seed: u64,
    pub region: String,
    pub cluster_name: String,
    /// The minor version of Kubernetes, which decides about images.
    pub kubernetes_minor: u32,
    /// What KWOKNodeClasses can buy.
    pub kwok_types: Vec<InstanceType>,
    /// From launch to registration of an EC2 machine. A KWOKNodeClass says it itself.
    pub boot: Span,
    /// From registration to Ready.
    pub ready: Span,
    /// From termination until the instance is gone.
    pub shutdown: Span,
    /// None: the account has whatever subnet, group or image a class asks for. Else only what carries these tags.
    pub account_tags: Option<BTreeMap<String, String>>,
    pub faults: Faults,
    /// A bug on purpose: claims that want the same share a token.
    #[cfg(feature = "planted")]
    pub shares_tokens: bool,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            region: "us-east-1".to_owned(),
            cluster_name: "kerf".to_owned(),
            kubernetes_minor: 36,
            kwok_types: kwok::embedded(),
            boot: Span::seconds(25, 45),
            ready: Span::seconds(5, 12),
            shutdown: Span::seconds(20, 50),
            account_tags: None,
            faults: Faults::default(),
            #[cfg(feature = "planted")]
            shares_tokens: false,
        }
    }
}

/// What goes wrong, and how often. Shares are from 0 to 1. Each has its own stream of chance: switching one on does not change
/// when another strikes.
#[derive(Debug, Clone)]
pub struct Faults {
    /// Of calls that are told to slow down.
    pub throttled_share: f64,
    pub throttled_for: Duration,
    /// Of launches that fail for no reason of capacity, and would succeed if asked again.
    pub failed_launch_share: f64,
    /// How long the answer to a launch takes. The instance exists from the start: who dies in between never hears of it.
    pub launch_answer: Span,
    /// Of machines that take many times as long to boot.
    pub slow_boot_share: f64,
    pub slow_boot_factor: u32,
    /// Of machines that run and cost money, and never become a node.
    pub never_joins_share: f64,
    /// Of offerings that have nothing left at any time, and how long such a shortage lasts.
    pub sold_out_share: f64,
    pub sold_out_for: Duration,
    /// Machines per offering, on average. None: no end of them.
    pub stock_per_offering: Option<u32>,
    /// How often a spot instance is taken back, per hour of its life.
    pub spot_losses_per_hour: f64,
    /// How far spot prices wander from the catalogue's, and how often they change.
    pub spot_price_swing: f64,
    pub spot_price_step: Duration,
    /// How long `get` and `list` are behind launches and terminations.
    pub read_lag: Span,
    /// Of types whose machines come with less memory than the catalogue says, and how much less.
    pub short_memory_share: f64,
    pub short_memory_percent: u32,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            throttled_share: 0.0,
            throttled_for: Duration::from_secs(2),
            failed_launch_share: 0.0,
            launch_answer: Span::ZERO,
            slow_boot_share: 0.0,
            slow_boot_factor: 8,
            never_joins_share: 0.0,
            sold_out_share: 0.0,
            sold_out_for: Duration::from_secs(600),
            stock_per_offering: None,
            spot_losses_per_hour: 0.0,
            spot_price_swing: 0.0,
            spot_price_step: Duration::from_secs(3600),
            read_lag: Span::ZERO,
            short_memory_share: 0.0,
            short_memory_percent: 5,
        }
    }
}

impl Faults {
    /// A bad day: a little of everything.
    pub fn bad_day() -> Self {
        Self {
            throttled_share: 0.1,
            failed_launch_share: 0.05,
            launch_answer: Span { least_ms: 500, most_ms: 3_000 },
            slow_boot_share: 0.05,
            never_joins_share: 0.02,
            sold_out_share: 0.2,
            spot_losses_per_hour: 0.05,
            spot_price_swing: 0.3,
            read_lag: Span { least_ms: 0, most_ms: 8_000 },
            ..Self::default()
        }
    }
}

/// How long something takes: anything in between, ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub least_ms: u64,
    pub most_ms: u64,
}

impl Span {
    pub const ZERO: Span = Span { least_ms: 0, most_ms: 0 };

    pub fn seconds(least: u64, most: u64) -> Self {
        Self { least_ms: least * 1000, most_ms: most * 1000 }
    }

    /// The span that 64 drawn bits mean.
    pub(crate) fn drawn(self, bits: u64) -> u64 {
        let width = self.most_ms.saturating_sub(self.least_ms);
        self.least_ms + bits % (width + 1)
    }
}
