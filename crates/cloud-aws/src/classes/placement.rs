//! The placement group of a class. The class's status has no place for it: what was found is handed to the supply, which
//! keeps it for a day.

use crate::memory::Memory;
use crate::wire::{Aws, Failure, Filter, PlacementGroup, PlacementQuery};
use kerf_api::PlacementGroupSelector;
use kerf_model::UnixMillis;
use std::time::Duration;

const FRESH_FOR: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Placements {
    /// What was found lately, nothing included.
    fresh: Memory<String, Option<PlacementGroup>>,
}

impl Default for Placements {
    fn default() -> Self {
        Self { fresh: Memory::new(FRESH_FOR) }
    }
}

impl Placements {
    pub(super) async fn find(
        &self,
        wire: &dyn Aws,
        selector: &PlacementGroupSelector,
        now: UnixMillis,
    ) -> Result<Option<PlacementGroup>, Failure> {
        let key = key(selector);
        if let Some(fresh) = self.fresh.get(&key, now) {
            return Ok(fresh);
        }
        let mut filters = vec![Filter::new("state", ["available"])];
        if selector.id.is_none() {
            filters.push(Filter::new("group-name", &selector.name));
        }
        let found = match wire.describe_placement_groups(PlacementQuery { id: selector.id.clone(), filters }).await {
            Ok(groups) => groups.into_iter().next(),
            // Unknown, or malformed: either way there is none.
            Err(failure) if failure.code.starts_with("InvalidPlacementGroup") => None,
            Err(failure) => return Err(failure),
        };
        self.fresh.put(key, found.clone(), now);
        Ok(found)
    }
}

/// A selector in words.
pub(super) fn key(selector: &PlacementGroupSelector) -> String {
    match (&selector.id, &selector.name) {
        (Some(id), _) => format!("id {id}"),
        (None, name) => format!("name {}", name.as_deref().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::now_ready;
    use crate::wire::scripted::Scripted;
    use serde_json::json;

    const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

    #[test]
    fn a_group_that_is_available_is_found_by_name_or_id_and_not_asked_for_again_for_a_minute() {
        let aws = Scripted::default();
        let group = |id: &str, state: &str| PlacementGroup {
            id: id.to_owned(),
            name: "rack".to_owned(),
            strategy: "cluster".to_owned(),
            n_partitions: 0,
            state: state.to_owned(),
        };
        aws.account().placement_groups = vec![group("pg-0", "deleting"), group("pg-1", "available")];
        let placements = Placements::default();
        for (selector, at_ms, expected, n_asked) in [
            (json!({"name": "rack"}), 0, Some("pg-1"), 1),
            (json!({"name": "rack"}), 59_999, Some("pg-1"), 1),
            (json!({"name": "rack"}), 60_000, Some("pg-1"), 2),
            (json!({"id": "pg-1"}), 0, Some("pg-1"), 3),
            (json!({"id": "pg-0"}), 0, None, 4),
            (json!({"id": "pg-9"}), 0, None, 5),
        ] {
            let selector: PlacementGroupSelector = serde_json::from_value(selector).unwrap();
            let found = now_ready(placements.find(&aws, &selector, UnixMillis(NOW.0 + at_ms))).unwrap();
            assert_eq!(found.as_ref().map(|group| group.id.as_str()), expected, "{selector:?}");
            assert_eq!(aws.count("ec2:DescribePlacementGroups"), n_asked, "{selector:?}");
        }
    }
}
