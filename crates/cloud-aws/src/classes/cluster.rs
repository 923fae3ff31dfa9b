//! The cluster that nodes join: its address, its certificate, its range of services, its version.

use super::images::alias::minor;
use crate::settings::{ClusterFacts, Settings};
use crate::wire::{Aws, EksCluster, Failure};
use futures_util::future::BoxFuture;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The minor versions of Kubernetes that we know.
const SUPPORTED: std::ops::RangeInclusive<u32> = 26..=36;

/// The API server, asked for its version; answers as `v1.35.2-eks-1` or shorter, or why it does not.
pub trait ApiServer: Send + Sync {
    fn version(&self) -> BoxFuture<'static, Result<String, String>>;
}

#[derive(Debug, Default)]
pub(super) struct Cluster {
    facts: Mutex<Option<ClusterFacts>>,
    /// The version that was complained about: once is enough.
    told: Mutex<Option<String>>,
}

impl Cluster {
    pub(super) fn known(&self) -> Option<ClusterFacts> {
        self.lock().clone()
    }

    /// What is known, found out where it is not. EKS is asked only for what the settings do not say.
    pub(super) async fn facts(&self, wire: &dyn Aws, settings: &Settings) -> Result<ClusterFacts, Failure> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let is_said = settings.cluster_endpoint.is_some()
            && !settings.cluster_ca_bundle.is_empty()
            && !settings.kubernetes_version.is_empty();
        let asked = match is_said && !settings.is_eks_control_plane {
            true => None,
            false => match wire.describe_cluster(settings.cluster_name.clone()).await {
                Ok(cluster) => Some(cluster),
                // Older policies do not let us ask, and we can do without.
                Err(failure) if is_said && failure.is_denied() => None,
                Err(failure) => return Err(failure),
            },
        };
        let facts = combine(settings, asked.as_ref());
        *self.lock() = Some(facts.clone());
        self.complain(&facts.version);
        Ok(facts)
    }

    /// The range of service addresses, which only some families need.
    pub(super) async fn service_cidr(&self, wire: &dyn Aws, settings: &Settings) -> Result<Option<String>, Failure> {
        if let Some(cidr) = self.known().and_then(|facts| facts.service_cidr) {
            return Ok(Some(cidr));
        }
        let asked = wire.describe_cluster(settings.cluster_name.clone()).await?;
        let cidr = cidr_of(&asked);
        if let Some(facts) = self.lock().as_mut() {
            facts.service_cidr = cidr.clone();
        }
        Ok(cidr)
    }

    /// Learns of an upgrade, from EKS where the settings want that, else from the API server. Without one to ask the version of the
    /// settings stays. Answers the version.
    pub(super) async fn refresh_version(
        &self,
        wire: &dyn Aws,
        settings: &Settings,
        api_server: Option<&dyn ApiServer>,
    ) -> Result<String, Failure> {
        let facts = self.facts(wire, settings).await?;
        let asked = match api_server {
            _ if settings.is_eks_control_plane => wire.describe_cluster(settings.cluster_name.clone()).await?.version,
            Some(api_server) => api_server.version().await.map_err(|error| not_told(&error))?,
            None => return Ok(facts.version),
        };
        let version = minor_of(&asked).ok_or_else(|| not_told(&format!("{asked:?} is no version")))?;
        if version != facts.version {
            tracing::info!(from = %facts.version, to = %version, "the cluster's Kubernetes version has changed");
        }
        if let Some(facts) = self.lock().as_mut() {
            facts.version = version.clone();
        }
        self.complain(&version);
        Ok(version)
    }

    /// Says once that a version is not known to work. It is used all the same.
    fn complain(&self, version: &str) {
        let is_known = minor(version).is_some_and(|minor| SUPPORTED.contains(&minor));
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if is_known {
            *told = None;
        } else if told.as_deref() != Some(version) {
            *told = Some(version.to_owned());
            tracing::error!(
                version = %version, from = "1.26", to = "1.36",
                "this version of Kubernetes has not been tried with this version of kerf"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<ClusterFacts>> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn combine(settings: &Settings, asked: Option<&EksCluster>) -> ClusterFacts {
    let said = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let of_eks = |read: fn(&EksCluster) -> &str| asked.and_then(|cluster| said(read(cluster)));
    let from_eks = of_eks(|cluster| &cluster.version).filter(|_| settings.is_eks_control_plane);
    let version =
        from_eks.or_else(|| said(&settings.kubernetes_version)).or_else(|| of_eks(|cluster| &cluster.version));
    ClusterFacts {
        endpoint: settings.cluster_endpoint.clone().or_else(|| of_eks(|cluster| &cluster.endpoint)).unwrap_or_default(),
        ca_bundle: said(&settings.cluster_ca_bundle).or_else(|| of_eks(|cluster| &cluster.ca)).unwrap_or_default(),
        service_cidr: asked.and_then(cidr_of),
        version: version.as_deref().map(plain).unwrap_or_default(),
        dns: settings.cluster_dns,
    }
}

fn cidr_of(cluster: &EksCluster) -> Option<String> {
    cluster.service_ipv4_cidr.clone().or_else(|| cluster.service_ipv6_cidr.clone())
}

/// `1.35` for `v1.35+` and `1.35`.
fn plain(version: &str) -> String {
    version.trim_start_matches('v').trim_end_matches('+').to_owned()
}

/// `1.35` of `v1.35.2-eks-abc`. None for what has no two numbers.
fn minor_of(version: &str) -> Option<String> {
    let mut parts = version.trim().trim_start_matches('v').split('.');
    let major = parts.next()?.parse::<u32>().ok()?;
    let digits = |part: &str| part.split(|c: char| !c.is_ascii_digit()).next().and_then(|it| it.parse::<u32>().ok());
    Some(format!("{major}.{}", digits(parts.next()?)?))
}

fn not_told(why: &str) -> Failure {
    let message = format!("the cluster's Kubernetes version cannot be told: {why}; the one known so far stays");
    Failure { action: "version", code: String::new(), message, status: 0, request_id: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::now_ready;
    use crate::wire::scripted::Scripted;

    fn eks(version: &str) -> EksCluster {
        EksCluster {
            arn: "arn:aws:eks:eu-west-1:1:cluster/demo".to_owned(),
            endpoint: "https://eks".to_owned(),
            version: version.to_owned(),
            ca: "Q0E=".to_owned(),
            service_ipv4_cidr: Some("10.100.0.0/16".to_owned()),
            service_ipv6_cidr: None,
        }
    }

    fn settings() -> Settings {
        Settings {
            cluster_name: "demo".to_owned(),
            cluster_endpoint: Some("https://said".to_owned()),
            cluster_ca_bundle: "c2FpZA==".to_owned(),
            kubernetes_version: "1.34+".to_owned(),
            ..Settings::default()
        }
    }

    #[test]
    fn eks_is_asked_only_for_what_nobody_said() {
        let aws = Scripted::default();
        aws.account().cluster = Some(eks("1.35"));
        let cluster = Cluster::default();
        let facts = now_ready(cluster.facts(&aws, &settings())).unwrap();
        assert_eq!(
            (facts.endpoint.as_str(), facts.version.as_str(), facts.service_cidr),
            ("https://said", "1.34", None)
        );
        assert_eq!(aws.count("eks:DescribeCluster"), 0);
        assert_eq!(now_ready(cluster.service_cidr(&aws, &settings())), Ok(Some("10.100.0.0/16".to_owned())));
        assert_eq!(now_ready(cluster.service_cidr(&aws, &settings())), Ok(Some("10.100.0.0/16".to_owned())));
        assert_eq!(aws.count("eks:DescribeCluster"), 1, "once per process");
        let unsaid = Settings { cluster_endpoint: None, cluster_ca_bundle: String::new(), ..settings() };
        let facts = now_ready(Cluster::default().facts(&aws, &unsaid)).unwrap();
        assert_eq!(
            (facts.endpoint.as_str(), facts.ca_bundle.as_str(), facts.version.as_str()),
            ("https://eks", "Q0E=", "1.34")
        );
    }

    #[test]
    fn an_upgrade_of_the_control_plane_is_noticed() {
        let aws = Scripted::default();
        aws.account().cluster = Some(eks("1.34"));
        let by_eks = Settings { is_eks_control_plane: true, ..settings() };
        let cluster = Cluster::default();
        assert_eq!(now_ready(cluster.facts(&aws, &by_eks)).unwrap().version, "1.34");
        aws.account().cluster = Some(eks("1.35"));
        assert_eq!(now_ready(cluster.refresh_version(&aws, &by_eks, None)).as_deref(), Ok("1.35"));
        assert_eq!(cluster.known().unwrap().version, "1.35");
        aws.fail_next(Failure::new("eks:DescribeCluster", "ServerException", "oops"));
        assert!(now_ready(cluster.refresh_version(&aws, &by_eks, None)).is_err());
        assert_eq!(cluster.known().unwrap().version, "1.35", "what is known stays");
    }

    /// Says what it is told to.
    struct Says(Result<&'static str, &'static str>);

    impl ApiServer for Says {
        fn version(&self) -> BoxFuture<'static, Result<String, String>> {
            Box::pin(std::future::ready(self.0.map(str::to_owned).map_err(str::to_owned)))
        }
    }

    #[test]
    fn without_eks_the_api_server_tells_of_an_upgrade() {
        let (aws, cluster) = (Scripted::default(), Cluster::default());
        assert_eq!(now_ready(cluster.facts(&aws, &settings())).unwrap().version, "1.34");
        let ask = |says| now_ready(cluster.refresh_version(&aws, &settings(), Some(&Says(says))));
        assert_eq!(ask(Ok("v1.35.2-eks-1a2b")).as_deref(), Ok("1.35"));
        assert_eq!(cluster.known().unwrap().version, "1.35");
        assert_eq!(ask(Ok("1.36+")).as_deref(), Ok("1.36"));
        for says in [Ok("soon"), Ok(""), Ok("1"), Err("no answer")] {
            let failure = ask(says).unwrap_err();
            assert!(failure.message.contains("stays"), "{failure}");
            assert_eq!(cluster.known().unwrap().version, "1.36", "what is known stays");
        }
        assert_eq!(aws.count("eks:DescribeCluster"), 0);
        let alone = now_ready(cluster.refresh_version(&aws, &settings(), None));
        assert_eq!(alone.as_deref(), Ok("1.36"), "nobody to ask");
    }

    #[test]
    fn what_was_said_will_do_where_eks_may_not_be_asked() {
        let aws = Scripted::default();
        aws.fail_always(Failure::new("eks:DescribeCluster", "AccessDeniedException", "no"));
        let by_eks = Settings { is_eks_control_plane: true, ..settings() };
        assert_eq!(now_ready(Cluster::default().facts(&aws, &by_eks)).unwrap().version, "1.34");
        let unsaid = Settings { cluster_endpoint: None, ..by_eks };
        assert!(now_ready(Cluster::default().facts(&aws, &unsaid)).is_err());
    }

    #[test]
    fn an_ipv6_cluster_has_an_ipv6_range() {
        let aws = Scripted::default();
        let (service_ipv4_cidr, service_ipv6_cidr) = (None, Some("fd30::/108".to_owned()));
        aws.account().cluster = Some(EksCluster { service_ipv4_cidr, service_ipv6_cidr, ..eks("1.35") });
        assert_eq!(now_ready(Cluster::default().service_cidr(&aws, &settings())), Ok(Some("fd30::/108".to_owned())));
    }
}
