//! The schema of NodeOverlay.

use super::parts::{conditions, overlay_requirements, resource_list};
use super::rule::Look as _;
use super::{Rule, Schema, int32, object, patterns, text};

/// What every machine has already; an overlay only adds.
const BASIC_RESOURCES: &[&str] = &["cpu", "memory", "ephemeral-storage", "pods"];

pub(crate) fn schema() -> Schema {
    object([
        ("spec", spec()),
        ("status", object([("conditions", conditions())]).about("What is known of the overlay.")),
    ])
    .require(["spec"])
    .about("Alpha. A NodeOverlay corrects the price, or adds to the capacity, of the offerings it selects.")
}

fn spec() -> Schema {
    object([
        ("requirements", overlay_requirements()),
        ("price", text().pattern(patterns::PRICE).about("The price to reckon with instead of the cloud's.")),
        (
            "priceAdjustment",
            text().pattern(patterns::PRICE_ADJUSTMENT).about(
                "A change of the cloud's price: a signed number (+0.5, -1.2) or a signed percentage (+10%, -15%).",
            ),
        ),
        (
            "capacity",
            resource_list()
                .about("Extended resources that the selected machines have beside what the cloud knows of.")
                .rule(Rule::new(
                    "self.all(name, !(name in ['cpu', 'memory', 'ephemeral-storage', 'pods']))",
                    "cpu, memory, ephemeral-storage and pods come from the cloud; only extended resources can be added",
                    |map| map.keys().all(|name| !BASIC_RESOURCES.contains(&name.as_str())),
                )),
        ),
        (
            "weight",
            int32().range(1, 10_000).about("Where overlays disagree, the heavier one counts. Unset counts as 0."),
        ),
    ])
    .require(["requirements"])
    .rule(Rule::new(
        "!(has(self.price) && has(self.priceAdjustment))",
        "set price or priceAdjustment, not both",
        |spec| !(spec.has("price") && spec.has("priceAdjustment")),
    ))
    .about("What to change, and where.")
}
