//! Writes the CRDs into the folder given as the first argument, `deploy/crds` by default. `cargo xtask crds` calls the
//! same function.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let dir = std::env::args().nth(1).map_or_else(|| PathBuf::from("deploy/crds"), PathBuf::from);
    kerf_api::write_crds(&dir).map(drop)
}
