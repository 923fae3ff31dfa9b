//! Windows: one PowerShell script that ends with the image's own bootstrap script.

use super::{Bootstrap, flags};

pub(super) fn render(inputs: &Bootstrap) -> String {
    let mut lines = vec!["<powershell>".to_owned()];
    lines.extend(inputs.custom().map(|script| script.trim_end_matches(['\r', '\n']).to_owned()));
    lines.push(r#"[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1""#.to_owned());
    let mut call = format!(
        "& $EKSBootstrapScriptFile -EKSClusterName {} -APIServerEndpoint {}",
        quoted(&inputs.cluster_name),
        quoted(&inputs.cluster.endpoint)
    );
    if !inputs.cluster.ca_bundle.is_empty() {
        call.push_str(&format!(" -Base64ClusterCA {}", quoted(&inputs.cluster.ca_bundle)));
    }
    call.push_str(&format!(" -KubeletExtraArgs {}", quoted(&flags::kubelet_flags(inputs))));
    if let Some(first) = inputs.cluster_dns().first() {
        call.push_str(&format!(" -DNSClusterIP {}", quoted(first)));
    }
    lines.push(call);
    lines.push("</powershell>".to_owned());
    lines.join("\n")
}

/// A text of PowerShell that means itself.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
