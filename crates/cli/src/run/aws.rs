//! The AWS provider of `kerf run`: connected, asked, and told, before the operator starts.

use super::aws_start::{Seen, discover, may_pass, minor_version};
use super::clerk::RealTime;
use super::connect;
use super::porch::Porch;
use super::settings::Settings;
use anyhow::Context;
use kerf_cloud::{CloudProvider, InUse};
use kerf_cloud_aws::classes::ApiServer;
use kerf_cloud_aws::cloud::AwsCloud;
use kerf_cloud_aws::limits::{START_AGAIN_FIRST, START_AGAIN_MOST, START_PRICES_WITHIN, START_TRY_WITHIN};
use kerf_cloud_aws::sdk::calls::{Calls, Took};
use kerf_cloud_aws::sdk::{Connection, Proxies, Sdk};
use kerf_cloud_aws::wire::Aws;
use kerf_controllers::metrics::families::{
    AWS_SDK_GO_REQUEST_ATTEMPT_DURATION_SECONDS, AWS_SDK_GO_REQUEST_ATTEMPT_TOTAL, AWS_SDK_GO_REQUEST_DURATION_SECONDS,
    AWS_SDK_GO_REQUEST_RETRY_COUNT, AWS_SDK_GO_REQUEST_TOTAL,
};
use kerf_controllers::metrics::{Metrics, Page, Source};
use kerf_controllers::shell::Caller;
use kerf_model::UnixMillis;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::time::timeout;

/// Needs a tokio runtime around it.
pub(super) async fn start(
    settings: &Settings,
    caller: &Caller,
    metrics: &Arc<Metrics>,
    version: &str,
    porch: &Porch,
) -> anyhow::Result<Arc<dyn CloudProvider>> {
    let sdk = connect_sdk(version).await?;
    metrics.attach("aws calls", Arc::new(Counted(Arc::clone(sdk.calls()))));
    let watched = Arc::clone(metrics);
    sdk.calls().listen(move |took| observe(&watched, took));
    let mut wanted = settings.aws.of_provider(&settings.gates, settings.min_values);
    wanted.region = sdk.region().to_owned();
    let seen = look(settings, caller).await?;
    let found = until_it_passes(porch, async || discover(&sdk, wanted.clone(), &seen).await).await?;
    tracing::info!(
        cluster = found.cluster_name,
        region = found.region,
        endpoint = found.cluster_endpoint.as_deref().unwrap_or_default(),
        kubernetes = found.kubernetes_version,
        queue = found.interruption_queue.as_deref().unwrap_or_default(),
        "found the cluster in AWS"
    );
    let wire: Arc<dyn Aws> = Arc::new(sdk);
    let api_server = Arc::new(Version(caller.clone()));
    let cloud = AwsCloud::beside(Some(api_server), wire, found, Arc::new(RealTime));
    // Without types nothing can be planned.
    until_it_passes(porch, async || Ok(cloud.start().await?)).await?;
    // With prices plans are better; without them they can be made. The chore goes on asking.
    let asked = timeout(START_PRICES_WITHIN, cloud.run_chore("providers.pricing", Arc::new(InUse::default()))).await;
    match asked {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(%error, "prices cannot be read: the built-in ones count until they can"),
        Err(_) => tracing::warn!(
            "prices have not come within {} s: the built-in ones count until they do",
            START_PRICES_WITHIN.as_secs()
        ),
    }
    Ok(cloud)
}

/// Asks until there is an answer, or a failure that waiting does not mend. Meanwhile whoever looks is told what is waited for.
async fn until_it_passes<T>(porch: &Porch, ask: impl AsyncFn() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut pause = START_AGAIN_FIRST;
    loop {
        let why = match timeout(START_TRY_WITHIN, ask()).await {
            Ok(Err(error)) if may_pass(&error) => format!("{error:#}"),
            Ok(answer) => return answer,
            Err(_) => format!("AWS has not answered within {} s", START_TRY_WITHIN.as_secs()),
        };
        tracing::warn!(error = why, "AWS is not there yet: asking again in {} s", pause.as_secs());
        porch.waits(&format!("AWS: {why}"));
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(START_AGAIN_MOST);
    }
}

/// The version of the cluster, from the API server.
struct Version(Caller);

impl ApiServer for Version {
    fn version(&self) -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>> {
        let caller = self.0.clone();
        Box::pin(async move {
            let version = caller.get("/version").await.map_err(|failure| failure.to_string())?;
            minor_version(&version).map_err(|error| error.to_string())
        })
    }
}

/// AWS as the environment describes it: region, credentials, endpoint.
pub(crate) async fn connect_sdk(version: &str) -> anyhow::Result<Sdk> {
    let proxies = Proxies::read(&|name| std::env::var(name).ok());
    let connection = Connection { version: version.to_owned(), proxies, ..Connection::default() };
    Sdk::connect(connection, Arc::new(RealTime)).await.context("AWS cannot be used like this")
}

async fn look(settings: &Settings, caller: &Caller) -> anyhow::Result<Seen> {
    let version = caller.get("/version").await.context("the API server does not tell its version")?;
    let dns = match caller.get("/api/v1/namespaces/kube-system/services/kube-dns").await {
        Ok(service) => Some(service),
        // It is not there, or not for us to see. Any other failure passes, and nodes would be told no address for as long as we live.
        Err(failure) if matches!(failure.status, 403 | 404) => {
            tracing::warn!(error = %failure, "cannot read Service kube-system/kube-dns");
            None
        }
        Err(failure) => return Err(failure).context("the API server does not tell the address of the cluster's DNS"),
    };
    let authority = match settings.aws.cluster_ca_bundle.is_empty() {
        true => connect::authority(settings.kubeconfig.as_deref())?,
        false => Vec::new(),
    };
    Ok(Seen { version, dns, authority })
}

/// How long AWS took, on the metrics page.
fn observe(metrics: &Metrics, took: &Took) {
    let (Took::Attempt { call, .. } | Took::Request { call, .. }) = took;
    let status = call.status.to_string();
    let labels = [call.service.as_str(), &call.operation, &status];
    match took {
        Took::Attempt { seconds, .. } => {
            metrics.observe(&AWS_SDK_GO_REQUEST_ATTEMPT_DURATION_SECONDS, &labels, *seconds);
        }
        Took::Request { seconds, n_retries, .. } => {
            metrics.observe(&AWS_SDK_GO_REQUEST_DURATION_SECONDS, &labels, *seconds);
            metrics.observe(&AWS_SDK_GO_REQUEST_RETRY_COUNT, &labels[..2], f64::from(*n_retries));
        }
    }
}

/// What the SDK has sent, on the metrics page.
struct Counted(Arc<Calls>);

impl Source for Counted {
    fn render(&self, page: &mut Page, _: UnixMillis) {
        for (family, counts) in
            [(&AWS_SDK_GO_REQUEST_TOTAL, self.0.requests()), (&AWS_SDK_GO_REQUEST_ATTEMPT_TOTAL, self.0.attempts())]
        {
            page.begin_family(family);
            for (call, count) in counts {
                let status = call.status.to_string();
                let values = [call.service.as_str(), &call.operation, &status];
                page.sample_of(family.name, family.labels.iter().copied().zip(values), count as f64);
            }
        }
    }
}
