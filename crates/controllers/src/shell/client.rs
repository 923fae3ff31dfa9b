//! The one way to a client for the API server: no repetitions behind our back, connections that notice when their other side is gone, and the
//! proxies that the environment names.

use super::credentials::Authorized;
use crate::limits::{CONNECT_WITHIN, KEEPALIVE_AFTER, KEEPALIVE_EVERY, KEEPALIVE_TRIES, UNACKNOWLEDGED};
use http::Uri;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use tower::{BoxError, Layer, Service, ServiceBuilder};

/// Why there can be no client.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error("the certificates or credentials cannot be used")]
    Credentials(#[source] kube::Error),
    #[error(
        "the proxy {proxy} cannot be used: only http:// proxies are known, which a TLS connection is tunnelled through"
    )]
    Proxy { proxy: String },
}

/// A client that sends each request once: whoever asks decides whether to ask again. May run an exec plugin, and waits for it.
pub fn client(config: &Config) -> Result<Client, Unusable> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_WITHIN));
    tcp.set_keepalive(Some(KEEPALIVE_AFTER));
    tcp.set_keepalive_interval(Some(KEEPALIVE_EVERY));
    tcp.set_keepalive_retries(u32::try_from(KEEPALIVE_TRIES).ok());
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let Some(proxy) = &config.proxy_url else {
        return over(tcp, config).map_err(Unusable::Credentials);
    };
    if proxy.scheme_str() != Some("http") {
        return Err(Unusable::Proxy { proxy: without_password(proxy) });
    }
    // The name and password of a proxy stand in its address.
    let way = Matcher::builder().all(proxy.to_string()).build().intercept(&config.cluster_url);
    let Some(way) = way else {
        return Err(Unusable::Proxy { proxy: without_password(proxy) });
    };
    let mut tunnel = Tunnel::new(way.uri().clone(), tcp);
    if let Some(auth) = way.basic_auth() {
        tunnel = tunnel.with_auth(auth.clone());
    }
    over(tunnel, config).map_err(Unusable::Credentials)
}

/// The proxy for an API server, as the environment names it: HTTPS_PROXY or HTTP_PROXY by its scheme, unless NO_PROXY names the server; in
/// capitals or not. Loopback is never asked for through a proxy.
pub fn proxy(server: &Uri, environment: &dyn Fn(&str) -> Option<String>) -> Option<Uri> {
    let read = |name: &str| {
        let named = [name.to_owned(), name.to_ascii_lowercase()].iter().find_map(|name| environment(name));
        named.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    };
    let is_secure = server.scheme_str() != Some("http");
    let named = read(if is_secure { "HTTPS_PROXY" } else { "HTTP_PROXY" })?;
    let host = server.host()?.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if is_loopback || host == "localhost" {
        return None;
    }
    let matcher = Matcher::builder().all(named.clone()).no(read("NO_PROXY").unwrap_or_default()).build();
    matcher.intercept(server)?;
    // Without a scheme it is HTTP.
    let whole = if named.contains("://") { named } else { format!("http://{named}") };
    whole.parse().ok()
}

fn without_password(proxy: &Uri) -> String {
    let port = proxy.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", proxy.scheme_str().unwrap_or_default(), proxy.host().unwrap_or_default())
}

fn over<C>(connector: C, config: &Config) -> Result<Client, kube::Error>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let secure = config.rustls_https_connector_with_connector(connector)?;
    let connections: hyper_util::client::legacy::Client<_, Body> =
        hyper_util::client::legacy::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .build(secure);
    let connections = ServiceBuilder::new().map_err(BoxError::from).service(connections);
    let headed = config.extra_headers_layer()?.layer(connections);
    let authorized = Authorized::new(config, headed)?;
    let builder = ClientBuilder::new(authorized, config.default_namespace.clone());
    Ok(builder.with_layer(&config.base_uri_layer()).build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_a_proxy_and_who_is_reached_without_it() {
        let secure = "https://api.example.com:6443";
        for (server, environment, expected) in [
            (secure, &[("HTTPS_PROXY", "http://proxy:3128")][..], Some("http://proxy:3128/")),
            (secure, &[("https_proxy", "proxy:3128")][..], Some("http://proxy:3128/")),
            (secure, &[("HTTP_PROXY", "http://proxy:3128")][..], None),
            ("http://api.example.com", &[("HTTP_PROXY", "http://proxy:3128")][..], Some("http://proxy:3128/")),
            (
                secure,
                &[("HTTPS_PROXY", "http://proxy:3128"), ("NO_PROXY", "example.org")][..],
                Some("http://proxy:3128/"),
            ),
            (secure, &[("HTTPS_PROXY", "http://proxy:3128"), ("NO_PROXY", ".example.com")][..], None),
            (secure, &[("HTTPS_PROXY", "http://proxy:3128"), ("no_proxy", "a, *")][..], None),
            ("https://10.0.0.1", &[("HTTPS_PROXY", "http://proxy:3128"), ("NO_PROXY", "10.0.0.0/8")][..], None),
            ("https://127.0.0.1:6443", &[("HTTPS_PROXY", "http://proxy:3128")][..], None),
            ("https://localhost:6443", &[("HTTPS_PROXY", "http://proxy:3128")][..], None),
            (secure, &[("HTTPS_PROXY", " ")][..], None),
        ] {
            let read =
                |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            let found = proxy(&server.parse().unwrap(), &read).map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), expected, "{server} {environment:?}");
        }
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_named_without_its_password() {
        let mut config = Config::new("https://api.example.com".parse().unwrap());
        config.proxy_url = Some("socks5://me:secret@proxy:1080".parse().unwrap());
        let Err(error) = client(&config) else { panic!("it speaks SOCKS") };
        assert!(error.to_string().contains("socks5://proxy:1080"), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
