"""Print the TypeScript of the API's shapes, from its OpenAPI document: `python ui/wire.py > ui/src/wire.ts`. A test holds the file to it.

So a change of the API that the page does not know breaks the page's build, not the page.
"""

from __future__ import annotations

import json
import re
from typing import Any

from qbull.api.openapi import describe
from qbull.api.table import TABLE


def typescript() -> str:
    schemas = describe(TABLE)["components"]["schemas"]
    parts = ["// Written by ui/wire.py from the API's shapes: change those, not this.\n"]
    for name, schema in sorted(schemas.items()):
        fields = schema.get("properties", {})
        required = set(schema.get("required", ()))
        lines = [
            f"  {_name(field)}{'' if field in required else '?'}: {_kind(of)};"
            for field, of in fields.items()
        ]
        parts.append("\n".join([f"export interface {name} {{", *lines, "}\n"]))
    return "\n".join(parts)


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"]))
    match schema.get("type"):
        case "string":
            return "string"
        case "integer" | "number":
            return "number"
        case "boolean":
            return "boolean"
        case "null":
            return "null"
        case "array":
            inner = _kind(schema.get("items", {}))
            return f"({inner})[]" if "|" in inner else f"{inner}[]"
        case "object":
            inner = schema.get("additionalProperties")
            return f"Record<string, {_kind(inner) if isinstance(inner, dict) else 'unknown'}>"
        case _:
            return "unknown"


def _name(field: str) -> str:
    return field if re.fullmatch(r"[A-Za-z_]\w*", field) else json.dumps(field)


if __name__ == "__main__":
    print(typescript(), end="")  # noqa: T201
