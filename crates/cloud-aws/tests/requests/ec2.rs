//! What there is: types, prices, networks, images, instances.

use crate::recorder::{Recorder, assert_form};
use kerf_cloud_aws::wire::*;
use kerf_model::Money;

#[test]
fn types_are_asked_by_the_hundred_with_the_two_filters() {
    let page = |token: &str, name: &str| {
        format!(
            "<DescribeInstanceTypesResponse><instanceTypeSet><item><instanceType>{name}</instanceType>\
             <supportedUsageClasses><item>on-demand</item><item>spot</item></supportedUsageClasses>\
             <processorInfo><supportedArchitectures><item>i386</item><item>x86_64</item></supportedArchitectures>\
             <sustainedClockSpeedInGhz>3.1</sustainedClockSpeedInGhz><manufacturer>Intel</manufacturer></processorInfo>\
             <vCpuInfo><defaultVCpus>2</defaultVCpus></vCpuInfo><memoryInfo><sizeInMiB>8192</sizeInMiB></memoryInfo>\
             <hypervisor>nitro</hypervisor><networkInfo><networkCards><item><networkCardIndex>0</networkCardIndex>\
             <maximumNetworkInterfaces>3</maximumNetworkInterfaces><baselineBandwidthInGbps>0.75</baselineBandwidthInGbps></item>\
             </networkCards><ipv4AddressesPerInterface>10</ipv4AddressesPerInterface><enaSupport>required</enaSupport></networkInfo>\
             </item></instanceTypeSet>{token}</DescribeInstanceTypesResponse>"
        )
    };
    let (first, second) = (page("<nextToken>more</nextToken>", "m5.large"), page("", "new.large"));
    let recorder = Recorder::new(&[(200, &first), (200, &second)]);
    let types = recorder.call(|sdk| sdk.describe_instance_types(false)).unwrap();
    assert_form(
        &recorder,
        "Action=DescribeInstanceTypes
         Version=2016-11-15
         MaxResults=100
         NextToken=more
         Filter.1.Name=supported-virtualization-type
         Filter.1.Value.1=hvm
         Filter.2.Name=processor-info.supported-architecture
         Filter.2.Value.1=x86_64
         Filter.2.Value.2=arm64",
    );
    assert_eq!(recorder.sent().len(), 2);
    let (known, unknown) = (&types[0], &types[1]);
    assert_eq!((&*known.name, known.vcpus, known.memory_mib), ("m5.large", 2, 8192));
    assert_eq!(known.architectures.iter().map(|it| &**it).collect::<Vec<_>>(), ["amd64"]);
    assert_eq!((known.interfaces, known.addresses_per_interface, known.network_mbps), (3, 10, Some(750)));
    assert!(known.sells_spot && known.sells_on_demand && known.has_ena);
    // No answer of EC2's says how many branch interfaces a type has.
    assert_eq!((known.branch_interfaces, unknown.branch_interfaces), (Some(9), None));
}

#[test]
fn offerings_are_asked_by_zone_and_by_the_thousand() {
    let recorder = Recorder::new(&[(
        200,
        "<DescribeInstanceTypeOfferingsResponse><instanceTypeOfferingSet><item><instanceType>m5.large</instanceType>\
         <locationType>availability-zone</locationType><location>us-west-2a</location></item></instanceTypeOfferingSet>\
         </DescribeInstanceTypeOfferingsResponse>",
    )]);
    let found = recorder.call(|sdk| sdk.describe_instance_type_offerings()).unwrap();
    assert_form(
        &recorder,
        "Action=DescribeInstanceTypeOfferings
         Version=2016-11-15
         LocationType=availability-zone
         MaxResults=1000",
    );
    assert_eq!(found, [TypeInZone { instance_type: "m5.large".to_owned(), zone: "us-west-2a".to_owned() }]);
}

#[test]
fn spot_prices_are_asked_from_now_on_for_both_linux_products() {
    let recorder = Recorder::new(&[(
        200,
        "<DescribeSpotPriceHistoryResponse><spotPriceHistorySet><item><instanceType>m5.large</instanceType>\
         <productDescription>Linux/UNIX</productDescription><spotPrice>0.034500</spotPrice>\
         <timestamp>2026-01-02T03:04:05.000Z</timestamp><availabilityZone>us-west-2a</availabilityZone></item>\
         </spotPriceHistorySet><nextToken/></DescribeSpotPriceHistoryResponse>",
    )]);
    let found = recorder.call(|sdk| sdk.describe_spot_price_history()).unwrap();
    assert_form(
        &recorder,
        "Action=DescribeSpotPriceHistory
         Version=2016-11-15
         StartTime=2027-01-15T08:00:00Z
         ProductDescription.1=Linux/UNIX
         ProductDescription.2=Linux/UNIX (Amazon VPC)
         MaxResults=2000",
    );
    let price = Money::from_micros(34_500);
    let (instance_type, zone) = ("m5.large".to_owned(), "us-west-2a".to_owned());
    assert_eq!(found, [SpotPrice { instance_type, zone, price, at_ms: 1_767_323_045_000 }]);
}

#[test]
fn images_are_available_ones_deprecated_included() {
    let recorder = Recorder::new(&[(
        200,
        "<DescribeImagesResponse><imagesSet><item><imageId>ami-1</imageId><name>mine</name><architecture>arm64</architecture>\
         <creationDate>2026-01-02T03:04:05.000Z</creationDate><deprecationTime>2026-02-02T03:04:05.000Z</deprecationTime>\
         <imageOwnerId>1</imageOwnerId></item></imagesSet></DescribeImagesResponse>",
    )]);
    let owners = vec!["self".to_owned(), "amazon".to_owned()];
    let query = ImageQuery { filters: vec![Filter::new("name", ["mine*"])], owners };
    let found = recorder.call(|sdk| sdk.describe_images(query)).unwrap();
    assert_form(
        &recorder,
        "Action=DescribeImages
         Version=2016-11-15
         Filter.1.Name=name
         Filter.1.Value.1=mine*
         Filter.2.Name=state
         Filter.2.Value.1=available
         Owner.1=self
         Owner.2=amazon
         IncludeDeprecated=true
         MaxResults=1000",
    );
    assert_eq!((found[0].architecture.as_str(), found[0].deprecated_at_ms), ("arm64", Some(1_770_001_445_000)));
    assert_eq!(found[0].created, "2026-01-02T03:04:05.000Z");
}

#[test]
fn subnets_and_groups_are_asked_by_the_five_hundred() {
    let recorder = Recorder::new(&[(200, "<DescribeSubnetsResponse><subnetSet/></DescribeSubnetsResponse>")]);
    let filters = vec![Filter::tag("karpenter.sh/discovery", "demo"), Filter::tag("any", "*")];
    recorder.call(|sdk| sdk.describe_subnets(filters)).unwrap();
    assert_form(
        &recorder,
        "Action=DescribeSubnets
         Version=2016-11-15
         Filter.1.Name=tag:karpenter.sh/discovery
         Filter.1.Value.1=demo
         Filter.2.Name=tag-key
         Filter.2.Value.1=any
         MaxResults=500",
    );
    let recorder = Recorder::new(&[(
        200,
        "<DescribeSecurityGroupsResponse><securityGroupInfo/></DescribeSecurityGroupsResponse>",
    )]);
    recorder.call(|sdk| sdk.describe_security_groups(vec![Filter::new("group-id", ["sg-1", "sg-2"])])).unwrap();
    assert_form(
        &recorder,
        "Action=DescribeSecurityGroups
         Version=2016-11-15
         Filter.1.Name=group-id
         Filter.1.Value.1=sg-1
         Filter.1.Value.2=sg-2
         MaxResults=500",
    );
}

#[test]
fn a_reservation_by_id_is_asked_without_a_page_size() {
    let answer = "<DescribeCapacityReservationsResponse><capacityReservationSet><item>\
                  <capacityReservationId>cr-1</capacityReservationId><ownerId>1</ownerId><instanceType>m5.large</instanceType>\
                  <availabilityZone>us-west-2a</availabilityZone><availableInstanceCount>4</availableInstanceCount>\
                  <state>active</state><instanceMatchCriteria>targeted</instanceMatchCriteria>\
                  <endDate>2026-01-02T03:04:05.000Z</endDate></item></capacityReservationSet></DescribeCapacityReservationsResponse>";
    let recorder = Recorder::new(&[(200, answer)]);
    let query = ReservationQuery { id: Some("cr-1".to_owned()), filters: Vec::new() };
    let found = recorder.call(|sdk| sdk.describe_capacity_reservations(query)).unwrap();
    assert_form(&recorder, "Action=DescribeCapacityReservations\nVersion=2016-11-15\nCapacityReservationId.1=cr-1");
    assert_eq!((found[0].n_available, found[0].kind.as_str(), found[0].is_interruptible), (4, "default", false));
    let query = ReservationQuery { id: None, filters: vec![Filter::new("state", ["active"])] };
    recorder.call(|sdk| sdk.describe_capacity_reservations(query)).unwrap();
    assert_form(
        &recorder,
        "Action=DescribeCapacityReservations
         Version=2016-11-15
         Filter.1.Name=state
         Filter.1.Value.1=active
         MaxResults=1000",
    );
}

#[test]
fn a_placement_group_is_asked_for_by_a_parameter_where_its_id_is_known_and_else_by_filters() {
    let answer = "<DescribePlacementGroupsResponse><placementGroupSet><item><groupName>rack</groupName>\
                  <groupId>pg-1</groupId><state>available</state><strategy>partition</strategy>\
                  <partitionCount>3</partitionCount></item></placementGroupSet></DescribePlacementGroupsResponse>";
    let recorder = Recorder::new(&[(200, answer)]);
    let query = PlacementQuery { id: Some("pg-1".to_owned()), filters: vec![Filter::new("state", ["available"])] };
    let found = recorder.call(|sdk| sdk.describe_placement_groups(query)).unwrap();
    assert_eq!((found[0].id.as_str(), found[0].name.as_str(), found[0].n_partitions), ("pg-1", "rack", 3));
    assert_form(
        &recorder,
        "Action=DescribePlacementGroups
         Version=2016-11-15
         GroupId.1=pg-1
         Filter.1.Name=state
         Filter.1.Value.1=available",
    );
    let query = PlacementQuery { id: None, filters: vec![Filter::new("group-name", ["rack"])] };
    recorder.call(|sdk| sdk.describe_placement_groups(query)).unwrap();
    assert_form(
        &recorder,
        "Action=DescribePlacementGroups
         Version=2016-11-15
         Filter.1.Name=group-name
         Filter.1.Value.1=rack",
    );
}

const INSTANCE: &str = "<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>i-1</instanceId>\
    <imageId>ami-1</imageId><instanceState><code>16</code><name>running</name></instanceState><instanceType>m5.large</instanceType>\
    <launchTime>2026-01-02T03:04:05.000Z</launchTime><placement><availabilityZone>us-west-2a</availabilityZone>\
    <tenancy>default</tenancy></placement><subnetId>subnet-1</subnetId><instanceLifecycle>spot</instanceLifecycle>\
    <groupSet><item><groupId>sg-1</groupId></item></groupSet><tagSet><item><key>Name</key><value>n</value></item></tagSet>\
    <networkInterfaceSet><item><interfaceType>efa-only</interfaceType></item><item><interfaceType>interface</interfaceType></item>\
    </networkInterfaceSet></item></instancesSet></item></reservationSet></DescribeInstancesResponse>";

#[test]
fn instances_by_id_are_asked_without_a_page_size_and_others_by_the_thousand() {
    let recorder = Recorder::new(&[(200, INSTANCE)]);
    let filters = vec![Filter::new("instance-state-name", ["pending", "running"])];
    let query = InstanceQuery { ids: vec!["i-1".to_owned()], filters: filters.clone() };
    let found = recorder.call(|sdk| sdk.describe_instances(query)).unwrap();
    assert_form(
        &recorder,
        "Action=DescribeInstances
         Version=2016-11-15
         InstanceId.1=i-1
         Filter.1.Name=instance-state-name
         Filter.1.Value.1=pending
         Filter.1.Value.2=running",
    );
    // Known as spot by its lifecycle, though no request is named; and no zone id is as good as one.
    let instance = &found[0];
    assert!(instance.is_spot);
    assert_eq!((instance.zone_id.as_deref(), instance.n_efa_interfaces), (None, 1));
    assert_eq!(instance.security_group_ids, ["sg-1"]);
    assert_eq!(instance.launched_ms, 1_767_323_045_000);
    recorder.call(|sdk| sdk.describe_instances(InstanceQuery { ids: Vec::new(), filters })).unwrap();
    assert!(recorder.form().contains("MaxResults=1000"));
}

#[test]
fn instances_are_ended_restarted_and_tagged_together() {
    let recorder = Recorder::new(&[(
        200,
        "<TerminateInstancesResponse><instancesSet><item><instanceId>i-1</instanceId><currentState><code>32</code>\
         <name>shutting-down</name></currentState></item></instancesSet></TerminateInstancesResponse>",
    )]);
    let ids = || vec!["i-1".to_owned(), "i-2".to_owned()];
    let changes = recorder.call(|sdk| sdk.terminate_instances(ids())).unwrap();
    assert_form(&recorder, "Action=TerminateInstances\nVersion=2016-11-15\nInstanceId.1=i-1\nInstanceId.2=i-2");
    assert_eq!(changes, [InstanceStateChange { id: "i-1".to_owned(), state: "shutting-down".to_owned() }]);
    let recorder = Recorder::new(&[(200, "<Response><return>true</return></Response>")]);
    recorder.call(|sdk| sdk.reboot_instances(ids())).unwrap();
    assert_form(&recorder, "Action=RebootInstances\nVersion=2016-11-15\nInstanceId.1=i-1\nInstanceId.2=i-2");
    let tags = Tags::from([("Name".to_owned(), "node".to_owned())]);
    recorder.call(|sdk| sdk.create_tags(ids(), tags)).unwrap();
    assert_form(
        &recorder,
        "Action=CreateTags\nVersion=2016-11-15\nResourceId.1=i-1\nResourceId.2=i-2\nTag.1.Key=Name\nTag.1.Value=node",
    );
}

#[test]
fn statuses_that_do_not_match_are_left_out_even_if_the_server_sends_them() {
    let row = |id: &str, status: &str| {
        format!(
            "<item><instanceId>{id}</instanceId><instanceStatus><status>{status}</status><details><item><name>reachability</name>\
             <status>failed</status><impairedSince>2026-01-02T03:04:05.000Z</impairedSince></item></details></instanceStatus>\
             <systemStatus><status>ok</status></systemStatus></item>"
        )
    };
    let answer = format!(
        "<DescribeInstanceStatusResponse><instanceStatusSet>{}{}</instanceStatusSet></DescribeInstanceStatusResponse>",
        row("i-1", "impaired"),
        row("i-2", "ok")
    );
    let recorder = Recorder::new(&[(200, &answer)]);
    let filters = vec![Filter::new("instance-status.status", ["impaired"])];
    let found = recorder.call(|sdk| sdk.describe_instance_status(filters)).unwrap();
    assert_form(
        &recorder,
        "Action=DescribeInstanceStatus
         Version=2016-11-15
         Filter.1.Name=instance-status.status
         Filter.1.Value.1=impaired",
    );
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].id.as_str(), found[0].instance_impaired_since_ms), ("i-1", Some(1_767_323_045_000)));
}

#[test]
fn launch_templates_are_asked_by_name_or_by_the_two_hundred() {
    let answer = "<DescribeLaunchTemplatesResponse><launchTemplates><item><launchTemplateId>lt-1</launchTemplateId>\
                  <launchTemplateName>n</launchTemplateName><tagSet><item><key>a</key><value>b</value></item></tagSet></item>\
                  </launchTemplates></DescribeLaunchTemplatesResponse>";
    let recorder = Recorder::new(&[(200, answer)]);
    let query = TemplateQuery { names: vec!["n".to_owned()], filters: Vec::new() };
    let found = recorder.call(|sdk| sdk.describe_launch_templates(query)).unwrap();
    assert_form(&recorder, "Action=DescribeLaunchTemplates\nVersion=2016-11-15\nLaunchTemplateName.1=n");
    assert_eq!(found[0].tags, Tags::from([("a".to_owned(), "b".to_owned())]));
    let query = TemplateQuery { names: Vec::new(), filters: vec![Filter::tag("a", "b")] };
    recorder.call(|sdk| sdk.describe_launch_templates(query)).unwrap();
    assert_form(
        &recorder,
        "Action=DescribeLaunchTemplates
         Version=2016-11-15
         Filter.1.Name=tag:a
         Filter.1.Value.1=b
         MaxResults=200",
    );
}
