//! EC2: instances that there are.

use super::ec2_read::{from_tags, millis, some, to_filters, to_tags};
use super::failure::of;
use super::listed::Listed;
use crate::wire::{
    Ec2Instance, Failure, Filter, InstanceQuery, InstanceStateChange, InstanceStatus, ScheduledEvent, Tags,
};
use aws_sdk_ec2::Client;
use aws_sdk_ec2::types;

pub(super) async fn describe(client: &Client, query: InstanceQuery) -> Result<Vec<Ec2Instance>, Failure> {
    const ACTION: &str = "ec2:DescribeInstances";
    let is_by_id = !query.ids.is_empty();
    let call = client.describe_instances().set_instance_ids(some(query.ids)).set_filters(to_filters(query.filters));
    let of_reservation = |it: types::Reservation| it.instances.unwrap_or_default().into_iter().map(instance);
    // EC2 refuses a page size beside ids.
    if is_by_id {
        let answer = call.send().await.map_err(of(ACTION))?;
        return Ok(answer.reservations.unwrap_or_default().into_iter().flat_map(of_reservation).collect());
    }
    let mut pages = call.into_paginator().page_size(1000).send();
    let mut found = Listed::new(ACTION);
    while let Some(page) = pages.next().await {
        let rows = page.map_err(of(ACTION))?.reservations.unwrap_or_default();
        found.add(rows.into_iter().flat_map(of_reservation))?;
    }
    Ok(found.rows())
}

fn instance(row: types::Instance) -> Ec2Instance {
    let placement = row.placement();
    let specification = row.capacity_reservation_specification();
    let preference = specification.and_then(|it| it.capacity_reservation_preference());
    let interfaces = row.network_interfaces().iter();
    let is_efa = |kind: &str| matches!(kind, "efa" | "efa-only");
    let n_efa = interfaces.filter(|it| it.interface_type().is_some_and(is_efa)).count();
    let has_spot_lifecycle = row.instance_lifecycle().is_some_and(|it| it.as_str() == "spot");
    Ec2Instance {
        state: row.state().and_then(|state| state.name()).map_or_else(String::new, |it| it.as_str().to_owned()),
        zone: placement.and_then(|it| it.availability_zone()).unwrap_or_default().to_owned(),
        zone_id: placement.and_then(|it| it.availability_zone_id()).map(str::to_owned),
        tenancy: placement.and_then(|it| it.tenancy()).map(|it| it.as_str().to_owned()),
        placement_group_id: placement.and_then(|it| it.group_id()).filter(|id| !id.is_empty()).map(str::to_owned),
        partition: placement.and_then(|it| it.partition_number()),
        is_spot: has_spot_lifecycle || row.spot_instance_request_id().is_some_and(|id| !id.is_empty()),
        reservation_preference: preference.map(|it| it.as_str().to_owned()),
        n_efa_interfaces: u32::try_from(n_efa).unwrap_or_default(),
        security_group_ids: row.security_groups().iter().filter_map(|it| it.group_id()).map(str::to_owned).collect(),
        launched_ms: row.launch_time().and_then(millis).unwrap_or_default(),
        tags: from_tags(row.tags()),
        instance_type: row.instance_type().map_or_else(String::new, |it| it.as_str().to_owned()),
        id: row.instance_id.unwrap_or_default(),
        subnet_id: row.subnet_id,
        image_id: row.image_id.unwrap_or_default(),
        private_dns_name: row.private_dns_name.filter(|name| !name.is_empty()),
        reservation_id: row.capacity_reservation_id,
    }
}

pub(super) async fn terminate(client: &Client, ids: Vec<String>) -> Result<Vec<InstanceStateChange>, Failure> {
    let answer = client.terminate_instances().set_instance_ids(Some(ids)).send().await;
    let answer = answer.map_err(of("ec2:TerminateInstances"))?;
    let change = |row: types::InstanceStateChange| InstanceStateChange {
        state: row.current_state().and_then(|it| it.name()).map_or_else(String::new, |it| it.as_str().to_owned()),
        id: row.instance_id.unwrap_or_default(),
    };
    Ok(answer.terminating_instances.unwrap_or_default().into_iter().map(change).collect())
}

pub(super) async fn reboot(client: &Client, ids: Vec<String>) -> Result<(), Failure> {
    let answer = client.reboot_instances().set_instance_ids(Some(ids)).send().await;
    answer.map(drop).map_err(of("ec2:RebootInstances"))
}

pub(super) async fn tag(client: &Client, ids: Vec<String>, tags: Tags) -> Result<(), Failure> {
    let answer = client.create_tags().set_resources(Some(ids)).set_tags(Some(to_tags(&tags))).send().await;
    answer.map(drop).map_err(of("ec2:CreateTags"))
}

pub(super) async fn statuses(client: &Client, filters: Vec<Filter>) -> Result<Vec<InstanceStatus>, Failure> {
    let call = client.describe_instance_status().set_filters(to_filters(filters.clone()));
    const ACTION: &str = "ec2:DescribeInstanceStatus";
    let mut pages = call.into_paginator().send();
    let mut found = Listed::new(ACTION);
    // A server that ignores the filters would have every instance of the account impaired.
    let is_asked_for = |status: &InstanceStatus| filters.iter().all(|filter| passes(filter, status));
    while let Some(page) = pages.next().await {
        let rows = page.map_err(of(ACTION))?.instance_statuses.unwrap_or_default();
        found.add(rows.into_iter().map(status).filter(is_asked_for))?;
    }
    Ok(found.rows())
}

fn passes(filter: &Filter, status: &InstanceStatus) -> bool {
    match filter.name.as_str() {
        "instance-status.status" => filter.values.contains(&status.instance_status),
        "system-status.status" => filter.values.contains(&status.system_status),
        "event.code" => status.events.iter().any(|event| filter.values.contains(&event.code)),
        _ => true,
    }
}

fn status(row: types::InstanceStatus) -> InstanceStatus {
    let word = |summary: Option<&types::InstanceStatusSummary>| {
        summary.and_then(|it| it.status()).map_or_else(String::new, |it| it.as_str().to_owned())
    };
    let since = |summary: Option<&types::InstanceStatusSummary>| {
        let details = summary.map(|it| it.details()).unwrap_or_default();
        let failed = details.iter().filter(|it| it.status().is_some_and(|status| status.as_str() == "failed"));
        failed.filter_map(|it| it.impaired_since().and_then(millis)).min()
    };
    let event = |row: &types::InstanceStatusEvent| ScheduledEvent {
        code: row.code().map_or_else(String::new, |code| code.as_str().to_owned()),
        description: row.description().unwrap_or_default().to_owned(),
        not_before_ms: row.not_before().and_then(millis),
    };
    InstanceStatus {
        instance_status: word(row.instance_status()),
        system_status: word(row.system_status()),
        instance_impaired_since_ms: since(row.instance_status()),
        system_impaired_since_ms: since(row.system_status()),
        events: row.events().iter().map(event).collect(),
        id: row.instance_id.unwrap_or_default(),
    }
}
