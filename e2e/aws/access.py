"""Judges calls by an IAM policy, as far as the policies of Karpenter's documents go.

A policy allows a question (action, resource, context) when some statement with Effect Allow matches and none with Deny does. A statement
matches by Action, Resource (both with wildcards) and every operator of its Condition.
"""

import base64
import fnmatch
import json
import re

from account import ACCOUNT


class Question:
    def __init__(self, action: str, resource: str = "*", **context) -> None:
        self.action = action
        self.resource = resource
        # Keys as conditions write them, lower-cased before the slash only: tag keys keep their case.
        self.context: dict[str, object] = {}
        for key, value in context.items():
            self.context[key] = value

    def tags(self, kind: str, tags: dict | None) -> "Question":
        """kind: RequestTag or ResourceTag."""
        for key, value in (tags or {}).items():
            self.context[f"aws:{kind}/{key}"] = value
            if kind == "ResourceTag":
                self.context[f"ec2:{kind}/{key}"] = value
        if kind == "RequestTag":
            self.context["aws:TagKeys"] = list(tags or {})
        return self

    def told(self, key: str, value: object) -> "Question":
        self.context[key] = value
        return self


def denied(questions: list[Question]) -> tuple[Question, bool] | None:
    """The first question that the policy does not allow, and whether it denies it expressly."""
    policy = ACCOUNT.policy
    if policy is None:
        return None
    for question in questions:
        effects = {statement["Effect"] for statement in listed(policy["Statement"]) if matches(statement, question)}
        if "Deny" in effects:
            return question, True
        if "Allow" not in effects:
            return question, False
    return None


def matches(statement: dict, question: Question) -> bool:
    actions = [action.lower() for action in listed(statement.get("Action", []))]
    if not any(like(question.action.lower(), action) for action in actions):
        return False
    if not any(like(question.resource, pattern) for pattern in listed(statement.get("Resource", []))):
        return False
    for operator, wanted in statement.get("Condition", {}).items():
        for key, values in wanted.items():
            if not holds(operator, context(question, key), [str(value) for value in listed(values)]):
                return False
    return True


def context(question: Question, key: str):
    if key in question.context:
        return question.context[key]
    # Condition keys do not care about case; tag keys after the slash are compared as they are first.
    for known, value in question.context.items():
        if known.lower() == key.lower():
            return value
    return None


def holds(operator: str, found, wanted: list[str]) -> bool:
    if operator.startswith("ForAllValues:"):
        return all(holds(operator.split(":", 1)[1], value, wanted) for value in listed(found or []))
    if operator.startswith("ForAnyValue:"):
        return any(holds(operator.split(":", 1)[1], value, wanted) for value in listed(found or []))
    if operator.endswith("IfExists"):
        return found is None or holds(operator[: -len("IfExists")], found, wanted)
    if operator == "Null":
        return (found is None) == (wanted[0].lower() == "true")
    if operator in ("StringNotEquals", "StringNotLike"):
        return found is None or not holds(operator.replace("Not", ""), found, wanted)
    if found is None:
        return False
    value = str(found)
    if operator in ("StringEquals", "ArnEquals"):
        return value in wanted
    if operator in ("StringLike", "ArnLike"):
        return any(like(value, pattern) for pattern in wanted)
    if operator == "Bool":
        return value.lower() in [word.lower() for word in wanted]
    raise ValueError(f"the condition operator {operator} is not known here")


def like(text: str, pattern: str) -> bool:
    """IAM's wildcards are * and ?; brackets are themselves."""
    return re.fullmatch(fnmatch.translate(re.sub(r"([\[\]])", r"[\1]", pattern)), text) is not None


def listed(value) -> list:
    return value if isinstance(value, list) else [value]


def sentence(question: Question, explicit: bool) -> str:
    why = "with an explicit deny in an identity-based policy" if explicit else (
        f"because no identity-based policy allows the {question.action} action"
    )
    on = "" if question.resource == "*" else f" on resource: {question.resource}"
    return f"User: {ACCOUNT.principal} is not authorized to perform: {question.action}{on} {why}"


def ec2_message(question: Question, explicit: bool, encoded: bool) -> str:
    """EC2 hides the details of what changes something; a reading call says them."""
    if not encoded:
        return f"You are not authorized to perform this operation. {sentence(question, explicit)}"
    return (
        "You are not authorized to perform this operation. Encoded authorization failure message: "
        + encode(question, explicit)
    )


def encode(question: Question, explicit: bool) -> str:
    conditions = [
        {"key": key, "values": {"items": [{"value": str(value)} for value in listed(values)]}}
        for key, values in sorted(question.context.items())
    ]
    decoded = {
        "allowed": False,
        "explicitDeny": explicit,
        "matchedStatements": {"items": []},
        "failures": {"items": []},
        "context": {
            "principal": {"id": "AROAEXAMPLE:1700000000", "arn": ACCOUNT.principal},
            "action": question.action,
            "resource": question.resource,
            "conditions": {"items": conditions},
        },
    }
    return base64.urlsafe_b64encode(json.dumps(decoded).encode()).decode().rstrip("=")


def decode(blob: str) -> str:
    text = base64.urlsafe_b64decode(blob + "=" * (-len(blob) % 4)).decode()
    json.loads(text)
    return text
