"""REST: from the table of endpoints and the OpenAPI document that is made from it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from qbull.api.endpoint import Endpoint
from qbull.api.openapi import describe
from qbull.api.table import TABLE
from reference.cells import code, table

ROLES = {"open": "none"}
GROUPS: dict[str, tuple[str, ...]] = {
    "Queues": ("queues", "limits", "errors", "latency", "slow"),
    "Jobs": ("jobs", "job_search", "job_stream", "steps", "published"),
    "Many jobs": ("operations", "patching"),
    "Flows": ("flows",),
    "Schedules": ("schedules",),
    "Workers": ("workers",),
    "Alerts and events": ("alerts", "events"),
    "Health and metrics": ("health", "overview", "metrics", "openapi"),
    "Access": ("auth_endpoints",),
}
"""The modules of the API with their endpoints. A module that is not listed is in the last group, "More"."""
LEAD = (
    "# REST\n\n`qbull serve` answers these requests; the guide is [REST API](../../guides/rest_api.md). The same as a document for programs is at "
    "`/api/openapi.json`. Errors are `application/problem+json`.\n"
)


def pages() -> dict[str, Callable[[], str]]:
    """A page for each group of endpoints, the list of all, and the shapes."""
    made: dict[str, Callable[[], str]] = {"rest/index": index, "rest/shapes": shapes_page}
    for title in groups():
        made[f"rest/{slug(title)}"] = partial(group_page, title)
    return made


def groups() -> dict[str, list[Endpoint]]:
    title_of = {module: title for title, modules in GROUPS.items() for module in modules}
    found: dict[str, list[Endpoint]] = {title: [] for title in GROUPS}
    for one in TABLE:
        title = title_of.get(one.handler.__module__.rpartition(".")[2], "More")
        found.setdefault(title, []).append(one)
    return found


def slug(title: str) -> str:
    return title.lower().replace(" ", "_")


def index() -> str:
    text = LEAD
    for title, endpoints in groups().items():
        rows = [
            (
                one.method,
                f"[{code(one.path)}]({slug(title)}.md#{one.name})",
                ROLES.get(one.role, one.role),
                one.summary,
            )
            for one in endpoints
        ]
        text += f"\n## {title}\n\n" + table(("", "path", "role", "meaning"), rows)
    return text + "\n[Shapes](shapes.md) has the fields of every request and response.\n"


def group_page(title: str) -> str:
    document = describe(TABLE)
    shapes = document["components"]["schemas"]
    text = f"# REST: {title}\n"
    for one in groups()[title]:
        text += f"\n## {code(f'{one.method} {one.path}')} {{#{one.name}}}\n\n{one.summary}. Role: {ROLES.get(one.role, one.role)}.\n\n"
        operation = document["paths"][one.path][one.method.lower()]
        rows = [
            _row(p["name"], p["schema"], p["required"], f"in the {p['in']}") for p in operation["parameters"]
        ]
        if "requestBody" in operation:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            rows += _fields(schema, shapes, "in the body")
        if rows:
            text += table(("name", "place", "type", "required"), rows) + "\n"
        text += "Status codes: " + ", ".join(sorted(operation["responses"])) + ".\n"
        if fields := [name for name, *_ in _fields(_answer(operation), shapes, "")]:
            text += "Fields of the response: " + ", ".join(fields) + ".\n"
    return text


def shapes_page() -> str:
    shapes = describe(TABLE)["components"]["schemas"]
    return "# REST: shapes\n\n" + "\n".join(
        _shape(name, shape, shapes) for name, shape in sorted(shapes.items())
    )


def _answer(operation: dict[str, Any]) -> dict[str, Any]:
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            return dict(response["content"].get("application/json", {}).get("schema", {}))
    return {}


def _fields(schema: dict[str, Any], shapes: dict[str, Any], where: str) -> list[tuple[str, str, str, str]]:
    shape = _resolved(schema, shapes)
    needed = shape.get("required", [])
    return [_row(name, of, name in needed, where) for name, of in shape.get("properties", {}).items()]


def _resolved(schema: dict[str, Any], shapes: dict[str, Any]) -> dict[str, Any]:
    return dict(shapes[schema["$ref"].rpartition("/")[2]]) if "$ref" in schema else schema


def _row(name: str, schema: dict[str, Any], needed: bool, where: str) -> tuple[str, str, str, str]:
    return (code(name), where, kind(schema), "yes" if needed else "")


def _shape(name: str, shape: dict[str, Any], shapes: dict[str, Any]) -> str:
    rows = [(field, of, needed) for field, _, of, needed in _fields(shape, shapes, "")]
    head = f"## {name}\n\n" + (
        f"{' '.join(shape['description'].split())}\n\n" if "description" in shape else ""
    )
    return head + (table(("field", "type", "always there"), rows) if rows else "")


def kind(schema: dict[str, Any]) -> str:
    """A JSON Schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](shapes.md#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(
            f'`"{value}"`' if isinstance(value, str) else f"`{value}`" for value in schema["enum"]
        )
    if "const" in schema:
        return f"`{schema['const']}`"
    named = schema.get("type", "anything")
    if named == "array":
        return f"list of {kind(schema.get('items', {}))}"
    if named == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {kind(schema['additionalProperties'])}"
    return str(named)
