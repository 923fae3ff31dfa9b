//! The whole look, in its order.

use super::report::Report;
use super::{account, classes, rights};
use kerf_cloud::clock::Clock;
use kerf_cloud_aws::advice::Scope;
use kerf_cloud_aws::settings::Settings;
use kerf_cloud_aws::wire::Aws;
use serde_json::Value;
use std::sync::Arc;

/// Everything that was found, in the order in which it was asked. Fails only where AWS cannot be asked at all.
pub(super) async fn check(
    wire: Arc<dyn Aws>,
    mut settings: Settings,
    classes: Vec<Value>,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Report> {
    let identity = account::identity(&*wire).await?;
    let queue = settings.interruption_queue.as_deref();
    let scope = Scope::new(&settings.region, Some(&identity.account), &settings.cluster_name, queue);
    let mut findings = vec![account::who(&identity, &settings)];
    findings.push(account::cluster(&*wire, &mut settings, &scope).await);
    findings.extend(rights::ask_all(&*wire, &settings, &scope, &identity).await);
    findings.push(account::interruption_queue(&*wire, &settings, &scope).await);
    if !settings.is_isolated_vpc {
        findings.push(account::spot_role(&*wire).await);
    }
    let classes = match classes.is_empty() {
        true => vec![classes::by_discovery(&settings.cluster_name)],
        false => classes,
    };
    findings.extend(classes::resolve(wire, &settings, classes, clock).await);
    Ok(Report {
        cluster: settings.cluster_name,
        region: settings.region,
        account: identity.account,
        principal: identity.arn,
        findings,
    })
}
