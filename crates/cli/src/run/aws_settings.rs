//! What was asked for of AWS, from flags, variables and defaults. Everything that is wrong is told at once.

use super::aws_arguments::AwsArguments;
use super::gates::parse_bool;
use super::settings::Sources;
use kerf_model::MinValuesPolicy;
use std::time::Duration;

/// A look-up that counts for less than this asks AWS more often than it answers.
const REFRESH_LEAST_MS: i64 = 60_000;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AwsSettings {
    pub(crate) cluster_name: String,
    /// Empty: EKS is asked.
    pub(crate) cluster_endpoint: String,
    /// Base64; empty for the authority that we trust ourselves.
    pub(crate) cluster_ca_bundle: String,
    pub(crate) is_isolated_vpc: bool,
    pub(crate) is_eks_control_plane: bool,
    pub(crate) vm_memory_overhead_share: f64,
    /// Empty for none.
    pub(crate) interruption_queue: String,
    pub(crate) reserved_enis: i64,
    pub(crate) is_dry_run_disabled: bool,
    pub(crate) has_zonal_shift: bool,
    pub(crate) ami_refresh_ms: i64,
    pub(crate) subnet_refresh_ms: i64,
    pub(crate) has_node_class_cel: bool,
    /// What could not be read at all, in words.
    unreadable: Vec<String>,
}

impl AwsSettings {
    pub(crate) fn resolve(arguments: &AwsArguments, from: &mut Sources<'_>) -> Self {
        let a = arguments;
        let mut unreadable = Vec::new();
        let mut interval = |from: &mut Sources<'_>, flag: &Option<String>, name: &str| {
            from.duration(flag, name, REFRESH_LEAST_MS).unwrap_or_else(|error| {
                unreadable.push(error.to_string());
                REFRESH_LEAST_MS
            })
        };
        let ami_refresh_ms = interval(from, &a.ami_refresh_interval, "ami-refresh-interval");
        let subnet_refresh_ms = interval(from, &a.subnet_refresh_interval, "subnet-refresh-interval");
        let gates = from.text(&a.aws_feature_gates, "AWS_FEATURE_GATES", "");
        let has_node_class_cel = node_class_cel(&gates).unwrap_or_else(|problem| {
            unreadable.push(format!("--aws-feature-gates (AWS_FEATURE_GATES): {problem}"));
            false
        });
        Self {
            cluster_name: from.text(&a.cluster_name, "CLUSTER_NAME", ""),
            cluster_endpoint: from.text(&a.cluster_endpoint, "CLUSTER_ENDPOINT", ""),
            cluster_ca_bundle: from.text(&a.cluster_ca_bundle, "CLUSTER_CA_BUNDLE", ""),
            is_isolated_vpc: from.boolean(a.isolated_vpc, "ISOLATED_VPC", false),
            is_eks_control_plane: from.boolean(a.eks_control_plane, "EKS_CONTROL_PLANE", false),
            vm_memory_overhead_share: from.fraction(a.vm_memory_overhead_percent, "VM_MEMORY_OVERHEAD_PERCENT", 0.075),
            interruption_queue: from.text(&a.interruption_queue, "INTERRUPTION_QUEUE", ""),
            reserved_enis: from.number(a.reserved_enis, "RESERVED_ENIS", 0),
            is_dry_run_disabled: from.boolean(a.disable_dry_run, "DISABLE_DRY_RUN", false),
            has_zonal_shift: from.boolean(a.enable_zonal_shift, "ENABLE_ZONAL_SHIFT", false),
            ami_refresh_ms,
            subnet_refresh_ms,
            has_node_class_cel,
            unreadable,
        }
    }

    /// Everything that cannot be meant, in words. Empty: it can start.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = self.unreadable.clone();
        let mut tell = |is_wrong: bool, problem: String| {
            if is_wrong {
                problems.push(problem);
            }
        };
        tell(
            self.cluster_name.is_empty(),
            "--cluster-name (CLUSTER_NAME) is empty: give the name of the cluster".to_owned(),
        );
        tell(
            !self.cluster_endpoint.is_empty() && !is_absolute_url(&self.cluster_endpoint),
            format!(
                "--cluster-endpoint (CLUSTER_ENDPOINT) is {:?}: give a whole address such as https://api.example.com, or \
                 nothing to ask EKS",
                self.cluster_endpoint
            ),
        );
        let share = self.vm_memory_overhead_share;
        tell(
            !share.is_finite() || share < 0.0,
            format!(
                "--vm-memory-overhead-percent (VM_MEMORY_OVERHEAD_PERCENT) is {share}: give a share from 0 on, such as 0.075"
            ),
        );
        tell(
            u32::try_from(self.reserved_enis).is_err(),
            format!("--reserved-enis (RESERVED_ENIS) is {}: give a number from 0 on", self.reserved_enis),
        );
        for (flag, ms) in
            [("ami-refresh-interval", self.ami_refresh_ms), ("subnet-refresh-interval", self.subnet_refresh_ms)]
        {
            let variable = flag.replace('-', "_").to_ascii_uppercase();
            tell(
                ms < REFRESH_LEAST_MS,
                format!("--{flag} ({variable}) is {:?}: give 1m or more", Duration::from_millis(ms.unsigned_abs())),
            );
        }
        problems
    }

    /// As the provider takes them. What only the cluster and AWS know (version, addresses) is filled in when they have been asked.
    pub(crate) fn of_provider(
        &self,
        gates: &kerf_controllers::Gates,
        min_values: MinValuesPolicy,
    ) -> kerf_cloud_aws::settings::Settings {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let span = |ms: i64| Duration::from_millis(ms.unsigned_abs());
        kerf_cloud_aws::settings::Settings {
            cluster_name: self.cluster_name.clone(),
            cluster_endpoint: some(&self.cluster_endpoint),
            cluster_ca_bundle: self.cluster_ca_bundle.clone(),
            is_isolated_vpc: self.is_isolated_vpc,
            is_eks_control_plane: self.is_eks_control_plane,
            vm_memory_overhead_share: self.vm_memory_overhead_share,
            interruption_queue: some(&self.interruption_queue),
            reserved_enis: u32::try_from(self.reserved_enis).unwrap_or(0),
            is_dry_run_disabled: self.is_dry_run_disabled,
            has_zonal_shift: self.has_zonal_shift,
            ami_refresh: span(self.ami_refresh_ms),
            subnet_refresh: span(self.subnet_refresh_ms),
            has_reserved_capacity: gates.reserved_capacity,
            has_node_class_cel: self.has_node_class_cel,
            has_node_overlay: gates.node_overlay,
            has_strict_min_values: min_values == MinValuesPolicy::Strict,
            ..kerf_cloud_aws::settings::Settings::default()
        }
    }
}

/// `scheme://host…`: what a node can be told.
fn is_absolute_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_scheme = !scheme.is_empty()
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    is_scheme && !host.is_empty() && !text.contains(char::is_whitespace)
}

/// Unknown gates are ignored, as the core's are.
fn node_class_cel(text: &str) -> Result<bool, String> {
    let mut is_on = false;
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is not of the form Gate=true"))?;
        let (name, value) = (name.trim(), value.trim());
        let value = parse_bool(value).ok_or_else(|| format!("gate {name} is {value:?}, neither true nor false"))?;
        if name == "NodeClassCEL" {
            is_on = value;
        }
    }
    Ok(is_on)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(variables: &[(&str, &str)]) -> (AwsSettings, Vec<String>) {
        let environment =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let mut from = Sources::new(&environment);
        let settings = AwsSettings::resolve(&AwsArguments::default(), &mut from);
        (settings, from.warnings)
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let (settings, warnings) = resolve(&[
            ("CLUSTER_ENDPOINT", "api.example.com"),
            ("VM_MEMORY_OVERHEAD_PERCENT", "-0.1"),
            ("RESERVED_ENIS", "-1"),
            ("AMI_REFRESH_INTERVAL", "30s"),
            ("SUBNET_REFRESH_INTERVAL", "59s"),
            ("AWS_FEATURE_GATES", "NodeClassCEL=maybe"),
        ]);
        assert!(warnings.is_empty(), "{warnings:?}");
        let problems = settings.problems();
        let named = [
            "AWS_FEATURE_GATES",
            "CLUSTER_NAME",
            "CLUSTER_ENDPOINT",
            "VM_MEMORY_OVERHEAD_PERCENT",
            "RESERVED_ENIS",
            "AMI_REFRESH_INTERVAL",
            "SUBNET_REFRESH_INTERVAL",
        ];
        assert_eq!(problems.len(), named.len(), "{problems:#?}");
        for (problem, name) in problems.iter().zip(named) {
            assert!(problem.contains(name), "{name}: {problem}");
        }
    }

    #[test]
    fn a_name_is_all_that_is_needed() {
        let (settings, warnings) = resolve(&[("CLUSTER_NAME", "demo")]);
        assert!(settings.problems().is_empty() && warnings.is_empty());
        let of_provider = settings.of_provider(&kerf_controllers::Gates::default(), MinValuesPolicy::Strict);
        assert_eq!((of_provider.cluster_name.as_str(), of_provider.cluster_endpoint.as_deref()), ("demo", None));
        assert_eq!((of_provider.interruption_queue, of_provider.ami_refresh), (None, Duration::from_secs(60)));
        assert!(of_provider.has_reserved_capacity && !of_provider.has_node_class_cel);
        assert!(of_provider.has_strict_min_values);
        let lenient = settings.of_provider(&kerf_controllers::Gates::default(), MinValuesPolicy::BestEffort);
        assert!(!lenient.has_strict_min_values, "--min-values-policy reaches the launch");
    }

    #[test]
    fn an_endpoint_is_a_whole_address() {
        for (text, expected) in [
            ("https://api.example.com", true),
            ("https://api.example.com:6443/path", true),
            ("https://[fd00::1]:443", true),
            ("https://", false),
            ("https:///path", false),
            ("api.example.com", false),
            ("://api.example.com", false),
            ("https://api example.com", false),
        ] {
            assert_eq!(is_absolute_url(text), expected, "{text}");
        }
    }

    #[test]
    fn an_overhead_that_is_no_number_counts_as_the_default_and_is_told() {
        let (settings, warnings) = resolve(&[("CLUSTER_NAME", "demo"), ("VM_MEMORY_OVERHEAD_PERCENT", "7.5%")]);
        assert!((settings.vm_memory_overhead_share - 0.075).abs() < f64::EPSILON);
        assert!(warnings[0].contains("VM_MEMORY_OVERHEAD_PERCENT") && warnings[0].contains("7.5%"), "{warnings:?}");
    }

    #[test]
    fn unknown_aws_gates_are_ignored() {
        assert_eq!(node_class_cel("Other=true, NodeClassCEL=true"), Ok(true));
        assert_eq!(node_class_cel(""), Ok(false));
        assert!(node_class_cel("NodeClassCEL").is_err());
    }
}
