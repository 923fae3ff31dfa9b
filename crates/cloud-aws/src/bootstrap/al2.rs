//! Amazon Linux 2: an archive whose last part calls the image's own bootstrap script.

use super::mime::{self, Part, SHELL_SCRIPT};
use super::{Bootstrap, BootstrapError, flags, without_carriage_returns};
use std::net::Ipv4Addr;

pub(super) fn render(inputs: &Bootstrap) -> Result<String, BootstrapError> {
    let mut parts = inputs.custom().map(user_parts).transpose()?.unwrap_or_default();
    parts.push(Part::new(SHELL_SCRIPT, script(inputs)));
    Ok(mime::archive(&parts))
}

/// Either an archive, or a script.
pub(super) fn user_parts(custom: &str) -> Result<Vec<Part>, BootstrapError> {
    let custom = without_carriage_returns(custom);
    if mime::is_mime(&custom) { mime::parts_of(&custom) } else { Ok(vec![Part::script(&custom)]) }
}

fn script(inputs: &Bootstrap) -> String {
    let dns = inputs.cluster_dns();
    let cluster = &inputs.cluster;
    let mut call = format!(
        "/etc/eks/bootstrap.sh {} --apiserver-endpoint {}",
        quoted(&inputs.cluster_name),
        quoted(&cluster.endpoint)
    );
    if !cluster.ca_bundle.is_empty() {
        call.push_str(&format!(" --b64-cluster-ca {}", quoted(&cluster.ca_bundle)));
    }
    let mut options = Vec::new();
    if let Some(first) = dns.first() {
        if first.parse::<Ipv4Addr>().is_err() {
            options.push("--ip-family ipv6".to_owned());
        }
        options.push(format!("--dns-cluster-ip {}", quoted(first)));
    }
    // The script would count pods by itself, and not as we did.
    options.push("--use-max-pods false".to_owned());
    options.push(format!("--kubelet-extra-args {}", quoted(&flags::kubelet_flags(inputs))));
    if inputs.instance_store_raid {
        options.push("--local-disks raid0".to_owned());
    }
    for option in options {
        call.push_str(" \\\n");
        call.push_str(&option);
    }
    format!("#!/bin/bash -xe\nexec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1\n{call}")
}

/// A word of the shell that means itself.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
