//! EC2: which types there are, where they are sold, and what spot costs.
//!
//! What EC2 does not say comes from the built-in catalogue: how many branch interfaces a type has is in no answer of AWS's, only in
//! a table of its network controller.

use super::ec2_read::{millis, to_filters};
use super::failure::of;
use super::listed::Listed;
use crate::wire::{Failure, Filter, SpotPrice, TypeInZone};
use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::retry::RetryConfig;
use aws_sdk_ec2::types::{self, InstanceTypeInfo, LocationType, ProcessorInfo};
use aws_smithy_types::DateTime;
use kerf_cloud::aws::{Accelerator, Gpu, Neuron, PlacementStrategy, TypeFacts, type_facts};
use kerf_model::{Money, Text, UnixMillis};

const TYPES: &str = "ec2:DescribeInstanceTypes";

/// Asks whether the call would be allowed, once.
pub(super) async fn probe(client: &Client) -> Result<Vec<TypeFacts>, Failure> {
    let answer = client
        .describe_instance_types()
        .dry_run(true)
        .customize()
        .config_override(aws_sdk_ec2::config::Config::builder().retry_config(RetryConfig::disabled()))
        .send()
        .await;
    match answer.map_err(of(TYPES)) {
        Ok(_) => Ok(Vec::new()),
        Err(failure) if failure.is_dry_run_passed() => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}

pub(super) async fn describe(client: &Client) -> Result<Vec<TypeFacts>, Failure> {
    let filters = vec![
        Filter::new("supported-virtualization-type", ["hvm"]),
        Filter::new("processor-info.supported-architecture", ["x86_64", "arm64"]),
    ];
    let call = client.describe_instance_types().set_filters(to_filters(filters));
    let mut pages = call.into_paginator().page_size(100).send();
    let mut found = Listed::new(TYPES);
    while let Some(page) = pages.next().await {
        found.add(page.map_err(of(TYPES))?.instance_types().iter().filter_map(facts))?;
    }
    Ok(found.rows())
}

pub(super) async fn offerings(client: &Client) -> Result<Vec<TypeInZone>, Failure> {
    let call = client.describe_instance_type_offerings().location_type(LocationType::AvailabilityZone);
    const ACTION: &str = "ec2:DescribeInstanceTypeOfferings";
    let mut pages = call.into_paginator().page_size(1000).send();
    let mut found = Listed::new(ACTION);
    while let Some(page) = pages.next().await {
        let rows = page.map_err(of(ACTION))?.instance_type_offerings.unwrap_or_default();
        found.add(rows.into_iter().filter_map(|row| {
            let instance_type = row.instance_type?.as_str().to_owned();
            Some(TypeInZone { instance_type, zone: row.location? })
        }))?;
    }
    Ok(found.rows())
}

pub(super) async fn spot_prices(client: &Client, now: UnixMillis) -> Result<Vec<SpotPrice>, Failure> {
    let call = client
        .describe_spot_price_history()
        .product_descriptions("Linux/UNIX")
        .product_descriptions("Linux/UNIX (Amazon VPC)")
        .start_time(DateTime::from_millis(now.0));
    const ACTION: &str = "ec2:DescribeSpotPriceHistory";
    let mut pages = call.into_paginator().page_size(2000).send();
    let mut found = Listed::new(ACTION);
    while let Some(page) = pages.next().await {
        let rows = page.map_err(of(ACTION))?.spot_price_history.unwrap_or_default();
        found.add(rows.into_iter().filter_map(spot_price))?;
    }
    Ok(found.rows())
}

/// A row that says no price is of no use, and no reason to give up the others.
fn spot_price(row: types::SpotPrice) -> Option<SpotPrice> {
    let dollars = row.spot_price?.parse::<f64>().ok()?;
    Some(SpotPrice {
        instance_type: row.instance_type?.as_str().to_owned(),
        zone: row.availability_zone?,
        price: Money::from_dollars(dollars),
        at_ms: row.timestamp.as_ref().and_then(millis).unwrap_or_default(),
    })
}

/// None for a type without a name or without an architecture that nodes can have.
fn facts(info: &InstanceTypeInfo) -> Option<TypeFacts> {
    let name = info.instance_type()?.as_str();
    let listed = type_facts(name);
    let processor = info.processor_info()?;
    let network = info.network_info();
    let default_card = network.and_then(|it| it.default_network_card_index()).unwrap_or_default();
    let cards = network.map(|it| it.network_cards()).unwrap_or_default();
    let card = cards.iter().find(|card| card.network_card_index().unwrap_or_default() == default_card);
    let baseline_gbps: f64 = cards.iter().filter_map(|card| card.baseline_bandwidth_in_gbps()).sum();
    let network_mbps = (baseline_gbps > 0.0).then_some((baseline_gbps * 1000.0).round() as u32);
    let ebs = info.ebs_info();
    let has_own_ebs_line = ebs.and_then(|it| it.ebs_optimized_support()).is_some_and(|it| it.as_str() == "default");
    let ebs_figures = ebs.filter(|_| has_own_ebs_line).and_then(|it| it.ebs_optimized_info());
    let disks = info.instance_storage_info();
    let sells = |class: &str| info.supported_usage_classes().iter().any(|it| it.as_str() == class);
    let strategies = info.placement_group_info().map(|it| it.supported_strategies()).unwrap_or_default();
    let facts = TypeFacts {
        name: name.into(),
        architectures: architectures(processor),
        cpu_maker: processor.manufacturer().map_or_else(|| Text::from("-"), kebab),
        clock_mhz: processor.sustained_clock_speed_in_ghz().map(|ghz| (ghz * 1000.0).round() as u32),
        vcpus: count(info.v_cpu_info().and_then(|it| it.default_v_cpus())),
        memory_mib: info.memory_info().and_then(|it| it.size_in_mib()).map_or(0, i64::unsigned_abs),
        hypervisor: info.hypervisor().map_or_else(|| Text::from(""), |it| it.as_str().into()),
        interfaces: count(card.and_then(|card| card.maximum_network_interfaces())),
        addresses_per_interface: count(network.and_then(|it| it.ipv4_addresses_per_interface())),
        branch_interfaces: listed.and_then(|listed| listed.branch_interfaces),
        network_cards: u32::try_from(cards.len()).unwrap_or_default(),
        card_interfaces: card_interfaces(cards),
        network_mbps: network_mbps.or_else(|| listed.and_then(|listed| listed.network_mbps)),
        ebs_mbps: ebs_figures.and_then(|it| it.maximum_bandwidth_in_mbps()).map(i32::unsigned_abs),
        ebs_volumes: ebs
            .and_then(|it| it.maximum_ebs_attachments())
            .map(i32::unsigned_abs)
            .or_else(|| listed.and_then(|listed| listed.ebs_volumes)),
        disk_gb: disks.and_then(|it| it.total_size_in_gb()).and_then(|gb| u32::try_from(gb).ok()),
        disk_is_nvme: disks.is_some_and(|it| it.nvme_support().is_none_or(|support| support.as_str() != "unsupported")),
        gpus: gpus(info),
        accelerators: accelerators(info),
        neurons: neurons(info),
        efa_interfaces: count(network.and_then(|it| it.efa_info()).and_then(|it| it.maximum_efa_interfaces())),
        has_ena: network.and_then(|it| it.ena_support()).is_some_and(|support| support.as_str() != "unsupported"),
        is_bare_metal: info.bare_metal().unwrap_or_default(),
        encrypts_in_transit: network.and_then(|it| it.encryption_in_transit_supported()).unwrap_or_default(),
        has_enclaves: info.nitro_enclaves_support().is_some_and(|support| support.as_str() == "supported"),
        nests_virtualization: processor.supported_features().iter().any(|it| it.as_str() == "nested-virtualization"),
        placement: strategies.iter().filter_map(|it| PlacementStrategy::parse(it.as_str())).collect(),
        sells_on_demand: sells("on-demand"),
        sells_spot: sells("spot"),
    };
    (!facts.architectures.is_empty()).then_some(facts)
}

/// In order of the cards' indices.
fn card_interfaces(cards: &[types::NetworkCardInfo]) -> Vec<u32> {
    let figures = |card: &types::NetworkCardInfo| {
        (card.network_card_index().unwrap_or_default(), count(card.maximum_network_interfaces()))
    };
    let mut by_index: Vec<(i32, u32)> = cards.iter().map(figures).collect();
    by_index.sort_unstable();
    by_index.into_iter().map(|(_, n_interfaces)| n_interfaces).collect()
}

/// As Kubernetes names them.
fn architectures(processor: &ProcessorInfo) -> Vec<Text> {
    let known = |it: &types::ArchitectureType| match it.as_str() {
        "x86_64" => Some(Text::from("amd64")),
        "arm64" => Some(Text::from("arm64")),
        _ => None,
    };
    processor.supported_architectures().iter().filter_map(known).collect()
}

fn gpus(info: &InstanceTypeInfo) -> Vec<Gpu> {
    let rows = info.gpu_info().map(|it| it.gpus()).unwrap_or_default();
    let gpu = |row: &types::GpuDeviceInfo| Gpu {
        count: count(row.count()),
        maker: kebab(row.manufacturer().unwrap_or_default()),
        name: kebab(row.name().unwrap_or_default()),
        memory_mib: count(row.memory_info().and_then(|it| it.size_in_mib())),
    };
    rows.iter().map(gpu).collect()
}

fn accelerators(info: &InstanceTypeInfo) -> Vec<Accelerator> {
    let rows = info.inference_accelerator_info().map(|it| it.accelerators()).unwrap_or_default();
    let accelerator = |row: &types::InferenceDeviceInfo| Accelerator {
        count: count(row.count()),
        maker: kebab(row.manufacturer().unwrap_or_default()),
        name: kebab(row.name().unwrap_or_default()),
    };
    rows.iter().map(accelerator).collect()
}

fn neurons(info: &InstanceTypeInfo) -> Vec<Neuron> {
    let rows = info.neuron_info().map(|it| it.neuron_devices()).unwrap_or_default();
    let neuron = |row: &types::NeuronDeviceInfo| Neuron {
        count: count(row.count()),
        cores_each: count(row.core_info().and_then(|it| it.count())),
        name: kebab(row.name().unwrap_or_default()),
    };
    rows.iter().map(neuron).collect()
}

fn count(number: Option<i32>) -> u32 {
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
}

/// As label values have it.
fn kebab(text: &str) -> Text {
    text.to_lowercase().replace(' ', "-").into()
}
