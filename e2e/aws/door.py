"""Every request passes here: counted, judged, answered by a stub, by a planned failure, or by moto."""

import io
import json
import re
import time
import urllib.parse
from xml.sax.saxutils import escape

import access
import control
import stubs
from access import Question
from account import ACCOUNT, ADMIN_KEY, ID

QUERY = ("ec2", "iam", "sts", "autoscaling")
REQUEST_ID = "00000000-0000-4000-8000-00000000kerf"


class Door:
    def __init__(self, moto) -> None:
        self.moto = moto

    def __call__(self, environ, start_response):
        path = environ.get("PATH_INFO", "")
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length) if length else b""
        environ["wsgi.input"] = io.BytesIO(body)
        environ["wsgi.input_terminated"] = True
        if path.startswith("/kerf/"):
            status, answer = control.answer(environ["REQUEST_METHOD"], path[len("/kerf/") :], body)
            return reply(start_response, status, "application/json", json.dumps(answer))
        call = Call(environ, body)
        if call.service:
            with ACCOUNT.lock:
                ACCOUNT.requests.append(call.record())
        if call.action in ACCOUNT.hanging and not call.is_admin:
            ACCOUNT.over.wait()
        if not call.is_admin:
            failure = ACCOUNT.failure(call.action)
            if failure:
                return self.fail(call, start_response, **failure)
            # EC2's own calls are judged where their parameters are read: see ec2.py.
            if call.service != "ec2":
                refused = access.denied(call.questions())
                if refused:
                    code = "AccessDenied" if call.service in QUERY else "AccessDeniedException"
                    return self.fail(call, start_response, code, access.sentence(*refused), 403)
        stub = stubs.answer(call)
        if stub:
            return reply(start_response, *stub)
        return self.moto(environ, start_response)

    def fail(self, call, start_response, code, message, status=400):
        if call.service == "ec2":
            return reply(start_response, status, "text/xml", ec2_error(code, message))
        if call.service in QUERY:
            xml = (
                f"<ErrorResponse><Error><Type>Sender</Type><Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
                f"</Error><RequestId>{REQUEST_ID}</RequestId></ErrorResponse>"
            )
            return reply(start_response, status, "text/xml", xml)
        # The JSON services; both spellings of the type are read by SDKs.
        text = json.dumps({"__type": code, "message": message, "Message": message})
        return reply(start_response, status, "application/x-amz-json-1.1", text, {"x-amzn-errortype": code})


def ec2_error(code: str, message: str) -> str:
    return (
        f"<Response><Errors><Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error></Errors>"
        f"<RequestID>{REQUEST_ID}</RequestID></Response>"
    )


def reply(start_response, status, kind, text, headers=None):
    data = text.encode()
    lines = [("Content-Type", kind), ("Content-Length", str(len(data))), ("x-amzn-requestid", REQUEST_ID)]
    lines += list((headers or {}).items())
    start_response(f"{status} {'OK' if status < 300 else 'Refused'}", lines)
    return [data]


class Call:
    """What is asked, by whom, read from the signature and the body."""

    def __init__(self, environ, body: bytes) -> None:
        scope = re.search(r"Credential=([^/,]+)/\d+/([^/]+)/([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
        self.key, self.region, self.service = scope.groups() if scope else ("", "", "")
        self.is_admin = self.key == ADMIN_KEY
        self.path = urllib.parse.unquote(environ.get("PATH_INFO", ""))
        self.method = environ["REQUEST_METHOD"]
        self.agent = environ.get("HTTP_USER_AGENT", "")
        self.body = body
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        self.parameters: dict = {}
        if self.service in QUERY:
            self.parameters = dict(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True))
            self.operation = self.parameters.get("Action", "")
        elif target:
            self.operation = target.rsplit(".", 1)[-1]
            self.parameters = json.loads(body or b"{}")
        elif self.service == "eks" and re.fullmatch(r"/clusters/[^/]+", self.path) and self.method == "GET":
            self.operation = "DescribeCluster"
        elif self.service == "arc-zonal-shift" and self.path.startswith("/managedresources/"):
            self.operation = "GetManagedResource"
        else:
            self.operation = f"{self.method} {self.path}"

    @property
    def action(self) -> str:
        operation = {"DeleteMessageBatch": "DeleteMessage"}.get(self.operation, self.operation)
        return f"{self.service}:{operation}"

    def record(self) -> dict:
        return {
            "service": self.service,
            "operation": self.operation,
            "region": self.region,
            "parameters": self.parameters,
            "path": self.path,
            "agent": self.agent,
            "admin": self.is_admin,
            "at": time.time(),
        }

    def questions(self) -> list[Question]:
        """What IAM would be asked; EC2 is ec2.py's."""
        if self.action == "sts:GetCallerIdentity" or not self.service:
            return []
        question = Question(self.action, self.resource())
        question.told("aws:RequestedRegion", self.region)
        if self.service == "arc-zonal-shift":
            question.told("arc-zonal-shift:ResourceIdentifier", question.resource)
        if self.service != "iam":
            return [question]
        profile = find_profile(self.parameters.get("InstanceProfileName", ""))
        question.tags("ResourceTag", profile_tags(profile))
        if self.operation == "CreateInstanceProfile":
            question.tags("RequestTag", member_tags(self.parameters))
        questions = [question]
        if self.operation == "AddRoleToInstanceProfile":
            role = f"arn:aws:iam::{ID}:role/{self.parameters.get('RoleName', '')}"
            questions.append(Question("iam:PassRole", role).told("iam:PassedToService", "ec2.amazonaws.com"))
        return questions

    def resource(self) -> str:
        p = self.parameters
        if self.service == "ssm":
            name = p.get("Name", "")
            owner = "" if name.startswith("/aws/") else ID
            return name if name.startswith("arn:") else f"arn:aws:ssm:{self.region}:{owner}:parameter/{name.lstrip('/')}"
        if self.service == "sqs":
            queue = p.get("QueueName") or p.get("QueueUrl", "").rsplit("/", 1)[-1]
            return f"arn:aws:sqs:{self.region}:{ID}:{queue}"
        if self.operation == "DescribeCluster":
            return f"arn:aws:eks:{self.region}:{ID}:cluster/{self.path.rsplit('/', 1)[-1]}"
        if self.service == "arc-zonal-shift":
            return self.path[len("/managedresources/") :]
        if self.service == "iam" and "InstanceProfileName" in p:
            profile = find_profile(p["InstanceProfileName"])
            path = profile.path if profile else p.get("Path", "/")
            return f"arn:aws:iam::{ID}:instance-profile{path}{p['InstanceProfileName']}"
        return "*"


def find_profile(name: str):
    from moto.iam.models import iam_backends

    profiles = iam_backends[ID]["aws"].instance_profiles.values()
    return next((profile for profile in profiles if profile.name == name), None)


def profile_tags(profile) -> dict:
    return {tag["Key"]: tag["Value"] for tag in profile.tags} if profile else {}


def member_tags(parameters: dict) -> dict:
    """Tags.member.N.Key and .Value."""
    found = {}
    for key, value in parameters.items():
        index = re.fullmatch(r"Tags\.member\.(\d+)\.Key", key)
        if index:
            found[value] = parameters.get(f"Tags.member.{index.group(1)}.Value", "")
    return found
