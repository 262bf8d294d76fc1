"""JSON Schemas of annotated types, for forms, for checks without the code, and for typed stubs."""

from __future__ import annotations

from typing import Any

import msgspec
import msgspec.inspect

from qbull.core.values import ValueHooks, schema_of, title_of


def type_schema(kind: Any, hooks: ValueHooks) -> dict[str, Any] | None:
    """A JSON Schema of a type; None if there is none."""
    # A user's own hook may accept any form of a type that msgspec does not know.
    hook = title_of if hooks.takes_any_type else schema_of
    try:
        schema = msgspec.json.schema(kind, schema_hook=hook)
        _name_times(msgspec.inspect.type_info(kind), schema, schema.get("$defs", {}), set())
    except Exception:  # a model's own schema may raise anything
        return None
    return schema


def _name_times(info: Any, schema: Any, definitions: dict[str, Any], seen: set[int]) -> None:
    """Add the format of a `datetime` or `time`, which msgspec leaves out if a time zone is optional."""
    if not isinstance(schema, dict):
        return
    if isinstance(info, msgspec.inspect.DateTimeType | msgspec.inspect.TimeType):
        schema.setdefault("format", "time" if isinstance(info, msgspec.inspect.TimeType) else "date-time")
        return
    if "$ref" in schema:
        schema = definitions.get(schema["$ref"].rpartition("/")[2], {})
        if id(schema) in seen:
            return
        seen.add(id(schema))
    parts: list[tuple[Any, Any]] = []
    match info:
        case msgspec.inspect.UnionType():
            choices = schema.get("anyOf", [])
            parts = list(zip(info.types, choices, strict=True)) if len(choices) == len(info.types) else []
        case msgspec.inspect.TupleType():
            parts = list(zip(info.item_types, schema.get("prefixItems", []), strict=False))
        case msgspec.inspect.DictType():
            parts = [(info.value_type, schema.get("additionalProperties"))]
        case msgspec.inspect.CollectionType():
            parts = [(info.item_type, schema.get("items"))]
        case msgspec.inspect.StructType() if info.array_like:
            parts = [
                (field.type, part)
                for field, part in zip(info.fields, schema.get("prefixItems", []), strict=False)
            ]
        case msgspec.inspect.StructType() | msgspec.inspect.DataclassType() | msgspec.inspect.TypedDictType():
            fields = schema.get("properties", {})
            parts = [(field.type, fields.get(field.encode_name)) for field in info.fields]
        case msgspec.inspect.Metadata():
            parts = [(info.type, schema)]
    for inner, part in parts:
        _name_times(inner, part, definitions, seen)
