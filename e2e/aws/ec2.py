"""EC2 where moto's is too simple: fleets with stock and prices, statuses, reservations, placement groups, and judgement by policy."""

import functools
import html
import random
import re
from datetime import datetime, timezone

import access
from access import Question
from account import ACCOUNT, ADMIN_KEY, ID

ENCODED = ("CreateFleet", "RunInstances", "CreateTags", "CreateLaunchTemplate", "TerminateInstances", "DeleteLaunchTemplate")
IDS = random.Random(7)


def patch() -> None:
    from moto.core.responses import ActionResult
    from moto.ec2.exceptions import EC2ClientError
    from moto.ec2.responses import EC2Response

    global Result, Refusal
    Result, Refusal = ActionResult, EC2ClientError
    plain_call = EC2Response.call_action
    plain_run = EC2Response.run_instances

    def call_action(self):
        from door import ec2_error

        if not is_admin(self):
            refused = access.denied(questions(self))
            if refused:
                message = access.ec2_message(*refused, encoded=self._get_action() in ENCODED)
                return 403, {"Content-Type": "text/xml"}, ec2_error("UnauthorizedOperation", message)
        invented = unknown_filter(self._get_action(), self._filters_from_querystring())
        if invented:
            message = f"The filter '{invented}' is invalid"
            return 400, {"Content-Type": "text/xml"}, ec2_error("InvalidParameterValue", message)
        return plain_call(self)

    def run_instances(self):
        template = self._get_param("LaunchTemplate", {})
        if template and self._get_param("DryRun", False):
            check_profile(find_template(self, template))
        return plain_run(self)

    EC2Response.call_action = call_action
    EC2Response.run_instances = run_instances
    EC2Response.create_fleet = create_fleet
    EC2Response.describe_instance_status = describe_instance_status
    EC2Response.describe_spot_price_history = describe_spot_price_history
    EC2Response.describe_capacity_reservations = describe_capacity_reservations
    EC2Response.describe_placement_groups = describe_placement_groups


@functools.cache
def model():
    import botocore.session

    return botocore.session.get_session().get_service_model("ec2")


@functools.cache
def filters_of(operation: str) -> frozenset[str]:
    """The filters that EC2's own model lists for a call: botocore carries them in its words about the parameter."""
    if operation not in model().operation_names:
        return frozenset()
    shape = model().operation_model(operation).input_shape
    words = shape.members["Filters"].documentation if shape and "Filters" in shape.members else ""
    return frozenset(html.unescape(name) for name in re.findall(r"<li>\s*<p>\s*<code>([^<]+)</code>", words))


def unknown_filter(operation: str, asked: dict) -> str | None:
    """The first filter that EC2 would not take; tags are taken everywhere, though not everywhere listed."""
    known = filters_of(operation) if asked else frozenset()
    for name in asked:
        if known and name not in known and name != "tag-key" and not name.startswith("tag:"):
            return name
    return None


def is_admin(response) -> bool:
    return f"Credential={ADMIN_KEY}/" in response.headers.get("Authorization", "")


def arn(response, kind: str, name: str = "*", owner: str = ID) -> str:
    return f"arn:aws:ec2:{response.region}:{owner}:{kind}/{name}"


def tag_specifications(specifications) -> dict[str, dict]:
    found: dict[str, dict] = {}
    for specification in specifications or []:
        tags = {tag["Key"]: tag.get("Value", "") for tag in specification.get("Tags", [])}
        found.setdefault(specification["ResourceType"], {}).update(tags)
    return found


def tags_of(response, resource_id: str) -> dict:
    return {tag["key"]: tag["value"] for tag in response.ec2_backend.describe_tags({"resource-id": [resource_id]})}


def questions(response) -> list[Question]:
    """What IAM is asked before the call is looked at any further."""
    operation = response._get_action()
    action = f"ec2:{operation}"
    asked: list[Question] = []
    if operation == "CreateFleet":
        tags = tag_specifications(response._get_param("TagSpecifications", [])).get("fleet", {})
        asked = created(response, "CreateFleet", "CreateFleet", {"fleet": tags})
        for config in response._get_param("LaunchTemplateConfigs", []):
            asked.append(of_template(response, action, config["LaunchTemplateSpecification"]))
    elif operation == "RunInstances":
        specification = response._get_param("LaunchTemplate", {})
        over = {"ImageId": response._get_param("ImageId"), "SubnetId": subnet_of_run(response)}
        is_spot = response._get_param("InstanceMarketOptions.MarketType") == "spot"
        tags = tag_specifications(response._get_param("TagSpecifications", []))
        asked = launch_questions(response, specification, over, is_spot, tags) if specification else []
    elif operation == "CreateLaunchTemplate":
        tags = tag_specifications(response._get_param("TagSpecifications", [])).get("launch-template", {})
        asked = created(response, operation, operation, {"launch-template": tags})
    elif operation == "DeleteLaunchTemplate":
        found = response._get_param("LaunchTemplateId", "")
        asked = [Question(action, arn(response, "launch-template", found)).tags("ResourceTag", tags_of(response, found))]
    elif operation in ("TerminateInstances", "RebootInstances"):
        for found in response._get_param("InstanceIds", []):
            asked.append(Question(action, arn(response, "instance", found)).tags("ResourceTag", tags_of(response, found)))
    elif operation == "CreateTags":
        new = {tag["Key"]: tag.get("Value", "") for tag in response._get_param("Tags", [])}
        for found in response._get_param("Resources", []):
            kind = "instance" if found.startswith("i-") else "volume" if found.startswith("vol-") else "network-interface"
            question = Question(action, arn(response, kind, found)).tags("ResourceTag", tags_of(response, found))
            asked.append(question.tags("RequestTag", new))
    else:
        asked = [Question(action)]
    for question in asked:
        question.told("aws:RequestedRegion", response.region)
    return asked


def created(response, action: str, create_action: str, by_kind: dict[str, dict]) -> list[Question]:
    """New resources, each with its tags, and the right to put those on."""
    asked = []
    for kind, tags in by_kind.items():
        asked.append(Question(f"ec2:{action}", arn(response, kind)).tags("RequestTag", tags))
        if tags:
            question = Question("ec2:CreateTags", arn(response, kind)).tags("RequestTag", tags)
            asked.append(question.told("ec2:CreateAction", create_action))
    return asked


def of_template(response, action: str, specification: dict) -> Question:
    found = find_template(response, specification)
    return Question(action, arn(response, "launch-template", found.id)).tags("ResourceTag", tags_of(response, found.id))


def launch_questions(response, specification, over, is_spot, tags) -> list[Question]:
    """What a launch needs beside the fleet: EC2 asks when it gets there."""
    template = find_template(response, specification)
    data = template.latest_version().data
    own = tag_specifications(data.get("TagSpecifications"))
    kinds = {
        "instance": tags.get("instance", {}),
        "volume": tags.get("volume", {}),
        "network-interface": {**own.get("network-interface", {}), **tags.get("network-interface", {})},
    }
    if is_spot:
        kinds["spot-instances-request"] = own.get("spot-instances-request", {})
    asked = [of_template(response, "ec2:RunInstances", specification)]
    plain = [arn(response, "image", over.get("ImageId") or data.get("ImageId", "*"), owner="")]
    if over.get("SubnetId"):
        plain.append(arn(response, "subnet", over["SubnetId"]))
    plain += [arn(response, "security-group", group) for group in template_groups(data)]
    target = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    if target.get("CapacityReservationId"):
        plain.append(arn(response, "capacity-reservation", target["CapacityReservationId"]))
    if data.get("Placement", {}).get("GroupId"):
        plain.append(arn(response, "placement-group", data["Placement"]["GroupId"]))
    asked += [Question("ec2:RunInstances", resource) for resource in plain]
    asked += created(response, "RunInstances", "RunInstances", kinds)
    for role in profile_roles(data):
        asked.append(Question("iam:PassRole", role).told("iam:PassedToService", "ec2.amazonaws.com"))
    for question in asked:
        question.told("aws:RequestedRegion", response.region)
    return asked


def subnet_of_run(response):
    interfaces = response._get_param("NetworkInterfaces", [])
    return response._get_param("SubnetId") or next((it["SubnetId"] for it in interfaces if it.get("SubnetId")), None)


def find_template(response, specification: dict):
    if specification.get("LaunchTemplateId"):
        return response.ec2_backend.get_launch_template(specification["LaunchTemplateId"])
    return response.ec2_backend.get_launch_template_by_name(specification["LaunchTemplateName"])


def template_groups(data: dict) -> list[str]:
    interfaces = data.get("NetworkInterfaces") or []
    return data.get("SecurityGroupIds") or sorted({group for it in interfaces for group in it.get("Groups", [])})


def find_profile(name: str):
    from door import find_profile as find

    return find(name)


def profile_roles(data: dict) -> list[str]:
    name = (data.get("IamInstanceProfile") or {}).get("Name")
    profile = find_profile(name) if name else None
    return [role.arn for role in profile.roles] if profile else []


def check_profile(template) -> None:
    name = (template.latest_version().data.get("IamInstanceProfile") or {}).get("Name")
    if name and not find_profile(name):
        raise Refusal(
            "InvalidParameterValue",
            f"Value ({name}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
        )


class Pool:
    """One way to fulfil a fleet: an override of a template."""

    def __init__(self, response, config: dict, over: dict, kind: str) -> None:
        self.specification = config["LaunchTemplateSpecification"]
        self.template = find_template(response, self.specification)
        self.data = self.template.latest_version().data
        self.over = over
        self.type = over.get("InstanceType") or self.data.get("InstanceType")
        subnet = over.get("SubnetId")
        self.subnet = response.ec2_backend.get_subnet(subnet) if subnet else None
        self.zone = over.get("AvailabilityZone") or (self.subnet.availability_zone if self.subnet else "")
        self.kind = kind
        self.region = response.region

    def price(self) -> float:
        if self.kind == "spot":
            price = ACCOUNT.spot_price(self.region, self.type, self.zone)
        else:
            price = ACCOUNT.on_demand.get((self.region, self.type))
        return price if price is not None else 1e9

    def priority(self) -> float:
        return float(self.over.get("Priority") or 0)

    def echo(self) -> dict:
        specification = {
            "LaunchTemplateId": self.template.id,
            "LaunchTemplateName": self.template.name,
            "Version": str(self.template.latest_version_number),
        }
        return {"LaunchTemplateSpecification": specification, "Overrides": self.over}

    def error(self, code: str, message: str) -> dict:
        return {
            "LaunchTemplateAndOverrides": self.echo(),
            "Lifecycle": "spot" if self.kind == "spot" else "on-demand",
            "ErrorCode": code,
            "ErrorMessage": message,
        }


def create_fleet(self):
    wanted = self._get_param("TargetCapacitySpecification", {})
    kind = wanted.get("DefaultTargetCapacityType") or "on-demand"
    n_left = int(wanted["TotalTargetCapacity"])
    pools = [
        Pool(self, config, over, kind)
        for config in self._get_param("LaunchTemplateConfigs", [])
        for over in config.get("Overrides") or [{}]
    ]
    for template in {pool.template.id: pool.template for pool in pools}.values():
        if self._get_param("DryRun", False):
            check_profile(template)
    self.error_on_dryrun()
    token = self._get_param("ClientToken")
    request = sorted(self.querystring.items())
    if token in ACCOUNT.fleets:
        before, answer = ACCOUNT.fleets[token]
        if before != request:
            raise Refusal(
                "IdempotentParameterMismatch",
                "The request uses the same client token as a previous, but non-identical request",
            )
        return Result(answer)
    tags = tag_specifications(self._get_param("TagSpecifications", []))
    strategy = (self._get_param("SpotOptions", {}) if kind == "spot" else self._get_param("OnDemandOptions", {})).get(
        "AllocationStrategy", ""
    )
    by_priority = strategy in ("prioritized", "capacity-optimized-prioritized")
    pools.sort(key=lambda pool: (pool.priority() if by_priority else pool.price(), pool.type, pool.zone))
    fleet_id = f"fleet-{IDS.getrandbits(128):032x}"
    instances, errors = [], []
    with ACCOUNT.lock:
        for pool in pools:
            if n_left == 0:
                break
            problem = trouble(self, pool, tags)
            if problem:
                errors.append(pool.error(*problem))
                continue
            n_stock = ACCOUNT.left(kind, pool.type, pool.zone)
            count = n_left if n_stock is None else min(n_left, n_stock)
            launched = launch(self, pool, count, tags, fleet_id)
            ACCOUNT.take(kind, pool.type, pool.zone, count)
            n_left -= count
            instances.append(
                {
                    "LaunchTemplateAndOverrides": pool.echo(),
                    "Lifecycle": "spot" if kind == "spot" else "on-demand",
                    "InstanceIds": [instance.id for instance in launched],
                    "InstanceType": pool.type,
                }
            )
    answer = {"FleetId": fleet_id, "Instances": instances, "Errors": errors}
    if token:
        ACCOUNT.fleets[token] = request, answer
    return Result(answer)


def trouble(response, pool: Pool, tags: dict):
    """(code, message) why nothing can be had here, or None."""
    if not is_admin(response):
        asked = launch_questions(response, pool.specification, pool.over, pool.kind == "spot", tags)
        refused = access.denied(asked)
        if refused:
            return "UnauthorizedOperation", access.ec2_message(*refused, encoded=True)
    name = (pool.data.get("IamInstanceProfile") or {}).get("Name")
    if name and not find_profile(name):
        return (
            "InvalidParameterValue",
            f"Value ({name}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
        )
    reservation_id = reservation_of(pool.data)
    if reservation_id:
        reservation = next((it for it in ACCOUNT.reservations if it["CapacityReservationId"] == reservation_id), None)
        if reservation is None or reservation.get("AvailableInstanceCount", 0) < 1:
            return "ReservationCapacityExceeded", f"{reservation_id} has no instance left"
    if pool.subnet and (pool.subnet.id in ACCOUNT.full_subnets or pool.subnet.available_ip_address_count < 1):
        return "InsufficientFreeAddressesInSubnet", f"There are not enough free addresses in subnet '{pool.subnet.id}'"
    if ACCOUNT.left(pool.kind, pool.type, pool.zone) == 0:
        return (
            "InsufficientInstanceCapacity",
            f"We currently do not have sufficient {pool.type} capacity in the Availability Zone you requested ({pool.zone}).",
        )
    return None


def reservation_of(data: dict) -> str | None:
    target = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    return target.get("CapacityReservationId")


def launch(response, pool: Pool, count: int, tags: dict, fleet_id: str) -> list:
    data = pool.data
    placement = data.get("Placement") or {}
    mappings = [it for it in data.get("BlockDeviceMappings") or [] if it.get("Ebs")]
    extra = {"block_device_mappings": mappings} if mappings else {}
    reservation = response.ec2_backend.run_instances(
        pool.over.get("ImageId") or data.get("ImageId"),
        count,
        None,
        [],
        security_group_ids=template_groups(data),
        instance_type=pool.type,
        is_instance_type_default=False,
        region_name=response.region,
        subnet_id=pool.subnet.id if pool.subnet else None,
        key_name=None,
        tags={"instance": tags.get("instance", {}), "volume": tags.get("volume", {})},
        lifecycle="spot" if pool.kind == "spot" else None,
        monitoring_state="enabled" if (data.get("Monitoring") or {}).get("Enabled") else "disabled",
        metadata_options=data.get("MetadataOptions") or {},
        **extra,
    )
    reservation_id = reservation_of(data)
    for instance in reservation.instances:
        instance.add_tags({"aws:ec2launchtemplate:id": pool.template.id, "aws:ec2:fleet-id": fleet_id})
        instance.placement.tenancy = placement.get("Tenancy") or "default"
        if pool.subnet:
            instance.placement.availability_zone_id = pool.subnet.availability_zone_id
        if placement.get("GroupId"):
            instance.placement.group_id = placement["GroupId"]
            instance.placement.partition_number = placement.get("PartitionNumber") or 1
        if pool.kind == "spot":
            instance.spot_instance_request_id = f"sir-{IDS.getrandbits(32):08x}"
        profile = find_profile((data.get("IamInstanceProfile") or {}).get("Name") or "")
        if profile:
            instance.iam_instance_profile = {"Arn": profile.arn, "Id": profile.id}
        if reservation_id:
            take_reserved(reservation_id)
            instance.capacity_reservation_id = reservation_id
        preference = (data.get("CapacityReservationSpecification") or {}).get("CapacityReservationPreference")
        if preference:
            instance.capacity_reservation_specification = {"CapacityReservationPreference": preference}
        for index, interface in enumerate(data.get("NetworkInterfaces") or []):
            if interface.get("InterfaceType") and index in instance.nics:
                instance.nics[index].interface_type = interface["InterfaceType"]
    return reservation.instances


def take_reserved(reservation_id: str) -> None:
    for reservation in ACCOUNT.reservations:
        if reservation["CapacityReservationId"] == reservation_id:
            reservation["AvailableInstanceCount"] -= 1


def describe_instance_status(self):
    filters = self._filters_from_querystring()
    statuses = []
    for instance in self.ec2_backend.all_running_instances(None):
        impaired = ACCOUNT.impaired.get(instance.id, {})
        status = {
            "InstanceId": instance.id,
            "AvailabilityZone": instance.placement.zone,
            "InstanceState": {"Code": 16, "Name": "running"},
            "InstanceStatus": summary(impaired.get("instance_since")),
            "SystemStatus": summary(impaired.get("system_since")),
            "Events": impaired.get("events", []),
        }
        if all(has_status(status, name, values) for name, values in filters.items()):
            statuses.append(status)
    return Result({"InstanceStatuses": statuses})


def summary(since: str | None) -> dict:
    if since is None:
        return {"Status": "ok", "Details": [{"Name": "reachability", "Status": "passed"}]}
    detail = {"Name": "reachability", "Status": "failed", "ImpairedSince": since}
    return {"Status": "impaired", "Details": [detail]}


def has_status(status: dict, name: str, values: list[str]) -> bool:
    if name == "instance-status.status":
        return status["InstanceStatus"]["Status"] in values
    if name == "system-status.status":
        return status["SystemStatus"]["Status"] in values
    if name == "event.code":
        return any(event["Code"] in values for event in status["Events"])
    return True


def describe_spot_price_history(self):
    rows = self.ec2_backend.describe_spot_price_history(self._get_param("InstanceTypes", []), self._filters_from_querystring())
    now = datetime.now(timezone.utc)
    history = []
    for row in rows:
        price = ACCOUNT.spot_price(self.region, row["InstanceType"], row["Location"])
        if price is not None and ACCOUNT.priced:
            history.append(
                {
                    "InstanceType": row["InstanceType"],
                    "ProductDescription": "Linux/UNIX",
                    "SpotPrice": f"{price:.6f}",
                    "AvailabilityZone": row["Location"],
                    "Timestamp": now,
                }
            )
    return Result({"SpotPriceHistory": history})


def describe_capacity_reservations(self):
    ids = self._get_param("CapacityReservationIds", [])
    known = {it["CapacityReservationId"]: it for it in ACCOUNT.reservations}
    for wanted in ids:
        if wanted not in known:
            raise Refusal(
                "InvalidCapacityReservationId.NotFound", f"The capacity reservation ID '{wanted}' does not exist"
            )
    found = [known[wanted] for wanted in ids] if ids else list(known.values())
    names = {"state": "State", "owner-id": "OwnerId", "instance-match-criteria": "InstanceMatchCriteria"}
    found = [it for it in found if passes(it, self._filters_from_querystring(), names)]
    return Result({"CapacityReservations": found})


def describe_placement_groups(self):
    names = {"group-name": "GroupName", "state": "State", "strategy": "Strategy"}
    ids = self._get_param("GroupIds", [])
    known = {it["GroupId"]: it for it in ACCOUNT.placement_groups}
    for wanted in ids:
        if wanted not in known:
            raise Refusal("InvalidPlacementGroup.Unknown", f"The placement group '{wanted}' is unknown.")
    found = [known[wanted] for wanted in ids] if ids else list(known.values())
    found = [it for it in found if passes(it, self._filters_from_querystring(), names)]
    return Result({"PlacementGroups": found})


def passes(row: dict, filters: dict, names: dict) -> bool:
    tags = {tag["Key"]: tag["Value"] for tag in row.get("Tags", [])}
    for name, values in filters.items():
        if name.startswith("tag:"):
            if not any(access.like(tags.get(name[4:], "\0"), value) for value in values):
                return False
        elif name == "tag-key":
            if not any(key in values for key in tags):
                return False
        elif row.get(names.get(name, name)) not in values:
            return False
    return True
