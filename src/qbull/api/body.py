"""Body and query: read within bounds and validated. Nothing is parsed before its size is known."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from qbull.api.headers import header
from qbull.api.problems import ApiProblem, InvalidField, wrong_input
from qbull.core.digits import whole_number

S = TypeVar("S", bound=msgspec.Struct)

MAX_BODY_DEPTH = 64
"""Levels of nested arrays and objects."""
MAX_QUERY_BYTES = 20_000
UNCHECKED_FIELDS = ("payload", "args")
"""Arguments for a task are passed on exactly as they were sent."""

_JSON_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
"""An unterminated string matches up to the end. Without that, a small body could take minutes."""


async def read_body(request: Request, shape: type[S], limit: int, *, optional: bool) -> S:
    """Read and validate the body. An optional body that is missing gives the shape's defaults."""
    raw = await _read(request, limit)
    if not raw:
        if optional:
            return shape()
        raise ApiProblem(400, "the body is missing; send JSON")
    if not _is_json(header(request, b"content-type") or ""):
        raise ApiProblem(415, "send JSON, with Content-Type: application/json")
    if (header(request, b"content-encoding") or "identity").lower() != "identity":
        raise ApiProblem(415, "send the body without compression")
    if too_deep(raw):
        raise ApiProblem(400, f"the body has more than {MAX_BODY_DEPTH} levels of nested arrays and objects")
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.ValidationError as error:
        if "got `float`" in str(error):
            return _convert(_whole(msgspec.json.decode(raw)), shape)
        raise wrong_input("body", error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiProblem(
            400, f"the body is not JSON: {error}", errors=[InvalidField("", str(error))]
        ) from None


def _convert(given: Any, shape: type[S]) -> S:
    try:
        return msgspec.convert(given, shape)
    except msgspec.ValidationError as error:
        raise wrong_input("body", error) from None


def _whole(value: Any) -> Any:
    """Accept 5.0 as an integer: some languages write integers like that."""
    if isinstance(value, dict):
        return {name: one if name in UNCHECKED_FIELDS else _whole(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


async def _read(request: Request, limit: int) -> bytes:
    length = header(request, b"content-length") or ""
    if (whole_number(length) or 0) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ApiProblem(400, "the connection was closed before the body was complete")
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int) -> ApiProblem:
    return ApiProblem(
        413, f"the body is larger than {limit:,} bytes; store the data elsewhere and pass a reference"
    )


def _is_json(said: str) -> bool:
    kind = said.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def too_deep(raw: bytes) -> bool:
    if raw.count(b"[") + raw.count(b"{") <= MAX_BODY_DEPTH:
        return False
    depth = 0
    for token in _JSON_TOKENS.finditer(raw):
        first = raw[token.start()]
        if first in b"[{":
            depth += 1
            if depth > MAX_BODY_DEPTH:
                return True
        elif first in b"]}":
            depth -= 1
    return False


def read_query(request: Request, shape: type[S]) -> S:
    """Read and validate the query. Unknown or repeated parameters are refused, so that typos are noticed."""
    if len(request.scope["query_string"]) > MAX_QUERY_BYTES:
        raise ApiProblem(400, f"the query is longer than {MAX_QUERY_BYTES:,} characters")
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise ApiProblem(
                400, f"query: {name}: is given twice", errors=[InvalidField(name, "is given twice")]
            )
        given[name] = value
    try:
        query = msgspec.convert(given, shape, strict=False)
    except msgspec.ValidationError as error:
        raise wrong_input("query", error) from None
    for field in msgspec.structs.fields(shape):
        if field.encode_name in given and getattr(query, field.name) is None:
            why = "leave it out instead of sending no value"
            raise ApiProblem(
                400, f"query: {field.encode_name}: {why}", errors=[InvalidField(field.encode_name, why)]
            )
    return query
