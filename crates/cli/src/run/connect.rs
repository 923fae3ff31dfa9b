//! Finds the API server, and makes sure that it talks to us, before anything else begins.

use anyhow::{Context, bail};
use kerf_controllers::limits::CREDENTIALS_WITHIN;
use kerf_controllers::shell::{Caller, Limits, Trouble, Unusable, agent, proxy};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};

/// Where the API server is, and who we are. Looks where upstream looks: the flag, KUBECONFIG, the pod, the home.
pub(crate) async fn config(kubeconfig: Option<&Path>, version: &str) -> anyhow::Result<Config> {
    let mut config = if let Some(path) = kubeconfig {
        let file =
            Kubeconfig::read_from(path).with_context(|| format!("cannot use --kubeconfig {}", path.display()))?;
        from_file(file)
            .await
            .with_context(|| format!("--kubeconfig {} names no cluster that can be used", path.display()))?
    } else if let Some(named) = std::env::var_os("KUBECONFIG").filter(|named| !named.is_empty()) {
        let words = || format!("cannot use KUBECONFIG={}", named.to_string_lossy());
        from_file(Kubeconfig::read().with_context(words)?).await.with_context(words)?
    } else if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        let config = Config::incluster().context("this looks like a pod, but its service account cannot be used")?;
        through_proxy(config, None)?
    } else {
        let words = "there is no cluster: give --kubeconfig, set KUBECONFIG, or run in a pod";
        from_file(Kubeconfig::read().context(words)?).await.context(words)?
    };
    config.headers.push((http::header::USER_AGENT, agent(version).parse().context("the version is no header value")?));
    Ok(config)
}

async fn from_file(file: Kubeconfig) -> anyhow::Result<Config> {
    let context = file.current_context.as_ref().and_then(|name| file.contexts.iter().find(|it| it.name == *name));
    let cluster = context.and_then(|it| it.context.as_ref()).map(|context| context.cluster.clone());
    let cluster = file.clusters.iter().find(|it| Some(&it.name) == cluster.as_ref()).and_then(|it| it.cluster.as_ref());
    let own = cluster.and_then(|cluster| cluster.proxy_url.clone()).filter(|own| !own.is_empty());
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    through_proxy(config, own.as_deref())
}

/// The kubeconfig's own proxy, or that of the environment: the library asks the environment too, but compares NO_PROXY with the proxy
/// instead of with the server, and in a pod not at all.
fn through_proxy(mut config: Config, own: Option<&str>) -> anyhow::Result<Config> {
    config.proxy_url = match own {
        Some(own) => Some(own.parse().with_context(|| format!("proxy-url {own:?} of the kubeconfig is no address"))?),
        None => proxy(&config.cluster_url, &|name| std::env::var(name).ok()),
    };
    Ok(config)
}

/// The authority that the API server's certificate is checked with, as it was given: nodes are told the very same bytes.
#[cfg(feature = "aws")]
pub(crate) fn authority(kubeconfig: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    use base64::Engine as _;
    const OF_POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
    let is_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let file = match (kubeconfig, std::env::var_os("KUBECONFIG").filter(|named| !named.is_empty())) {
        (Some(path), _) => Kubeconfig::read_from(path),
        (None, None) if is_pod => {
            return std::fs::read(OF_POD).with_context(|| format!("cannot read the cluster's authority {OF_POD}"));
        }
        (None, _) => Kubeconfig::read(),
    }
    .context("cannot read the kubeconfig again")?;
    let context = file.current_context.as_ref().and_then(|name| file.contexts.iter().find(|it| it.name == *name));
    let cluster = context.and_then(|it| it.context.as_ref()).map(|context| context.cluster.as_str());
    let cluster = file.clusters.iter().find(|it| Some(it.name.as_str()) == cluster).and_then(|it| it.cluster.as_ref());
    let given = "set --cluster-ca-bundle (CLUSTER_CA_BUNDLE)";
    let Some(cluster) = cluster else {
        bail!("the kubeconfig's context names no cluster, so nobody knows its authority: {given}");
    };
    if let Some(data) = &cluster.certificate_authority_data {
        let decoded = base64::engine::general_purpose::STANDARD.decode(data.trim());
        return decoded.with_context(|| format!("the kubeconfig's certificate-authority-data is not base64: {given}"));
    }
    match &cluster.certificate_authority {
        Some(path) => std::fs::read(path).with_context(|| format!("cannot read the cluster's authority {path}")),
        None => bail!("the kubeconfig names no authority that nodes could trust: {given}"),
    }
}

/// Must be called within a runtime. Waits for the kubeconfig's exec plugin, if it names one.
pub(crate) fn client(config: Config) -> anyhow::Result<Client> {
    let plugin = config.auth_info.exec.as_ref().map(|exec| exec.command.clone().unwrap_or_default());
    let runtime = tokio::runtime::Handle::current();
    let (to, made) = channel();
    // A plugin that hangs must not take the process with it, and there is no other way to stop waiting for it.
    std::thread::spawn(move || {
        let _within = runtime.enter();
        // Whoever waited may have given up.
        let _ = to.send(kerf_controllers::shell::client(&config));
    });
    let patience = CREDENTIALS_WITHIN.as_secs();
    match (made.recv_timeout(CREDENTIALS_WITHIN), plugin) {
        (Ok(Ok(client)), _) => Ok(client),
        (Ok(Err(Unusable::Credentials(error))), Some(plugin)) => {
            // What a plugin printed instead is shown in lines below.
            let why = error.to_string().lines().next().unwrap_or_default().to_owned();
            bail!("exec plugin {plugin:?} of the kubeconfig gives no credentials: run it by hand ({why})")
        }
        (Ok(Err(error)), _) => Err(error).context("there can be no connection to the API server"),
        (Err(RecvTimeoutError::Timeout), Some(plugin)) => bail!(
            "exec plugin {plugin:?} of the kubeconfig gave no credentials within {patience} s: does it wait for somebody to sign in? \
             Run it by hand"
        ),
        (Err(_), _) => bail!("the certificates of the kubeconfig could not be read"),
    }
}

/// Asks one question. Whatever the answer, what to do next is clear.
pub(crate) async fn first_contact(config: &Config, client: &Client) -> anyhow::Result<()> {
    let url = &config.cluster_url;
    let answer = Caller::new(client.clone(), Limits::none()).get("/apis/karpenter.sh/v1").await;
    match answer.map_err(Trouble::of) {
        // Missing definitions are told by the watches, and may still come.
        Ok(_) | Err(Trouble::Missing) => Ok(()),
        Err(Trouble::Unauthorized { message }) => bail!(
            "the API server at {url} does not accept our credentials ({message}): renew the token or certificate of \
             the kubeconfig, or of the service account"
        ),
        Err(Trouble::Forbidden { message }) => bail!(
            "the API server at {url} does not let us ask what it serves ({message}): use an account that is at least \
             in system:authenticated, with the rights of the chart's ClusterRole"
        ),
        Err(Trouble::Unreachable { message }) => {
            bail!("cannot reach the API server at {url} ({message}): is it running, and is this the right address?")
        }
        Err(Trouble::Other { status, message }) => {
            bail!("the API server at {url} answered {status} ({message}): is it healthy?")
        }
        Err(Trouble::Expired) => bail!("the API server at {url} answered 410 to a first question: is it healthy?"),
    }
}
