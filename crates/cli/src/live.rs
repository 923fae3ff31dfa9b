//! A connected cluster, read once and left alone: what `kerf plan --live` plans with.

use crate::run::connect;
use crate::supply::Catalogue;
use anyhow::bail;
use kerf_controllers::resource::WATCHED;
use kerf_controllers::shell::{Caller, Limits, Trouble};
use kerf_mirror::{Mirror, Supply};
use kerf_model::NodeClassRef;
use serde_json::Value;
use std::path::Path;

/// Shows the mirror everything that planning looks at. Answers how many objects that were.
pub(crate) fn observe(mirror: &mut Mirror, catalogue: &Catalogue, kubeconfig: Option<&Path>) -> anyhow::Result<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = connect::config(kubeconfig, env!("CARGO_PKG_VERSION")).await?;
        let client = connect::client(config.clone())?;
        connect::first_contact(&config, &client).await?;
        let caller = Caller::new(client, Limits::none());
        let mut n_objects = 0;
        for (_, resource) in WATCHED {
            let kind = (resource.api_version(), resource.kind.to_owned());
            n_objects += list(mirror, &caller, &resource.collection(), &kind).await?;
        }
        let mut classes = vec![
            ("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses"),
            ("karpenter.k8s.aws", "v1", "EC2NodeClass", "ec2nodeclasses"),
        ];
        classes.retain(|(group, _, kind, _)| {
            catalogue.serves(&NodeClassRef { group: (*group).into(), kind: (*kind).into(), name: "".into() })
        });
        for (group, version, kind, plural) in classes {
            let kind = (format!("{group}/{version}"), kind.to_owned());
            n_objects += list(mirror, &caller, &format!("/apis/{group}/{version}/{plural}"), &kind).await?;
        }
        Ok(n_objects)
    })
}

async fn list(
    mirror: &mut Mirror,
    caller: &Caller,
    collection: &str,
    (api_version, kind): &(String, String),
) -> anyhow::Result<usize> {
    let mut n_objects = 0;
    let listed = caller.each_page(collection, |mut page| {
        let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) else { return };
        for mut item in items {
            // Lists leave out what all of their items are.
            item["apiVersion"] = Value::from(api_version.as_str());
            item["kind"] = Value::from(kind.as_str());
            mirror.observe_value("the cluster", item);
            n_objects += 1;
        }
    });
    match listed.await.map_err(Trouble::of) {
        // A definition that is not installed has no objects.
        Ok(()) | Err(Trouble::Missing) => Ok(n_objects),
        Err(Trouble::Forbidden { message }) => {
            bail!("you may not list {collection} ({message}): ask for list on {kind}, or plan from files with -f")
        }
        Err(trouble) => bail!("cannot list {collection}: {trouble:?}"),
    }
}
