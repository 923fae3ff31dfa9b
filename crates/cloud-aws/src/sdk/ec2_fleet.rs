//! EC2: launches, and the questions whether one would be allowed.

use super::ec2_read::{some, tag_specifications};
use super::failure::of;
use crate::wire::{Failure, FleetConfig, FleetError, FleetInstance, FleetOrder, FleetOverride, FleetReply, RunOrder};
use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::retry::RetryConfig;
use aws_sdk_ec2::types;

/// A template may gain versions; ours have one, and this is how an existing installation asks.
const LATEST: &str = "$Latest";

/// A dry run that would pass is an empty reply.
pub(super) async fn create(client: &Client, order: FleetOrder) -> Result<FleetReply, Failure> {
    let is_dry_run = order.dry_run;
    let call = request(client, order).customize();
    // A dry run asks about rights, which a second try does not change.
    let call = match is_dry_run {
        true => call.config_override(aws_sdk_ec2::config::Config::builder().retry_config(RetryConfig::disabled())),
        false => call,
    };
    match call.send().await.map_err(of("ec2:CreateFleet")) {
        Ok(answer) => Ok(reply(answer)),
        Err(failure) if is_dry_run && failure.is_dry_run_passed() => Ok(FleetReply::default()),
        Err(failure) => Err(failure),
    }
}

fn request(
    client: &Client,
    order: FleetOrder,
) -> aws_sdk_ec2::operation::create_fleet::builders::CreateFleetFluentBuilder {
    let capacity = types::TargetCapacitySpecificationRequest::builder()
        .total_target_capacity(order.n_instances)
        .default_target_capacity_type(types::DefaultTargetCapacityType::from(order.capacity_type.as_str()))
        .build();
    let spot = |strategy: String| {
        let strategy = types::SpotAllocationStrategy::from(strategy.as_str());
        types::SpotOptionsRequest::builder().allocation_strategy(strategy).build()
    };
    let on_demand = |strategy: String| {
        let strategy = types::FleetOnDemandAllocationStrategy::from(strategy.as_str());
        types::OnDemandOptionsRequest::builder().allocation_strategy(strategy).build()
    };
    let kinds = order.reservation_types.iter().map(|kind| types::FleetReservationType::from(kind.as_str())).collect();
    let reserved = some(kinds)
        .map(|kinds| types::ReservedCapacityOptionsRequest::builder().set_reservation_types(Some(kinds)).build());
    client
        .create_fleet()
        .r#type(types::FleetType::Instant)
        .set_context(order.context)
        .set_launch_template_configs(Some(order.configs.into_iter().map(config).collect()))
        .target_capacity_specification(capacity)
        .set_spot_options(order.spot_strategy.map(spot))
        .set_on_demand_options(order.on_demand_strategy.map(on_demand))
        .set_reserved_capacity_options(reserved)
        .set_tag_specifications(tag_specifications(&["instance", "volume", "fleet"], &order.tags))
        .set_client_token(order.client_token)
        .set_dry_run(order.dry_run.then_some(true))
}

fn config(config: FleetConfig) -> types::FleetLaunchTemplateConfigRequest {
    let template = types::FleetLaunchTemplateSpecificationRequest::builder()
        .launch_template_name(config.template_name)
        .version(LATEST)
        .build();
    let one = |it: FleetOverride| {
        types::FleetLaunchTemplateOverridesRequest::builder()
            .instance_type(types::InstanceType::from(it.instance_type.as_str()))
            .set_subnet_id(it.subnet_id)
            .set_image_id(it.image_id)
            .set_availability_zone((!it.zone.is_empty()).then_some(it.zone))
            .set_priority(it.priority.map(kerf_model::Money::dollars))
            .build()
    };
    types::FleetLaunchTemplateConfigRequest::builder()
        .launch_template_specification(template)
        .set_overrides(some(config.overrides.into_iter().map(one).collect()))
        .build()
}

fn reply(answer: aws_sdk_ec2::operation::create_fleet::CreateFleetOutput) -> FleetReply {
    FleetReply {
        fleet_id: answer.fleet_id,
        instances: answer.instances.unwrap_or_default().into_iter().map(instance).collect(),
        errors: answer.errors.unwrap_or_default().into_iter().map(error).collect(),
    }
}

fn instance(row: types::CreateFleetInstance) -> FleetInstance {
    let echo = row.launch_template_and_overrides;
    let template = echo.as_ref().and_then(|echo| echo.launch_template_specification());
    let over = echo.as_ref().and_then(|echo| echo.overrides());
    let echoed_type = || over.and_then(|over| over.instance_type()).map(|it| it.as_str().to_owned());
    FleetInstance {
        ids: row.instance_ids.unwrap_or_default(),
        instance_type: row.instance_type.map(|it| it.as_str().to_owned()).or_else(echoed_type).unwrap_or_default(),
        zone: over.and_then(|over| over.availability_zone()).map(str::to_owned),
        subnet_id: over.and_then(|over| over.subnet_id()).map(str::to_owned),
        image_id: over.and_then(|over| over.image_id()).map(str::to_owned),
        template_name: template.and_then(|template| template.launch_template_name()).map(str::to_owned),
        is_spot: row.lifecycle.is_some_and(|lifecycle| lifecycle.as_str() == "spot"),
    }
}

fn error(row: types::CreateFleetError) -> FleetError {
    let over = row.launch_template_and_overrides.as_ref().and_then(|echo| echo.overrides());
    FleetError {
        instance_type: over.and_then(|over| over.instance_type()).map(|it| it.as_str().to_owned()),
        zone: over.and_then(|over| over.availability_zone()).map(str::to_owned),
        subnet_id: over.and_then(|over| over.subnet_id()).map(str::to_owned),
        code: row.error_code.unwrap_or_default(),
        message: row.error_message.unwrap_or_default(),
    }
}

/// Passes silently where the launch would be allowed.
pub(super) async fn run_dry(client: &Client, order: RunOrder) -> Result<(), Failure> {
    let template =
        types::LaunchTemplateSpecification::builder().launch_template_name(order.template_name).version(LATEST).build();
    // The template has interfaces, and beside interfaces EC2 refuses a subnet of the instance itself: it goes onto the first one.
    let interface = |subnet: String| {
        types::InstanceNetworkInterfaceSpecification::builder().device_index(0).subnet_id(subnet).build()
    };
    let market = types::InstanceMarketOptionsRequest::builder().market_type(types::MarketType::Spot).build();
    let answer = client
        .run_instances()
        .dry_run(true)
        .min_count(1)
        .max_count(1)
        .launch_template(template)
        .instance_type(types::InstanceType::from(order.instance_type.as_str()))
        .set_image_id(order.image_id)
        .set_network_interfaces(order.subnet_id.map(|subnet| vec![interface(subnet)]))
        .set_instance_market_options(order.is_spot.then_some(market))
        .set_tag_specifications(tag_specifications(&["instance", "volume", "network-interface"], &order.tags))
        .customize()
        .config_override(aws_sdk_ec2::config::Config::builder().retry_config(RetryConfig::disabled()))
        .send()
        .await;
    match answer.map_err(of("ec2:RunInstances")) {
        Err(failure) if !failure.is_dry_run_passed() => Err(failure),
        _ => Ok(()),
    }
}
