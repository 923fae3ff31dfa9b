//! The API server alone, in a process of its own, so that it can be measured: tells its address as one line of JSON, and serves
//! until its standard input ends.

#![expect(clippy::print_stdout, reason = "whoever started it reads the address there")]

use std::io::Read as _;

use kerf_control_plane::{ControlPlane, Options};
use serde_json::json;

fn main() -> std::io::Result<()> {
    let plane = ControlPlane::start(&Options { with_controllers: false, ..Options::default() })?;
    let address = plane.address().ok_or_else(|| std::io::Error::other("it serves no socket"))?;
    println!("{}", json!({"endpoint": address.endpoint, "ca_pem": address.ca_pem, "token": address.token}));
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
