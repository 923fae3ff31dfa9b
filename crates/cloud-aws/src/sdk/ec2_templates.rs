//! EC2: launch templates.

use super::ec2_read::from_tags;
use super::ec2_read::{some, tag_specifications, to_filters, to_tags};
use super::failure::{incomplete, of};
use super::listed::Listed;
use crate::wire::{
    Failure, Template, TemplateData, TemplateDevice, TemplateInterface, TemplateMetadata, TemplateOrder, TemplateQuery,
    TemplateReservation,
};
use aws_sdk_ec2::Client;
use aws_sdk_ec2::types;

pub(super) async fn create(client: &Client, order: TemplateOrder) -> Result<Template, Failure> {
    const ACTION: &str = "ec2:CreateLaunchTemplate";
    let answer = client
        .create_launch_template()
        .launch_template_name(&order.name)
        .launch_template_data(data(order.data))
        .set_tag_specifications(tag_specifications(&["launch-template"], &order.tags))
        .send()
        .await
        .map_err(of(ACTION))?;
    answer.launch_template.map(template).ok_or_else(|| incomplete(ACTION, "launch template"))
}

pub(super) async fn describe(client: &Client, query: TemplateQuery) -> Result<Vec<Template>, Failure> {
    const ACTION: &str = "ec2:DescribeLaunchTemplates";
    let is_by_name = !query.names.is_empty();
    let call = client
        .describe_launch_templates()
        .set_launch_template_names(some(query.names))
        .set_filters(to_filters(query.filters));
    // EC2 refuses a page size beside names.
    if is_by_name {
        let answer = call.send().await.map_err(of(ACTION))?;
        return Ok(answer.launch_templates.unwrap_or_default().into_iter().map(template).collect());
    }
    let mut pages = call.into_paginator().page_size(200).send();
    let mut found = Listed::new(ACTION);
    while let Some(page) = pages.next().await {
        let rows = page.map_err(of(ACTION))?.launch_templates.unwrap_or_default();
        found.add(rows.into_iter().map(template))?;
    }
    Ok(found.rows())
}

pub(super) async fn delete(client: &Client, id: String) -> Result<(), Failure> {
    let answer = client.delete_launch_template().launch_template_id(id).send().await;
    answer.map(drop).map_err(of("ec2:DeleteLaunchTemplate"))
}

fn template(row: types::LaunchTemplate) -> Template {
    Template {
        tags: from_tags(row.tags()),
        id: row.launch_template_id.unwrap_or_default(),
        name: row.launch_template_name.unwrap_or_default(),
    }
}

fn data(data: TemplateData) -> types::RequestLaunchTemplateData {
    let profile =
        |name: String| types::LaunchTemplateIamInstanceProfileSpecificationRequest::builder().name(name).build();
    let monitoring = |enabled: bool| types::LaunchTemplatesMonitoringRequest::builder().enabled(enabled).build();
    let enclave = |enabled: bool| types::LaunchTemplateEnclaveOptionsRequest::builder().enabled(enabled).build();
    let cpu = |nested: String| {
        let nested = types::NestedVirtualizationSpecification::from(nested.as_str());
        types::LaunchTemplateCpuOptionsRequest::builder().nested_virtualization(nested).build()
    };
    let market = |kind: String| {
        let kind = types::MarketType::from(kind.as_str());
        types::LaunchTemplateInstanceMarketOptionsRequest::builder().market_type(kind).build()
    };
    let tags = |(kind, tags): (String, crate::wire::Tags)| {
        types::LaunchTemplateTagSpecificationRequest::builder()
            .resource_type(types::ResourceType::from(kind.as_str()))
            .set_tags(Some(to_tags(&tags)))
            .build()
    };
    types::RequestLaunchTemplateData::builder()
        .set_placement(placement(&data))
        .set_iam_instance_profile(data.instance_profile.map(profile))
        .image_id(data.image_id)
        .set_user_data(data.user_data)
        .set_block_device_mappings(some(data.block_devices.into_iter().map(device).collect()))
        .set_metadata_options(data.metadata.map(metadata))
        .set_network_interfaces(some(data.interfaces.into_iter().map(interface).collect()))
        .set_monitoring(data.detailed_monitoring.map(monitoring))
        .set_cpu_options(data.nested_virtualization.map(cpu))
        .set_enclave_options(data.enclave.map(enclave))
        .set_tag_specifications(some(data.tag_specifications.into_iter().map(tags).collect()))
        .set_capacity_reservation_specification(data.reservation.map(reservation))
        .set_instance_market_options(data.market.map(market))
        .build()
}

fn placement(data: &TemplateData) -> Option<types::LaunchTemplatePlacementRequest> {
    let says_anything = data.tenancy.is_some() || data.placement_group_id.is_some() || data.partition.is_some();
    let placement = types::LaunchTemplatePlacementRequest::builder()
        .set_tenancy(data.tenancy.as_deref().map(types::Tenancy::from))
        .set_group_id(data.placement_group_id.clone())
        .set_partition_number(data.partition);
    says_anything.then(|| placement.build())
}

fn device(device: TemplateDevice) -> types::LaunchTemplateBlockDeviceMappingRequest {
    let volume = types::LaunchTemplateEbsBlockDeviceRequest::builder()
        .set_delete_on_termination(device.delete_on_termination)
        .set_encrypted(device.encrypted)
        .set_iops(device.iops)
        .set_kms_key_id(device.kms_key_id)
        .set_snapshot_id(device.snapshot_id)
        .set_throughput(device.throughput)
        .set_volume_initialization_rate(device.initialization_rate)
        .set_volume_size(device.size_gib)
        .set_volume_type(device.kind.as_deref().map(types::VolumeType::from))
        .build();
    types::LaunchTemplateBlockDeviceMappingRequest::builder().set_device_name(device.name).ebs(volume).build()
}

fn metadata(metadata: TemplateMetadata) -> types::LaunchTemplateInstanceMetadataOptionsRequest {
    let endpoint = metadata.http_endpoint.as_deref().map(types::LaunchTemplateInstanceMetadataEndpointState::from);
    let ipv6 = metadata.http_protocol_ipv6.as_deref().map(types::LaunchTemplateInstanceMetadataProtocolIpv6::from);
    let tokens = metadata.http_tokens.as_deref().map(types::LaunchTemplateHttpTokensState::from);
    let tags = types::LaunchTemplateInstanceMetadataTagsState::from(metadata.instance_tags.as_str());
    types::LaunchTemplateInstanceMetadataOptionsRequest::builder()
        .set_http_endpoint(endpoint)
        .set_http_protocol_ipv6(ipv6)
        .set_http_put_response_hop_limit(metadata.hop_limit)
        .set_http_tokens(tokens)
        .set_instance_metadata_tags((!metadata.instance_tags.is_empty()).then_some(tags))
        .build()
}

fn interface(interface: TemplateInterface) -> types::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
    let timeouts = [interface.tcp_established_timeout, interface.udp_stream_timeout, interface.udp_timeout];
    let tracking = types::ConnectionTrackingSpecificationRequest::builder()
        .set_tcp_established_timeout(interface.tcp_established_timeout)
        .set_udp_stream_timeout(interface.udp_stream_timeout)
        .set_udp_timeout(interface.udp_timeout)
        .build();
    types::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest::builder()
        .set_network_card_index(interface.card)
        .device_index(interface.device)
        .set_interface_type(interface.kind)
        .set_groups(some(interface.groups))
        .set_associate_public_ip_address(interface.public_address)
        .set_ipv4_prefix_count(interface.ipv4_prefix_count)
        .set_ipv6_prefix_count(interface.ipv6_prefix_count)
        .set_ipv6_address_count(interface.ipv6_address_count)
        .set_primary_ipv6(interface.primary_ipv6)
        .set_connection_tracking_specification(timeouts.iter().any(Option::is_some).then_some(tracking))
        .build()
}

fn reservation(order: TemplateReservation) -> types::LaunchTemplateCapacityReservationSpecificationRequest {
    let target = |id: String| types::CapacityReservationTarget::builder().capacity_reservation_id(id).build();
    types::LaunchTemplateCapacityReservationSpecificationRequest::builder()
        .capacity_reservation_preference(types::CapacityReservationPreference::from(order.preference.as_str()))
        .set_capacity_reservation_target(order.target_id.map(target))
        .build()
}
