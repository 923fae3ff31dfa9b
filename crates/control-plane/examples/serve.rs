//! Serves an empty cluster on loopback until its input ends, and says where its kubeconfig is.
//!
//! `cargo run --release -p kerf-control-plane --example serve -- <kubeconfig>`

use std::io::Read as _;
use std::path::PathBuf;

use kerf_control_plane::{ControlPlane, Options};

#[expect(clippy::print_stdout, reason = "the example's answer")]
fn main() -> std::io::Result<()> {
    let kubeconfig = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "kubeconfig".to_owned()));
    let plane = ControlPlane::start(&Options::default())?;
    plane.write_kubeconfig(&kubeconfig)?;
    println!("export KUBECONFIG={}", kubeconfig.display());
    // Whoever started us closes our input to end us.
    std::io::stdin().read_to_end(&mut Vec::new()).map(|_| ())
}
