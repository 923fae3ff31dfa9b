//! One client per service, from one configuration.

use super::calls::{Calls, Counter};
use super::proxies::Proxies;
use super::{Sdk, pricing};
use crate::limits;
use crate::wire::Failure;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::{AppName, BehaviorVersion, Region, SdkConfig};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_types::timeout::TimeoutConfig;
use kerf_cloud::clock::Clock;
use std::sync::Arc;
use std::time::Duration;

/// How long an answer is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    pub connection: Duration,
    pub first_byte: Duration,
    /// Once.
    pub attempt: Duration,
    /// With all repetitions.
    pub call: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connection: limits::CONNECT_WITHIN,
            first_byte: limits::FIRST_BYTE_WITHIN,
            attempt: limits::ATTEMPT_WITHIN,
            call: limits::CALL_WITHIN,
        }
    }
}

impl Patience {
    /// With the price list: nothing waits for it.
    fn with_prices(self) -> Self {
        Self {
            first_byte: self.first_byte.min(limits::PRICES_FIRST_BYTE_WITHIN),
            call: self.call.min(limits::PRICES_CALL_WITHIN),
            ..self
        }
    }

    fn timeouts(self) -> TimeoutConfig {
        TimeoutConfig::builder()
            .connect_timeout(self.connection)
            .read_timeout(self.first_byte)
            .operation_attempt_timeout(self.attempt)
            .operation_timeout(self.call)
            .build()
    }
}

/// How to reach AWS. What is not said here, the environment and the shared configuration files say.
#[derive(Debug, Clone, Default)]
pub struct Connection {
    /// None: from the environment, the profile, or the instance we run on.
    pub region: Option<String>,
    /// Of Kerf; part of the user agent.
    pub version: String,
    /// Every service at one place, as `AWS_ENDPOINT_URL` does. For tests that run side by side.
    pub endpoint: Option<String>,
    /// A fixed key in place of the credential chain. For tests that run side by side.
    pub credentials: Option<(String, String)>,
    /// In place of the network.
    pub http_client: Option<SharedHttpClient>,
    /// On the way out of the network.
    pub proxies: Proxies,
    pub patience: Patience,
}

impl Sdk {
    /// Reads the configuration and makes the clients. Nothing is asked yet, but for the region where nothing names it and the
    /// instance's metadata must.
    ///
    /// - Caveats: wants a Tokio runtime, here and for every call.
    pub async fn connect(connection: Connection, clock: Arc<dyn Clock>) -> Result<Self, Failure> {
        let patience = connection.patience;
        let config = load(connection).await?;
        let region = config.region().map(ToString::to_string).ok_or_else(no_region)?;
        Ok(Self::from_config(&config, region, patience, clock))
    }

    fn from_config(config: &SdkConfig, region: String, patience: Patience, clock: Arc<dyn Clock>) -> Self {
        let calls = Arc::new(Calls::default());
        let counter = Counter { calls: calls.clone(), clock: clock.clone() };
        // Each service has a builder of its own type, with the same method.
        macro_rules! client {
            ($service:ident) => {
                $service::Client::from_conf(
                    $service::config::Builder::from(config).interceptor(counter.clone()).build(),
                )
            };
        }
        let pricing_config = aws_sdk_pricing::config::Builder::from(config)
            .region(Region::new(pricing::endpoint_region(&region)))
            .timeout_config(patience.with_prices().timeouts())
            .interceptor(counter.clone())
            .build();
        Self {
            ec2: client!(aws_sdk_ec2),
            ssm: client!(aws_sdk_ssm),
            sqs: client!(aws_sdk_sqs),
            iam: client!(aws_sdk_iam),
            eks: client!(aws_sdk_eks),
            pricing: aws_sdk_pricing::Client::from_conf(pricing_config),
            sts: client!(aws_sdk_sts),
            arc: client!(aws_sdk_arczonalshift),
            autoscaling: client!(aws_sdk_autoscaling),
            region,
            calls,
            clock,
        }
    }
}

async fn load(connection: Connection) -> Result<SdkConfig, Failure> {
    let http_client = match connection.http_client {
        Some(given) => given,
        None => connection.proxies.client()?,
    };
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http_client)
        // A queue that has nothing to say stays silent for twenty seconds, which is no stall.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .timeout_config(connection.patience.timeouts());
    let name = format!("karpenter.sh-{}", connection.version);
    match AppName::new(name.clone()) {
        Ok(name) => loader = loader.app_name(name),
        Err(error) => return Err(misconfigured(&format!("{name:?} cannot be a user agent: {error}"))),
    }
    if let Some(region) = connection.region {
        loader = loader.region(Region::new(region));
    }
    if let Some(endpoint) = connection.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    if let Some((id, secret)) = connection.credentials {
        loader = loader.credentials_provider(aws_credential_types::Credentials::new(id, secret, None, None, "given"));
    }
    Ok(loader.load().await)
}

fn no_region() -> Failure {
    misconfigured(
        "no region: neither AWS_REGION nor the profile names one, and there is no instance metadata to ask; set AWS_REGION",
    )
}

fn misconfigured(message: &str) -> Failure {
    Failure { action: "configuration", code: String::new(), message: message.to_owned(), status: 400, request_id: None }
}
