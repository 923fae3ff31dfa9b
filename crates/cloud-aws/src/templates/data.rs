//! The contents of a template, as EC2 wants them.

use super::recipe::Recipe;
use crate::settings::Settings;
use crate::wire::{TemplateData, TemplateDevice, TemplateInterface, TemplateMetadata, TemplateReservation};
use kerf_api::{BlockDevice, BlockDeviceMapping, MetadataOptions};
use kerf_cloud::aws::AmiFamily;
use kerf_model::{CapacityType, Quantity};

const GIBIBYTE: i64 = 1 << 30;

/// Regions whose EC2 does not know the IPv6 endpoint of the metadata service.
const WITHOUT_METADATA_IPV6: [&str; 6] =
    ["us-iso-east-1", "us-iso-west-1", "us-isob-east-1", "us-isob-west-1", "us-isof-south-1", "us-isof-east-1"];

/// The error says which field of the class cannot be used.
pub(super) fn template_data(
    recipe: &Recipe,
    settings: &Settings,
    user_data: Option<String>,
) -> Result<TemplateData, String> {
    let mut tag_specifications = vec![("network-interface".to_owned(), recipe.tags.clone())];
    if recipe.tags_spot_requests {
        tag_specifications.push(("spot-instances-request".to_owned(), recipe.tags.clone()));
    }
    Ok(TemplateData {
        instance_profile: recipe.instance_profile.clone(),
        image_id: recipe.image_id.clone(),
        user_data,
        block_devices: devices(recipe)?,
        metadata: Some(metadata(&recipe.metadata, &settings.region)),
        interfaces: interfaces(recipe),
        detailed_monitoring: recipe.detailed_monitoring,
        nested_virtualization: recipe.nested_virtualization.clone(),
        tenancy: Some(recipe.tenancy.clone()),
        placement_group_id: recipe.placement_group_id.clone(),
        partition: recipe.partition,
        enclave: recipe.has_enclave.then_some(true),
        tag_specifications,
        reservation: settings.has_reserved_capacity.then(|| reservation(recipe)),
        market: market(recipe),
    })
}

fn devices(recipe: &Recipe) -> Result<Vec<TemplateDevice>, String> {
    if recipe.block_devices.is_empty() {
        let default = |(name, size_gib): &(&str, i32)| TemplateDevice {
            name: Some((*name).to_owned()),
            encrypted: Some(true),
            size_gib: Some(*size_gib),
            kind: Some("gp3".to_owned()),
            ..TemplateDevice::default()
        };
        return Ok(default_devices(recipe.family).iter().map(default).collect());
    }
    recipe.block_devices.iter().enumerate().map(|(at, mapping)| device(at, mapping)).collect()
}

/// By family: device and gibibytes.
fn default_devices(family: AmiFamily) -> &'static [(&'static str, i32)] {
    match family {
        AmiFamily::Al2 | AmiFamily::Al2023 => &[("/dev/xvda", 20)],
        // The first is the operating system, which pods never write to.
        AmiFamily::Bottlerocket => &[("/dev/xvda", 4), ("/dev/xvdb", 20)],
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => &[("/dev/sda1", 50)],
        AmiFamily::Custom => &[],
    }
}

fn device(at: usize, mapping: &BlockDeviceMapping) -> Result<TemplateDevice, String> {
    let name = mapping.device_name.clone();
    let Some(ebs) = &mapping.ebs else { return Ok(TemplateDevice { name, ..TemplateDevice::default() }) };
    Ok(TemplateDevice {
        name,
        delete_on_termination: ebs.delete_on_termination,
        encrypted: ebs.encrypted,
        iops: not_zero(ebs.iops),
        kms_key_id: ebs.kms_key_id.clone(),
        snapshot_id: ebs.snapshot_id.clone(),
        throughput: not_zero(ebs.throughput),
        initialization_rate: ebs.volume_initialization_rate,
        size_gib: size_gib(at, ebs)?,
        kind: ebs.volume_type.clone(),
    })
}

/// Figures beyond what EC2 can read stay beyond what it allows.
fn not_zero(figure: Option<i64>) -> Option<i32> {
    figure.filter(|figure| *figure != 0).map(|figure| i32::try_from(figure).unwrap_or(i32::MAX))
}

fn size_gib(at: usize, ebs: &BlockDevice) -> Result<Option<i32>, String> {
    let Some(size) = &ebs.volume_size else { return Ok(None) };
    let bytes =
        Quantity::parse(&size.0).map_err(|why| format!("spec.blockDeviceMappings[{at}].ebs.volumeSize: {why}"))?;
    let gibibytes = bytes.units().div_euclid(GIBIBYTE) + i64::from(bytes.units().rem_euclid(GIBIBYTE) != 0);
    Ok(Some(i32::try_from(gibibytes).unwrap_or(i32::MAX)))
}

fn metadata(options: &MetadataOptions, region: &str) -> TemplateMetadata {
    let knows_ipv6 = !WITHOUT_METADATA_IPV6.contains(&region);
    TemplateMetadata {
        http_endpoint: options.http_endpoint.clone(),
        http_protocol_ipv6: options.http_protocol_ipv6.clone().filter(|_| knows_ipv6),
        hop_limit: options.http_put_response_hop_limit.map(|hops| i32::try_from(hops).unwrap_or(i32::MAX)),
        http_tokens: options.http_tokens.clone(),
        instance_tags: "disabled".to_owned(),
    }
}

/// As the class lists them; else one for each network card that has an EFA, where pods ask for that; else one.
fn interfaces(recipe: &Recipe) -> Vec<TemplateInterface> {
    let groups = || recipe.security_groups.clone();
    if !recipe.interfaces.is_empty() {
        let listed = recipe.interfaces.iter().map(|interface| {
            let bare = TemplateInterface {
                card: Some(interface.network_card_index),
                device: interface.device_index,
                kind: Some(interface.interface_type.clone()),
                groups: groups(),
                ..TemplateInterface::default()
            };
            // An interface that is only for EFA has no addresses.
            if interface.interface_type == "efa-only" { bare } else { with_addresses(bare, recipe) }
        });
        return listed.collect();
    }
    if recipe.n_efa > 0 {
        let fast = |card: i32| TemplateInterface {
            card: Some(card),
            // On the first card the first device is the main interface; on the others the first is for the card itself.
            device: i32::from(card != 0),
            kind: Some("efa".to_owned()),
            groups: groups(),
            ..TemplateInterface::default()
        };
        return (0..recipe.n_efa).map(|card| with_addresses(fast(card), recipe)).collect();
    }
    vec![with_addresses(TemplateInterface { groups: groups(), ..TemplateInterface::default() }, recipe)]
}

fn with_addresses(interface: TemplateInterface, recipe: &Recipe) -> TemplateInterface {
    let (prefixes, is_ipv6) = (recipe.ip_prefix_count, recipe.is_ipv6);
    TemplateInterface {
        public_address: recipe.public_address,
        ipv4_prefix_count: prefixes.filter(|_| !is_ipv6),
        ipv6_prefix_count: prefixes.filter(|_| is_ipv6),
        ipv6_address_count: is_ipv6.then_some(1),
        primary_ipv6: is_ipv6.then_some(true),
        tcp_established_timeout: recipe.connection_tracking.tcp_established_timeout,
        udp_stream_timeout: recipe.connection_tracking.udp_stream_timeout,
        udp_timeout: recipe.connection_tracking.udp_timeout,
        ..interface
    }
}

/// Reserved capacity comes from its reservation alone, and other capacity uses up no reservation that happens to be open.
fn reservation(recipe: &Recipe) -> TemplateReservation {
    match &recipe.reservation {
        Some(reservation) => TemplateReservation {
            preference: "capacity-reservations-only".to_owned(),
            target_id: Some(reservation.id.to_string()),
        },
        None => TemplateReservation { preference: "none".to_owned(), target_id: None },
    }
}

fn market(recipe: &Recipe) -> Option<String> {
    let reservation = recipe.reservation.as_ref().filter(|_| recipe.capacity_type == CapacityType::Reserved)?;
    match (&*reservation.kind, reservation.is_interruptible) {
        ("capacity-block", _) => Some("capacity-block".to_owned()),
        (_, true) => Some("interruptible-capacity-reservation".to_owned()),
        _ => None,
    }
}
