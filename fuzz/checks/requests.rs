//! The request path over raw requests: whatever a client sends is answered with an object or a `Status`, never with a panic.
//!
//! An input is a sequence of requests, parted by a line `---`:
//!
//! ```text
//! PATCH /api/v1/namespaces/default/configmaps/a?dryRun=All
//! Content-Type: application/merge-patch+json
//!
//! {"data": null}
//! ```

use crate::control_plane::{Rehearsal, request};

pub(crate) fn check(text: &str) {
    let mut rehearsal = Rehearsal::new(text.len().is_multiple_of(4));
    for raw in text.split("\n---\n").take(16) {
        let (head, body) = raw.split_once("\n\n").unwrap_or((raw, ""));
        let mut lines = head.lines();
        let first = lines.next().unwrap_or_default();
        let (method, target) = first.split_once(' ').unwrap_or((first, "/"));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut asked = request(method, path, query, "application/json", body.to_owned());
        for line in lines {
            match line.split_once(": ") {
                Some(("Accept", value)) => value.clone_into(&mut asked.accept),
                Some(("Content-Type", value)) => value.clone_into(&mut asked.content_type),
                Some(("User-Agent", value)) => value.clone_into(&mut asked.user_agent),
                _ => {}
            }
        }
        rehearsal.ask(&asked);
        rehearsal.settle();
    }
    rehearsal.end();
}
