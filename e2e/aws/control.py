"""What tests turn: JSON in, JSON out, under /kerf/.

    POST reset                      forget everything, moto's state included
    POST prepare {cluster, region}  a VPC, subnets in three zones, security groups, a node role, an EKS cluster, a queue
    POST stock {stock: [[capacity type, type or *, zone or *, count or null]]}
    POST set {policy, principal, full_subnets, reservations, placement_groups, shifts, impaired, image_generation, priced}
    POST fail {action, code, message, status, times}   times null: until taken back with code null
    POST hang {action, on}          heard and not answered, while on
    POST deprecate {region, image, at}
    POST release {region, instance, tag}               takes a tag off, as a person would
    POST send {region, queue_url, bodies}              messages into a queue, as EventBridge would
    GET  requests, POST forget      what was asked so far
    GET  holdings                   instances, templates and profiles that are there now
"""

import json
import threading
from collections import deque

from account import ACCOUNT, ADMIN_KEY, ID

SETTINGS = (
    "policy",
    "principal",
    "reservations",
    "placement_groups",
    "shifts",
    "impaired",
    "image_generation",
    "priced",
)


def answer(method: str, path: str, body: bytes):
    order = json.loads(body) if body else {}
    handler = {
        "reset": reset,
        "prepare": prepare,
        "stock": stock,
        "set": change,
        "fail": fail,
        "hang": hang,
        "deprecate": deprecate,
        "release": release,
        "send": send,
        "requests": lambda _: list(ACCOUNT.requests),
        "forget": lambda _: ACCOUNT.requests.clear(),
        "holdings": holdings,
    }.get(path)
    if handler is None:
        return 404, {"error": f"there is no handle {path}"}
    try:
        # Preparing calls back through the door: it must not hold the lock.
        if handler is prepare:
            return 200, handler(order)
        with ACCOUNT.lock:
            return 200, handler(order)
    except Exception as error:
        return 500, {"error": f"{type(error).__name__}: {error}"}


def reset(_):
    from moto.backends import get_backend

    for name in ("ec2", "iam", "sqs", "ssm", "eks", "sts", "events", "autoscaling"):
        get_backend(name).reset()
    ACCOUNT.reset()


def stock(order):
    for kind, name, zone, count in order["stock"]:
        if count is None:
            ACCOUNT.stock.pop((kind, name, zone), None)
        else:
            ACCOUNT.stock[kind, name, zone] = count


def change(order):
    for key, value in order.items():
        if key == "full_subnets":
            ACCOUNT.full_subnets = set(value)
        elif key in SETTINGS:
            setattr(ACCOUNT, key, value)
        else:
            raise KeyError(f"{key} cannot be set; there are {', '.join(SETTINGS)} and full_subnets")


def fail(order):
    action, code = order["action"], order.get("code")
    failure = {"code": code, "message": order.get("message", ""), "status": order.get("status", 400)}
    if code is None:
        ACCOUNT.always.pop(action, None)
        ACCOUNT.failures.pop(action, None)
    elif order.get("times") is None:
        ACCOUNT.always[action] = failure
    else:
        ACCOUNT.failures.setdefault(action, deque()).extend([failure] * order["times"])


def hang(order):
    if order["on"]:
        ACCOUNT.hanging.add(order["action"])
    else:
        ACCOUNT.hanging.discard(order["action"])
        ACCOUNT.over.set()
        ACCOUNT.over = threading.Event()


def deprecate(order):
    import images

    images.deprecate(order["region"], order["image"], order["at"])


def release(order):
    from moto.ec2.models import ec2_backends

    ec2_backends[ID][order["region"]].delete_tags([order["instance"]], {order["tag"]: None})


def send(order):
    queue = order["queue_url"].rsplit("/", 1)[-1]
    from moto.sqs.models import sqs_backends

    backend = sqs_backends[ID][order["region"]]
    for body in order["bodies"]:
        backend.send_message(queue, body)


def holdings(_):
    from moto.ec2.models import ec2_backends
    from moto.iam.models import iam_backends

    instances, templates = [], []
    for region, backend in ec2_backends[ID].items():
        for reservation in backend.all_reservations():
            for instance in reservation.instances:
                if instance.state != "terminated":
                    kind = instance.lifecycle or "on-demand"
                    row = {"id": instance.id, "type": instance.instance_type, "state": instance.state, "region": region}
                    tags = {tag["key"]: tag["value"] for tag in instance.get_tags()}
                    instances.append({**row, "zone": instance.placement.zone, "capacity_type": kind, "tags": tags})
        templates += [template.name for template in backend.launch_templates.values()]
    profiles = [profile.name for profile in iam_backends[ID]["aws"].instance_profiles.values()]
    return {"instances": instances, "templates": templates, "profiles": profiles}


def prepare(order):
    import boto3

    cluster, region = order["cluster"], order["region"]

    def client(service):
        return boto3.client(
            service,
            region_name=region,
            endpoint_url=ACCOUNT.endpoint,
            aws_access_key_id=ADMIN_KEY,
            aws_secret_access_key="secret",
        )

    ec2, iam = client("ec2"), client("iam")
    discovery = {"Key": "karpenter.sh/discovery", "Value": cluster}
    owned = {"Key": f"kubernetes.io/cluster/{cluster}", "Value": "owned"}
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    zones = [zone["ZoneName"] for zone in ec2.describe_availability_zones()["AvailabilityZones"]][:3]
    subnets = []
    for index, zone in enumerate(zones):
        made = ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{index * 64}.0/18", AvailabilityZone=zone)["Subnet"]
        name = {"Key": "Name", "Value": f"{cluster}-private-{zone}"}
        ec2.create_tags(Resources=[made["SubnetId"]], Tags=[discovery, name])
        subnets.append({"id": made["SubnetId"], "zone": zone, "zone_id": made["AvailabilityZoneId"]})
    groups = []
    for name, tags in (("nodes", [discovery, owned]), ("cluster", [discovery])):
        made = ec2.create_security_group(GroupName=f"{cluster}-{name}", Description=name, VpcId=vpc)["GroupId"]
        ec2.create_tags(Resources=[made], Tags=tags)
        groups.append(made)
    role = f"KarpenterNodeRole-{cluster}"
    trust = {"Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]}
    role_arn = iam.create_role(RoleName=role, AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]
    profile = f"KarpenterNodeInstanceProfile-{cluster}"
    iam.create_instance_profile(InstanceProfileName=profile)
    iam.add_role_to_instance_profile(InstanceProfileName=profile, RoleName=role)
    network = {"subnetIds": [subnet["id"] for subnet in subnets], "securityGroupIds": groups}
    made = client("eks").create_cluster(
        name=cluster, version=order.get("version", "1.35"), roleArn=role_arn, resourcesVpcConfig=network
    )["cluster"]
    queue = client("sqs").create_queue(QueueName=cluster)["QueueUrl"]
    ACCOUNT.requests.clear()
    return {
        "vpc": vpc,
        "subnets": subnets,
        "security_groups": groups,
        "role": role,
        "profile": profile,
        "cluster_arn": made["arn"],
        "queue_url": queue,
        "account": ID,
    }
