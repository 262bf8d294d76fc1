"""Check plain data against a JSON Schema: the keywords that describe the arguments of tasks.

A producer without the code of a task checks its arguments by the schema that workers have published. The
worker checks them again by the code. A keyword that this module does not know refuses nothing.
"""

from __future__ import annotations

import datetime
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

Schema = Mapping[str, Any]

MODEL_COMMENT = "checked by its model"
"""Marks the schema of a model, which may accept more forms of a time than qbull itself."""

MAX_SCHEMA_DEPTH = 64
MAX_EXPECTED_LETTERS = 60

_FORMATS: dict[str, Any] = {
    "date-time": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "duration": datetime.timedelta,
    "uuid": UUID,
    "decimal": Decimal,
}
_BOUNDS: tuple[tuple[str, str, Callable[[Any, Any], bool]], ...] = (
    ("minimum", "at least", operator.ge),
    ("maximum", "at most", operator.le),
    ("exclusiveMinimum", "more than", operator.gt),
    ("exclusiveMaximum", "less than", operator.lt),
)
_LENGTHS = (
    (str, "minLength", "maxLength", "characters"),
    (list, "minItems", "maxItems", "items"),
    (dict, "minProperties", "maxProperties", "fields"),
)


class SchemaError(Exception):
    """A value does not fit. `path` leads to the part that does not; it is empty for the value itself."""

    def __init__(self, path: str, fact: str) -> None:
        super().__init__(f"{path.removeprefix('.')}: {fact}" if path else fact)
        self.path = path
        self.fact = fact


class SchemaCheck:
    """Checks values against one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def __call__(self, value: Any) -> None:
        """Raise SchemaError if the value does not fit."""
        _check(value, self._schema, _Scope({}), "", 0)

    def object_schema(self) -> Schema:
        """The schema of the object itself, which a reference may lead to."""
        schema, _ = _resolve(self._schema, _Scope({}))
        return schema

    def expected(self, schema: Any) -> str:
        """A part of the schema in a few words, such as `integer` or `array of string`."""
        return _expected(schema, _Scope(self._schema.get("$defs", {})))


class _Scope:
    """The definitions that references lead to, and whether a model checks the values."""

    def __init__(self, definitions: Schema, in_model: bool = False) -> None:
        self.definitions = definitions
        self.in_model = in_model

    def inside(self, schema: Schema) -> _Scope:
        more = schema.get("$defs")
        in_model = self.in_model or schema.get("$comment") == MODEL_COMMENT
        if more is None and in_model == self.in_model:
            return self
        return _Scope({**self.definitions, **(more or {})}, in_model)


def _resolve(schema: Any, scope: _Scope) -> tuple[Schema, _Scope]:
    """Follow references. An unknown one leads to a schema that accepts everything."""
    for _ in range(MAX_SCHEMA_DEPTH):
        if not isinstance(schema, Mapping):
            return {}, scope
        scope = scope.inside(schema)
        reference = schema.get("$ref")
        if reference is None:
            return schema, scope
        schema = scope.definitions.get(str(reference).rpartition("/")[2], {})
    return {}, scope


def _check(value: Any, schema: Any, scope: _Scope, path: str, depth: int) -> None:
    if schema is False:
        raise SchemaError(path, "expected nothing here")
    if depth > MAX_SCHEMA_DEPTH:
        return
    schema, scope = _resolve(schema, scope)
    for part in schema.get("allOf", ()):
        _check(value, part, scope, path, depth + 1)
    _check_choices(value, schema, scope, path, depth)
    kind = schema.get("type")
    if kind is not None and not _is_of(value, kind, schema):
        raise SchemaError(path, f"expected {_expected(schema, scope)}, got {_name_of(value)}")
    if "enum" in schema and value not in schema["enum"]:
        raise SchemaError(path, f"expected {_expected(schema, scope)}, got {_shown(value)}")
    if "const" in schema and value != schema["const"]:
        raise SchemaError(path, f"expected {_shown(schema['const'])}, got {_shown(value)}")
    _check_bounds(value, schema, path)
    if isinstance(value, str):
        _check_text(value, schema, scope, path)
    elif isinstance(value, list):
        _check_items(value, schema, scope, path, depth)
    elif isinstance(value, dict):
        _check_fields(value, schema, scope, path, depth)


def _check_choices(value: Any, schema: Schema, scope: _Scope, path: str, depth: int) -> None:
    choices = schema.get("anyOf") or schema.get("oneOf") or ()
    tagged = schema.get("discriminator")
    if isinstance(tagged, Mapping) and isinstance(value, dict) and "mapping" in tagged:
        name, mapping = tagged["propertyName"], tagged["mapping"]
        tag = value.get(name)
        if str(tag) not in mapping:
            expected = " or ".join(map(_shown, mapping))
            raise SchemaError(f"{path}.{name}", f"expected {expected}, got {_shown(tag)}")
        choices = [{"$ref": mapping[str(tag)]}]
    deepest: SchemaError | None = None
    for choice in choices:
        try:
            _check(value, choice, scope, path, depth + 1)
        except SchemaError as error:
            # The choice that fits best is the one whose refusal lies deepest.
            if deepest is None or len(error.path) > len(deepest.path):
                deepest = error
        else:
            return
    if deepest is not None:
        if deepest.path != path:
            raise deepest
        got = _name_of(value) if isinstance(value, list | dict) else _shown(value)
        raise SchemaError(path, f"expected {_expected(schema, scope)}, got {got}")


def _is_of(value: Any, kind: Any, schema: Schema) -> bool:
    match kind:
        case "string":
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return isinstance(value, str) or (is_number and schema.get("format") == "decimal")
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case list():
            return any(_is_of(value, one, schema) for one in kind)
        case _:
            return True


def _check_bounds(value: Any, schema: Schema, path: str) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        for keyword, words, fits in _BOUNDS:
            if keyword in schema and not fits(value, schema[keyword]):
                raise SchemaError(path, f"expected {words} {schema[keyword]}, got {_shown(value)}")
    for kind, least, most, unit in _LENGTHS:
        if isinstance(value, kind):
            count = len(value)
            if count < schema.get(least, 0):
                raise SchemaError(path, f"expected at least {schema[least]} {unit}, got {count}")
            if most in schema and count > schema[most]:
                raise SchemaError(path, f"expected at most {schema[most]} {unit}, got {count}")


def _check_text(value: str, schema: Schema, scope: _Scope, path: str) -> None:
    if scope.in_model:
        return
    made_of = _FORMATS.get(str(schema.get("format")))
    if made_of is None and schema.get("contentEncoding") == "base64":
        made_of = bytes
    if made_of is not None:
        try:
            msgspec.convert(value, made_of)
        except msgspec.ValidationError:
            expected = schema.get("format") or "base64"
            raise SchemaError(path, f"expected {expected}, got {_shown(value)}") from None
    pattern = schema.get("pattern")
    if pattern is not None and not _matches(pattern, value):
        raise SchemaError(path, f"expected a text that matches {pattern}, got {_shown(value)}")


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error:  # The pattern of another language.
        return True


def _check_items(value: list[Any], schema: Schema, scope: _Scope, path: str, depth: int) -> None:
    first = schema.get("prefixItems", ())
    for number, (item, part) in enumerate(zip(value, first, strict=False)):
        _check(item, part, scope, f"{path}[{number}]", depth + 1)
    rest = schema.get("items")
    if rest is not None:
        for number, item in enumerate(value[len(first) :], len(first)):
            _check(item, rest, scope, f"{path}[{number}]", depth + 1)


def _check_fields(value: dict[str, Any], schema: Schema, scope: _Scope, path: str, depth: int) -> None:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            raise SchemaError(f"{path}.{name}", f"is missing; expected {_expected(known.get(name), scope)}")
    others = schema.get("additionalProperties")
    for name, item in value.items():
        if name in known:
            _check(item, known[name], scope, f"{path}.{name}", depth + 1)
        elif others is False:
            raise SchemaError(f"{path}.{name}", "is unknown")
        elif isinstance(others, Mapping):
            _check(item, others, scope, f"{path}[{name!r}]", depth + 1)


def _expected(schema: Any, scope: _Scope, depth: int = 0) -> str:
    """A schema in a few words."""
    if depth > 3:
        return "any value"
    schema, scope = _resolve(schema, scope)
    choices = schema.get("anyOf") or schema.get("oneOf") or ()
    if choices:
        words = " or ".join(dict.fromkeys(_expected(one, scope, depth + 1) for one in choices))
        return words if len(words) <= MAX_EXPECTED_LETTERS else "another value"
    if "enum" in schema:
        words = " or ".join(map(_shown, schema["enum"]))
        return words if len(words) <= MAX_EXPECTED_LETTERS else f"one of {len(schema['enum'])} values"
    kind = schema.get("type")
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        return f"array of {_expected(schema['items'], scope, depth + 1)}"
    if kind == "object" and "title" in schema:
        return str(schema["title"])
    if kind == "string":
        encoded = "base64" if "contentEncoding" in schema else "string"
        return str(schema.get("format") or encoded)
    if isinstance(kind, list):
        return " or ".join(map(str, kind))
    return str(kind or schema.get("title") or "any value")


def _name_of(value: Any) -> str:
    """The JSON type of a value."""
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string")):
        if isinstance(value, kind):
            return name
    return "null" if value is None else "array" if isinstance(value, list) else "object"


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= MAX_EXPECTED_LETTERS else f"{text[:MAX_EXPECTED_LETTERS]}…"


def parameters_in(check: SchemaCheck) -> Iterator[tuple[str, Schema, bool]]:
    """The parameters of a task: name, schema, and whether it is required."""
    schema = check.object_schema()
    required = schema.get("required", ())
    for name, part in schema.get("properties", {}).items():
        yield name, part, name in required
