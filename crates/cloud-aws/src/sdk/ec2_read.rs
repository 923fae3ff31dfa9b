//! EC2: what a node class selects.

use super::failure::of;
use super::listed::Listed;
use crate::wire::Failure;
use crate::wire::{
    Filter, Image, ImageQuery, PlacementGroup, PlacementQuery, Reservation, ReservationQuery, SecurityGroup, Subnet,
    Tags,
};
use aws_sdk_ec2::Client;
use aws_sdk_ec2::types;
use aws_smithy_types::DateTime;

pub(super) async fn subnets(client: &Client, filters: Vec<Filter>) -> Result<Vec<Subnet>, Failure> {
    let call = client.describe_subnets().set_filters(to_filters(filters));
    let mut pages = call.into_paginator().page_size(500).send();
    let mut found = Listed::new("ec2:DescribeSubnets");
    while let Some(page) = pages.next().await {
        let rows = page.map_err(of("ec2:DescribeSubnets"))?.subnets.unwrap_or_default();
        found.add(rows.into_iter().map(|subnet| Subnet {
            tags: from_tags(subnet.tags()),
            id: subnet.subnet_id.unwrap_or_default(),
            zone: subnet.availability_zone.unwrap_or_default(),
            zone_id: subnet.availability_zone_id.filter(|id| !id.is_empty()),
            vpc_id: subnet.vpc_id.unwrap_or_default(),
            n_free_addresses: i64::from(subnet.available_ip_address_count.unwrap_or_default()),
        }))?;
    }
    Ok(found.rows())
}

pub(super) async fn security_groups(client: &Client, filters: Vec<Filter>) -> Result<Vec<SecurityGroup>, Failure> {
    let call = client.describe_security_groups().set_filters(to_filters(filters));
    let mut pages = call.into_paginator().page_size(500).send();
    let mut found = Listed::new("ec2:DescribeSecurityGroups");
    while let Some(page) = pages.next().await {
        let rows = page.map_err(of("ec2:DescribeSecurityGroups"))?.security_groups.unwrap_or_default();
        found.add(rows.into_iter().map(|group| SecurityGroup {
            tags: from_tags(group.tags()),
            id: group.group_id.unwrap_or_default(),
            name: group.group_name.unwrap_or_default(),
            vpc_id: group.vpc_id.unwrap_or_default(),
        }))?;
    }
    Ok(found.rows())
}

pub(super) async fn images(client: &Client, query: ImageQuery) -> Result<Vec<Image>, Failure> {
    let mut filters = query.filters;
    filters.push(Filter::new("state", ["available"]));
    let call = client
        .describe_images()
        .set_filters(to_filters(filters))
        .set_owners(some(query.owners))
        .include_deprecated(true);
    let mut pages = call.into_paginator().page_size(1000).send();
    let mut found = Listed::new("ec2:DescribeImages");
    while let Some(page) = pages.next().await {
        let rows = page.map_err(of("ec2:DescribeImages"))?.images.unwrap_or_default();
        found.add(rows.into_iter().map(|image| Image {
            architecture: image.architecture.as_ref().map_or_else(String::new, |name| name.as_str().to_owned()),
            id: image.image_id.unwrap_or_default(),
            name: image.name.unwrap_or_default(),
            created: image.creation_date.unwrap_or_default(),
            deprecated_at_ms: image.deprecation_time.as_deref().and_then(text_millis),
            owner: image.owner_id.unwrap_or_default(),
        }))?;
    }
    Ok(found.rows())
}

pub(super) async fn reservations(client: &Client, query: ReservationQuery) -> Result<Vec<Reservation>, Failure> {
    const ACTION: &str = "ec2:DescribeCapacityReservations";
    // EC2 refuses a page size beside ids.
    if let Some(id) = query.id {
        let answer = client.describe_capacity_reservations().capacity_reservation_ids(id).send().await;
        let answer = answer.map_err(of(ACTION))?;
        return Ok(answer.capacity_reservations.unwrap_or_default().into_iter().map(reservation).collect());
    }
    let call = client.describe_capacity_reservations().set_filters(to_filters(query.filters));
    let mut pages = call.into_paginator().page_size(1000).send();
    let mut found = Listed::new(ACTION);
    while let Some(page) = pages.next().await {
        let rows = page.map_err(of(ACTION))?.capacity_reservations.unwrap_or_default();
        found.add(rows.into_iter().map(reservation))?;
    }
    Ok(found.rows())
}

fn reservation(row: types::CapacityReservation) -> Reservation {
    Reservation {
        tags: from_tags(row.tags()),
        match_criteria: row.instance_match_criteria.as_ref().map_or_else(String::new, |it| it.as_str().to_owned()),
        kind: row.reservation_type.as_ref().map_or_else(|| "default".to_owned(), |it| it.as_str().to_owned()),
        is_interruptible: row.interruptible.unwrap_or_default(),
        state: row.state.as_ref().map_or_else(String::new, |state| state.as_str().to_owned()),
        end_ms: row.end_date.as_ref().and_then(millis),
        n_available: u32::try_from(row.available_instance_count.unwrap_or_default()).unwrap_or_default(),
        id: row.capacity_reservation_id.unwrap_or_default(),
        instance_type: row.instance_type.unwrap_or_default(),
        zone: row.availability_zone.unwrap_or_default(),
        owner_id: row.owner_id.unwrap_or_default(),
    }
}

pub(super) async fn placement_groups(client: &Client, query: PlacementQuery) -> Result<Vec<PlacementGroup>, Failure> {
    let call = client.describe_placement_groups().set_group_ids(query.id.map(|id| vec![id]));
    let answer = call.set_filters(to_filters(query.filters)).send().await;
    let answer = answer.map_err(of("ec2:DescribePlacementGroups"))?;
    let group = |row: types::PlacementGroup| PlacementGroup {
        strategy: row.strategy.as_ref().map_or_else(String::new, |it| it.as_str().to_owned()),
        n_partitions: u32::try_from(row.partition_count.unwrap_or_default()).unwrap_or_default(),
        state: row.state.as_ref().map_or_else(String::new, |it| it.as_str().to_owned()),
        id: row.group_id.unwrap_or_default(),
        name: row.group_name.unwrap_or_default(),
    };
    Ok(answer.placement_groups.unwrap_or_default().into_iter().map(group).collect())
}

pub(super) fn to_filters(filters: Vec<Filter>) -> Option<Vec<types::Filter>> {
    let filter = |Filter { name, values }: Filter| types::Filter::builder().name(name).set_values(Some(values)).build();
    some(filters.into_iter().map(filter).collect())
}

/// A list, or nothing at all where it is empty: some calls refuse an empty list.
pub(super) fn some<T>(items: Vec<T>) -> Option<Vec<T>> {
    (!items.is_empty()).then_some(items)
}

pub(super) fn to_tags(tags: &Tags) -> Vec<types::Tag> {
    tags.iter().map(|(key, value)| types::Tag::builder().key(key).value(value).build()).collect()
}

pub(super) fn from_tags(tags: &[types::Tag]) -> Tags {
    let pair = |tag: &types::Tag| Some((tag.key()?.to_owned(), tag.value().unwrap_or_default().to_owned()));
    tags.iter().filter_map(pair).collect()
}

/// One specification per kind of resource, all with the same tags; none where there are no tags.
pub(super) fn tag_specifications(kinds: &[&str], tags: &Tags) -> Option<Vec<types::TagSpecification>> {
    let specification = |kind: &&str| {
        types::TagSpecification::builder().resource_type(types::ResourceType::from(*kind)).set_tags(Some(to_tags(tags)))
    };
    (!tags.is_empty()).then(|| kinds.iter().map(|kind| specification(kind).build()).collect())
}

pub(super) fn millis(time: &DateTime) -> Option<i64> {
    time.to_millis().ok()
}

/// A time that EC2 answers with as text.
fn text_millis(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}
