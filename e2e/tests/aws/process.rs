//! Our operator as these tests start it: with the SDK in it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub(crate) use kerf_e2e::operator::Operator;

/// Starts it with these variables and no others. `name` names its log in `folder`.
pub(crate) fn start(folder: &Path, name: &str, variables: &[(String, String)]) -> Operator {
    let variables = variables.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    Operator::start(binary(), "aws", folder, name, variables).unwrap()
}

/// `KERF_AWS_BINARY` names one that is built already.
pub(crate) fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| kerf_e2e::operator::binary("KERF_AWS_BINARY", &["aws"]).unwrap())
}
