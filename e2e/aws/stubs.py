"""Services that moto does not have, and two answers of STS."""

import json
import time
from xml.sax.saxutils import escape

import access
from account import ACCOUNT, ID

PAGE = 100
STS = 'xmlns="https://sts.amazonaws.com/doc/2011-06-15/"'


def answer(call):
    """(status, content type, text), or None where moto answers."""
    if call.service == "pricing":
        return 200, "application/x-amz-json-1.1", json.dumps(products(call.parameters))
    if call.service == "arc-zonal-shift":
        return 200, "application/json", json.dumps(managed_resource(call.resource()))
    if call.action == "sts:GetCallerIdentity":
        return 200, "text/xml", identity()
    if call.action == "sts:DecodeAuthorizationMessage":
        return decoded(call.parameters.get("EncodedMessage", ""))
    return None


def products(parameters: dict) -> dict:
    """The price list: one row per type, with the same nesting as AWS's."""
    wanted = {term["Field"]: term["Value"] for term in parameters.get("Filters", [])}
    region = wanted.get("regionCode", "")
    is_metal = wanted.get("productFamily") == "Compute Instance (bare metal)"
    names = sorted(name for (where, name) in ACCOUNT.on_demand if where == region and (".metal" in name) == is_metal)
    if not ACCOUNT.priced:
        names = []
    first = int(parameters.get("NextToken") or 0)
    size = int(parameters.get("MaxResults") or PAGE)
    rows = [json.dumps(product(name, ACCOUNT.on_demand[region, name], wanted)) for name in names[first : first + size]]
    found = {"FormatVersion": "aws_v1", "PriceList": rows}
    if first + size < len(names):
        found["NextToken"] = str(first + size)
    return found


def product(name: str, dollars: float, wanted: dict) -> dict:
    currency = "CNY" if wanted.get("regionCode", "").startswith("cn-") else "USD"
    rate = {"unit": "Hrs", "pricePerUnit": {currency: f"{dollars:.10f}"}}
    sku = f"SKU{name.upper().replace('.', '')}"
    return {
        "product": {
            "sku": sku,
            "productFamily": wanted.get("productFamily"),
            "attributes": {**{key: value for key, value in wanted.items() if key != "productFamily"}, "instanceType": name},
        },
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {f"{sku}.TERM": {"sku": sku, "priceDimensions": {f"{sku}.TERM.RATE": rate}}}},
    }


def managed_resource(arn: str) -> dict:
    now = time.time()
    shifts = [
        {
            "appliedStatus": shift.get("status", "APPLIED"),
            "awayFrom": shift["zone_id"],
            "comment": "a drill",
            "expiryTime": now + float(shift.get("seconds", 3600)),
            "resourceIdentifier": arn,
            "startTime": now,
            "zonalShiftId": f"shift-{index}",
        }
        for index, shift in enumerate(ACCOUNT.shifts)
    ]
    return {"arn": arn, "name": arn.rsplit("/", 1)[-1], "appliedWeights": {}, "zonalShifts": shifts, "autoshifts": []}


def identity() -> str:
    return (
        f"<GetCallerIdentityResponse {STS}><GetCallerIdentityResult><Arn>{escape(ACCOUNT.principal)}</Arn>"
        f"<UserId>AROAEXAMPLE:1700000000</UserId><Account>{ID}</Account></GetCallerIdentityResult>"
        "<ResponseMetadata><RequestId>kerf</RequestId></ResponseMetadata></GetCallerIdentityResponse>"
    )


def decoded(blob: str):
    try:
        text = access.decode(blob)
    except ValueError:
        error = (
            f"<ErrorResponse {STS}><Error><Type>Sender</Type><Code>InvalidAuthorizationMessageException</Code>"
            "<Message>The message is not valid</Message></Error><RequestId>kerf</RequestId></ErrorResponse>"
        )
        return 400, "text/xml", error
    found = (
        f"<DecodeAuthorizationMessageResponse {STS}><DecodeAuthorizationMessageResult><DecodedMessage>{escape(text)}"
        "</DecodedMessage></DecodeAuthorizationMessageResult><ResponseMetadata><RequestId>kerf</RequestId></ResponseMetadata>"
        "</DecodeAuthorizationMessageResponse>"
    )
    return 200, "text/xml", found
