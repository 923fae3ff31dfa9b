//! The proxies that the environment names, for calls to AWS.
//!
//! ```text
//! https://… ── HTTPS_PROXY ┐
//! http://…  ── HTTP_PROXY  ┴ unless NO_PROXY names the host; loopback and the machine's own services always go straight
//! ```
//!
//! The SDK's client asks no environment by itself. One client for each scheme, because a client of it has one proxy.

use crate::wire::Failure;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::{Builder, Connector, tls};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;

/// Where credentials and metadata come from on an instance, in a pod and in a container, and ourselves.
const STRAIGHT: &str = "localhost,127.0.0.0/8,::1,169.254.0.0/16,fd00:ec2::/32";

/// Addresses of proxies, as they were written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    pub https: Option<String>,
    pub http: Option<String>,
    /// Names, domains and ranges, with commas between them.
    pub no_proxy: String,
}

impl Proxies {
    /// As others read the environment: in capitals or not, and a proxy without a scheme is HTTP.
    pub fn read(environment: &dyn Fn(&str) -> Option<String>) -> Self {
        let read = |name: &str| {
            let named = [name.to_owned(), name.to_ascii_lowercase()].iter().find_map(|name| environment(name));
            named.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let proxy = |name: &str| {
            let named = read(name)?;
            Some(if named.contains("://") { named } else { format!("http://{named}") })
        };
        Self { https: proxy("HTTPS_PROXY"), http: proxy("HTTP_PROXY"), no_proxy: read("NO_PROXY").unwrap_or_default() }
    }

    /// The client for all calls.
    pub(super) fn client(&self) -> Result<SharedHttpClient, Failure> {
        let straight = format!("{STRAIGHT},{}", self.no_proxy);
        let through = |named: &Option<String>, to: fn(String) -> Result<ProxyConfig, String>| {
            let Some(named) = named else { return Ok(None) };
            let is_known = named.starts_with("http://") || named.starts_with("https://");
            let unusable = || {
                let message = format!(
                    "the proxy {} cannot be used for AWS: http:// and https:// proxies are known",
                    without_password(named)
                );
                Failure::new("configuration", "", &message)
            };
            if !is_known {
                return Err(unusable());
            }
            let proxy = to(named.clone()).map_err(|_| unusable())?;
            Ok(Some(over(Some(proxy.no_proxy(&straight)))))
        };
        let https = through(&self.https, |url| ProxyConfig::https(url).map_err(|error| error.to_string()))?;
        let http = through(&self.http, |url| ProxyConfig::http(url).map_err(|error| error.to_string()))?;
        if https.is_none() && http.is_none() {
            return Ok(over(None));
        }
        let straight = over(None);
        let by_scheme = ByScheme { https: https.unwrap_or_else(|| straight.clone()), http: http.unwrap_or(straight) };
        Ok(SharedHttpClient::new(by_scheme))
    }
}

fn over(proxy: Option<ProxyConfig>) -> SharedHttpClient {
    let provider = || tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring);
    let Some(proxy) = proxy else {
        return Builder::new().tls_provider(provider()).build_https();
    };
    Builder::new().build_with_connector_fn(move |settings, components| {
        let mut connector = Connector::builder().proxy_config(proxy.clone());
        connector.set_connector_settings(settings.cloned());
        if let Some(components) = components {
            connector.set_sleep_impl(components.sleep_impl());
        }
        connector.tls_provider(provider()).build()
    })
}

fn without_password(proxy: &str) -> String {
    let (scheme, rest) = proxy.split_once("://").unwrap_or(("", proxy));
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    format!("{scheme}://{host}")
}

#[derive(Debug)]
struct ByScheme {
    https: SharedHttpClient,
    http: SharedHttpClient,
}

#[derive(Debug)]
struct Ways {
    https: SharedHttpConnector,
    http: SharedHttpConnector,
}

impl HttpClient for ByScheme {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(Ways {
            https: self.https.http_connector(settings, components),
            http: self.http.http_connector(settings, components),
        })
    }
}

impl HttpConnector for Ways {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let is_secure = request.uri().get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
        if is_secure { self.https.call(request) } else { self.http.call(request) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Proxies {
        Proxies::read(&|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_environment_is_read_as_others_read_it() {
        assert_eq!(read(&[]), Proxies::default());
        assert_eq!(read(&[("HTTPS_PROXY", " ")]), Proxies::default());
        let found =
            read(&[("https_proxy", "proxy:3128"), ("HTTP_PROXY", "http://other:80"), ("NO_PROXY", ".internal")]);
        let expected = Proxies {
            https: Some("http://proxy:3128".to_owned()),
            http: Some("http://other:80".to_owned()),
            no_proxy: ".internal".to_owned(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_named_without_its_password() {
        let failure = read(&[("HTTPS_PROXY", "socks5://me:secret@proxy:1080")]).client().unwrap_err();
        assert!(failure.message.contains("socks5://proxy:1080") && !failure.message.contains("secret"), "{failure}");
    }
}
