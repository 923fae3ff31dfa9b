//! Launch templates, fleets and their dry runs.

use crate::recorder::{Recorder, assert_form};
use kerf_cloud_aws::wire::*;
use kerf_model::Money;

fn tags(pairs: &[(&str, &str)]) -> Tags {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn order() -> FleetOrder {
    let over = |kind: &str, zone: &str, micros: i64| FleetOverride {
        instance_type: kind.to_owned(),
        subnet_id: Some(format!("subnet-{zone}")),
        image_id: Some("ami-1".to_owned()),
        zone: format!("us-west-2{zone}"),
        priority: Some(Money::from_micros(micros)),
    };
    FleetOrder {
        context: None,
        configs: vec![FleetConfig {
            template_name: "karpenter.k8s.aws/42".to_owned(),
            overrides: vec![over("m5.large", "a", 96_000), over("c5.large", "b", 85_000)],
        }],
        n_instances: 3,
        capacity_type: "spot".to_owned(),
        spot_strategy: Some("price-capacity-optimized".to_owned()),
        tags: tags(&[("karpenter.sh/nodepool", "default")]),
        ..FleetOrder::default()
    }
}

const FLEET: &str = r#"<CreateFleetResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r-1</requestId>
<fleetId>fleet-1</fleetId>
<fleetInstanceSet><item><launchTemplateAndOverrides><launchTemplateSpecification><launchTemplateId>lt-1</launchTemplateId>
<launchTemplateName>karpenter.k8s.aws/42</launchTemplateName><version>1</version></launchTemplateSpecification>
<overrides><instanceType>c5.large</instanceType><subnetId>subnet-b</subnetId><availabilityZone>us-west-2b</availabilityZone>
<imageId>ami-1</imageId></overrides></launchTemplateAndOverrides><lifecycle>spot</lifecycle>
<instanceIds><item>i-1</item><item>i-2</item></instanceIds><instanceType>c5.large</instanceType></item></fleetInstanceSet>
<errorSet><item><launchTemplateAndOverrides><overrides><instanceType>m5.large</instanceType>
<availabilityZone>us-west-2a</availabilityZone><subnetId>subnet-a</subnetId></overrides></launchTemplateAndOverrides>
<lifecycle>spot</lifecycle><errorCode>InsufficientInstanceCapacity</errorCode><errorMessage>none left</errorMessage></item></errorSet>
</CreateFleetResponse>"#;

#[test]
fn a_fleet_is_instant_with_its_overrides_and_tags_on_instance_volume_and_fleet() {
    let recorder = Recorder::new(&[(200, FLEET)]);
    let reply = recorder.call(|sdk| sdk.create_fleet(order())).unwrap();
    assert_form(
        &without_token(&recorder),
        "Action=CreateFleet
         Version=2016-11-15
         Type=instant
         LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName=karpenter.k8s.aws/42
         LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version=$Latest
         LaunchTemplateConfigs.1.Overrides.1.InstanceType=m5.large
         LaunchTemplateConfigs.1.Overrides.1.SubnetId=subnet-a
         LaunchTemplateConfigs.1.Overrides.1.ImageId=ami-1
         LaunchTemplateConfigs.1.Overrides.1.AvailabilityZone=us-west-2a
         LaunchTemplateConfigs.1.Overrides.1.Priority=0.096
         LaunchTemplateConfigs.1.Overrides.2.InstanceType=c5.large
         LaunchTemplateConfigs.1.Overrides.2.SubnetId=subnet-b
         LaunchTemplateConfigs.1.Overrides.2.ImageId=ami-1
         LaunchTemplateConfigs.1.Overrides.2.AvailabilityZone=us-west-2b
         LaunchTemplateConfigs.1.Overrides.2.Priority=0.085
         TargetCapacitySpecification.TotalTargetCapacity=3
         TargetCapacitySpecification.DefaultTargetCapacityType=spot
         SpotOptions.AllocationStrategy=price-capacity-optimized
         TagSpecification.1.ResourceType=instance
         TagSpecification.1.Tag.1.Key=karpenter.sh/nodepool
         TagSpecification.1.Tag.1.Value=default
         TagSpecification.2.ResourceType=volume
         TagSpecification.2.Tag.1.Key=karpenter.sh/nodepool
         TagSpecification.2.Tag.1.Value=default
         TagSpecification.3.ResourceType=fleet
         TagSpecification.3.Tag.1.Key=karpenter.sh/nodepool
         TagSpecification.3.Tag.1.Value=default",
    );
    assert_eq!(reply.fleet_id.as_deref(), Some("fleet-1"));
    let instance = &reply.instances[0];
    assert_eq!((instance.ids.as_slice(), instance.is_spot), (&["i-1".to_owned(), "i-2".to_owned()][..], true));
    assert_eq!(instance.template_name.as_deref(), Some("karpenter.k8s.aws/42"));
    assert_eq!(instance.zone.as_deref(), Some("us-west-2b"));
    let error = &reply.errors[0];
    assert_eq!(
        (error.code.as_str(), error.instance_type.as_deref()),
        ("InsufficientInstanceCapacity", Some("m5.large"))
    );
}

#[test]
fn a_fleet_into_interruptible_reservations_names_their_kind_and_the_context() {
    let recorder = Recorder::new(&[(200, FLEET)]);
    let mut order = order();
    order.context = Some("my-context".to_owned());
    order.capacity_type = "reserved-capacity".to_owned();
    order.spot_strategy = None;
    order.reservation_types = vec!["interruptible-capacity-reservation".to_owned()];
    recorder.call(|sdk| sdk.create_fleet(order)).unwrap();
    let form = recorder.form();
    assert!(form.contains("Context=my-context"), "{form}");
    assert!(form.contains("ReservedCapacityOptions.ReservationType.1=interruptible-capacity-reservation"), "{form}");
    assert!(form.contains("TargetCapacitySpecification.DefaultTargetCapacityType=reserved-capacity"), "{form}");
    assert!(!form.contains("SpotOptions") && !form.contains("OnDemandOptions"), "{form}");
}

const DRY_RUN: &str = "<Response><Errors><Error><Code>DryRunOperation</Code><Message>Request would have succeeded, but DryRun flag is \
                       set.</Message></Error></Errors><RequestID>r-9</RequestID></Response>";
const BUSY: &str = "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>Request limit exceeded.</Message></Error></Errors>\
                    <RequestID>r-8</RequestID></Response>";

#[test]
fn a_dry_run_that_would_succeed_succeeds_and_none_is_tried_twice() {
    let dry = || FleetOrder { dry_run: true, on_demand_strategy: Some("lowest-price".to_owned()), ..order() };
    let recorder = Recorder::new(&[(412, DRY_RUN)]);
    recorder.call(|sdk| sdk.create_fleet(dry())).unwrap();
    assert!(recorder.form().contains("DryRun=true"));
    assert!(recorder.form().contains("OnDemandOptions.AllocationStrategy=lowest-price"));
    let recorder = Recorder::new(&[(503, BUSY)]);
    let failure = recorder.call(|sdk| sdk.create_fleet(dry())).unwrap_err();
    assert!(failure.is_throttled());
    assert_eq!(recorder.sent().len(), 1);
    let recorder = Recorder::new(&[(412, DRY_RUN)]);
    recorder.call(|sdk| sdk.describe_instance_types(true)).unwrap();
    assert_form(&recorder, "Action=DescribeInstanceTypes\nDryRun=true\nVersion=2016-11-15");
}

#[test]
fn a_failure_has_code_message_status_and_request() {
    let recorder = Recorder::new(&[(503, BUSY)]);
    let failure = recorder.call(|sdk| sdk.delete_launch_template("lt-1".to_owned())).unwrap_err();
    assert_eq!(failure.action, "ec2:DeleteLaunchTemplate");
    assert_eq!((failure.code.as_str(), failure.status), ("RequestLimitExceeded", 503));
    assert_eq!(failure.request_id.as_deref(), Some("r-8"));
    assert_eq!(
        failure.to_string(),
        "ec2:DeleteLaunchTemplate: RequestLimitExceeded: Request limit exceeded. (request r-8)"
    );
    // Tried again as the SDK does.
    assert_eq!(recorder.sent().len(), 3);
}

#[test]
fn a_run_of_instances_is_only_asked_about_with_the_subnet_on_the_first_interface() {
    let recorder = Recorder::new(&[(412, DRY_RUN)]);
    let order = RunOrder {
        template_name: "karpenter.k8s.aws/42".to_owned(),
        instance_type: "m5.large".to_owned(),
        image_id: Some("ami-1".to_owned()),
        subnet_id: Some("subnet-a".to_owned()),
        is_spot: true,
        tags: tags(&[("k", "v")]),
    };
    recorder.call(|sdk| sdk.run_instances_dry_run(order)).unwrap();
    assert_form(
        &without_token(&recorder),
        "Action=RunInstances
         Version=2016-11-15
         DryRun=true
         MinCount=1
         MaxCount=1
         LaunchTemplate.LaunchTemplateName=karpenter.k8s.aws/42
         LaunchTemplate.Version=$Latest
         InstanceType=m5.large
         ImageId=ami-1
         NetworkInterface.1.DeviceIndex=0
         NetworkInterface.1.SubnetId=subnet-a
         InstanceMarketOptions.MarketType=spot
         TagSpecification.1.ResourceType=instance
         TagSpecification.1.Tag.1.Key=k
         TagSpecification.1.Tag.1.Value=v
         TagSpecification.2.ResourceType=volume
         TagSpecification.2.Tag.1.Key=k
         TagSpecification.2.Tag.1.Value=v
         TagSpecification.3.ResourceType=network-interface
         TagSpecification.3.Tag.1.Key=k
         TagSpecification.3.Tag.1.Value=v",
    );
}

/// The SDK makes a random token for calls that want one.
fn without_token(recorder: &Recorder) -> Recorder {
    recorder.rewritten(|body| {
        body.split('&').filter(|pair| !pair.starts_with("ClientToken=")).collect::<Vec<_>>().join("&")
    })
}

#[test]
fn a_launch_template_has_every_part_that_was_ordered_and_no_other() {
    let recorder = Recorder::new(&[(
        200,
        "<CreateLaunchTemplateResponse><launchTemplate><launchTemplateId>lt-1</launchTemplateId>\
         <launchTemplateName>karpenter.k8s.aws/42</launchTemplateName></launchTemplate></CreateLaunchTemplateResponse>",
    )]);
    let data = TemplateData {
        instance_profile: Some("profile".to_owned()),
        image_id: "ami-1".to_owned(),
        user_data: Some("aGVsbG8=".to_owned()),
        block_devices: vec![TemplateDevice {
            name: Some("/dev/xvda".to_owned()),
            encrypted: Some(true),
            size_gib: Some(20),
            kind: Some("gp3".to_owned()),
            ..TemplateDevice::default()
        }],
        metadata: Some(TemplateMetadata {
            http_endpoint: Some("enabled".to_owned()),
            http_protocol_ipv6: Some("disabled".to_owned()),
            hop_limit: Some(1),
            http_tokens: Some("required".to_owned()),
            instance_tags: "disabled".to_owned(),
        }),
        interfaces: vec![TemplateInterface {
            device: 0,
            groups: vec!["sg-1".to_owned(), "sg-2".to_owned()],
            public_address: Some(false),
            ipv4_prefix_count: Some(1),
            tcp_established_timeout: Some(60),
            ..TemplateInterface::default()
        }],
        detailed_monitoring: Some(false),
        nested_virtualization: Some("enabled".to_owned()),
        tenancy: Some("default".to_owned()),
        placement_group_id: Some("pg-1".to_owned()),
        partition: Some(2),
        enclave: Some(true),
        tag_specifications: vec![("network-interface".to_owned(), tags(&[("a", "b")]))],
        reservation: Some(TemplateReservation {
            preference: "capacity-reservations-only".to_owned(),
            target_id: Some("cr-1".to_owned()),
        }),
        market: Some("capacity-block".to_owned()),
    };
    let order =
        TemplateOrder { name: "karpenter.k8s.aws/42".to_owned(), tags: tags(&[("karpenter.sh/nodepool", "")]), data };
    let template = recorder.call(|sdk| sdk.create_launch_template(order)).unwrap();
    assert_eq!((template.id.as_str(), template.name.as_str()), ("lt-1", "karpenter.k8s.aws/42"));
    assert_form(
        &without_token(&recorder),
        "Action=CreateLaunchTemplate
         Version=2016-11-15
         LaunchTemplateName=karpenter.k8s.aws/42
         LaunchTemplateData.IamInstanceProfile.Name=profile
         LaunchTemplateData.ImageId=ami-1
         LaunchTemplateData.UserData=aGVsbG8=
         LaunchTemplateData.BlockDeviceMapping.1.DeviceName=/dev/xvda
         LaunchTemplateData.BlockDeviceMapping.1.Ebs.Encrypted=true
         LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeSize=20
         LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeType=gp3
         LaunchTemplateData.MetadataOptions.HttpEndpoint=enabled
         LaunchTemplateData.MetadataOptions.HttpProtocolIpv6=disabled
         LaunchTemplateData.MetadataOptions.HttpPutResponseHopLimit=1
         LaunchTemplateData.MetadataOptions.HttpTokens=required
         LaunchTemplateData.MetadataOptions.InstanceMetadataTags=disabled
         LaunchTemplateData.NetworkInterface.1.DeviceIndex=0
         LaunchTemplateData.NetworkInterface.1.SecurityGroupId.1=sg-1
         LaunchTemplateData.NetworkInterface.1.SecurityGroupId.2=sg-2
         LaunchTemplateData.NetworkInterface.1.AssociatePublicIpAddress=false
         LaunchTemplateData.NetworkInterface.1.Ipv4PrefixCount=1
         LaunchTemplateData.NetworkInterface.1.ConnectionTrackingSpecification.TcpEstablishedTimeout=60
         LaunchTemplateData.Monitoring.Enabled=false
         LaunchTemplateData.CpuOptions.NestedVirtualization=enabled
         LaunchTemplateData.Placement.Tenancy=default
         LaunchTemplateData.Placement.GroupId=pg-1
         LaunchTemplateData.Placement.PartitionNumber=2
         LaunchTemplateData.EnclaveOptions.Enabled=true
         LaunchTemplateData.TagSpecification.1.ResourceType=network-interface
         LaunchTemplateData.TagSpecification.1.Tag.1.Key=a
         LaunchTemplateData.TagSpecification.1.Tag.1.Value=b
         LaunchTemplateData.CapacityReservationSpecification.CapacityReservationPreference=capacity-reservations-only
         LaunchTemplateData.CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId=cr-1
         LaunchTemplateData.InstanceMarketOptions.MarketType=capacity-block
         TagSpecification.1.ResourceType=launch-template
         TagSpecification.1.Tag.1.Key=karpenter.sh/nodepool
         TagSpecification.1.Tag.1.Value=",
    );
}
