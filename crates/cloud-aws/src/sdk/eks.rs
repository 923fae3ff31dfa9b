//! EKS: what it knows of the cluster.

use super::failure::{incomplete, of};
use crate::wire::{EksCluster, Failure};
use aws_sdk_eks::Client;

pub(super) async fn cluster(client: &Client, name: String) -> Result<EksCluster, Failure> {
    const ACTION: &str = "eks:DescribeCluster";
    let answer = client.describe_cluster().name(name).send().await.map_err(of(ACTION))?;
    let row = answer.cluster.ok_or_else(|| incomplete(ACTION, "cluster"))?;
    let network = row.kubernetes_network_config();
    let given = |cidr: Option<&str>| cidr.filter(|cidr| !cidr.is_empty()).map(str::to_owned);
    Ok(EksCluster {
        service_ipv4_cidr: given(network.and_then(|it| it.service_ipv4_cidr())),
        service_ipv6_cidr: given(network.and_then(|it| it.service_ipv6_cidr())),
        ca: row.certificate_authority().and_then(|it| it.data()).unwrap_or_default().to_owned(),
        arn: row.arn.unwrap_or_default(),
        endpoint: row.endpoint.unwrap_or_default(),
        version: row.version.unwrap_or_default(),
    })
}
