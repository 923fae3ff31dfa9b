//! The user's side: find the operator, and ask it.

use super::ExplainArguments;
use super::page::TOKEN_HEADER;
use crate::run::connect;
use anyhow::{Context, bail};
use http::Request;
use kerf_controllers::explain::Explanation;
use kerf_controllers::shell::{Caller, Limits};
use kube::Client;
use kube::client::Body;
use kube::config::AuthInfo;
use serde_json::Value;

/// Where `kerf up` leaves its address.
pub(crate) const NOTICE: (&str, &str) = ("kube-system", "kerf");

const LEASE_NAMESPACES: [&str; 2] = ["kube-system", "karpenter"];
const LEASE: &str = "karpenter-leader-election";
const PORT: u16 = 8080;

pub(super) async fn ask(arguments: &ExplainArguments) -> anyhow::Result<Explanation> {
    let config = connect::config(arguments.kubeconfig.as_deref(), env!("CARGO_PKG_VERSION")).await?;
    let token = token(&config.auth_info)?;
    let client = connect::client(config)?;
    let caller = Caller::new(client.clone(), Limits::none());
    let (status, body) = match &arguments.server {
        Some(server) => fetch(server, &arguments.path(), &token).await?,
        None => match address_in_cluster(&caller).await {
            Some(server) => fetch(&server, &arguments.path(), &token).await?,
            None => through_proxy(&client, &leader(&caller).await?, &arguments.path(), &token).await?,
        },
    };
    if status == 200 {
        return serde_json::from_slice(&body)
            .context("the operator's answer cannot be read: is it a kerf of this version?");
    }
    bail!("{}", String::from_utf8_lossy(&body).trim());
}

fn token(auth: &AuthInfo) -> anyhow::Result<String> {
    use secrecy::ExposeSecret as _;
    if let Some(token) = &auth.token {
        return Ok(token.expose_secret().to_owned());
    }
    if let Some(file) = &auth.token_file {
        return Ok(std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?.trim().to_owned());
    }
    bail!(
        "the kubeconfig's user has no token, and the operator asks who you are: use a user with a token, such as one made by \
         `kubectl create token`"
    )
}

/// What `kerf up` says about itself.
async fn address_in_cluster(caller: &Caller) -> Option<String> {
    let (namespace, name) = NOTICE;
    let map = caller.get(&format!("/api/v1/namespaces/{namespace}/configmaps/{name}")).await.ok()?;
    map.pointer("/data/explain").and_then(Value::as_str).map(str::to_owned)
}

/// Namespace and name of the pod that leads.
async fn leader(caller: &Caller) -> anyhow::Result<(String, String)> {
    for namespace in LEASE_NAMESPACES {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{LEASE}");
        if let Ok(lease) = caller.get(&path).await
            && let Some(holder) = lease.pointer("/spec/holderIdentity").and_then(Value::as_str)
            && let Some((pod, _)) = holder.split_once('_')
        {
            return Ok((namespace.to_owned(), pod.to_owned()));
        }
    }
    bail!(
        "no operator was found: there is no lease {LEASE} with a holder in {}; give its address with --server",
        LEASE_NAMESPACES.join(" or ")
    )
}

async fn through_proxy(
    client: &Client,
    (namespace, pod): &(String, String),
    path: &str,
    token: &str,
) -> anyhow::Result<(u16, Vec<u8>)> {
    let uri = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{PORT}/proxy{path}");
    let request = Request::builder().uri(&uri).header(TOKEN_HEADER, format!("Bearer {token}")).body(Body::empty())?;
    let answer = client
        .send(request)
        .await
        .with_context(|| format!("cannot reach pod {namespace}/{pod} through the API server; try --server"))?;
    let status = answer.status().as_u16();
    Ok((status, answer.into_body().collect_bytes().await?.to_vec()))
}

/// Asks an address directly: plain HTTP, as the operator's port speaks it.
async fn fetch(server: &str, path: &str, token: &str) -> anyhow::Result<(u16, Vec<u8>)> {
    let mut config = kube::Config::new(server.parse().with_context(|| format!("--server {server} is no address"))?);
    config.connect_timeout = Some(std::time::Duration::from_secs(10));
    let client = connect::client(config)?;
    let request = Request::builder().uri(path).header("authorization", format!("Bearer {token}")).body(Body::empty())?;
    let answer = client.send(request).await.with_context(|| format!("cannot reach the operator at {server}"))?;
    let status = answer.status().as_u16();
    Ok((status, answer.into_body().collect_bytes().await?.to_vec()))
}
