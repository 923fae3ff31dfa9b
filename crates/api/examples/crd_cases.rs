//! Prints the table of accepted and rejected objects as one JSON array, for judges that do not speak Rust.

use std::io::Write as _;

use kerf_api::testing::{Expect, crd_cases};
use serde_json::json;

fn main() -> std::io::Result<()> {
    let rows: Vec<_> = crd_cases()
        .into_iter()
        .map(|case| {
            let (accept, text) = match case.expect {
                Expect::Accept => (true, None),
                Expect::Reject { text } => (false, Some(text)),
            };
            json!({
                "name": case.name, "object": case.object, "update_from": case.update_from, "subresource": case.subresource,
                "accept": accept, "text": text,
            })
        })
        .collect();
    writeln!(std::io::stdout(), "{}", serde_json::Value::Array(rows))
}
