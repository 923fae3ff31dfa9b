"""The images that AWS publishes: made when their SSM parameter is asked for.

A parameter that follows the newest image (`recommended`, `latest`) moves when the generation is raised; a pinned one stays.
"""

import hashlib
import re
from datetime import datetime, timedelta, timezone

from account import ACCOUNT, ID

VERSION = r"(?P<version>1\.\d+)"
PATTERNS = [
    (
        rf"/aws/service/eks/optimized-ami/{VERSION}/amazon-linux-2023/(?P<arch>x86_64|arm64)/(?P<variant>standard|nvidia|neuron)"
        r"/(?P<pin>recommended|amazon-eks-node-al2023-[a-z0-9_]+-[a-z]+-1\.\d+-v2\d+)/image_id",
        "amazon-eks-node-al2023-{arch}-{variant}-{version}-{stamp}",
    ),
    (
        rf"/aws/service/eks/optimized-ami/{VERSION}/amazon-linux-2(?P<variant>-arm64|-gpu|)"
        r"/(?P<pin>recommended|amazon-eks-(?:gpu-|arm64-)?node-1\.\d+-v2\d+)/image_id",
        "amazon-eks{variant}-node-{version}-{stamp}",
    ),
    (
        rf"/aws/service/bottlerocket/aws-k8s-{VERSION}(?P<variant>-nvidia|)/(?P<arch>x86_64|arm64)/(?P<pin>latest|\d+\.\d+\.\d+)/image_id",
        "bottlerocket-aws-k8s-{version}{variant}-{arch}-v1.5{generation}.0-abcdef01",
    ),
    (
        r"/aws/service/ami-windows-latest/Windows_Server-(?P<pin>20\d\d)-English-Core-EKS_Optimized-" + VERSION + "/image_id",
        "Windows_Server-{pin}-English-Core-EKS_Optimized-{version}-{stamp}",
    ),
]
MOVING = ("recommended", "latest", "2019", "2022", "2025")
BORN = datetime(2026, 6, 1, tzinfo=timezone.utc)


def patch() -> None:
    from moto.ec2.models import ec2_backends
    from moto.ec2.models.amis import Ami
    from moto.ssm.models import Parameter, ParameterDict

    check = ParameterDict._check_loading_status

    def look(self, key):
        check(self, key)
        found = described(str(key or ""))
        if not found:
            return
        backend = ec2_backends[self.account_id][self.region_name]
        image_id, name, architecture, platform, born = found
        if image_id not in backend.amis:
            image = Ami(
                backend,
                ami_id=image_id,
                name=name,
                description=name,
                owner_id="602401143452",
                owner_alias="amazon",
                public=True,
                virtualization_type="hvm",
                architecture=architecture,
                creation_date=born,
                platform=platform,
                hypervisor="xen",
                root_device_type="ebs",
                root_device_name="/dev/xvda",
            )
            backend.amis[image_id] = image
        parameter = Parameter(
            account_id=self.account_id,
            name=key,
            value=image_id,
            parameter_type="String",
            description=None,
            allowed_pattern=None,
            keyid=None,
            last_modified_date=born,
            version=ACCOUNT.image_generation,
            data_type="aws:ec2:image",
        )
        dict.__setitem__(self, key, [parameter])

    ParameterDict._check_loading_status = look


def described(path: str):
    """(id, name, architecture, platform, born), or None for a path that AWS does not publish."""
    for pattern, name in PATTERNS:
        match = re.fullmatch(pattern, path)
        if not match:
            continue
        parts = match.groupdict()
        pin = parts["pin"]
        generation = ACCOUNT.image_generation if pin in MOVING else 0
        variant = parts.get("variant", "")
        architecture = parts.get("arch") or ("arm64" if variant == "-arm64" else "x86_64")
        born = BORN + timedelta(days=generation)
        stamp = pin.rsplit("-", 1)[-1] if pin not in MOVING else born.strftime("v%Y%m%d")
        text = name.format(**{**parts, "arch": architecture, "stamp": stamp, "generation": generation})
        image_id = "ami-" + hashlib.sha256(f"{path} {generation}".encode()).hexdigest()[:17]
        return image_id, text, architecture, "windows" if "Windows" in text else None, born
    return None


def deprecate(region: str, image_id: str, when: str) -> None:
    from moto.ec2.models import ec2_backends

    ec2_backends[ID][region].amis[image_id].deprecation_time = when
