//! What must be known before the operator starts on AWS, in the order in which upstream asks for it.
//!
//! ```text
//! probe ─▶ endpoint ─▶ kube-dns ─▶ zonal shift ─▶ version, authority ─▶ AwsCloud ─▶ types ─▶ prices, for some seconds
//! ```
//!
//! Trouble that may pass (no way to AWS yet, a call that is throttled) is waited for, with the probes open; everything else ends the
//! start, and says what to do about it.

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kerf_cloud_aws::settings::Settings;
use kerf_cloud_aws::wire::{Aws, EksCluster, Failure};
use serde_json::Value;
use std::net::IpAddr;

/// Minor versions of Kubernetes 1 that images and templates are known for.
const MINORS: std::ops::RangeInclusive<u32> = 26..=36;

/// What the API server says of its cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// `/version`.
    pub(crate) version: Value,
    /// The Service `kube-system/kube-dns`; None where there is none that we may read.
    pub(crate) dns: Option<Value>,
    /// The authority that our client trusts, as it was given: PEM.
    pub(crate) authority: Vec<u8>,
}

/// Asks AWS, and fills in what the flags left open.
pub(crate) async fn discover(wire: &dyn Aws, mut settings: Settings, seen: &Seen) -> anyhow::Result<Settings> {
    probe(wire).await?;
    let mut cluster = None;
    if settings.cluster_endpoint.is_none() {
        let found = ask_cluster(wire, &mut cluster, &settings.cluster_name).await.context(
            "the cluster's endpoint is not known: set --cluster-endpoint (CLUSTER_ENDPOINT), or let EKS be asked",
        )?;
        settings.cluster_endpoint = Some(found.endpoint.clone());
    }
    settings.cluster_dns = seen.dns.as_ref().and_then(dns_address);
    if settings.cluster_dns.is_none() {
        tracing::warn!(
            "Service kube-system/kube-dns has no address that we can read: nodes are not told of a cluster DNS"
        );
    }
    if settings.has_zonal_shift {
        let arn = ask_cluster(wire, &mut cluster, &settings.cluster_name).await?.arn.clone();
        let shifts = wire.get_managed_resource(arn.clone()).await;
        shifts.with_context(|| {
            format!(
                "--enable-zonal-shift needs {arn} to be registered with ARC zonal shift, and the right to read it: \
                 switch it off, or register the cluster"
            )
        })?;
    }
    settings.kubernetes_version = if settings.is_eks_control_plane {
        ask_cluster(wire, &mut cluster, &settings.cluster_name)
            .await
            .context("--eks-control-plane takes the Kubernetes version from EKS")?
            .version
            .clone()
    } else {
        minor_version(&seen.version)?
    };
    if !is_supported(&settings.kubernetes_version) {
        tracing::warn!(
            version = settings.kubernetes_version,
            "Kubernetes is outside of 1.{} to 1.{}: there may be no images for it",
            MINORS.start(),
            MINORS.end()
        );
    }
    if settings.cluster_ca_bundle.is_empty() {
        settings.cluster_ca_bundle = STANDARD.encode(&seen.authority);
    }
    Ok(settings)
}

/// Whether AWS can be reached and lets us in. An answer that a dry run would pass is a yes, and so is no error at all.
async fn probe(wire: &dyn Aws) -> anyhow::Result<()> {
    match wire.describe_instance_types(true).await {
        Ok(_) => Ok(()),
        // Who asks us to slow down can be reached.
        Err(failure) if failure.is_dry_run_passed() || failure.is_throttled() => Ok(()),
        Err(failure) => {
            let what_to_do = match failure.status {
                _ if failure.is_denied() => {
                    "AWS does not let us ask for instance types: give the controller's role ec2:DescribeInstanceTypes, and make \
                     sure that the role is in effect (`kerf aws check`)"
                }
                0 => {
                    "EC2 cannot be reached: is there a way out of this network, does DNS answer, and are there credentials?"
                }
                _ => "EC2 answers a first question with an error: is this the right region?",
            };
            Err(failure).context(what_to_do)
        }
    }
}

/// Asked at most once.
async fn ask_cluster<'a>(
    wire: &dyn Aws,
    known: &'a mut Option<EksCluster>,
    name: &str,
) -> anyhow::Result<&'a EksCluster> {
    if known.is_none() {
        *known = Some(wire.describe_cluster(name.to_owned()).await.map_err(|failure| no_cluster(name, failure))?);
    }
    Ok(known.as_ref().expect("it has just been filled"))
}

fn no_cluster(name: &str, failure: Failure) -> anyhow::Error {
    let words = match failure.code.as_str() {
        _ if failure.is_denied() => format!("EKS does not let us ask about cluster {name}: allow eks:DescribeCluster"),
        "ResourceNotFoundException" => format!("EKS knows no cluster {name} in this region: is --cluster-name right?"),
        _ => format!("EKS does not tell about cluster {name}"),
    };
    anyhow::Error::new(failure).context(words)
}

/// Whether the same might be answered otherwise in a while: AWS said nothing, or that it is busy or broken.
pub(crate) fn may_pass(error: &anyhow::Error) -> bool {
    let failure = error.chain().find_map(|cause| cause.downcast_ref::<Failure>());
    failure.is_some_and(|failure| failure.is_throttled() || failure.is_server_error())
}

fn dns_address(service: &Value) -> Option<IpAddr> {
    service["spec"]["clusterIP"].as_str()?.parse().ok()
}

/// `1.35` of `{"major": "1", "minor": "35+"}`.
pub(crate) fn minor_version(version: &Value) -> anyhow::Result<String> {
    let digits = |key: &str| {
        let text = version[key].as_str().unwrap_or_default().trim_end_matches('+');
        (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
    };
    match (digits("major"), digits("minor")) {
        (Some(major), Some(minor)) => Ok(format!("{major}.{minor}")),
        _ => bail!("the API server says that it is version {version}: that has no major and minor number"),
    }
}

fn is_supported(version: &str) -> bool {
    let minor = version.strip_prefix("1.").and_then(|minor| minor.parse().ok());
    minor.is_some_and(|minor| MINORS.contains(&minor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_cloud_aws::wire::scripted::Scripted;
    use serde_json::json;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context as TaskContext, Poll, Waker};

    /// The scripted AWS answers at once.
    fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut TaskContext::from_waker(Waker::noop())) {
            Poll::Ready(answer) => answer,
            Poll::Pending => panic!("it waits for something"),
        }
    }

    fn settings() -> Settings {
        Settings { cluster_name: "demo".to_owned(), ..Settings::default() }
    }

    fn seen() -> Seen {
        Seen {
            version: json!({"major": "1", "minor": "35+"}),
            dns: Some(json!({"spec": {"clusterIP": "10.100.0.10"}})),
            authority: b"-----BEGIN CERTIFICATE-----".to_vec(),
        }
    }

    fn account() -> Scripted {
        let aws = Scripted::default();
        aws.account().cluster = Some(EksCluster {
            arn: "arn:aws:eks:us-west-2:1:cluster/demo".to_owned(),
            endpoint: "https://eks.example.com".to_owned(),
            version: "1.34".to_owned(),
            ..EksCluster::default()
        });
        aws
    }

    #[test]
    fn what_the_flags_left_open_is_found() {
        let found = now(discover(&account(), settings(), &seen())).unwrap();
        assert_eq!(found.cluster_endpoint.as_deref(), Some("https://eks.example.com"));
        assert_eq!(found.kubernetes_version, "1.35");
        assert_eq!(found.cluster_dns, Some("10.100.0.10".parse().unwrap()));
        assert_eq!(found.cluster_ca_bundle, "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t");
    }

    #[test]
    fn what_was_given_is_kept_and_eks_is_not_asked() {
        let aws = Scripted::default();
        let given = Settings {
            cluster_endpoint: Some("https://given".to_owned()),
            cluster_ca_bundle: "Z2l2ZW4=".to_owned(),
            ..settings()
        };
        let found = now(discover(&aws, given, &Seen { dns: None, ..seen() })).unwrap();
        assert_eq!(found.cluster_endpoint.as_deref(), Some("https://given"));
        assert_eq!((found.cluster_ca_bundle.as_str(), found.cluster_dns), ("Z2l2ZW4=", None));
    }

    #[test]
    fn the_version_may_be_that_of_eks() {
        let asked = Settings { is_eks_control_plane: true, ..settings() };
        assert_eq!(now(discover(&account(), asked, &seen())).unwrap().kubernetes_version, "1.34");
    }

    #[test]
    fn a_dry_run_that_would_pass_is_a_welcome() {
        let aws = account();
        let passed = Failure::new("ec2:DescribeInstanceTypes", "DryRunOperation", "it would have succeeded");
        aws.account().always.insert("ec2:DescribeInstanceTypes", passed);
        assert!(now(discover(&aws, settings(), &seen())).is_ok());
    }

    #[test]
    fn each_failure_says_what_to_do() {
        let failure = |action: &'static str, code: &str, status: u16| {
            let mut failure = Failure::new(action, code, "no");
            failure.status = status;
            (action, failure)
        };
        for (changed, failing, expected) in [
            (
                settings(),
                failure("ec2:DescribeInstanceTypes", "UnauthorizedOperation", 403),
                "give the controller's role",
            ),
            (settings(), failure("ec2:DescribeInstanceTypes", "", 0), "cannot be reached"),
            (settings(), failure("ec2:DescribeInstanceTypes", "InternalError", 500), "right region"),
            (settings(), failure("eks:DescribeCluster", "AccessDeniedException", 403), "allow eks:DescribeCluster"),
            (settings(), failure("eks:DescribeCluster", "ResourceNotFoundException", 404), "--cluster-name"),
            (
                Settings { has_zonal_shift: true, ..settings() },
                failure("arc-zonal-shift:GetManagedResource", "AccessDeniedException", 403),
                "--enable-zonal-shift",
            ),
        ] {
            let aws = account();
            aws.account().always.insert(failing.0, failing.1.clone());
            let error = now(discover(&aws, changed, &seen())).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{}: {error:#}", failing.0);
        }
        let error = now(discover(&account(), settings(), &Seen { version: json!({}), ..seen() })).unwrap_err();
        assert!(error.to_string().contains("major and minor"), "{error}");
    }

    #[test]
    fn trouble_that_may_pass_is_told_from_what_somebody_must_mend() {
        for (action, code, status, passes) in [
            ("ec2:DescribeInstanceTypes", "", 0, true),
            ("ec2:DescribeInstanceTypes", "InternalError", 500, true),
            ("ec2:DescribeInstanceTypes", "UnauthorizedOperation", 403, false),
            ("ec2:DescribeInstanceTypes", "AuthFailure", 401, false),
            ("eks:DescribeCluster", "ThrottlingException", 400, true),
            ("eks:DescribeCluster", "ServerException", 500, true),
            ("eks:DescribeCluster", "ResourceNotFoundException", 404, false),
            ("eks:DescribeCluster", "AccessDeniedException", 403, false),
            ("arc-zonal-shift:GetManagedResource", "ThrottlingException", 429, true),
        ] {
            let aws = account();
            aws.fail_always(Failure { status, ..Failure::new(action, code, "no") });
            let asked = Settings { has_zonal_shift: true, ..settings() };
            let error = now(discover(&aws, asked, &seen())).unwrap_err();
            assert_eq!(may_pass(&error), passes, "{action} {code}: {error:#}");
        }
        let error = now(discover(&account(), settings(), &Seen { version: json!({}), ..seen() })).unwrap_err();
        assert!(!may_pass(&error));
    }

    #[test]
    fn versions_are_known_from_1_26_to_1_36() {
        for (version, expected) in [("1.25", false), ("1.26", true), ("1.36", true), ("1.37", false), ("2.30", false)] {
            assert_eq!(is_supported(version), expected, "{version}");
        }
    }
}
