//! What was asked for, from flags, variables and defaults, in this order.

use super::arguments::{Cloud, RunArguments};
use super::aws_settings::AwsSettings;
use super::gates::{self, parse_bool};
use crate::explain::page;
use crate::output;
use anyhow::{Context, bail};
use clap::ValueEnum;
use kerf_controllers::limits::{BRAKE_NODES, STALE_AFTER_MOST};
use kerf_controllers::{Gates, Options, Rebalance};
use kerf_mirror::{LabelRules, MirrorSettings, View};
use kerf_model::{Binder, MinValuesPolicy, PreferencePolicy, ReservedMode, Spread, Text};
use std::path::PathBuf;
use std::str::FromStr;

const STALE_AFTER_MS: i64 = kerf_controllers::limits::STALE_AFTER.as_secs() as i64 * 1_000;

/// Everything that can be set, resolved and checked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) cloud: Cloud,
    pub(crate) kubeconfig: Option<PathBuf>,
    /// None for the built-in ones.
    pub(crate) instance_types_file: Option<PathBuf>,
    /// Checked only where it counts.
    pub(crate) aws: AwsSettings,
    pub(crate) karpenter_service: String,
    pub(crate) metrics_port: u16,
    pub(crate) health_probe_port: u16,
    /// In a pod whoever reaches loopback may ask; elsewhere it takes a secret.
    pub(crate) is_in_pod: bool,
    pub(crate) explain_port: u16,
    /// None for the usual place.
    pub(crate) explain_file: Option<PathBuf>,
    pub(crate) kube_client_qps: i64,
    pub(crate) kube_client_burst: u32,
    pub(crate) profiles: bool,
    pub(crate) warms_up: bool,
    /// After so long without a word about a kind nothing voluntary begins.
    pub(crate) stale_after_ms: u64,
    /// Nothing voluntary begins at all.
    pub(crate) pauses_disruption: bool,
    /// So many nodes may look as if they should go before anybody is asked.
    pub(crate) brake_above_nodes: usize,
    pub(crate) elects_leader: bool,
    pub(crate) observes_cluster_state: bool,
    pub(crate) lease_name: String,
    /// Empty for the pod's own.
    pub(crate) lease_namespace: String,
    /// None where there is none.
    pub(crate) memory_limit_bytes: Option<u64>,
    pub(crate) cpu_requests_millis: i64,
    pub(crate) log: LogSettings,
    pub(crate) batch_max_ms: i64,
    pub(crate) batch_idle_ms: i64,
    pub(crate) preferences: PreferencePolicy,
    pub(crate) min_values: MinValuesPolicy,
    pub(crate) ignores_dra_requests: bool,
    pub(crate) repairs_as_before: bool,
    pub(crate) gates: Gates,
    pub(crate) default_spreads: Vec<Spread>,
    pub(crate) rebalance: Rebalance,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogSettings {
    pub(crate) level: LogLevel,
    pub(crate) paths: Vec<String>,
    pub(crate) error_paths: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogLevel {
    Debug,
    Info,
    Error,
}

/// Reads the variables of the process.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl Settings {
    /// Resolves flags, variables and defaults. Warnings are for the log.
    pub(crate) fn resolve(
        arguments: &RunArguments,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> anyhow::Result<(Self, Vec<String>)> {
        let mut from = Sources::new(environment);
        let a = arguments;
        let is_in_pod = environment("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty());
        let settings = Self {
            cloud: cloud(a, &from)?,
            kubeconfig: a.kubeconfig.clone(),
            instance_types_file: Some(from.text(&a.instance_types_file_path, "INSTANCE_TYPES_FILE_PATH", ""))
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            aws: AwsSettings::resolve(&a.aws, &mut from),
            karpenter_service: from.text(&a.karpenter_service, "KARPENTER_SERVICE", ""),
            metrics_port: from.number(a.metrics_port, "METRICS_PORT", 8080),
            health_probe_port: from.number(a.health_probe_port, "HEALTH_PROBE_PORT", 8081),
            is_in_pod,
            explain_port: from.number(a.explain_port, "EXPLAIN_PORT", if is_in_pod { page::PORT } else { 0 }),
            explain_file: Some(from.text(&a.explain_file, "EXPLAIN_FILE", ""))
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            kube_client_qps: from.number(a.kube_client_qps, "KUBE_CLIENT_QPS", 200),
            kube_client_burst: burst(from.number(a.kube_client_burst, "KUBE_CLIENT_BURST", 300))?,
            profiles: from.boolean(a.enable_profiling, "ENABLE_PROFILING", false),
            warms_up: !from.boolean(a.disable_controller_warmup, "DISABLE_CONTROLLER_WARMUP", true),
            stale_after_ms: stale_after(from.duration(&a.watch_stale_after, "watch-stale-after", STALE_AFTER_MS)?)?,
            pauses_disruption: from.boolean(a.pause_disruption, "PAUSE_DISRUPTION", false),
            brake_above_nodes: brake(from.number(a.brake_above_nodes, "BRAKE_ABOVE_NODES", BRAKE_NODES as i64))?,
            elects_leader: !from.boolean(a.disable_leader_election, "DISABLE_LEADER_ELECTION", false),
            observes_cluster_state: !from.boolean(
                a.disable_cluster_state_observability,
                "DISABLE_CLUSTER_STATE_OBSERVABILITY",
                false,
            ),
            lease_name: from.text(&a.leader_election_name, "LEADER_ELECTION_NAME", kerf_controllers::lease::NAME),
            lease_namespace: from.text(&a.leader_election_namespace, "LEADER_ELECTION_NAMESPACE", ""),
            memory_limit_bytes: u64::try_from(from.number(a.memory_limit, "MEMORY_LIMIT", -1_i64))
                .ok()
                .filter(|bytes| *bytes > 0),
            cpu_requests_millis: Some(from.number(a.cpu_requests, "CPU_REQUESTS", 1_000))
                .filter(|millis| *millis > 0)
                .unwrap_or(1_000),
            log: LogSettings {
                level: level(&from.text(&a.log_level, "LOG_LEVEL", "info"))?,
                paths: paths(&from.text(&a.log_output_paths, "LOG_OUTPUT_PATHS", "stdout")),
                error_paths: paths(&from.text(&a.log_error_output_paths, "LOG_ERROR_OUTPUT_PATHS", "stderr")),
            },
            batch_max_ms: from.duration(&a.batch_max_duration, "batch-max-duration", 10_000)?,
            batch_idle_ms: from.duration(&a.batch_idle_duration, "batch-idle-duration", 1_000)?,
            preferences: preferences(&from.text(&a.preference_policy, "PREFERENCE_POLICY", "Respect"))?,
            min_values: min_values(&from.text(&a.min_values_policy, "MIN_VALUES_POLICY", "Strict"))?,
            ignores_dra_requests: from.boolean(a.ignore_dra_requests, "IGNORE_DRA_REQUESTS", true),
            repairs_as_before: from.boolean(a.legacy_node_repair, "LEGACY_NODE_REPAIR", false),
            gates: gates::parse(&from.text(&a.feature_gates, "FEATURE_GATES", ""))
                .map_err(|message| anyhow::anyhow!("--feature-gates (FEATURE_GATES): {message}"))?,
            default_spreads: spreads(&from.text(&a.scheduler_config, "SCHEDULER_CONFIG", ""))?,
            rebalance: rebalance(&from.text(&a.rebalance, "REBALANCE", "ignore"))?,
        };
        let mut warnings = from.warnings;
        settings.check(&mut warnings)?;
        Ok((settings, warnings))
    }

    /// What does not go together.
    fn check(&self, warnings: &mut Vec<String>) -> anyhow::Result<()> {
        if self.metrics_port == self.health_probe_port && self.metrics_port != 0 {
            bail!(
                "--metrics-port and --health-probe-port are both {}: give one of them another port",
                self.metrics_port
            );
        }
        if [self.metrics_port, self.health_probe_port].contains(&self.explain_port) && self.explain_port != 0 {
            bail!("--explain-port {} is another one's, too: give it a port of its own", self.explain_port);
        }
        if self.kube_client_qps == 0 {
            bail!(
                "--kube-client-qps is 0, which would never ask anything: give a number above 0, or -1 for any number"
            );
        }
        if self.elects_leader && self.lease_name.is_empty() {
            bail!("--leader-election-name is empty: name the Lease, or run with --disable-leader-election");
        }
        if self.cloud != Cloud::Kwok
            && let Some(path) = &self.instance_types_file
        {
            let path = path.display();
            bail!("--instance-types-file-path {path} goes with --cloud kwok only: drop one of the two");
        }
        // Without EC2 in it, that is what the binary has to say.
        let is_built_in = cfg!(any(feature = "aws", test));
        let problems = if self.cloud == Cloud::Aws && is_built_in { self.aws.problems() } else { Vec::new() };
        if !problems.is_empty() {
            bail!("--cloud aws cannot start like this:\n  {}", problems.join("\n  "));
        }
        let mut warn = |is_odd: bool, message: &str| {
            if is_odd {
                warnings.push(message.to_owned());
            }
        };
        warn(
            self.batch_idle_ms > self.batch_max_ms,
            "--batch-idle-duration is longer than --batch-max-duration: the window always lasts as long as the latter",
        );
        warn(
            self.gates.terminate_first_repair && !self.gates.node_repair,
            "gate TerminateFirstRepair does nothing without gate NodeRepair",
        );
        warn(self.repairs_as_before, "--legacy-node-repair is deprecated");
        warn(
            self.repairs_as_before && !self.gates.node_repair,
            "--legacy-node-repair does nothing without gate NodeRepair",
        );
        warn(
            !self.ignores_dra_requests,
            "--ignore-dra-requests=false is not supported yet: pods with claims for devices are left alone",
        );
        warn(
            self.warms_up && !self.elects_leader,
            "--disable-controller-warmup=false does nothing without leader election",
        );
        Ok(())
    }

    /// What the operator is configured by. `well_known` are the provider's labels.
    pub(crate) fn options(&self, rules: LabelRules, well_known: &[&'static str]) -> Options {
        let mut mirror = MirrorSettings::new(View::Live);
        mirror.gates =
            kerf_mirror::Gates { node_overlay: self.gates.node_overlay, capacity_buffer: self.gates.capacity_buffer };
        mirror.labels = rules.with_well_known(well_known.iter().copied());
        mirror.default_spreads = self.default_spreads.clone();
        mirror.scheduling.well_known.extend(well_known.iter().map(|key| Text::from(*key)));
        mirror.scheduling.preferences = self.preferences;
        mirror.scheduling.min_values = self.min_values;
        mirror.scheduling.reserved = self.gates.reserved_capacity.then_some(ReservedMode::Strict);
        mirror.scheduling.placed_by = if self.gates.early_binding { Binder::Kerf } else { Binder::KubeScheduler };
        let mut options = Options::new(mirror);
        options.gates = self.gates;
        options.batch_max_ms = self.batch_max_ms;
        options.batch_idle_ms = self.batch_idle_ms;
        options.observes_cluster_state = self.observes_cluster_state;
        options.rebalance = self.rebalance;
        options.pauses_disruption = self.pauses_disruption;
        options.brake_above_nodes = self.brake_above_nodes;
        options
    }

    /// Requests to the API server that may be under way at the same time: more cores, more of them.
    pub(crate) fn in_flight(&self) -> usize {
        let concurrency = concurrency(self.cpu_requests_millis, 50, 500);
        usize::try_from(concurrency).unwrap_or(50)
    }
}

fn brake(nodes: i64) -> anyhow::Result<usize> {
    match usize::try_from(nodes) {
        Ok(nodes) if nodes >= BRAKE_NODES => Ok(nodes),
        _ => bail!(
            "--brake-above-nodes (BRAKE_ABOVE_NODES) is {nodes}: give {BRAKE_NODES} or more, {BRAKE_NODES} if in doubt"
        ),
    }
}

/// A watch must have time for its own sign of life.
fn stale_after(millis: i64) -> anyhow::Result<u64> {
    match u64::try_from(millis) {
        Ok(ms) if ms >= 5_000 && u128::from(ms) <= STALE_AFTER_MOST.as_millis() => Ok(ms),
        _ => bail!("--watch-stale-after (WATCH_STALE_AFTER) is {millis} ms: give 5s to 10m, 5m if in doubt"),
    }
}

/// From `least` on one core to `most` on sixty.
fn concurrency(cpu_millis: i64, least: i64, most: i64) -> i64 {
    let cores = cpu_millis.div_euclid(1_000) + i64::from(cpu_millis.rem_euclid(1_000) > 0);
    ((most - least) * (cores - 1) / 59 + least).clamp(least, most)
}

/// Where a setting comes from.
pub(crate) struct Sources<'a> {
    environment: &'a dyn Fn(&str) -> Option<String>,
    pub(crate) warnings: Vec<String>,
}

impl<'a> Sources<'a> {
    pub(crate) fn new(environment: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { environment, warnings: Vec::new() }
    }

    /// An empty variable is a value.
    pub(crate) fn text(&self, flag: &Option<String>, variable: &str, default: &str) -> String {
        flag.clone().or_else(|| (self.environment)(variable)).unwrap_or_else(|| default.to_owned())
    }

    pub(crate) fn number<T: FromStr + ToString>(&mut self, flag: Option<T>, variable: &str, default: T) -> T {
        self.read(flag, variable, default, "a whole number", |text| text.parse().ok())
    }

    pub(crate) fn fraction(&mut self, flag: Option<f64>, variable: &str, default: f64) -> f64 {
        self.read(flag, variable, default, "a number", |text| text.parse().ok())
    }

    pub(crate) fn boolean(&mut self, flag: Option<bool>, variable: &str, default: bool) -> bool {
        self.read(flag, variable, default, "true or false", parse_bool)
    }

    /// In milliseconds. `flag_name` is kebab-case; the variable is the same in capitals.
    pub(crate) fn duration(&mut self, flag: &Option<String>, flag_name: &str, default_ms: i64) -> anyhow::Result<i64> {
        let variable = flag_name.replace('-', "_").to_ascii_uppercase();
        let given = flag
            .as_deref()
            .map(|text| {
                milliseconds(text)
                    .ok_or_else(|| anyhow::anyhow!("--{flag_name} is {text:?}: give a duration such as 10s or 1m30s"))
            })
            .transpose()?;
        Ok(self.read(given, &variable, default_ms, "a duration such as 10s", milliseconds))
    }

    /// A variable that cannot be read is told, and the default counts.
    fn read<T: ToString>(
        &mut self,
        flag: Option<T>,
        variable: &str,
        default: T,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> T {
        if let Some(flag) = flag {
            return flag;
        }
        let Some(text) = (self.environment)(variable) else {
            return default;
        };
        parse(&text).unwrap_or_else(|| {
            self.warnings.push(format!("{variable} is {text:?}, not {expected}: the default counts"));
            default
        })
    }
}

fn milliseconds(text: &str) -> Option<i64> {
    let span = kerf_api::parse_duration(text).ok()?;
    i64::try_from(span.as_millis()).ok().filter(|ms| *ms >= 0)
}

fn cloud(arguments: &RunArguments, from: &Sources<'_>) -> anyhow::Result<Cloud> {
    if let Some(cloud) = arguments.cloud {
        return Ok(cloud);
    }
    match (from.environment)("KERF_CLOUD").filter(|text| !text.is_empty()) {
        // An image of ours in place of upstream's is told the cluster's name and nothing more.
        None if cfg!(feature = "aws") && !from.text(&arguments.aws.cluster_name, "CLUSTER_NAME", "").is_empty() => {
            Ok(Cloud::Aws)
        }
        None => Ok(Cloud::Kwok),
        Some(text) => Cloud::from_str(&text, true)
            .map_err(|_| anyhow::anyhow!("KERF_CLOUD is {text:?}: there are kwok, sim and aws")),
    }
}

fn burst(burst: i64) -> anyhow::Result<u32> {
    u32::try_from(burst)
        .ok()
        .filter(|burst| *burst > 0)
        .with_context(|| format!("--kube-client-burst is {burst}: give a number above 0"))
}

fn level(text: &str) -> anyhow::Result<LogLevel> {
    Ok(match text {
        "" | "info" => LogLevel::Info,
        "debug" => LogLevel::Debug,
        "error" => LogLevel::Error,
        other => bail!("--log-level (LOG_LEVEL) is {other:?}: there are debug, info and error"),
    })
}

fn paths(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|path| !path.is_empty()).map(str::to_owned).collect()
}

fn preferences(text: &str) -> anyhow::Result<PreferencePolicy> {
    Ok(match text {
        "Respect" => PreferencePolicy::Respect,
        "Ignore" => PreferencePolicy::Ignore,
        other => bail!("--preference-policy (PREFERENCE_POLICY) is {other:?}: there are Respect and Ignore"),
    })
}

fn rebalance(text: &str) -> anyhow::Result<Rebalance> {
    Ok(match text {
        "" | "ignore" => Rebalance::Ignore,
        "replace" => Rebalance::Replace,
        other => bail!("--rebalance (REBALANCE) is {other:?}: there are ignore and replace"),
    })
}

fn min_values(text: &str) -> anyhow::Result<MinValuesPolicy> {
    Ok(match text {
        "Strict" => MinValuesPolicy::Strict,
        "BestEffort" => MinValuesPolicy::BestEffort,
        other => bail!("--min-values-policy (MIN_VALUES_POLICY) is {other:?}: there are Strict and BestEffort"),
    })
}

fn spreads(text: &str) -> anyhow::Result<Vec<Spread>> {
    const NAME: &str = "--scheduler-config (SCHEDULER_CONFIG)";
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let config = serde_norway::from_str(text).with_context(|| format!("{NAME} is neither YAML nor JSON"))?;
    kerf_mirror::read_scheduler_config(NAME, &config).map_err(|notes| {
        let words: Vec<String> = notes.iter().map(output::text::note).collect();
        anyhow::anyhow!("{}", words.join("; "))
    })
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
