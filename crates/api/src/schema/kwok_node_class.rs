//! The schema of KWOKNodeClass.

use serde_json::json;

use super::parts::conditions;
use super::{Schema, object, patterns, text};

pub(crate) fn schema() -> Schema {
    object([
        (
            "spec",
            object([(
                "nodeRegistrationDelay",
                text().pattern(patterns::DURATION).about("How long a pretended machine takes from launch to its Node."),
            )])
            .about("How nodes are pretended."),
        ),
        ("status", status()),
    ])
    .about("A KWOKNodeClass is the NodeClass of machines that are only pretended.")
}

/// Ready from birth: no controller has anything to find out about it.
fn status() -> Schema {
    object([("conditions", conditions())])
        .default(json!({
            "conditions": [{
                "type": "Ready",
                "status": "True",
                "reason": "Ready",
                "message": "",
                "lastTransitionTime": "2024-01-01T01:01:01Z",
            }],
        }))
        .about("What is known of the class.")
}
