"""OpenAPI: the document at /api/openapi.json, generated from the table and the shapes."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from starlette.responses import Response

import qbull
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.api.headers import REASON_HEADER
from qbull.api.problems import STATUS_TITLES, ProblemBody
from qbull.store.audit import MAX_AUDIT_REASON_CHARS

SCHEMA_REF = "#/components/schemas/{name}"
PATH_PARAMETERS: dict[str, dict[str, Any]] = {
    "queue": {"type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[A-Za-z0-9._-]+$"},
    "name": {"type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[A-Za-z0-9._-]+$"},
    "limit": {"type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[A-Za-z0-9._-]+$"},
    "schedule": {"type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[A-Za-z0-9._-]+$"},
    "id": {"type": "string", "minLength": 1, "maxLength": 200},
    "key": {"type": "string", "minLength": 1, "maxLength": 1000},
}
TEXT_SCHEMA = {"type": "string", "minLength": 1, "maxLength": 200}


async def openapi(call: ApiCall[Nothing, Nothing]) -> Response:
    return Response(document(), media_type="application/json")


@cache
def document() -> bytes:
    from qbull.api.table import TABLE

    return msgspec.json.encode(describe(TABLE))


def describe(table: list[Endpoint]) -> dict[str, Any]:
    shapes: list[Any] = [ProblemBody]
    for endpoint in table:
        shapes += [shape for shape in (endpoint.answer, endpoint.body) if shape not in (Nothing, str, dict)]
    _, components = msgspec.json.schema_components(dict.fromkeys(shapes), ref_template=SCHEMA_REF)
    schemas = {published_name(name): _published(schema) for name, schema in components.items()}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in table:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "qbull",
            "version": qbull.__version__,
            "description": (
                "Background jobs: inspect, enqueue and manage them. Errors are application/problem+json."
            ),
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
                "session": {"type": "apiKey", "in": "cookie", "name": "qbull_session"},
            },
        },
    }


def published_name(name: str) -> str:
    """The schema name of a shape: its class name without the suffix Info, View, Body or Shape."""
    for suffix in ("Info", "View", "Body", "Shape"):
        if name.endswith(suffix) and name != "ProblemBody":
            return name.removesuffix(suffix)
    return name


def _published(schema: Any) -> Any:
    """The schema with its title and all references under their published names."""
    if isinstance(schema, list):
        return [_published(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: _published(value) for key, value in schema.items()}
    if isinstance(schema.get("title"), str):
        schema["title"] = published_name(schema["title"])
    if isinstance(schema.get("$ref"), str):
        schema["$ref"] = SCHEMA_REF.format(name=published_name(schema["$ref"].rpartition("/")[2]))
    return schema


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "x-role": endpoint.role,
        "parameters": [*map(_in_path, endpoint.parameters), *_in_query(endpoint), *_in_header(endpoint)],
        "responses": _responses(endpoint),
    }
    if endpoint.role != "open":
        made["security"] = [{"token": []}, {"basic": []}, {"session": []}]
    if endpoint.body is not Nothing:
        made["requestBody"] = {
            "required": not endpoint.body_optional,
            "content": {"application/json": {"schema": {**_ref(endpoint.body), **endpoint.rule}}},
        }
    return made


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    content = {} if endpoint.answer is None else {endpoint.media: {"schema": _schema(endpoint)}}
    responses: dict[str, Any] = {
        str(status): {"description": endpoint.summary, "content": {} if status == 204 else content}
        for status in (endpoint.status, *endpoint.answers)
    }
    expected = {*endpoint.problems}
    if endpoint.role != "open":
        expected |= {401, 403, 421, 429, 503}
    if endpoint.body is not Nothing:
        expected |= {400, 413, 415, 503}
    if endpoint.query is not Nothing or endpoint.parameters or endpoint.path.startswith("/api"):
        expected |= {400}
    for status in sorted(expected - {endpoint.status, *endpoint.answers}):
        responses[str(status)] = {
            "description": STATUS_TITLES[status],
            "content": {"application/problem+json": {"schema": _ref(ProblemBody)}},
        }
    return responses


def _schema(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.events:
        return _event_schema(endpoint.events)
    return {"type": "string"} if endpoint.answer is str else _ref(endpoint.answer)


def _event_schema(names: tuple[str, ...]) -> dict[str, Any]:
    """One event of a stream. OpenAPI 3.1 has no other place for it than the schema of the answer."""
    return {
        "type": "object",
        "properties": {
            "event": {"enum": [*names]},
            "id": {"type": "string"},
            "data": {"type": "string", "contentMediaType": "application/json"},
        },
        "required": ["event", "data"],
    }


def _ref(shape: Any) -> dict[str, Any]:
    if shape is dict:
        return {"type": "object"}
    return {"$ref": SCHEMA_REF.format(name=published_name(shape.__name__))}


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": PATH_PARAMETERS.get(name, TEXT_SCHEMA)}


def _in_query(endpoint: Endpoint) -> list[dict[str, Any]]:
    if endpoint.query is Nothing:
        return []
    [schema], components = msgspec.json.schema_components([endpoint.query], ref_template=SCHEMA_REF)
    described = components[endpoint.query.__name__]
    assert schema
    required = described.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _query_schema(of)}
        for name, of in described["properties"].items()
    ]


def _in_header(endpoint: Endpoint) -> list[dict[str, Any]]:
    if endpoint.audit is None:
        return []
    text = (
        f"why, for the audit log: the first {MAX_AUDIT_REASON_CHARS} characters count; "
        "other characters than ASCII are percent-encoded"
    )
    schema = {"type": "string"}
    return [{"name": REASON_HEADER, "in": "header", "required": False, "description": text, "schema": schema}]


def _query_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an optional parameter: a query leaves it out instead of sending "null"."""
    if "anyOf" not in schema:
        return schema
    kinds = [kind for kind in schema["anyOf"] if kind != {"type": "null"}]
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/openapi.json",
        role="open",
        scope="none",
        summary="This document",
        handler=openapi,
        answer=dict,
    )
]
