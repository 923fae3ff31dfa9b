//! Application Recovery Controller: zones that traffic is shifted away from.

use super::failure::of;
use crate::wire::{Failure, ZonalShift};
use aws_sdk_arczonalshift::Client;

pub(super) async fn shifts(client: &Client, arn: String) -> Result<Vec<ZonalShift>, Failure> {
    let answer = client.get_managed_resource().resource_identifier(arn).send().await;
    let answer = answer.map_err(of("arc-zonal-shift:GetManagedResource"))?;
    let shift = |row: &aws_sdk_arczonalshift::types::ZonalShiftInResource| ZonalShift {
        zone_id: row.away_from().to_owned(),
        status: row.applied_status().as_str().to_owned(),
        expires_ms: row.expiry_time().to_millis().unwrap_or_default(),
    };
    Ok(answer.zonal_shifts().iter().map(shift).collect())
}
